//! Cards of a run and of a comparison.

use super::{Card, CardList, CardLoad, CardState, MAX_LOADS, Trust, beside, loads, measured};
use crate::compare::{CompareAnswer, CompareError, Comparison, Side};
use crate::report::{Report, heading};
use std::collections::BTreeSet;

/// Maximum number of runs of a side that are named.
const MAX_RUNS: usize = 6;

/// The card of a run. `since`: an earlier run of the same plan, compared with it.
pub fn of_run(report: &Report, since: Result<Option<&Comparison>, &CompareError>) -> Card {
    let id = report.run.id;
    let compared = loads::loads(&report.comparisons);
    let (mut loads, loads_left_out) = bounded(match compared.is_empty() {
        true => measured::loads(report),
        false => compared,
    });
    // The cost of the harness is the least interesting.
    let harness = |load: &CardLoad| {
        let steps = load.sides.iter().flat_map(|side| &side.steps);
        let mut steps = steps.filter_map(|id| report.steps.iter().find(|step| step.id.0 == *id));
        steps.any(|step| step.workload == "null")
    };
    loads.sort_by_key(harness);
    let mut title = heading(report).join("; ");
    let targets: BTreeSet<&str> = report
        .steps
        .iter()
        .map(|step| step.target.as_str())
        .filter(|target| !target.is_empty())
        .collect();
    if !targets.is_empty() {
        let names: Vec<&str> = targets.into_iter().collect();
        title.push_str(&format!(", on {}", names.join(", ")));
    }
    let card = Card {
        title,
        objectives: beside::objectives(report),
        loads,
        loads_left_out,
        changes: match since {
            Ok(since) => since.map(beside::changes).unwrap_or_default(),
            Err(error) => beside::unread(error),
        },
        caveats: beside::caveats(
            &report.comparisons,
            false,
            format!("benchmesh compare --by target {id}"),
        ),
        beside: CardList::default(),
        validity: beside::validity(report),
        findings: beside::findings(report),
        next: String::new(),
    };
    let next = next(&card, report);
    Card { next, ..card }
}

/// The command that most likely follows.
fn next(card: &Card, report: &Report) -> String {
    let id = report.run.id;
    let is = |trust| move |load: &&CardLoad| load.trust == Some(trust);
    let unproven = card.loads.iter().filter(is(Trust::CannotTell)).count()
        + card.loads.iter().filter(is(Trust::Likely)).count();
    let running = matches!(report.run.state.as_str(), "running" | "queued");
    let worst = |list: &CardList| list.lines.first().map(|line| line.state);
    match () {
        () if running => format!("benchmesh watch {id}"),
        () if worst(&card.findings) == Some(CardState::Bad) => format!("benchmesh findings {id}"),
        () if unproven > 0 && report.run.imported_from.is_none() => {
            format!(
                "for proof, more repeats: benchmesh run PLAN --set repeat={}",
                repeats(report) * 2 + 1
            )
        }
        () => format!("benchmesh report {id} all"),
    }
}

/// The largest number of repeats of a load.
fn repeats(report: &Report) -> i64 {
    let steps = report.steps.iter();
    steps.map(|step| step.repeat).max().unwrap_or(1)
}

/// The card of a comparison of any kind.
pub fn of_comparison(answer: &CompareAnswer) -> Card {
    let (loads, loads_left_out) = bounded(loads::loads(&answer.comparisons));
    let command = String::from("the table below");
    Card {
        title: title(&answer.comparisons),
        loads,
        loads_left_out,
        beside: beside::beside(&answer.comparisons, command.clone()),
        caveats: beside::caveats(&answer.comparisons, true, command.clone()),
        findings: beside::new_findings(&answer.comparisons, command),
        ..Card::default()
    }
}

/// `run 12 against run 11`, `fast, disk, cephfs of run 12`.
fn title(comparisons: &[Comparison]) -> String {
    let Some(first) = comparisons.first() else {
        return String::new();
    };
    let runs = |side: &Side| {
        let ids: Vec<String> = side.runs.iter().map(|run| run.id.to_string()).collect();
        figures_of_runs(&ids)
    };
    let sides = comparisons.iter().flat_map(|one| [&one.a, &one.b]);
    let mut labels: Vec<&str> = Vec::new();
    for side in sides {
        if !labels.contains(&side.label.as_str()) {
            labels.push(&side.label);
        }
    }
    match first.a.runs == first.b.runs {
        true => format!("{} of {}", labels.join(", "), runs(&first.a)),
        false => {
            let named = |side: &Side| match runs(side) {
                runs if runs == side.label => runs,
                runs => format!("{} ({runs})", side.label),
            };
            format!("{} against {}", named(&first.b), named(&first.a))
        }
    }
}

fn figures_of_runs(ids: &[String]) -> String {
    match ids {
        [one] => format!("run {one}"),
        many if many.len() > MAX_RUNS => format!("{} runs", many.len()),
        many => format!("runs {}", many.join(", ")),
    }
}

/// The loads with a line, and the number of the others. Undecided loads and those without a difference are dropped
/// first.
fn bounded(mut loads: Vec<CardLoad>) -> (Vec<CardLoad>, usize) {
    let more = loads.len().saturating_sub(MAX_LOADS);
    if more > 0 {
        let mut order: Vec<usize> = (0..loads.len()).collect();
        order.sort_by_key(|at| loads.get(*at).map_or(usize::MAX, weight));
        let kept: BTreeSet<usize> = order.into_iter().take(MAX_LOADS).collect();
        let mut at = 0;
        loads.retain(|_| {
            at += 1;
            kept.contains(&(at - 1))
        });
    }
    (loads, more)
}

fn weight(load: &CardLoad) -> usize {
    match load.trust {
        Some(Trust::Proven) | None => 0,
        Some(Trust::Likely) => 1,
        Some(Trust::CannotTell) => 2,
        Some(Trust::NotShown) => 3,
    }
}
