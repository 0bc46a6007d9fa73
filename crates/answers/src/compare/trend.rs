//! All runs of one plan: where the level of a figure changed.

use super::cell::{CellKey, MeasuredCell, figure_of};
use super::figure::FigureName;
use super::model::{RunRef, Trend, TrendChange, TrendRow};
use benchmesh_analysis::change::{MIN_HISTORY, changes};
use benchmesh_workloads::figures;
use serde_json::{Map, Value};

/// The figures that are always followed.
const FIGURES: [FigureName; 5] = [
    FigureName::Ops,
    FigureName::P99,
    FigureName::Cpu,
    FigureName::Share,
    FigureName::Jitter,
];
const SEED: u64 = 1;

struct History<'c> {
    key: &'c CellKey,
    target: &'c str,
    /// The index of a run, and its repeats.
    runs: Vec<(usize, Vec<&'c MeasuredCell>)>,
}

pub(super) fn trend(
    plan: &str,
    runs: &[(RunRef, Vec<MeasuredCell>)],
    requested: &[FigureName],
) -> Trend {
    let mut histories: Vec<History<'_>> = Vec::new();
    for (place, (_, cells)) in runs.iter().enumerate() {
        for cell in cells {
            let known = histories
                .iter_mut()
                .find(|one| *one.key == cell.key && one.target == cell.target);
            let history = match known {
                Some(history) => history,
                None => {
                    histories.push(History {
                        key: &cell.key,
                        target: &cell.target,
                        runs: Vec::new(),
                    });
                    let Some(history) = histories.last_mut() else {
                        continue;
                    };
                    history
                }
            };
            match history.runs.last_mut() {
                Some((last, repeats)) if *last == place => repeats.push(cell),
                _ => history.runs.push((place, vec![cell])),
            }
        }
    }
    let references: Vec<RunRef> = runs.iter().map(|(run, _)| run.clone()).collect();
    let rows = histories.iter().flat_map(|history| {
        let what = named(history, &histories);
        let references = &references;
        let figures = FigureName::of_op(&history.key.op).iter().copied();
        figures
            .filter(|figure| FIGURES.contains(figure) || requested.contains(figure))
            .filter_map(move |figure| row(history, what.clone(), figure, references))
    });
    Trend {
        plan: plan.to_owned(),
        rows: rows.collect(),
        runs: references.clone(),
    }
}

fn row(
    history: &History<'_>,
    what: String,
    figure: FigureName,
    runs: &[RunRef],
) -> Option<TrendRow> {
    let values: Vec<(usize, f64)> = history
        .runs
        .iter()
        .filter_map(|(place, repeats)| {
            let repeats: Vec<MeasuredCell> = repeats.iter().map(|cell| (*cell).clone()).collect();
            Some((*place, figure_of(figure, &repeats)?.value))
        })
        .collect();
    if values.is_empty() {
        return None;
    }
    let only: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    let changes = changes(&only, SEED)
        .into_iter()
        .filter_map(|change| {
            let (place, _) = values.get(change.at)?;
            Some(TrendChange {
                run: runs.get(*place)?.clone(),
                before: change.before,
                after: change.after,
                p: change.p,
                verdict: figure.verdict(change.after / change.before),
            })
        })
        .collect();
    Some(TrendRow {
        what,
        figure,
        unit: figure.unit().to_owned(),
        is_told: values.len() >= MIN_HISTORY,
        values,
        changes,
    })
}

fn named(own: &History<'_>, all: &[History<'_>]) -> String {
    let kin = all.iter().filter(|other| {
        (&own.key.phase, &own.key.group, &own.key.mode, &own.key.op)
            == (
                &other.key.phase,
                &other.key.group,
                &other.key.mode,
                &other.key.op,
            )
    });
    let facts = |history: &History<'_>| -> Map<String, Value> {
        let mut facts = history.key.params.clone();
        facts.insert(String::from("clients"), Value::from(history.key.clients));
        facts.insert(
            String::from("cache"),
            Value::from(history.key.cache.as_str()),
        );
        facts
    };
    let others: Vec<Map<String, Value>> = kin.map(facts).collect();
    let key = own.key;
    let op = if key.op == key.mode { "" } else { &key.op };
    let mut words: Vec<String> = [own.target, &key.phase, &key.group, &key.mode, op, &key.link]
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.dedup();
    for (name, value) in facts(own) {
        if others.iter().any(|other| other.get(&name) != Some(&value)) {
            words.push(format!("{name}={}", figures::parameter(&value)));
        }
    }
    words.join(" ")
}
