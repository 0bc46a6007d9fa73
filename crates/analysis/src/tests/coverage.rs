//! Error rates of comparisons: false alarms on loads that do not differ, and missed true differences. The noise is that
//! of a recorded disk.

use super::*;
use crate::blocks::dependence;

const PAIRS: usize = 200;

/// The first-order autoregression of the recorded series: its correlation and relative deviation.
fn fitted() -> (f64, f64) {
    let logs: Vec<f64> = recorded().iter().map(|rate| rate.ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let off: Vec<f64> = logs.iter().map(|log| log - mean).collect();
    let variance: f64 = off.iter().map(|value| value * value).sum();
    let next: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
    (next / variance, (variance / logs.len() as f64).sqrt())
}

/// A run with the fitted noise; its latencies grow as its rate falls.
fn generated(level: f64, seconds: usize, noise: (f64, f64), random: &mut Random) -> Series {
    let (correlation, deviation) = noise;
    let mut state = normal(random);
    let seconds: Vec<Second> = (0..seconds)
        .map(|_| {
            let rate = level * (deviation * state).exp();
            state = correlation * state + (1.0 - correlation * correlation).sqrt() * normal(random);
            second(rate)
        })
        .collect();
    Series::new(&seconds)
}

/// A second with latencies spread evenly on a logarithmic scale between half and three times their mean.
fn second(rate: f64) -> Second {
    let mean = 1e9 / rate;
    let latencies = (0..40).map(|place| {
        let ns = mean * 0.5 * 6_f64.powf(f64::from(place) / 39.0);
        let slot = (ns.ln() * 128.0).floor();
        Slot {
            lowest_ns: (slot / 128.0).exp() as u64,
            highest_ns: ((slot + 1.0) / 128.0).exp() as u64 - 1,
            count: 5,
        }
    });
    Second {
        span_us: 1e6,
        ops: rate,
        sum_ns: rate * mean,
        latencies: latencies.collect(),
    }
}

/// The corrected p values of these figures of two runs.
fn compared(figures: &[Figure], a: &Series, b: &Series) -> Vec<f64> {
    // A run too short for an estimate of its noise has no p value.
    let values: Vec<f64> = figures
        .iter()
        .filter_map(|figure| single_runs(*figure, a, b).p())
        .collect();
    holm(&values, ALPHA).iter().map(|one| one.p).collect()
}

fn alarms(seconds: usize, noise: (f64, f64), seed: u64) -> usize {
    let mut random = Random::new(seed);
    (0..PAIRS)
        .filter(|_| {
            let a = generated(200.0, seconds, noise, &mut random);
            let b = generated(200.0, seconds, noise, &mut random);
            compared(&Figure::ALL, &a, &b).iter().any(|p| *p < ALPHA)
        })
        .count()
}

/// 5 % of 200.
const MAX_ALARMS: usize = 10;

#[test]
fn loads_that_do_not_differ_raise_no_alarm_with_the_noise_of_a_disk() {
    for seconds in [120, 600] {
        let alarms = alarms(seconds, fitted(), 11);
        assert!(
            alarms <= MAX_ALARMS,
            "{alarms} of {PAIRS} pairs of {seconds} s, {:?}",
            fitted()
        );
    }
}

#[test]
fn loads_that_do_not_differ_raise_no_alarm_with_strongly_dependent_noise() {
    let alarms = alarms(300, (0.85, 0.1), 12);
    assert!(alarms <= MAX_ALARMS, "{alarms} of {PAIRS} pairs");
}

/// The rate of this disk varies by 14 % from second to second, and its seconds are autocorrelated: by the standard
/// formula for a first-order autoregression, a power of 80 % needs about 1100 s.
#[test]
fn five_percent_are_found_with_the_noise_of_a_disk() {
    let mut random = Random::new(13);
    let listed = [Figure::Rate, Figure::Mean, Figure::P50, Figure::P99];
    let found = (0..PAIRS)
        .filter(|_| {
            let a = generated(200.0, 1500, fitted(), &mut random);
            let b = generated(190.0, 1500, fitted(), &mut random);
            compared(&listed, &a, &b).iter().any(|p| *p < ALPHA)
        })
        .count();
    assert!(found * 100 >= 80 * PAIRS, "{found} of {PAIRS}");
}

/// A test that assumes independent seconds does raise alarms here, so the tests above can fail.
#[test]
fn the_noise_of_the_disk_is_dependent() {
    let dependence = dependence(&recorded());
    assert!(dependence.inflation > 1.5, "{dependence:?}");
    assert!(dependence.block > 1.5, "{dependence:?}");
}
