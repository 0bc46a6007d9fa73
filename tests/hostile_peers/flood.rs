//! An agent with a valid certificate that sends rows without end: one hour's budget is stored, then it is rejected.
//! When the disk fills, the last part is reserved for results.

use super::LIMIT;
use crate::needs;
use crate::support::fake_agent::{FakeAgent, converse, hello, now_us};
use crate::support::loop_device::Mounted;
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use benchmesh_proto::v1 as wire;
use std::path::Path;
use tonic::{Code, Status};

/// 8,000 daemons with two texts of 16 KiB each: 260 MB.
const BATCHES: u64 = 40;
const DAEMONS: u64 = 200;

fn daemons(batch: u64) -> Vec<wire::DaemonSeen> {
    let long = "é".repeat(8 << 10);
    let daemon = |number: u64| wire::DaemonSeen {
        pid: i32::try_from(batch * DAEMONS + number).unwrap(),
        start_ticks: 1,
        name: "shardd".to_owned(),
        instance: long.clone(),
        cmdline: long.clone(),
        at_us: now_us(),
        ..wire::DaemonSeen::default()
    };
    (0..DAEMONS).map(daemon).collect()
}

async fn flood(rogue: &mut FakeAgent) -> Result<(), Status> {
    for number in 0..BATCHES {
        let mut batch = rogue.next_batch();
        batch.daemons = daemons(number);
        rogue.publish(batch).await?;
        // Otherwise a slow machine would treat it as silent.
        rogue.exchange_clocks().await;
    }
    Ok(())
}

#[test]
fn a_flood_fills_no_disk_and_its_agent_is_turned_away() {
    let mesh = Mesh::start();
    converse(LIMIT, async {
        let mut rogue = FakeAgent::attach(mesh.address(), hello("rogue"))
            .await
            .unwrap();
        let refused = flood(&mut rogue).await.expect_err("260 MB are taken");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("`daemons`"), "{refused:?}");
        // Neither now nor after several attempts.
        for _ in 0..3 {
            let refused = FakeAgent::attach(mesh.address(), hello("rogue")).await;
            let refused = refused.expect_err("it is taken again");
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
            assert!(refused.message().contains("`daemons`"), "{refused:?}");
        }
        // Other agents are not affected.
        let mut other = FakeAgent::attach(mesh.address(), hello("other"))
            .await
            .unwrap();
        let mut batch = other.next_batch();
        batch.daemons = daemons(0);
        batch.daemons.truncate(10);
        other.publish(batch).await.unwrap();
    });
    let db = mesh.db();
    let event = "SELECT count(*) FROM events AS e JOIN agents AS a ON a.id = e.agent_id WHERE e.kind = 'agent-flood'
        AND e.source = 'collector' AND a.name = 'rogue' AND e.detail ->> 'table' = 'daemons'";
    until_true("the flood is an event", LIMIT, || db.one::<i64>(event) == 1);
    let longest: i64 = db.one("SELECT max(octet_length(cmdline)) FROM daemons");
    assert!(longest <= 4096, "a text of {longest} bytes");
    let longest: i64 = db.one("SELECT max(octet_length(instance)) FROM daemons");
    assert!(longest <= 256, "an instance of {longest} bytes");
    let stored: i64 =
        db.one("SELECT sum(octet_length(cmdline) + octet_length(instance)) FROM daemons");
    assert!(stored < 36_000_000, "{stored} bytes of it are stored");
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
    let sample = |message: &str| wire::Batch {
        host_samples: vec![wire::HostSample {
            at_us: now_us(),
            figures: vec![0; 23],
            others: None,
        }],
        events: vec![wire::Event {
            at_us: now_us(),
            severity: "info".to_owned(),
            kind: "told".to_owned(),
            message: message.to_owned(),
            ..wire::Event::default()
        }],
        ..wire::Batch::default()
    };
    converse(LIMIT, async {
        let mut agent = FakeAgent::attach(mesh.address(), hello("a")).await.unwrap();
        for message in ["before", "low", "still low", "after"] {
            match message {
                "low" => fill_up_to(&ballast, 2 << 20),
                "after" => std::fs::remove_file(&ballast).unwrap(),
                _ => {}
            }
            let next = agent.next_batch();
            let batch = wire::Batch {
                spool_id: next.spool_id,
                first_sequence: next.sequence,
                sequence: next.sequence,
                ..sample(message)
            };
            agent.publish(batch).await.unwrap();
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
