//! The counts of a slice's intervals, without their histograms. The sums of the slice's seconds are recomputed from
//! them if the set of tasks that left the step early changed after the slice was summed.

use super::{SecondsSums, entry};
use crate::facts::IntervalFacts;
use crate::grid::Grid;
use benchmesh_model::mesh::TaskId;
use benchmesh_workloads::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counts of the intervals of a slice, without those of ramps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceCounts {
    tasks: BTreeMap<TaskId, TaskCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct TaskCounts {
    group: String,
    /// By operation.
    ops: BTreeMap<String, Vec<Count>>,
}

/// Distance from the end of the previous interval (for the first one: its begin), span, operations, bytes. Small and
/// mostly equal numbers compress well.
type Count = [i64; 4];

impl SliceCounts {
    pub(super) fn add(&mut self, interval: &IntervalFacts) {
        if interval.ramp {
            return;
        }
        let task = self.tasks.entry(interval.task).or_default();
        if task.group != interval.group {
            task.group.clone_from(&interval.group);
        }
        let counts = entry(&mut task.ops, &interval.op);
        counts.push([
            interval.at_us,
            interval.span_us,
            interval.ops,
            interval.bytes,
        ]);
    }

    /// The stored form: each begin relative to the previous end.
    pub(super) fn relative(mut self) -> Self {
        for counts in self
            .tasks
            .values_mut()
            .flat_map(|task| task.ops.values_mut())
        {
            let mut end_us = 0;
            for [at, span, ..] in counts {
                let begin_us = *at;
                *at = begin_us.saturating_sub(end_us);
                end_us = begin_us.saturating_add(*span);
            }
        }
        self
    }

    /// The sums of the seconds of a step that began at `start_us`, over the tasks that are not excluded.
    pub(super) fn seconds(
        &self,
        start_us: i64,
        is_left_out: impl Fn(TaskId) -> bool,
    ) -> SecondsSums {
        let mut grid = Grid::new(start_us);
        for (task, counts) in &self.tasks {
            if is_left_out(*task) {
                continue;
            }
            for (op, rows) in &counts.ops {
                let mut interval = IntervalFacts {
                    task: *task,
                    group: counts.group.clone(),
                    at_us: 0,
                    span_us: 0,
                    op: op.clone(),
                    ramp: false,
                    ops: 0,
                    bytes: 0,
                    undated_bytes: 0,
                    errors: 0,
                    in_flight: 0,
                    service: Histogram::new(),
                    response: None,
                };
                for &[after, span_us, ops, bytes] in rows {
                    interval.at_us = interval
                        .at_us
                        .saturating_add(interval.span_us)
                        .saturating_add(after);
                    (interval.span_us, interval.ops, interval.bytes) = (span_us, ops, bytes);
                    grid.add(&interval);
                }
            }
        }
        let mut seconds = SecondsSums::new();
        for second in grid.take_before(i64::MAX) {
            let of_group = entry(&mut seconds, &second.group);
            entry(of_group, &second.op).add_any(&second);
        }
        seconds
    }
}
