//! `compare`, `tag`, `note`, `mark` and their effect on `report`, as a user types them, on a generated database.

use crate::support::command::{CommandOutput, benchmesh};
use benchmesh_synthetic::{Shape, generate};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

/// Two runs of plan `nightly`, each on two targets, and one of `soak`, on one.
struct History {
    directory: TempDir,
}

impl History {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let shape = Shape {
            step_seconds: 20,
            ..Shape::small()
        };
        generate(&directory.path().join("mesh.db"), &shape).unwrap();
        Self { directory }
    }

    fn db(&self) -> PathBuf {
        self.directory.path().join("mesh.db")
    }

    fn file(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.db()).unwrap()
    }

    fn says(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = benchmesh();
        command.args(arguments).arg("--db").arg(self.db());
        CommandOutput::of(&command.output().unwrap())
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.says(arguments);
        assert!(output.code == 0, "{arguments:?}: {}", output.all());
        output.out
    }

    /// Each value of a card is the geometric mean of the rates that the database has for its steps.
    fn assert_card_is_stored(&self, card: &Value) {
        let file = self.file();
        let mut query = file
            .prepare("SELECT ops_per_s FROM v_results WHERE step_id = ?")
            .unwrap();
        let mut checked = 0;
        for load in card["loads"].as_array().unwrap() {
            for side in load["sides"].as_array().unwrap() {
                let steps = side["steps"].as_array().unwrap();
                let logs: Vec<f64> = steps
                    .iter()
                    .flat_map(|step| {
                        let rows = query.query_map([step.as_i64().unwrap()], |row| row.get(0));
                        rows.unwrap()
                            .map(|rate| f64::ln(rate.unwrap()))
                            .collect::<Vec<_>>()
                    })
                    .collect();
                if load["figure"] != "ops" || logs.len() != steps.len() {
                    continue;
                }
                let stored = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
                let shown = side["value"].as_f64().unwrap();
                assert!(
                    (shown / stored - 1.0).abs() < 1e-9,
                    "{shown} {stored}: {load}"
                );
                checked += 1;
            }
        }
        assert!(checked > 4, "{card}");
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[arguments, &["--format", "json"]].concat())).unwrap()
    }
}

/// Takes about 5 s, mostly to generate the database.
#[test]
fn runs_and_targets_are_compared_in_every_format() {
    let history = History::new();
    let answer = history.json(&["compare", "1", "2"]);
    let rows = answer["comparisons"][0]["rows"].as_array().unwrap().len();
    assert!(rows >= 18 * 4, "{rows}");
    let table = history.done(&["compare", "--by", "target", "2"]);
    // Each line of the card is that of the JSON, broken at spaces.
    let shown: String = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let targets = history.json(&["compare", "--by", "target", "2"]);
    let loads = targets["card"]["loads"].as_array().unwrap();
    assert!(loads.len() > 4, "{targets}");
    for load in loads {
        let line = format!(
            "{} {}",
            load["load"].as_str().unwrap(),
            load["text"].as_str().unwrap()
        );
        assert!(shown.contains(&line), "{line}: {table}");
    }
    history.assert_card_is_stored(&targets["card"]);
    let html = history.done(&["compare", "--by", "target", "2", "--format", "html"]);
    for load in loads {
        // As JSON, in which the page finds it.
        assert!(
            html.contains(&load["text"].to_string().replace('<', "\\u003c")),
            "{load}"
        );
    }
    let markdown = history.done(&["compare", "1", "2", "--format", "markdown"]);
    assert!(
        markdown.starts_with("\nrun 2 against run 1\n\n- "),
        "{markdown}"
    );
    let csv = history.done(&["compare", "1", "2", "--format", "csv"]);
    assert_eq!(csv.lines().count(), rows + 1);
    let figures = ["--figure", "p95,client-cpu,p99"];
    let csv = history.done(&[&["compare", "1", "2", "--format", "csv"][..], &figures].concat());
    assert_eq!(
        csv.lines().count(),
        rows + 2 * 18 + 1,
        "p99 is always listed"
    );
    let html = history.done(&["compare", "1", "2", "--format", "html"]);
    assert!(html.starts_with("<!doctype html>") && html.contains("default-src 'none'"));
    assert!(html.len() < 2 << 20, "{}", html.len());
    // The second target is consistently some 7 % slower.
    let failing = ["compare", "--by", "target", "2", "--fail-if"];
    for (condition, code) in [
        ("p99 > +3%", 10),
        ("client-cpu > +3%", 10),
        ("p99 > +50%", 0),
        ("ops > +50%", 0),
    ] {
        let output = history.says(&[&failing[..], &[condition]].concat());
        assert_eq!(output.code, code, "{condition}: {}", output.all());
    }
    let out = history.directory.path().join("out.html");
    let arguments = [
        "compare", "nightly", "--last", "3", "--format", "html", "--out",
    ];
    history.done(&[&arguments[..], &[out.to_str().unwrap()]].concat());
    assert!(out.is_file());
    let trend = history.done(&["compare", "nightly", "--trend", "--format", "html"]);
    assert!(trend.contains("BenchmeshCompare"));
}

#[test]
fn what_cannot_be_compared_says_why_and_json_stays_one_document() {
    let history = History::new();
    let check = |arguments: &[&str], code: i32, words: &str| {
        let output = history.says(arguments);
        assert_eq!(output.code, code, "{arguments:?}: {}", output.all());
        assert!(
            output.all().contains(words),
            "{arguments:?}: {}",
            output.all()
        );
        let output = history.says(&[arguments, &["--format", "json"]].concat());
        let document: Value = serde_json::from_str(&output.out).unwrap();
        assert!(document.is_object(), "{arguments:?}: {}", output.all());
    };
    check(&["compare", "1", "77"], 2, "there is no run \"77\"");
    check(&["compare", "1"], 2, "before run 1 has ended");
    check(&["compare", "nigthly"], 2, "did you mean nightly?");
    check(&["compare", "1", "run-1"], 2, "both sides are run 1");
    check(&["compare", "--by", "target", "soak"], 2, "one target");
    check(&["compare", "soak", "--last", "2"], 2, "needs 2");
    check(&["compare", "--baseline", "good"], 2, "compare --save good");
    check(&["tag", "77", "a=b"], 2, "77");
    check(&["note", "1", " "], 2, "empty");
    check(
        &[
            "mark",
            "too early",
            "--run",
            "1",
            "--at",
            "2001-01-01T00:00:00Z",
        ],
        2,
        "not within the run",
    );
    let file = history.file();
    // Keys that differ between the sides are reported, and not compared.
    file.execute_batch(
        "UPDATE steps SET params = json_set(params, '$.iodepth', 32) WHERE run_id = 2 AND mode = 'write'",
    )
    .unwrap();
    let answer = history.json(&["compare", "1", "2"]);
    let one = &answer["comparisons"][0];
    let rows = one["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["mode"] != "write") && !rows.is_empty());
    let why = one["incomparable"][0]["why"].as_str().unwrap();
    assert!(why.contains("iodepth is not set in A and 32 in B"), "{why}");
    file.execute_batch("UPDATE runs SET state = 'running' WHERE id = 2")
        .unwrap();
    check(&["compare", "1", "2"], 2, "compare it when it has ended");
    // All of its agents were lost before anything was stored.
    file.execute_batch(
        "PRAGMA foreign_keys = OFF; UPDATE runs SET state = 'failed' WHERE id = 2;
         DELETE FROM step_results WHERE step_id IN (SELECT id FROM steps WHERE run_id = 2)",
    )
    .unwrap();
    let output = history.says(&["compare", "1", "2", "--format", "json"]);
    assert_eq!(output.code, 3, "nothing in common: {}", output.all());
    let answer: Value = serde_json::from_str(&output.out).unwrap();
    let one = &answer["comparisons"][0];
    assert_eq!(one["incomparable"][0]["why"], "it has no results");
    assert!(one["notes"].to_string().contains("Run 2 failed"), "{one}");
    let html = history.says(&["compare", "1", "2", "--format", "html"]);
    assert_eq!(html.code, 3, "{}", html.err);
    history.done(&["report", "2"]);
}

#[test]
fn one_repeat_of_a_few_seconds_has_no_verdict() {
    let history = History::new();
    history
        .file()
        .execute_batch(
            "PRAGMA foreign_keys = OFF; DELETE FROM step_results WHERE step_id IN (SELECT id FROM steps WHERE repeat > 1);
             DELETE FROM step_intervals WHERE at_us >= (SELECT start_us + 2000000 FROM steps WHERE id = step_id);
             UPDATE steps SET all_active_until_us = start_us + 2000000",
        )
        .unwrap();
    let answer = history.json(&["compare", "1", "2"]);
    let rows = answer["comparisons"][0]["rows"].as_array().unwrap();
    let rates = rows.iter().filter(|row| row["figure"] == "ops");
    for row in rates {
        assert_eq!(row["verdict"], "not-comparable");
        assert!(
            row["why"]
                .as_str()
                .unwrap()
                .contains("too short to know its noise"),
            "{row}"
        );
    }
    let output = history.says(&["compare", "1", "2", "--fail-if", "ops < -5%"]);
    assert_eq!(output.code, 3, "{}", output.all());
}

#[test]
fn tags_notes_and_marks_are_found_again_and_shown() {
    let history = History::new();
    history.done(&["tag", "1", "pool=ssd", "ticket=4711"]);
    history.done(&["tag", "1", "--remove", "ticket"]);
    history.done(&["note", "nightly", "after the firmware update"]);
    let start: i64 = history
        .file()
        .query_row(
            "SELECT start_us FROM steps WHERE run_id = 2 AND ordinal = 1",
            [],
            |row| row.get(0),
        )
        .unwrap();
    // The tenth second of the step, as RFC 3339.
    let at: String = history
        .file()
        .query_row(
            "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', ?, 'unixepoch')",
            [start / 1_000_000 + 10],
            |row| row.get(0),
        )
        .unwrap();
    let marked = history.json(&["mark", "<b>osd.7</b> out", "--run", "2", "--at", &at]);
    assert_eq!(marked["run_id"], 2);
    let report = history.json(&["report", "2"]);
    let mark = &report["marks"][0];
    assert_eq!(
        (&mark["source"], &mark["ordinal"]),
        (&"mark".into(), &1.into())
    );
    for span in ["before", "during", "after"] {
        let figures = &mark["ops"][0][span];
        let shown = figures["ops_per_s"].as_f64().is_some();
        assert_eq!(
            shown,
            span != "after",
            "the step ends with `during`: {figures}"
        );
    }
    let table = history.done(&["report", "2", "marks"]);
    assert!(table.contains("<b>osd.7</b> out"), "{table}");
    let markdown = history.done(&["report", "2", "all", "--format", "markdown"]);
    assert!(
        markdown.contains("&lt;b&gt;osd.7&lt;/b&gt; out"),
        "{markdown}"
    );
    let html = history.done(&["report", "2", "--format", "html"]);
    assert!(!html.contains("<b>osd.7"), "a mark became markup");
    history.done(&["compare", "--save", "good", "1"]);
    let held = history.done(&["compare", "--baseline", "good", "2"]);
    assert!(
        held.starts_with("run 2 against baseline good (run 1)"),
        "{held}"
    );
}
