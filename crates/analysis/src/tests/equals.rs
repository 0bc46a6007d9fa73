//! One value unlike its equals, among daemons and clients with a realistic random scatter.

use super::*;
use crate::equals::{LESS, MORE, Rule, since, unlike};

fn found(values: &[f64], rule: Rule) -> Vec<usize> {
    let places = 0..values.len();
    places
        .filter(|place| unlike(values, *place, rule).is_some())
        .collect()
}

#[test]
fn at_most_one_of_a_hundred_clean_runs_has_an_outlier() {
    let mut random = Random::new(81);
    let mut hits = 0;
    for run in 0..100 {
        // Placement groups and chance: equals differ by up to a fifth.
        let scatter = 0.02 + 0.18 * f64::from(run % 10) / 9.0;
        let draw = |count: usize, random: &mut Random| -> Vec<f64> {
            (0..count)
                .map(|_| 40.0 * (scatter * normal(random)).exp())
                .collect()
        };
        for count in [3, 4, 12, 40] {
            let values = draw(count, &mut random);
            hits += found(&values, MORE).len();
        }
        let clients: Vec<f64> = draw(12, &mut random).iter().map(|v| v.sqrt()).collect();
        hits += found(&clients, LESS).len();
    }
    assert!(hits <= 1, "{hits}");
}

#[test]
fn three_times_the_cpu_and_half_the_rate_are_found() {
    let mut random = Random::new(82);
    for count in [4, 12, 40] {
        for _ in 0..50 {
            let mut values: Vec<f64> = (0..count)
                .map(|_| 40.0 * (0.1 * normal(&mut random)).exp())
                .collect();
            values[2] = 124.0;
            assert_eq!(found(&values, MORE), [2], "{values:?}");
            let mut rates: Vec<f64> = (0..count)
                .map(|_| 1000.0 * (0.03 * normal(&mut random)).exp())
                .collect();
            rates[1] = 500.0;
            assert_eq!(found(&rates, LESS), [1], "{rates:?}");
        }
    }
    assert_eq!(found(&[40.0, 42.0, 130.0], MORE), [2]);
    assert_eq!(found(&[40.0, 42.0, 100.0], MORE), [0_usize; 0]);
    assert_eq!(found(&[40.0, 125.0], MORE), [0_usize; 0]);
}

#[test]
fn the_moment_from_which_it_was_is_found() {
    let pairs: Vec<(f64, f64)> = (0..60)
        .map(|at| if at < 20 { (40.0, 41.0) } else { (120.0, 40.0) })
        .collect();
    assert_eq!(since(&pairs, MORE), Some(20));
    assert_eq!(since(&pairs[..20], MORE), None);
    assert_eq!(since(&pairs[20..], MORE), Some(0));
}
