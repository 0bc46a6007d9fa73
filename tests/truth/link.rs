//! A link of known speed: a veth shaped by tbf to 100 Mbit/s. Tolerance: 3 % of its payload share, which is 1448 of 1514
//! bytes at an MTU of 1500 (20 bytes IP, 20 TCP, 12 time stamp; 14 Ethernet).

use crate::needs;
use crate::support::mesh::{Agent, Mesh};
use crate::support::net::Network;

const TOLERANCE: f64 = 0.03;

#[test]
fn a_shaped_link_is_reported_as_fast_as_it_is() {
    needs!("root", "netns");
    let network = Network::new(2);
    let mut mesh = Mesh::listening_on(&format!("{}:0", network.host()));
    for node in [1, 2] {
        let agent = Agent::named(&format!("n{node}"));
        mesh.add(agent.inside(&network.namespace(node)));
        network.shape(node, "100mbit");
    }
    mesh.run(
        r#"
        [[phase]]
        workload = "network"
        modes = ["throughput", "ping"]
        runtime = "8s"
        "#,
    );
    let db = mesh.db();
    let links = db.rows(
        "SELECT from_agent, to_agent, mib_per_s, rtt_p50_us FROM v_links ORDER BY from_agent",
    );
    assert_eq!(links.len(), 2, "{links:?}");
    let payload = 100e6 / 8.0 * 1448.0 / 1514.0;
    for link in &links {
        let share = link.number("mib_per_s") * f64::from(1 << 20) / payload;
        assert!(
            (share - 1.0).abs() <= TOLERANCE,
            "{link:?} is {share} of the payload's share"
        );
        let round_trip = link.number("rtt_p50_us");
        assert!((1.0..20_000.0).contains(&round_trip), "{link:?}");
    }
    mesh.assert_no_complaints();
}
