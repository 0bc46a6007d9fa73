//! Paced loads: their totals, their two clocks, and how they end.

use super::super::*;
use super::{Fake, arm_soon, run};
use crate::engine::common::Common;
use crate::engine::workload::{Params, Timing};
use crate::measure::clock;
use crate::measure::histogram::Histogram;
use crate::measure::recorder::{Began, OpError, Recorder};
use crate::measure::rt_priority::RtPriority;
use crate::registry;
use benchmesh_testing::{TimingError, measured, scheduled, skip, timing};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

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
            // Operations that were due but could not be issued in time have a response time too.
            assert_eq!(response.count(), due);
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
        let (stopper, in_flight) = (task.stopper(), task.in_flight());
        let start = arm_soon(&mut task);
        let running = std::thread::spawn(move || {
            let mut ops = 0;
            let end = task.run_to_end(&mut |interval| ops += interval.ops);
            (end, ops)
        });
        clock::sleep_until(start.saturating_add(Duration::from_millis(50)));
        assert_eq!(in_flight(), None);
        let stopped_at = MonoNanos::now();
        stopper.stop();
        let (end, ops) = running.join().unwrap();
        assert_eq!((end.state, ops), (End::Stopped, 1));
        let late = end.ended.since(stopped_at);
        timing!(late < Duration::from_millis(600), "{late:?}");
        Ok(())
    });
}

/// Ordinary threads that keep the CPUs busy until this is dropped.
struct BusyCpus(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl BusyCpus {
    fn begin() -> BusyCpus {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().unwrap().get();
        let spin = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..3 * cpus).map(spin).collect();
        BusyCpus(stop, threads)
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// The start that a paced task reports is the issue of its first operation, which has real-time priority.
#[test]
fn the_first_operation_of_a_paced_load_is_on_time_on_a_busy_host() {
    let priority = RtPriority::worker();
    let is_granted = priority.is_granted();
    drop(priority);
    measured(|| {
        let _busy = BusyCpus::begin();
        let mut worst = Duration::ZERO;
        for _ in 0..6 {
            let first = Arc::new(Mutex::new(None));
            let seen = Arc::clone(&first);
            let task = paced(
                Duration::from_millis(300),
                &json!({"rate_iops": 100}),
                move |_, recorder| {
                    while let Some(began) = recorder.next(Op::Null, 0) {
                        seen.lock().unwrap().get_or_insert(began);
                        recorder.end(Op::Null, began, 0);
                    }
                    Ok(())
                },
            );
            let (end, _) = run(task);
            let first: Option<Began> = *first.lock().unwrap();
            timing!(first.is_some(), "the worker never had a CPU");
            let began = first.unwrap();
            assert_eq!(began.intended, end.planned_start);
            assert_eq!(end.last_start, began.at);
            worst = worst.max(began.at.since(began.intended));
        }
        if !is_granted {
            skip("root", "real-time priority is not permitted");
            return Ok(());
        }
        timing!(worst < Duration::from_millis(1), "{worst:?}");
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
