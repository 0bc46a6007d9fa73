//! Alarms of a plan: raised while the run goes on, marked on its time line, and one that stops it.

use crate::support::mesh::Mesh;
use crate::support::plan::{self, READS};
use std::time::Duration;

/// Far above the rate that the load keeps.
const ALARMS: &str = "
[[alarm]]
when = \"rate < 5000 for 2s\"
then = \"mark\"

[[alarm]]
when = \"no progress for 30s\"
then = \"stop\"

[[alarm]]
when = \"rate < 4000 for 5s\"
then = \"stop\"
";

#[test]
fn an_alarm_is_an_event_and_a_mark_and_stops_the_run() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["c1", "c2"], target.path());
    let text = plan::on(
        target.path(),
        "",
        &format!("{READS}runtime = \"60s\"\nrate_iops = 200\n{ALARMS}"),
    );
    let mut run = mesh.begin(&text);
    let ended = run.exit_within(Duration::from_secs(50)).unwrap();
    assert_eq!(ended.code(), Some(3), "stopped: {}", run.log());

    let db = mesh.db();
    let raised: Vec<String> = db.column(
        "SELECT message FROM events WHERE kind = 'alarm' AND step_id IS NOT NULL ORDER BY id",
    );
    assert_eq!(raised.len(), 2, "{raised:#?}");
    assert!(raised[0].starts_with("alarm `rate < 5000 for 2s`: rate is "));
    assert!(raised[1].starts_with("alarm `rate < 4000 for 5s`: rate is "));
    let marks: Vec<String> = db.column("SELECT text FROM marks");
    assert_eq!(marks, raised[..1]);
    let reason: String = db.one("SELECT stop_reason FROM runs");
    assert_eq!(reason, raised[1]);
    assert!(run.log().contains(&raised[0]), "{}", run.log());
    // It was stopped within some seconds of what raised it: the load ran for 60 s otherwise.
    let ran: f64 = db.one("SELECT (ended_us - start_us) / 1e6 FROM steps");
    assert!((5.0..30.0).contains(&ran), "{ran}");
}
