//! JUnit XML, the format in which CI systems read test results: a suite per run or comparison, a case per condition.
//!
//! Pure: conditions in, text out. There is no standard; the elements and attributes here are those that Jenkins, GitLab
//! and GitHub's reporters read.

use benchmesh_answers::report::{Report, figures};
use benchmesh_results::objective::{ObjectiveSeconds, Standing};
use serde_json::Value;
use std::fmt::Write as _;

/// The results of one run or comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct TestSuite {
    pub name: String,
    /// Duration in seconds; `None` if it is not known.
    pub time_s: Option<f64>,
    /// Beginning, in mesh time.
    pub started_us: Option<i64>,
    pub cases: Vec<TestCase>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq)]
pub struct TestCase {
    /// The kind of condition: `objective`, `fail-if` or `run`.
    pub kind: &'static str,
    /// The condition as it was written.
    pub name: String,
    pub verdict: TestVerdict,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TestVerdict {
    /// What was measured.
    Passed(String),
    /// A sentence with the figure; details follow in further lines.
    Failed(String),
    /// Why there is nothing to judge.
    Skipped(String),
}

/// The suite of a run: whether it completed, and each of its objectives.
pub fn of_run(report: &Report) -> TestSuite {
    let run = &report.run;
    let reason = run.reason.as_deref().map(|reason| format!(": {reason}"));
    let reason = reason.unwrap_or_default();
    let verdict = match (run.state.as_str(), run.partial) {
        ("done", false) => TestVerdict::Passed(format!("run {} is done", run.id)),
        ("done", true) => TestVerdict::Failed(format!(
            "run {} is partial: some results are missing{reason}",
            run.id
        )),
        ("queued" | "running", _) => TestVerdict::Skipped(format!("run {} has not ended", run.id)),
        (state, _) => TestVerdict::Failed(format!("run {} is {state}{reason}", run.id)),
    };
    let mut cases = vec![TestCase {
        kind: "run",
        name: format!("{} completes", run.name),
        verdict,
    }];
    cases.extend(objectives(report));
    let lasted = run.started_us.zip(run.ended_us);
    TestSuite {
        name: run.name.clone(),
        time_s: lasted
            .and_then(|(from, until)| figures::between(from, until))
            .map(|time| time.as_secs_f64()),
        started_us: run.started_us,
        cases,
    }
}

/// A case for each objective of the run.
pub fn objectives(report: &Report) -> Vec<TestCase> {
    let rows = report.queried.get("objectives").and_then(Value::as_array);
    rows.into_iter().flatten().map(objective).collect()
}

fn objective(row: &Value) -> TestCase {
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    let count = |key: &str| row.get(key).and_then(Value::as_i64).unwrap_or(0);
    let budget = row.get("budget_s").and_then(Value::as_f64).unwrap_or(0.0);
    let seconds = ObjectiveSeconds::of_ended(count("seconds"), count("bad_seconds"), budget);
    let found = seconds.words();
    TestCase {
        kind: "objective",
        name: text("holds").to_owned(),
        verdict: match seconds.standing() {
            Standing::NotJudged => TestVerdict::Skipped(found),
            Standing::Broken => TestVerdict::Failed(found),
            Standing::AtRisk | Standing::Kept => TestVerdict::Passed(found),
        },
    }
}

impl TestSuite {
    /// The document.
    pub fn xml(&self) -> String {
        let count = |wanted: fn(&TestVerdict) -> bool| {
            let verdicts = self.cases.iter().map(|case| &case.verdict);
            verdicts.filter(|verdict| wanted(verdict)).count()
        };
        let failures = count(|verdict| matches!(verdict, TestVerdict::Failed(_)));
        let skipped = count(|verdict| matches!(verdict, TestVerdict::Skipped(_)));
        let mut suite = format!(
            "name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\"",
            escaped(&self.name),
            self.cases.len()
        );
        let time = self.time_s.map(|time| format!(" time=\"{time:.3}\""));
        suite.push_str(time.as_deref().unwrap_or_default());
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {suite}>\n  <testsuite {suite}"
        );
        if let Some(started) = self.started_us {
            // The schema has no zone: UTC by custom.
            let instant = figures::instant(started);
            let _ = write!(out, " timestamp=\"{}\"", instant.trim_end_matches('Z'));
        }
        out.push_str(">\n");
        for case in &self.cases {
            let _ = write!(
                out,
                "    <testcase classname=\"benchmesh.{}\" name=\"{}\"",
                case.kind,
                escaped(&case.name)
            );
            match &case.verdict {
                TestVerdict::Passed(found) => {
                    let _ = write!(
                        out,
                        ">\n      <system-out>{}</system-out>\n    </testcase>\n",
                        escaped(found)
                    );
                }
                TestVerdict::Failed(why) => {
                    let first = why.lines().next().unwrap_or_default();
                    let _ = write!(
                        out,
                        ">\n      <failure message=\"{}\" type=\"{}\">{}</failure>\n    </testcase>\n",
                        escaped(first),
                        case.kind,
                        escaped(why)
                    );
                }
                TestVerdict::Skipped(why) => {
                    let _ = write!(
                        out,
                        ">\n      <skipped message=\"{}\"/>\n    </testcase>\n",
                        escaped(why)
                    );
                }
            }
        }
        out.push_str("  </testsuite>\n</testsuites>\n");
        out
    }
}

/// Text for an element or an attribute. XML 1.0 has no way to write other control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_verdict_has_its_element_and_text_is_escaped() {
        let case = |name: &str, verdict| TestCase {
            kind: "objective",
            name: name.to_owned(),
            verdict,
        };
        let suite = TestSuite {
            name: "night & day".to_owned(),
            time_s: Some(61.5),
            started_us: Some(0),
            cases: vec![
                case("p99 < 10ms", TestVerdict::Passed("0 of 60".to_owned())),
                case(
                    "rate > 5 \"x\"",
                    TestVerdict::Failed("one\ntwo \u{1b}[2J".to_owned()),
                ),
                case("max < 1s", TestVerdict::Skipped("nothing".to_owned())),
            ],
        };
        insta::assert_snapshot!(suite.xml());
    }

    #[test]
    fn an_objective_is_judged_by_its_row() {
        for (row, expected) in [
            (
                json!({"holds": "a", "verdict": "broken", "seconds": 60, "bad_seconds": 7, "budget_s": 0.6}),
                TestVerdict::Failed("7 of 60 seconds were bad, 0.600 may be".to_owned()),
            ),
            (
                json!({"holds": "a", "verdict": "kept", "seconds": 60, "bad_seconds": 0, "budget_s": 0.6}),
                TestVerdict::Passed("0 of 60 seconds were bad, 0.600 may be".to_owned()),
            ),
            (
                json!({"holds": "a", "verdict": "kept", "seconds": 0, "bad_seconds": 0, "budget_s": 0.0}),
                TestVerdict::Skipped("no second was judged".to_owned()),
            ),
        ] {
            assert_eq!(objective(&row).verdict, expected);
        }
    }
}
