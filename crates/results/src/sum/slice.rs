//! The sum of a slice of a step's time. It is stored while the step runs, and [`StepSum::add_slice`] uses it if it
//! still matches the step's final tasks.
//!
//! A slice begins and ends at grid lines that no interval crosses. Its seconds exclude the tasks that had left the step
//! early when it was summed. Its counts are stored beside it, in case the set of these tasks changes.

use super::{SliceCounts, StepSum, Totals};
use crate::PERIOD_US;
use crate::facts::{IntervalFacts, TaskFacts};
use crate::grid::Grid;
use crate::interval::StepInterval;
use crate::window::{Activity, Extent, Position};
use benchmesh_model::mesh::TaskId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The sums of a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceSum {
    /// The grid lines at which it begins and ends.
    from_us: i64,
    until_us: i64,
    totals: Totals,
    /// `None` if no work was done.
    extent: Option<Extent>,
    /// By task, the end of its last interval.
    ends: BTreeMap<TaskId, i64>,
    /// Tasks whose work is not in the seconds.
    without: BTreeSet<TaskId>,
}

/// Sums a slice from its intervals, in order of time.
#[derive(Debug)]
pub struct SliceSummer {
    grid: Grid,
    /// Only the tasks whose work is in the seconds.
    window_grid: Grid,
    slice: SliceSum,
    counts: SliceCounts,
}

/// The instants at which tasks of a step began, began to be measured, and ended. Every edge of the step's window is one
/// of these, whichever of its clients left early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEdges(Vec<i64>);

impl TaskEdges {
    pub fn of(tasks: &[TaskFacts]) -> Self {
        let of_task = |task: &TaskFacts| {
            let activity = Activity::of(task)?;
            Some([
                activity.start_us,
                activity.last_start_us,
                activity.measured_us,
                activity.first_done_us,
                activity.ended_us,
            ])
        };
        let mut edges: Vec<i64> = tasks.iter().filter_map(of_task).flatten().collect();
        edges.sort_unstable();
        edges.dedup();
        Self(edges)
    }

    /// Whether any edge is between these instants.
    pub fn has_any_in(&self, from_us: i64, until_us: i64) -> bool {
        let first = self.0.partition_point(|edge| *edge < from_us);
        self.0.get(first).is_some_and(|edge| *edge <= until_us)
    }
}

impl SliceSummer {
    /// `start_us` is the start of the step. The slice begins at the grid line at or before `from_us`.
    pub fn new(start_us: i64, from_us: i64, without: BTreeSet<TaskId>) -> Self {
        let grid = Grid::new(start_us);
        let from_us = grid.line_before(from_us);
        Self {
            grid,
            window_grid: Grid::new(start_us),
            slice: SliceSum {
                from_us,
                until_us: from_us,
                totals: Totals::default(),
                extent: None,
                ends: BTreeMap::new(),
                without,
            },
            counts: SliceCounts::default(),
        }
    }

    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    pub fn add(&mut self, interval: &IntervalFacts) {
        let slice = &mut self.slice;
        self.grid.add(interval);
        if !slice.without.contains(&interval.task) {
            self.window_grid.add(interval);
        }
        slice.totals.add(interval);
        self.counts.add(interval);
        let extent = Extent::of(interval);
        slice.extent = Some(slice.extent.map_or(extent, |all| all.with(extent)));
        let end = slice.ends.entry(interval.task).or_insert(i64::MIN);
        *end = extent.end_us.max(*end);
    }

    /// The step's intervals that end by `before_us`; see [`Grid::take_before`].
    pub fn take_before(&mut self, before_us: i64) -> Vec<StepInterval> {
        for interval in self.window_grid.take_before(before_us) {
            let sum = self.slice.totals.seconds_of(&interval.group, &interval.op);
            sum.add_any(&interval);
        }
        self.grid.take_before(before_us)
    }

    /// Returns the slice up to `until_us` once everything before it is taken; `None` while an interval crosses that
    /// line.
    pub fn finish_at(&self, until_us: i64) -> Option<SliceSum> {
        let line = self.grid.line_before(until_us);
        (self.grid.settled_before(until_us) == line).then(|| SliceSum {
            until_us: line,
            ..self.slice.clone()
        })
    }

    /// The counts of the summed intervals.
    pub fn counts(&self) -> SliceCounts {
        self.counts.clone().relative()
    }
}

impl SliceSum {
    /// The grid lines at which it begins and ends.
    pub fn lines(&self) -> (i64, i64) {
        (self.from_us, self.until_us)
    }

    /// Whether its intervals are never needed again, whatever happens to the tasks: it contains no edge of any window,
    /// and neither does the time of its operations.
    pub fn is_clear_of(&self, edges: &TaskEdges) -> bool {
        let begun_us = self.extent.map_or(self.from_us, |extent| extent.begun_us);
        let end_us = self.extent.map_or(self.until_us, |extent| extent.end_us);
        let from_us = self.from_us.min(begun_us).saturating_sub(PERIOD_US);
        let until_us = self.until_us.max(end_us).saturating_add(PERIOD_US);
        !edges.has_any_in(from_us, until_us)
    }
}

impl StepSum {
    /// Whether the seconds of a slice cover other tasks than those of the step, so that its counts are needed.
    pub fn needs_counts(&self, slice: &SliceSum) -> bool {
        let is_left_out = |task| self.left_early.contains(task) == slice.without.contains(task);
        !slice.ends.keys().all(is_left_out)
    }

    /// Adds a slice instead of its intervals. Returns `false` and adds nothing if its intervals are needed: it contains
    /// an edge of the window, a task ended in it, or its seconds cover other tasks and there are no counts of them.
    pub fn add_slice(&mut self, slice: &SliceSum, counts: Option<&SliceCounts>) -> bool {
        let in_window = match (self.all_active, slice.extent) {
            (Some(window), Some(extent)) => extent.position(window),
            _ => Position::Outside,
        };
        let in_seconds = match self.whole_seconds {
            Some(seconds) => seconds.position(slice.from_us, slice.until_us),
            None => Position::Outside,
        };
        let is_whole = slice.ends.iter().all(|(task, end)| {
            let activity = self.activities.get(task);
            activity.is_some_and(|activity| *end <= activity.ended_us)
        });
        let needs_counts = self.needs_counts(slice);
        if in_window == Position::Across
            || in_seconds == Position::Across
            || !is_whole
            || (needs_counts && counts.is_none())
        {
            return false;
        }
        self.totals.merge_tasks(&slice.totals);
        if in_seconds == Position::Within {
            match counts.filter(|_| needs_counts) {
                Some(counts) => {
                    let is_left_out = |task| self.left_early.contains(&task);
                    let seconds = counts.seconds(self.grid.start_us(), is_left_out);
                    self.totals.merge_seconds(&seconds);
                }
                None => self.totals.merge_seconds(&slice.totals.seconds),
            }
        }
        if in_window == Position::Within {
            self.add_whole(slice);
        }
        true
    }

    fn add_whole(&mut self, slice: &SliceSum) {
        for task in &self.tasks {
            let own = slice.totals.of_tasks.get(&task.task);
            let own = own.filter(|_| !self.left_early.contains(&task.task));
            for (op, sum) in own.into_iter().flatten() {
                let key = (task.group.clone(), op.clone());
                let inside = self.inside.entry(key).or_default();
                inside.add_whole(sum.ops, sum.bytes);
            }
        }
    }
}
