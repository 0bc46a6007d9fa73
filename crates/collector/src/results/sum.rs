//! One pass over a step's intervals: its grid, its totals, its all-active window, its flags.
//!
//! `new` takes the tasks, `add` every interval in the order of time, `take_before` the grid's finished intervals on the
//! way, `finish` the figures. Ramp intervals are on the grid and in no figure.

use super::facts::{IntervalFacts, TaskFacts};
use super::figures::{Flag, Headline, OpResult, StepInterval, StepResults, TaskResult};
use super::grid::Grid;
use super::window::{Activity, Share, Together, share};
use super::{PERIOD_US, real};
use crate::model::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_workloads::histogram::Histogram;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A window shorter than this many periods is too short to lead.
const LEAST_PERIODS: i64 = 3;
/// The harness's own cost above this share of the workers' time makes a result tool-bound.
const HARNESS_SHARE: f64 = 0.20;
/// Operations that bring data from the storage.
const READS: [&str; 3] = ["read", "fread", "getc"];
/// Time that workers were ready and had no CPU, likewise.
const WAIT_SHARE: f64 = 0.10;

#[derive(Debug)]
pub struct StepSum {
    tasks: Vec<TaskFacts>,
    activities: HashMap<TaskId, Activity>,
    together: Option<Together>,
    /// By group: its tasks together.
    groups: HashMap<String, Together>,
    workers: HashMap<TaskId, u32>,
    grid: Grid,
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
        Self {
            groups: groups
                .into_iter()
                .filter_map(|group| Some((group.to_owned(), together(group)?)))
                .collect(),
            together: Together::of(activities.values().copied()),
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
        self.grid.add(interval);
        let all = self.all_ops.entry(interval.task).or_default();
        *all = all.saturating_add(interval.ops);
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
        if let Some(window) = self.together.and_then(|t| t.all_active()) {
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
        self.grid.take_before(before_us)
    }

    /// The last intervals and the figures.
    pub fn finish(mut self) -> (Vec<StepInterval>, StepResults) {
        let last = self.grid.take_before(i64::MAX);
        let all_active = self.together.and_then(|together| together.all_active());
        let ops: Vec<OpResult> = std::mem::take(&mut self.ops)
            .into_iter()
            .flat_map(|(group, ops)| {
                let times = self.times_of(&group, all_active);
                let of_tasks = self.tasks_by_op(&group);
                ops.into_iter().map(move |(op, sum)| {
                    let tasks = of_tasks.get(&op).copied().unwrap_or(0);
                    op_result(group.clone(), op, sum, tasks, times)
                })
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
        raise(
            Flag::WindowShort,
            ops.iter().any(|op| op.headline == Headline::LastDone),
        );
        raise(
            Flag::NoOverlap,
            self.together.is_some_and(|together| !together.overlap()),
        );
        raise(Flag::ToolBound, self.is_tool_bound());
        raise(Flag::CacheSuspect, self.is_cache_suspect(tasks));
        raise(Flag::Partial, self.tasks.iter().any(unended));
        raise(Flag::Errors, ops.iter().any(|op| op.errors > 0));
        raise(
            Flag::Saturated,
            ops.iter().any(|op| op.service.saturated() > 0),
        );
        flags
    }

    /// Whether the tasks of any agent together read more in a second than its network can carry.
    fn is_cache_suspect(&self, results: &[TaskResult]) -> bool {
        let mut agents: HashMap<AgentId, (f64, f64)> = HashMap::new();
        for task in &self.tasks {
            let Some(link) = task.link_bytes_per_s else {
                continue;
            };
            let read: f64 = results
                .iter()
                .filter(|result| result.task == task.task && READS.contains(&result.op.as_str()))
                .filter_map(|result| result.bytes_per_s)
                .sum();
            let (sum, least) = agents.entry(task.agent).or_insert((0.0, f64::INFINITY));
            *sum += read;
            *least = least.min(real(link));
        }
        agents.values().any(|(read, link)| read > link)
    }

    fn is_tool_bound(&self) -> bool {
        let mut workers_us = 0.0;
        let mut harness_us = 0.0;
        let mut wait_us = 0.0;
        for task in &self.tasks {
            let Some(activity) = self.activities.get(&task.task) else {
                continue;
            };
            let busy = activity.ended_us.saturating_sub(activity.start_us);
            workers_us += real(busy) * f64::from(task.workers);
            let ops = self.all_ops.get(&task.task).copied().unwrap_or(0);
            harness_us += real(task.harness_ns_per_op.unwrap_or(0)) * real(ops) / 1e3;
            wait_us += real(task.wait_cpu_us.unwrap_or(0));
        }
        workers_us > 0.0
            && (harness_us > HARNESS_SHARE * workers_us || wait_us > WAIT_SHARE * workers_us)
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
        Some((from, until))
            if until - from >= LEAST_PERIODS * PERIOD_US && (until - from) * 2 >= whole =>
        {
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
        service: sum.service,
        response: sum.response,
    }
}

/// Per second; `None` when no time passed.
fn rate(count: f64, us: i64) -> Option<f64> {
    (us > 0).then(|| count * 1e6 / real(us))
}
