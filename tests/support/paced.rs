//! A rate of a whole step over many clients, of which one is killed. Figures come from the kernel's count for each
//! client.

use super::clients::Workers;
use super::mesh::Mesh;
use super::plan::{self, READS};
use super::wait::until_true;
use std::time::{Duration, Instant};

pub const RATE: u32 = 3000;
pub const CLIENTS: usize = 16;
pub const LEASE: Duration = Duration::from_secs(4);
/// Time limit after the end of the lease for the total to recover.
pub const BACK_WITHIN: Duration = Duration::from_secs(3);
/// Length of the observation after that.
const AFTER: Duration = Duration::from_secs(5);
/// Time after which all workers have started and have been read once.
const SETTLED: Duration = Duration::from_millis(500);

/// The results, as fractions of the rate.
#[derive(Debug)]
pub struct Figures {
    /// Total rate of all clients before the kill.
    pub total: f64,
    /// Largest relative deviation of a client from its share.
    pub worst_client: f64,
    /// The rate between the kill and the end of the lease.
    pub while_leased: f64,
    /// Seconds for which the lost client's part was missing, minus the lease: the missing operations divided by its
    /// share.
    pub back_after_s: f64,
    /// The rate after the time limit for recovery.
    pub after: f64,
    /// Like `total`, from the reported intervals of that time.
    pub reported: f64,
}

/// Runs the load at the rate for `span`, kills a client, and observes the others.
pub fn measure(span: Duration) -> Figures {
    let target = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..CLIENTS).map(|client| format!("c{client:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut mesh = Mesh::of(&names, target.path());
    let runtime = span + LEASE + BACK_WITHIN + AFTER + Duration::from_secs(3);
    let mut run = mesh.begin(&plan::on(
        target.path(),
        &format!("loss-after = \"2s\"\nlease = \"{}s\"", LEASE.as_secs()),
        &format!(
            "{READS}runtime = \"{}s\"\nrate_iops = {RATE}\nrate-per = \"step\"",
            runtime.as_secs()
        ),
    ));
    mesh.until_step_is("read", "running", Duration::from_secs(60));
    let pids: Vec<u32> = names.iter().map(|name| mesh.agent(name).pid()).collect();
    let workers = Workers::of(&pids);
    let from = Instant::now() + SETTLED;
    let from_us: i64 = mesh
        .db()
        .one("SELECT start_us FROM steps ORDER BY attempt DESC LIMIT 1");
    let ((killed, until), clients) = workers.during(|| {
        let wait_for = |at: Instant| {
            until_true("it is time", Duration::from_secs(300), || {
                Instant::now() >= at
            });
        };
        wait_for(from + span);
        let killed = Instant::now();
        mesh.kill_agent(names[CLIENTS / 2]);
        let until = killed + LEASE + BACK_WITHIN + AFTER;
        wait_for(until + SETTLED);
        (killed, until)
    });
    let ended = run.exit_within(Duration::from_secs(60)).unwrap();
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());

    let rate = f64::from(RATE);
    let part = |rate_now: f64| rate_now / rate;
    let share = rate / CLIENTS as f64;
    let off = clients.rates(from, killed);
    let off = off.iter().map(|one| (one / share - 1.0).abs());
    let lease_ends = killed + LEASE;
    let since = (until - killed).as_secs_f64();
    let missing = (rate - clients.total(killed, until)) * since / share;
    // Whole seconds of the step, for which each client has its intervals.
    let seconds = span.as_secs() - 1;
    let reported: i64 = mesh.db().one(&format!(
        "SELECT sum(ops) FROM op_intervals WHERE at_us < {from_us} + {seconds} * 1000000 - 1000"
    ));
    Figures {
        total: part(clients.total(from, killed)),
        worst_client: off.fold(0.0, f64::max),
        while_leased: part(clients.total(killed + SETTLED, lease_ends)),
        back_after_s: missing - LEASE.as_secs_f64(),
        after: part(clients.total(lease_ends + BACK_WITHIN, until)),
        reported: reported as f64 / (seconds as f64 * rate),
    }
}
