//! What stands beside the figures of a card: objectives, caveats, validity, findings and changes.

use super::{CardLine, CardList, CardState, MAX_OBJECTIVES, Trust, line, loads};
use crate::compare::words::subject;
use crate::compare::{CompareError, Comparison};
use crate::report::{Check, CheckVerdict, Finding, Report, figures};
use benchmesh_results::objective::{ObjectiveSeconds, Standing};
use serde_json::Value;

/// The objectives, the broken ones first.
pub(super) fn objectives(report: &Report) -> Vec<CardLine> {
    let rows = report.rows("objectives").iter();
    let mut lines: Vec<CardLine> = rows.filter_map(objective).collect();
    lines.sort_by_key(|line| line.state);
    let more = lines.len().saturating_sub(MAX_OBJECTIVES);
    lines.truncate(MAX_OBJECTIVES);
    if more > 0 {
        let text = format!(
            "{}: benchmesh report {} objectives",
            figures::plural(more, "more objective"),
            report.run.id
        );
        lines.push(line(CardState::Note, text));
    }
    lines
}

fn objective(row: &Value) -> Option<CardLine> {
    let holds = row.get("holds")?.as_str()?;
    let count = |key: &str| row.get(key).and_then(Value::as_i64);
    let budget = row.get("budget_s")?.as_f64()?;
    let seconds = ObjectiveSeconds::of_ended(count("seconds")?, count("bad_seconds")?, budget);
    let state = match seconds.standing() {
        Standing::Broken => CardState::Bad,
        Standing::AtRisk => CardState::Warning,
        Standing::Kept => CardState::Good,
        Standing::NotJudged => CardState::Note,
    };
    let word = seconds.standing().word();
    Some(line(state, format!("{word}: {holds}: {}", seconds.words())))
}

/// Caveats of the compared loads, each once. With `with_flags`, also those that validity names in a report.
pub(super) fn caveats(comparisons: &[Comparison], with_flags: bool, command: String) -> CardList {
    let mut found: Vec<(&String, Vec<String>)> = Vec::new();
    let rows = comparisons.iter().flat_map(|one| &one.rows);
    for row in rows.filter(|row| row.judged) {
        let load = subject(row);
        for text in row
            .caveats
            .iter()
            .filter(|text| with_flags || !is_flag(text))
        {
            match found.iter_mut().find(|(known, _)| *known == text) {
                Some((_, loads)) if loads.contains(&load) => {}
                Some((_, loads)) => loads.push(load.clone()),
                None => found.push((text, vec![load.clone()])),
            }
        }
    }
    // Those of most loads first.
    found.sort_by_key(|(_, loads)| std::cmp::Reverse(loads.len()));
    let counted = found.into_iter().map(|(text, loads)| {
        let loads = figures::plural(loads.len(), "load");
        line(CardState::Warning, format!("{loads}: {text}"))
    });
    let missing = comparisons.iter().flat_map(|one| {
        let of = one.incomparable.iter();
        of.map(|what| {
            line(
                CardState::Note,
                format!("not compared: {}: {}", what.what, what.why),
            )
        })
    });
    CardList::of(counted.chain(missing).collect(), command)
}

/// Differences between the clusters of the sides, and the rates that searches found.
pub(super) fn beside(comparisons: &[Comparison], command: String) -> CardList {
    let all = comparisons.iter().flat_map(|one| &one.beside);
    let lines = all.map(|text| line(CardState::Note, text.clone()));
    CardList::of(lines.collect(), command)
}

/// Whether a caveat lists flags: `A is noisy`, `both are tool-bound`.
fn is_flag(text: &str) -> bool {
    let is_name = |word: &str| {
        let word = word.trim_end_matches(',');
        benchmesh_results::Flag::row_of(word).is_some()
    };
    text.rsplit(' ').next().is_some_and(is_name)
}

pub(super) fn validity(report: &Report) -> CardList {
    let lines = report.validity.iter().filter_map(check).collect();
    CardList::of(
        lines,
        format!("benchmesh report {} validity", report.run.id),
    )
}

fn check(check: &Check) -> Option<CardLine> {
    let state = match check.verdict {
        CheckVerdict::Failed => CardState::Bad,
        CheckVerdict::Warning => CardState::Warning,
        CheckVerdict::Note if check.name != "repeats" => CardState::Note,
        _ => return None,
    };
    // Shows the steps and the fact of each statement; the section has the rest.
    let statements = check.text.split("; ").map(|statement| {
        let explained = statement.match_indices(": ").nth(1);
        explained.map_or(statement, |(at, _)| statement.split_at(at).0)
    });
    let text = statements.collect::<Vec<_>>().join("; ");
    Some(line(state, format!("{}: {text}", check.name)))
}

pub(super) fn findings(report: &Report) -> CardList {
    let found = report.findings.iter().filter(|one| one.is_found());
    let lines = found.map(|one| finding(one, "")).collect();
    CardList::of(lines, format!("benchmesh findings {}", report.run.id))
}

fn finding(one: &Finding, before: &str) -> CardLine {
    let state = match one.severity.as_str() {
        "error" => CardState::Bad,
        "warning" => CardState::Warning,
        _ => CardState::Note,
    };
    line(state, format!("{before}{}: {}", one.kind, one.sentence))
}

/// Findings of the second side only.
pub(super) fn new_findings(comparisons: &[Comparison], command: String) -> CardList {
    let new = comparisons.iter().flat_map(|one| {
        let before = format!("new since {}: ", one.a.label);
        let all = one.new_findings.iter();
        all.map(move |finding| self::finding(finding, &before))
    });
    CardList::of(new.collect(), command)
}

/// Changes since an earlier run of the same plan: the worse first, then the better; one line if there are none.
pub fn changes(since: &Comparison) -> CardList {
    let [earlier] = since.a.runs.as_slice() else {
        return CardList::default();
    };
    let id = since.b.runs.first().map_or(earlier.id, |run| run.id);
    let command = format!("benchmesh compare {} {id}", earlier.id);
    let all = loads::loads(std::slice::from_ref(since));
    let mut lines = Vec::new();
    for load in &all {
        let (Some(trust), Some(first)) = (load.trust, load.sides.first()) else {
            continue;
        };
        let is_told = matches!(trust, Trust::Proven | Trust::Likely);
        if !is_told {
            continue;
        }
        let state = match first.label == since.b.label {
            true => CardState::Good,
            false => CardState::Warning,
        };
        lines.push(line(
            state,
            format!("{}: {} ({})", load.load, load.text, trust.words()),
        ));
    }
    if lines.is_empty() && !all.is_empty() {
        let unknown = all
            .iter()
            .filter(|load| load.trust != Some(Trust::NotShown))
            .count();
        let since = format!(
            "since run {} of {}",
            earlier.id,
            figures::instant(earlier.created_us)
        );
        let loads = figures::plural(all.len(), "load");
        let text = match unknown {
            0 => format!("no change of its {loads} shown {since}"),
            _ => format!("cannot tell whether {unknown} of its {loads} changed {since}"),
        };
        lines.push(line(CardState::Note, text));
    }
    CardList::of(lines, command)
}

/// The earlier run of the same plan cannot be read.
pub(super) fn unread(error: &CompareError) -> CardList {
    let text = format!("not compared with the run before: {error}");
    CardList::of(vec![line(CardState::Warning, text)], String::new())
}
