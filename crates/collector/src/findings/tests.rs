#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod soaks;

use super::*;
use crate::store::Store;
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

/// An hour of soak on four hosts, changed by SQL.
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

/// Without planted anomalies: no second without an operation, no rate that comes again every 23 s, no daemon that grows.
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
