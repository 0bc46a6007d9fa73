//! A link of known speed: shaped by tbf to 100 Mbit/s. Tolerance: 3 % of the payload's share, which is 1448 of 1514
//! bytes at an MTU of 1500 (20 bytes IP, 20 TCP, 12 time stamp; 14 Ethernet).

use super::nodes::{Node, Nodes, Outcome};
use benchmesh_testing::{measured, timing};
use serde_json::json;

const TOLERANCE: f64 = 0.03;
const BYTES_PER_SECOND: f64 = 100e6 / 8.0;
const PAYLOAD: f64 = 1448.0 / 1514.0;

fn share(outcome: &Outcome) -> f64 {
    outcome.bytes as f64 / outcome.seconds / (BYTES_PER_SECOND * PAYLOAD)
}

#[test]
fn a_shaped_link_is_reported_as_fast_as_it_is() {
    measured(|| {
        let Some(nodes) = Nodes::new() else {
            return Ok(());
        };
        nodes.shape(Node::A, "128k");
        for (streams, bs) in [(1, "1m"), (1, "4k"), (4, "1m")] {
            let params = json!({"streams": streams, "bs": bs, "runtime": "5s"});
            let outcome = nodes.run(Node::A, "throughput", &params);
            assert_eq!(outcome.received, outcome.bytes);
            let (share, seconds) = (share(&outcome), outcome.seconds);
            timing!(
                (share - 1.0).abs() <= TOLERANCE,
                "{streams} streams of {bs}: {share:.4} of the payload's share in {seconds:.2} s"
            );
            timing!(
                seconds < 6.0,
                "{streams} streams of {bs} took {seconds:.2} s to end"
            );
        }
        Ok(())
    });
}

/// A response takes the time that its bytes need on the shaped way back.
#[test]
fn a_response_over_a_shaped_link_takes_as_long_as_its_bytes() {
    measured(|| {
        let Some(nodes) = Nodes::new() else {
            return Ok(());
        };
        nodes.shape(Node::B, "16k");
        let response = 1 << 20;
        let params = json!({"request-size": 64, "response-size": response, "runtime": "3s"});
        let outcome = nodes.run(Node::A, "request", &params);
        let expected = f64::from(response) / (BYTES_PER_SECOND * PAYLOAD);
        let median = outcome.service.quantile(0.5) as f64 / 1e9;
        timing!(
            (median / expected - 1.0).abs() <= TOLERANCE,
            "{median:.4} s for what takes {expected:.4} s"
        );
        Ok(())
    });
}

/// Both directions at once, each shaped. The acknowledgements of the other direction (66 bytes for at most every other
/// segment) are within the tolerance.
#[test]
fn both_ways_at_once_each_way_is_as_fast_as_it_is() {
    measured(|| {
        let Some(nodes) = Nodes::new() else {
            return Ok(());
        };
        let ends = [Node::A, Node::B];
        for end in ends {
            nodes.shape(end, "128k");
        }
        let params = json!({"runtime": "5s"});
        let outcomes = std::thread::scope(|scope| {
            let running = ends.map(|end| {
                let (nodes, params) = (&nodes, &params);
                scope.spawn(move || nodes.run(end, "throughput", params))
            });
            running.map(|one| one.join().unwrap())
        });
        for (end, outcome) in ends.iter().zip(&outcomes) {
            assert_eq!(outcome.received, outcome.bytes);
            let share = share(outcome);
            timing!(
                (share - 1.0).abs() <= TOLERANCE,
                "from {end:?}: {share:.4} of the payload's share"
            );
        }
        Ok(())
    });
}
