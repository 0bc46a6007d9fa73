//! Slopes beneath a swing that comes again every day.

use super::growth::{NOISES, Noise, noise};
use super::*;
use crate::slope::{Point, Slope, slope_of_days};

/// Of a day; noise has 128 points, three days and a little.
const PER_DAY: usize = 42;

/// With a swing of ten times the noise, and a slope per day.
fn found(kind: Noise, per_day: f64, random: &mut Random) -> Slope {
    let phase = 6.0 * uniform(random);
    let points: Vec<Point> = noise(kind, random)
        .into_iter()
        .enumerate()
        .map(|(place, noise)| {
            let day = place as f64 / PER_DAY as f64;
            let swing = 10.0 * (std::f64::consts::TAU * day + phase).sin();
            Point {
                at: 24.0 * day,
                value: swing + noise + per_day * day,
                stratum: place % PER_DAY,
            }
        })
        .collect();
    slope_of_days(&points).unwrap()
}

#[test]
fn clean_days_have_no_slope() {
    const SERIES: usize = 400;
    for kind in NOISES {
        // A cache that fills and a jump are growth.
        if matches!(kind, Noise::Fills | Noise::Jump) {
            continue;
        }
        let mut random = Random::new(11);
        let shown = (0..SERIES).filter(|_| found(kind, 0.0, &mut random).p < 0.01);
        let shown = shown.count();
        assert!(shown <= SERIES / 50, "{kind:?}: {shown} of {SERIES}");
    }
}

#[test]
fn a_slope_smaller_than_the_swing_is_shown_with_its_interval() {
    const SERIES: usize = 200;
    for (kind, per_day) in [(Noise::White, 0.7), (Noise::Red(0.5), 1.4)] {
        let mut random = Random::new(12);
        let all: Vec<Slope> = (0..SERIES)
            .map(|_| found(kind, per_day, &mut random))
            .collect();
        let shown = all.iter().filter(|found| found.p < 0.01).count();
        assert!(shown * 10 >= SERIES * 9, "{kind:?}: {shown} of {SERIES}");
        let covers = |found: &&Slope| {
            let (low, high) = found.interval(0.05);
            (low..=high).contains(&(per_day / 24.0))
        };
        let covered = all.iter().filter(covers).count();
        assert!(covered * 100 >= SERIES * 94, "{kind:?}: {covered}");
    }
}

#[test]
fn points_without_another_day_are_too_few() {
    let points: Vec<Point> = (0..PER_DAY + 10)
        .map(|place| Point {
            at: place as f64,
            value: 1.0,
            stratum: place % PER_DAY,
        })
        .collect();
    assert!(slope_of_days(&points).is_none());
}
