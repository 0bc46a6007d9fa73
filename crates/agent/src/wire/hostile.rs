//! Commands of a compromised collector: accepted within their bounds, or refused with their number.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::command::Incoming;
use benchmesh_proto::v1;
use benchmesh_testing::hostile::{damaged, withstands};
use proptest::prelude::*;
use prost::Message;

/// Encoded messages of a collector: the wire's own fixtures.
fn messages() -> Vec<Vec<u8>> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/tests/wire-2");
    let files = std::fs::read_dir(directory).unwrap();
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["command-", "welcome", "clock-reply"]
            .iter()
            .any(|begin| name.starts_with(begin))
    });
    files
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            let bytes = digits
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
            bytes.collect()
        })
        .collect()
}

fn parsed(body: v1::collector_message::Body) -> Result<Incoming, String> {
    let message = v1::CollectorMessage { body: Some(body) };
    match Incoming::try_from(message) {
        Ok(Incoming::BadCommand { error, .. }) | Err(error) => Err(error.to_string()),
        Ok(parsed) => Ok(parsed),
    }
}

/// Every field that is kept for a session, a rule or a load is bounded, even if it may be empty.
#[test]
fn texts_and_times_without_a_bound_are_refused() {
    use v1::{collector_message::Body, command::Body as Asked};
    let long = "x".repeat(5000);
    let welcome = |change: &dyn Fn(&mut v1::Welcome)| {
        let mut welcome = v1::Welcome {
            mesh_uid: "mesh".to_owned(),
            session: "session".to_owned(),
            spools: vec![v1::SpoolPosition {
                spool_id: "spool".to_owned(),
                last_sequence: 1,
            }],
            ..v1::Welcome::default()
        };
        change(&mut welcome);
        Body::Welcome(welcome)
    };
    let command = |body| {
        Body::Command(v1::Command {
            id: 1,
            run_id: 0,
            body: Some(body),
        })
    };
    let rule = |change: &dyn Fn(&mut v1::DaemonRule)| {
        let mut rule = v1::DaemonRule {
            name: "osd".to_owned(),
            comm: "ceph-osd".to_owned(),
            ..v1::DaemonRule::default()
        };
        change(&mut rule);
        command(Asked::Sampling(v1::Sampling {
            daemon_rules: vec![rule],
            ..v1::Sampling::default()
        }))
    };
    let lease = |days: i64| {
        command(Asked::Prepare(v1::Prepare {
            task_id: 1,
            workload: "null".to_owned(),
            mode: "run".to_owned(),
            tasks: 1,
            lease_us: days * 86_400_000_000,
            ..v1::Prepare::default()
        }))
    };
    for sound in [welcome(&|_| ()), rule(&|_| ()), lease(7)] {
        parsed(sound).unwrap();
    }
    for (refused, field) in [
        (
            welcome(&|it| it.spools[0].spool_id = long.clone()),
            "spool_id",
        ),
        (welcome(&|it| it.spools[0].spool_id.clear()), "spool_id"),
        (
            welcome(&|it| it.collector_version = long.clone()),
            "collector_version",
        ),
        (rule(&|it| it.comm = long.clone()), "daemon_rules"),
        (rule(&|it| it.cmdline = long.clone()), "daemon_rules"),
        (rule(&|it| it.cgroup = long.clone()), "daemon_rules"),
        (rule(&|it| it.unit = long.clone()), "daemon_rules"),
        (
            rule(&|it| it.instance_option = long.clone()),
            "daemon_rules",
        ),
        (rule(&|it| it.comm = "a\nb".to_owned()), "daemon_rules"),
        (lease(8), "lease_us"),
    ] {
        let why = parsed(refused).unwrap_err();
        assert!(why.contains(field), "{why} does not name {field}");
    }
}

#[test]
fn damaged_commands_are_understood_or_refused() {
    let messages = messages();
    assert!(messages.len() > 8);
    for bytes in &messages {
        let message = v1::CollectorMessage::decode(bytes.as_slice()).unwrap();
        let parsed = Incoming::try_from(message).unwrap();
        assert!(!matches!(parsed, Incoming::BadCommand { .. }), "{parsed:?}");
    }
    withstands(damaged(messages, 64 << 10), 32 << 20, |bytes| {
        let Ok(message) = v1::CollectorMessage::decode(bytes.as_slice()) else {
            return Ok(());
        };
        match Incoming::try_from(message) {
            Ok(Incoming::BadCommand { error, .. }) | Err(error) => {
                prop_assert!(!error.to_string().is_empty());
            }
            Ok(_) => {}
        }
        Ok(())
    });
}
