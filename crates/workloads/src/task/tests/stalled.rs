//! Operations that do not end, and what becomes of their task.

use super::super::*;
use super::{Fake, soon};
use crate::common::Common;
use crate::workload::Timing;
use serde_json::json;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What was told of stalls: the word and the operation.
type Tidings = Vec<(&'static str, Stall)>;

/// A task of two workers, of which the first hangs in its second operation until it is let go.
fn hanging() -> (Task, SyncSender<()>) {
    let (let_go, held): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let held = std::sync::Mutex::new(held);
    let act = move |index, recorder: &mut crate::recorder::Recorder| {
        let mut number = 0;
        while let Some(began) = recorder.next(Op::Null, 0) {
            number += 1;
            recorder.place_at(7, number * 4096);
            if index == 0 && number == 2 {
                held.lock().unwrap().recv().unwrap();
            }
            recorder.end(Op::Null, began, 0);
        }
        Ok(())
    };
    let params = json!({"stall-after": "1s", "rate_iops": 50});
    let conduct = Conduct {
        common: Common::of(params.as_object().unwrap()).unwrap(),
        ..Conduct::default()
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
    let task = Task::prepare_load(Arc::new(load), &[Op::Null], &conduct, &control).unwrap();
    (task, let_go)
}

fn run(mut task: Task, on_stall: OnStall, mut told: impl FnMut(&Stall)) -> (TaskEnd, Tidings) {
    let mut tidings = Vec::new();
    task.arm(soon()).unwrap();
    let end = task.run_watched(on_stall, &mut |it| match it {
        Told::Interval(_) => {}
        Told::Stalled(stall) => {
            told(&stall);
            tidings.push(("stalled", stall));
        }
        Told::StallOver(stall) => tidings.push(("over", stall)),
    });
    (end, tidings)
}

#[test]
fn a_stall_is_told_once_with_its_place_and_so_is_its_end() {
    let (task, let_go) = hanging();
    let (end, tidings) = run(task, OnStall::Continue, |_| let_go.send(()).unwrap());
    assert_eq!((end.state, end.stalled), (End::Done, false));
    let [("stalled", stall), ("over", over)] = &tidings[..] else {
        panic!("{tidings:?}")
    };
    assert_eq!(stall, over);
    assert_eq!((stall.worker, stall.op), (0, Op::Null));
    assert_eq!(
        (stall.path.as_deref(), stall.offset),
        (Some("w0/7"), Some(8192))
    );
    assert_eq!(stall.to_string(), "worker 0: null w0/7 at offset 8192");
}

#[test]
fn a_policy_may_end_the_task_and_leave_the_worker_behind() {
    let (task, let_go) = hanging();
    let (end, tidings) = run(task, OnStall::Abort, |_| {});
    assert_eq!(
        (end.state, end.stalled, tidings.len()),
        (End::Failed, true, 1)
    );
    let error = end.error.unwrap();
    assert!(
        error.starts_with("worker 0: null w0/7 at offset 8192 has not ended for 1 s"),
        "{error}"
    );
    let lasted = end.ended.since(end.planned_start);
    assert!(
        lasted < Duration::from_secs(4),
        "{lasted:?}: the runtime was not waited for"
    );
    // It ends like any other thread when it can.
    let_go.send(()).unwrap();
}
