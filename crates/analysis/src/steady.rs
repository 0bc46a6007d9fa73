//! Decides whether a load is in steady state, from the values of the newest time window.
//!
//! The rules are those of fio (`ss`) and of SNIA's Solid State Storage Performance Test Specification: the values of
//! five rounds lie within 20 % of their mean, and the best linear fit changes by at most 10 % of the mean over the
//! rounds.

use super::real;

/// Number of rounds of SNIA's rule.
pub const ROUNDS: usize = 5;
/// SNIA's limits, as shares of the mean: the range (largest minus smallest value), and the change of the fit over the
/// rounds.
pub const ROUNDS_RANGE: f64 = 0.20;
pub const ROUNDS_CHANGE: f64 = 0.10;

/// A criterion for steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// SNIA's rule; each value is one round.
    Rounds,
    /// fio's rule: no value is further from the mean than the limit.
    Deviation(Limit),
    /// fio's rule: the fit changes by less than the limit from one value to the next.
    Slope(Limit),
}

/// A limit in the unit of the values, or as a share of their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    Share(f64),
    Amount(f64),
}

impl Limit {
    fn amount(self, mean: f64) -> f64 {
        match self {
            Self::Share(share) => share * mean,
            Self::Amount(amount) => amount,
        }
    }
}

/// The values of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    pub mean: f64,
    /// Largest minus smallest value.
    pub range: f64,
    /// Largest distance of a value from the mean.
    pub deviation: f64,
    /// Slope of the best linear fit, per value.
    pub slope: f64,
    /// Absolute change of the fit over the window.
    pub change: f64,
}

/// Returns `None` for fewer than two values.
pub fn window(values: &[f64]) -> Option<Window> {
    if values.len() < 2 {
        return None;
    }
    let n = real(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let middle = (n - 1.0) / 2.0;
    let (mut products, mut squares, mut deviation) = (0.0, 0.0, 0.0_f64);
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for (at, value) in values.iter().enumerate() {
        let at = real(at) - middle;
        products += at * (value - mean);
        squares += at * at;
        deviation = deviation.max((value - mean).abs());
        least = least.min(*value);
        most = most.max(*value);
    }
    let slope = products / squares;
    Some(Window {
        mean,
        range: most - least,
        deviation,
        slope,
        change: slope.abs() * (n - 1.0),
    })
}

impl Rule {
    /// Whether the criterion holds. An idle load is not steady.
    pub fn holds(self, window: &Window) -> bool {
        let mean = window.mean;
        mean > 0.0
            && match self {
                Self::Rounds => {
                    window.range <= ROUNDS_RANGE * mean && window.change <= ROUNDS_CHANGE * mean
                }
                Self::Deviation(limit) => window.deviation < limit.amount(mean),
                Self::Slope(limit) => window.slope.abs() < limit.amount(mean),
            }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_workloads::random::Random;

    const SHARE: Limit = Limit::Share(0.05);

    /// The number of values after which a rule first holds over the newest `size` of them; `None` if it never does.
    fn reached(rule: Rule, size: usize, values: impl IntoIterator<Item = f64>) -> Option<usize> {
        let values: Vec<f64> = values.into_iter().collect();
        let mut windows = values.windows(size);
        let at = windows.position(|values| rule.holds(&window(values).unwrap()))?;
        Some(at + size)
    }

    fn noisy(spread: f64) -> impl Iterator<Item = f64> {
        let mut random = Random::new(7);
        (0..600).map(move |_| {
            let share = f64::from(u32::try_from(random.below(1_000_001)).unwrap()) / 1e6;
            1000.0 * (1.0 + spread * (2.0 * share - 1.0))
        })
    }

    #[test]
    fn a_flat_series_is_steady_as_soon_as_the_window_is_full() {
        for rule in [Rule::Rounds, Rule::Deviation(SHARE), Rule::Slope(SHARE)] {
            assert_eq!(reached(rule, 5, [1000.0; 20]), Some(5), "{rule:?}");
            assert_eq!(
                reached(rule, 5, [0.0; 20]),
                None,
                "nothing is done: {rule:?}"
            );
        }
    }

    #[test]
    fn noise_within_the_limit_is_steady_and_noise_beyond_it_is_not() {
        assert_eq!(reached(Rule::Deviation(SHARE), 60, noisy(0.04)), Some(60));
        assert_eq!(reached(Rule::Deviation(SHARE), 60, noisy(0.2)), None);
        // The slope of noise is small, whatever the noise's amplitude.
        let slope = Rule::Slope(Limit::Share(0.002));
        assert_eq!(reached(slope, 60, noisy(0.04)), Some(60));
        let rounds = |spread| noisy(spread).collect::<Vec<_>>();
        let wide = rounds(0.5);
        assert_eq!(
            reached(Rule::Rounds, 5, wide.iter().take(20).copied()),
            None
        );
        assert_eq!(reached(Rule::Rounds, 5, rounds(0.02)), Some(5));
    }

    #[test]
    fn a_decay_is_not_steady_until_it_is_over() {
        // A solid state disk from fresh to full: from 4000 to 1000, the distance shrinking by a factor of 0.9 for each
        // value.
        let decay = || (0..120).map(|at| 1000.0 + 3000.0 * 0.9_f64.powi(at));
        let rounds = reached(Rule::Rounds, 5, decay()).unwrap();
        assert!((20..30).contains(&rounds), "{rounds}");
        let slope = reached(Rule::Slope(Limit::Share(0.01)), 10, decay()).unwrap();
        assert!((33..43).contains(&slope), "{slope}");
        let endless = (0..600).map(|at| 1e6 * 0.9_f64.powi(at));
        assert_eq!(reached(Rule::Rounds, 5, endless), None);
    }

    #[test]
    fn a_series_that_falls_within_its_range_is_refused_by_its_slope() {
        // Falls by 15 % from first to last: within the range of 20 %, but the fit falls by more than 10 %.
        let falling = [1075.0, 1037.5, 1000.0, 962.5, 925.0];
        let values = window(&falling).unwrap();
        assert!(values.range <= ROUNDS_RANGE * values.mean);
        assert!((values.slope + 37.5).abs() < 1e-9 && (values.change - 150.0).abs() < 1e-9);
        assert!(!Rule::Rounds.holds(&values));
        assert!((values.mean - 1000.0).abs() < 1e-9 && (values.deviation - 75.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_is_not_steady_until_the_window_has_left_it_behind() {
        let step = || (0..40).map(|at| if at < 10 { 2000.0 } else { 1000.0 });
        let late = step().skip(8);
        assert_eq!(reached(Rule::Rounds, 5, late), Some(7));
        assert_eq!(reached(Rule::Deviation(SHARE), 12, step()), Some(22));
        // Alternating levels are never steady.
        let turns = (0..100).map(|at| if at / 3 % 2 == 0 { 2000.0 } else { 1000.0 });
        assert_eq!(reached(Rule::Deviation(SHARE), 12, turns), None);
    }

    #[test]
    fn a_limit_may_be_an_amount() {
        let values = window(&[100.0, 104.0, 96.0]).unwrap();
        assert!(Rule::Deviation(Limit::Amount(5.0)).holds(&values));
        assert!(!Rule::Deviation(Limit::Amount(4.0)).holds(&values));
        assert!(Rule::Slope(Limit::Amount(2.1)).holds(&values));
        assert_eq!(window(&[1.0]), None);
    }
}
