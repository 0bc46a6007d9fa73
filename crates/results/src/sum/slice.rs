//! What a slice of a step's time adds to its sum: kept while the step runs, and taken by [`StepSum::add_slice`] when
//! the slice is as the step's tasks turned out to be.
//!
//! A slice begins and ends at lines of the grid that no interval crosses. Its seconds leave out the tasks that had left
//! the step early when it was summed up; its counts are kept beside it, for when these turn out to be others.

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
    /// The lines that it begins and ends at.
    from_us: i64,
    until_us: i64,
    totals: Totals,
    /// `None`: nothing was done.
    extent: Option<Extent>,
    /// By task, the end of its last interval.
    ends: BTreeMap<TaskId, i64>,
    /// Tasks whose work is not in the seconds.
    without: BTreeSet<TaskId>,
}

/// Sums up a slice from its intervals, in the order of time.
#[derive(Debug)]
pub struct SliceSummer {
    grid: Grid,
    /// Only the tasks that are in the seconds.
    window_grid: Grid,
    slice: SliceSum,
    counts: SliceCounts,
}

/// Where tasks of a step began, were measured from, and ended: an edge of its window is nowhere else, whichever of its
/// clients are found to have left it early.
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

    /// Whether there is one between these instants.
    pub fn has_any_in(&self, from_us: i64, until_us: i64) -> bool {
        let first = self.0.partition_point(|edge| *edge < from_us);
        self.0.get(first).is_some_and(|edge| *edge <= until_us)
    }
}

impl SliceSummer {
    /// `start_us`: of the step. The slice begins at the line at or before `from_us`.
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

    /// The slice up to `until_us`, once all before it is taken; `None` while an interval crosses that line.
    pub fn finish_at(&self, until_us: i64) -> Option<SliceSum> {
        let line = self.grid.line_before(until_us);
        (self.grid.settled_before(until_us) == line).then(|| SliceSum {
            until_us: line,
            ..self.slice.clone()
        })
    }

    /// The counts of what was summed up.
    pub fn counts(&self) -> SliceCounts {
        self.counts.clone().relative()
    }
}

impl SliceSum {
    /// The lines that it begins and ends at.
    pub fn lines(&self) -> (i64, i64) {
        (self.from_us, self.until_us)
    }

    /// Whether its intervals are never looked at again, whatever becomes of the tasks: no edge of any window is in it
    /// or in the time of its operations.
    pub fn is_clear_of(&self, edges: &TaskEdges) -> bool {
        let begun_us = self.extent.map_or(self.from_us, |extent| extent.begun_us);
        let end_us = self.extent.map_or(self.until_us, |extent| extent.end_us);
        let from_us = self.from_us.min(begun_us).saturating_sub(PERIOD_US);
        let until_us = self.until_us.max(end_us).saturating_add(PERIOD_US);
        !edges.has_any_in(from_us, until_us)
    }
}

impl StepSum {
    /// Whether other tasks are in the seconds of a slice than are in those of the step, so that its counts are needed.
    pub fn needs_counts(&self, slice: &SliceSum) -> bool {
        let is_left_out = |task| self.left_early.contains(task) == slice.without.contains(task);
        !slice.ends.keys().all(is_left_out)
    }

    /// Adds a slice in place of its intervals. It is left alone, and the answer is `false`, where its intervals have to
    /// be looked at: an edge of the window is in it, or a task ended in it, or its seconds are of other tasks and there
    /// are no counts of them.
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
