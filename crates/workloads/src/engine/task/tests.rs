#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::engine::workload::{Params, Timing, Worker};
use crate::measure::recorder::{OpError, Recorder};
use crate::registry;
use crate::testing::arm_soon;
use benchmesh_testing::{measured, timing};
use serde_json::json;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

mod limited;
mod paced;
mod stalled;

/// A load whose workers run a function.
struct Fake<F> {
    workers: u32,
    timing: Timing,
    act: Arc<F>,
    opens: fn(u32) -> Result<(), TaskError>,
}

struct FakeWorker<F> {
    index: u32,
    act: Arc<F>,
}

impl<F> Fake<F>
where
    F: Fn(u32, &mut Recorder) -> Result<(), OpError> + Send + Sync + 'static,
{
    fn opened(self) -> Opened {
        let threads = Threads {
            workers: self.workers,
            timing: self.timing,
        };
        Opened::new(threads, Arc::new(self))
    }
}

impl<F> Load for Fake<F>
where
    F: Fn(u32, &mut Recorder) -> Result<(), OpError> + Send + Sync + 'static,
{
    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        Some(format!("w{worker}/{file}"))
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        (self.opens)(index)?;
        let act = Arc::clone(&self.act);
        Ok(Box::new(FakeWorker { index, act }))
    }
}

impl<F> Worker for FakeWorker<F>
where
    F: Fn(u32, &mut Recorder) -> Result<(), OpError> + Send + Sync,
{
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        (self.act)(self.index, recorder)
    }
}

fn prepared<F>(workers: u32, act: F) -> Task
where
    F: Fn(u32, &mut Recorder) -> Result<(), OpError> + Send + Sync + 'static,
{
    let load = Fake {
        workers,
        timing: Timing::default(),
        act: Arc::new(act),
        opens: |_| Ok(()),
    };
    Task::prepare_load(
        load.opened(),
        &[Op::Null],
        &TaskOptions::default(),
        &PrepareControl::silent(),
    )
    .unwrap()
}

fn run(mut task: Task) -> (TaskEnd, Vec<Interval>) {
    arm_soon(&mut task);
    let mut intervals = Vec::new();
    let end = task.run_to_end(&mut |interval| intervals.push(interval));
    (end, intervals)
}

fn one_op(recorder: &mut Recorder) {
    let began = recorder.begin();
    recorder.end(Op::Null, began, 7);
}

fn until_stopped(_index: u32, recorder: &mut Recorder) -> Result<(), OpError> {
    while !recorder.should_stop() {
        one_op(recorder);
    }
    Ok(())
}

#[test]
fn workers_start_together_and_all_they_did_comes_out() {
    let task = prepared(3, |index, recorder| {
        for _ in 0..=index {
            one_op(recorder);
        }
        Ok(())
    });
    let (end, intervals) = run(task);
    assert_eq!((end.state, end.workers, end.error), (End::Done, 3, None));
    assert!(end.planned_start <= end.last_start && end.first_done <= end.ended);
    assert!((end.planned_start..=end.ended).contains(&end.last_begun.unwrap()));
    let total = |pick: fn(&Interval) -> u64| intervals.iter().map(pick).sum::<u64>();
    assert_eq!((total(|i| i.ops), total(|i| i.bytes)), (6, 42));
    assert!(end.harness_ns_per_op > 0);
}

#[test]
fn null_runs_through_the_registry_for_its_time() {
    measured(|| {
        let params = json!({"numjobs": 2, "runtime": "30ms", "ramp_time": "10ms"});
        let spec = TaskSpec::new("null", "run", params.as_object().unwrap().clone());
        let task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
        let (end, intervals) = run(task);
        assert_eq!(end.state, End::Done);
        assert!(end.ended.since(end.planned_start) >= Duration::from_millis(40));
        let ops = |ramp| {
            intervals
                .iter()
                .filter(|i| i.ramp == ramp)
                .map(|i| i.ops)
                .sum::<u64>()
        };
        // A worker without a CPU for 10 ms does nothing in the ramp.
        timing!(ops(true) > 0 && ops(false) > 0);
        assert!(end.cpu_user.unwrap() + end.cpu_system.unwrap() > Duration::ZERO);
        Ok(())
    });
}

#[test]
fn a_load_without_end_stops_when_told() {
    let task = prepared(2, until_stopped);
    let (stopper, in_flight) = (task.stopper(), task.in_flight());
    let (end, intervals) = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(task));
        while in_flight().is_none() {
            std::thread::yield_now();
        }
        stopper.stop();
        running.join().unwrap()
    });
    assert_eq!((end.state, end.error), (End::Stopped, None));
    assert!(intervals.iter().all(|interval| interval.ops > 0));
    assert!(end.last_begun.unwrap() <= end.ended);
}

#[test]
fn a_task_stopped_before_its_start_ends_at_once() {
    let mut task = prepared(2, until_stopped);
    let start = MonoNanos::now().saturating_add(Duration::from_secs(3600));
    let lead = task.arm(start).unwrap();
    assert!(lead > Duration::from_secs(3599));
    task.stopper().stop();
    let end = task.run_to_end(&mut |_| {});
    assert_eq!((end.state, end.last_begun), (End::Stopped, None));

    let unarmed = prepared(2, until_stopped);
    assert_eq!(unarmed.run_to_end(&mut |_| {}).state, End::Stopped);
}

#[test]
fn a_start_instant_in_the_past_is_refused_and_a_later_one_taken() {
    let mut task = prepared(1, |_, recorder| {
        one_op(recorder);
        Ok(())
    });
    let past = MonoNanos::now().saturating_sub(Duration::from_millis(3));
    let late = task.arm(past).unwrap_err();
    assert!(late.by >= Duration::from_millis(3));
    assert_eq!(run(task).0.state, End::Done);
}

#[test]
fn a_worker_that_fails_or_panics_fails_the_task_and_stops_the_others() {
    let failing = prepared(2, |index, recorder| match index {
        0 => until_stopped(index, recorder),
        _ => Err(OpError::Broken {
            what: "the cable".to_owned(),
        }),
    });
    let (end, _) = run(failing);
    assert_eq!(end.state, End::Failed);
    assert_eq!(end.error.unwrap(), "worker 1: the cable");

    // Neither continues before both have done one operation, however late a thread is started.
    let both = Barrier::new(2);
    let panicking = prepared(2, move |index, recorder| {
        one_op(recorder);
        both.wait();
        assert!(index == 0, "tripped over {index}");
        until_stopped(index, recorder)
    });
    let (end, intervals) = run(panicking);
    assert_eq!(end.state, End::Failed);
    assert_eq!(end.error.unwrap(), "worker 1 died: tripped over 1");
    assert!(intervals.iter().map(|interval| interval.ops).sum::<u64>() >= 2);
}

#[test]
fn a_worker_that_cannot_open_fails_the_preparation() {
    let check = |opens: fn(u32) -> Result<(), TaskError>, part: &str| {
        let load = Fake {
            workers: 3,
            timing: Timing::default(),
            act: Arc::new(until_stopped),
            opens,
        };
        let control = PrepareControl::silent();
        let error = Task::prepare_load(
            load.opened(),
            &[Op::Null],
            &TaskOptions::default(),
            &control,
        )
        .unwrap_err();
        let error = crate::error_chain(&error);
        assert!(error.contains(part), "{error}");
    };
    let no_door = |index| match index {
        1 => Err(TaskError::Unsupported {
            why: "no door".to_owned(),
        }),
        _ => Ok(()),
    };
    check(no_door, "this cannot be done: no door");
    check(
        |index| panic!("stuck {index}"),
        "died while it was being prepared: stuck",
    );
}

#[test]
fn a_preparation_can_be_cancelled_while_workers_open() {
    let control = PrepareControl::new(Arc::new(AtomicBool::new(true)), |_| {});
    let load = Fake {
        workers: 1,
        timing: Timing::default(),
        act: Arc::new(until_stopped),
        opens: |_| Ok(()),
    };
    let error = Task::prepare_load(
        load.opened(),
        &[Op::Null],
        &TaskOptions::default(),
        &control,
    )
    .unwrap_err();
    assert!(matches!(error, TaskError::Cancelled));
}

#[test]
fn dropping_a_task_ends_its_workers() {
    let barrier = Arc::new(Barrier::new(2));
    let gone = Arc::clone(&barrier);
    struct Last(Arc<Barrier>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let last = Last(gone);
    let task = prepared(1, move |_, _| {
        let _ = &last;
        Ok(())
    });
    let waiting = std::thread::spawn(move || barrier.wait());
    drop(task);
    waiting.join().unwrap();
}

#[test]
fn unknown_workloads_and_modes_are_refused() {
    let prepare = |workload, mode| {
        let spec = TaskSpec::new(workload, mode, Params::new());
        crate::error_chain(&registry::prepare(&spec, &PrepareControl::silent()).unwrap_err())
    };
    assert_eq!(prepare("nul", "run"), "there is no workload `nul`");
    assert!(prepare("null", "walk").contains("no mode `walk`; it has run"));
    assert!(prepare("io", "read").contains("`size`"));
}

/// Two workers. The second one shifts the periods after the first has ended, and then ends.
struct OneAfterTheOther {
    shift: Arc<std::sync::OnceLock<Arc<Shift>>>,
    gone: std::sync::Mutex<Gone>,
}

/// Both ends of a channel that is closed when the first worker has ended, each for one worker.
type Gone = (Option<SyncSender<()>>, Option<Receiver<()>>);

struct OneOfTwo {
    shift: Arc<std::sync::OnceLock<Arc<Shift>>>,
    /// Owned by the first worker; dropped at its end.
    _gone: Option<SyncSender<()>>,
    first: Option<Receiver<()>>,
}

impl Load for OneAfterTheOther {
    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let mut gone = self.gone.lock().unwrap();
        let (sender, first) = match index {
            0 => (gone.0.take(), None),
            _ => (None, gone.1.take()),
        };
        Ok(Box::new(OneOfTwo {
            shift: Arc::clone(&self.shift),
            _gone: sender,
            first,
        }))
    }
}

impl Worker for OneOfTwo {
    fn run(&mut self, _recorder: &mut Recorder) -> Result<(), OpError> {
        if let Some(first) = &self.first {
            first.recv().unwrap_err();
            self.shift.get().unwrap().set(7_000);
        }
        Ok(())
    }
}

#[test]
fn the_first_worker_to_end_reports_the_shift_of_its_periods() {
    let (sender, first) = sync_channel(0);
    let shift = Arc::new(std::sync::OnceLock::new());
    let load = OneAfterTheOther {
        shift: Arc::clone(&shift),
        gone: std::sync::Mutex::new((Some(sender), Some(first))),
    };
    let (conduct, control) = (TaskOptions::default(), PrepareControl::silent());
    let two = Threads {
        workers: 2,
        timing: Timing::default(),
    };
    let opened = Opened::new(two, Arc::new(load));
    let mut task = Task::prepare_load(opened, &[Op::Null], &conduct, &control).unwrap();
    task.shift().set(-3_000);
    shift.set(task.shift()).unwrap();
    let moved = task.shift();
    arm_soon(&mut task);
    let end = task.run_to_end(&mut |_| {});
    assert!(end.first_done < end.ended, "{end:?}");
    assert_eq!((end.first_done_shift_ns, moved.get()), (-3_000, 7_000));
}
