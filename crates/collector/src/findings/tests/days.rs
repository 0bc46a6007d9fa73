//! Runs of three days whose rates swing over the day, by their minutes: without a database.

use super::super::beside::Events;
use super::super::drift::Drifts;
use super::super::seconds::{Line, Second};
use super::super::steps::Step;
use super::*;
use benchmesh_workloads::random::Random;
use std::f64::consts::TAU;

const MINUTE_US: i64 = 60_000_000;
const MINUTES: i64 = 3 * 24 * 60;
const BEGIN_US: i64 = 1_750_000_000_000_000;

/// Uniform in -0.5..0.5, the sum of four of them.
fn noise(random: &mut Random) -> f64 {
    let one = |random: &mut Random| {
        f64::from(u32::try_from(random.next_u64() >> 32).unwrap()) / 4_294_967_296.0 - 0.5
    };
    (0..4).map(|_| one(random)).sum()
}

/// What else the rate does: a factor for a share of the time.
type Planted = fn(f64) -> f64;

/// The findings of a run with as many steps, whose rate swings by 6 % up and down over each day.
async fn found(seed: u64, steps: i64, planted: Planted) -> Vec<Finding> {
    let mut random = Random::new(seed);
    let phase = TAU * noise(&mut random);
    let mut slow = 0.0;
    let minutes: Vec<Second> = (0..MINUTES)
        .map(|minute| {
            let share = real(minute) / real(MINUTES);
            // Remembers an hour.
            slow = 0.98 * slow + 0.002 * noise(&mut random);
            let day = 0.06 * (3.0 * TAU * share + phase).sin();
            let log = day + slow + 0.02 * noise(&mut random);
            let rate = 1000.0 * log.exp() * planted(share);
            Second {
                at_us: BEGIN_US + minute * MINUTE_US,
                span_us: MINUTE_US,
                ops: whole(60.0 * rate),
                p99_ns: Some(whole(4e9 / rate)),
                max_ns: None,
            }
        })
        .collect();
    let mut drifts = Drifts::default();
    let per_step = usize::try_from(MINUTES / steps).unwrap();
    for seconds in minutes.chunks(per_step) {
        let from_us = seconds[0].at_us;
        let step = Step {
            id: from_us / MINUTE_US,
            label: "soak".to_owned(),
            workload: "io".to_owned(),
            mode: "randwrite".to_owned(),
            load: "soak".to_owned(),
            from_us,
            until_us: from_us + i64::try_from(seconds.len()).unwrap() * MINUTE_US,
            has_ended: true,
            period_us: MINUTE_US,
        };
        let line = Line {
            group: String::new(),
            op: "write".to_owned(),
            seconds: seconds.to_vec(),
        };
        drifts.add(&step, &[line]);
    }
    let mut found = drifts.find(&Events::default()).await.unwrap();
    found.retain(Finding::is_found);
    found
}

fn real(count: i64) -> f64 {
    f64::from(i32::try_from(count).unwrap())
}

#[expect(clippy::cast_possible_truncation, reason = "rates of tests are small")]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

/// One long step; loops of twenty minutes; loops of ten.
const STEPS: [i64; 3] = [1, 216, 432];

#[tokio::test]
async fn a_decay_beneath_the_swing_of_the_day_is_found() {
    for (seed, steps) in (0..).zip(STEPS) {
        let found = found(seed, steps, |share| 1.0 - 0.05 * share).await;
        let [rate] = &found[..] else {
            panic!("{steps} steps: {found:#?}");
        };
        assert_eq!(
            (rate.kind.as_str(), rate.figure.as_deref()),
            ("drift", Some("ops_per_s"))
        );
        let percent = rate.size.unwrap();
        assert!((-6.0..-4.0).contains(&percent), "{steps} steps: {rate:#?}");
        assert!(
            rate.sentence.contains(" on the first day, "),
            "{}",
            rate.sentence
        );
    }
}

#[tokio::test]
async fn clean_days_have_neither_drift_nor_change() {
    let mut wrong = Vec::new();
    for seed in 0..20 {
        for steps in STEPS {
            let found = found(100 + seed, steps, |_| 1.0).await;
            wrong.extend(found.into_iter().map(|one| one.sentence));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
