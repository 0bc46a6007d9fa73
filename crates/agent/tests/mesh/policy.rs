//! A collector whose requests exceed the agent's policy: each is refused by its key, and a running load loses no rows.

use crate::agent::{Agent, Home};
use crate::collector::Collector;
use crate::commands::{arm, end, last_row, null_task, ready};
use benchmesh_agent::policy::PolicyConfig;
use benchmesh_agent::targets::TargetNames;
use benchmesh_model::limits::{Limit, Limits, Setting};
use benchmesh_proto::v1;
use benchmesh_proto::v1::command::Body;
use benchmesh_testing::logs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

const OPS: u64 = 1200;

fn config(
    home: &Home,
    collector: &Collector,
    policy: PolicyConfig,
) -> benchmesh_agent::AgentConfig {
    benchmesh_agent::AgentConfig {
        policy,
        ..home.config(collector)
    }
}

fn link(task_id: i64, peer: &str) -> v1::Prepare {
    v1::Prepare {
        workload: "network".to_owned(),
        mode: "throughput".to_owned(),
        peer_address: peer.to_owned(),
        token: "t".repeat(32),
        ..null_task(task_id, r#"{"size": "1m"}"#)
    }
}

/// Takes about 6 s, the duration of the load that runs meanwhile.
#[test]
fn a_collector_that_asks_for_more_than_the_policy_is_refused_by_key() {
    let (home, collector) = (Home::new(), Collector::start());
    let policy = PolicyConfig {
        targets: TargetNames::directories([home.target()]),
        allow_network: vec!["10.1.0.0/16".parse().unwrap()],
        workloads: "null,network,io".parse().unwrap(),
        limits: Limits::default()
            .with(Limit::Threads, Setting::Amount(4))
            .with(Limit::Memory, Setting::Amount(64 << 20)),
        ..PolicyConfig::default()
    };
    let agent = Agent::start(config(&home, &collector, policy));
    ready(&collector);
    let paced = format!(r#"{{"ops": {}, "numjobs": 2, "rate_iops": 100}}"#, OPS / 2);
    collector.done(Body::Prepare(null_task(1, &paced)));
    arm(&collector, 1);

    let refused = |body, key: &str, asked: &str| {
        let (kind, text) = collector.refused(body);
        let named = format!("`{key}` is ");
        assert!(
            kind == "not-allowed" && text.contains(&named) && text.contains(asked),
            "{kind}: {text}"
        );
    };
    let null = |id, params| Body::Prepare(null_task(id, params));
    refused(null(2, r#"{"numjobs": 5}"#), "threads", "5 were requested");
    // The running task holds two of the four threads.
    refused(
        null(3, r#"{"numjobs": 3}"#),
        "threads",
        "3 were requested beside 2 in use",
    );
    let on_target = |workload: &str, mode: &str, params: &str, path: &str| v1::Prepare {
        workload: workload.to_owned(),
        mode: mode.to_owned(),
        path: path.to_owned(),
        cell: "c".to_owned(),
        ..null_task(4, params)
    };
    let target = home.target().display().to_string();
    let large = on_target("io", "write", r#"{"size": "64m", "bs": "64m"}"#, &target);
    refused(Body::Prepare(large), "memory", "were requested");
    let other = on_target("files", "create", r#"{"files": 1, "size": "4k"}"#, &target);
    refused(Body::Prepare(other), "workloads", "`files`");
    refused(
        Body::Prepare(link(5, "10.2.0.1:5000")),
        "allow-network",
        "10.2.0.1",
    );
    let listen = |from: &str| v1::Listen {
        task_id: 6,
        workload: "network".to_owned(),
        mode: "throughput".to_owned(),
        params_json: r#"{"size": "1m"}"#.to_owned(),
        token: "t".repeat(32),
        from_address: from.to_owned(),
        address: String::new(),
    };
    refused(
        Body::Listen(listen("192.0.2.1")),
        "allow-network",
        "192.0.2.1",
    );
    let many = v1::Listen {
        params_json: r#"{"size": "1m", "streams": 3}"#.to_owned(),
        ..listen("10.1.0.7")
    };
    refused(
        Body::Listen(many),
        "threads",
        "3 were requested beside 2 in use",
    );
    let device = on_target("io", "write", r#"{"size": "4k"}"#, "/dev/null");
    let (kind, text) = collector.refused(Body::Prepare(device));
    assert!(
        kind == "not-allowed" && text.contains("--allow"),
        "{kind}: {text}"
    );

    assert_eq!(end(&collector, 1).state, "done");
    // Its rows arrive after the answer.
    assert_eq!(last_row(&collector, 1).error, "");
    assert_eq!(collector.ops(1), OPS);
    // Its threads are available again.
    collector.done(null(7, r#"{"numjobs": 4, "ops": 1}"#));
    agent.stop();
    collector.assert_no_violation();
}

/// The receiving end of a link listens on a port of the agent's range, and an exhausted range is refused by its option.
#[test]
fn links_come_in_on_the_ports_of_the_agents_range() {
    let (home, collector) = (Home::new(), Collector::start());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let policy = PolicyConfig {
        allow_network: vec!["127.0.0.0/8".parse().unwrap()],
        link_ports: Some(port.to_string().parse().unwrap()),
        ..PolicyConfig::default()
    };
    let agent = Agent::start(config(&home, &collector, policy));
    ready(&collector);
    let listen = v1::Listen {
        task_id: 1,
        workload: "network".to_owned(),
        mode: "throughput".to_owned(),
        params_json: r#"{"size": "1m"}"#.to_owned(),
        token: "t".repeat(32),
        from_address: "127.0.0.1".to_owned(),
        address: "127.0.0.1".to_owned(),
    };
    let (kind, text) = collector.refused(Body::Listen(listen.clone()));
    assert_eq!(kind, "failed", "{text}");
    for part in ["--link-ports", "free over TCP: 0 of 1, needed: 1"] {
        assert!(text.contains(part), "{text}");
    }
    drop(taken);
    let reply = collector.done(Body::Listen(listen.clone()));
    let Some(v1::reply::Body::Listen(reply)) = reply.body else {
        panic!("{reply:?}")
    };
    assert_eq!(reply.port, u32::from(port));
    // A forgotten receiver is closed in the background; a task that needs its port waits for that, over UDP too.
    for (task_id, mode) in [(2, "udp-request"), (3, "udp-stream"), (4, "ping")] {
        let forget = v1::ForgetTask {
            task_id: task_id - 1,
        };
        collector.done(Body::ForgetTask(forget));
        let listen = v1::Listen {
            task_id,
            mode: mode.to_owned(),
            params_json: r#"{"runtime": "1s"}"#.to_owned(),
            ..listen.clone()
        };
        let reply = collector.done(Body::Listen(listen));
        let Some(v1::reply::Body::Listen(reply)) = reply.body else {
            panic!("{reply:?}")
        };
        assert_eq!(reply.port, u32::from(port));
    }
    agent.stop();
    collector.assert_no_violation();
}

/// The port of a link is open only at the link's own address, and reveals nothing to other peers.
#[test]
fn a_receiving_end_is_bound_to_the_address_of_its_link() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let command = |task_id, from: &str, address: &str| {
        Body::Listen(v1::Listen {
            task_id,
            workload: "network".to_owned(),
            mode: "throughput".to_owned(),
            params_json: r#"{"size": "1m"}"#.to_owned(),
            token: "t".repeat(32),
            from_address: from.to_owned(),
            address: address.to_owned(),
        })
    };
    let listen = |task_id, address: &str| {
        let reply = collector.done(command(task_id, "127.0.0.1", address));
        let Some(v1::reply::Body::Listen(listen)) = reply.body else {
            panic!("{reply:?}")
        };
        u16::try_from(listen.port).unwrap()
    };
    let port = listen(1, "127.0.0.1");
    let elsewhere = TcpStream::connect(("127.0.0.2", port)).unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::ConnectionRefused);
    let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stranger.write_all(&[b'x'; 64]).unwrap();
    assert_eq!(
        stranger.read(&mut [0; 1]).unwrap_or(0),
        0,
        "a stranger was answered"
    );
    // An address that no interface has (as behind NAT), a host name, or no address: the address that faces the sender
    // is used.
    for (task, address) in [(2, "203.0.113.7"), (3, "node-7"), (4, "")] {
        let port = listen(task, address);
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        let elsewhere = TcpStream::connect(("127.0.0.2", port)).map(|_| ());
        assert_eq!(
            elsewhere.map_err(|error| error.kind()),
            Err(ErrorKind::ConnectionRefused),
            "{address:?}"
        );
    }
    // Without a sender's address, the listening address is unknown.
    for (task, address) in [(5, "203.0.113.7"), (6, "node-7"), (7, "")] {
        let (_, text) = collector.refused(command(task, "", address));
        assert!(text.contains("--advertise"), "{text}");
    }
    agent.stop();
}

/// The host's own log contains each denial once a minute, and only some of those that a collector makes up.
#[test]
fn denials_are_in_the_log_of_the_agents_host() {
    logs::keep_warnings();
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let elsewhere = home.state().display().to_string();
    let open = |path: String| {
        Body::OpenRunDirectory(v1::OpenRunDirectory {
            run_uid: "run-1".to_owned(),
            path,
            make: true,
        })
    };
    for _ in 0..3 {
        assert_eq!(collector.refused(open(elsewhere.clone())).0, "not-allowed");
    }
    assert_eq!(logs::warnings(&elsewhere).len(), 1);
    for nth in 0..50 {
        let path = home.state().join(nth.to_string());
        std::fs::create_dir(&path).unwrap();
        let (kind, _) = collector.refused(open(path.display().to_string()));
        assert_eq!(kind, "not-allowed");
    }
    let lines = logs::warnings(&elsewhere);
    assert_eq!(lines.len(), 32, "{lines:?}");
    let last = lines.last().unwrap();
    assert!(last.contains("further denials"), "{last}");
    agent.stop();
}
