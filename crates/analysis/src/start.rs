//! Start-up: the first seconds of a load, which differ from all others and would distort the noise.

use super::blocks::whole;
use super::real;

/// With fewer values, no start-up is detectable.
const MIN_VALUES: usize = 8;
/// Maximum share of a series that can be start-up.
const SHARE: f64 = 0.1;
/// Threshold, in robust standard deviations from the median of the rest.
const THRESHOLD: f64 = 3.5;

/// The number of leading values that are start-up: within the first tenth (at least one value), those before the level
/// of the rest is first reached, all on one side of it.
pub fn startup(values: &[f64]) -> usize {
    if values.len() < MIN_VALUES {
        return 0;
    }
    let most = whole((real(values.len()) * SHARE).ceil());
    let (head, rest) = values.split_at(most);
    let level = median(rest);
    let off: Vec<f64> = rest.iter().map(|value| (value - level).abs()).collect();
    // 1.4826 times the median deviation is the standard deviation of normal values.
    let reach = THRESHOLD * 1.4826 * median(&off);
    let is_apart = |value: &&f64| (**value - level).abs() > reach;
    let below = head.first().is_some_and(|first| *first < level);
    head.iter()
        .take_while(|value| is_apart(value) && (**value < level) == below)
        .count()
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
    match sorted.len() % 2 {
        0 => 0.5 * (at(half.saturating_sub(1)) + at(half)),
        _ => at(half),
    }
}
