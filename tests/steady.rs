//! `until = "steady"`: the collector ends a step when all of its clients together are in steady state.

use crate::support::mesh::Mesh;
use crate::support::plan::{self, READS};
use std::time::Duration;

/// Parses `mean 201 operations/s`.
fn mean(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("mean ")?;
    rest.split_once(" operations/s")?.0.parse().ok()
}

#[test]
fn a_step_ends_when_its_load_is_steady_and_one_that_never_is_ends_by_its_runtime() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["c1", "c2"], target.path());
    let reads = |keys: &str| format!("{READS}rate_iops = 100\nuntil = \"steady\"\n{keys}");
    let steady = "name = \"paced\"\nruntime = \"90s\"\nss = \"iops:10%\"\nss_dur = \"3s\"\nss_ramp = \"1s\"\n";
    // No three seconds have the same mean latency.
    let never = "name = \"never\"\nruntime = \"6s\"\nss = \"lat:0.001%\"\nss_dur = \"3s\"\n";
    let text = plan::on(
        target.path(),
        "",
        &format!("{}{}", reads(steady), reads(never)),
    );
    let mut run = mesh.begin(&text);
    let ended = run.exit_within(Duration::from_secs(80)).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", run.log());

    let db = mesh.db();
    let rows = db.rows(
        "SELECT s.phase, s.state, s.partial, (s.last_done_us - s.start_us) / 1e6 AS ran, e.kind, e.severity, e.message
         FROM steps AS s JOIN events AS e ON e.step_id = s.id AND e.kind IN ('steady', 'not-steady')
         ORDER BY s.ordinal",
    );
    assert_eq!(rows.len(), 2, "{}", run.log());
    for row in &rows {
        assert_eq!(
            (row.text("state").as_str(), row.integer("partial")),
            ("done", 0)
        );
        assert!(run.log().contains(&row.text("message")), "{}", run.log());
    }
    let [paced, never] = rows.as_slice() else {
        panic!("two steps")
    };
    assert_eq!(
        (paced.text("kind").as_str(), paced.text("severity").as_str()),
        ("steady", "info")
    );
    let message = paced.text("message");
    assert!(
        message.contains("is steady after ")
            && mean(&message).is_some_and(|it| (190..=210).contains(&it)),
        "{message}"
    );
    assert_eq!(never.text("kind"), "not-steady");
    let message = never.text("message");
    assert!(
        message.contains("is not steady in 6 s: mean ") && message.contains(" > 0.001"),
        "{message}"
    );

    let ended_well: i64 =
        db.one("SELECT count(*) FROM tasks WHERE state = 'done' AND error IS NULL");
    assert_eq!(ended_well, 4);
    // Otherwise it would have run for 90 s.
    let ran: f64 =
        db.one("SELECT max(last_done_us - start_us) / 1e6 FROM steps WHERE phase = 'paced'");
    assert!((3.0..60.0).contains(&ran), "{ran}");
    let flagged: Vec<String> = db.column("SELECT flags FROM steps WHERE phase = 'paced'");
    assert!(
        !flagged[0].contains("partial") && !flagged[0].contains("failed"),
        "{flagged:?}"
    );
    let flagged: Vec<i64> = db.column("SELECT flag_not_steady FROM v_results ORDER BY ordinal");
    assert_eq!(flagged, [0, 1]);
    let of_others: i64 =
        db.one("SELECT count(*) FROM events WHERE kind IN ('task-stopped', 'step-partial')");
    assert_eq!(of_others, 0);

    let report = mesh.command(&["report"]).out;
    for words in ["Steady state", "not steady", "largest deviation"] {
        assert!(report.contains(words), "{words}: {report}");
    }
}
