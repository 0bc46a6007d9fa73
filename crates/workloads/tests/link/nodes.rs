//! Two namespaces connected by a veth, and a task that runs from one to the other.

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use benchmesh_workloads::registry;
use benchmesh_workloads::task::{End, PeerEnd, PrepareControl, TaskSpec};
use benchmesh_workloads::workload::{ListenSpec, Receiver};
use benchmesh_workloads::workloads::network::NETWORK;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const TOKEN: &str = "token";

/// Number for unique names: each test of a process has its own namespaces.
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

/// The namespaces, removed on drop.
pub struct Nodes {
    names: [String; 2],
}

impl Nodes {
    /// `None` if namespaces cannot be created here; reports a skip.
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
            // The link carries only its own packets, and no retransmissions because an end had no CPU for a while. A
            // kernel without a setting does not need it.
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
        benchmesh_testing::skip("netns", "a link between namespaces needs ip and tc too");
        None
    }

    fn name(&self, node: Node) -> &str {
        let [a, b] = &self.names;
        match node {
            Node::A => a,
            Node::B => b,
        }
    }

    /// Shapes a node's outgoing traffic to 100 Mbit/s.
    pub fn shape(&self, node: Node, burst: &str) {
        let name = self.name(node);
        assert!(succeeds(&format!(
            "tc -n {name} qdisc add dev eth0 root tbf rate 100mbit burst {burst} latency 100ms"
        )));
    }

    /// Shapes only the UDP datagrams that leave a node: TCP's packets have a class of their own.
    pub fn shape_udp(&self, node: Node, tbf: &str) {
        let name = self.name(node);
        for command in [
            "qdisc add dev eth0 root handle 1: htb default 1 r2q 100000",
            "class add dev eth0 parent 1: classid 1:1 htb rate 10gbit",
            "class add dev eth0 parent 1: classid 1:2 htb rate 10gbit",
            &format!("qdisc add dev eth0 parent 1:2 handle 2: tbf {tbf}"),
            "filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:2",
        ] {
            assert!(succeeds(&format!("tc -n {name} {command}")), "{command}");
        }
    }

    /// Packets that the shaper of [`Nodes::shape_udp`] has passed and dropped.
    pub fn shaped_udp(&self, node: Node) -> (u64, u64) {
        let text = output(&format!(
            "tc -n {} -s -j qdisc show dev eth0",
            self.name(node)
        ));
        let qdiscs: Vec<Value> = serde_json::from_str(&text).unwrap();
        let tbf = qdiscs.iter().find(|qdisc| qdisc["kind"] == "tbf").unwrap();
        (
            tbf["packets"].as_u64().unwrap(),
            tbf["drops"].as_u64().unwrap(),
        )
    }

    /// A counter of UDP in the kernel of a node.
    pub fn udp_counter(&self, node: Node, counter: &str) -> u64 {
        let text = output(&format!(
            "ip netns exec {} cat /proc/net/snmp",
            self.name(node)
        ));
        let mut lines = text.lines().filter(|line| line.starts_with("Udp: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut both = names.split(' ').zip(values.split(' '));
        let (_, value) = both.find(|(name, _)| *name == counter).unwrap();
        value.parse().unwrap()
    }

    /// Calls `what` in a thread inside the namespace of a node; threads that it starts are in it too.
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
    /// Ethernet, 20 IP, 20 TCP, 12 time stamp), whether the veth carries segments or whole packets.
    pub fn payload_sent(&self, node: Node) -> u64 {
        let command = format!(
            "ip netns exec {} cat /sys/class/net/eth0/statistics/tx_bytes /sys/class/net/eth0/statistics/tx_packets",
            self.name(node)
        );
        let mut words = command.split(' ');
        let text = Command::new(words.next().unwrap()).args(words).output();
        let text = String::from_utf8(text.unwrap().stdout).unwrap();
        let counters: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let [bytes, packets] = counters.as_slice() else {
            panic!("two counters: {text}");
        };
        bytes - 66 * packets
    }

    /// Opens the receiving end on the other node.
    fn listen(&self, from: Node, mode: &str, params: &Value) -> Box<dyn Receiver> {
        let spec = ListenSpec {
            mode: mode.into(),
            params: params.as_object().unwrap().clone(),
            bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ports: None,
            peer: Some(IpAddr::V4(from.address())),
            networks: Vec::new(),
            token: TOKEN.into(),
        };
        self.inside(from.other(), || NETWORK.listen(&spec).unwrap())
    }

    /// Runs a task from a node to the other until its end.
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
            let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
            // If this thread was delayed past the start, arming is refused and tried again with a later one.
            let soon = || MonoNanos::now().saturating_add(Duration::from_millis(20));
            while task.arm(soon()).is_err() {}
            let mut outcome = Outcome::default();
            let end = task.run_to_end(&mut |interval| {
                outcome.ops += interval.ops;
                *outcome.of_kind.entry(interval.op).or_default() += interval.ops;
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

/// Results of a task and of the other end.
#[derive(Debug, Default)]
pub struct Outcome {
    pub ops: u64,
    /// Operations by kind.
    pub of_kind: BTreeMap<Op, u64>,
    pub bytes: u64,
    pub seconds: f64,
    pub service: Histogram,
    pub received: u64,
}

fn output(command: &str) -> String {
    let mut words = command.split(' ');
    let text = Command::new(words.next().unwrap()).args(words).output();
    String::from_utf8(text.unwrap().stdout).unwrap()
}

fn succeeds(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let status = command.args(words).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
