//! Whether the loops so far are enough: the intervals of all loads, from the rates of the ended steps.
//!
//! Pure. Several directories: the interval of each one's ratio to the first, over pairs of the same loop. One
//! directory: the interval of its mean. Only the width of the intervals decides, never whether a difference is
//! significant: a measurement that ends as soon as chance shows a difference would find one too often.

use benchmesh_analysis::{Contrast, Figure, Layout, Load, Repeat, Side, contrasts, real, student};
use benchmesh_model::mesh::StepState;
use benchmesh_scheduler::snapshot::{StepDone, StepPlanned};
use std::collections::BTreeMap;

/// An interval of the ratio within this factor on each side is precise.
const MAX_HALF_WIDTH: f64 = 1.05;
/// So is one that reaches at most this share of the way to "no difference".
const SHARE_OF_DIFFERENCE: f64 = 0.1;
/// Level of the intervals of all loads together, as in the comparison.
const LEVEL: f64 = 0.05;
/// Loops before an interval is trusted.
const MIN_LOOPS: usize = 3;

/// The rates of one load on one target, by loop.
type Rates = BTreeMap<u32, f64>;

/// The ended steps so far.
#[derive(Debug)]
pub struct Precision {
    targets: Vec<String>,
    /// For each step of a loop, the last ordinal in the loop of its cell: if a step fails, the rest of its cell is not
    /// measured, and never reported as ended.
    cell_ends: Vec<u32>,
    /// By phase, mode and operation, and by target.
    loads: BTreeMap<(String, String, String), BTreeMap<String, Rates>>,
    last_ordinal: u32,
    /// The last step that is over, reported or not.
    reached: u32,
    /// Steps of the newest loop that were measured.
    measured: u32,
}

impl Precision {
    /// `targets`: in the order of the plan. `steps`: those of the first loop; others have the same cells for other
    /// targets.
    pub fn new(targets: Vec<String>, steps: &[StepPlanned]) -> Self {
        let cells = steps.chunk_by(|a, b| (&a.phase, &a.target) == (&b.phase, &b.target));
        let end = |cell: &[StepPlanned]| cell.last().map_or(0, |step| step.ordinal);
        Self {
            targets,
            cell_ends: cells
                .flat_map(|cell| std::iter::repeat_n(end(cell), cell.len()))
                .collect(),
            loads: BTreeMap::new(),
            last_ordinal: 0,
            reached: 0,
            measured: 0,
        }
    }

    /// Adds an ended step; one that is already known changes nothing.
    pub fn add(&mut self, step: &StepDone) {
        if step.ordinal <= self.last_ordinal {
            return;
        }
        if self.loop_of(step.ordinal) != self.loop_of(self.last_ordinal) {
            self.measured = 0;
        }
        self.last_ordinal = step.ordinal;
        self.reached = self.reached.max(step.ordinal);
        if step.state != StepState::Done {
            self.reached = self.reached.max(self.cell_end(step.ordinal));
            return;
        }
        self.measured += 1;
        let number = self.loop_of(step.ordinal);
        for op in &step.ops {
            let Some(rate) = op.ops_per_s.filter(|rate| *rate > 0.0) else {
                continue;
            };
            let key = (step.phase.clone(), step.mode.clone(), op.op.clone());
            let of_target = self.loads.entry(key).or_default();
            let rates = of_target.entry(step.target.clone()).or_default();
            rates.insert(number, rate);
        }
    }

    /// Complete loops.
    pub fn loops(&self) -> u32 {
        self.reached / self.steps_per_loop()
    }

    /// Whether a loop has just ended in which nothing was measured.
    pub fn is_fruitless(&self) -> bool {
        self.reached > 0 && self.reached.is_multiple_of(self.steps_per_loop()) && self.measured == 0
    }

    /// Whether every interval is narrow.
    pub fn is_enough(&self) -> bool {
        if self.loads.is_empty() {
            return false;
        }
        match self.targets.as_slice() {
            [only] => self.loads.values().all(|targets| {
                let rates = targets.get(only);
                rates.is_some_and(|rates| is_known(rates, self.loads.len()))
            }),
            [first, others @ ..] => others.iter().all(|other| self.is_compared(first, other)),
            [] => false,
        }
    }

    /// From 1, like the collector.
    fn loop_of(&self, ordinal: u32) -> u32 {
        ordinal.saturating_sub(1) / self.steps_per_loop() + 1
    }

    fn steps_per_loop(&self) -> u32 {
        u32::try_from(self.cell_ends.len())
            .unwrap_or(u32::MAX)
            .max(1)
    }

    /// The last ordinal of the cell of a step.
    fn cell_end(&self, ordinal: u32) -> u32 {
        let before = (self.loop_of(ordinal) - 1) * self.steps_per_loop();
        let place = usize::try_from(ordinal - before).unwrap_or(usize::MAX);
        let end = self.cell_ends.get(place.saturating_sub(1));
        end.map_or(ordinal, |end| before + end)
    }

    fn is_compared(&self, a: &str, b: &str) -> bool {
        let mut phases: Vec<&str> = Vec::new();
        let mut loads = Vec::with_capacity(self.loads.len());
        for ((phase, ..), targets) in &self.loads {
            let (Some(of_a), Some(of_b)) = (targets.get(a), targets.get(b)) else {
                return false;
            };
            let pairs = of_a.keys().filter(|number| of_b.contains_key(number));
            if pairs.count() < MIN_LOOPS {
                return false;
            }
            if !phases.contains(&phase.as_str()) {
                phases.push(phase);
            }
            loads.push(Load {
                // Loads of a phase are assumed to have the same variance, as in the comparison.
                family: phases.len(),
                a: side(of_a),
                b: side(of_b),
            });
        }
        let comparisons = real(loads.len()) * real(self.targets.len() - 1);
        let found = contrasts(Figure::Rate, &loads, Layout::InTurns);
        found.into_iter().all(|contrast| {
            contrast.is_some_and(|contrast| is_precise(&contrast, LEVEL / comparisons))
        })
    }
}

fn side(rates: &Rates) -> Side<'static> {
    let repeat = |(number, rate): (&u32, &f64)| Repeat {
        run: 1,
        number: i64::from(*number),
        value: *rate,
        resolution: 0.0,
        series: None,
    };
    Side {
        repeats: rates.iter().map(repeat).collect(),
    }
}

fn is_precise(contrast: &Contrast, level: f64) -> bool {
    let Some((low, high)) = contrast.interval(level) else {
        return false;
    };
    let reach = (high.ln() - low.ln()) / 2.0;
    reach
        <= MAX_HALF_WIDTH
            .ln()
            .max(contrast.log.abs() * SHARE_OF_DIFFERENCE)
}

/// Whether the mean of one directory's rates is known within [`MAX_HALF_WIDTH`].
fn is_known(rates: &Rates, loads: usize) -> bool {
    if rates.len() < MIN_LOOPS {
        return false;
    }
    let count = real(rates.len());
    let mean = rates.values().map(|rate| rate.ln()).sum::<f64>() / count;
    let squares: f64 = rates.values().map(|rate| (rate.ln() - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    error * student::two_sided_quantile(LEVEL / real(loads), count - 1.0) <= MAX_HALF_WIDTH.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::format::tests::done;

    /// A load with one step for each rate; `None`: the step failed.
    fn precision(targets: &[&str], loops: &[&[Option<f64>]]) -> Precision {
        let names = targets.iter().map(|&name| name.to_owned()).collect();
        let mut precision = Precision::new(names, &steps(targets, &["write"]));
        let mut ordinal = 0;
        for rates in loops {
            for (target, rate) in targets.iter().zip(*rates) {
                ordinal += 1;
                let state = match rate {
                    Some(_) => StepState::Done,
                    None => StepState::Failed,
                };
                let mut step = done(ordinal, state);
                step.target = (*target).to_owned();
                for op in &mut step.ops {
                    op.ops_per_s = *rate;
                }
                precision.add(&step);
                // The collector repeats steps after a lost connection.
                precision.add(&step);
            }
        }
        precision
    }

    #[test]
    fn a_measurement_ends_when_its_intervals_are_narrow() {
        let check = |targets: &[&str], loops: &[[f64; 2]], expected: bool| {
            let rows: Vec<Vec<Option<f64>>> = loops
                .iter()
                .map(|rates| rates.iter().map(|rate| Some(*rate)).collect())
                .collect();
            let rows: Vec<&[Option<f64>]> = rows.iter().map(Vec::as_slice).collect();
            assert_eq!(
                precision(targets, &rows).is_enough(),
                expected,
                "{targets:?} {loops:?}"
            );
        };
        let both = ["a", "b"];
        check(&both, &[[100.0, 101.0], [101.0, 101.5]], false);
        check(
            &both,
            &[[100.0, 100.5], [101.0, 101.0], [100.0, 100.2]],
            true,
        );
        // Common drift does not matter, once there are enough pairs to see it.
        let drift = [50.0, 101.0, 70.0, 130.0, 60.0, 90.0, 45.0, 110.0];
        check(&both, &drift.map(|rate| [rate, rate * 1.01]), true);
        check(
            &both,
            &[[100.0, 80.0], [101.0, 130.0], [100.0, 100.2]],
            false,
        );
        // A large difference need not be known as exactly.
        check(
            &both,
            &[[100.0, 960.0], [110.0, 1100.0], [95.0, 1000.0]],
            true,
        );
        check(
            &both[..1],
            &[[100.0, 0.0], [101.0, 0.0], [100.5, 0.0]],
            true,
        );
        check(
            &both[..1],
            &[[100.0, 0.0], [150.0, 0.0], [100.5, 0.0]],
            false,
        );
    }

    fn steps(targets: &[&str], modes: &[&str]) -> Vec<StepPlanned> {
        let cells = targets
            .iter()
            .flat_map(|target| modes.iter().map(move |mode| (target, mode)));
        (1..)
            .zip(cells)
            .map(|(ordinal, (target, mode))| StepPlanned {
                ordinal,
                target: (*target).to_owned(),
                mode: (*mode).to_owned(),
                ..StepPlanned::default()
            })
            .collect()
    }

    #[test]
    fn a_loop_whose_last_step_is_not_measured_ends_with_the_failed_one() {
        let targets = ["a", "b"].map(str::to_owned).to_vec();
        let mut precision = Precision::new(targets, &steps(&["a", "b"], &["write", "read"]));
        for (ordinal, loops) in [(1, 0), (3, 1), (5, 1), (7, 2)] {
            precision.add(&done(ordinal, StepState::Failed));
            assert_eq!(precision.loops(), loops, "after step {ordinal}");
        }
        assert!(precision.is_fruitless());
    }

    #[test]
    fn loops_without_a_measurement_are_seen() {
        let some = |rates: [f64; 2]| rates.map(Some);
        let good = some([1.0, 1.0]);
        let none = [None, None];
        let half = [Some(1.0), None];
        assert!(!precision(&["a", "b"], &[]).is_fruitless());
        assert!(!precision(&["a", "b"], &[&half]).is_fruitless());
        assert!(precision(&["a", "b"], &[&none]).is_fruitless());
        let later = precision(&["a", "b"], &[&good, &none]);
        assert!(later.is_fruitless());
        assert_eq!(later.loops(), 2);
        // A load that never worked on one of them has no interval.
        assert!(!precision(&["a", "b"], &[&half, &half, &half, &half]).is_enough());
    }
}
