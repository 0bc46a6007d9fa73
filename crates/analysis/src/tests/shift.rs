//! A new level is found at its place; noise, drifts and swings are not reported as one.

use super::growth::{NOISES, Noise, noise};
use super::*;
use crate::shift::{Shift, shifts};
use crate::slope::{Point, slope_of_few};

const LEVEL: f64 = 0.001;

fn found(kind: Noise, seed: u64, change: impl Fn(usize) -> f64) -> Vec<Shift> {
    let mut random = Random::of(&[seed, 77]);
    let values = noise(kind, &mut random);
    let values: Vec<f64> = values
        .iter()
        .enumerate()
        .map(|(at, value)| value + change(at))
        .collect();
    shifts(&values, LEVEL)
}

#[test]
fn noise_has_no_new_level() {
    for kind in NOISES {
        if matches!(kind, Noise::Jump | Noise::Fills) {
            continue;
        }
        let false_ones = (0..500)
            .filter(|seed| !found(kind, *seed, |_| 0.0).is_empty())
            .count();
        assert!(false_ones <= 10, "{kind:?}: {false_ones} of 500");
    }
}

#[test]
fn a_drift_is_no_new_level() {
    let drift = |at: usize| at as f64 / 16.0;
    let shown = (0..200)
        .filter(|seed| !found(Noise::Red(0.5), *seed, drift).is_empty())
        .count();
    assert!(shown <= 6, "{shown} of 200");
}

#[test]
fn a_new_level_is_found_at_its_place() {
    let step = |at: usize| if at >= 80 { 4.0 } else { 0.0 };
    let at_its_place =
        |one: &Shift| one.at.abs_diff(80) <= 2 && (3.0..5.0).contains(&(one.after - one.before));
    for (kind, least) in [(Noise::White, 198), (Noise::Red(0.5), 170)] {
        let right = (0..200).filter(|seed| {
            let found = found(kind, *seed, step);
            found.len() == 1 && at_its_place(&found[0])
        });
        let right = right.count();
        assert!(right >= least, "{kind:?}: {right} of 200");
    }
    // An hour at another level, and back.
    let there_and_back = |at: usize| if (40..80).contains(&at) { 4.0 } else { 0.0 };
    let found = found(Noise::White, 1, there_and_back);
    let places: Vec<usize> = found.iter().map(|one| one.at).collect();
    assert!(
        places.len() == 2 && places[0].abs_diff(40) <= 2 && places[1].abs_diff(80) <= 2,
        "{places:?}"
    );
}

#[test]
fn few_values_show_a_drift_only_where_it_is_plain() {
    let of = |kind: Noise, seed: u64, by: f64| {
        let values = noise(kind, &mut Random::of(&[seed, 5]));
        let points: Vec<Point> = values[..12]
            .iter()
            .enumerate()
            .map(|(at, value)| Point {
                at: at as f64,
                value: value + by * at as f64,
                stratum: 0,
            })
            .collect();
        slope_of_few(&points).unwrap()
    };
    let shown = |kind: Noise, by: f64| {
        (0..1000)
            .filter(|seed| of(kind, *seed, by).p < 0.005)
            .count()
    };
    let (white, red, drifting) = (
        shown(Noise::White, 0.0),
        shown(Noise::Red(0.5), 0.0),
        shown(Noise::White, 0.8),
    );
    assert!(
        white <= 5 && red <= 25 && drifting >= 700,
        "{white} {red} {drifting}"
    );
}
