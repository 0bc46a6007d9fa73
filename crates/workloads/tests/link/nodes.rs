//! Two namespaces and a veth between them, and a task that runs from one to the other.

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::network::Network;
use benchmesh_workloads::task::{End, PeerEnd, PrepareControl, Task, TaskSpec};
use benchmesh_workloads::workload::{ListenSpec, Receiver, Workload};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const TOKEN: &str = "token";

/// Tests of one process have namespaces of their own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// An end of the veth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    A,
    B,
}

impl Node {
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn address(self) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(10, 99, 0, 1),
            Self::B => Ipv4Addr::new(10, 99, 0, 2),
        }
    }
}

/// The namespaces, gone with the value.
pub struct Nodes {
    names: [String; 2],
}

impl Nodes {
    /// `None`, and a word about it, when this cannot be done here.
    pub fn new() -> Option<Self> {
        let id = std::process::id();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let nodes = Self {
            names: ["a", "b"].map(|end| format!("bmw{id}x{made}{end}")),
        };
        let [a, b] = &nodes.names;
        let mut commands = vec![
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip -n {a} link add eth0 type veth peer name eth0 netns {b}"),
        ];
        for (name, node) in [(a, Node::A), (b, Node::B)] {
            // Nothing but the link's own packets goes over it, and none twice because an end had no CPU for a while. A kernel
            // that knows no such setting has nothing to switch off.
            for setting in ["ipv6.conf.all.disable_ipv6=1", "ipv4.tcp_early_retrans=0"] {
                commands.push(format!("ip netns exec {name} sysctl -qew net.{setting}"));
            }
            let address = node.address();
            commands.push(format!("ip -n {name} addr add {address}/24 dev eth0"));
            commands.push(format!("ip -n {name} link set eth0 up"));
        }
        if commands.iter().all(|command| succeeds(command)) {
            return Some(nodes);
        }
        let required = std::env::var("BENCHMESH_REQUIRE").unwrap_or_default();
        assert!(
            !required
                .split(',')
                .any(|name| matches!(name.trim(), "root" | "all")),
            "BENCHMESH_REQUIRE asks for root, and a veth between namespaces cannot be made"
        );
        // On the real standard error: libtest hides what a passed test prints through the macros.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr().lock(),
            b"SKIPPED a link between namespaces: a veth and tbf need root, ip and tc\n",
        );
        None
    }

    fn name(&self, node: Node) -> &str {
        let [a, b] = &self.names;
        match node {
            Node::A => a,
            Node::B => b,
        }
    }

    /// Shapes what leaves a node to 100 Mbit/s.
    pub fn shape(&self, node: Node, burst: &str) {
        let name = self.name(node);
        assert!(succeeds(&format!(
            "tc -n {name} qdisc add dev eth0 root tbf rate 100mbit burst {burst} latency 100ms"
        )));
    }

    /// Does something in a thread that is inside the namespace of a node, as all threads are that it starts.
    fn inside<T: Send>(&self, node: Node, what: impl FnOnce() -> T + Send) -> T {
        let name = self.name(node);
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{name}")).unwrap();
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                what()
            });
            done.join().unwrap()
        })
    }

    /// Payload bytes that have left a node, by the counters of its interface: each packet has 66 bytes of headers (14
    /// Ethernet, 20 IP, 20 TCP, 12 time stamp), whether the veth carries it in segments or whole.
    pub fn payload_sent(&self, node: Node) -> u64 {
        let command = format!(
            "ip netns exec {} cat /sys/class/net/eth0/statistics/tx_bytes /sys/class/net/eth0/statistics/tx_packets",
            self.name(node)
        );
        let mut words = command.split(' ');
        let said = Command::new(words.next().unwrap()).args(words).output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        let counters: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
        let [bytes, packets] = counters.as_slice() else {
            panic!("two counters: {said}");
        };
        bytes - 66 * packets
    }

    /// Opens the receiving end on the other node.
    fn listen(&self, from: Node, mode: &str, params: &Value) -> Box<dyn Receiver> {
        let spec = ListenSpec {
            mode: mode.into(),
            params: params.as_object().unwrap().clone(),
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            peer: Some(IpAddr::V4(from.address())),
            token: TOKEN.into(),
        };
        self.inside(from.other(), || Network.listen(&spec).unwrap())
    }

    /// Runs a task from a node to the other, to its end.
    pub fn run(&self, from: Node, mode: &str, params: &Value) -> Outcome {
        let receiver = self.listen(from, mode, params);
        let port = receiver.address().port();
        let spec = TaskSpec {
            peer: Some(PeerEnd {
                address: (from.other().address(), port).into(),
                token: TOKEN.into(),
            }),
            ..TaskSpec::new("network", mode, params.as_object().unwrap().clone())
        };
        let mut outcome = self.inside(from, || {
            let mut task = Task::prepare(&spec, &PrepareControl::silent()).unwrap();
            task.arm(MonoNanos::now().saturating_add(Duration::from_millis(20)))
                .unwrap();
            let mut outcome = Outcome::default();
            let end = task.run_to_end(&mut |interval| {
                outcome.ops += interval.ops;
                outcome.bytes += interval.bytes;
                outcome.service.add(&interval.service);
            });
            assert_eq!((end.state, end.error), (End::Done, None));
            outcome.seconds = end.ended.since(end.last_start).as_secs_f64();
            outcome
        });
        outcome.received = receiver.close().unwrap().bytes;
        outcome
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for name in &self.names {
            succeeds(&format!("ip netns del {name}"));
        }
    }
}

/// What a task did, and what the other end took.
#[derive(Debug, Default)]
pub struct Outcome {
    pub ops: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub service: Histogram,
    pub received: u64,
}

fn succeeds(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let status = command.args(words).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
