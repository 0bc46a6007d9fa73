//! What is pushed, when it is pushed again, and what comes back.

use super::lab::{Lab, push, rows_of};
use benchmesh_archive::postgres::fetch::{FetchRequest, Fetched, fetch_runs};
use benchmesh_archive::postgres::push::{Outcome, PushEvent};
use benchmesh_archive::postgres::runs::RunQuery;
use benchmesh_archive::postgres::{Archive, ArchiveError, Site};
use benchmesh_store::maintain;
use rusqlite::Connection;
use std::path::Path;
use tokio_util::sync::CancellationToken;

async fn fetch(lab: &Lab, runs: &[&str], db: &Path) -> Result<Fetched, ArchiveError> {
    let request = FetchRequest {
        runs: runs.iter().map(|one| (*one).to_owned()).collect(),
        db: db.to_owned(),
        server: lab.to("postgres"),
        patience: super::lab::patience(),
    };
    fetch_runs(&request, &CancellationToken::new(), &mut |_| ()).await
}

async fn report(db: &Path, run: &str) -> String {
    let report = benchmesh_answers::report::load_file(db, run).await.unwrap();
    format!("{report:#?}")
}

/// What no report can read, in run 2.
const UNREADABLE: i64 = 2;

/// Odd runs: texts that PostgreSQL cannot keep, facts of each type, an agent that has moved, a finding.
fn odd(lab: &Lab) {
    for sql in [
        "INSERT INTO run_notes (run_id, at_us, text) VALUES (2, 5, CAST(x'61006280c3' AS TEXT))",
        "INSERT INTO facts (run_id, agent_id, system, at_us, name, value) VALUES (2, 1, 'ceph', 7, 'blob', x'00ff')",
        "INSERT INTO run_notes (run_id, at_us, text) VALUES (1, 6, 'plain \u{10ff00} ''quoted'' \\n')",
        "INSERT INTO facts (run_id, agent_id, system, at_us, name, value) SELECT 1, 1, 'ceph', 7, column1, column2
         FROM (VALUES ('integer', 5), ('real', 5.0), ('huge', 1e300), ('text', '5'), ('nul', CAST(x'6100' AS TEXT)))",
        "INSERT INTO hosts VALUES (99, 'boot-99', 'ns', 'moved', '6.12', 4, 1)",
        "UPDATE agents SET host_id = 99 WHERE id = 2",
        "INSERT INTO findings (run_id, kind, verdict, severity, subject, sentence, sql, size)
         VALUES (1, 'leak', 'found', 'warning', 'osd.1', 'It grows.', 'SELECT 1', 2.5)",
        "INSERT INTO run_tags VALUES (1, 'pool', 'ssd')",
    ] {
        lab.change(sql);
    }
}

#[tokio::test]
async fn a_run_comes_back_as_it_was() {
    let Some(lab) = Lab::new() else { return };
    odd(&lab);
    let pushed = lab.push().await;
    assert_eq!((pushed.new, pushed.replaced, pushed.unchanged), (3, 0, 0));
    lab.assert_same_counts();
    for run in 1..=3 {
        let uid = lab.uid(run);
        let back = lab.directory.path().join(format!("run-{run}.db"));
        let fetched = fetch(&lab, &[&uid], &back).await.unwrap();
        assert_eq!((fetched.runs, fetched.were_there), (1, 0));
        let (before, after) = (rows_of(&lab.db, &uid), rows_of(&back, &uid));
        for (before, after) in before.iter().zip(&after) {
            assert!(
                before == after,
                "{} of run {run}: {} and {} rows",
                before.0,
                before.1.len(),
                after.1.len()
            );
        }
        assert_eq!(before.len(), after.len());
        assert_eq!(maintain::check(&back).unwrap(), Vec::<String>::new());
        if run != UNREADABLE {
            let (before, after) = (report(&lab.db, &uid).await, report(&back, &uid).await);
            assert!(before == after, "{before}\n{after}");
        }
        // Again: it is there.
        let fetched = fetch(&lab, &[&uid], &back).await.unwrap();
        assert_eq!((fetched.runs, fetched.were_there), (0, 1));
    }
}

#[tokio::test]
async fn several_runs_come_into_one_file_that_may_have_runs() {
    let Some(lab) = Lab::new() else { return };
    odd(&lab);
    // It has ids of its file, so that a merge leaves it out.
    lab.change("UPDATE findings SET sql = NULL");
    lab.push().await;
    let back = lab.directory.path().join("back.db");
    assert_eq!(fetch(&lab, &["3"], &back).await.unwrap().runs, 1);
    let fetched = fetch(&lab, &["lab:1", "2", "3"], &back).await.unwrap();
    assert_eq!((fetched.runs, fetched.were_there), (2, 1));
    assert_eq!(maintain::check(&back).unwrap(), Vec::<String>::new());
    for run in 1..=3 {
        let uid = lab.uid(run);
        let count = |db: &Path| {
            let rows = rows_of(db, &uid);
            rows.into_iter()
                .map(|(table, rows)| (table, rows.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(count(&lab.db), count(&back), "run {run}");
        if run != UNREADABLE {
            let (before, after) = (report(&lab.db, &uid).await, report(&back, &uid).await);
            // Ids are the file's own.
            // A finding whose SQL named other ids has lost it, and with it two lines.
            let lines = |text: &str| text.lines().count() - 2 * text.matches("sql: Some(").count();
            assert_eq!(lines(&before), lines(&after), "run {run}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(lab.directory.path())
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("fetching")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_run_is_stored_once_and_replaced_when_it_has_changed() {
    let Some(lab) = Lab::new() else { return };
    let outcomes = async || {
        let mut outcomes = Vec::new();
        super::lab::watched(&lab.request(), &CancellationToken::new(), |event| {
            if let PushEvent::Pushed { outcome, .. } = event {
                outcomes.push(*outcome);
            }
        })
        .await
        .unwrap();
        outcomes
    };
    use Outcome::{New, Replaced, ReplacedButSeconds, Unchanged};
    assert_eq!(outcomes().await, [New, New, New]);
    assert_eq!(outcomes().await, [Unchanged; 3]);
    lab.change("INSERT INTO run_tags VALUES (1, 'pool', 'ssd')");
    assert_eq!(outcomes().await, [Replaced, Unchanged, Unchanged]);
    assert_eq!(lab.archived("run_tags", "value = 'ssd'"), 1);
    // Late data: one more sample of a daemon, a minute after the second run, which has it too.
    lab.change(
        "INSERT INTO daemon_samples SELECT daemon_id, at_us + 500000, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes,
         threads, fds, read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults, major_faults, rss_peak_bytes, swap_bytes
         FROM daemon_samples WHERE at_us = (SELECT max(at_us) FROM daemon_samples) - 3000000 LIMIT 1",
    );
    assert_eq!(outcomes().await, [Unchanged, Replaced, Replaced]);
    lab.assert_same_counts();
    // The collector merges old rows of seconds; the archive keeps them.
    let of_first = format!("run_uid = '{}'", lab.uid(1));
    let before = lab.archived("op_intervals", &of_first);
    lab.change(
        "DELETE FROM op_intervals WHERE id % 2 = 0 AND task_id IN
         (SELECT t.id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 1)",
    );
    lab.change("UPDATE steps SET resolution_s = 10 WHERE run_id = 1");
    lab.change("INSERT INTO run_notes (run_id, at_us, text) VALUES (1, 9, 'seen later')");
    assert_eq!(outcomes().await, [ReplacedButSeconds, Unchanged, Unchanged]);
    assert_eq!(outcomes().await, [Unchanged; 3]);
    assert_eq!(lab.archived("op_intervals", &of_first), before);
    assert_eq!(lab.archived("run_notes", "text = 'seen later'"), 1);
    assert_eq!(
        lab.archived("steps", &format!("resolution_s <> 1 AND {of_first}")),
        0
    );
    // Merged samples do not hold back late intervals: of the second run, samples are merged and an interval comes.
    let of_second = format!("run_uid = '{}'", lab.uid(2));
    let samples = lab.archived("disk_samples", &of_second);
    let intervals = lab.archived("op_intervals", &of_second);
    lab.change(
        "DELETE FROM disk_samples WHERE at_us = (SELECT started_us / 1000000 * 1000000 + 5000000 FROM runs WHERE id = 2)",
    );
    lab.change(
        "INSERT INTO op_intervals (task_id, at_us, span_us, op, ramp, ops, bytes, errors, in_flight, service_count,
             service_sum_ns, service_sum_squares_ns2, service_saturated)
         SELECT min(t.id), 7, 1000000, 'write', 0, 1, 1, 0, 0, 1, 1.0, 1.0, 0
         FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 2",
    );
    assert_eq!(outcomes().await.get(1), Some(&ReplacedButSeconds));
    assert_eq!(outcomes().await, [Unchanged; 3]);
    assert_eq!(lab.archived("disk_samples", &of_second), samples);
    assert_eq!(lab.archived("op_intervals", &of_second), intervals + 1);
    let back = lab.directory.path().join("fine.db");
    fetch(&lab, &["1"], &back).await.unwrap();
    let fine: i64 = Connection::open(&back)
        .unwrap()
        .query_row("SELECT count(*) FROM op_intervals", [], |row| row.get(0))
        .unwrap();
    assert_eq!(fine, before);
}

#[tokio::test]
async fn two_sites_have_runs_of_the_same_ids() {
    let Some(lab) = Lab::new() else { return };
    lab.push().await;
    let mut other = lab.request();
    other.db = lab.second();
    // The other collector's default is the same host name.
    let error = push(&other).await.unwrap_err();
    assert!(
        error.is_request() && error.to_string().contains("is another collector's"),
        "{error}"
    );
    other.site = Site::Named(String::from("basement"));
    assert_eq!(push(&other).await.unwrap().new, 3);
    // From now on its default is the name that it has.
    other.site = Site::Default(String::from("lab"));
    let again = push(&other).await.unwrap();
    assert_eq!((again.site.as_str(), again.unchanged), ("basement", 3));

    let back = lab.directory.path().join("back.db");
    let error = fetch(&lab, &["1"], &back).await.unwrap_err();
    assert!(
        error.is_request() && error.to_string().contains("basement, lab"),
        "{error}"
    );
    assert_eq!(
        fetch(&lab, &["basement:1", "lab:1"], &back)
            .await
            .unwrap()
            .uids
            .len(),
        2
    );

    let mut archive = Archive::connect(&lab.to("postgres"), &super::lab::patience())
        .await
        .unwrap();
    let mut listed = async |query: RunQuery| {
        let query = RunQuery {
            limit: 100,
            ..query
        };
        let runs = archive.runs(&query).await.unwrap();
        runs.iter()
            .map(|run| format!("{}:{}", run.site, run.run_id))
            .collect::<Vec<_>>()
    };
    let all = listed(RunQuery::default()).await;
    assert_eq!(all.len(), 6, "{all:?}");
    assert_eq!(
        listed(RunQuery {
            site: "lab".into(),
            name: "soak".into(),
            ..RunQuery::default()
        })
        .await,
        ["lab:3"]
    );
    assert_eq!(
        listed(RunQuery {
            text: "NIGHT".into(),
            ..RunQuery::default()
        })
        .await
        .len(),
        4
    );
    assert_eq!(
        listed(RunQuery {
            text: "100%".into(),
            ..RunQuery::default()
        })
        .await
        .len(),
        0
    );
    assert_eq!(
        listed(RunQuery {
            target: "cephfs".into(),
            ..RunQuery::default()
        })
        .await
        .len(),
        6
    );
    let since = benchmesh_synthetic::T0_US + 1;
    let late = listed(RunQuery {
        since_us: Some(since),
        ..RunQuery::default()
    })
    .await
    .len();
    let early = listed(RunQuery {
        until_us: Some(since),
        ..RunQuery::default()
    })
    .await
    .len();
    assert_eq!(late + early, 6);
    assert!(late > 0 && early > 0, "{late} {early}");
    assert_eq!(
        listed(RunQuery {
            tags: vec![("pool".into(), None)],
            ..RunQuery::default()
        })
        .await
        .len(),
        0
    );
    assert_eq!(
        listed(RunQuery {
            version: "99.".into(),
            ..RunQuery::default()
        })
        .await
        .len(),
        0
    );
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let of_version = listed(RunQuery {
        version,
        ..RunQuery::default()
    })
    .await;
    assert!(of_version.len() <= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pushes_of_the_same_runs_at_once_store_them_once() {
    let Some(lab) = Lab::new() else { return };
    let request = lab.request();
    // The schema is there already, as it is in all pushes but the first.
    let first = Archive::connect(&lab.to("postgres"), &super::lab::patience())
        .await
        .unwrap()
        .prepare()
        .await;
    assert_eq!(first.unwrap(), Vec::<String>::new());
    let (one, two) = tokio::join!(push(&request), push(&request));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.new + two.new, one.unchanged + two.unchanged), (3, 3));
    lab.assert_same_counts();
}
