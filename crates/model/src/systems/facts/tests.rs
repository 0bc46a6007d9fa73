//! Recorded output of Ceph 16.2.15 and GlusterFS 10.3, shortened.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::systems::fact_sets;

const CEPH_STATUS: &str = include_str!("recorded/ceph-status.json");
const CEPH_DEGRADED: &str = include_str!("recorded/ceph-status-degraded.json");
const CEPH_TREE: &str = include_str!("recorded/ceph-osd-tree.json");
const CEPH_POOLS: &str = include_str!("recorded/ceph-pools.json");
const CEPH_VERSIONS: &str = include_str!("recorded/ceph-versions.json");
const GLUSTER_INFO: &str = include_str!("recorded/gluster-info.xml");
const GLUSTER_STATUS: &str = include_str!("recorded/gluster-status.xml");
const GLUSTER_HEAL: &str = include_str!("recorded/gluster-heal-count.txt");

/// Parses these outputs with the commands of a set.
fn read(set: &FactSet, outputs: &[&str]) -> Facts {
    let mut facts = Facts::default();
    for (command, output) in set.commands.iter().zip(outputs) {
        let names = command
            .each
            .map_or(vec![String::new()], |each| each(&facts));
        for name in names {
            (command.parse)(output, &name, &mut facts).unwrap();
        }
    }
    (set.conclude)(&mut facts);
    facts
}

fn check(facts: &Facts, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = facts
            .get(name)
            .map_or_else(|| "absent".to_owned(), Value::to_string);
        assert_eq!(found, *value, "{name} of {facts:?}");
    }
}

#[test]
fn a_whole_ceph() {
    let facts = read(&CEPH, &[CEPH_STATUS, CEPH_TREE, CEPH_POOLS, CEPH_VERSIONS]);
    assert_eq!(facts.is_degraded(), Some(false));
    check(
        &facts,
        &[
            ("health", "HEALTH_OK"),
            ("health_checks", "none"),
            ("whole", "yes"),
            ("mons", "1"),
            ("mons_in_quorum", "1"),
            ("osds", "3"),
            ("osds_up", "3"),
            ("osds_in", "3"),
            ("pgs", "17"),
            ("pgs_clean", "17"),
            ("objects_degraded", "0"),
            ("objects_misplaced", "0"),
            ("used_bytes", "913121280"),
            ("total_bytes", "9663676416"),
            ("hosts", "3"),
            ("pool.bench.size", "3"),
            ("pool.bench.min_size", "2"),
            ("pool.bench.pgs", "16"),
            ("version.osd", "16.2.15"),
            ("version.mds", "absent"),
        ],
    );
}

#[test]
fn a_ceph_with_an_osd_down() {
    let facts = read(&CEPH, &[CEPH_DEGRADED, CEPH_TREE]);
    assert_eq!(facts.is_degraded(), Some(true));
    check(
        &facts,
        &[
            ("health", "HEALTH_WARN"),
            ("health_checks", "OSD_DOWN PG_DEGRADED"),
            ("whole", "no"),
            ("osds_up", "2"),
            ("pgs_clean", "0"),
            ("objects_degraded", "10"),
            ("osds_down", "osd.2"),
        ],
    );
    assert_eq!(
        summary(&facts.texts()),
        "HEALTH_WARN (OSD_DOWN PG_DEGRADED), 2 of 3 OSDs up, 10 objects degraded"
    );
}

#[test]
fn a_gluster_with_a_brick_down() {
    let outputs = [
        GLUSTER_INFO,
        GLUSTER_STATUS,
        GLUSTER_HEAL,
        "glusterfs 10.3\n",
    ];
    let facts = read(&GLUSTER, &outputs);
    assert_eq!(facts.is_degraded(), Some(true));
    check(
        &facts,
        &[
            ("health", "degraded"),
            ("volumes", "1"),
            ("volume.bench.replica", "3"),
            ("volume.bench.bricks", "3"),
            ("volume.bench.type", "Replicate"),
            ("volume.bench.status", "Started"),
            ("bricks", "3"),
            ("bricks_online", "2"),
            ("volume.bench.heals_pending", "6"),
            ("heals_pending", "6"),
            ("version", "10.3"),
        ],
    );
    assert_eq!(
        summary(&facts.texts()),
        "degraded, 2 of 3 bricks online, 6 heals pending, volume bench replica 3"
    );
    let conditions: Vec<&str> = (facts.as_slice().iter())
        .map(|fact| fact.name.as_str())
        .filter(|name| is_condition(name))
        .collect();
    assert!(
        conditions.contains(&"volume.bench.replica"),
        "{conditions:?}"
    );
    assert!(!conditions.contains(&"used_bytes"), "{conditions:?}");
}

#[test]
fn a_warning_that_is_not_about_copies_leaves_a_ceph_whole() {
    let warns = CEPH_STATUS.replacen("HEALTH_OK", "HEALTH_WARN", 1);
    let facts = read(&CEPH, &[&warns, CEPH_TREE, CEPH_POOLS, CEPH_VERSIONS]);
    check(&facts, &[("health", "HEALTH_WARN"), ("whole", "yes")]);
    assert_eq!(facts.is_degraded(), Some(false));
    let failed = CEPH_STATUS.replacen("HEALTH_OK", "HEALTH_ERR", 1);
    let facts = read(&CEPH, &[&failed, CEPH_TREE, CEPH_POOLS, CEPH_VERSIONS]);
    assert_eq!(facts.is_degraded(), Some(true));
}

/// Each glusterd lists only its own bricks.
#[test]
fn a_gluster_with_a_host_down_is_degraded_and_one_without_counts_says_nothing() {
    let node = |host: &str, path: &str, status: &str| {
        format!(
            "<node><hostname>{host}</hostname><path>{path}</path><status>{status}</status></node>"
        )
    };
    let status =
        |nodes: &[String]| format!("<cliOutput><opRet>0</opRet>{}</cliOutput>", nodes.concat());
    let online = ["a", "b", "c"].map(|host| node(host, "/brick", "1"));
    let version = "glusterfs 10.3\n";
    let healed = "Number of entries: 0\n";
    let two = status(online.get(..2).unwrap());
    let facts = read(&GLUSTER, &[GLUSTER_INFO, &two, healed, version]);
    check(
        &facts,
        &[
            ("bricks", "3"),
            ("bricks_online", "2"),
            ("health", "degraded"),
        ],
    );
    let all = status(&online);
    let facts = read(&GLUSTER, &[GLUSTER_INFO, &all, healed, version]);
    check(&facts, &[("health", "ok"), ("heals_pending", "0")]);
    let mut facts = Facts::default();
    for (command, output) in GLUSTER.commands.iter().zip([GLUSTER_INFO, &all]) {
        (command.parse)(output, "", &mut facts).unwrap();
    }
    (GLUSTER.conclude)(&mut facts);
    check(&facts, &[("health", "absent"), ("heals_pending", "absent")]);
    assert_eq!(facts.is_degraded(), None);
}

#[test]
fn a_refusal_of_gluster_is_its_own_sentence() {
    let refused = "<cliOutput><opRet>-1</opRet><opErrno>2</opErrno><opErrstr>No volumes present</opErrstr></cliOutput>";
    let parse = GLUSTER.commands.first().unwrap().parse;
    let error = parse(refused, "", &mut Facts::default()).unwrap_err();
    assert_eq!(error.to_string(), "No volumes present");
}

#[test]
fn own_commands_write_json_or_lines() {
    for output in [
        "{\"health\": \"ok\", \"chunks\": 12, \"nested\": {\"a\": 1}}",
        "health=ok\nchunks = 12\nno fact\n",
    ] {
        let mut facts = Facts::default();
        parse_own(output, &mut facts).unwrap();
        check(
            &facts,
            &[("health", "ok"), ("chunks", "12"), ("nested", "absent")],
        );
        assert_eq!(facts.is_degraded(), Some(false));
    }
    for wrong in ["", "hello", "{\"a\": ", "[1]", "{}"] {
        assert!(parse_own(wrong, &mut Facts::default()).is_err(), "{wrong}");
    }
}

#[test]
fn facts_are_bounded() {
    let mut facts = Facts::default();
    let lines: String = (0..2000)
        .map(|n| format!("name{n}={}\n", "\u{e9}\u{1b}".repeat(400)))
        .collect();
    parse_own(&lines, &mut facts).unwrap();
    assert_eq!(facts.as_slice().len(), MAX_FACTS);
    for fact in facts.as_slice() {
        let Value::Text(text) = &fact.value else {
            panic!("{fact:?}")
        };
        assert!(
            text.len() <= MAX_TEXT_BYTES && !text.chars().any(is_hidden),
            "{text:?}"
        );
    }
}

/// Recorded output with a byte changed, cut or duplicated: no parser panics, and facts stay bounded.
#[test]
fn damaged_output_is_no_danger() {
    let recorded: [(&FactSet, &[&str]); 2] = [
        (
            &CEPH,
            &[CEPH_DEGRADED, CEPH_TREE, CEPH_POOLS, CEPH_VERSIONS],
        ),
        (
            &GLUSTER,
            &[GLUSTER_INFO, GLUSTER_STATUS, GLUSTER_HEAL, "glusterfs 10.3"],
        ),
    ];
    for (set, outputs) in recorded {
        for (command, output) in set.commands.iter().zip(outputs) {
            for at in (0..output.len()).filter(|at| output.is_char_boundary(*at)) {
                let (head, tail) = output.split_at(at);
                let rest = tail.get(1..).unwrap_or_default();
                for damaged in [
                    head.to_owned(),
                    tail.to_owned(),
                    format!("{head}<{rest}"),
                    format!("{head}\u{0}{tail}"),
                    format!("{head}99999999999999999999{rest}"),
                ] {
                    let mut facts = Facts::default();
                    let _ = (command.parse)(&damaged, "v", &mut facts);
                    (set.conclude)(&mut facts);
                    assert!(facts.as_slice().len() <= MAX_FACTS);
                }
            }
        }
    }
}

#[test]
fn sets_are_named_once() {
    let names: Vec<&str> = fact_sets().iter().map(|set| set.system).collect();
    assert_eq!(names, ["ceph", "gluster"]);
}
