//! Soaks with noise: planted anomalies are found in the right place, and fifty clean soaks give almost no findings.

use super::*;
use crate::compare::{Request, Subject, compare};
use benchmesh_synthetic::soak::{Planted, Soak, daemon_id, soaks, start_us};

fn soak(seed: u64, seconds: u32, loops: u32, sampled_every: u32, planted: &[Planted]) -> Soak {
    Soak {
        seed,
        seconds,
        loops,
        sampled_every,
        planted: planted.to_vec(),
    }
}

/// The findings of each run.
async fn found_in(all: &[Soak]) -> Vec<Vec<Finding>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("soaks.db");
    let (made, shapes) = (path.clone(), all.to_vec());
    tokio::task::spawn_blocking(move || soaks(&made, &shapes).unwrap())
        .await
        .unwrap();
    let mut found = Vec::new();
    let file = rusqlite::Connection::open(&path).unwrap();
    for run in 1..=all.len() {
        let of_run = findings_of(&path, i64::try_from(run).unwrap()).await;
        for sql in of_run.iter().filter_map(|one| one.sql.as_ref()) {
            let mut statement = file.prepare(sql).unwrap();
            assert!(statement.raw_query().next().unwrap().is_some(), "{sql}");
        }
        found.push(of_run);
    }
    found
}

fn stand_out(found: &[Finding]) -> Vec<&Finding> {
    found.iter().filter(|one| one.is_found()).collect()
}

#[tokio::test]
async fn fifty_clean_soaks_have_at_most_one_false_finding() {
    let all: Vec<Soak> = (0..50)
        .map(|seed| match seed % 3 {
            0 => soak(seed, 3600, 1, 5, &[]),
            1 => soak(seed, 3600, 12, 5, &[]),
            _ => soak(seed, 7200, 30, 10, &[]),
        })
        .collect();
    let found = found_in(&all).await;
    let wrong: Vec<&Finding> = found.iter().flat_map(|of_run| stand_out(of_run)).collect();
    assert!(wrong.len() <= 1, "{} false: {wrong:#?}", wrong.len());
}

#[tokio::test]
async fn a_short_load_that_falls_to_another_level_is_no_drift() {
    let mut all: Vec<Soak> = (0..10).map(|seed| soak(seed, 600, 1, 5, &[])).collect();
    let falls = [Planted::Step { at: 350, by: 0.3 }];
    all.extend((10..16).map(|seed| soak(seed, 600, 1, 5, &falls)));
    let found = found_in(&all).await;
    let (clean, fallen) = found.split_at(10);
    let wrong: Vec<&Finding> = clean.iter().flat_map(|of_run| stand_out(of_run)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for of_run in fallen {
        let rates = of_run
            .iter()
            .filter(|one| one.is_found() && one.figure.as_deref() == Some("ops_per_s"));
        let rates: Vec<(&str, f64)> = rates
            .map(|one| (one.kind.as_str(), one.size.unwrap()))
            .collect();
        assert!(
            matches!(rates[..], [("change", size)] if (-33.0..-27.0).contains(&size)),
            "{rates:?}"
        );
    }
}

/// The one finding of a kind about a subject.
fn one<'f>(found: &'f [Finding], kind: &str, subject: &str) -> &'f Finding {
    let all: Vec<&Finding> = of_kind(found, kind)
        .into_iter()
        .filter(|one| one.subject.contains(subject))
        .collect();
    assert_eq!(all.len(), 1, "{kind} {subject}: {:#?}", stand_out(found));
    all[0]
}

fn no_other(found: &[Finding], kinds: &[&str]) {
    let mut others = stand_out(found);
    others.retain(|one| !kinds.contains(&one.kind.as_str()));
    assert!(others.is_empty(), "{others:#?}");
}

#[tokio::test]
async fn leaks_and_decays_are_found_in_long_steps_and_over_loops() {
    let planted = [
        Planted::Leak {
            daemon: 2,
            per_hour: 0.01,
        },
        Planted::Decay { by: 0.05 },
    ];
    let all = [
        soak(1, 86_400, 1, 20, &planted),
        soak(2, 86_400, 48, 20, &planted),
    ];
    let found = found_in(&all).await;
    for found in &found {
        let leak = one(found, "leak", "/bricks/b2");
        assert_eq!(leak.daemon_id, Some(daemon_id(2)));
        let mib_per_h = leak.size.unwrap() / 1_048_576.0;
        assert!((12.0..17.0).contains(&mib_per_h), "{mib_per_h}");
        no_other(found, &["leak", "drift"]);
    }
    // Over the steps, the variation of a day counts as noise, so that such a decay is not significant.
    let drift = one(&found[0], "drift", "write of soak");
    assert_eq!(drift.figure.as_deref(), Some("ops_per_s"));
    // It includes the variation over the day.
    assert!((-7.0..-3.0).contains(&drift.size.unwrap()), "{drift:?}");
    assert!(drift.sentence.contains("over 23h"), "{}", drift.sentence);
}

#[tokio::test]
async fn a_daily_swing_is_no_drift_and_does_not_hide_one() {
    let swing = Planted::Swing { by: 0.1 };
    let decay = Planted::Decay { by: 0.05 };
    let days = |seed, planted: &[Planted]| soak(seed, 3 * 86_400, 72, 60, planted);
    let found = found_in(&[days(8, &[swing]), days(10, &[swing, decay])]).await;
    no_other(&found[0], &[]);
    let drift = one(&found[1], "drift", "write of soak");
    assert_eq!(drift.figure.as_deref(), Some("ops_per_s"));
    assert!((-6.0..-4.0).contains(&drift.size.unwrap()), "{drift:?}");
    assert!(
        drift.sentence.contains("; daily cycle of ±12 % removed)"),
        "{}",
        drift.sentence
    );
    no_other(&found[1], &["drift"]);
}

#[tokio::test]
async fn what_happens_at_a_time_is_found_at_that_time() {
    let all = [
        soak(
            3,
            3600,
            1,
            1,
            &[
                Planted::Stall {
                    at: 1000,
                    seconds: 3,
                },
                Planted::Frozen {
                    daemon: 3,
                    from: 2000,
                    seconds: 120,
                },
                Planted::Killed {
                    daemon: 5,
                    at: 2500,
                    back_after: 30,
                },
                Planted::NoSamples {
                    host: 1,
                    from: 3000,
                    seconds: 40,
                },
            ],
        ),
        soak(
            4,
            7200,
            1,
            5,
            &[Planted::Periodic {
                every: 300,
                seconds: 5,
                by: 0.4,
                daemon: 1,
            }],
        ),
        soak(
            5,
            7200,
            1,
            5,
            &[
                Planted::Step { at: 4000, by: 0.12 },
                Planted::Busy {
                    daemon: 0,
                    from: 5600,
                    times: 3.0,
                },
                Planted::ShortOfMemory {
                    host: 2,
                    from: 5000,
                    left: 0.03,
                },
                Planted::SlowDisk {
                    host: 0,
                    from: 2500,
                    times: 4.0,
                },
            ],
        ),
    ];
    let found = found_in(&all).await;
    let since = |run: usize, finding: &Finding| {
        (finding.from_us.unwrap() - start_us(&all, run)) / 1_000_000
    };
    let until = |run: usize, finding: &Finding| {
        (finding.until_us.unwrap() - start_us(&all, run)) / 1_000_000
    };

    let stall = one(&found[0], "outage", "soak");
    assert_eq!((since(1, stall), stall.size), (1000, Some(3.0)));
    let frozen = one(&found[0], "daemon", "/bricks/b3");
    assert!(
        since(1, frozen).abs_diff(2000) <= 2 && until(1, frozen).abs_diff(2120) <= 2,
        "{frozen:?}"
    );
    assert!(
        frozen.sentence.contains("stood still"),
        "{}",
        frozen.sentence
    );
    let killed = one(&found[0], "daemon", "/bricks/b5");
    assert_eq!((since(1, killed), killed.size), (2500, Some(30.0)));
    let unsampled = one(&found[0], "telemetry", "node2");
    assert!(
        since(1, unsampled).abs_diff(3000) <= 1 && unsampled.size.unwrap() >= 40.0,
        "{unsampled:?}"
    );
    no_other(&found[0], &["outage", "daemon", "telemetry"]);

    let periodic = one(&found[1], "periodic", "soak");
    assert!(
        periodic.sentence.contains("every 300 s"),
        "{}",
        periodic.sentence
    );
    assert!(
        periodic.sentence.contains("/bricks/b1"),
        "{}",
        periodic.sentence
    );
    no_other(&found[1], &["periodic"]);

    let changes = of_kind(&found[2], "change");
    let rate = changes
        .iter()
        .find(|one| one.figure.as_deref() == Some("ops_per_s"))
        .unwrap();
    assert!(since(3, rate).abs_diff(4000) <= 60, "{rate:?}");
    assert!((-14.0..-10.0).contains(&rate.size.unwrap()), "{rate:?}");
    let busy = one(&found[2], "outlier", "/bricks/b0");
    assert!(since(3, busy).abs_diff(5600) <= 150, "{busy:?}");
    assert!((2.5..3.5).contains(&busy.size.unwrap()), "{busy:?}");
    let slow = one(&found[2], "outlier", "disk sda on node1");
    assert!(since(3, slow).abs_diff(2500) <= 15, "{slow:?}");
    let memory = one(&found[2], "host", "node3");
    assert!(since(3, memory).abs_diff(5000) <= 15, "{memory:?}");
    // When the rate falls, the p99 rises.
    no_other(&found[2], &["change", "drift", "outlier", "host"]);
}

#[tokio::test]
async fn what_a_run_has_and_the_one_before_had_not_is_new() {
    let unsampled = Planted::NoSamples {
        host: 0,
        from: 300,
        seconds: 60,
    };
    let stall = Planted::Stall {
        at: 500,
        seconds: 4,
    };
    let all = [
        soak(6, 3600, 1, 5, &[unsampled]),
        soak(7, 3600, 1, 5, &[unsampled, stall]),
    ];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("soaks.db");
    let made = path.clone();
    tokio::task::spawn_blocking(move || soaks(&made, &all).unwrap())
        .await
        .unwrap();
    let store = Store::open(&path).await.unwrap();
    let request = Request::from(Subject::Runs {
        a: "1".to_owned(),
        b: "2".to_owned(),
    });
    let before = compare(store.reader(), &request).await.unwrap();
    assert!(
        before.comparisons[0].new_findings.is_empty(),
        "neither was judged"
    );
    for run in [1, 2] {
        let mut connection = store.reader().acquire().await.unwrap();
        let found = of_run(&mut connection, RunId(run)).await.unwrap();
        drop(connection);
        assert_eq!(of_kind(&found, "telemetry").len(), 1, "{found:#?}");
        store.store_findings(RunId(run), found).await.unwrap();
    }
    let answer = compare(store.reader(), &request).await.unwrap();
    let new = &answer.comparisons[0].new_findings;
    assert_eq!(new.len(), 1, "{new:#?}");
    assert_eq!(new[0].kind, "outage");
    store.close().await;
}
