#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod soaks;
mod space;

use super::*;
use benchmesh_store::Store;
use benchmesh_synthetic::{Shape, generate};
use std::path::Path;

async fn findings_of(path: &Path, run: i64) -> Vec<Finding> {
    let store = Store::open(path).await.unwrap();
    let mut connection = store.reader().acquire().await.unwrap();
    let found = of_run(&mut connection, RunId(run)).await.unwrap();
    drop(connection);
    store.close().await;
    found
}

/// The findings of a soak of an hour on four hosts, changed by SQL.
async fn planted(sql: &str) -> Vec<Finding> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("soak.db");
    let shape = Shape {
        runs: 0,
        soak_seconds: 3600,
        ..Shape::small()
    };
    let soak = i64::from(shape.soak_run());
    let made = path.clone();
    tokio::task::spawn_blocking(move || generate(&made, &shape).unwrap())
        .await
        .unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(sql).unwrap();
    let found = findings_of(&path, soak).await;
    for finding in &found {
        assert!(!finding.sentence.is_empty() && !finding.sentence.ends_with('.'));
        if let Some(sql) = &finding.sql {
            let rows = file
                .prepare(sql)
                .unwrap()
                .raw_query()
                .mapped(|_| Ok(()))
                .count();
            assert!(rows > 0, "{sql}");
        }
    }
    found
}

fn of_kind<'f>(found: &'f [Finding], kind: &str) -> Vec<&'f Finding> {
    let all = found.iter();
    all.filter(|one| one.is_found() && one.kind == kind)
        .collect()
}

/// Removes the anomalies of the generated data: it then has no second without an operation, no rate that recurs every
/// 23 s, no daemon that grows.
const CLEAN: &str = "
    UPDATE daemon_samples SET rss_bytes = 300 * 1048576 + (at_us / 1000000 * 7919 % 1000) * 1000;
    UPDATE step_intervals SET ops = 700 + at_us / 1000000 * 7919 % 50;";

#[tokio::test]
async fn a_clean_soak_has_nothing_that_stands_out() {
    let found = planted(CLEAN).await;
    let stand_out: Vec<&Finding> = found.iter().filter(|one| one.is_found()).collect();
    assert!(stand_out.is_empty(), "{stand_out:#?}");
    let verdicts: Vec<(&str, &str)> = found
        .iter()
        .map(|one| (one.kind.as_str(), one.verdict.as_str()))
        .collect();
    assert_eq!(
        verdicts,
        [
            ("leak", "steady"),
            ("leak", "steady"),
            ("leak", "steady"),
            ("drift", "steady")
        ],
        "{found:#?}"
    );
}

#[tokio::test]
async fn what_is_planted_is_found_at_its_place() {
    let found = planted(&format!(
        "{CLEAN}
         -- Two percent an hour.
         UPDATE daemon_samples SET rss_bytes = rss_bytes + (at_us - 1750000000000000) / 1000000 * 1747 WHERE daemon_id = 7;
         -- The rate falls by 5 %.
         UPDATE step_intervals SET ops = CAST(ops * (1 - 0.05 * (at_us - 1750000000000000) / 3.6e9) AS INTEGER);
         -- Three seconds and, later, two.
         UPDATE step_intervals SET ops = 0 WHERE (at_us - 1750000000000000) / 1000000 IN (1000, 1001, 1002, 2000, 2001);
         UPDATE op_intervals SET ops = 0 WHERE (at_us - 1750000000000000) / 1000000 IN (1000, 1001, 1002);
         -- One of its name uses three times the CPU from the middle on.
         UPDATE daemon_samples SET cpu_user_us = cpu_user_us + max(0, at_us - 1750001800000000) WHERE daemon_id = 3;
         UPDATE step_daemons SET cpu_user_us = cpu_user_us + 1800000000 WHERE daemon_id = 3;"
    ))
    .await;
    let leaks = of_kind(&found, "leak");
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert_eq!(leaks[0].daemon_id, Some(7));
    let per_hour = leaks[0].size.unwrap() / 1_048_576.0;
    assert!((5.8..6.2).contains(&per_hour), "{per_hour}");

    let drifts = of_kind(&found, "drift");
    assert_eq!(drifts.len(), 1, "{drifts:#?}");
    assert_eq!(drifts[0].figure.as_deref(), Some("ops_per_s"));
    let percent = drifts[0].size.unwrap();
    assert!((-5.5..-4.0).contains(&percent), "{percent}");

    let outages = of_kind(&found, "outage");
    assert_eq!(outages.len(), 1, "{outages:#?}");
    assert_eq!(outages[0].size, Some(5.0));
    assert_eq!(outages[0].from_us, Some(1_750_001_000_000_000));
    let sentence = &outages[0].sentence;
    assert!(
        sentence.contains("the longest gap took 3.00 s from 2025-06-15T15:23:20Z, on all of 2 clients; back after 3.00 s"),
        "{sentence}"
    );

    let outliers = of_kind(&found, "outlier");
    assert_eq!(outliers.len(), 1, "{outliers:#?}");
    assert_eq!(outliers[0].daemon_id, Some(3));
    let from_s = (outliers[0].from_us.unwrap() - 1_750_000_000_000_000) / 1_000_000;
    assert!((1700..1900).contains(&from_s), "{from_s}");
}

#[tokio::test]
async fn a_load_that_mostly_stood_still_is_an_error_with_its_true_length() {
    // 38 of 60 minutes without an operation, ended by one that had waited all the time and half a second more.
    let found = planted(&format!(
        "{CLEAN}
         UPDATE step_intervals SET ops = 0, max_ns = NULL
             WHERE (at_us - 1750000000000000) / 1000000 BETWEEN 600 AND 2879;
         UPDATE step_intervals SET max_ns = 2280500000000 WHERE (at_us - 1750000000000000) / 1000000 = 2880;"
    ))
    .await;
    let outages = of_kind(&found, "outage");
    assert_eq!(outages.len(), 1, "{outages:#?}");
    assert_eq!(outages[0].severity, "error");
    assert_eq!(outages[0].size, Some(2280.5));
    let sentence = &outages[0].sentence;
    assert!(
        sentence.contains("so its figures are those of an outage")
            && sentence.contains("usually 72"),
        "{sentence}"
    );
}

#[tokio::test]
async fn links_daemons_and_disks_unlike_their_equals_are_found() {
    let found = planted(&format!(
        "{CLEAN}
         UPDATE step_daemons SET serves_target = 1, read_bytes = 0,
             write_bytes = (until_us - from_us) * iif(daemon_id = 3, 30, 10);
         UPDATE disk_samples SET write_bytes = write_bytes * iif(disk_id = 2, 4, 1),
             read_bytes = read_bytes * iif(disk_id = 2, 4, 1);
         -- All links of a step at once; one has a third of the rate.
         INSERT INTO steps (id, run_id, ordinal, repeat, loop, phase, cell, workload, mode, params, clients, cache, state,
                 start_us, measured_from_us, all_active_from_us, all_active_until_us, last_done_us, ended_us)
             SELECT 900001, max(id), 99, 1, 1, 'links', 'c', 'network', 'ping', '{{}}', 2, 'asis', 'done', {at}, {at}, {at},
                    {at} + 10000000, {at} + 10000000, {at} + 10000000 FROM runs;
         INSERT INTO tasks (id, step_id, task_index, agent_id, peer_agent_id, state, start_us, ended_us)
             SELECT 910000 + 100 * a.agent_id + p.agent_id, 900001, 100 * a.agent_id + p.agent_id, a.agent_id, p.agent_id,
                    'done', {at}, {at} + 10000000
             FROM run_agents AS a JOIN run_agents AS p ON p.run_id = a.run_id AND p.host_id <> a.host_id
             WHERE a.run_id = (SELECT max(id) FROM runs);
         INSERT INTO task_results (task_id, op, ops, bytes, errors, ops_per_s)
             SELECT id, 'ping', 1, 1, 0, iif(id = (SELECT min(id) FROM tasks WHERE step_id = 900001), 330, 1000 + id % 20)
             FROM tasks WHERE step_id = 900001;",
        at = 1_750_001_000_000_000_i64
    ))
    .await;
    let outliers = of_kind(&found, "outlier");
    let of = |subject: &str| -> Vec<&&Finding> {
        let all = outliers.iter();
        all.filter(|one| one.subject.starts_with(subject)).collect()
    };
    let links = of("link ");
    assert_eq!(links.len(), 1, "{outliers:#?}");
    assert!(
        links[0].sentence.contains("did 330 ping/s in links ping"),
        "{}",
        links[0].sentence
    );
    assert!(
        (0.3..0.35).contains(&links[0].size.unwrap()),
        "{:?}",
        links[0]
    );
    let disks = of("disk ");
    assert_eq!(disks.len(), 1, "{outliers:#?}");
    assert!(
        (3.9..4.1).contains(&disks[0].size.unwrap()),
        "{:?}",
        disks[0]
    );
    let daemons: Vec<_> = outliers
        .iter()
        .filter(|one| one.daemon_id.is_some())
        .collect();
    assert_eq!(daemons.len(), 1, "{outliers:#?}");
    assert_eq!(daemons[0].daemon_id, Some(3));
    assert!(
        (2.9..3.1).contains(&daemons[0].size.unwrap()),
        "{:?}",
        daemons[0]
    );
}

#[tokio::test]
async fn findings_of_daemons_that_serve_no_target_are_one_line() {
    let plant = "UPDATE daemon_samples SET rss_bytes = rss_bytes + (at_us - 1750000000000000) / 1000000 * 1747
                     WHERE daemon_id IN (5, 7);
         UPDATE daemon_samples SET cpu_user_us = cpu_user_us + max(0, at_us - 1750001800000000) WHERE daemon_id = 3;
         UPDATE step_daemons SET cpu_user_us = cpu_user_us + 1800000000 WHERE daemon_id = 3;";
    let found = planted(&format!(
        "{CLEAN}{plant} UPDATE step_daemons SET serves_target = daemon_id NOT IN (3, 7);"
    ))
    .await;
    let leaks = of_kind(&found, "leak");
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert_eq!(leaks[0].daemon_id, Some(5));
    assert!(of_kind(&found, "outlier").is_empty(), "{found:#?}");
    let others = of_kind(&found, "daemon");
    assert_eq!(others.len(), 1, "{others:#?}");
    let sentence = &others[0].sentence;
    assert!(
        sentence.starts_with(
            "2 more findings (1 leak, 1 outlier) of daemons that serve no target of this run: "
        ),
        "{sentence}"
    );
    // If no daemon is known to serve the targets, all findings stay.
    let unknown = planted(&format!(
        "{CLEAN}{plant} UPDATE step_daemons SET serves_target = NULL;"
    ))
    .await;
    assert_eq!(of_kind(&unknown, "leak").len(), 2);
    assert_eq!(of_kind(&unknown, "outlier").len(), 1);
}

#[tokio::test]
async fn a_short_run_is_said_to_be_too_short() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short.db");
    let made = path.clone();
    tokio::task::spawn_blocking(move || generate(&made, &Shape::small()).unwrap())
        .await
        .unwrap();
    let found = findings_of(&path, 1).await;
    let sentences: Vec<&str> = found.iter().map(|one| one.sentence.as_str()).collect();
    assert!(
        sentences[0].contains("too short: ") && sentences[1].contains("too short: "),
        "{sentences:?}"
    );
    assert!(
        found.iter().all(|one| one.verdict == "not-judged"),
        "{found:#?}"
    );
}

#[test]
fn a_span_is_rounded_and_not_cut_off() {
    for (us, expected) in [
        (3_400_000, "3.4 s"),
        (24_400_000, "24 s"),
        (24_900_000, "25 s"),
        (59_700_000, "1m 00s"),
    ] {
        assert_eq!(span(us), expected);
    }
}
