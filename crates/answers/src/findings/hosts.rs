//! Hosts that ran out of CPU or memory.

use super::mesh::{Host, Mesh, Sample};
use super::span;
use benchmesh_model::mesh::{FindingVerdict, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;

/// Thresholds of scarcity: the used share of all CPUs, and the shares of the time in which tasks waited for memory
/// and in which time was stolen.
const CPU_SHARE: f64 = 0.95;
const PRESSURE_SHARE: f64 = 0.1;
const STOLEN_SHARE: f64 = 0.1;
/// Memory, or a target's space, is scarce below this share; below the second one, the finding is an error.
pub(super) const LEFT_SHARE: f64 = 0.05;
pub(super) const LEFT_SHARE_ERROR: f64 = 0.02;
/// Minimum relevant growth of used swap since the beginning.
const MIN_SWAP_BYTES: f64 = 268_435_456.0;
/// Minimum duration of scarcity, absolute and as a share of the time.
const MIN_US: i64 = 30_000_000;
const MIN_SHARE: f64 = 0.01;

/// A host or target that runs out of a resource.
pub(super) struct Subject<'m> {
    pub name: &'m str,
    /// The name in sentences.
    pub label: &'m str,
    pub host_id: Option<i64>,
    pub agent_id: Option<i64>,
    /// Its samples: the table, and the condition for its rows.
    pub samples: (&'static str, String),
}

/// Minimum duration of scarcity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MinDuration {
    /// [`MIN_US`], and [`MIN_SHARE`] of the time.
    AWhile,
    None,
}

/// A resource that a host or a target runs out of.
pub(super) struct Scarce<'m> {
    pub figure: &'static str,
    pub unit: &'static str,
    /// For each window: whether the resource is scarce, and the available or used amount.
    pub windows: Vec<Option<(bool, f64)>>,
    pub severity: &'m dyn Fn(f64) -> Severity,
    /// Whether the largest value is the worst, or the smallest.
    pub most: bool,
    pub min_duration: MinDuration,
    pub sql: &'static str,
    pub text: &'m dyn Fn(f64) -> String,
}

/// The severity for a percentage of available memory.
fn severity_of_left(percent: f64) -> Severity {
    match percent < 100.0 * LEFT_SHARE_ERROR {
        true => Severity::Error,
        false => Severity::Warning,
    }
}

pub(super) fn find(mesh: &Mesh) -> Vec<Finding> {
    mesh.hosts
        .iter()
        .flat_map(|host| of_host(mesh, host))
        .collect()
}

fn of_host(mesh: &Mesh, host: &Host) -> Vec<Finding> {
    let idle = mesh.rates(&host.samples, 0);
    let all = mesh.rates(&host.samples, 1);
    let stolen = mesh.rates(&host.samples, 2);
    let pressure = mesh.rates(&host.samples, 3);
    let share = |part: &[Option<f64>]| -> Vec<Option<f64>> {
        let of = |(part, all): (&Option<f64>, &Option<f64>)| {
            Some((*part)? / all.filter(|all| *all > 0.0)?)
        };
        part.iter().zip(&all).map(of).collect()
    };
    let above = |values: Vec<Option<f64>>, least: f64| -> Vec<Option<(bool, f64)>> {
        let of = |value: Option<f64>| value.map(|value| (value >= least, 100.0 * value));
        values.into_iter().map(of).collect()
    };
    let busy = share(&idle)
        .into_iter()
        .map(|idle| idle.map(|idle| 1.0 - idle))
        .collect();
    let level = |of: &dyn Fn(&Sample<7>) -> (bool, f64)| -> Vec<Option<(bool, f64)>> {
        let samples = host.samples.iter().skip(1);
        samples.map(|sample| sample.as_ref().map(of)).collect()
    };
    let available = |sample: &Sample<7>| {
        let [.., available, total, _] = sample.figures;
        let share = real(available) / real(total.max(1));
        (share < LEFT_SHARE && available > 0, 100.0 * share)
    };
    let first_swap = host
        .samples
        .iter()
        .flatten()
        .next()
        .map_or(0.0, |one| real(one.figures[6]));
    let swapped = |sample: &Sample<7>| {
        let more = real(sample.figures[6]) - first_swap;
        (more >= MIN_SWAP_BYTES, more / 1_048_576.0)
    };
    let warning = |_: f64| Severity::Warning;
    let percent = |value: f64| format!("{} %", figures::rate(value));
    let scarce = [
        Scarce {
            figure: "cpu_percent",
            unit: "%",
            windows: above(busy, CPU_SHARE),
            severity: &warning,
            most: true,
            min_duration: MinDuration::AWhile,
            sql: "cpu_percent",
            text: &|value| {
                format!(
                    "had no CPU left: {} of its CPUs' time was used",
                    percent(value)
                )
            },
        },
        Scarce {
            figure: "stolen_percent",
            unit: "%",
            windows: above(share(&stolen), STOLEN_SHARE),
            severity: &warning,
            most: true,
            min_duration: MinDuration::AWhile,
            sql: "steal_us",
            text: &|value| {
                format!(
                    "lost CPU time to its hypervisor: {} of the time was stolen",
                    percent(value)
                )
            },
        },
        Scarce {
            figure: "memory_available_percent",
            unit: "%",
            windows: level(&available),
            severity: &severity_of_left,
            most: false,
            min_duration: MinDuration::AWhile,
            sql: "memory_available_bytes",
            text: &|value| format!("ran out of memory: {} was available", percent(value)),
        },
        Scarce {
            figure: "memory_pressure_percent",
            unit: "%",
            windows: above(pressure, PRESSURE_SHARE),
            severity: &warning,
            most: true,
            min_duration: MinDuration::AWhile,
            sql: "memory_full_us",
            text: &|value| {
                format!(
                    "was short of memory: all tasks waited for it {} of the time",
                    percent(value)
                )
            },
        },
        Scarce {
            figure: "swap_mib",
            unit: "MiB",
            windows: level(&swapped),
            severity: &warning,
            most: true,
            min_duration: MinDuration::AWhile,
            sql: "swap_used_bytes",
            text: &|value| {
                format!(
                    "swapped out {} MiB more than at the beginning",
                    figures::rate(value)
                )
            },
        },
    ];
    let subject = Subject {
        name: &host.name,
        label: &host.name,
        host_id: Some(host.id),
        agent_id: None,
        samples: ("host_samples", format!("host_id = {}", host.id)),
    };
    scarce
        .iter()
        .filter_map(|one| one.finding(mesh, &subject))
        .collect()
}

impl Scarce<'_> {
    pub fn finding(&self, mesh: &Mesh, subject: &Subject<'_>) -> Option<Finding> {
        let is_scarce = |window: &Option<(bool, f64)>| window.is_some_and(|(is, _)| is);
        let first = self.windows.iter().position(is_scarce)?;
        let last = self.windows.iter().rposition(is_scarce)?;
        let scarce: Vec<f64> = self
            .windows
            .iter()
            .flatten()
            .filter(|(is, _)| *is)
            .map(|(_, value)| *value)
            .collect();
        let count = i64::try_from(scarce.len()).unwrap_or(i64::MAX);
        let lasted_us = count * mesh.window_us();
        let length_us = mesh.until_us - mesh.from_us;
        let is_brief = lasted_us < MIN_US || real(lasted_us) < MIN_SHARE * real(length_us);
        if is_brief && self.min_duration == MinDuration::AWhile {
            return None;
        }
        let worst = scarce
            .iter()
            .copied()
            .fold(f64::NAN, if self.most { f64::max } else { f64::min });
        let (from_us, until_us) = (mesh.instant(first), mesh.instant(last + 1));
        let sentence = format!(
            "{} {} at the worst; this lasted {} between {} and {}",
            subject.label,
            (self.text)(worst),
            // The last window may be cut by the end of the run.
            span(lasted_us.min(until_us - from_us)),
            figures::instant(from_us),
            figures::instant(until_us),
        );
        let column = match self.sql {
            "cpu_percent" => {
                "100 - 100.0 * (max(idle_us + iowait_us) - min(idle_us + iowait_us)) / \
                 (max(user_us + nice_us + system_us + idle_us + iowait_us + irq_us + softirq_us + steal_us) - \
                  min(user_us + nice_us + system_us + idle_us + iowait_us + irq_us + softirq_us + steal_us)) AS cpu_percent"
                    .to_owned()
            }
            column if column.ends_with("_us") => format!("max({column}) - min({column}) AS {column}"),
            column => format!("min({column}) AS least, max({column}) AS most"),
        };
        let step = ((until_us - from_us) / 24).max(1);
        let (table, condition) = &subject.samples;
        Some(Finding {
            figure: Some(self.figure.to_owned()),
            host_id: subject.host_id,
            agent_id: subject.agent_id,
            from_us: Some(from_us),
            until_us: Some(until_us),
            size: Some(worst),
            unit: Some(self.unit.to_owned()),
            sql: Some(format!(
                "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, {column} FROM {table} \
                 WHERE {condition} AND at_us BETWEEN {from_us} AND {until_us} GROUP BY (at_us - {from_us}) / {step}"
            )),
            ..Finding::new(
                (self.severity)(worst),
                FindingKind::Host,
                FindingVerdict::Found,
                subject.name,
                sentence,
            )
        })
    }
}
