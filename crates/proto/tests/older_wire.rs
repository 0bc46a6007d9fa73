//! This version reads messages encoded by version 0.1.0 with the same meaning, and skips additions of newer versions.
//! So agents of the previous and the next minor version work with a collector.
//!
//! `wire-2` holds one file of hex for each message. Files are never changed: a failure here means that a field was
//! removed, renumbered or given another type, which needs a new [`benchmesh_proto::WIRE_VERSION`]. BENCHMESH_BLESS=1
//! creates missing files, for messages added below.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(
    clippy::needless_update,
    reason = "messages get further fields, which the old ones do not have"
)]

use benchmesh_proto::v1::{self, agent_message, collector_message, command, reply};
use prost::Message;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/wire-2")
        .join(format!("{name}.hex"))
}

fn hex(bytes: &[u8]) -> String {
    let line =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    bytes.chunks(40).map(|bytes| line(bytes) + "\n").collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// Fields unknown to this version: a number, a text, and a fixed one.
fn unknown_fields() -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::uint64::encode(1001, &7, &mut bytes);
    prost::encoding::string::encode(1002, &"new".to_owned(), &mut bytes);
    prost::encoding::fixed64::encode(1003, &9, &mut bytes);
    bytes
}

fn check<M: Message + Default + PartialEq + Debug>(name: &str, expected: &M) {
    let file = file(name);
    if std::env::var_os("BENCHMESH_BLESS").is_some() && !file.exists() {
        std::fs::write(&file, hex(&expected.encode_to_vec())).unwrap();
    }
    let old = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let old = bytes(&old);
    assert_eq!(&M::decode(&*old).unwrap(), expected, "{name}");
    let newer = [old, unknown_fields()].concat();
    assert_eq!(
        &M::decode(&*newer).unwrap(),
        expected,
        "{name} of a newer version"
    );
}

fn from_agent(body: agent_message::Body) -> v1::AgentMessage {
    v1::AgentMessage { body: Some(body) }
}

fn from_collector(body: collector_message::Body) -> v1::CollectorMessage {
    v1::CollectorMessage { body: Some(body) }
}

fn command(body: command::Body) -> v1::CollectorMessage {
    from_collector(collector_message::Body::Command(v1::Command {
        id: 11,
        body: Some(body),
        ..Default::default()
    }))
}

fn rule() -> v1::DaemonRule {
    v1::DaemonRule {
        name: "shard".to_owned(),
        comm: "mysqld".to_owned(),
        cmdline: "*--shard=*".to_owned(),
        cgroup: "/db".to_owned(),
        unit: "db.service".to_owned(),
        instance_option: "--port".to_owned(),
    }
}

#[test]
fn what_agents_say() {
    let hello = v1::Hello {
        wire_version: 1,
        version: "0.1.0".to_owned(),
        agent_uid: "6f2a".to_owned(),
        name: "node-1".to_owned(),
        labels: [("role".to_owned(), "client".to_owned())].into(),
        host: Some(v1::Host {
            boot_id: "b00t".to_owned(),
            pid_namespace: "4026531836".to_owned(),
            name: "node".to_owned(),
            kernel: "6.1.0".to_owned(),
            cpus: 8,
            memory_bytes: 1 << 34,
        }),
        net_namespace: "4026531840".to_owned(),
        allowed_paths: vec!["/mnt/a".to_owned(), "/mnt/b".to_owned()],
        readable_paths: vec!["/srv".to_owned()],
        workloads: vec![v1::WorkloadRevision {
            name: "io".to_owned(),
            revision: 3,
        }],
        spool_ids: vec!["s1".to_owned(), "s2".to_owned()],
        advertised_address: "10.0.0.1".to_owned(),
        held_tasks: vec![4, 5],
        pid: 77,
        daemon_rules: vec![rule()],
        sample_always: true,
        ..Default::default()
    };
    check("hello", &from_agent(agent_message::Body::Hello(hello)));
    let probe = v1::ClockProbe { agent_sent_ns: 123 };
    check(
        "clock-probe",
        &from_agent(agent_message::Body::ClockProbe(probe)),
    );
    let progress = v1::Progress {
        command_id: 11,
        done: 5,
        total: 9,
        unit: "files".to_owned(),
        ..Default::default()
    };
    check(
        "progress",
        &from_agent(agent_message::Body::Progress(progress)),
    );
    let refused = v1::Reply {
        id: 11,
        error: "no space".to_owned(),
        error_kind: "no-space".to_owned(),
        ..Default::default()
    };
    check(
        "reply-refused",
        &from_agent(agent_message::Body::Reply(refused)),
    );
    let survey = v1::SurveyReply {
        paths: vec![v1::PathFacts {
            path: "/mnt/a".to_owned(),
            allowed: true,
            exists: true,
            problem: "is slow".to_owned(),
            free_bytes: 1 << 40,
            free_files: -1,
            file_system: "ceph".to_owned(),
            device: "0:55".to_owned(),
            mount_source: "mon:/".to_owned(),
            mount_options: "rw".to_owned(),
            size_bytes: 1 << 41,
            ..Default::default()
        }],
        sources: Vec::new(),
        scratch_free_bytes: -1,
        link_bytes_per_s: 1_250_000_000,
        inventory_json: "{}".to_owned(),
        ..Default::default()
    };
    let end = v1::EndReply {
        state: "done".to_owned(),
        spool_id: "s2".to_owned(),
        sequence: 99,
        stalled: true,
        ..Default::default()
    };
    let directory = v1::RunDirectoryReply {
        found: true,
        made: true,
        nonce: "n".to_owned(),
        free_bytes: 1 << 40,
        ..Default::default()
    };
    for (name, body) in [
        ("reply-survey", reply::Body::Survey(survey)),
        ("reply-end", reply::Body::End(end)),
        ("reply-run-directory", reply::Body::RunDirectory(directory)),
        (
            "reply-arm",
            reply::Body::Arm(v1::ArmReply { lead_us: 450_000 }),
        ),
        (
            "reply-listen",
            reply::Body::Listen(v1::ListenReply { port: 40_000 }),
        ),
    ] {
        let reply = v1::Reply {
            id: 11,
            body: Some(body),
            ..Default::default()
        };
        check(name, &from_agent(agent_message::Body::Reply(reply)));
    }
}

#[test]
fn what_collectors_say() {
    let sampling = v1::Sampling {
        host_wide: true,
        interfaces: true,
        period_us: 1_000_000,
        mesh_pids: vec![77, 78],
        daemon_rules: vec![rule()],
        ..Default::default()
    };
    let welcome = v1::Welcome {
        wire_version: 1,
        collector_version: "0.1.0".to_owned(),
        mesh_uid: "mesh".to_owned(),
        agent_id: 3,
        session: "token".to_owned(),
        spools: vec![v1::SpoolPosition {
            spool_id: "s1".to_owned(),
            last_sequence: 41,
        }],
        sampling: Some(sampling.clone()),
        ..Default::default()
    };
    check(
        "welcome",
        &from_collector(collector_message::Body::Welcome(welcome)),
    );
    let clock = v1::ClockReply {
        agent_sent_ns: 1,
        mesh_received_ns: 2,
        mesh_sent_ns: 3,
    };
    check(
        "clock-reply",
        &from_collector(collector_message::Body::ClockReply(clock)),
    );
    let prepare = v1::Prepare {
        task_id: 5,
        run_uid: "run".to_owned(),
        workload: "io".to_owned(),
        mode: "randread".to_owned(),
        params_json: "{\"bs\":4096}".to_owned(),
        path: "/mnt/a".to_owned(),
        cell: "c1".to_owned(),
        task_index: 1,
        tasks: 2,
        cache: "cold".to_owned(),
        peer_address: "10.0.0.2:40000".to_owned(),
        token: "t".to_owned(),
        lease_us: 30_000_000,
        run_id: 12,
        step_id: 13,
        on_stall: "abort".to_owned(),
        ..Default::default()
    };
    let listen = v1::Listen {
        task_id: 5,
        workload: "network".to_owned(),
        mode: "stream".to_owned(),
        params_json: "{}".to_owned(),
        from_address: "10.0.0.1".to_owned(),
        token: "t".to_owned(),
        ..Default::default()
    };
    let remove_cell = v1::RemoveCell {
        run_uid: "run".to_owned(),
        path: "/mnt/a".to_owned(),
        cell: "c1".to_owned(),
        task_index: 1,
    };
    let share = v1::ShareRate {
        task_id: 5,
        task_index: 1,
        tasks: 2,
        from_us: 1_795_000_000_000_000,
    };
    let arm = v1::Arm {
        task_id: 5,
        start_us: 1_795_000_000_000_000,
        end_us: 0,
    };
    let stop = v1::StopTask {
        task_id: 5,
        reason: "enough".to_owned(),
    };
    for (name, body) in [
        ("command-sampling", command::Body::Sampling(sampling)),
        ("command-prepare", command::Body::Prepare(prepare)),
        ("command-listen", command::Body::Listen(listen)),
        (
            "command-remove-cell",
            command::Body::RemoveCell(remove_cell),
        ),
        ("command-share-rate", command::Body::ShareRate(share)),
        ("command-arm", command::Body::Arm(arm)),
        ("command-stop-task", command::Body::StopTask(stop)),
        (
            "command-await-end",
            command::Body::AwaitEnd(v1::AwaitEnd { task_id: 5 }),
        ),
        (
            "command-forget-task",
            command::Body::ForgetTask(v1::ForgetTask { task_id: 5 }),
        ),
        ("command-mark", command::Body::Mark(v1::Mark { at_us: 6 })),
    ] {
        check(name, &command(body));
    }
    let ack = v1::Ack {
        spool_id: "s2".to_owned(),
        sequence: 99,
    };
    check("ack", &ack);
}

#[test]
fn what_is_spooled() {
    const AT: i64 = 1_795_000_000_000_000;
    let service = v1::Distribution {
        histogram: vec![1, 2, 3],
        count: 4,
        sum_ns: 5.5,
        sum_squares_ns2: 6.5,
        min_ns: 7,
        max_ns: 8,
        saturated: 9,
    };
    let batch = v1::Batch {
        spool_id: "s2".to_owned(),
        first_sequence: 98,
        sequence: 99,
        op_intervals: vec![v1::OpInterval {
            task_id: 5,
            at_us: AT,
            span_us: 1_000_000,
            op: "read".to_owned(),
            ramp: true,
            ops: 10,
            bytes: 11,
            errors: 12,
            in_flight: 13,
            service: Some(service.clone()),
            response: Some(service),
            ..v1::OpInterval::default()
        }],
        daemons: vec![v1::DaemonSeen {
            pid: 1,
            start_ticks: 2,
            name: "ceph-osd".to_owned(),
            instance: "osd.3".to_owned(),
            cmdline: "ceph-osd -i 3".to_owned(),
            at_us: AT,
            ended: true,
            born_us: AT - 1,
            is_parent: true,
            ..v1::DaemonSeen::default()
        }],
        daemon_samples: Some(v1::DaemonSamples {
            pid: vec![1],
            start_ticks: vec![2],
            at_us: vec![AT],
            figures: [3, 4, 5, -1].map(|value| vec![value].into()).to_vec(),
        }),
        host_samples: vec![v1::HostSample {
            at_us: AT,
            figures: vec![1, 0, -1, 1 << 40],
            ..Default::default()
        }],
        disk_samples: vec![v1::DiskSample {
            at_us: AT,
            disk: "sda".to_owned(),
            figures: vec![3, 13],
            ..Default::default()
        }],
        net_samples: vec![v1::NetSample {
            at_us: AT,
            interface: "eth0".to_owned(),
            figures: vec![3, 10],
            ..Default::default()
        }],
        clock_offsets: vec![v1::ClockOffset {
            at_us: AT,
            offset_us: -5,
            error_us: 6,
            round_trip_us: 7,
        }],
        events: vec![v1::Event {
            at_us: AT,
            run_id: 1,
            step_id: 2,
            severity: "warning".to_owned(),
            kind: "stall".to_owned(),
            message: "m".to_owned(),
            detail_json: "{}".to_owned(),
            ..v1::Event::default()
        }],
        losses: vec![v1::Loss {
            what: "disk_samples".to_owned(),
            rows: 4,
            from_us: AT,
            until_us: AT + 1,
        }],
        task_ends: vec![v1::TaskEnd {
            task_id: 5,
            state: "done".to_owned(),
            workers: 4,
            start_us: AT,
            skew_us: -3,
            skew_error_us: 2,
            first_done_us: AT + 1,
            ended_us: AT + 2,
            cpu_user_us: Some(9),
            cpu_system_us: Some(10),
            harness_ns_per_op: 11,
            wait_cpu_us: Some(12),
            error: "e".to_owned(),
            errors: vec![v1::ErrorCount {
                op: "read".to_owned(),
                errno: 5,
                count: 6,
                first: "f".to_owned(),
            }],
            last_begun_us: AT + 1,
            ..Default::default()
        }],
        ..Default::default()
    };
    check("batch", &batch);
}

#[test]
fn what_commands_say() {
    let start = v1::StartRunRequest {
        wire_version: 1,
        run_uid: "run".to_owned(),
        plan_name: "nightly".to_owned(),
        plan_toml: "name = \"x\"".to_owned(),
        agents: 3,
        agents_wait_us: 60_000_000,
        dry_run: true,
        ..Default::default()
    };
    check("start-run", &start);
    let stop = v1::StopRunRequest {
        run: "last".to_owned(),
        reason: "enough".to_owned(),
        ..Default::default()
    };
    check("stop-run", &stop);
    let certify = v1::CreateTokenRequest {
        role: "agent".to_owned(),
        uses: 12,
        ttl_s: 3600,
        replace: true,
        ..Default::default()
    };
    check("create-token", &certify);
}
