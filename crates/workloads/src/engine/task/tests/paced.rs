//! Paced loads: their totals, their two clocks, and how they end.

use super::super::*;
use super::{Fake, arm_soon, run};
use crate::engine::common::Common;
use crate::engine::workload::{Params, Timing};
use crate::measure::clock;
use crate::measure::histogram::Histogram;
use crate::measure::recorder::{OpError, Recorder};
use crate::registry;
use benchmesh_testing::{TimingError, measured, scheduled, timing};
use serde_json::{Value, json};

fn params(value: &Value) -> Params {
    value.as_object().unwrap().clone()
}

/// Workers of `null` at this pace.
fn null(value: &Value) -> Task {
    let spec = TaskSpec::new("null", "run", params(value));
    registry::prepare(&spec, &PrepareControl::silent()).unwrap()
}

/// A load of the test's own at this pace.
fn paced(
    runtime: Duration,
    pace: &Value,
    act: impl Fn(u32, &mut Recorder) -> Result<(), OpError> + Send + Sync + 'static,
) -> Task {
    let conduct = TaskOptions {
        common: Common::of(&params(pace)).unwrap(),
        ..TaskOptions::default()
    };
    let load = Fake {
        workers: 1,
        timing: Timing {
            ramp: None,
            runtime: Some(runtime),
        },
        act: Arc::new(act),
        opens: |_| Ok(()),
    };
    let control = PrepareControl::silent();
    Task::prepare_load(load.opened(), &[Op::Null], &conduct, &control).unwrap()
}

fn histograms(intervals: &[Interval]) -> (Histogram, Histogram) {
    let (mut service, mut response) = (Histogram::new(), Histogram::new());
    for interval in intervals {
        service.add(&interval.service);
        response.add(interval.response.as_ref().expect("the load is paced"));
    }
    (service, response)
}

/// Within 1 % below the number due.
fn check_kept(count: u64, due: u64) -> Result<(), TimingError> {
    scheduled(count, due - due / 100..=due)
}

#[test]
fn even_arrivals_keep_the_total() {
    measured(|| {
        for (per, due) in [("worker", 600), ("task", 300), ("step", 300)] {
            let load = json!({"numjobs": 2, "runtime": "500ms", "rate_iops": 600, "rate-per": per});
            let (end, intervals) = run(null(&load));
            assert_eq!(end.state, End::Done);
            assert!(end.ended.since(end.planned_start) >= Duration::from_millis(500));
            let (service, response) = histograms(&intervals);
            check_kept(service.count(), due)?;
            assert_eq!(response.count(), service.count());
            assert!(response.sum_ns() >= service.sum_ns());
        }
        Ok(())
    });
}

#[test]
fn arrivals_of_independent_users_keep_the_rate_on_average() {
    measured(|| {
        let load = json!({"runtime": "500ms", "rate_iops": 4000, "rate_process": "poisson"});
        let (_, intervals) = run(null(&load));
        let count = histograms(&intervals).0.count();
        // The standard deviation over all seeds is sqrt(2000) = 45.
        scheduled(count, 1800..=2200)
    });
}

#[test]
fn a_load_that_is_not_paced_has_no_response_time() {
    let (_, intervals) = run(null(&json!({"ops": 1000})));
    assert!(intervals.iter().all(|interval| interval.response.is_none()));
}

#[test]
fn a_pause_stands_in_the_response_time_of_all_who_had_to_wait_for_it() {
    measured(|| {
        const PAUSE: Duration = Duration::from_millis(400);
        let task = paced(
            Duration::from_secs(1),
            &json!({"rate_iops": 300}),
            |_, recorder| {
                let mut number = 0;
                while let Some(began) = recorder.next(Op::Null, 0) {
                    number += 1;
                    if number == 60 {
                        clock::sleep_until(MonoNanos::now().saturating_add(PAUSE));
                    }
                    recorder.end(Op::Null, began, 0);
                }
                Ok(())
            },
        );
        let (_, intervals) = run(task);
        let (service, response) = histograms(&intervals);
        check_kept(service.count(), 300)?;
        let over =
            |histogram: &Histogram, share: f64| Duration::from_nanos(histogram.quantile(share));
        // 120 of the 300 fell due in those 400 ms, and the last of them waited least.
        timing!(over(&response, 1.0) >= PAUSE && over(&service, 1.0) >= PAUSE);
        timing!(over(&response, 0.99) >= PAUSE * 9 / 10);
        timing!(over(&response, 0.8) >= PAUSE * 4 / 10);
        timing!(
            over(&service, 0.99) < PAUSE / 2,
            "one operation alone was slow"
        );
        Ok(())
    });
}

#[test]
fn a_worker_that_waits_for_its_instant_sees_a_stop_and_has_nothing_in_flight() {
    measured(|| {
        let mut task = null(&json!({"rate_iops": 1, "runtime": "1h"}));
        let stopper = task.stopper();
        let start = arm_soon(&mut task);
        let running = std::thread::spawn(move || {
            let mut ops = 0;
            let end = task.run_to_end(&mut |interval| ops += interval.ops);
            (end, ops)
        });
        clock::sleep_until(start.saturating_add(Duration::from_millis(50)));
        assert_eq!(stopper.in_flight(), []);
        let stopped_at = MonoNanos::now();
        stopper.stop();
        let (end, ops) = running.join().unwrap();
        assert_eq!((end.state, ops), (End::Stopped, 1));
        let late = end.ended.since(stopped_at);
        timing!(late < Duration::from_millis(600), "{late:?}");
        Ok(())
    });
}

#[test]
fn the_runtime_ends_while_a_worker_waits() {
    measured(|| {
        let (end, intervals) = run(null(
            &json!({"rate_iops": 1, "runtime": "1200ms", "numjobs": 2}),
        ));
        assert_eq!(end.state, End::Done);
        let lasted = end.ended.since(end.planned_start);
        assert!(lasted >= Duration::from_millis(1200), "{lasted:?}");
        timing!(lasted < Duration::from_millis(1700), "{lasted:?}");
        // Of two workers at one a second each, the second begins half a second later.
        scheduled(intervals.iter().map(|it| it.ops).sum(), 3..=3)
    });
}
