//! Agents with valid certificates that send rows without end: an hour's bytes are stored, then they are refused before
//! the disk is low. When the disk fills for another reason, the last part is reserved for results.

use super::LIMIT;
use crate::needs;
use crate::support::fake_agent::{FakeAgent, converse, hello, now_us};
use crate::support::loop_device::Mounted;
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use benchmesh_proto::v1 as wire;
use std::path::Path;
use tonic::{Code, Status};

/// An agent may fill an eighth of it within an hour, 64 MiB; the reserve is 26 MiB.
const DISK_BYTES: u64 = 512 << 20;
/// More than an agent may send, of each kind of rows.
const BATCHES: u64 = 20;

/// 6.5 MB of long texts.
fn daemons(number: u64) -> wire::Batch {
    const DAEMONS: u64 = 200;
    let long = "é".repeat(8 << 10);
    let daemon = |of: u64| wire::DaemonSeen {
        pid: i32::try_from(number * DAEMONS + of).unwrap(),
        start_ticks: 1,
        name: "shardd".to_owned(),
        instance: long.clone(),
        cmdline: long.clone(),
        at_us: now_us(),
        ..wire::DaemonSeen::default()
    };
    wire::Batch {
        daemons: (0..DAEMONS).map(daemon).collect(),
        ..wire::Batch::default()
    }
}

/// 50,000 of the smallest rows.
fn clock_offsets(number: u64) -> wire::Batch {
    const ROWS: i64 = 50_000;
    let first_us = 1_700_000_000_000_000 + i64::try_from(number).unwrap() * ROWS;
    let offset = |of: i64| wire::ClockOffset {
        at_us: first_us + of,
        ..wire::ClockOffset::default()
    };
    wire::Batch {
        clock_offsets: (0..ROWS).map(offset).collect(),
        ..wire::Batch::default()
    }
}

/// Sends the rows and an event, which is stored at once, as the agent's next batch.
async fn publish(agent: &mut FakeAgent, message: &str, rows: wire::Batch) -> Result<(), Status> {
    let event = wire::Event {
        at_us: now_us(),
        severity: "info".to_owned(),
        kind: "told".to_owned(),
        message: message.to_owned(),
        ..wire::Event::default()
    };
    let next = agent.next_batch();
    let batch = wire::Batch {
        spool_id: next.spool_id,
        first_sequence: next.sequence,
        sequence: next.sequence,
        events: vec![event],
        ..rows
    };
    agent.publish(batch).await
}

#[test]
fn floods_of_any_rows_are_refused_before_the_disk_is_low() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(DISK_BYTES);
    let mesh = Mesh::with_database_in(Some(&fs.path()));
    let mut samples = 0;
    converse(LIMIT * 2, async {
        let attach = |name: &'static str| FakeAgent::attach(mesh.address(), hello(name));
        let mut other = attach("other").await.unwrap();
        for name in ["long-texts", "small-rows"] {
            let mut rogue = attach(name).await.unwrap();
            let mut refused = None;
            for number in 0..BATCHES {
                // Otherwise a slow machine would treat them as silent.
                rogue.exchange_clocks().await;
                other.exchange_clocks().await;
                let rows = match name {
                    "long-texts" => daemons(number),
                    _ => clock_offsets(number),
                };
                refused = publish(&mut rogue, name, rows).await.err();
                // Another agent's data are stored, samples too.
                publish(&mut other, name, sample()).await.unwrap();
                samples += 1;
                if refused.is_some() {
                    break;
                }
            }
            // Neither now nor after several attempts.
            let mut refusals = vec![refused.expect("everything is stored")];
            for _ in 0..3 {
                refusals.push(attach(name).await.expect_err("it is accepted again"));
            }
            for refused in refusals {
                assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
                assert!(refused.message().contains("within an hour"), "{refused:?}");
            }
        }
    });
    let db = mesh.db();
    let events = "SELECT a.name FROM events AS e JOIN agents AS a ON a.id = e.agent_id WHERE e.kind = 'agent-flood'
        AND e.source = 'collector' AND e.detail ->> 'limit_bytes' = 64 << 20 ORDER BY e.id";
    until_true("each flood is an event", LIMIT, || {
        db.column::<String>(events) == ["long-texts", "small-rows"]
    });
    assert_eq!(db.one::<i64>("SELECT count(*) FROM host_samples"), samples);
    let low = "SELECT count(*) FROM events WHERE kind = 'database-low'";
    assert_eq!(db.one::<i64>(low), 0);
    let longest = "SELECT max(octet_length(cmdline)) FROM daemons";
    assert_eq!(db.one::<i64>(longest), 4096);
    let longest = "SELECT max(octet_length(instance)) FROM daemons";
    assert_eq!(db.one::<i64>(longest), 256);
}

fn sample() -> wire::Batch {
    wire::Batch {
        host_samples: vec![wire::HostSample {
            at_us: now_us(),
            figures: vec![0; 23],
            others: None,
        }],
        ..wire::Batch::default()
    }
}

/// Writes until only this much space is free.
fn fill_up_to(path: &Path, free_bytes: u64) {
    let directory = path.parent().unwrap();
    let free = || {
        let fs = rustix::fs::statvfs(directory).unwrap();
        fs.f_bavail * fs.f_frsize
    };
    let bytes = free().saturating_sub(free_bytes);
    std::fs::write(path, vec![1; usize::try_from(bytes).unwrap()]).unwrap();
    assert!(free() <= free_bytes, "{}", free());
}

/// A reserve of 3.2 MiB.
#[test]
fn what_is_left_of_the_disk_is_kept_for_results() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(64 << 20);
    let mesh = Mesh::with_database_in(Some(&fs.path()));
    let ballast = fs.path().join("ballast");
    converse(LIMIT, async {
        let mut agent = FakeAgent::attach(mesh.address(), hello("a")).await.unwrap();
        for message in ["before", "low", "still low", "after"] {
            match message {
                "low" => fill_up_to(&ballast, 2 << 20),
                "after" => std::fs::remove_file(&ballast).unwrap(),
                _ => {}
            }
            publish(&mut agent, message, sample()).await.unwrap();
            if message == "low" {
                let plan = "[[phase]]\nworkload = \"null\"\nops = 1\n";
                let mut run = mesh.begin(plan);
                let ended = run.exit_within(LIMIT).unwrap();
                assert!(!ended.success());
                assert!(run.log().contains("almost full"), "{}", run.log());
            }
        }
    });
    let db = mesh.db();
    let told: Vec<String> = db.column("SELECT message FROM events WHERE kind = 'told' ORDER BY id");
    assert_eq!(told, ["before", "low", "still low", "after"]);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM host_samples"), 2);
    let lost = "SELECT group_concat(what || ' ' || rows) FROM losses";
    assert_eq!(db.one::<String>(lost), "host_samples 2");
    assert_eq!(db.one::<i64>("SELECT count(*) FROM runs"), 0);
    let events = "SELECT group_concat(kind, ' ') FROM
        (SELECT kind FROM events WHERE kind IN ('database-low', 'database-room') ORDER BY kind)";
    until_true("both are events", LIMIT, || {
        db.one::<Option<String>>(events).as_deref() == Some("database-low database-room")
    });
}
