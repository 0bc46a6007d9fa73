//! The probes of a search among the planned steps: the plan contains the first; the others are added as they are
//! decided.

use super::{PlannedStep, search::Probe};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc};

/// The parameter that holds a probe's rate.
pub(super) const RATE: &str = "rate_iops";
const RATE_PER: &str = "rate-per";

impl PlannedStep {
    /// The number of ordinals that the step reserves: one for each of its possible probes.
    pub fn ordinals(&self) -> u32 {
        match &self.probe {
            Some(probe) if probe.number == 1 => probe.search.steps,
            _ => 1,
        }
    }

    /// The rate of a probe; `None` for a probe without a rate and for other steps.
    pub fn probe_rate(&self) -> Option<u64> {
        let probe = self.probe.as_ref()?;
        (probe.number > 1).then_some(())?;
        self.params.get(RATE)?.as_u64()
    }

    /// Whether the step is a probe after the first.
    pub fn is_later_probe(&self) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.number > 1)
    }

    /// Derives the probe with this number from the first probe of a search. Returns `None` for any other step.
    pub fn at_rate(&self, number: u32, rate: u64) -> Option<PlannedStep> {
        let first = self.probe.as_ref().filter(|probe| probe.number == 1)?;
        let after = number.saturating_sub(1);
        let paced = |params: &Map<String, Value>| {
            let mut params = params.clone();
            params.insert(RATE.to_owned(), rate.into());
            params.insert(RATE_PER.to_owned(), "step".into());
            Arc::new(params)
        };
        let mut step = self.clone();
        step.ordinal = step.ordinal.saturating_add(after);
        if first.has_own_cell {
            step.cell = step
                .cell
                .saturating_add(usize::try_from(after).unwrap_or(usize::MAX));
            step.cell_name = cell_name(step.cell_name.trim_end_matches("-s1"), number);
        }
        step.probe = Some(Probe {
            number,
            ..first.clone()
        });
        step.params = paced(&self.params);
        for load in &mut step.loads {
            load.params = Arc::clone(&step.params);
        }
        Some(step)
    }
}

/// The cell of a probe that has its own data.
pub(super) fn cell_name(cell: &str, number: u32) -> String {
    format!("{cell}-s{number}")
}

/// The steps of a loop with the probes made so far, given by their ordinals and stored parameters.
pub fn with_probes<'r>(
    steps: &[PlannedStep],
    rows: impl Iterator<Item = (u32, &'r str)>,
) -> Option<Vec<PlannedStep>> {
    if steps.iter().all(|step| step.probe.is_none()) {
        return None;
    }
    let rate = |params: &str| -> Option<u64> {
        let params: Map<String, Value> = serde_json::from_str(params).ok()?;
        params.get(RATE)?.as_u64()
    };
    let rates: BTreeMap<u32, &str> = rows.collect();
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        all.push(step.clone());
        for number in 2..=step.ordinals() {
            let params = rates.get(&step.ordinal.saturating_add(number - 1));
            let probe = params.and_then(|params| step.at_rate(number, rate(params)?));
            let Some(probe) = probe else { break };
            all.push(probe);
        }
    }
    Some(all)
}

/// The position of the last probe of each search.
pub fn last_probes(steps: &[PlannedStep]) -> impl Iterator<Item = usize> + '_ {
    let is_last = |index: &usize| {
        let goes_on = |next: &PlannedStep| next.is_later_probe();
        let step = steps.get(*index);
        step.is_some_and(|step| step.probe.is_some()) && !steps.get(*index + 1).is_some_and(goes_on)
    };
    (0..steps.len()).filter(is_last)
}

/// The step of an ordinal. For a probe that is not among the steps, the rate is not known.
pub fn step_of_ordinal(steps: &[PlannedStep], ordinal: u32) -> Option<PlannedStep> {
    let after = steps.partition_point(|step| step.ordinal <= ordinal);
    let step = steps.get(after.checked_sub(1)?)?;
    match ordinal - step.ordinal {
        0 => Some(step.clone()),
        further if further < step.ordinals() => step.at_rate(further + 1, 1),
        _ => None,
    }
}
