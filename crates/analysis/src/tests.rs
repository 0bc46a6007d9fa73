#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]

mod coverage;
mod day;
mod growth;
mod independent;
mod outliers;
mod percentiles;
mod period;
mod planted;
mod shift;

use super::change::changes;
use super::contrast::{Contrast, contrasts};
use super::correct::holm;
use super::effect::effect_size;
use super::estimate::{ALPHA, within};
use super::series::{Figure, Second, Series};
use super::student;
use super::units::{Layout, Load, Noise, Repeat, Side, level};
use benchmesh_workloads::histogram::{Histogram, Slot};
use benchmesh_workloads::random::Random;

/// Operations per second of 4 KiB direct random writes on a disk: fio 3.33, psync, one job, averaged over
/// each second. A virtual disk with nothing else on its machine.
const RECORDED: &str = include_str!("tests/disk.txt");

fn recorded() -> Vec<f64> {
    RECORDED.lines().map(|line| line.parse().unwrap()).collect()
}

/// Uniform in 0..1.
fn uniform(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}

/// Seconds with these numbers of operations; service times are a mixture of two lognormal distributions.
fn seconds(rates: &[f64], random: &mut Random) -> Vec<Second> {
    with_latencies(rates, random).0
}

/// As [`seconds`], also returning the service times of each second.
fn with_latencies(
    rates: &[f64],
    random: &mut Random,
) -> (Vec<Second>, Vec<Histogram>, Vec<Vec<f64>>) {
    let mut all = (Vec::new(), Vec::new(), Vec::new());
    for rate in rates {
        let mut latencies = Histogram::new();
        let mut times = Vec::new();
        for _ in 0..rate.round().max(1.0) as u64 {
            let scale = if uniform(random) < 0.5 { 0.6 } else { 0.8 };
            let ns = 1e9 / rate * scale * (0.4 * normal(random)).exp();
            times.push(ns);
            latencies.record(ns as u64);
        }
        all.0.push(Second {
            span_us: 1e6,
            ops: times.len() as f64,
            sum_ns: times.iter().sum(),
            latencies: latencies.filled_slots().collect(),
        });
        all.1.push(latencies);
        all.2.push(times);
    }
    all
}

/// A side with one run of these repeats.
fn repeats(values: &[f64]) -> Side<'static> {
    let repeats = (1..).zip(values).map(|(number, value)| Repeat {
        run: 1,
        number,
        value: *value,
        resolution: 0.0,
        series: None,
    });
    Side {
        repeats: repeats.collect(),
    }
}

/// A side with one run that has only seconds.
fn seconds_of(figure: Figure, series: &Series) -> Side<'_> {
    let value = series.figure(figure, &[(0, series.len())]).unwrap();
    Side {
        repeats: vec![Repeat {
            run: 1,
            number: 1,
            value,
            resolution: figure.resolution(),
            series: Some(series),
        }],
    }
}

fn one(figure: Figure, a: Side<'_>, b: Side<'_>, layout: Layout) -> Contrast {
    contrasts(figure, &[Load { family: 0, a, b }], layout)[0].unwrap()
}

fn single_runs(figure: Figure, a: &Series, b: &Series) -> Contrast {
    one(
        figure,
        seconds_of(figure, a),
        seconds_of(figure, b),
        Layout::Apart,
    )
}

#[test]
fn figures_of_a_stretch_are_those_of_its_seconds() {
    let mut random = Random::new(1);
    let (seconds, histograms, _) = with_latencies(&[100.0, 200.0, 400.0, 50.0], &mut random);
    let series = Series::new(&seconds);
    let rate = |stretches: &[(usize, usize)]| series.figure(Figure::Rate, stretches).unwrap();
    assert_eq!(rate(&[(0, 4)]), 187.5);
    assert_eq!(rate(&[(1, 2)]), 300.0);
    assert_eq!(rate(&[(3, 2)]), 75.0, "goes on at the begin");
    assert_eq!(rate(&[(2, 1), (2, 1), (0, 1)]), 300.0);
    let mut merged = Histogram::new();
    for second in [&histograms[3], &histograms[0], &histograms[1]] {
        merged.add(second);
    }
    let percentiles = Figure::ALL
        .into_iter()
        .filter_map(|figure| Some((figure, figure.quantile()?)));
    for (figure, quantile) in percentiles {
        let ours = series.figure(figure, &[(3, 2), (1, 1)]).unwrap();
        let expected = merged.quantile(quantile) as f64;
        assert!((ours / expected - 1.0).abs() < 0.009, "{ours} {expected}");
    }
    assert_eq!(Series::new(&[]).figure(Figure::Rate, &[(0, 0)]), None);
}

#[test]
fn the_noise_is_that_between_the_largest_units_that_are_repeated() {
    // A known regression: one slow second within each repeat must not hide it.
    let mut random = Random::new(2);
    let mut rates = vec![700.0; 20];
    rates[0] = 90.0;
    let slow_start = Series::new(&seconds(&rates, &mut random));
    let mut sides = [
        repeats(&[729.0, 711.0, 700.0]),
        repeats(&[648.0, 631.0, 623.0]),
    ];
    for repeat in sides.iter_mut().flat_map(|side| &mut side.repeats) {
        repeat.series = Some(&slow_start);
    }
    let [a, b] = sides;
    let found = one(Figure::Rate, a, b, Layout::Apart);
    let (low, high) = found.interval(ALPHA).unwrap();
    assert_eq!(found.noise, Noise::Repeats);
    assert!(
        (0.84..0.86).contains(&low) && (0.92..0.94).contains(&high),
        "{low} {high}"
    );
    assert!(found.p().unwrap() < 0.003, "{found:?}");
    // Each of two runs has its own level, which the repeats within one run cannot reveal.
    let mut a = repeats(&[100.0, 101.0, 102.0, 120.0, 121.0, 122.0]);
    let mut b = repeats(&[130.0, 131.0, 132.0]);
    for (place, repeat) in a.repeats.iter_mut().enumerate() {
        repeat.run = i64::try_from(place / 3).unwrap();
    }
    b.repeats.iter_mut().for_each(|repeat| repeat.run = 9);
    let between_runs = one(Figure::Rate, a, b, Layout::Apart);
    assert_eq!(between_runs.noise, Noise::Runs);
    assert_eq!(between_runs.error.unwrap().degrees, 1.0);
    assert!(between_runs.p().unwrap() > 0.2, "{between_runs:?}");
}

#[test]
fn start_up_is_no_noise() {
    let mut random = Random::new(31);
    let mut rates: Vec<f64> = (0..60)
        .map(|_| 200.0 * (1.0 + 0.02 * normal(&mut random)))
        .collect();
    let steady = Series::new(&seconds(&rates, &mut random));
    for (place, rate) in [20.0, 90.0, 150.0].into_iter().enumerate() {
        rates[place] = rate;
    }
    let with_start = Series::new(&seconds(&rates, &mut random));
    assert_eq!(with_start.len(), 57);
    let error = |series| within(Figure::Rate, series, 1).unwrap().log;
    assert!(
        error(&with_start) < 1.5 * error(&steady),
        "{} {}",
        error(&with_start),
        error(&steady)
    );
    // A stretch in the middle, or longer than a tenth, is not start-up.
    rates.rotate_right(30);
    assert_eq!(Series::new(&seconds(&rates, &mut random)).len(), 60);
}

/// Seconds of an autoregression: three to seven of them give a wide interval.
#[test]
fn a_run_of_a_few_seconds_has_a_wide_interval() {
    let mut random = Random::new(32);
    let mut run = |level: f64, count: usize| -> Series {
        let mut state = normal(&mut random);
        let rates: Vec<f64> = (0..count)
            .map(|_| {
                state = 0.5 * state + 0.866 * normal(&mut random);
                level * (0.1 * state).exp()
            })
            .collect();
        Series::new(&seconds(&rates, &mut random))
    };
    for count in [3, 5, 7] {
        let mut alarms = 0;
        let mut found = 0;
        for _ in 0..200 {
            let (a, b, far) = (run(100.0, count), run(100.0, count), run(1200.0, count));
            alarms += usize::from(single_runs(Figure::Rate, &a, &b).p().unwrap() < ALPHA);
            found += usize::from(single_runs(Figure::Rate, &a, &far).p().unwrap() < ALPHA);
        }
        assert!(
            alarms <= 14 && found >= 199,
            "{count} s: {alarms} and {found} of 200"
        );
    }
    let (a, b) = (run(100.0, 2), run(900.0, 2));
    assert_eq!(single_runs(Figure::Rate, &a, &b).error, None);
}

#[test]
fn too_few_repeats_say_how_many_would_do() {
    let few = one(
        Figure::Rate,
        repeats(&[100.0, 120.0]),
        repeats(&[115.0, 98.0]),
        Layout::Apart,
    );
    assert!(few.p().unwrap() > ALPHA);
    let more = few.more(1.2, ALPHA).unwrap();
    assert!((2..=6).contains(&more), "{more}");
    let wild = one(
        Figure::Rate,
        repeats(&[100.0, 900.0]),
        repeats(&[115.0, 9.0]),
        Layout::Apart,
    );
    assert_eq!(wild.more(1.2, ALPHA), None);
}

#[test]
fn equal_repeats_are_known_to_the_resolution_of_their_clock() {
    let side = |value: f64| {
        let mut side = repeats(&[value; 3]);
        side.repeats
            .iter_mut()
            .for_each(|repeat| repeat.resolution = 0.01);
        side
    };
    let near = one(Figure::Rate, side(100.0), side(100.3), Layout::Apart);
    assert!(near.p().unwrap() > ALPHA, "{near:?}");
    let far = one(Figure::Rate, side(100.0), side(110.0), Layout::Apart);
    assert!(
        far.p().unwrap() > 0.0 && far.p().unwrap() < 0.001,
        "{far:?}"
    );
}

#[test]
fn the_same_data_give_the_same_answer() {
    let make = || Series::new(&seconds(&recorded(), &mut Random::new(3)));
    let (a, b) = (make(), make());
    for figure in Figure::ALL {
        assert_eq!(within(figure, &a, 5), within(figure, &b, 5));
        let same = single_runs(figure, &a, &b);
        let (low, high) = same.interval(ALPHA).unwrap();
        assert!(same.log == 0.0 && same.p().unwrap() > 0.99 && low < 1.0 && high > 1.0);
    }
}

#[test]
fn corrected_values_never_fall_and_never_exceed_one() {
    let corrected =
        |values: &[f64]| -> Vec<f64> { holm(values, ALPHA).iter().map(|one| one.p).collect() };
    assert_eq!(corrected(&[]), Vec::<f64>::new());
    assert_eq!(corrected(&[0.01]), [0.01]);
    let expected = [0.09, 0.04, 0.09, 0.9];
    for (ours, expected) in corrected(&[0.04, 0.01, 0.03, 0.9]).iter().zip(expected) {
        assert!((ours - expected).abs() < 1e-12);
    }
    assert_eq!(corrected(&[0.6, 0.7]), [1.0, 1.0]);
}

/// A verdict never contradicts its interval.
#[test]
fn an_interval_leaves_out_1_exactly_where_a_difference_is_shown() {
    let mut random = Random::new(33);
    for _ in 0..500 {
        let loads: Vec<Load<'_>> = (0..random.below(12) + 1)
            .map(|_| {
                let mut side = |level: f64| -> Side<'static> {
                    let values: Vec<f64> = (0..3)
                        .map(|_| level * (0.05 * normal(&mut random)).exp())
                        .collect();
                    repeats(&values)
                };
                Load {
                    family: 0,
                    a: side(100.0),
                    b: side(90.0),
                }
            })
            .collect();
        let found = contrasts(Figure::Rate, &loads, Layout::Apart);
        let p: Vec<f64> = found.iter().map(|one| one.unwrap().p().unwrap()).collect();
        for (one, corrected) in found.iter().zip(holm(&p, ALPHA)) {
            let (low, high) = one.unwrap().interval(corrected.level).unwrap();
            assert_eq!(
                corrected.p < ALPHA,
                low > 1.0 || high < 1.0,
                "{corrected:?} {low} {high}"
            );
        }
    }
}

#[test]
fn a_level_that_moved_is_found_and_an_outlier_is_none() {
    let mut random = Random::new(4);
    let mut noisy = |level: f64, count: usize| -> Vec<f64> {
        (0..count)
            .map(|_| level * (1.0 + 0.02 * normal(&mut random)))
            .collect()
    };
    let mut history = noisy(100.0, 12);
    history.extend(noisy(80.0, 10));
    history.extend(noisy(95.0, 12));
    let found = changes(&history, 1);
    let at: Vec<usize> = found.iter().map(|change| change.at).collect();
    assert_eq!(at, [12, 22], "{found:?}");
    assert!((found[0].before / 100.0 - 1.0).abs() < 0.02);
    assert!((found[0].after / 80.0 - 1.0).abs() < 0.02);
    let mut steady = noisy(100.0, 30);
    steady[17] = 20.0;
    assert_eq!(changes(&steady, 1), []);
    assert_eq!(changes(&[1.0, 2.0], 1), []);
    // Seven and three values have too few permutations, but the change is obvious.
    let mut history = noisy(100.0, 7);
    history.extend(noisy(50.0, 3));
    let at: Vec<usize> = changes(&history, 1)
        .iter()
        .map(|change| change.at)
        .collect();
    assert_eq!(at, [7]);
    assert_eq!(changes(&[100.0; 12], 1), []);
}

#[test]
fn changes_are_rare_where_there_are_none() {
    let mut random = Random::new(5);
    let false_alarms = (0..200)
        .filter(|seed| {
            let values: Vec<f64> = (0..20).map(|_| normal(&mut random).exp()).collect();
            !changes(&values, *seed).is_empty()
        })
        .count();
    assert!(false_alarms <= 6, "{false_alarms} of 200 at a level of 1 %");
}
