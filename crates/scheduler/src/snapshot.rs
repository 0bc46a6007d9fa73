//! The current state of the mesh as plain values. The replies of `Control`, the JSON of the page, `/metrics` and the
//! terminal are all written from it, and commands read it back. The names are the fields of the JSON that
//! `docs/openapi.json` describes.
//!
//! Instants are mesh time in microseconds; `None` means that a value is not known.

mod forward;

pub use benchmesh_store::annotate::RunListed;
pub use benchmesh_store::ingest::recent::Newest;
pub use forward::Forward;

use benchmesh_model::figures::{DaemonFigures, HostFigures};
use benchmesh_model::mesh::{RunId, RunState, StepId, StepState};
use benchmesh_plan::{AgentPolicy, PlannedStep};
use benchmesh_results::objective::ObjectiveSeconds;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything that is shown live.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub health: Health,
    pub run: Option<RunNow>,
    pub agents: Vec<AgentNow>,
    pub daemons: Vec<DaemonNow>,
    pub hosts: Vec<HostNow>,
    pub events: Vec<EventNow>,
    pub runs: Vec<RunListed>,
}

/// The collector itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Health {
    pub now_us: i64,
    pub version: &'static str,
    pub mesh_uid: String,
    /// Warning for viewers that the mesh is not trustworthy, because it has no TLS.
    pub security_warning: Option<&'static str>,
    pub uptime_s: u64,
    pub database_bytes: u64,
    /// Size of the write-ahead file, including space for reuse.
    pub wal_bytes: u64,
    /// Why the database cannot be written now.
    pub blocked: Option<String>,
    /// Runs in the queue.
    pub queued_runs: u32,
    /// `None` without `--archive`.
    pub archive: Option<ArchiveNow>,
    pub agents_attached: usize,
    pub agents_known: usize,
    pub viewers: usize,
    /// CPU time of the collector's process.
    pub cpu_s: f64,
    pub resident_bytes: u64,
}

/// The copying of ended runs into the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveNow {
    /// The database and its host, without user and password.
    pub server: String,
    /// The collector's name there; `None` until the archive was reached.
    pub site: Option<String>,
    /// Ended runs that the archive lacks, or has as they were before a change.
    pub waiting_runs: u32,
    /// Since when the one waits that has waited longest.
    pub oldest_waiting_us: Option<i64>,
    /// Since the collector started.
    pub pushed_runs: u64,
    pub last_pushed_us: Option<i64>,
    /// Since when copying fails, and why it failed last; `None` while it works.
    pub failing_since_us: Option<i64>,
    pub error: Option<String>,
}

/// The run under way, else the last one since the collector started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunNow {
    pub run_id: RunId,
    pub run: String,
    pub state: RunState,
    pub partial: bool,
    /// For example `loop 3 of 10`; empty if the plan has no loops.
    #[serde(rename = "loop")]
    pub loop_in_words: String,
    pub steps_done: usize,
    pub steps_total: usize,
    pub started_us: Option<i64>,
    pub elapsed_us: i64,
    /// Shown values never rise: see [`Forward`].
    pub left_us: Option<i64>,
    /// The present estimate is higher than `left_us`.
    pub left_is_low: bool,
    /// 0..1, by time if that is known, otherwise by steps. Shown values never fall: see [`Forward`].
    #[serde(deserialize_with = "figure")]
    pub share_done: f64,
    pub removed_files: Option<u64>,
    pub step: Option<StepNow>,
    /// Slowest first.
    pub clients: Vec<ClientRate>,
    /// Newest last.
    pub messages: Vec<String>,
    /// Newest last.
    pub finished: Vec<StepDone>,
    /// Alarms of the plan that are raised now.
    pub alarms: Vec<AlarmNow>,
    /// Objectives of the plan.
    pub objectives: Vec<ObjectiveNow>,
    /// Marks of the last two hours, newest last.
    pub marks: Vec<MarkNow>,
}

/// An accepted plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunStarted {
    /// 0 if it was only checked.
    pub run_id: i64,
    pub run_uid: String,
    /// The uid was known: nothing was started.
    pub known: bool,
    pub steps: Vec<StepPlanned>,
    pub warnings: Vec<String>,
}

/// A planned step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepPlanned {
    pub ordinal: u32,
    pub repeat: u32,
    pub phase: String,
    pub target: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub agents: Vec<String>,
    /// Number of its tasks: an agent may have several.
    pub tasks: usize,
    /// The receiving agents of its links, by name.
    pub peer: Option<String>,
    /// The links that it measures, in a few words; empty for a step with a target.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// The treatment of caches before it.
    pub cache: String,
    /// Bytes to move by all tasks; `None` if only time bounds the step.
    pub bytes: Option<i64>,
    pub files: i64,
    /// `None` if time does not bound the step.
    pub expected_s: Option<f64>,
}

impl StepPlanned {
    /// Its place in a few words: its target, or its links.
    pub fn place(&self) -> String {
        match self.link.as_str() {
            "" => self.target.clone(),
            link => link.to_owned(),
        }
    }
}

impl From<&PlannedStep> for StepPlanned {
    fn from(step: &PlannedStep) -> Self {
        let peers: Vec<&str> = step.receivers().into_iter().collect();
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            ordinal: step.ordinal,
            repeat: step.repeat,
            phase: step.phase.clone(),
            target: step.target.clone(),
            workload: step.workload.clone(),
            mode: step.mode.clone(),
            params: (*step.params).clone(),
            agents: step.agents().into_iter().map(str::to_owned).collect(),
            tasks: step.tasks.len(),
            peer: Some(peers.join(", ")).filter(|peers| !peers.is_empty()),
            link: step.link(),
            cache: step.cache.as_str().to_owned(),
            bytes: Some(signed(step.moved_bytes)).filter(|bytes| *bytes > 0),
            files: signed(step.files),
            expected_s: step.expected.map(|expected| expected.as_secs_f64()),
        }
    }
}

/// A run that was queued again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResumed {
    pub run_id: i64,
    pub run_uid: String,
    pub run: String,
    pub steps_done: usize,
    pub steps_total: usize,
    /// Accepted changes of its targets.
    pub changes: Vec<String>,
}

/// What a watcher of a run gets, about every second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunUpdate {
    /// Messages and ended steps since the last update, and only the slowest clients.
    pub run: RunNow,
    /// Number of clients.
    pub clients: usize,
    /// The busiest that are not ours, busiest first.
    pub daemons: Vec<BusyDaemon>,
    /// Events of agents since the last update that are not in `messages`, and marks of users, which have the id 0.
    pub events: Vec<EventNow>,
}

/// A daemon, for a watcher of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusyDaemon {
    pub host: String,
    pub name: String,
    pub instance: String,
    /// 100 is one CPU.
    #[serde(deserialize_with = "figure")]
    pub cpu_percent: f64,
    pub rss_bytes: i64,
}

/// An alarm that is raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmNow {
    /// The condition, as written in the plan.
    pub when: String,
    /// The value that meets the condition.
    pub because: String,
}

/// State of an objective of the plan so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveNow {
    /// The condition, as written in the plan.
    pub holds: String,
    /// Seconds so far; `bad` counts the bad ones among them.
    pub seconds: i64,
    pub bad_seconds: i64,
    /// The number of seconds that may be bad, out of those so far and those left of the run.
    #[serde(deserialize_with = "figure")]
    pub budget_s: f64,
    /// Whether more seconds were bad.
    pub broken: bool,
}

impl ObjectiveNow {
    pub fn in_seconds(&self) -> ObjectiveSeconds {
        ObjectiveSeconds {
            judged: self.seconds,
            bad: self.bad_seconds,
            budget: self.budget_s,
            is_broken: self.broken,
        }
    }
}

/// A dated entry on the time line of the run: a mark by a person, or a daemon that started or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkNow {
    pub at_us: i64,
    pub source: String,
    pub text: String,
}

/// The step under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepNow {
    pub step_id: StepId,
    pub ordinal: u32,
    pub phase: String,
    pub target: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub peer: String,
    pub state: StepState,
    pub clients: u32,
    /// Agents of the step that are detached now: without contact, or lost.
    pub clients_absent: usize,
    pub elapsed_us: i64,
    pub share_done: Option<f64>,
    /// Time since rows of its load last came.
    pub silent_us: i64,
    #[serde(flatten)]
    pub load: LoadNow,
    /// Start of the load in mesh time; `None` if it is not known yet.
    pub start_us: Option<i64>,
    /// The newest whole seconds of the load after which all clients have sent later rows, in the order of time. Late rows
    /// may still change them.
    pub seconds: Vec<SecondNow>,
}

/// One second of the load under way, or a few where a client's interval was longer: all operations together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondNow {
    /// Mesh time.
    pub at_us: i64,
    pub span_us: i64,
    #[serde(deserialize_with = "figure")]
    pub ops_per_s: f64,
    #[serde(deserialize_with = "figure")]
    pub bytes_per_s: f64,
    /// `None` without an operation, or if nobody watched when the second arrived.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// `None` also if the load is not paced.
    pub response_p99_ms: Option<f64>,
}

/// The load of the step under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadNow {
    /// Total of the step so far.
    pub ops: u64,
    pub bytes: u64,
    /// The rates and latencies are those of this many last seconds; 0 before the first.
    pub window_s: u32,
    /// Rate over the last seconds.
    #[serde(deserialize_with = "figure")]
    pub ops_per_s: f64,
    #[serde(deserialize_with = "figure")]
    pub bytes_per_s: f64,
    /// Latencies over the last seconds; `None` if nothing was measured yet.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// As `p99_ms`, from the instant at which an operation was due; `None` if the load is not paced.
    pub response_p99_ms: Option<f64>,
}

/// One agent's part of the step under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientRate {
    pub agent: String,
    #[serde(deserialize_with = "figure")]
    pub ops_per_s: f64,
    #[serde(deserialize_with = "figure")]
    pub bytes_per_s: f64,
    /// The agent is detached now: without contact, or lost.
    pub is_absent: bool,
}

/// A step that has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepDone {
    pub step_id: StepId,
    pub ordinal: u32,
    pub phase: String,
    pub target: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    /// For network steps: "from -> to".
    pub link: String,
    pub clients: u32,
    pub state: StepState,
    pub max_skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub flags: Vec<String>,
    pub ops: Vec<OpDone>,
}

/// One operation of an ended step. Figures only, because a run may have a hundred thousand steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpDone {
    /// Empty if the step has no groups.
    pub group: String,
    pub op: String,
    pub ops: i64,
    pub errors: i64,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    #[serde(deserialize_with = "figure")]
    pub mean_ms: f64,
    #[serde(deserialize_with = "figure")]
    pub p50_ms: f64,
    #[serde(deserialize_with = "figure")]
    pub p99_ms: f64,
    #[serde(deserialize_with = "figure")]
    pub max_ms: f64,
    /// `None` if the load was not paced.
    pub response_p99_ms: Option<f64>,
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentNow {
    pub agent_id: i64,
    pub name: String,
    pub attached: bool,
    pub host: String,
    pub labels: BTreeMap<String, String>,
    pub version: String,
    pub kernel: String,
    pub cpus: u32,
    pub memory_bytes: i64,
    pub allowed_paths: Vec<String>,
    /// `None` if the agent does not report it.
    pub policy: Option<AgentPolicy>,
    pub address: String,
    /// `None` while it is attached.
    pub last_seen_us: Option<i64>,
    pub clock_error_us: Option<i64>,
    pub round_trip_us: Option<i64>,
    pub samples_host: bool,
}

/// A daemon that is sampled now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DaemonNow {
    pub daemon_id: i64,
    pub host: String,
    pub name: String,
    pub instance: String,
    pub pid: i64,
    /// Cumulative CPU time.
    pub cpu_us: i64,
    /// Mean over the last seconds; 100 is one CPU.
    pub cpu_percent: Option<f64>,
    #[serde(flatten)]
    pub newest: Newest<DaemonFigures>,
}

/// A host that is sampled now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostNow {
    pub host: String,
    pub cpus: i64,
    /// Mean of all its CPUs over the last seconds.
    pub busy_percent: Option<f64>,
    pub iowait_percent: Option<f64>,
    #[serde(flatten)]
    pub newest: Newest<HostFigures>,
}

/// A dated event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventNow {
    pub event_id: i64,
    pub at_us: i64,
    pub severity: String,
    pub kind: String,
    pub run_id: Option<i64>,
    pub step_id: Option<i64>,
    pub agent: Option<String>,
    pub message: String,
}

/// A run that was saved under a name, for comparisons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BaselineListed {
    pub baseline: String,
    pub run_id: i64,
    pub run: String,
    pub saved_us: i64,
}

/// JSON has no NaN and no infinity: serde writes them as `null`.
fn figure<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
