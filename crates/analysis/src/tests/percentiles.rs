//! Percentiles of repeats that do not differ: how often an interval contains the true ratio. Each repeat has its own
//! histogram, from service times or from the response times of a queue, and one repeat may be bad.

#![expect(
    clippy::print_stderr,
    reason = "the rates that were found are read in the test's output"
)]

use super::*;

/// Relative standard deviation of a repeat's level.
const CV: f64 = 0.1;
/// Operations of a repeat.
const OPS: usize = 600;
const PLANS: usize = 800;
/// The share of a queue's time in which it serves, at the mean level.
const BUSY: f64 = 0.5;
/// A bad repeat: one in this many operations takes this many times as long.
const BAD: (usize, f64) = (20, 30.0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Service,
    /// From the instants when operations of a paced load were due.
    Response,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    None,
    /// Of either side, at random.
    OneRepeat,
}

/// The percentile of one repeat, in nanoseconds.
fn percentile(
    figure: Figure,
    times: Times,
    is_bad: bool,
    shapes: &[f64],
    random: &mut Random,
) -> f64 {
    let level = (CV * normal(random)).exp();
    let mut histogram = Histogram::new();
    let mut waits = 0.0_f64;
    for number in 0..OPS {
        let shape = shapes[random.below(shapes.len() as u64) as usize];
        let slow = match is_bad && number % BAD.0 == 0 {
            true => BAD.1,
            false => 1.0,
        };
        let service = 1e6 * level * shape * slow;
        let time = match times {
            Times::Service => service,
            Times::Response => waits + service,
        };
        waits = (waits + service - 1e6 / BUSY).max(0.0);
        histogram.record(time as u64);
    }
    histogram.quantile(figure.quantile().unwrap()) as f64
}

/// Percentage of plans whose interval contains 1.
fn coverage(
    figure: Figure,
    times: Times,
    disturbance: Disturbance,
    repeats_each: usize,
    layout: Layout,
    plans: usize,
) -> f64 {
    let mut random = Random::new(51);
    let shapes: Vec<f64> = (0..4096)
        .map(|_| (0.4 * normal(&mut random)).exp())
        .collect();
    let covered = (0..plans).filter(|_| {
        let bad = match disturbance {
            Disturbance::None => None,
            Disturbance::OneRepeat => Some(random.below(2 * repeats_each as u64) as usize),
        };
        let mut number = 0;
        let mut side = || -> Side<'static> {
            let values: Vec<f64> = (0..repeats_each)
                .map(|_| {
                    number += 1;
                    let is_bad = bad == Some(number - 1);
                    percentile(figure, times, is_bad, &shapes, &mut random)
                })
                .collect();
            let mut side = repeats(&values);
            for repeat in &mut side.repeats {
                repeat.resolution = figure.resolution();
            }
            side
        };
        let (a, b) = (side(), side());
        let found = one(figure, a, b, layout).interval(ALPHA).unwrap();
        found.0 <= 1.0 && 1.0 <= found.1
    });
    100.0 * covered.count() as f64 / plans as f64
}

/// 95 % less two standard errors of 800 plans. A bad repeat widens the interval more than it moves the ratio.
#[test]
fn intervals_of_percentiles_cover_the_ratio_in_any_number_of_repeats() {
    const LEAST: f64 = 93.4;
    for layout in [Layout::Apart, Layout::InTurns] {
        for times in [Times::Service, Times::Response] {
            for disturbance in [Disturbance::None, Disturbance::OneRepeat] {
                let figure = Figure::P99;
                let found =
                    [2, 3, 5, 10].map(|n| coverage(figure, times, disturbance, n, layout, PLANS));
                let what =
                    format!("{layout:?}, {times:?}, disturbed: {disturbance:?}: {found:?} %");
                eprintln!("{what}");
                assert!(found.iter().all(|one| *one >= LEAST), "{what}");
            }
        }
    }
    // The p99.9 of 600 operations is their maximum.
    let (times, layout) = (Times::Service, Layout::Apart);
    for figure in [Figure::P90, Figure::P95, Figure::P999] {
        let found =
            [2, 5].map(|n| coverage(figure, times, Disturbance::None, n, layout, 4 * PLANS));
        let what = format!("{figure:?}: {found:?} %");
        eprintln!("{what}");
        assert!(found.iter().all(|one| *one >= LEAST), "{what}");
    }
}

/// The level that is shown and the ratio that is judged are the same, also of runs with different numbers of repeats.
#[test]
fn a_ratio_is_that_of_the_levels() {
    let runs = |values: &[(i64, f64)]| -> Side<'static> {
        let mut side = repeats(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        for (repeat, (run, _)) in side.repeats.iter_mut().zip(values) {
            repeat.run = *run;
        }
        side
    };
    let a = [(1, 100.0), (1, 400.0), (2, 300.0)];
    let b = [(3, 50.0), (3, 60.0)];
    let levels = [&a[..], &b[..]].map(|side| level(side.iter().copied()).unwrap());
    // The runs of A are at 200 and 300.
    assert!((levels[0] - 60_000.0_f64.sqrt()).abs() < 1e-9, "{levels:?}");
    let found = one(Figure::P99, runs(&a), runs(&b), Layout::Apart);
    assert!((found.log.exp() - levels[1] / levels[0]).abs() < 1e-12);
    assert_eq!(level([(1, 0.0), (1, 2.0)].into_iter()), None);
    assert_eq!(level(std::iter::empty()), None);
}
