//! One pass over a step's intervals: its grid, its totals, its all-active window, its flags.
//!
//! `new` takes the tasks and `add` every interval in order of time. `take_before` returns the grid's finished intervals
//! during the pass, and `finish` returns the figures. Ramp intervals are on the grid but in no figure.
//!
//! `add_slice` adds a stored sum of a slice of time instead of its intervals. The figures are bit-identical: only whole
//! numbers are added. Fractions arise only in intervals across an edge of the window, and no slice covers such an edge.

mod counts;
mod raised;
mod slice;

pub use counts::SliceCounts;
pub use slice::{SliceSum, SliceSummer, TaskEdges};

use super::facts::{IntervalFacts, TaskFacts};
use super::figures::{Headline, OpResult, StepResults, TaskResult};
use super::grid::Grid;
use super::interval::StepInterval;
use super::seconds::{SecondsSum, WholeSeconds};
use super::window::{
    Activity, ClientActivity, Extent, Gaps, Position, TaskOverlap, WindowShare, share,
};
use super::{PERIOD_US, real};
use benchmesh_model::mesh::{MeshMicros, TaskId, TaskState};
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Minimum length of a window for the headline rate. It is half a period away from every runtime in whole seconds, so
/// that a load which ends slightly early makes no difference.
pub const MIN_WINDOW_US: i64 = PERIOD_US * 5 / 2;
/// Maximum part of the window's work that may lie outside of the window for the headline rate.
const MAX_UNKNOWN_PART: f64 = 0.1;

#[derive(Debug)]
pub struct StepSum {
    tasks: Vec<TaskFacts>,
    activities: HashMap<TaskId, Activity>,
    together: Option<TaskOverlap>,
    /// Tasks that were lost or failed while others continued: the window is that of the others.
    left_early: HashSet<TaskId>,
    /// Whether the tasks of the window were all active at some moment; `None` if no task started.
    overlap: Option<bool>,
    /// From the last start to the first end, with the gaps of clients that were lost and rejoined.
    spanned_us: i64,
    /// The longest part of it without a gap.
    all_active: Option<(i64, i64)>,
    /// By group: the overlap of its tasks.
    groups: HashMap<String, TaskOverlap>,
    workers: HashMap<TaskId, u32>,
    grid: Grid,
    /// Only the tasks of the window, if some tasks are excluded.
    window_grid: Option<Grid>,
    whole_seconds: Option<WholeSeconds>,
    totals: Totals,
    /// The work in the window, by group and operation.
    inside: BTreeMap<(String, String), InsideWindow>,
}

/// Sums of intervals and seconds, in whole numbers: the order and partition of the additions make no difference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Totals {
    /// By task and operation.
    of_tasks: BTreeMap<TaskId, BTreeMap<String, TaskSum>>,
    /// Operations including the ramp: all of them cost harness time.
    all_ops: BTreeMap<TaskId, i64>,
    /// Seconds of the intervals already taken from the grid.
    seconds: SecondsSums,
}

/// By group and operation.
type SecondsSums = BTreeMap<String, BTreeMap<String, SecondsSum>>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct TaskSum {
    ops: i64,
    bytes: i64,
    errors: i64,
    service: Histogram,
    response: Option<Histogram>,
}

/// Work that is completely in the window, and shares of the work at its edges.
#[derive(Debug, Default)]
struct InsideWindow {
    whole_ops: i64,
    whole_bytes: i64,
    edges: WindowShare,
}

impl InsideWindow {
    fn add_whole(&mut self, ops: i64, bytes: i64) {
        self.whole_ops = self.whole_ops.saturating_add(ops);
        self.whole_bytes = self.whole_bytes.saturating_add(bytes);
    }

    fn share(&self) -> WindowShare {
        WindowShare {
            ops: real(self.whole_ops) + self.edges.ops,
            bytes: real(self.whole_bytes) + self.edges.bytes,
            ..self.edges
        }
    }
}

impl Totals {
    fn add(&mut self, interval: &IntervalFacts) {
        if Op::is_work(&interval.op) {
            let all = self.all_ops.entry(interval.task).or_default();
            *all = all.saturating_add(interval.ops);
        }
        if interval.ramp {
            return;
        }
        let of_task = self.of_tasks.entry(interval.task).or_default();
        let sum = entry(of_task, &interval.op);
        sum.count(interval.ops, interval.bytes, interval.errors);
        sum.distributions(&interval.service, interval.response.as_ref());
    }

    fn seconds_of(&mut self, group: &str, op: &str) -> &mut SecondsSum {
        entry(entry(&mut self.seconds, group), op)
    }

    fn merge_tasks(&mut self, other: &Self) {
        for (task, ops) in &other.all_ops {
            let all = self.all_ops.entry(*task).or_default();
            *all = all.saturating_add(*ops);
        }
        for (task, ops) in &other.of_tasks {
            let of_task = self.of_tasks.entry(*task).or_default();
            for (op, sum) in ops {
                entry(of_task, op).add(sum);
            }
        }
    }

    fn merge_seconds(&mut self, seconds: &SecondsSums) {
        for (group, ops) in seconds {
            for (op, sum) in ops {
                self.seconds_of(group, op).merge(sum);
            }
        }
    }
}

impl TaskSum {
    fn add(&mut self, other: &Self) {
        self.count(other.ops, other.bytes, other.errors);
        self.distributions(&other.service, other.response.as_ref());
    }

    fn count(&mut self, ops: i64, bytes: i64, errors: i64) {
        self.ops = self.ops.saturating_add(ops);
        self.bytes = self.bytes.saturating_add(bytes);
        self.errors = self.errors.saturating_add(errors);
    }

    fn distributions(&mut self, service: &Histogram, response: Option<&Histogram>) {
        self.service.add(service);
        if let Some(response) = response {
            self.response.get_or_insert_default().add(response);
        }
    }
}

impl StepSum {
    /// `start_us`: the planned start of the step.
    pub fn new(start_us: i64, tasks: Vec<TaskFacts>) -> Self {
        let activities: HashMap<_, _> = tasks
            .iter()
            .filter_map(|task| Some((task.task, Activity::of(task)?)))
            .collect();
        let left_early = left_early(&tasks);
        let clients = clients(&tasks, &activities);
        let overlap = |is_meant: &dyn Fn(&TaskFacts) -> bool| {
            let meant = clients.iter().filter(|(task, _)| is_meant(task));
            TaskOverlap::of(meant.map(|(_, client)| client.whole))
        };
        let together = |group: &str| overlap(&|task| task.group == group);
        let groups: HashSet<&str> = tasks.iter().map(|task| task.group.as_str()).collect();
        let all = overlap(&|_| true);
        let stays = |task: &TaskFacts| !left_early.contains(&task.task);
        let staying = overlap(&stays);
        let gaps = Gaps::of(
            clients
                .iter()
                .filter(|(task, _)| stays(task))
                .map(|(_, client)| client),
        );
        let spanned = staying.and_then(|staying| staying.all_active());
        let window = spanned.map(|spanned| gaps.longest_between(spanned));
        Self {
            whole_seconds: window.and_then(|window| WholeSeconds::of(start_us, window)),
            groups: groups
                .into_iter()
                .filter_map(|group| Some((group.to_owned(), together(group)?)))
                .collect(),
            together: all,
            overlap: staying.or(all).map(|tasks| tasks.overlap()),
            all_active: window,
            spanned_us: spanned.map_or(0, |(from, until)| until - from),
            window_grid: (!left_early.is_empty()).then(|| Grid::new(start_us)),
            left_early,
            workers: tasks.iter().map(|task| (task.task, task.workers)).collect(),
            grid: Grid::new(start_us),
            activities,
            tasks,
            totals: Totals::default(),
            inside: BTreeMap::new(),
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
        self.totals.add(interval);
        let window = self.all_active.filter(|_| is_of_window && !interval.ramp);
        let Some(window) = window else { return };
        let key = (interval.group.clone(), interval.op.clone());
        let inside = self.inside.entry(key).or_default();
        match Extent::of(interval).position(window) {
            Position::Within => inside.add_whole(interval.ops, interval.bytes),
            Position::Outside => {}
            Position::Across => {
                let workers = self.workers.get(&interval.task).copied().unwrap_or(1);
                let activity = self.activities.get(&interval.task);
                inside.edges.add(share(interval, workers, activity, window));
            }
        }
    }

    /// The step's intervals that end by `before_us`, which must not be later than the begin of the next added interval.
    pub fn take_before(&mut self, before_us: i64) -> Vec<StepInterval> {
        let taken = self.grid.take_before(before_us);
        let of_window = match &mut self.window_grid {
            Some(grid) => &grid.take_before(before_us),
            None => &taken,
        };
        if let Some(window) = self.whole_seconds {
            for interval in of_window {
                let sum = self.totals.seconds_of(&interval.group, &interval.op);
                sum.add(window, interval);
            }
        }
        taken
    }

    /// Returns the last intervals and the figures.
    pub fn finish(mut self) -> (Vec<StepInterval>, StepResults) {
        let last = self.take_before(i64::MAX);
        let all_active = self.all_active;
        let window = self.whole_seconds;
        let mut ops = Vec::new();
        for ((group, op), sum) in self.op_sums() {
            let seconds = window.and_then(|window| {
                let own = self.totals.seconds.get(&group).and_then(|ops| ops.get(&op));
                own.copied().unwrap_or_default().finish(window)
            });
            let times = self.times_of(&group, all_active);
            let inside = self.inside.get(&(group.clone(), op.clone()));
            let inside = inside.map(InsideWindow::share).unwrap_or_default();
            let result = op_result(group, op, sum, inside, times);
            ops.push(OpResult { seconds, ..result });
        }
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

    /// Times of one group. The window is that of the whole step, in which all groups ran at the same time.
    fn times_of(&self, group: &str, all_active: Option<(i64, i64)>) -> Times {
        let last_done_us = self.groups.get(group).map(TaskOverlap::measured_us);
        let mut staying = self
            .tasks
            .iter()
            .filter(|task| !self.left_early.contains(&task.task))
            .peekable();
        // The window is that of the groups whose clients stayed.
        let is_absent = staying.peek().is_some() && staying.all(|task| task.group != group);
        Times {
            window_us: all_active.map(|(from, until)| until - from),
            last_done_us,
            headline: match is_absent {
                true => Headline::None,
                false => self.headline(last_done_us),
            },
        }
    }

    /// The basis of the rate of tasks that worked for `last_done_us` in all.
    fn headline(&self, last_done_us: Option<i64>) -> Headline {
        let (Some(whole), Some(true)) = (last_done_us, self.overlap) else {
            return Headline::None;
        };
        match self.all_active {
            Some((from, until))
                if until - from >= MIN_WINDOW_US && self.spanned_us * 2 >= whole =>
            {
                Headline::Window
            }
            _ => Headline::LastDone,
        }
    }

    /// By group and operation: the sum over all tasks, and the number of clients with operations or errors of that
    /// kind.
    fn op_sums(&self) -> BTreeMap<(String, String), (TaskSum, u32)> {
        let known = self.tasks.iter().map(|task| (task.task, task));
        let known: HashMap<TaskId, &TaskFacts> = known.collect();
        let mut sums: BTreeMap<(String, String), (TaskSum, BTreeSet<u32>)> = BTreeMap::new();
        for (task, ops) in &self.totals.of_tasks {
            let facts = known.get(task);
            for (op, own) in ops {
                let group = facts.map(|facts| facts.group.clone());
                let key = (group.unwrap_or_default(), op.clone());
                let (sum, clients) = sums.entry(key).or_default();
                sum.add(own);
                let has_done = own.ops > 0 || own.errors > 0;
                clients.extend(facts.filter(|_| has_done).map(|facts| facts.client));
            }
        }
        let counted = |(key, (sum, clients)): (_, (TaskSum, BTreeSet<u32>))| {
            let clients = u32::try_from(clients.len()).unwrap_or(u32::MAX);
            (key, (sum, clients))
        };
        sums.into_iter().map(counted).collect()
    }

    fn task_results(&mut self) -> Vec<TaskResult> {
        std::mem::take(&mut self.totals.of_tasks)
            .into_iter()
            .flat_map(|(task, ops)| ops.into_iter().map(move |(op, sum)| (task, op, sum)))
            .map(|(task, op, sum)| {
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
}

/// The activity of each client, with its first task.
fn clients<'t>(
    tasks: &'t [TaskFacts],
    activities: &HashMap<TaskId, Activity>,
) -> Vec<(&'t TaskFacts, ClientActivity)> {
    let mut clients: BTreeMap<u32, (&TaskFacts, ClientActivity)> = BTreeMap::new();
    let mut parts: Vec<&TaskFacts> = tasks.iter().collect();
    parts.sort_by_key(|task| task.part);
    for task in parts {
        let Some(activity) = activities.get(&task.task) else {
            continue;
        };
        match clients.entry(task.client) {
            Entry::Vacant(new) => {
                new.insert((task, ClientActivity::of(*activity)));
            }
            Entry::Occupied(mut known) => known.get_mut().1.rejoined(activity),
        }
    }
    clients.into_values().collect()
}

/// The tasks of clients that left a step early while others continued; empty if no client continued.
fn left_early(tasks: &[TaskFacts]) -> HashSet<TaskId> {
    let mut last: HashMap<u32, &TaskFacts> = HashMap::new();
    for task in tasks {
        let known = last.entry(task.client).or_insert(task);
        if task.part > known.part {
            *known = task;
        }
    }
    let is_early = |task: &&TaskFacts| {
        last.get(&task.client).is_some_and(|task| {
            task.ended_us.is_none() || matches!(task.state, TaskState::Lost | TaskState::Failed)
        })
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

/// The times for computing rates.
#[derive(Debug, Clone, Copy)]
struct Times {
    window_us: Option<i64>,
    last_done_us: Option<i64>,
    headline: Headline,
}

fn op_result(
    group: String,
    op: String,
    (sum, tasks): (TaskSum, u32),
    inside: WindowShare,
    times: Times,
) -> OpResult {
    let Times {
        window_us,
        last_done_us,
        headline,
    } = times;
    let headline = match headline {
        Headline::Window if inside.unknown_part() > MAX_UNKNOWN_PART => Headline::LastDone,
        other => other,
    };
    let inside = window_us.map(|_| inside);
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
        tasks,
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
        // Without an operation that ended there is no response time.
        response: sum.response.filter(|response| !response.is_empty()),
    }
}

/// Per second; `None` if no time passed.
fn rate(count: f64, us: i64) -> Option<f64> {
    (us > 0).then(|| count * 1e6 / real(us))
}
