//! Estimates of the remaining time. A step takes its `runtime`, or as long as earlier steps of the same kind. Any other
//! step counts as a multiple of the current one, by its size, if both are of the same kind; otherwise there is no
//! estimate.

use super::view::ratio;
use benchmesh_plan::PlannedStep;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Time of a step outside its load: preparation, lead, results.
const AROUND_A_STEP: Duration = Duration::from_millis(100);

/// The steps of a run, and their durations so far.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    steps: Arc<[PlannedStep]>,
    /// Phase and mode -> total duration of their steps, and their number.
    took: BTreeMap<(String, String), (Duration, u32)>,
}

impl Estimates {
    pub fn set_plan(&mut self, steps: Arc<[PlannedStep]>) {
        self.steps = steps;
    }

    pub fn step(&self, index: usize) -> Option<&PlannedStep> {
        self.steps.get(index)
    }

    /// Records the duration of a step's load.
    pub fn took(&mut self, index: usize, took: Duration) {
        let Some(step) = self.steps.get(index) else {
            return;
        };
        let kind = (step.phase.clone(), step.mode.clone());
        let (total, count) = self.took.entry(kind).or_default();
        *total += took;
        *count += 1;
    }

    /// The mean duration of loads of this phase and mode.
    pub fn load_of_likes(&self, step: &PlannedStep) -> Option<Duration> {
        let kind = (step.phase.clone(), step.mode.clone());
        let (total, count) = self.took.get(&kind)?;
        total.checked_div(*count)
    }

    /// The estimated total duration of a step.
    fn estimate(&self, step: &PlannedStep) -> Option<Duration> {
        let load = step.expected.or_else(|| self.load_of_likes(step))?;
        Some(load + step.settle.least() + AROUND_A_STEP)
    }

    /// Covers the steps after `index` and of `loops` more loops. Returns the total time of those with a known duration,
    /// and the size of the others in units of that step (infinite if they cannot be compared).
    pub fn after(&self, index: usize, loops: u32) -> (Duration, f64) {
        let (mut left, mut unknown) = (Duration::ZERO, 0.0);
        let Some(this) = self.steps.get(index) else {
            return (left, unknown);
        };
        for (place, step) in self.steps.iter().enumerate() {
            let times = loops + u32::from(place > index);
            match self.estimate(step) {
                _ if times == 0 => {}
                Some(estimate) => left = left.saturating_add(estimate.saturating_mul(times)),
                None => unknown += size_in_steps(this, step) * f64::from(times),
            }
        }
        (left, unknown)
    }
}

/// The size of a later step in units of this one: by the bytes that both move, else by their files. Steps of different
/// kinds cannot be compared.
fn size_in_steps(this: &PlannedStep, later: &PlannedStep) -> f64 {
    if (&this.workload, &this.mode) != (&later.workload, &later.mode) {
        return f64::INFINITY;
    }
    match (this.moved_bytes, later.moved_bytes, this.files, later.files) {
        (this, later, ..) if this > 0 && later > 0 => ratio(later, this),
        (.., this, later) if this > 0 && later > 0 => ratio(later, this),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(plan: &str) -> Arc<[PlannedStep]> {
        let plan = benchmesh_plan::parse(plan, "p.toml").expect("a good plan");
        let agents = benchmesh_plan::assumed_agents(&plan, 1);
        let expansion = benchmesh_plan::expand(&plan, &agents).expect("it expands");
        expansion.steps.into()
    }

    /// Two steps with files of other sizes, a step bounded in time, and one of another kind.
    #[test]
    fn steps_of_one_kind_are_compared_and_others_are_unknown() {
        let target = "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n";
        let small =
            "[[phase]]\nname = \"a\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
        let large = small.replace("\"a\"", "\"b\"").replace("1m", "4m");
        let timed = "[[phase]]\nname = \"c\"\nworkload = \"null\"\nruntime = \"10s\"\n";
        let files = "[[phase]]\nname = \"d\"\nworkload = \"files\"\nfiles = 1000\nsize = \"1k\"\nmodes = [\"create\"]\n";
        let mut estimates = Estimates::default();
        estimates.set_plan(steps(&format!("{target}{small}{large}{timed}")));
        let bounded = Duration::from_secs(10) + AROUND_A_STEP;
        assert_eq!(estimates.after(0, 0), (bounded, 4.0));
        // All of another loop, which includes the first step.
        assert_eq!(estimates.after(0, 1), (bounded * 2, 9.0));
        estimates.took(1, Duration::from_secs(3));
        let known = Duration::from_secs(3) + AROUND_A_STEP;
        assert_eq!(estimates.after(0, 0), (bounded + known, 0.0));
        estimates.set_plan(steps(&format!("{target}{small}{files}")));
        assert_eq!(estimates.after(0, 0), (Duration::ZERO, f64::INFINITY));
    }
}
