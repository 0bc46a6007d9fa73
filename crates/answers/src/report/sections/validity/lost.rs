//! Lost agents, and measurements that will never arrive.

use super::check;
use super::flagged::raised;
use crate::report::{Check, CheckVerdict, LossReport, Report};
use benchmesh_model::mesh::LossKind;
use benchmesh_workloads::figures::{self, plural};
use std::collections::BTreeSet;

pub(super) fn clients(report: &Report) -> Check {
    let frozen = raised(&report.steps, "clients");
    let losses = || {
        let events = report.events.iter();
        events.filter(|event| event.kind == "agent-lost")
    };
    let lost: BTreeSet<Option<&str>> = losses().map(|event| event.agent.as_deref()).collect();
    let mut findings = Vec::new();
    match (lost.len(), losses().count()) {
        (0, _) => {}
        (agents, times) if agents == times => {
            findings.push(format!("{} without contact", plural(agents, "agent")));
        }
        (agents, times) => findings.push(format!(
            "{} without contact, {times} times in all",
            plural(agents, "agent")
        )),
    }
    findings.extend(frozen.map(|frozen| frozen.text));
    if findings.is_empty() && report.agents.is_empty() {
        check(
            "clients",
            CheckVerdict::NotChecked,
            "the participants are unknown",
        )
    } else if findings.is_empty() {
        check("clients", CheckVerdict::Ok, "none lost, none frozen")
    } else {
        check("clients", CheckVerdict::Warning, findings.join("; "))
    }
}

/// Rows that a full spool dropped, and batches that a damaged one lost. A step's flag shows whether they may have
/// contained its operations.
pub(super) fn losses(report: &Report) -> Check {
    if !report.awaited.is_empty() {
        let text = format!(
            "the last ones of {} have not arrived: the usage of daemons and hosts in the last step is not final",
            report.awaited.join(", ")
        );
        return check("samples", CheckVerdict::Warning, text);
    }
    let is_batch = |loss: &&LossReport| {
        let kind = LossKind::parse(&loss.what);
        matches!(kind, Some(LossKind::Batches | LossKind::Operations))
    };
    let (batches, samples): (Vec<&LossReport>, Vec<&LossReport>) =
        report.losses.iter().partition(is_batch);
    let mut findings = Vec::new();
    let flagged = raised(&report.steps, "samples");
    findings.extend(flagged.map(|flagged| flagged.text));
    findings.extend(batches_lost(&batches));
    let rows: i64 = samples.iter().map(|loss| loss.rows).sum();
    if rows > 0 {
        let agents: BTreeSet<&str> = samples.iter().map(|loss| loss.agent.as_str()).collect();
        findings.push(format!(
            "{} lost on {}: the figures of daemons and hosts have gaps",
            figures::count(rows),
            plural(agents.len(), "agent")
        ));
    }
    let unreadable: BTreeSet<Option<&str>> = report
        .events
        .iter()
        .filter(|event| event.kind == "spool-unreadable")
        .map(|event| event.agent.as_deref())
        .collect();
    if !unreadable.is_empty() {
        findings.push(format!(
            "a spool of {} could not be read: operations and samples may be missing",
            plural(unreadable.len(), "agent")
        ));
    }
    if !findings.is_empty() {
        check("samples", CheckVerdict::Warning, findings.join("; "))
    } else if report.agents.is_empty() {
        check(
            "samples",
            CheckVerdict::NotChecked,
            "the samplers are unknown",
        )
    } else {
        check("samples", CheckVerdict::Ok, "none lost")
    }
}

fn batches_lost(losses: &[&LossReport]) -> Option<String> {
    let sum = |kind: LossKind| -> i64 {
        let of_kind = losses
            .iter()
            .filter(|loss| LossKind::parse(&loss.what) == Some(kind));
        of_kind.map(|loss| loss.rows).sum()
    };
    let agents: BTreeSet<&str> = losses.iter().map(|loss| loss.agent.as_str()).collect();
    let agents = Vec::from_iter(agents).join(", ");
    let seconds = match sum(LossKind::Batches) {
        0 => return None,
        1 => "1 batch of measurements, of about a second, was lost".to_owned(),
        count => format!(
            "{} batches of measurements, each of about a second, were lost",
            figures::count(count)
        ),
    };
    let known = match sum(LossKind::Operations) {
        0 => "number of operations unknown".to_owned(),
        count => format!("with at least {} operations", figures::count(count)),
    };
    Some(format!("{seconds} on {agents} ({known})"))
}
