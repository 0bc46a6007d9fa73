//! Nodes on a separate network: namespaces joined by veth to one bridge, which can be shaped and cut.
//!
//! The host's end of the network has the address `.254`, node `i` has `.i`. Names and the network's number are derived
//! from the process id and a counter, so that they collide neither between two test runs on one machine nor between two
//! tests of a run.

use super::command::{must, run_by, succeeds};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of networks made by this process.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The network; its namespaces, links and bridge are removed on drop.
#[derive(Debug)]
pub struct Network {
    tag: String,
    prefix: [u8; 3],
    nodes: u8,
}

impl Network {
    /// A bridge and `nodes` namespaces.
    pub fn new(nodes: u8) -> Self {
        let id = std::process::id();
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let network = Self {
            tag: format!("bm{:x}x{made}", id & 0xff_ffff),
            prefix: [
                10,
                200 + (id % 50) as u8,
                ((id / 50 + 61 * made) % 250) as u8,
            ],
            nodes,
        };
        network.remove();
        let bridge = network.bridge();
        must("ip", &["link", "add", &bridge, "type", "bridge"]);
        let address = format!("{}/24", network.host());
        must("ip", &["addr", "add", &address, "dev", &bridge]);
        must("ip", &["link", "set", &bridge, "up"]);
        for node in 1..=nodes {
            network.add(node);
        }
        network
    }

    fn add(&self, node: u8) {
        let (namespace, veth) = (self.namespace(node), self.veth(node));
        let address = format!("{}/24", self.address(node));
        must("ip", &["netns", "add", &namespace]);
        must(
            "ip",
            &[
                "link", "add", &veth, "type", "veth", "peer", "name", "eth0", "netns", &namespace,
            ],
        );
        must(
            "ip",
            &["link", "set", &veth, "master", &self.bridge(), "up"],
        );
        must(
            "ip",
            &["-n", &namespace, "addr", "add", &address, "dev", "eth0"],
        );
        for device in ["eth0", "lo"] {
            must("ip", &["-n", &namespace, "link", "set", device, "up"]);
        }
    }

    /// The host's address on the bridge.
    pub fn host(&self) -> Ipv4Addr {
        self.address(254)
    }

    pub fn address(&self, node: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, node)
    }

    /// Runs a command inside the namespace of a node.
    pub fn inside(&self, node: u8, command: &Command) -> Command {
        enter(&self.namespace(node), command)
    }

    /// Shapes the traffic to a node by a token bucket, which holds 10 ms of its rate: what comes while the bucket is full
    /// is lost, as when another guest has the processor and the qdisc's timer is late.
    pub fn shape(&self, node: u8, mbit_per_s: u32) {
        must(
            "tc",
            &[
                "qdisc",
                "add",
                "dev",
                &self.veth(node),
                "root",
                "tbf",
                "rate",
                &format!("{mbit_per_s}mbit"),
                "burst",
                &(mbit_per_s * 1_000_000 / 8 / 100).to_string(),
                "latency",
                "50ms",
            ],
        );
    }

    /// Traffic to a shaped node: bytes (with the length of packets on the wire) and packets.
    pub fn sent_to(&self, node: u8) -> (u64, u64) {
        let output = must("tc", &["-s", "qdisc", "show", "dev", &self.veth(node)]);
        let mut words = output.split_whitespace().skip_while(|word| *word != "Sent");
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let bytes = number(words.nth(1));
        let packets = number(words.nth(1));
        match (bytes, packets) {
            (Some(bytes), Some(packets)) => (bytes, packets),
            _ => panic!("no count: {output}"),
        }
    }

    /// Takes a node's link down: packets are lost without an error.
    pub fn cut(&self, node: u8) {
        must("ip", &["link", "set", &self.veth(node), "down"]);
    }

    pub fn rejoin(&self, node: u8) {
        must("ip", &["link", "set", &self.veth(node), "up"]);
    }

    pub fn namespace(&self, node: u8) -> String {
        format!("{}n{node}", self.tag)
    }

    fn veth(&self, node: u8) -> String {
        format!("{}v{node}", self.tag)
    }

    fn bridge(&self) -> String {
        format!("{}br", self.tag)
    }

    fn remove(&self) {
        for node in 1..=self.nodes {
            succeeds("ip", &["link", "del", &self.veth(node)]);
            succeeds("ip", &["netns", "del", &self.namespace(node)]);
        }
        succeeds("ip", &["link", "del", &self.bridge()]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Runs `command` inside a network namespace, with its environment.
pub fn enter(namespace: &str, command: &Command) -> Command {
    run_by("ip", &["netns", "exec", namespace], command)
}
