//! A load curve: raises a phase's rate in equal ratios, to find where response time leaves its floor.
//!
//! Pure. The phase's own rate is the full load; each step of the curve runs at a fraction of it.

use super::{
    Phase,
    cells::Cell,
    keys::{CurveKeys, names},
    read::{Section, kind},
    source::{Mistakes, ValuePosition},
};
use benchmesh_workloads::common::Common;
use benchmesh_workloads::params::Keys;
use toml::de::{DeTable, DeValue};

/// How the rate of a phase is raised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// The first load, as a fraction of the phase's rate.
    pub start: f64,
    pub steps: u32,
    /// The factor from one load to the next.
    pub factor: f64,
}

impl Curve {
    fn new(start: f64, steps: u32, factor: Option<f64>) -> Self {
        let to_the_whole = || (1.0 / start).powf(1.0 / f64::from(steps.saturating_sub(1).max(1)));
        Self {
            start,
            steps,
            factor: factor.unwrap_or_else(to_the_whole),
        }
    }

    /// The loads of a cell: the key of its rate, and the distinct rates in rising order.
    pub(super) fn loads(&self, cell: &Cell) -> Vec<(&'static str, u64)> {
        let pace = Common::of(&cell.params).ok().and_then(|common| common.pace);
        let Some(pace) = pace else {
            return Vec::new();
        };
        let mut rates: Vec<u64> = (0..self.steps)
            .map(|step| self.start * self.factor.powf(f64::from(step)))
            .map(|part| scaled(pace.per_second, part))
            .collect();
        rates.dedup();
        rates.into_iter().map(|rate| (pace.key(), rate)).collect()
    }
}

/// A fraction of a rate, rounded to three digits for readability.
#[expect(clippy::cast_precision_loss, reason = "of three digits")]
fn scaled(rate: u64, part: f64) -> u64 {
    three_digits(rate as f64 * part)
}

/// A rate rounded to three digits, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, of three digits, and saturating where it is beyond every rate"
)]
pub(super) fn three_digits(exact: f64) -> u64 {
    let digit = 10_f64.powf((exact.max(1.0).log10().floor() - 2.0).max(0.0));
    (((exact / digit).round() * digit) as u64).max(1)
}

/// Whether every mode finds the data as the previous mode left them, so that one cell serves all loads.
pub(super) fn keeps_data(phase: &Phase) -> bool {
    phase.groups.iter().all(|group| {
        let modes = group.modes.iter();
        modes
            .filter_map(|name| group.workload.0.mode(name).ok())
            .all(|mode| mode.needs == mode.leaves)
    })
}

/// Parses the key of a phase; also returns its position.
pub(super) fn parse(
    phase: &mut Section<'_, '_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<(Curve, ValuePosition)> {
    const REMEDY: &str = "write true, or { start = 0.1, steps = 10 }";
    let (value, position) = phase.take("load-curve")?;
    let table = match value {
        DeValue::Boolean(true) => &DeTable::new(),
        DeValue::Boolean(false) => return None,
        DeValue::Table(table) => table,
        other => {
            mistakes.at(
                &position,
                format!("expected true or a table, found {}", kind(other)),
                REMEDY,
            );
            return None;
        }
    };
    let mut section = Section::new(table, position.clone());
    let keys = section.keys::<CurveKeys>(mistakes);
    section.refuse_rest(&names(&[CurveKeys::all()]), mistakes);
    let CurveKeys {
        start,
        steps,
        factor,
    } = keys?;
    if !(start.0 > 0.0 && start.0 < 1.0) {
        mistakes.at(
            &section.place_of("start"),
            "not between 0 and 1",
            "it is a fraction of the phase's rate: start = 0.1",
        );
        return None;
    }
    if factor.is_some_and(|factor| !(factor.0 > 1.0 && factor.0 <= 100.0)) {
        mistakes.at(
            &section.place_of("factor"),
            "not above 1 and up to 100",
            "it is the ratio of each load to the previous one: factor = 1.5",
        );
        return None;
    }
    let curve = Curve::new(start.0, steps, factor.map(|factor| factor.0));
    Some((curve, position))
}

/// Refuses a curve without a rate or with more than one load.
pub(super) fn check(phase: &Phase, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    let [group] = phase.groups.as_slice() else {
        mistakes.at(
            at,
            "a phase with groups has no load curve",
            "measure the curve in a separate phase",
        );
        return;
    };
    for cell in &group.cells {
        // An invalid rate has already been reported.
        if Common::of(&cell.params).is_ok_and(|common| common.pace.is_none()) {
            mistakes.at(
                at,
                "a load curve needs a rate",
                "add the highest load: rate_iops = 10000 and rate-per = \"step\"",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_rise_in_equal_ratios_to_the_whole() {
        let rates = |curve: Curve, rate: u64| -> Vec<u64> {
            let parts = (0..curve.steps).map(|step| curve.start * curve.factor.powf(step.into()));
            parts.map(|part| scaled(rate, part)).collect()
        };
        assert_eq!(rates(Curve::new(0.1, 3, None), 1000), [100, 316, 1000]);
        assert_eq!(rates(Curve::new(0.5, 3, Some(2.0)), 10), [5, 10, 20]);
        assert_eq!(
            rates(Curve::new(0.1, 10, None), 10_000),
            [1000, 1290, 1670, 2150, 2780, 3590, 4640, 5990, 7740, 10_000]
        );
        assert_eq!(rates(Curve::new(0.1, 2, None), 3), [1, 3]);
    }
}
