//! `benchmesh compare`: the sentences first, then the table; exit code 10 if a condition of --fail-if holds.

use super::annotate;
use super::source::{Asked, refused_in};
use crate::args::ReportFormat;
use crate::args::compare::CompareArguments;
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::junit::{TestCase, TestSuite, TestVerdict};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_answers::compare::conditions::{self, Condition};
use benchmesh_answers::compare::{self, CompareAnswer, CompareError, Request, Subject};
use benchmesh_answers::pictures;
use benchmesh_answers::query::QueryError;
use benchmesh_answers::report::{self, Table};
use benchmesh_store::annotate::Annotation;
use std::path::Path;

pub async fn compare(mut arguments: CompareArguments) -> anyhow::Result<Outcome> {
    // Removed when the comparison is written.
    let _fetched = from_archive(&mut arguments).await?;
    if let Some(name) = arguments.save {
        let [run] = arguments.runs.as_slice() else {
            return Err(wrong_usage("name the run to save: compare --save NAME RUN"));
        };
        let baseline = Annotation::Baseline(name.clone());
        let saved = annotate::annotate(arguments.source, run, baseline).await?;
        match arguments.format {
            ReportFormat::Json => output::document(&saved)?,
            _ => output::print_notice(&format!(
                "run {} ({}) is the baseline {name}",
                saved.run_id, saved.run
            )),
        }
        return Ok(Outcome::Done);
    }
    let request = request(&arguments)?;
    let html = arguments.format == ReportFormat::Html;
    let (answer, text) = match arguments.source.asked()? {
        Asked::Database(path) => {
            let answer = from_file(&path, &request).await?;
            let text = match html {
                true => file_of(&path, &answer).await?,
                false => written(&answer, arguments.format)?,
            };
            (answer, text)
        }
        Asked::Collector(address) => {
            let mut client = Client::connect(&address)
                .await
                .map_err(CallError::into_error)?;
            let answer = client.compare(&request).await?;
            let text = match html {
                true => client.compare_file(&request).await?,
                false => written(&answer, arguments.format)?,
            };
            (answer, text)
        }
    };
    output::result_to(arguments.out.as_deref(), &text)?;
    let (outcome, cases) = held_against(&arguments.fail_if, &answer);
    if let Some(path) = &arguments.junit {
        let name = arguments.runs.join(" ");
        let suite = TestSuite {
            name: format!("compare {name}").trim_end().to_owned(),
            time_s: None,
            started_us: None,
            cases,
        };
        output::result_to(Some(path), &suite.xml())?;
    }
    if outcome == Outcome::Done
        && answer.trend.is_none()
        && answer.comparisons.iter().all(|one| one.rows.is_empty())
    {
        output::print_notice("the sides have no load in common: nothing was compared");
        return Ok(Outcome::Partial);
    }
    Ok(outcome)
}

/// Fetches the runs of an archive into a temporary file, and names them by their uids there.
async fn from_archive(
    arguments: &mut CompareArguments,
) -> anyhow::Result<Option<tempfile::TempDir>> {
    let names_another = arguments.source.db.is_some()
        || arguments.source.collector.is_some()
        || arguments.trend
        || arguments.last.is_some()
        || arguments.baseline.is_some()
        || arguments.save.is_some();
    let has_archive = arguments.archive.is_some()
        || !names_another
            && std::env::var_os("BENCHMESH_ARCHIVE_URL").is_some_and(|url| !url.is_empty())
            && arguments.runs.iter().any(|run| run.contains(':'));
    if !has_archive {
        return Ok(None);
    }
    if arguments.runs.len() < 2 && arguments.by.is_none() {
        return Err(wrong_usage(
            "name the two runs of the archive: compare SITE:RUN SITE:RUN, or one with --by KEY",
        ));
    }
    let url = arguments.archive.take();
    let (directory, db, uids) =
        super::archive::fetched_for_comparison(&arguments.runs, url).await?;
    arguments.runs = uids;
    arguments.source.db = Some(db);
    arguments.source.collector = None;
    Ok(Some(directory))
}

/// The subject, and the figures that are listed or that a condition needs.
fn request(arguments: &CompareArguments) -> anyhow::Result<Request> {
    let mut figures = arguments.figure.clone();
    figures.extend(arguments.fail_if.iter().filter_map(Condition::figure));
    Ok(Request {
        subject: subject(arguments)?,
        figures,
    })
}

fn subject(arguments: &CompareArguments) -> anyhow::Result<Subject> {
    let runs: Vec<&str> = arguments.runs.iter().map(String::as_str).collect();
    let wrong = |usage: &str| Err(wrong_usage(format!("usage: benchmesh compare {usage}")));
    if arguments.trend {
        return match runs.as_slice() {
            [plan] => Ok(Subject::Trend {
                plan: (*plan).to_owned(),
            }),
            _ => wrong("PLAN --trend"),
        };
    }
    if let Some(last) = arguments.last {
        return match runs.as_slice() {
            [plan] => Ok(Subject::Last {
                plan: (*plan).to_owned(),
                runs: last,
            }),
            _ => wrong("PLAN --last N"),
        };
    }
    if let Some(name) = &arguments.baseline {
        return match runs.as_slice() {
            [] | [_] => Ok(Subject::Baseline {
                name: name.clone(),
                run: runs.first().copied().unwrap_or("last").to_owned(),
            }),
            _ => wrong("--baseline NAME [RUN]"),
        };
    }
    match (arguments.by.as_deref(), runs.as_slice()) {
        (Some(key), [] | [_]) => Ok(Subject::by(
            key.to_owned(),
            runs.first().map(|run| (*run).to_owned()),
            arguments.only.clone(),
        )),
        (Some(key), _) => wrong(&format!("--by {key} [RUN]")),
        (None, [] | [_]) => Ok(Subject::Last {
            plan: runs.first().copied().unwrap_or("last").to_owned(),
            runs: 1,
        }),
        (None, [a, b]) => Ok(Subject::Runs {
            a: (*a).to_owned(),
            b: (*b).to_owned(),
        }),
        (None, _) => wrong("[RUN [RUN]]; or --by KEY [RUN], --last, --baseline, --trend"),
    }
}

async fn from_file(path: &Path, request: &Request) -> anyhow::Result<CompareAnswer> {
    match compare::compare_file(path, request).await {
        Ok(answer) => Ok(answer),
        Err(CompareError::Open(
            error @ (QueryError::NoFile { .. } | QueryError::IsDirectory { .. }),
        )) => Err(wrong_usage(error.to_string())),
        Err(error) if error.is_request() => Err(refused_in(path, error)),
        Err(error) => Err(error).with_context(|| format!("compare runs of {}", path.display())),
    }
}

/// The comparison as an HTML file, from a database file.
async fn file_of(path: &Path, answer: &CompareAnswer) -> anyhow::Result<String> {
    let overlays = pictures::overlays(path, answer.clone())
        .await
        .with_context(|| format!("read the series of {}", path.display()))?;
    Ok(pictures::comparison_html(answer, &overlays))
}

fn written(answer: &CompareAnswer, format: ReportFormat) -> anyhow::Result<String> {
    Ok(match format {
        ReportFormat::Table => table(answer, terminal::width_of_terminal()),
        ReportFormat::Markdown => report::comparison_markdown(answer),
        ReportFormat::Csv => report::comparison_csv(answer),
        ReportFormat::Html => anyhow::bail!("HTML needs the series beside the answer"),
        ReportFormat::Json => {
            let mut text = serde_json::to_string_pretty(&report::ComparisonDocument::of(answer))
                .context("write the comparison as JSON")?;
            text.push('\n');
            text
        }
    })
}

/// On a terminal a load is named once, in its first row, and long texts wrap; without one each row is a whole line.
fn table(answer: &CompareAnswer, width: Option<usize>) -> String {
    let mut out = String::new();
    let card = report::card::of_comparison(answer);
    out.push_str(&terminal::card(
        &card,
        width.unwrap_or(terminal::USUAL_WIDTH),
    ));
    for table in report::comparison_tables(answer) {
        out.push('\n');
        out.push_str(&match width {
            Some(width) => terminal::fitting(&named_once(table), width, "markdown"),
            None => terminal::unbroken(&table),
        });
    }
    out
}

/// The table without the name of a load in rows below its first.
fn named_once(mut table: Table) -> Table {
    let mut last = String::new();
    for row in &mut table.rows {
        let Some(load) = row.first_mut() else {
            continue;
        };
        match *load == last {
            true => load.clear(),
            false => last.clone_from(load),
        }
    }
    table
}

/// A condition that holds is a regression; one without comparable values makes the result partial.
fn held_against(conditions: &[Condition], answer: &CompareAnswer) -> (Outcome, Vec<TestCase>) {
    let mut outcome = Outcome::Done;
    let mut cases = Vec::new();
    for condition in conditions {
        let checked = conditions::check(condition, answer);
        for place in &checked.holds {
            output::print_notice(&terminal::clean(&format!("--fail-if {condition}: {place}")));
        }
        if !checked.holds.is_empty() {
            outcome = Outcome::Regression;
        } else if checked.is_untested {
            output::print_notice(&format!(
                "--fail-if {condition}: not tested, no comparable figures"
            ));
            if outcome == Outcome::Done {
                outcome = Outcome::Partial;
            }
        }
        cases.push(TestCase {
            kind: "fail-if",
            name: condition.to_string(),
            verdict: if !checked.holds.is_empty() {
                TestVerdict::Failed(checked.holds.join("\n"))
            } else if checked.is_untested {
                TestVerdict::Skipped("not tested, no comparable figures".to_owned())
            } else {
                TestVerdict::Passed("the condition does not hold".to_owned())
            },
        });
    }
    (outcome, cases)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::history::{History, WIDTH, wait};

    #[test]
    fn two_runs_and_the_values_of_a_key() {
        let history = History::of_targets(1);
        let printed = |subject| {
            let request = Request::from(subject);
            let answer = wait(from_file(&history.path(), &request)).unwrap();
            table(&answer, Some(WIDTH))
        };
        let (a, b) = ("1".to_owned(), "2".to_owned());
        insta::assert_snapshot!("runs", printed(Subject::Runs { a, b }));
        let by = Subject::By {
            run: "last".to_owned(),
            key: "bs".to_owned(),
            only: Vec::new(),
        };
        insta::assert_snapshot!("by_key", printed(by));
    }

    fn arguments(line: &str) -> CompareArguments {
        let words = format!("benchmesh compare {line}");
        let parsed = crate::args::definition::parse(words.split_whitespace()).unwrap();
        match parsed.command {
            crate::args::Command::Compare(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_run_is_compared_with_the_one_before_of_its_plan() {
        let history = History::of_targets(1);
        let sides = |line: &str| {
            let request = request(&arguments(line)).unwrap();
            let answer = wait(from_file(&history.path(), &request))?;
            let one = answer.comparisons.first().unwrap();
            let (a, b) = (one.a.label.clone(), one.b.label.clone());
            anyhow::Ok((a, b))
        };
        let of = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        for line in ["", "nightly", "2", "nightly --last 1", "2 --last 4"] {
            assert_eq!(sides(line).unwrap(), of("run 1", "run 2"), "{line}");
        }
        for (line, expected) in [
            (
                "nigthly",
                "there is no run \"nigthly\"; did you mean nightly? `benchmesh runs --db",
            ),
            ("nigthly --trend", "did you mean nightly?"),
            ("nigthly --by version", "did you mean nightly?"),
            (
                "--by targt 2",
                "no key \"targt\"; did you mean target? they have",
            ),
            ("1", "no run of plan \"nightly\" before run 1 has ended"),
        ] {
            let error = sides(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_table_keeps_to_the_width_of_a_terminal_and_has_a_line_per_row_without_one() {
        let history = History::of_targets(1);
        let request = request(&arguments("1 2")).unwrap();
        let answer = wait(from_file(&history.path(), &request)).unwrap();
        let rows = answer.comparisons.first().unwrap().rows.len();
        for width in [100, WIDTH, 200] {
            let shown = table(&answer, Some(width));
            let widest = shown.lines().map(|line| line.chars().count()).max();
            assert!(widest.unwrap() <= width, "{widest:?} of {width}:\n{shown}");
        }
        let unbroken = table(&answer, None);
        let (_, below) = unbroken.split_once("verdict\n").unwrap();
        let lines = below.lines().skip(1);
        let lines = lines.take_while(|line| line.starts_with("  records "));
        assert_eq!(lines.count(), rows, "{unbroken}");
    }
}
