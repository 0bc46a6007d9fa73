//! Agents, targets, daemons and hosts: what the load ran on, and what it used.

use crate::model::StepId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One agent that was attached when the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    pub name: String,
    pub host: String,
    pub kernel: String,
    pub cpus: i64,
    pub memory_bytes: i64,
    pub labels: Value,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub distribution: Option<String>,
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// Whether it had a task of the run; the others only sampled their hosts.
    #[serde(default = "yes")]
    pub is_client: bool,
    /// An array of objects: `name`, `mbits`, `mtu`, `hardware`.
    #[serde(default)]
    pub interfaces: Option<Value>,
    /// An array of objects: `name`, `model`, `size_bytes`, `rotational`.
    #[serde(default)]
    pub disks: Option<Value>,
    /// Package -> version, of storage systems.
    #[serde(default)]
    pub packages: Option<Value>,
}

/// The default of `is_client`: older collectors listed only agents that had tasks.
fn yes() -> bool {
    true
}

/// What agents found at a target when the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    pub target: String,
    pub system: String,
    /// How many agents found the same.
    pub agents: i64,
    pub mount_type: Option<String>,
    pub mount_source: Option<String>,
    #[serde(default)]
    pub mount_options: Option<String>,
    #[serde(default)]
    pub path: String,
    pub size_bytes: Option<i64>,
    /// Package -> version.
    pub packages: Option<Value>,
}

/// One watched process over the steps of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonReport {
    #[serde(default)]
    pub daemon_id: i64,
    pub host: String,
    pub name: String,
    pub instance: String,
    pub pid: i64,
    /// CPU time during the steps.
    pub cpu_s: Option<f64>,
    /// Mean over the steps, weighted by their time; 100 is one CPU.
    pub cpu_percent: Option<f64>,
    /// Of the step in which it was highest.
    pub cpu_percent_max: Option<f64>,
    pub rss_first_mib: Option<f64>,
    pub rss_max_mib: Option<f64>,
    /// With what was resident between two samples, as far as the kernel's own peak rose in a step.
    #[serde(default)]
    pub rss_peak_mib: Option<f64>,
    pub rss_last_mib: Option<f64>,
    pub read_mib: Option<f64>,
    pub written_mib: Option<f64>,
    /// Whether it serves a target of the run; `None`: no rule knows.
    #[serde(default)]
    pub serves: Option<bool>,
    /// When the process was started and when it was seen to end, where that was during the run.
    #[serde(default)]
    pub born_us: Option<i64>,
    #[serde(default)]
    pub ended_us: Option<i64>,
}

/// What all daemons of one name spent on one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    pub step_id: StepId,
    pub target: String,
    pub name: String,
    pub cpu_us_per_op: Option<f64>,
    /// With what they did after the step until they were idle; `None`: not known of each of them.
    #[serde(default)]
    pub cpu_us_per_op_until_idle: Option<f64>,
    pub cpu_s_per_gib: Option<f64>,
    /// Of one CPU, all of them together, before the run; `None`: nobody looked then.
    #[serde(default)]
    pub idle_percent: Option<f64>,
    /// CPU time after the step, for how long at most, and whether all of them were idle then.
    #[serde(default)]
    pub after_cpu_s: Option<f64>,
    #[serde(default)]
    pub after_s: Option<f64>,
    #[serde(default)]
    pub after_idle: Option<bool>,
    /// Of all daemons of the name in the step.
    #[serde(default)]
    pub cpu_s: Option<f64>,
    #[serde(default)]
    pub ops: i64,
    #[serde(default)]
    pub bytes: i64,
    #[serde(default)]
    pub daemons: i64,
    /// Of one CPU, all of them together.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    /// The most of any of them.
    #[serde(default)]
    pub rss_max_mib: Option<f64>,
    #[serde(default)]
    pub read_mib: Option<f64>,
    #[serde(default)]
    pub written_mib: Option<f64>,
    /// The one that used most CPU: host and instance or pid.
    #[serde(default)]
    pub busiest: String,
    /// Its share of one CPU.
    #[serde(default)]
    pub busiest_percent: Option<f64>,
}

/// What a host did during one step. Shares are of all its CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    pub step_id: StepId,
    pub host: String,
    /// Whether a task of the step ran on it.
    pub is_client: bool,
    pub cpus: i64,
    pub user_percent: Option<f64>,
    /// With interrupts, hard and soft.
    pub system_percent: Option<f64>,
    pub iowait_percent: Option<f64>,
    pub steal_percent: Option<f64>,
    pub busy_percent: Option<f64>,
    pub disk_read_mib_per_s: Option<f64>,
    pub disk_written_mib_per_s: Option<f64>,
    pub busiest_disk_percent: Option<f64>,
    #[serde(default)]
    pub busiest_disk: Option<String>,
    pub received_mib_per_s: Option<f64>,
    pub sent_mib_per_s: Option<f64>,
}

/// What the load on a client's host moved in a step, beside what its interfaces and disks carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficReport {
    pub host: String,
    pub read_mib: f64,
    pub written_mib: f64,
    pub received_mib: Option<f64>,
    pub sent_mib: Option<f64>,
    pub disk_read_mib: Option<f64>,
    pub disk_written_mib: Option<f64>,
    pub received_bytes_per_op: Option<f64>,
    pub sent_bytes_per_op: Option<f64>,
    /// Of what was read.
    pub cached_percent: Option<f64>,
    /// Why it is not known whether a cache answered.
    pub not_judged: Option<String>,
}
