//! A periodic disturbance is found with its period; noise has none.

use super::*;
use crate::period::{Period, period};

const LEVEL: f64 = 1e-3;

/// Seconds of a disturbed load: autocorrelated, with bursts, a swing over hours and occasional slow seconds.
fn load(length: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::of(&[seed, 9]);
    let (mut red, mut burst) = (0.0, 0_u32);
    (0..length)
        .map(|at| {
            red = 0.9 * red + 0.015 * normal(&mut random);
            burst = match burst {
                0 if uniform(&mut random) < 0.002 => 8,
                left => left.saturating_sub(1),
            };
            let slow = if uniform(&mut random) < 0.003 {
                0.5
            } else {
                0.0
            };
            let swing = 0.02 * (at as f64 / 5000.0).sin();
            red + 0.03 * normal(&mut random) + swing + slow + if burst > 0 { 0.15 } else { 0.0 }
        })
        .collect()
}

fn disturbed(length: usize, seed: u64, every: f64, width: usize, by: f64) -> Option<Period> {
    let mut values = load(length, seed);
    let mut at = 17.3;
    while at + (width as f64) < length as f64 {
        for value in &mut values[at as usize..at as usize + width] {
            *value += by;
        }
        at += every;
    }
    period(&values, LEVEL)
}

#[test]
fn noise_has_no_period() {
    for (length, runs) in [(180, 300), (600, 300), (3600, 300), (20_000, 30)] {
        let found = (0..runs)
            .filter_map(|seed| period(&load(length, seed), LEVEL))
            .count();
        assert_eq!(found, 0, "{length}");
    }
    assert_eq!(period(&vec![0.25; 3600], LEVEL), None);
    assert_eq!(period(&[], LEVEL), None);
}

#[test]
fn a_disturbance_every_so_many_values_is_found() {
    for (length, every, width, by, least) in [
        (3600, 300.0, 3, 0.4, 19),
        (3600, 60.0, 2, 0.2, 19),
        (3600, 30.0, 1, 0.3, 19),
        (36_000, 300.0, 5, 0.15, 19),
        (36_000, 300.7, 3, 0.3, 19),
        (36_000, 1800.0, 20, 0.15, 16),
    ] {
        let found: Vec<Option<Period>> = (0..20)
            .map(|seed| disturbed(length, seed, every, width, by))
            .collect();
        let right = found
            .iter()
            .flatten()
            .filter(|one| (one.period / every - 1.0).abs() < 0.01);
        let right = right.count();
        assert!(
            right >= least,
            "{length} {every} {width} {by}: {right} of 20: {found:?}"
        );
    }
}

/// Fractions of a second, and disturbances that begin within one, included: a multiple or a part of the period is wrong.
#[test]
fn every_period_of_the_range_is_found_as_itself() {
    let planted = |length: usize, seed: u64, every: f64, lasts: f64| {
        let mut values = load(length, seed);
        let mut at = every * uniform(&mut Random::of(&[seed, 3]));
        while at + lasts + 1.0 < length as f64 {
            let first = at as usize;
            for (value, second) in values[first..=(at + lasts) as usize]
                .iter_mut()
                .zip(first..)
            {
                let from = at.max(second as f64);
                let until = (at + lasts).min(second as f64 + 1.0);
                *value += 0.4 * (until - from).max(0.0);
            }
            at += every;
        }
        period(&values, LEVEL)
    };
    let whole = (6..=60).map(f64::from);
    let all = whole.chain([6.4, 7.3, 10.7, 13.2, 33.3, 75.0, 100.0]);
    let (mut missed, mut wrong, mut tried) = (Vec::new(), Vec::new(), 0);
    for every in all {
        let length = (every * 40.0).max(300.0) as usize;
        for (seed, lasts) in [(1, 1.0), (2, 2.0_f64.min(every / 4.0)), (3, 1.0)] {
            tried += 1;
            match planted(length, seed, every, lasts) {
                Some(found) if (found.period / every - 1.0).abs() < 0.01 => {}
                Some(found) => wrong.push((every, seed, found.period)),
                None => missed.push((every, seed)),
            }
        }
    }
    assert!(
        wrong.len() <= tried / 50 && missed.len() <= tried / 20,
        "of {tried}: wrong {wrong:?}, missed {missed:?}"
    );
    // A shorter one is not told as one of its multiples.
    let shorter: Vec<f64> = [3.0, 4.0, 5.0, 5.5]
        .into_iter()
        .flat_map(|every| [1, 2, 3].map(|seed| planted(1200, seed, every, 1.0)))
        .flatten()
        .map(|found| found.period)
        .collect();
    assert!(shorter.len() <= 1, "{shorter:?}");
}
