//! A link of known speed: a veth shaped by tbf to 100 Mbit/s. Tolerance: 3 % of its payload share, which is 1448 of
//! 1514 bytes at an MTU of 1500 (20 bytes IP, 20 TCP, 12 time stamp; 14 Ethernet).

use crate::needs;
use crate::support::mesh::{Agent, Mesh};
use crate::support::net::Network;
use benchmesh_testing::{measured, scheduled, timing};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const TOLERANCE: f64 = 0.03;
/// Bytes per second.
const PAYLOAD: f64 = 100e6 / 8.0 * 1448.0 / 1514.0;
/// Least share of it on a full link, whose qdisc loses rate while it has no processor.
const FULL: f64 = 0.9;

/// Payload of the packets that a qdisc counted between two readings, without their 66 bytes of headers.
fn payload_between(before: (u64, u64), after: (u64, u64)) -> f64 {
    (after.0 - before.0) as f64 - 66.0 * (after.1 - before.1) as f64
}

/// Agents `n1`, `n2` and so on, each on its own node.
fn mesh_on(network: &Network, nodes: u8) -> Mesh {
    let mut mesh = Mesh::listening_on(&format!("{}:0", network.host()));
    for node in 1..=nodes {
        let agent = Agent::named(&format!("n{node}"));
        mesh.add(agent.inside(&network.namespace(node)));
    }
    mesh
}

#[test]
fn a_shaped_link_is_reported_as_fast_as_it_is() {
    needs!("root", "netns");
    measured(|| {
        let network = Network::new(2);
        let mesh = mesh_on(&network, 2);
        for node in [1, 2] {
            network.shape(node, 100);
        }
        mesh.run(
            r#"
        [[phase]]
        workload = "network"
        modes = ["throughput", "ping"]
        runtime = "5s"
        "#,
        );
        let db = mesh.db();
        let links = db.rows(
            "SELECT from_agent, to_agent, mib_per_s, rtt_p50_us FROM v_links ORDER BY from_agent",
        );
        assert_eq!(links.len(), 2, "{links:?}");
        for link in &links {
            let share = link.number("mib_per_s") * f64::from(1 << 20) / PAYLOAD;
            timing!(
                (share - 1.0).abs() <= TOLERANCE,
                "{link:?} is {share} of the payload's share"
            );
            let round_trip = link.number("rtt_p50_us");
            timing!((1.0..20_000.0).contains(&round_trip), "{link:?}");
        }
        mesh.assert_no_complaints();
        Ok(())
    });
}

/// Three agents send at the same time to a fourth with a shaped receiving side: the total of the step is what the
/// qdisc counted, the link is full, and every link began at the same instant. Tolerances: 1 % of the bytes (which
/// include the agent's traffic with the collector), 3 % of the rate.
#[test]
fn many_to_one_over_a_shaped_link_is_as_fast_as_the_link() {
    needs!("root", "netns");
    measured(|| {
        let network = Network::new(4);
        let mesh = mesh_on(&network, 4);
        network.shape(4, 100);
        let before = network.sent_to(4);
        mesh.run(
            r#"
        [[phase]]
        workload = "network"
        modes = ["throughput"]
        pairs = "many-to-one"
        to = ["n4"]
        streams = 2
        runtime = "5s"
        "#,
        );
        let payload = payload_between(before, network.sent_to(4));
        let db = mesh.db();
        let steps = db.rows(
            "SELECT clients, mib_per_s, errors, flags,
                    (SELECT (max(ended_us) - min(start_us)) / 1e6 FROM tasks) AS seconds,
                    (SELECT sum(bytes) FROM op_intervals) AS bytes
             FROM v_results",
        );
        let [step] = steps.as_slice() else {
            panic!("one step: {steps:?}");
        };
        assert_eq!((step.integer("clients"), step.integer("errors")), (3, 0));
        assert!(
            (step.integer("bytes") as f64 / payload - 1.0).abs() <= 0.01,
            "{step:?}: the qdisc counted {payload} bytes of payload"
        );
        let rate = payload / step.number("seconds");
        let share = step.number("mib_per_s") * f64::from(1 << 20) / rate;
        timing!(
            (share - 1.0).abs() <= TOLERANCE,
            "{step:?} is {share} of what the qdisc counted"
        );
        timing!(rate >= FULL * PAYLOAD, "{rate} of {PAYLOAD} bytes/s");
        // Each link has its part of the total, and its own row.
        let links = db.rows("SELECT from_agent, links_at_once, mib_per_s FROM v_links WHERE to_agent = 'n4' ORDER BY from_agent");
        assert_eq!(links.len(), 3, "{links:?}");
        let sum: f64 = links.iter().map(|link| link.number("mib_per_s")).sum();
        let share = sum * f64::from(1 << 20) / rate;
        timing!(
            (share - 1.0).abs() <= TOLERANCE,
            "{links:?} are {share} of what the qdisc counted"
        );
        for link in &links {
            assert_eq!(link.integer("links_at_once"), 3, "{link:?}");
            timing!(link.number("mib_per_s") > 0.5, "{link:?} starves");
        }
        assert_one_start(&mesh);
        mesh.assert_no_complaints();
        Ok(())
    });
}

/// Both directions of a link at the same time, each shaped. The acknowledgements of one direction take a part of the
/// other; the qdisc's counters give the payload. Tolerances: 1 % of the bytes (which include the agents' traffic with
/// the collector), 3 % of the rate.
#[test]
fn both_ways_at_once_each_way_is_reported_as_fast_as_it_is() {
    needs!("root", "netns");
    measured(|| {
        let network = Network::new(2);
        let mesh = mesh_on(&network, 2);
        for node in [1, 2] {
            network.shape(node, 100);
        }
        let before = [1, 2].map(|node| network.sent_to(node));
        mesh.run(
            r#"
        [[phase]]
        workload = "network"
        modes = ["throughput"]
        pairs = "both-ways"
        runtime = "5s"
        "#,
        );
        let after = [1, 2].map(|node| network.sent_to(node));
        let db = mesh.db();
        let links = db.rows(
        "SELECT from_agent, to_agent, links_at_once, mib_per_s,
                (SELECT (t.ended_us - t.start_us) / 1e6 FROM tasks t JOIN agents p ON p.id = t.peer_agent_id
                 WHERE p.name = to_agent) AS seconds,
                (SELECT sum(o.bytes) FROM op_intervals o JOIN tasks t ON t.id = o.task_id JOIN agents p ON p.id = t.peer_agent_id
                 WHERE p.name = to_agent) AS bytes
         FROM v_links ORDER BY to_agent",
    );
        assert_eq!(links.len(), 2, "{links:?}");
        for (link, (before, after)) in links.iter().zip(before.into_iter().zip(after)) {
            assert_eq!(link.integer("links_at_once"), 2);
            let payload = payload_between(before, after);
            let reported = link.integer("bytes") as f64;
            assert!(
                (reported / payload - 1.0).abs() <= 0.01,
                "{link:?}: the qdisc counted {payload} bytes of payload"
            );
            let rate = link.number("mib_per_s") * f64::from(1 << 20);
            let share = rate / (payload / link.number("seconds"));
            timing!(
                (share - 1.0).abs() <= TOLERANCE,
                "{link:?} is {share} of what the qdisc counted"
            );
        }
        let total: f64 = db.one("SELECT mib_per_s FROM v_results");
        let sum: f64 = links.iter().map(|link| link.number("mib_per_s")).sum();
        timing!((total / sum - 1.0).abs() <= TOLERANCE, "{total} and {sum}");
        assert_one_start(&mesh);
        mesh.assert_no_complaints();
        Ok(())
    });
}

/// A UDP stream of 120 Mbit/s of payload over a link of 100, by iperf3 and by benchmesh, one after the other.
/// Tolerance: 1 percentage point of loss. The jitter depends on how evenly each one sends: with a full queue it is
/// below 1 ms for both.
#[test]
#[expect(
    clippy::print_stderr,
    reason = "the figures of both stand in the test's output"
)]
fn loss_and_jitter_of_a_udp_stream_are_those_of_iperf3() {
    needs!("root", "netns", "iperf3");
    measured(|| {
        let network = Network::new(2);
        let mesh = mesh_on(&network, 2);
        network.shape(2, 100);
        let theirs = iperf3_udp(&network);
        mesh.run(
            r#"
        [[phase]]
        workload = "network"
        modes = ["udp-stream"]
        from = ["n1"]
        to = ["n2"]
        bs = 1448
        rate = "15000000"
        runtime = "4s"
        "#,
        );
        let db = mesh.db();
        let links = db.rows("SELECT lost_percent, jitter_us FROM v_links WHERE from_agent = 'n1'");
        let [link] = links.as_slice() else {
            panic!("one link: {links:?}");
        };
        let ours = (link.number("lost_percent"), link.number("jitter_us"));
        eprintln!("lost %, jitter us: iperf3 {theirs:?}, ours {ours:?}");
        timing!((ours.0 - theirs.0).abs() <= 1.0, "{ours:?} {theirs:?}");
        timing!(ours.0 > 10.0, "{ours:?}");
        for jitter in [ours.1, theirs.1] {
            timing!((1.0..1000.0).contains(&jitter), "{ours:?} {theirs:?}");
        }
        mesh.assert_no_complaints();
        Ok(())
    });
}

/// From node 1 to node 2, from its client's report: lost datagrams in percent, jitter in microseconds.
fn iperf3_udp(network: &Network) -> (f64, f64) {
    let mut serve = Command::new("iperf3");
    serve.args(["-s", "-1", "--forceflush"]);
    let mut server = network
        .inside(2, &serve)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap());
    let mut lines = lines.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")), "iperf3 -s");
    let to = network.address(2).to_string();
    let mut send = Command::new("iperf3");
    send.args(["-c", &to, "-u", "-b", "120M", "-l", "1448", "-t", "4", "-J"]);
    let output = network.inside(1, &send).output().unwrap();
    lines.for_each(drop);
    server.wait().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| {
        result
            .pointer(&format!("/end/sum/{name}"))
            .unwrap()
            .as_f64()
    };
    (
        number("lost_percent").unwrap(),
        number("jitter_ms").unwrap() * 1000.0,
    )
}

/// All tasks of each step had the same planned start, and started then.
fn assert_one_start(mesh: &Mesh) {
    let tasks = mesh
        .db()
        .rows("SELECT t.start_us, s.start_us AS planned_us, t.skew_us FROM tasks t JOIN steps s ON s.id = t.step_id");
    assert!(!tasks.is_empty());
    for task in &tasks {
        assert_eq!(task.integer("start_us"), task.integer("planned_us"));
        assert!(task.integer("skew_us").abs() < 20_000, "{task:?}");
    }
}

/// Traffic between two agents beside readers of a target: one start, separate counts, and an agent need not allow
/// targets that it does not use.
#[test]
fn links_beside_readers_of_a_target_are_counted_apart() {
    measured(|| {
        let target = tempfile::tempdir().unwrap();
        let mut mesh = Mesh::start();
        for name in ["r1", "r2"] {
            mesh.add(Agent::named(name).allow(target.path()));
        }
        for name in ["x", "y"] {
            mesh.add(Agent::named(name).label("role=spare"));
        }
        mesh.run(&format!(
            r#"
        [targets.t]
        system = "tmp"
        path = "{}"
        [[phase]]
        [[phase.group]]
        name = "readers"
        workload = "io"
        modes = ["randread"]
        size = "1m"
        runtime = "3s"
        rate_iops = 100
        [[phase.group]]
        name = "traffic"
        workload = "network"
        modes = ["request"]
        select = "role=spare"
        pairs = "all-to-all"
        rate_iops = 200
        runtime = "3s"
        "#,
            target.path().display()
        ));
        let db = mesh.db();
        let groups =
            db.rows("SELECT group_name, ops, errors FROM step_results ORDER BY group_name");
        let names: Vec<String> = groups.iter().map(|row| row.text("group_name")).collect();
        assert_eq!(names, ["readers", "traffic"]);
        for (row, due) in groups.iter().zip([2 * 300, 2 * 600]) {
            assert_eq!(row.integer("errors"), 0, "{row:?}");
            scheduled(row.integer("ops") as u64, due..=due)?;
        }
        let stored: String =
            db.one("SELECT json_extract(params, '$.wait') FROM step_groups WHERE name = 'traffic'");
        assert_eq!(stored, "blocking");
        let links = db.rows("SELECT from_agent, to_agent, links_at_once, wait, requests_per_s FROM v_links ORDER BY from_agent");
        assert_eq!(links.len(), 2, "{links:?}");
        for (link, ends) in links.iter().zip([("x", "y"), ("y", "x")]) {
            let (from, to) = (link.text("from_agent"), link.text("to_agent"));
            assert_eq!((from.as_str(), to.as_str()), ends);
            let (at_once, wait) = (link.integer("links_at_once"), link.text("wait"));
            assert_eq!((at_once, wait.as_str()), (2, "blocking"));
            let rate = link.number("requests_per_s");
            timing!((rate / 200.0 - 1.0).abs() <= TOLERANCE, "{rate} per second");
        }
        assert_one_start(&mesh);
        mesh.assert_no_complaints();
        Ok(())
    });
}
