//! `until`, `ss`, `ss_dur` and `ss_ramp` of a phase.

use super::super::{
    Cell, Phase, Steady, SteadyFigure, keys::PhaseKeys, read::Section, source::Mistakes,
};
use benchmesh_analysis::steady::{ROUNDS, Rule};
use benchmesh_workloads::params::{KeyValue, units::Span};
use std::time::Duration;

/// The steady-state criterion of a phase. Keys without `until` have no effect, and are refused.
pub(super) fn steady(
    section: &Section<'_, '_>,
    keys: &PhaseKeys,
    mistakes: &mut Mistakes<'_>,
) -> Option<Steady> {
    if keys.until.is_none() {
        for key in ["ss", "ss_dur", "ss_ramp"] {
            if section.table.contains_key(key) {
                mistakes.at(
                    &section.place_of(key),
                    "it has an effect only with `until`",
                    "add until = \"steady\"",
                );
            }
        }
        return None;
    }
    let (figure, rule) = match keys.ss {
        Some(criterion) => (criterion.figure, criterion.rule),
        None => (SteadyFigure::Iops, Rule::Rounds),
    };
    let window = keys.ss_dur.0;
    let of_rounds = matches!(rule, Rule::Rounds);
    let unit = if of_rounds { ROUNDS as u128 } else { 1 };
    if !window.as_millis().is_multiple_of(unit * 1000) {
        let (reason, remedy) = match of_rounds {
            true => (
                "without `ss` it covers five rounds of whole seconds: use a multiple of 5 s",
                "write ss_dur = \"10s\", or one of fio's criteria: ss = \"iops:5%\"",
            ),
            false => ("not a whole number of seconds", "write ss_dur = \"10s\""),
        };
        mistakes.at(&section.place_of("ss_dur"), reason, remedy);
    }
    Some(Steady {
        figure,
        rule,
        window,
        ramp: keys.ss_ramp.0,
    })
}

/// Requires a `runtime` that bounds each step and leaves time to become steady.
pub(super) fn check(phase: &Phase, section: &Section<'_, '_>, mistakes: &mut Mistakes<'_>) {
    let Some(steady) = phase.steady else { return };
    let cells = phase.groups.iter().flat_map(|group| {
        let possible = |cell: &&Cell| cell.footprints.iter().any(Option::is_some);
        group.cells.iter().filter(possible)
    });
    let runtimes: Vec<Option<Duration>> = cells
        .map(|cell| {
            let runtime = cell.params.get("runtime")?;
            Span::read(runtime).ok().map(|span| span.0)
        })
        .collect();
    if runtimes.iter().any(Option::is_none) {
        mistakes.at(
            &section.place_of("until"),
            "there is no `runtime`, which limits a load that never becomes steady",
            "add one: runtime = \"20m\"",
        );
        return;
    }
    let least = runtimes.into_iter().flatten().min();
    let needed = steady.ramp.saturating_add(steady.window);
    if let Some(runtime) = least.filter(|runtime| *runtime <= needed) {
        let place = match section.table.contains_key("ss_dur") {
            true => section.place_of("ss_dur"),
            false => section.place_of("until"),
        };
        mistakes.at(
            &place,
            format!(
                "it cannot be steady before {} s (`ss_ramp` and `ss_dur`) are over, and `runtime` is {} s",
                needed.as_secs_f64(),
                runtime.as_secs_f64()
            ),
            "give it a longer `runtime`, or choose a shorter `ss_dur`",
        );
    }
}
