//! `search` of a phase.

use super::super::{
    Cell, Group, Phase,
    alarms::{Side, StepFigure, step_limit},
    curve,
    keys::{SearchKeys, names},
    probes::RATE,
    read::{Section, kind},
    search::{Bound, Search},
    source::{Mistakes, ValuePosition},
};
use benchmesh_workloads::{common::Common, params::Keys, registry};
use std::sync::Arc;
use toml::de::DeValue;

const FORMS: &str = "write while = \"p99 < 10ms\"";

/// The key `search` of a phase, with its position in the plan.
pub(super) fn search(
    phase: &mut Section<'_, '_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<(Arc<Search>, ValuePosition)> {
    let (value, position) = phase.take("search")?;
    let DeValue::Table(table) = value else {
        mistakes.at(
            &position,
            format!("expected a table, found {}", kind(value)),
            "write { rate = \"max\", while = \"p99 < 10ms\" }",
        );
        return None;
    };
    for other in ["load-curve", "until"] {
        if phase.table.contains_key(other) {
            mistakes.at(
                &position,
                format!("it conflicts with `{other}`"),
                "a search creates its own steps: use a separate phase for each",
            );
        }
    }
    let mut section = Section::new(table, position.clone());
    let values = section.keys::<SearchKeys>(mistakes);
    section.refuse_rest(&names(&[SearchKeys::all()]), mistakes);
    let SearchKeys {
        rate: _,
        holds,
        steps,
        within,
    } = values?;
    let bound =
        bound(&holds).map_err(|error| mistakes.at(&section.place_of("while"), error, FORMS));
    let search = Search {
        bound: bound.ok()?,
        steps,
        within: within.0 / 100.0,
    };
    Some((Arc::new(search), position))
}

/// Parses `p99 < 10ms`.
fn bound(text: &str) -> Result<Bound, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [figure, side, limit] = *words.as_slice() else {
        return Err(format!("`{text}` is not a latency limit"));
    };
    let (figure, side, limit_ms) = step_limit(figure, side, limit)?;
    match figure {
        StepFigure::P50 | StepFigure::P99 | StepFigure::Max => {}
        StepFigure::Rate | StepFigure::Throughput => {
            return Err(format!(
                "`{}` is the result of the search, not a limit",
                figure.as_str()
            ));
        }
    }
    if side == Side::Above {
        return Err(String::from(
            "a latency limit is an upper bound: expected <",
        ));
    }
    if limit_ms <= 0.0 {
        return Err(format!("no latency is below `{limit}`"));
    }
    Ok(Bound {
        words: words.join(" "),
        figure,
        limit_ms,
    })
}

/// Requires one load that runs for a time and can be paced, and data that the next probe finds or makes.
pub(super) fn check(phase: &Phase, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    let [group] = phase.groups.as_slice() else {
        mistakes.at(
            at,
            "a phase with groups cannot have a search: each group has its own rate",
            "search in a separate phase",
        );
        return;
    };
    let possible = |cell: &&Cell| cell.footprints.iter().any(Option::is_some);
    for cell in group.cells.iter().filter(possible) {
        if let Some((reason, remedy)) = unfit(group, cell) {
            mistakes.at(at, reason, remedy);
            break;
        }
    }
    if curve::keeps_data(phase) {
        return;
    }
    if group.modes.len() > 1 {
        mistakes.at(
            at,
            "a mode of the phase creates or removes data, so each probe needs its own data, for a single mode",
            "give each mode a separate phase",
        );
    }
    if phase.kept.is_some() {
        mistakes.at(
            at,
            "each probe creates its own data, but the phase keeps only one set",
            "leave out `keep`, or search in modes that do not change the data",
        );
    }
}

/// Why a cell cannot be probed, and the remedy.
fn unfit(group: &Group, cell: &Cell) -> Option<(String, String)> {
    // Mistakes in a rate are reported where it is read.
    let common = Common::of(&cell.params).ok()?;
    if let Some(pace) = common.pace {
        return Some((
            format!(
                "the phase has a rate (`{}`), which the search chooses",
                pace.key()
            ),
            format!(
                "remove `{0}`, and `rate-per` and `rate_process` with it, or the search",
                pace.key()
            ),
        ));
    }
    if !cell.params.contains_key("runtime") {
        return Some((
            String::from("there is no `runtime`, the duration of each probe"),
            String::from("add one: runtime = \"30s\""),
        ));
    }
    let mut paced = cell.params.clone();
    paced.insert(RATE.to_owned(), 1.into());
    let modes = group.modes.iter().zip(&cell.footprints);
    let possible = modes.filter(|(_, footprint)| footprint.is_some());
    possible.map(|(mode, _)| mode).find_map(|mode| {
        let error = registry::check(group.workload.0, mode, &paced).err()?;
        Some((
            format!("mode `{mode}` cannot be paced: {}", error.message),
            String::from("search in a mode that supports a rate"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_of_a_latency_and_from_above() {
        let read = |text: &str| bound(text).map(|bound| (bound.figure, bound.limit_ms));
        assert_eq!(read(" p99  < 10ms"), Ok((StepFigure::P99, 10.0)));
        assert_eq!(read("max < 1s"), Ok((StepFigure::Max, 1000.0)));
        for (text, expected) in [
            ("", "not a latency limit"),
            ("p99 < 10ms for 5s", "not a latency limit"),
            ("p99 < 10", "has no unit"),
            ("p98 < 10ms", "unknown figure `p98`"),
            ("p99 > 10ms", "upper bound"),
            ("p99 < 0ms", "no latency is below"),
            ("rate < 10", "result of the search"),
        ] {
            let error = bound(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
