//! A step's intervals: those of its tasks, summed on a grid of seconds from the planned start.
//!
//! An interval wider than a period is not divided: overlapping intervals become one wider interval, so that every count
//! and every histogram stays whole. An interval may begin or end within a period, as at the end of a ramp. The intervals
//! of a task that starts between two lines (`stagger`) cross lines: each counts in the periods from the one that it
//! begins in, as many as it is long. An instant within [`SLACK_US`] of a line counts as on the line.

use super::PERIOD_US;
use super::facts::IntervalFacts;
use super::interval::StepInterval;
use benchmesh_model::mesh::TaskId;
use benchmesh_workloads::histogram::Histogram;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum difference between two readings of the same instant, caused by the rounding of two clocks.
pub const SLACK_US: i64 = 1000;

/// Lines of the grid are `start_us + k * PERIOD_US`.
#[derive(Debug)]
pub struct Grid {
    start_us: i64,
    /// By group, operation and ramp, then by the first line.
    open: HashMap<(String, String, bool), BTreeMap<i64, GridCell>>,
}

/// An interval of the grid that later intervals of tasks may still change.
#[derive(Clone, Copy, Debug)]
pub struct OpenInterval<'a> {
    pub at_us: i64,
    pub span_us: i64,
    pub ops: i64,
    pub bytes: i64,
    pub service: &'a Histogram,
    /// `None` if the load is not paced.
    pub response: Option<&'a Histogram>,
}

#[derive(Debug)]
struct GridCell {
    /// The grid line after the cell's last one.
    until: i64,
    begin_us: i64,
    end_us: i64,
    tasks: BTreeSet<TaskId>,
    ops: i64,
    bytes: i64,
    errors: i64,
    service: Histogram,
    response: Option<Histogram>,
}

impl Grid {
    pub fn new(start_us: i64) -> Self {
        Self {
            start_us,
            open: HashMap::new(),
        }
    }

    pub fn start_us(&self) -> i64 {
        self.start_us
    }

    /// The instant just before the line at or before `at_us`. The first line of an interval that begins earlier is
    /// before it, that of a later one is not, so `take_before` never splits the intervals of one period.
    pub fn before_a_line(&self, at_us: i64) -> i64 {
        self.line_at(self.touched(at_us)).saturating_sub(SLACK_US)
    }

    /// The grid line at the instant, within the rounding of clocks, or the last one before it.
    pub fn line_before(&self, at_us: i64) -> i64 {
        self.line_at(self.touched(at_us.saturating_add(SLACK_US)))
    }

    pub fn add(&mut self, interval: &IntervalFacts) {
        self.add_until(interval, None);
    }

    /// The same for an interval of a task that ended at `ended_us`: the last interval ends there.
    pub fn add_until(&mut self, interval: &IntervalFacts, ended_us: Option<i64>) {
        let from = self.touched(interval.at_us.saturating_add(SLACK_US));
        let nominal_us = interval.at_us.saturating_add(interval.span_us);
        let end_us = ended_us
            .filter(|ended| *ended > interval.at_us)
            .map_or(nominal_us, |ended| ended.min(nominal_us));
        let last = self.touched(end_us.saturating_sub(SLACK_US).saturating_sub(1));
        let until = last.max(from).saturating_add(1);
        let lasted = end_us.saturating_sub(interval.at_us);
        let periods = lasted.saturating_sub(SLACK_US + 1).max(0) / PERIOD_US + 1;
        let shift = match until - from > periods {
            true => self.line_at(from).saturating_sub(interval.at_us),
            false => 0,
        };
        let (begin_us, end_us) = (
            interval.at_us.saturating_add(shift),
            end_us.saturating_add(shift),
        );
        let mut at = from;
        let mut cell = GridCell {
            until: until.min(from.saturating_add(periods)),
            begin_us,
            end_us,
            tasks: BTreeSet::from([interval.task]),
            ops: interval.ops,
            bytes: interval.bytes,
            errors: interval.errors,
            service: Histogram::new(),
            response: None,
        };
        let key = (interval.group.clone(), interval.op.clone(), interval.ramp);
        let cells = self.open.entry(key).or_default();
        if let Some(same) = cells.get_mut(&from)
            && same.until == cell.until
        {
            same.count(interval, (begin_us, end_us));
            return;
        }
        cell.distributions(&interval.service, interval.response.as_ref());
        while let Some(line) = overlapping(cells, at, cell.until)
            && let Some(other) = cells.remove(&line)
        {
            at = at.min(line);
            cell.merge(other);
        }
        cells.insert(at, cell);
    }

    /// Takes the intervals that end by `before_us`, sorted by time and name: no later interval can be added to them.
    pub fn take_before(&mut self, before_us: i64) -> Vec<StepInterval> {
        let before = self.touched(before_us.saturating_add(SLACK_US));
        let mut taken = Vec::new();
        for ((group, op, ramp), cells) in &mut self.open {
            while let Some(first) = cells.first_entry()
                && first.get().until <= before
            {
                let (line, cell) = first.remove_entry();
                taken.push(closed(self.start_us, line, cell, (group, op, *ramp)));
            }
        }
        let key = |one: &StepInterval| (one.at_us, one.group.clone(), one.op.clone(), one.ramp);
        taken.sort_by_cached_key(key);
        taken
    }

    /// The intervals that have not been taken; those of each operation in the order of time.
    pub fn open(&self) -> impl Iterator<Item = OpenInterval<'_>> {
        self.open.values().flatten().map(|(line, cell)| {
            let (at_us, span_us) = extent(self.start_us, *line, cell);
            OpenInterval {
                at_us,
                span_us,
                ops: cell.ops,
                bytes: cell.bytes,
                service: &cell.service,
                response: cell.response.as_ref(),
            }
        })
    }

    /// All intervals of the grid that begin before the returned instant have been taken, after
    /// `take_before(before_us)`.
    pub fn settled_before(&self, before_us: i64) -> i64 {
        let before = self.touched(before_us.saturating_add(SLACK_US));
        let open = self.open.values().filter_map(|cells| cells.keys().next());
        self.line_at(open.copied().fold(before, i64::min))
    }

    /// The last line that is not after the instant.
    fn touched(&self, at_us: i64) -> i64 {
        at_us.saturating_sub(self.start_us).div_euclid(PERIOD_US)
    }

    fn line_at(&self, line: i64) -> i64 {
        self.start_us.saturating_add(line.saturating_mul(PERIOD_US))
    }
}

impl GridCell {
    fn count(&mut self, interval: &IntervalFacts, (begin_us, end_us): (i64, i64)) {
        self.begin_us = self.begin_us.min(begin_us);
        self.end_us = self.end_us.max(end_us);
        self.tasks.insert(interval.task);
        self.ops = self.ops.saturating_add(interval.ops);
        self.bytes = self.bytes.saturating_add(interval.bytes);
        self.errors = self.errors.saturating_add(interval.errors);
        self.distributions(&interval.service, interval.response.as_ref());
    }

    fn merge(&mut self, other: Self) {
        self.until = self.until.max(other.until);
        self.begin_us = self.begin_us.min(other.begin_us);
        self.end_us = self.end_us.max(other.end_us);
        self.tasks.extend(other.tasks);
        self.ops = self.ops.saturating_add(other.ops);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
        self.distributions(&other.service, other.response.as_ref());
    }

    fn distributions(&mut self, service: &Histogram, response: Option<&Histogram>) {
        self.service.add(service);
        if let Some(response) = response {
            self.response.get_or_insert_default().add(response);
        }
    }
}

/// The first line of a cell that shares a line with `from..until`.
fn overlapping(cells: &BTreeMap<i64, GridCell>, from: i64, until: i64) -> Option<i64> {
    let (line, cell) = cells.range(..until).next_back()?;
    (cell.until > from).then_some(*line)
}

/// The start and the length of a cell.
fn extent(start_us: i64, line: i64, cell: &GridCell) -> (i64, i64) {
    let line_us = start_us.saturating_add(line.saturating_mul(PERIOD_US));
    let whole = cell.until.saturating_sub(line).saturating_mul(PERIOD_US);
    let inside = cell.begin_us.saturating_sub(line_us);
    let skipped = if inside < SLACK_US {
        0
    } else {
        inside.min(whole - 1)
    };
    let at_us = line_us.saturating_add(skipped);
    let span_us = cell.end_us.saturating_sub(at_us).clamp(1, whole - skipped);
    (at_us, span_us)
}

fn closed(
    start_us: i64,
    line: i64,
    cell: GridCell,
    (group, op, ramp): (&str, &str, bool),
) -> StepInterval {
    let (at_us, span_us) = extent(start_us, line, &cell);
    StepInterval {
        at_us,
        span_us,
        group: group.to_owned(),
        op: op.to_owned(),
        ramp,
        tasks: u32::try_from(cell.tasks.len()).unwrap_or(u32::MAX),
        ops: cell.ops,
        bytes: cell.bytes,
        errors: cell.errors,
        service: cell.service,
        response: cell.response,
    }
}
