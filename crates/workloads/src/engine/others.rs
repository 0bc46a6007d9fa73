//! Reads what another task of the step wrote, as IOR's -C does: finds that task and its data, and waits for them.
//!
//! Each task lays out its own data before it waits for another's, so no deadlock is possible. This module does not know
//! the contents of the data.

use super::task::{PrepareControl, TaskError, TaskSpec};
use crate::measure::clock::{MonoNanos, sleep_until};
use crate::target::sandbox::Dir;
use std::time::Duration;

/// Minimum time to wait for other tasks' data, once the task's own are laid out.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(60);
/// Maximum wait as a multiple of the time for the task's own data.
const MAX_WAIT_FACTOR: u32 = 10;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What the key `reorder-tasks` means.
pub(crate) const REORDER_TASKS: &str = "Read the data of task `index + reorder-tasks` instead of the task's own, \
     modulo the number of tasks: IOR's -C and -Q. With one task per agent, 1 reads the data of another host, which are \
     not in this host's caches. All agents of the step must mount the same file system or reach the same pool.";

/// Index of the task whose data are read.
pub(crate) fn data_task(spec: &TaskSpec, reorder: u32) -> u32 {
    let task = u64::from(spec.task_index) + u64::from(reorder);
    u32::try_from(task % u64::from(spec.tasks.max(1))).unwrap_or(spec.task_index)
}

/// That task and its directory, if it is not the task itself.
pub(crate) fn other_task(spec: &TaskSpec, reorder: u32) -> Result<Option<(u32, Dir)>, TaskError> {
    let task_index = data_task(spec, reorder);
    if task_index == spec.task_index {
        return Ok(None);
    }
    let other = TaskSpec {
        task_index,
        ..spec.clone()
    };
    Ok(Some((task_index, other.dir()?)))
}

/// Waits until `find` finds the data of `task`.
pub(crate) fn await_other<T>(
    task: u32,
    control: &PrepareControl,
    find: impl Fn() -> Result<Option<T>, TaskError>,
) -> Result<T, TaskError> {
    let max_wait = WAIT_FOR_OTHERS.max(control.elapsed().saturating_mul(MAX_WAIT_FACTOR));
    let until = MonoNanos::now().saturating_add(max_wait);
    loop {
        if let Some(found) = find()? {
            return Ok(found);
        }
        control.check()?;
        // Without progress the collector would assume a hang.
        control.progress(0, 0, "waiting for another task's data");
        if MonoNanos::now() >= until {
            return Err(TaskError::Unsupported {
                why: format!(
                    "the data of task {task} are not seen here {} s after this task's own were laid out; what reads or \
                     shares another task's data needs one file system or pool that all agents of the step reach, and the same \
                     parameters on each",
                    max_wait.as_secs()
                ),
            });
        }
        sleep_until(MonoNanos::now().saturating_add(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;
    use crate::engine::task::End;
    use crate::testing::{TestCell, flip, run};
    use serde_json::{Value, json};

    /// Errors of each of a step's two tasks, which prepare and run at the same time.
    fn step(cell: &TestCell, mode: &str, params: &Value) -> [u64; 2] {
        let scratch = tempfile::tempdir().unwrap();
        let specs = [0, 1].map(|task_index| TaskSpec {
            task_index,
            tasks: 2,
            scratch: Some(scratch.path().to_owned()),
            ..cell.spec(mode, params.clone())
        });
        std::thread::scope(|scope| {
            let running = specs.each_ref().map(|spec| scope.spawn(|| run(spec)));
            running.map(|task| {
                let outcome = task.join().unwrap();
                assert_eq!(
                    (outcome.end.state, &outcome.end.error),
                    (End::Done, &None),
                    "{mode}"
                );
                assert!(outcome.sum(|it| it.ops) > 0, "{mode}");
                outcome.sum(|it| it.errors)
            })
        })
    }

    /// Another task lays out the files, before or now; this one reads them.
    #[test]
    fn many_files_and_copies_are_read_by_the_task_before() {
        for (workload, written, read, also, file) in [
            (
                "files",
                "create",
                "read",
                "list-stat",
                "w000000001/d000000000/c000000001",
            ),
            (
                "files",
                "create",
                "read",
                "stat",
                "shared/d000000000/c000000002",
            ),
            ("copy", "in", "out", "list", "data/d000000/c000000001"),
        ] {
            for begin in [written, read] {
                let cell = TestCell::new(workload);
                let mut params = json!({"files": 6, "numjobs": 2, "size": "20k", "verify": true});
                if file.starts_with("shared") {
                    params["directories-per"] = json!("step");
                }
                let own = params.clone();
                params["reorder-tasks"] = json!(1);
                let first = if begin == written { &own } else { &params };
                assert_eq!(step(&cell, begin, first), [0, 0], "{workload} {begin}");
                assert_eq!(step(&cell, read, &params), [0, 0], "{workload} {begin}");
                assert_eq!(step(&cell, also, &params), [0, 0], "{workload} {begin}");
                // File 2 of the shared tree is the second task's first one.
                let task = if file.starts_with("shared") {
                    "t0"
                } else {
                    "t1"
                };
                flip(&cell.task_dir().with_file_name(task).join(file), &[5000]);
                assert_eq!(step(&cell, read, &own), [0, 1], "{workload} {begin}");
                assert_eq!(step(&cell, read, &params), [1, 0], "{workload} {begin}");
            }
        }
    }
}
