//! Operations that do not end, and the end of their task.

use super::super::*;
use super::{Fake, arm_soon};
use crate::engine::common::Common;
use crate::engine::workload::{Timing, Worker};
use crate::measure::histogram::Histogram;
use crate::measure::recorder::{OpError, Recorder};
use benchmesh_testing::{measured, timing};
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Stall events: name and stall.
type Stalls = Vec<(&'static str, Stall)>;

/// A task of two workers; the first one hangs in its second operation until it is released.
fn hanging() -> (Task, SyncSender<()>) {
    let (release, held): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let held = std::sync::Mutex::new(held);
    let act = move |index, recorder: &mut crate::measure::recorder::Recorder| {
        let mut number = 0;
        while let Some(began) = recorder.next(Op::Null, 0) {
            number += 1;
            recorder.set_position(7, number * 4096);
            if index == 0 && number == 2 {
                held.lock().unwrap().recv().unwrap();
            }
            recorder.end(Op::Null, began, 0);
        }
        Ok(())
    };
    let params = json!({"stall-after": "1s", "rate_iops": 50});
    let conduct = TaskOptions {
        common: Common::of(params.as_object().unwrap()).unwrap(),
        ..TaskOptions::default()
    };
    let load = Fake {
        workers: 2,
        timing: Timing {
            ramp: None,
            runtime: Some(Duration::from_secs(4)),
        },
        act: Arc::new(act),
        opens: |_| Ok(()),
    };
    let control = PrepareControl::silent();
    let task = Task::prepare_load(load.opened(), &[Op::Null], &conduct, &control).unwrap();
    (task, release)
}

fn run(mut task: Task, on_stall: OnStall, mut on_begun: impl FnMut(&Stall)) -> (TaskEnd, Stalls) {
    let mut stalls = Vec::new();
    arm_soon(&mut task);
    let end = task.run_watched(on_stall, &mut |it| match it {
        TaskEvent::Interval(_) | TaskEvent::Held(_) | TaskEvent::LoadOver => {}
        TaskEvent::Stall(StallEvent::Begun(stall)) => {
            on_begun(&stall);
            stalls.push(("stalled", stall));
        }
        TaskEvent::Stall(StallEvent::Over(stall)) => stalls.push(("over", stall)),
    });
    (end, stalls)
}

#[test]
fn a_stall_is_told_once_with_its_place_and_so_is_its_end() {
    let (task, release) = hanging();
    let (end, stalls) = run(task, OnStall::Continue, |_| release.send(()).unwrap());
    assert_eq!((end.state, end.stalled), (End::Done, false));
    let [("stalled", stall), ("over", over)] = &stalls[..] else {
        panic!("{stalls:?}")
    };
    assert_eq!(stall, over);
    let phase = TaskPhase::Operation {
        worker: 0,
        op: Op::Null,
    };
    assert_eq!((stall.phase, stall.call, stall.hangs), (phase, None, true));
    assert_eq!(
        (stall.path.as_deref(), stall.offset),
        (Some("w0/7"), Some(8192))
    );
    assert_eq!(stall.to_string(), "worker 0: null w0/7 at offset 8192");
}

#[test]
fn a_policy_may_end_the_task_and_leave_the_worker_behind() {
    measured(|| {
        let (task, release) = hanging();
        let held = Arc::new(());
        task.attach_to_workers(vec![Arc::clone(&held)]);
        let (end, stalls) = run(task, OnStall::Abort, |_| {});
        assert_eq!(
            (end.state, end.stalled, stalls.len()),
            (End::Failed, true, 1)
        );
        let error = end.error.unwrap();
        assert!(
            error.starts_with("worker 0: null w0/7 at offset 8192 has made no progress for 1 s"),
            "{error}"
        );
        let lasted = end.ended.since(end.planned_start);
        timing!(
            lasted < Duration::from_secs(4),
            "{lasted:?}: the runtime was not waited for"
        );
        assert_eq!(Arc::strong_count(&held), 2, "the worker is still there");
        // Once released it ends like any other thread.
        release.send(()).unwrap();
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
        Ok(())
    });
}

/// Two workers with an operation due every 10 ms; the first one hangs in its twentieth until it is released. Counts
/// the operations that ended.
fn hanging_paced() -> (Task, SyncSender<()>, Arc<AtomicU64>) {
    let (release, held): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let (held, ended) = (std::sync::Mutex::new(held), Arc::<AtomicU64>::default());
    let counted = Arc::clone(&ended);
    let act = move |index, recorder: &mut crate::measure::recorder::Recorder| {
        let mut number = 0;
        while let Some(began) = recorder.next(Op::Null, 0) {
            number += 1;
            if index == 0 && number == 20 {
                // The other end is dropped when the test is over.
                let _ = held.lock().unwrap().recv();
            }
            recorder.end(Op::Null, began, 0);
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let params = json!({"stall-after": "1s", "rate_iops": 100});
    let options = TaskOptions {
        common: Common::of(params.as_object().unwrap()).unwrap(),
        ..TaskOptions::default()
    };
    let load = Fake {
        workers: 2,
        timing: Timing {
            ramp: None,
            runtime: Some(Duration::from_secs(60)),
        },
        act: Arc::new(act),
        opens: |_| Ok(()),
    };
    let control = PrepareControl::silent();
    let task = Task::prepare_load(load.opened(), &[Op::Null], &options, &control).unwrap();
    (task, release, ended)
}

/// Operations and response times of all intervals so far.
#[derive(Default)]
struct Totals {
    ops: u64,
    response: Histogram,
}

impl Totals {
    fn add(&mut self, interval: &Interval) {
        self.ops += interval.ops;
        if let Some(response) = &interval.response {
            self.response.add(response);
        }
    }

    /// Response times of at least a second.
    fn slow(&self) -> u64 {
        let slots = self.response.filled_slots();
        let slow = slots.filter(|slot| slot.highest_ns >= 1_000_000_000);
        slow.map(|slot| slot.count).sum()
    }
}

#[test]
fn a_task_that_a_stall_ends_has_what_its_worker_did_and_owed() {
    let (mut task, _release, ended) = hanging_paced();
    let mut totals = Totals::default();
    arm_soon(&mut task);
    let end = task.run_watched(OnStall::Abort, &mut |it| {
        if let TaskEvent::Interval(interval) = it {
            totals.add(&interval);
        }
    });
    assert!(end.stalled);
    assert_eq!(totals.ops, ended.load(Ordering::Relaxed));
    // The one that hung for a second, and those due in that second.
    assert!(totals.response.count() > totals.ops + 50);
    assert!(totals.response.max_ns() >= 1_000_000_000);
}

#[test]
fn a_stop_during_a_hang_counts_what_was_due_before_the_hang_ends() {
    let (mut task, release, ended) = hanging_paced();
    let (mut totals, mut release) = (Totals::default(), Some(release));
    let stopper = task.stopper();
    // So that a failing test does not hang.
    let limit = std::thread::spawn({
        let release = release.clone();
        move || {
            std::thread::park_timeout(Duration::from_secs(30));
            if let Some(release) = release {
                let _ = release.try_send(());
            }
        }
    });
    let (mut before, mut held) = (0, Vec::new());
    arm_soon(&mut task);
    let end = task.run_watched(OnStall::Continue, &mut |it| match it {
        TaskEvent::Stall(StallEvent::Begun(_)) => stopper.stop(),
        TaskEvent::Interval(interval) => {
            totals.add(&interval);
            if totals.slow() > 0
                && let Some(release) = release.take()
            {
                before = ended.load(Ordering::Relaxed);
                release.send(()).unwrap();
            }
        }
        TaskEvent::Held(operations) => held.push(operations),
        TaskEvent::Stall(_) | TaskEvent::LoadOver => {}
    });
    limit.thread().unpark();
    limit.join().unwrap();
    assert_eq!((end.state, totals.ops), (End::Stopped, before + 1));
    // The operation is told once.
    assert_eq!(held.concat().len(), 1, "{held:?}");
    // Each operation that was due before the stop counts once, whether it ended or not.
    assert!(totals.slow() >= 50, "{}", totals.slow());
    assert!(totals.response.count() >= before + 50);
}

/// A load that opens one pipe before it and one after it; each open waits for the other end.
struct Pipes {
    before: PathBuf,
    after: PathBuf,
}

impl Load for Pipes {
    fn prepare(&self, _control: &PrepareControl) -> Result<(), TaskError> {
        File::open(&self.before).map(drop).unwrap();
        Ok(())
    }

    fn worker(&self, _index: u32) -> Result<Box<dyn Worker>, TaskError> {
        Ok(Box::new(Idle))
    }

    fn finish(&self) -> Result<(), TaskError> {
        File::open(&self.after).map(drop).unwrap();
        Ok(())
    }
}

struct Idle;

impl Worker for Idle {
    fn run(&mut self, _recorder: &mut Recorder) -> Result<(), OpError> {
        Ok(())
    }
}

fn pipe(path: PathBuf) -> PathBuf {
    let (kind, mode) = (FileType::Fifo, Mode::RUSR | Mode::WUSR);
    rustix::fs::mknodat(CWD, &path, kind, mode, 0).unwrap();
    path
}

/// Unblocks the open of a pipe.
fn release(pipe: &Path) {
    drop(File::options().write(true).open(pipe).unwrap());
}

fn second() -> TaskOptions {
    let params = json!({"stall-after": "1s"});
    TaskOptions {
        common: Common::of(params.as_object().unwrap()).unwrap(),
        ..TaskOptions::default()
    }
}

/// A load whose pipes lie in a directory, and the options by which a stall is one second.
fn pipes(directory: &Path) -> (Opened, PathBuf, PathBuf) {
    let (before, after) = (
        pipe(directory.join("before")),
        pipe(directory.join("after")),
    );
    let load = Pipes {
        before: before.clone(),
        after: after.clone(),
    };
    let one = Threads {
        workers: 1,
        timing: Timing::default(),
    };
    (Opened::new(one, Arc::new(load)), before, after)
}

#[test]
fn a_hanging_preparation_is_reported_with_call_and_path() {
    let directory = tempfile::tempdir().unwrap();
    let (load, before, _) = pipes(directory.path());
    let events: Arc<Mutex<Vec<StallEvent>>> = Arc::default();
    let (received, holds) = (Arc::clone(&events), before.clone());
    let control = PrepareControl::silent().reporting_stalls(move |it| {
        if matches!(it, StallEvent::Begun(_)) {
            release(&holds);
        }
        received.lock().unwrap().push(it);
    });
    let params = json!({"stall-after": "1s"});
    let prepare = || Task::prepare_load(load, &[Op::Null], &second(), &control).map(drop);
    control
        .watched(params.as_object().unwrap(), prepare)
        .unwrap();
    let events = events.lock().unwrap();
    let [StallEvent::Begun(stall), StallEvent::Over(over)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(stall, over);
    assert_eq!((stall.phase, stall.hangs), (TaskPhase::Preparing, true));
    let path = before.display();
    assert_eq!(stall.to_string(), format!("prepare: openat {path}"));
}

#[test]
fn a_hanging_finish_is_reported_and_waited_for_by_policy() {
    for on_stall in [OnStall::Continue, OnStall::Abort] {
        let directory = tempfile::tempdir().unwrap();
        let (load, before, after) = pipes(directory.path());
        let opener = std::thread::spawn(move || release(&before));
        let control = PrepareControl::silent();
        let task = Task::prepare_load(load, &[Op::Null], &second(), &control).unwrap();
        opener.join().unwrap();
        let waited = on_stall == OnStall::Continue;
        let (end, stalls) = run(task, on_stall, |_| {
            if waited {
                release(&after);
            }
        });
        let words: Vec<&str> = stalls.iter().map(|(word, _)| *word).collect();
        let (_, stall) = stalls.first().unwrap();
        assert_eq!(
            stall.to_string(),
            format!("finish: openat {}", after.display())
        );
        match waited {
            true => {
                assert_eq!((end.state, end.stalled), (End::Done, false));
                assert_eq!(words, ["stalled", "over"]);
            }
            false => {
                assert_eq!((end.state, end.stalled), (End::Failed, true));
                assert!(end.error.unwrap().starts_with(&stall.to_string()));
                assert_eq!(words, ["stalled"]);
                release(&after);
            }
        }
    }
}
