//! One pass over a step's intervals: its grid, its totals, its all-active window, its flags.
//!
//! `new` takes the tasks, `add` every interval in the order of time, `take_before` the grid's finished intervals on the
//! way, `finish` the figures. Ramp intervals are on the grid and in no figure.

use super::facts::{Arrivals, IntervalFacts, PacedUnit, TaskFacts};
use super::figures::{Headline, OpResult, StepResults, TaskResult};
use super::flags::Flag;
use super::grid::Grid;
use super::interval::StepInterval;
use super::seconds::{SecondsSum, WholeSeconds};
use super::window::{Activity, Share, Together, share};
use super::{PERIOD_US, real};
use crate::model::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A shorter window does not lead. Half a period away from every runtime in whole seconds, so that a load that ends a
/// little early does not decide.
const MIN_WINDOW_US: i64 = PERIOD_US * 5 / 2;
/// Nor does a window of which a larger part may as well lie outside.
const MAX_UNKNOWN_PART: f64 = 0.1;
/// The harness's own cost above this share of the workers' time makes a result tool-bound.
const HARNESS_SHARE: f64 = 0.20;
/// A start that is known less exactly than this share of the measured time is unsure.
const START_ERROR_SHARE: f64 = 0.05;
/// An agent that moved this share of what its policy allows was held back by it.
const POLICY_SHARE: f64 = 0.95;
/// A step in which more than this share of the operations failed has failed.
const FAILED_SHARE: f64 = 0.5;
/// Operations that bring data from the storage.
const READS: [&str; 4] = ["read", "fread", "getc", "seek"];
/// Operations that send data to the storage.
const WRITES: [&str; 7] = [
    "write",
    "append",
    "create",
    "rewrite",
    "fwrite",
    "putc",
    "overwrite",
];
/// A schedule counts as kept when this share of what was due was done.
const KEPT_SHARE: f64 = 0.99;
/// A schedule counts as kept when one operation in a hundred was issued at most this late.
const LATE_NS: u64 = 100_000_000;
/// Time that workers were ready and had no CPU, likewise.
const WAIT_SHARE: f64 = 0.10;

#[derive(Debug)]
pub struct StepSum {
    tasks: Vec<TaskFacts>,
    activities: HashMap<TaskId, Activity>,
    together: Option<Together>,
    /// Tasks that were lost or failed while others went on: the window is the others'.
    left_early: HashSet<TaskId>,
    all_active: Option<(i64, i64)>,
    /// By group: its tasks together.
    groups: HashMap<String, Together>,
    workers: HashMap<TaskId, u32>,
    grid: Grid,
    /// Of the tasks that the window is of, where these are not all.
    window_grid: Option<Grid>,
    whole_seconds: Option<WholeSeconds>,
    /// By group and operation, of the intervals that were taken.
    seconds: HashMap<(String, String), SecondsSum>,
    /// By group and operation.
    ops: BTreeMap<String, BTreeMap<String, OpSum>>,
    of_tasks: BTreeMap<(TaskId, String), TaskSum>,
    /// Operations with the ramp: the harness cost them all.
    all_ops: HashMap<TaskId, i64>,
}

#[derive(Debug, Default)]
struct OpSum {
    ops: i64,
    bytes: i64,
    errors: i64,
    inside: Share,
    service: Histogram,
    response: Option<Histogram>,
}

#[derive(Debug, Default)]
struct TaskSum {
    ops: i64,
    bytes: i64,
    errors: i64,
    service: Histogram,
}

impl StepSum {
    /// `start_us`: the instant at which the step was to start.
    pub fn new(start_us: i64, tasks: Vec<TaskFacts>) -> Self {
        let activities: HashMap<_, _> = tasks
            .iter()
            .filter_map(|task| Some((task.task, Activity::of(task)?)))
            .collect();
        let together = |group: &str| {
            let own = tasks.iter().filter(|task| task.group == group);
            Together::of(own.filter_map(|task| activities.get(&task.task).copied()))
        };
        let groups: HashSet<&str> = tasks.iter().map(|task| task.group.as_str()).collect();
        let all = Together::of(activities.values().copied());
        let left_early = left_early(&tasks);
        let staying = activities.iter().filter(|(id, _)| !left_early.contains(id));
        let staying = Together::of(staying.map(|(_, one)| *one));
        let window = staying
            .filter(|_| all.is_some_and(|all| all.overlap()))
            .and_then(|staying| staying.all_active());
        Self {
            whole_seconds: window.and_then(|window| WholeSeconds::of(start_us, window)),
            seconds: HashMap::new(),
            groups: groups
                .into_iter()
                .filter_map(|group| Some((group.to_owned(), together(group)?)))
                .collect(),
            together: all,
            all_active: window,
            window_grid: (!left_early.is_empty()).then(|| Grid::new(start_us)),
            left_early,
            workers: tasks.iter().map(|task| (task.task, task.workers)).collect(),
            grid: Grid::new(start_us),
            activities,
            tasks,
            ops: BTreeMap::new(),
            of_tasks: BTreeMap::new(),
            all_ops: HashMap::new(),
        }
    }

    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    pub fn add(&mut self, interval: &IntervalFacts) {
        let ended_us = self.activities.get(&interval.task).map(|one| one.ended_us);
        self.grid.add_until(interval, ended_us);
        let is_of_window = !self.left_early.contains(&interval.task);
        if let Some(grid) = self.window_grid.as_mut().filter(|_| is_of_window) {
            grid.add_until(interval, ended_us);
        }
        if !is_observed(&interval.op) {
            let all = self.all_ops.entry(interval.task).or_default();
            *all = all.saturating_add(interval.ops);
        }
        if interval.ramp {
            return;
        }
        let sum = entry(entry(&mut self.ops, &interval.group), &interval.op);
        sum.ops = sum.ops.saturating_add(interval.ops);
        sum.bytes = sum.bytes.saturating_add(interval.bytes);
        sum.errors = sum.errors.saturating_add(interval.errors);
        sum.service.add(&interval.service);
        if let Some(response) = &interval.response {
            sum.response.get_or_insert_default().add(response);
        }
        if let Some(window) = self.all_active.filter(|_| is_of_window) {
            let workers = self.workers.get(&interval.task).copied().unwrap_or(1);
            let activity = self.activities.get(&interval.task);
            sum.inside.add(share(interval, workers, activity, window));
        }
        let key = (interval.task, interval.op.clone());
        let of_task = self.of_tasks.entry(key).or_default();
        of_task.ops = of_task.ops.saturating_add(interval.ops);
        of_task.bytes = of_task.bytes.saturating_add(interval.bytes);
        of_task.errors = of_task.errors.saturating_add(interval.errors);
        of_task.service.add(&interval.service);
    }

    /// The step's intervals that end by `before_us`, which must not be later than the next one to be added begins.
    pub fn take_before(&mut self, before_us: i64) -> Vec<StepInterval> {
        let taken = self.grid.take_before(before_us);
        let of_window = match &mut self.window_grid {
            Some(grid) => &grid.take_before(before_us),
            None => &taken,
        };
        if let Some(window) = self.whole_seconds {
            for interval in of_window {
                let key = (interval.group.clone(), interval.op.clone());
                self.seconds.entry(key).or_default().add(window, interval);
            }
        }
        taken
    }

    /// The last intervals and the figures.
    pub fn finish(mut self) -> (Vec<StepInterval>, StepResults) {
        let last = self.take_before(i64::MAX);
        let all_active = self.all_active;
        let mut seconds = std::mem::take(&mut self.seconds);
        let window = self.whole_seconds;
        let ops: Vec<OpResult> = std::mem::take(&mut self.ops)
            .into_iter()
            .flat_map(|(group, ops)| {
                let times = self.times_of(&group, all_active);
                let of_tasks = self.tasks_by_op(&group);
                let mut of_group = Vec::new();
                for (op, sum) in ops {
                    let tasks = of_tasks.get(&op).copied().unwrap_or(0);
                    let own = seconds.remove(&(group.clone(), op.clone()));
                    let own = window.map(|window| own.unwrap_or_default().finish(window));
                    let result = op_result(group.clone(), op, sum, tasks, times);
                    of_group.push(OpResult {
                        seconds: own,
                        ..result
                    });
                }
                of_group
            })
            .collect();
        let tasks = self.task_results();
        let results = StepResults {
            measured_from: self.together.map(|t| MeshMicros(t.first_measured_us)),
            all_active: all_active.map(|(from, until)| (MeshMicros(from), MeshMicros(until))),
            last_done: self.together.map(|t| MeshMicros(t.last_done_us)),
            max_skew_us: self
                .tasks
                .iter()
                .filter_map(|task| task.skew_us)
                .max_by_key(|skew| skew.unsigned_abs()),
            skew_error_us: self
                .tasks
                .iter()
                .filter_map(|task| task.skew_error_us)
                .max(),
            flags: self.flags(&ops, &tasks),
            ops,
            tasks,
        };
        (last, results)
    }

    /// Of one group; the window is the whole step's, in which everything went on at once.
    fn times_of(&self, group: &str, all_active: Option<(i64, i64)>) -> Times {
        let last_done_us = self.groups.get(group).map(Together::measured_us);
        let overlap = self.together.is_some_and(|together| together.overlap());
        Times {
            window_us: all_active.map(|(from, until)| until - from),
            last_done_us,
            headline: headline(all_active, last_done_us, overlap),
        }
    }

    /// How many tasks of a group have operations or errors of each kind.
    fn tasks_by_op(&self, group: &str) -> HashMap<String, usize> {
        let own: HashSet<TaskId> = self
            .tasks
            .iter()
            .filter(|task| task.group == group)
            .map(|task| task.task)
            .collect();
        let mut tasks: HashMap<String, usize> = HashMap::new();
        for ((task, op), sum) in &self.of_tasks {
            if own.contains(task) && (sum.ops > 0 || sum.errors > 0) {
                *tasks.entry(op.clone()).or_default() += 1;
            }
        }
        tasks
    }

    fn task_results(&mut self) -> Vec<TaskResult> {
        std::mem::take(&mut self.of_tasks)
            .into_iter()
            .map(|((task, op), sum)| {
                let busy_us = self
                    .activities
                    .get(&task)
                    .map(|one| one.ended_us.saturating_sub(one.measured_us).max(0));
                TaskResult {
                    task,
                    op,
                    ops: sum.ops,
                    bytes: sum.bytes,
                    errors: sum.errors,
                    busy_us,
                    ops_per_s: busy_us.and_then(|us| rate(real(sum.ops), us)),
                    bytes_per_s: busy_us.and_then(|us| rate(real(sum.bytes), us)),
                    service: sum.service,
                }
            })
            .collect()
    }

    fn flags(&self, ops: &[OpResult], tasks: &[TaskResult]) -> Vec<Flag> {
        let unended = |task: &TaskFacts| {
            task.ended_us.is_none() || matches!(task.state, TaskState::Lost | TaskState::Failed)
        };
        let mut flags = Vec::new();
        let mut raise = |flag, raised: bool| {
            if raised {
                flags.push(flag);
            }
        };
        raise(Flag::NoData, ops.is_empty());
        let overlap = self.together.is_some_and(|together| together.overlap());
        let leads = self.groups.values().all(|group| {
            headline(self.all_active, Some(group.measured_us()), overlap) == Headline::Window
        });
        raise(Flag::WindowShort, overlap && !leads && !ops.is_empty());
        raise(
            Flag::Undated,
            leads && ops.iter().any(|op| op.headline == Headline::LastDone),
        );
        raise(
            Flag::NoOverlap,
            self.together.is_some_and(|together| !together.overlap()),
        );
        raise(Flag::StartUnsure, self.is_start_unsure());
        let (tool_bound, cpu_short) = self.bound_by_client();
        raise(Flag::ToolBound, tool_bound);
        raise(Flag::CpuShort, cpu_short);
        raise(Flag::PolicyBound, self.is_policy_bound(tasks));
        raise(
            Flag::BehindSchedule,
            self.is_behind_schedule(tasks) || is_issued_late(ops),
        );
        raise(Flag::CacheSuspect, self.is_cache_suspect(tasks));
        raise(Flag::AckSuspect, self.is_ack_suspect(tasks));
        raise(
            Flag::ClientFrozen,
            self.tasks.iter().any(|task| task.frozen),
        );
        raise(Flag::ClockGap, self.tasks.iter().any(|task| task.clock_gap));
        raise(Flag::Partial, self.tasks.iter().any(unended));
        raise(Flag::Errors, ops.iter().any(|op| op.errors > 0));
        raise(Flag::MostlyFailed, is_mostly_failed(ops));
        raise(
            Flag::Saturated,
            ops.iter().any(|op| op.service.saturated() > 0),
        );
        flags
    }

    /// Whether a paced task did less than was due in the time that it had.
    fn is_behind_schedule(&self, results: &[TaskResult]) -> bool {
        self.tasks.iter().any(|task| {
            let (Some(paced), Some(activity)) = (task.paced, self.activities.get(&task.task))
            else {
                return false;
            };
            let seconds = real(activity.ended_us.saturating_sub(activity.measured_us)) / 1e6;
            let due = paced.per_second * seconds;
            let own = results
                .iter()
                .filter(|result| result.task == task.task && !is_observed(&result.op));
            let (done, operations) = own.fold((0.0, 0.0), |(done, operations), result| {
                let ops = real(result.ops.saturating_add(result.errors));
                let counted = match paced.unit {
                    PacedUnit::Operations => ops,
                    PacedUnit::Bytes => real(result.bytes),
                };
                (done + counted, operations + ops)
            });
            // One operation of each worker may still be under way; random arrivals vary by the root of their number.
            let of_one = if operations > 0.0 {
                done / operations
            } else {
                0.0
            };
            let random = match paced.arrivals {
                Arrivals::Even => 0.0,
                Arrivals::Poisson => 3.0 * operations.sqrt(),
            };
            let spared = of_one * (f64::from(task.workers) + random);
            due > 0.0 && done + spared < KEPT_SHARE * due
        })
    }

    /// Whether direct writes of some task were acknowledged faster than a message reaches another host and comes back.
    fn is_ack_suspect(&self, results: &[TaskResult]) -> bool {
        self.tasks.iter().any(|task| {
            let Some(round_trip) = task.round_trip_ns.filter(|_| task.direct) else {
                return false;
            };
            results.iter().any(|result| {
                result.task == task.task
                    && WRITES.contains(&result.op.as_str())
                    && quantile(&result.service, 0.5)
                        .is_some_and(|p50| i64::try_from(p50).is_ok_and(|p50| p50 < round_trip))
            })
        })
    }

    /// Whether the tasks of any agent together read, or wrote, more in a second than its network can carry.
    fn is_cache_suspect(&self, results: &[TaskResult]) -> bool {
        let mut agents: HashMap<AgentId, ([f64; 2], f64)> = HashMap::new();
        for task in &self.tasks {
            let Some(link) = task.link_bytes_per_s else {
                continue;
            };
            let (sums, least) = agents
                .entry(task.agent)
                .or_insert(([0.0; 2], f64::INFINITY));
            let directions = [Direction::FromStorage, Direction::ToStorage];
            for (sum, direction) in sums.iter_mut().zip(directions) {
                *sum += results
                    .iter()
                    .filter(|result| {
                        result.task == task.task
                            && direction_of(&result.op, &task.mode) == Some(direction)
                    })
                    .filter_map(|result| result.bytes_per_s)
                    .sum::<f64>();
            }
            *least = least.min(real(link));
        }
        agents
            .values()
            .any(|(sums, link)| sums.iter().any(|sum| sum > link))
    }

    /// Whether the agents' clocks are known too badly for a step this short.
    fn is_start_unsure(&self) -> bool {
        let agents: HashSet<AgentId> = self.tasks.iter().map(|task| task.agent).collect();
        let measured = self.together.as_ref().map(Together::measured_us);
        let worst = self
            .tasks
            .iter()
            .filter_map(|task| task.skew_error_us)
            .max();
        let (Some(measured), Some(worst), 2..) = (measured, worst, agents.len()) else {
            return false;
        };
        real(worst) > START_ERROR_SHARE * real(measured)
    }

    /// Whether the tasks of any agent together moved what its policy allows and no more.
    fn is_policy_bound(&self, results: &[TaskResult]) -> bool {
        let mut agents: HashMap<AgentId, (f64, f64)> = HashMap::new();
        for task in &self.tasks {
            let Some(limit) = task.rate_limit_bytes_per_s else {
                continue;
            };
            let own = results
                .iter()
                .filter(|result| result.task == task.task && !is_observed(&result.op));
            let moved: f64 = own.filter_map(|result| result.bytes_per_s).sum();
            let (sum, _) = agents.entry(task.agent).or_insert((0.0, real(limit)));
            *sum += moved;
        }
        agents
            .values()
            .any(|(moved, limit)| *moved >= POLICY_SHARE * limit)
    }

    /// Whether the harness cost too much, and whether workers waited too long for a CPU.
    fn bound_by_client(&self) -> (bool, bool) {
        let mut workers_us = 0.0;
        let mut harness_us = 0.0;
        let mut wait_us = 0.0;
        for task in &self.tasks {
            // Under a rate the question is whether the schedule was kept.
            if task.paced.is_some() {
                continue;
            }
            let Some(activity) = self.activities.get(&task.task) else {
                continue;
            };
            let busy = activity.ended_us.saturating_sub(activity.start_us);
            workers_us += real(busy) * f64::from(task.workers);
            let ops = self.all_ops.get(&task.task).copied().unwrap_or(0);
            harness_us += real(task.harness_ns_per_op.unwrap_or(0)) * real(ops) / 1e3;
            wait_us += real(task.wait_cpu_us.unwrap_or(0));
        }
        (
            // Of the time in which they had a CPU.
            harness_us > HARNESS_SHARE * (workers_us - wait_us).max(0.0) && harness_us > 0.0,
            wait_us > WAIT_SHARE * workers_us && workers_us > 0.0,
        )
    }
}

/// Whether the other end of a link counted it: no work of the task's own.
fn is_observed(op: &str) -> bool {
    Op::parse(op).is_some_and(Op::is_observed)
}

/// Which way an operation moves data between the client and the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromStorage,
    ToStorage,
}

pub(crate) fn direction_of(op: &str, mode: &str) -> Option<Direction> {
    match (op, mode) {
        ("copy", "out") => Some(Direction::FromStorage),
        ("copy", "in") => Some(Direction::ToStorage),
        (op, _) if READS.contains(&op) => Some(Direction::FromStorage),
        (op, _) if WRITES.contains(&op) => Some(Direction::ToStorage),
        _ => None,
    }
}

fn quantile(histogram: &Histogram, q: f64) -> Option<u64> {
    (!histogram.is_empty()).then(|| histogram.quantile(q))
}

/// Whether more operations of some group failed than [`FAILED_SHARE`] allows.
fn is_mostly_failed(ops: &[OpResult]) -> bool {
    let mut groups: HashMap<&str, (i64, i64)> = HashMap::new();
    for op in ops.iter().filter(|op| !is_observed(&op.op)) {
        let (done, failed) = groups.entry(&op.group).or_default();
        *done = done.saturating_add(op.ops);
        *failed = failed.saturating_add(op.errors);
    }
    groups.values().any(|(done, failed)| {
        let all = real(done.saturating_add(*failed));
        *failed > 0 && real(*failed) > FAILED_SHARE * all
    })
}

/// Whether the hundredth part of the operations waited long for being issued.
fn is_issued_late(ops: &[OpResult]) -> bool {
    ops.iter().any(|op| {
        let response = op.response.as_ref().and_then(|all| quantile(all, 0.99));
        match (response, quantile(&op.service, 0.99)) {
            (Some(response), Some(service)) => response.saturating_sub(service) > LATE_NS,
            _ => false,
        }
    })
}

/// The tasks that did not take part to the end of a step that others carried on; none where nobody did.
fn left_early(tasks: &[TaskFacts]) -> HashSet<TaskId> {
    let is_early = |task: &&TaskFacts| {
        task.ended_us.is_none() || matches!(task.state, TaskState::Lost | TaskState::Failed)
    };
    let early: HashSet<TaskId> = tasks
        .iter()
        .filter(is_early)
        .map(|task| task.task)
        .collect();
    match early.len() < tasks.len() {
        true => early,
        false => HashSet::new(),
    }
}

fn entry<'m, V: Default>(map: &'m mut BTreeMap<String, V>, key: &str) -> &'m mut V {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), V::default());
    }
    map.entry(key.to_owned()).or_default()
}

fn headline(all_active: Option<(i64, i64)>, last_done_us: Option<i64>, overlap: bool) -> Headline {
    let (Some(whole), true) = (last_done_us, overlap) else {
        return Headline::None;
    };
    match all_active {
        Some((from, until)) if until - from >= MIN_WINDOW_US && (until - from) * 2 >= whole => {
            Headline::Window
        }
        _ => Headline::LastDone,
    }
}

/// The times that rates are taken over.
#[derive(Debug, Clone, Copy)]
struct Times {
    window_us: Option<i64>,
    last_done_us: Option<i64>,
    headline: Headline,
}

fn op_result(group: String, op: String, sum: OpSum, tasks: usize, times: Times) -> OpResult {
    let Times {
        window_us,
        last_done_us,
        headline,
    } = times;
    let headline = match headline {
        Headline::Window if sum.inside.unknown_part() > MAX_UNKNOWN_PART => Headline::LastDone,
        other => other,
    };
    let inside = window_us.map(|_| sum.inside);
    let last_done = |count: i64| match headline {
        Headline::None => None,
        _ => last_done_us.and_then(|us| rate(real(count), us)),
    };
    let last_done_ops_per_s = last_done(sum.ops);
    let last_done_bytes_per_s = last_done(sum.bytes);
    let leading = |within: Option<f64>, whole: Option<f64>| match headline {
        Headline::Window => rate(within?, window_us?),
        Headline::LastDone => whole,
        Headline::None => None,
    };
    OpResult {
        ops_per_s: leading(inside.map(|share| share.ops), last_done_ops_per_s),
        bytes_per_s: leading(inside.map(|share| share.bytes), last_done_bytes_per_s),
        group,
        op,
        tasks: u32::try_from(tasks).unwrap_or(u32::MAX),
        ops: sum.ops,
        bytes: sum.bytes,
        errors: sum.errors,
        window_us,
        window_ops: inside.map(|share| share.ops),
        window_ops_error: inside.map(|share| share.ops_error),
        window_bytes: inside.map(|share| share.bytes),
        window_bytes_error: inside.map(|share| share.bytes_error),
        headline,
        last_done_us,
        last_done_ops_per_s,
        last_done_bytes_per_s,
        seconds: None,
        service: sum.service,
        response: sum.response,
    }
}

/// Per second; `None` when no time passed.
fn rate(count: f64, us: i64) -> Option<f64> {
    (us > 0).then(|| count * 1e6 / real(us))
}
