//! Checks that follow from flags, and the number of steps that could be judged.

use super::check;
use crate::report::{Check, CheckVerdict, DaemonReport, Report, StepReport};
use benchmesh_model::mesh::StepId;
use benchmesh_results::{Flag, FlagRow};
use benchmesh_workloads::figures::{self, plural};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of steps named in a check.
const STEPS_NAMED: usize = 6;
/// Minimum CPU usage of a daemon, in percent of a CPU, that is named if workers lacked CPU time.
const BUSY_PERCENT: f64 = 10.0;
const BUSY_NAMED: usize = 3;

/// `3 of 18 steps (4, 7, 9)`.
pub(super) fn steps_of(
    steps: &[StepReport],
    is_meant: impl Fn(&StepReport) -> bool,
) -> Option<String> {
    let meant: Vec<String> = steps
        .iter()
        .filter(|step| is_meant(step))
        .map(|step| step.ordinal.to_string())
        .collect();
    if meant.is_empty() {
        return None;
    }
    if meant.len() == steps.len() {
        return Some(match meant.len() {
            1 => "the step".to_owned(),
            count => format!("all {count} steps"),
        });
    }
    let named = meant.get(..STEPS_NAMED).unwrap_or(&meant);
    let more = if meant.len() > named.len() {
        ", ..."
    } else {
        ""
    };
    Some(format!(
        "{} of {} ({}{more})",
        meant.len(),
        plural(steps.len(), "step"),
        named.join(", ")
    ))
}

/// The flags of one check, with their steps; `None` if no step has any.
pub(super) fn raised(steps: &[StepReport], about: &str) -> Option<Check> {
    let rows = Flag::ROWS.iter().filter(|row| row.about == about);
    let found: Vec<(&FlagRow, String)> = rows
        .filter_map(|row| Some((row, steps_of(steps, |step| has_flag(step, row.flag))?)))
        .collect();
    let worst = found.iter().map(|(row, _)| row.severity).max()?;
    let sentences = found
        .iter()
        .map(|(row, steps)| format!("{steps}: {}", row.meaning));
    let text = sentences.collect::<Vec<_>>().join("; ");
    Some(check(about, CheckVerdict::from(worst), text))
}

pub(super) fn has_flag(step: &StepReport, flag: Flag) -> bool {
    step.flags.iter().any(|one| one == flag.as_str())
}

/// A check of flags. `unjudged`: why they could not be raised in a step.
pub(super) fn flagged(
    steps: &[StepReport],
    about: &str,
    fine: &str,
    unjudged: impl Fn(&StepReport) -> Option<&'static str>,
) -> Check {
    let reasons: BTreeSet<&str> = steps.iter().filter_map(&unjudged).collect();
    let unjudged: Vec<String> = reasons
        .into_iter()
        .filter_map(|why| {
            Some(format!(
                "{}: {why}",
                steps_of(steps, |step| unjudged(step) == Some(why))?
            ))
        })
        .collect();
    let unjudged = unjudged.join("; ");
    match raised(steps, about) {
        Some(found) if unjudged.is_empty() => found,
        Some(found) => Check {
            text: format!("{}; not checked: {unjudged}", found.text),
            ..found
        },
        None if unjudged.is_empty() => check(about, CheckVerdict::Ok, fine),
        None => check(about, CheckVerdict::NotChecked, unjudged),
    }
}

pub(super) fn unless(judged: bool, why: &'static str) -> Option<&'static str> {
    (!judged).then_some(why)
}

/// For a load with a rate, the schedule is judged instead.
pub(super) fn under_rate(step: &StepReport) -> Option<&'static str> {
    let has_rate = |params: &Map<String, Value>| {
        ["rate", "rate_iops"]
            .iter()
            .any(|key| params.contains_key(*key))
    };
    let all = match step.groups.as_slice() {
        [] => has_rate(&step.params),
        groups => groups.iter().all(|group| has_rate(&group.params)),
    };
    all.then_some("under a rate, where the schedule is judged")
}

/// Names the busiest daemons of the clients' hosts if workers lacked CPU time.
pub(super) fn cpu(report: &Report) -> Check {
    let mut found = flagged(
        &report.steps,
        "cpu",
        "workers did not wait for CPUs",
        |step| unless(step.judged.cpu, "the wait for CPUs is unknown"),
    );
    if found.verdict > CheckVerdict::NotChecked {
        let clients: BTreeSet<&str> = report
            .agents
            .iter()
            .filter(|agent| agent.is_client)
            .map(|agent| agent.host.as_str())
            .collect();
        let mut busy: Vec<(f64, &DaemonReport)> = report
            .daemons
            .iter()
            .filter(|daemon| clients.contains(daemon.host.as_str()) && daemon.name != "benchmesh")
            .filter_map(|daemon| {
                Some((
                    daemon.cpu_percent.filter(|cpu| *cpu >= BUSY_PERCENT)?,
                    daemon,
                ))
            })
            .collect();
        busy.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let named: Vec<String> = busy
            .iter()
            .take(BUSY_NAMED)
            .map(|(cpu, daemon)| {
                format!(
                    "{} on {}, {} % of a CPU",
                    daemon.name,
                    daemon.host,
                    figures::rate(*cpu)
                )
            })
            .collect();
        if !named.is_empty() {
            found
                .text
                .push_str(&format!("; busiest there: {}", named.join(", ")));
        }
    }
    name_others(report, Flag::CpuShort, &mut found);
    found
}

/// Adds the busiest unmonitored processes on the clients of the steps with that flag.
pub(super) fn name_others(report: &Report, flag: Flag, found: &mut Check) {
    let flagged: BTreeSet<StepId> = report
        .steps
        .iter()
        .filter(|step| has_flag(step, flag))
        .map(|step| step.id)
        .collect();
    let mut most: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for other in &report.busy_others {
        if flagged.contains(&other.step_id) {
            let percent = most.entry((&other.name, &other.host)).or_default();
            *percent = percent.max(other.percent);
        }
    }
    let mut most: Vec<((&str, &str), f64)> = most.into_iter().collect();
    most.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let named: Vec<String> = most
        .iter()
        .take(BUSY_NAMED)
        .map(|((name, host), percent)| {
            format!("{name} {} % of a CPU on {host}", figures::rate(*percent))
        })
        .collect();
    if !named.is_empty() {
        found
            .text
            .push_str(&format!("; others: {}", named.join(", ")));
    }
}

/// Whether an agent's own policy was the limit.
pub(super) fn policy(report: &Report) -> Check {
    flagged(
        &report.steps,
        "policy",
        "no agent's limit was reached",
        |_| {
            unless(
                !report.agents.is_empty(),
                "the agents' policies are unknown",
            )
        },
    )
}

pub(super) fn paced(steps: &[StepReport]) -> Option<Check> {
    let is_paced = |step: &StepReport| step.ops.iter().any(|op| op.response_p99_ms.is_some());
    steps
        .iter()
        .any(is_paced)
        .then(|| flagged(steps, "schedule", "kept", |_| None))
}
