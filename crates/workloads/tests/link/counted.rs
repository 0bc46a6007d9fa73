//! Compares reported bytes with the counters of the interface. Tolerance: ARP, and the messages beside the load (a
//! hello, its answer, the count at the end).

use super::nodes::{Node, Nodes};
use serde_json::{Value, json};

/// Payload bytes per stream: a hello has 19, its answer 1, the count 8; the options of a SYN are 8 longer.
const BESIDE_PER_STREAM: u64 = 40;
/// An ARP packet is shorter than the headers that are subtracted.
const ARP: u64 = 200;

fn is_counted(counted: u64, reported: u64, streams: u64) -> bool {
    counted + ARP >= reported && counted <= reported + streams * BESIDE_PER_STREAM + ARP
}

/// Runs a mode from A to B. The interfaces must have counted `out` and `back` bytes for each operation.
fn check(nodes: &Nodes, mode: &str, params: Value, out: u64, back: u64) {
    let streams = params["streams"].as_u64().unwrap_or(1);
    let before = [Node::A, Node::B].map(|node| nodes.payload_sent(node));
    let outcome = nodes.run(Node::A, mode, &params);
    let [from_a, from_b] = before;
    let counted = [
        nodes.payload_sent(Node::A) - from_a,
        nodes.payload_sent(Node::B) - from_b,
    ];
    assert!(outcome.ops > 10, "{mode}: {outcome:?}");
    assert_eq!(outcome.received, outcome.bytes);
    for (counted, reported) in counted.iter().zip([outcome.ops * out, outcome.ops * back]) {
        assert!(
            is_counted(*counted, reported, streams),
            "{mode} {params}: {reported} bytes are reported, and the interface counted {counted}"
        );
    }
}

#[test]
fn operations_and_bytes_are_those_of_the_interface() {
    let Some(nodes) = Nodes::new() else { return };
    // Paced, so that no packet is lost and retransmitted.
    let blocks = json!({"streams": 2, "bs": "64k", "rate_iops": 100, "runtime": "1s"});
    check(&nodes, "throughput", blocks, 64 << 10, 0);
    for (wait, streams) in [("blocking", 2), ("busy", 1)] {
        let ping = json!({"streams": streams, "bs": 100, "wait": wait, "runtime": "500ms"});
        check(&nodes, "ping", ping, 100, 100);
        let request = json!({
            "streams": streams, "request-size": 300, "response-size": 20_000, "wait": wait, "runtime": "500ms",
        });
        check(&nodes, "request", request, 300, 20_000);
    }
    let poisson = json!({
        "request-size": 4000, "response-size": 10, "rate_iops": 200, "rate_process": "poisson", "runtime": "1s",
    });
    check(&nodes, "request", poisson, 4000, 10);
}
