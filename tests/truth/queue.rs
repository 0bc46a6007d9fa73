//! Clocks over a path that takes some 14 ms longer in one direction: packets to the agent wait in a queue, its own
//! packets do not. No exchange of time stamps can detect this, so the offset is wrong by half of it; the reported error
//! must cover it.

use crate::needs;
use crate::support::mesh::Mesh;
use crate::support::net::Network;
use crate::support::starts::StartLogs;
use benchmesh_testing::{measured, timing};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STARTS: usize = 5;
/// Mbit/s.
const RATE: u32 = 20;
const BYTES_PER_S: f64 = RATE as f64 * 1e6 / 8.0;
/// The flood is ahead of the link by this time, of which the link's bucket takes 10 ms.
const AHEAD: Duration = Duration::from_millis(24);
/// On a busy machine the queue sometimes drains before the next packets are written.
const MIN_QUEUED_US: i64 = 2_500;
/// Payload, and the bytes that the queue counts for it, including UDP, IP and Ethernet headers.
const PAYLOAD: usize = 1400;
const PACKET: f64 = 1442.0;
/// A drift of 100 ppm over the window of half a minute from which the best exchange is chosen.
const DRIFT_US: i64 = 3_000;

#[test]
fn the_stated_error_covers_a_queue_in_one_direction() {
    needs!("netns");
    measured(|| {
        let net = Network::new(1);
        net.shape(1, RATE);
        let flood = Flood::start(SocketAddr::from((net.address(1), 9)));
        let mut mesh = Mesh::listening_on(&format!("{}:0", net.host()));
        let mut logs = StartLogs::new(mesh.directory(), 0);
        let near = logs.agent("near", Duration::ZERO);
        let far = logs.agent("far", Duration::ZERO).inside(&net.namespace(1));
        mesh.launch(near);
        mesh.launch(far);
        mesh.until_attached(&["far", "near"]);
        mesh.run(&format!(
            "repeat = {STARTS}\n[[phase]]\nworkload = \"null\"\nops = 1000\n"
        ));
        drop(flood);

        let db = mesh.db();
        let steps = logs.read(&db);
        assert_eq!(steps.len(), STARTS);
        for task in steps.values().flatten() {
            assert!(
                task.off_us() <= task.error_us as f64 + 2.0,
                "the error does not cover the truth: {task:?}"
            );
        }
        let best = |agent: &str| {
            db.one::<i64>(&format!(
            "SELECT min(round_trip_us) FROM clock_offsets o JOIN agents a ON a.id = o.agent_id WHERE a.name = '{agent}'"
        ))
        };
        // The queue delayed only the far agent: even its best exchange waited in the rest of the queue.
        let (near, far) = (best("near"), best("far"));
        timing!(
            far > near + MIN_QUEUED_US,
            "no queue: {far} us, {near} us without"
        );
        let errors = "SELECT max(t.skew_error_us) FROM tasks t JOIN agents a ON a.id = t.agent_id WHERE a.name = 'far'";
        let worst: i64 = db.one(errors);
        let widest: i64 = db.one("SELECT max(round_trip_us) FROM clock_offsets");
        assert!(
            worst <= widest / 2 + DRIFT_US,
            "an error of {worst} us for round trips of at most {widest} us"
        );
        Ok(())
    });
}

/// Sends packets as fast as the link accepts them, behind a full queue. Ends on drop.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(to: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let began = Instant::now();
            let mut sent = 0.0;
            while !told.load(Ordering::Relaxed) {
                let due = (began.elapsed() + AHEAD).as_secs_f64() * BYTES_PER_S;
                while sent < due {
                    // No process listens there; the port's answer does not matter.
                    let _ = socket.send_to(&[0; PAYLOAD], to);
                    sent += PACKET;
                }
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
