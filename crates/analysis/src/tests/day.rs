//! The daily cycle is fitted beside a drift; noise and a new level have none.

use super::growth::{NOISES, Noise, noise};
use super::*;
use crate::day::DailyCycle;

/// Three days of the noise's points.
fn points(values: &[f64], added: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let step = 72.0 / values.len() as f64;
    let all = values.iter().enumerate();
    all.map(|(at, value)| {
        let hour = at as f64 * step;
        (hour, value + added(hour))
    })
    .collect()
}

fn swing(hour: f64) -> f64 {
    10.0 * (std::f64::consts::TAU * (hour - 7.0) / 24.0).sin()
}

#[test]
fn a_daily_swing_is_fitted_beside_a_drift() {
    let mut random = Random::of(&[1, 24]);
    let values = noise(Noise::Red(0.5), &mut random);
    let swung = points(&values, |hour| swing(hour) - 0.1 * hour);
    let found = DailyCycle::of(&swung).unwrap();
    let worst = swung
        .iter()
        .map(|(hour, _)| (found.at(*hour) - swing(*hour)).abs())
        .fold(0.0, f64::max);
    assert!(worst < 1.0, "{worst}");
    assert!((9.5..10.5).contains(&found.half_range()), "{found:?}");
    let within = |keep: fn(f64) -> bool| {
        let kept = swung.iter().filter(|(hour, _)| keep(*hour)).copied();
        DailyCycle::of(&kept.collect::<Vec<_>>())
    };
    assert!(within(|hour| hour < 48.0).is_some(), "two days");
    assert_eq!(within(|hour| hour < 46.0), None, "two days are needed");
    let outage = within(|hour| !(10.0..40.0).contains(&hour));
    assert_eq!(outage, None, "a gap of more than half a day");
    let by_day = within(|hour| hour % 24.0 < 13.0);
    assert_eq!(by_day, None, "nights without a point");
}

#[test]
fn noise_and_a_new_level_have_no_daily_cycle() {
    for kind in NOISES {
        let with_cycle = (0..200)
            .filter(|seed| {
                let mut random = Random::of(&[*seed, 24]);
                let values = noise(kind, &mut random);
                DailyCycle::of(&points(&values, |_| 0.0)).is_some()
            })
            .count();
        assert!(with_cycle <= 4, "{kind:?}: {with_cycle} of 200");
    }
    let mut random = Random::of(&[2, 24]);
    let values = noise(Noise::Red(0.5), &mut random);
    for at in [12.0, 24.0, 36.0, 60.0] {
        let level = |hour: f64| if hour < at { 0.0 } else { 10.0 };
        assert_eq!(DailyCycle::of(&points(&values, level)), None, "at {at} h");
    }
    let left = |hour: f64| match (30.0..42.0).contains(&hour) {
        true => 10.0,
        false => 0.0,
    };
    assert_eq!(DailyCycle::of(&points(&values, left)), None);
}
