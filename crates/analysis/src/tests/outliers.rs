//! One value unlike its peers, among daemons and clients with a realistic random scatter.

use super::*;
use crate::outliers::{Extent, LESS, MORE, Rule, outliers};

fn found(values: &[f64], rule: Rule) -> Vec<usize> {
    let matrix: Vec<_> = values.iter().map(|value| vec![Some(*value)]).collect();
    let found = outliers(&matrix, &rule, Extent::HalfOfWindows);
    found.iter().map(|outlier| outlier.entity).collect()
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
fn peers_that_do_other_work_do_not_count() {
    const RULE: Rule = Rule {
        difference: 1.0,
        min_peer: 0.02,
        ..MORE
    };
    let idle_pool = [&[12.0, 11.0, 11.5][..], &[0.0; 12]].concat();
    assert_eq!(found(&idle_pool, RULE), [0_usize; 0]);
    let matrix = [2.0, 9.0, 2.1, 1.9, 2.0, 0.0].map(|value| vec![Some(value)]);
    let all = outliers(&matrix, &RULE, Extent::HalfOfWindows);
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.entity, one.peers, one.ratio))
        .collect();
    assert_eq!(found, [(1, 4, 4.5)]);
}

#[test]
fn when_and_by_how_much_it_differs_is_found() {
    let late = |at| if at < 20 { 41.0 } else { 123.0 };
    let rows: [&dyn Fn(usize) -> f64; 4] = [&|_| 40.0, &late, &|_| 41.0, &|_| 42.0];
    let matrix = rows.map(|row| (0..60).map(|at| Some(row(at))).collect::<Vec<_>>());
    let all = outliers(&matrix, &MORE, Extent::Stretch(40));
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.entity, one.windows.clone(), one.value, one.ratio))
        .collect();
    assert_eq!(found, [(1, 20..60, 123.0, 3.0)]);
    let half = outliers(&matrix, &MORE, Extent::HalfOfWindows);
    let half: Vec<_> = half
        .iter()
        .map(|one| (one.entity, one.differing, one.judged))
        .collect();
    assert_eq!(half, [(1, 40, 60)]);
    assert!(outliers(&matrix, &MORE, Extent::Stretch(41)).is_empty());
}
