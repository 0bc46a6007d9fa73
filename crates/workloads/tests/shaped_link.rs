//! A link of known speed: two network namespaces, a veth between them, shaped by tbf to 100 Mbit/s.
//!
//! Tolerance: 3 % of the payload's share, which is 1448 of 1514 bytes at an MTU of 1500 (20 bytes IP, 20 TCP, 12 time
//! stamp; 14 Ethernet). Needs root; says so when it is skipped, and fails instead when BENCHMESH_REQUIRE has `root`.
#![allow(clippy::unwrap_used)]

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::network::Network;
use benchmesh_workloads::task::{End, PeerEnd, PrepareControl, Task, TaskEnd, TaskSpec};
use benchmesh_workloads::workload::{ListenSpec, Params, Receiver, Workload};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

const TOKEN: &str = "token";
const TOLERANCE: f64 = 0.03;
const PAYLOAD_BYTES_PER_SECOND: f64 = 100e6 / 8.0 * 1448.0 / 1514.0;

/// Two namespaces and the shaped veth between them, gone with the value.
struct Nodes {
    names: [String; 2],
}

impl Nodes {
    fn new() -> Option<Self> {
        let id = std::process::id();
        let nodes = Self {
            names: [format!("bmw{id}a"), format!("bmw{id}b")],
        };
        let [a, b] = &nodes.names;
        let commands = [
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip -n {a} link add eth0 type veth peer name eth0 netns {b}"),
            format!("ip -n {a} addr add 10.99.0.1/24 dev eth0"),
            format!("ip -n {b} addr add 10.99.0.2/24 dev eth0"),
            format!("ip -n {a} link set eth0 up"),
            format!("ip -n {b} link set eth0 up"),
            format!("tc -n {a} qdisc add dev eth0 root tbf rate 100mbit burst 128k latency 100ms"),
        ];
        if commands.iter().all(|command| succeeds(command)) {
            return Some(nodes);
        }
        let required = std::env::var("BENCHMESH_REQUIRE").unwrap_or_default();
        assert!(
            !required
                .split(',')
                .any(|name| matches!(name.trim(), "root" | "all")),
            "BENCHMESH_REQUIRE asks for root, and a shaped veth cannot be made"
        );
        skipped();
        None
    }

    /// Moves the calling thread, and those that it starts from now on, into a namespace.
    fn enter(&self, node: usize) {
        let name = self.names.get(node).unwrap();
        let namespace = File::open(format!("/run/netns/{name}")).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}

/// On the real standard error: libtest hides what a passed test prints through the macros.
fn skipped() {
    let _ = std::io::Write::write_all(
        &mut std::io::stderr().lock(),
        b"SKIPPED a shaped link: a veth and tbf need root, ip and tc\n",
    );
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for name in &self.names {
            succeeds(&format!("ip netns del {name}"));
        }
    }
}

fn succeeds(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let status = command.args(words).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn listen(nodes: &Nodes, params: &Params) -> Box<dyn Receiver> {
    let spec = ListenSpec {
        mode: "throughput".into(),
        params: params.clone(),
        bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        peer: Some("10.99.0.1".parse().unwrap()),
        token: TOKEN.into(),
    };
    std::thread::scope(|scope| {
        let listening = scope.spawn(|| {
            nodes.enter(1);
            Network.listen(&spec).unwrap()
        });
        listening.join().unwrap()
    })
}

/// Runs one task and returns its end and the bytes that it counted.
fn send(nodes: &Nodes, params: &Params, port: u16) -> (TaskEnd, u64) {
    let spec = TaskSpec {
        peer: Some(PeerEnd {
            address: (Ipv4Addr::new(10, 99, 0, 2), port).into(),
            token: TOKEN.into(),
        }),
        ..TaskSpec::new("network", "throughput", params.clone())
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            nodes.enter(0);
            let mut task = Task::prepare(&spec, &PrepareControl::silent()).unwrap();
            task.arm(MonoNanos::now().saturating_add(Duration::from_millis(20)))
                .unwrap();
            let mut bytes = 0;
            let end = task.run_to_end(&mut |interval| bytes += interval.bytes);
            (end, bytes)
        });
        sending.join().unwrap()
    })
}

#[test]
fn a_shaped_link_is_reported_as_fast_as_it_is() {
    let Some(nodes) = Nodes::new() else { return };
    for (streams, bs) in [(1, "1m"), (1, "4k"), (4, "1m")] {
        let params = json!({"streams": streams, "bs": bs, "runtime": "5s"});
        let params = params.as_object().unwrap();
        let receiver = listen(&nodes, params);
        let (end, bytes) = send(&nodes, params, receiver.address().port());
        assert_eq!((end.state, end.error), (End::Done, None));
        assert_eq!(receiver.close().unwrap().bytes, bytes);
        let seconds = end.ended.since(end.last_start).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
        let share = bytes as f64 / seconds / PAYLOAD_BYTES_PER_SECOND;
        assert!(
            (share - 1.0).abs() <= TOLERANCE,
            "{streams} streams of {bs}: {share:.4} of the payload's share in {seconds:.2} s"
        );
        assert!(
            seconds < 6.0,
            "{streams} streams of {bs} took {seconds:.2} s to end"
        );
    }
}
