//! Steps: parameters, results and participants; a row per step and operation.

pub(in crate::report) mod clients;
mod load;
mod names;
pub(in crate::report) mod traffic;

pub use clients::{
    CLIENTS_LISTED, ClientProgress, ClientReport, ClientsReport, ProgressReport, SecondsReport,
};
pub use names::load_names;
pub use traffic::TrafficReport;

use crate::report::{Report, Table};
use benchmesh_model::mesh::StepId;
use benchmesh_results::missing::without;
use benchmesh_results::{Flag, FlagRow, Missing};
use benchmesh_workloads::figures::{self, NONE, plural};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[cfg(test)]
pub(in crate::report) use load::STATEMENTS;
pub(in crate::report) use load::load;

/// Maximum number of partial steps that are described.
const PARTIAL_SHOWN: usize = 8;

/// Maximum number of failed tasks that are described.
const FAILURES_SHOWN: usize = 8;

/// One step and its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub id: StepId,
    pub ordinal: i64,
    /// Starts at 1.
    #[serde(rename = "loop", default = "first")]
    pub loop_number: i64,
    pub repeat: i64,
    pub attempt: i64,
    pub phase: String,
    /// Empty for workloads without a target.
    pub target: String,
    pub system: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub clients: i64,
    pub cache: String,
    /// Caches that a cold step could not drop: `fuse-client`, `daemon-caches`.
    #[serde(default)]
    pub caches_kept: Vec<String>,
    /// Hosts that confirmed that a cold step's caches were dropped.
    #[serde(default)]
    pub caches_dropped: i64,
    /// Kernel caches that could not be dropped: agent and error.
    #[serde(default)]
    pub caches_failed: Vec<TaskFailure>,
    pub state: String,
    pub partial: bool,
    pub flags: Vec<String>,
    pub reason: Option<String>,
    pub start_us: Option<i64>,
    pub ended_us: Option<i64>,
    /// The width in seconds of its stored rows after merging; 1: original rows, 0: deleted.
    #[serde(default = "first")]
    pub resolution_s: i64,
    /// Its rows of seconds before these instants were merged while it was running; `None` if none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_10s_until_us: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_60s_until_us: Option<i64>,
    /// CPU time of the workers of all clients.
    #[serde(default)]
    pub cpu_user_s: Option<f64>,
    #[serde(default)]
    pub cpu_system_s: Option<f64>,
    /// Start of a task's last worker relative to the planned instant, by its agent's clock, for the task with the
    /// largest deviation.
    pub skew_us: Option<i64>,
    /// The largest error of any task's clock at its start.
    pub skew_error_us: Option<i64>,
    #[serde(default)]
    pub judged: Judged,
    /// network: the measured links, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub links: String,
    /// Clients compared with each other, by group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<ProgressReport>,
    /// The agents at both ends, if the step measures one link.
    pub from_agent: Option<String>,
    pub to_agent: Option<String>,
    /// The first error of each task that failed: agent and error.
    #[serde(default)]
    pub failures: Vec<TaskFailure>,
    /// Different loads at the same time; empty if the step is a single load.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// The clients that did not stay to the end.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// For each client's host.
    #[serde(default)]
    pub traffic: Vec<TrafficReport>,
    #[serde(default)]
    pub ops: Vec<OpReport>,
}

/// The default for documents from before loops and merged rows existed.
pub(super) fn first() -> i64 {
    1
}

/// Which flags could be judged for a step. Without this, a missing flag would be ambiguous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The harness's cost is known for some task.
    pub harness: bool,
    /// The time that workers waited for a CPU is known for some task.
    pub cpu: bool,
    /// The speed of the network to the storage is known for some task.
    pub network: bool,
}

/// One group of a step: a separate load, counted separately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    pub name: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub clients: i64,
    pub tasks: i64,
    /// The loads of the other groups, as `GROUP.KEY`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub beside: Map<String, Value>,
}

/// The index of each step, by its id.
pub(super) fn places(steps: &[StepReport]) -> HashMap<i64, usize> {
    let steps = steps.iter().enumerate();
    steps.map(|(at, step)| (step.id.0, at)).collect()
}

impl StepReport {
    /// Where the load runs: the target, or the measured links.
    pub fn place(&self) -> &str {
        match self.target.as_str() {
            "" => &self.links,
            target => target,
        }
    }

    /// The lines of results: one for each operation of a group, or of the step. A group or step without a result
    /// still has a line.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let of = |group: Option<&'_ GroupReport>| -> Vec<&OpReport> {
            let name = group.map_or("", |group| group.name.as_str());
            self.ops.iter().filter(|op| op.group == name).collect()
        };
        let groups: Vec<Option<&GroupReport>> = match self.groups.as_slice() {
            [] => vec![None],
            groups => groups.iter().map(Some).collect(),
        };
        groups
            .into_iter()
            .flat_map(|group| {
                let line = move |op| Line {
                    step: self,
                    group,
                    op,
                };
                match of(group).as_slice() {
                    [] => vec![line(None)],
                    ops => ops.iter().map(|op| line(Some(op))).collect(),
                }
            })
            .collect()
    }
}

/// One line of results.
#[derive(Clone, Copy, Debug)]
pub struct Line<'r> {
    pub step: &'r StepReport,
    pub group: Option<&'r GroupReport>,
    pub op: Option<&'r OpReport>,
}

impl<'r> Line<'r> {
    /// Empty if the step has no groups.
    pub fn group_name(&self) -> &'r str {
        self.group.map_or("", |group| group.name.as_str())
    }

    pub fn workload(&self) -> &'r str {
        self.group
            .map_or(&self.step.workload, |group| &group.workload)
    }

    pub fn mode(&self) -> &'r str {
        self.group.map_or(&self.step.mode, |group| &group.mode)
    }

    pub fn params(&self) -> &'r Map<String, Value> {
        self.group.map_or(&self.step.params, |group| &group.params)
    }

    /// The parameters of the line and of the loads beside it.
    pub fn all_params(&self) -> impl Iterator<Item = (&'r String, &'r Value)> + use<'r> {
        let beside = self.group.map(|group| &group.beside);
        self.params().iter().chain(beside.into_iter().flatten())
    }

    pub fn param(&self, key: &str) -> Option<&'r Value> {
        let beside = self.group.map(|group| &group.beside);
        let beside = || beside?.get(key);
        self.params().get(key).or_else(beside)
    }

    pub fn clients(&self) -> i64 {
        self.group.map_or(self.step.clients, |group| group.clients)
    }
}

/// A task that ended with an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    pub agent: String,
    pub error: String,
}

/// One kind of operation of a step. Fields are `None` if the database has no figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpReport {
    /// The group of the operation; empty if the step has no groups.
    #[serde(default)]
    pub group: String,
    pub op: String,
    /// `None` in an imported log that does not contain it.
    pub ops: Option<i64>,
    pub bytes: Option<i64>,
    pub errors: Option<i64>,
    /// `window`, `last-done` or `none`: the source of the headline rate.
    pub headline: String,
    /// The duration from which the headline was computed.
    #[serde(default)]
    pub over_s: Option<f64>,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub last_done_ops_per_s: Option<f64>,
    pub last_done_bytes_per_s: Option<f64>,
    /// From the start to the last worker's end.
    #[serde(default)]
    pub last_done_s: Option<f64>,
    /// The variation between seconds.
    #[serde(default)]
    pub seconds: Option<SecondsReport>,
    /// The clients' shares; `None` for links, and if no client has a result.
    #[serde(default)]
    pub clients: Option<ClientsReport>,
    pub mean_ms: Option<f64>,
    pub stddev_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Measured from the intended instant; only with a rate limit.
    pub response_p50_ms: Option<f64>,
    pub response_p99_ms: Option<f64>,
    pub response_max_ms: Option<f64>,
}

/// Steps that did not end well, with the reasons.
pub(in crate::report) fn troubles(report: &Report) -> Option<Table> {
    if report.steps.is_empty() {
        return Some(Table::titled("Results").note("No step has ended yet."));
    }
    let mut table = Table::titled("Steps that did not end well");
    table.notes = partial_notes(report);
    (!table.notes.is_empty()).then_some(table)
}

/// Every step, a row per operation.
pub(in crate::report) fn table(report: &Report) -> Table {
    let lines: Vec<Line<'_>> = report.steps.iter().flat_map(StepReport::lines).collect();
    let varying = varying(&report.steps);
    let common = common(&report.steps);
    let any = |wanted: fn(&Line<'_>) -> bool| lines.iter().any(wanted);
    let of_op = |line: &Line<'_>, cell: fn(&OpReport) -> String| -> String {
        line.op.map_or_else(|| NONE.to_owned(), cell)
    };
    let is_paced = any(|line| line.op.is_some_and(|op| op.response_p99_ms.is_some()));
    let mut table = Table::of("Steps", &lines)
        .figure("step", |line| line.step.ordinal)
        .figure("loop", |line| line.step.loop_number)
        .only_if(any(|line| line.step.loop_number > 1))
        .figure("repeat", |line| line.step.repeat)
        .only_if(any(|line| line.step.repeat > 1))
        .text("phase", |line| &line.step.phase)
        .text(target_head(&report.steps), |line| line.step.place())
        .if_any()
        .text("group", |line| line.group_name())
        .if_any()
        .text("mode", |line| line.mode())
        .text("params", |line| params_of(line, &varying))
        .if_any()
        .text("cache", |line| cache(line.step))
        .if_any()
        .figure("clients", |line| line.clients())
        .text("op", |line| of_op(line, |op| op.op.clone()))
        .only_if(any(|line| line.op.is_some_and(|op| op.op != line.mode())))
        .rate("ops/s", |line| line.op?.ops_per_s)
        .rate("MiB/s", |line| mib_per_s(line.op?))
        .millis("mean ms", |line| line.op?.mean_ms)
        .millis("p50 ms", |line| line.op?.p50_ms)
        .millis("p99 ms", |line| line.op?.p99_ms)
        .millis("max ms", |line| line.op?.max_ms)
        .millis("response p50", |line| line.op?.response_p50_ms)
        .only_if(is_paced)
        .millis("p99", |line| line.op?.response_p99_ms)
        .only_if(is_paced)
        .figure("errors", |line| {
            of_op(line, |op| op.errors.map(figures::count).unwrap_or_default())
        })
        .text("flags", |line| flags(line.step, &common))
        .if_any()
        .spare(&[
            "clients",
            "mean ms",
            "response p50",
            "p50 ms",
            "repeat",
            "cache",
            "errors",
        ]);
    for note in notes(report, &common) {
        table = table.note(note);
    }
    table
        .done()
        .unwrap_or_else(|| Table::titled("Steps").note("No step has ended yet."))
}

/// The parameters that differ between the steps of a phase, by phase, group and mode. A parameter of only one mode
/// does not distinguish steps.
pub(super) type Varying<'r> = BTreeMap<LoadKey<'r>, BTreeSet<&'r str>>;

/// Phase, group and mode of a line.
type LoadKey<'r> = (&'r str, &'r str, &'r str);

fn load_key<'r>(line: &Line<'r>) -> LoadKey<'r> {
    (line.step.phase.as_str(), line.group_name(), line.mode())
}

pub(super) fn varying(steps: &[StepReport]) -> Varying<'_> {
    let mut firsts: BTreeMap<LoadKey<'_>, Line<'_>> = BTreeMap::new();
    let mut varying: Varying<'_> = BTreeMap::new();
    for line in steps.iter().flat_map(StepReport::lines) {
        let key = load_key(&line);
        let (own, first) = (line.params(), firsts.entry(key).or_insert(line).params());
        let keys = own.keys().chain(first.keys());
        let differing = keys.filter(|key| own.get(*key) != first.get(*key));
        varying
            .entry(key)
            .or_default()
            .extend(differing.map(String::as_str));
    }
    varying
}

/// The varying parameters of one step: `bs=4k size=128m`, with groups `readers.bs=4k`.
pub(super) fn params(step: &StepReport, varying: &Varying<'_>) -> String {
    let mut seen = BTreeSet::new();
    let lines = step.lines().into_iter();
    let shown = lines
        .filter(|line| seen.insert(line.group_name()))
        .map(|line| (line.group_name(), shown(&line, varying)))
        .flat_map(|(group, shown)| {
            shown.into_iter().map(move |one| match group {
                "" => one,
                group => format!("{group}.{one}"),
            })
        });
    shown.collect::<Vec<_>>().join(" ")
}

/// The varying parameters of one line.
fn params_of(line: &Line<'_>, varying: &Varying<'_>) -> String {
    shown(line, varying).join(" ")
}

fn shown(line: &Line<'_>, varying: &Varying<'_>) -> Vec<String> {
    let Some(keys) = varying.get(&load_key(line)) else {
        return Vec::new();
    };
    line.params()
        .iter()
        .filter(|(key, _)| keys.contains(key.as_str()))
        .map(|(key, value)| format!("{key}={}", figures::parameter(value)))
        .collect()
}

pub(super) fn target_head(steps: &[StepReport]) -> &'static str {
    let links = steps.iter().any(|step| !step.links.is_empty());
    let targets = steps.iter().any(|step| !step.target.is_empty());
    match (targets, links) {
        (true, true) => "target or link",
        (false, true) => "link",
        _ => "target",
    }
}

fn cache(step: &StepReport) -> String {
    let kept: Vec<&str> = step
        .caches_kept
        .iter()
        .map(|what| match what.as_str() {
            "fuse-client" => "clients'",
            "daemon-caches" => "daemons'",
            other => other,
        })
        .collect();
    match (step.cache.as_str(), kept.as_slice()) {
        ("asis" | "as-is", _) => String::new(),
        (cache, []) => cache.to_owned(),
        (cache, kept) => format!("{cache} ({} caches kept)", kept.join(" and ")),
    }
}

/// The common flags of several steps, which are listed once beneath the table.
fn common(steps: &[StepReport]) -> BTreeSet<&str> {
    let [first, others @ ..] = steps else {
        return BTreeSet::new();
    };
    if others.is_empty() {
        return BTreeSet::new();
    }
    first
        .flags
        .iter()
        .map(String::as_str)
        .filter(|flag| {
            others
                .iter()
                .all(|step| step.flags.iter().any(|one| one == flag))
        })
        .collect()
}

fn flags(step: &StepReport, common: &BTreeSet<&str>) -> String {
    let mut flags: Vec<&str> = step
        .flags
        .iter()
        .map(String::as_str)
        .filter(|flag| !common.contains(flag))
        .collect();
    if step.partial && !step.flags.iter().any(|flag| flag == "partial") {
        flags.push("partial");
    }
    if step.state != "done" {
        flags.insert(0, &step.state);
    }
    flags.join(" ")
}

/// `None` for a ping, whose few bytes are not a throughput.
fn mib_per_s(op: &OpReport) -> Option<f64> {
    let bytes = op
        .bytes_per_s
        .filter(|_| op.op != "ping" && op.bytes != Some(0))?;
    Some(bytes / 1_048_576.0)
}

fn notes(report: &Report, common: &BTreeSet<&str>) -> Vec<String> {
    let steps = &report.steps;
    let mut notes = Vec::new();
    let worst = steps
        .iter()
        .filter_map(|step| step.skew_us.map(|skew| (skew, step)))
        .max_by_key(|(skew, _)| skew.unsigned_abs());
    let error_us = steps.iter().filter_map(|step| step.skew_error_us).max();
    if let Some((skew_us, step)) = worst {
        notes.push(format!(
            "Starts: {}, within {} of the common instant in the worst step (step {}).",
            plural(usize::try_from(step.clients).unwrap_or(0), "client"),
            skew(skew_us, error_us),
            step.ordinal
        ));
    }
    for FlagRow { name, meaning, .. } in Flag::ROWS {
        let flagged = steps.iter().any(|step| {
            step.flags.iter().any(|one| one == name)
                || (*name == Flag::Partial.as_str() && step.partial)
        });
        if common.contains(name) {
            notes.push(format!("{name} (every step): {meaning}."));
        } else if flagged {
            notes.push(format!("{name}: {meaning}."));
        }
    }
    notes.extend(partial_notes(report));
    notes
}

/// The missing clients of each step, and the failures.
fn partial_notes(report: &Report) -> Vec<String> {
    let steps = &report.steps;
    let mut notes = Vec::new();
    let partial: Vec<String> = steps
        .iter()
        .filter_map(|step| {
            let without = without(&step.missing)?;
            Some(format!("step {}: {without}", step.ordinal))
        })
        .collect();
    notes.extend(partial.iter().take(PARTIAL_SHOWN).cloned());
    if partial.len() > PARTIAL_SHOWN {
        notes.push(format!(
            "... and {}",
            plural(partial.len() - PARTIAL_SHOWN, "more partial step")
        ));
    }
    let failures: Vec<String> = steps
        .iter()
        .flat_map(|step| failures(report, step))
        .collect();
    notes.extend(failures.iter().take(FAILURES_SHOWN).cloned());
    if failures.len() > FAILURES_SHOWN {
        notes.push(format!(
            "... and {}",
            plural(failures.len() - FAILURES_SHOWN, "more failed task")
        ));
    }
    notes
}

/// The reason why a step failed, unless the run's own reason already contains it.
fn failures(report: &Report, step: &StepReport) -> Vec<String> {
    let names = |by: &Option<String>, reason: &str| {
        by.as_ref()
            .is_some_and(|text| text == reason || text.ends_with(&format!(": {reason}")))
    };
    let is_new = |reason: &&String| !reason.is_empty() && !names(&report.run.reason, reason);
    let own = step.reason.iter().filter(is_new);
    let mut lines: Vec<String> = own
        .map(|reason| format!("step {}: {reason}", step.ordinal))
        .collect();
    for failure in &step.failures {
        if is_new(&&failure.error) && !names(&step.reason, &failure.error) {
            lines.push(format!(
                "step {}, agent {}: {}",
                step.ordinal, failure.agent, failure.error
            ));
        }
    }
    lines
}

/// Formats a skew and its bound.
fn skew(skew_us: i64, error_us: Option<i64>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let shown = |us: i64| {
        if us.abs() < 1000 {
            format!("{us} us")
        } else {
            format!("{} ms", figures::rate(us as f64 / 1000.0))
        }
    };
    match error_us {
        Some(error) => format!("{} (error {})", shown(skew_us), shown(error)),
        None => shown(skew_us),
    }
}
