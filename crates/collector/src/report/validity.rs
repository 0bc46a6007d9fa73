//! What a reader must know before any figure: a fixed list of checks, each with a verdict and a sentence.
//!
//! Pure. A check that found nothing says so in a few words; a check whose question does not arise (no cold step, no
//! repeat) is left out.

use super::{Check, LossReport, Report, StepReport, Verdict};
use crate::figures::{self, plural};
use crate::model::LossKind;
use crate::results::missing::without;
use crate::results::{Flag, FlagRow, real};
use std::collections::BTreeSet;

/// A start that is later than this makes short steps of several clients dubious.
const LATE_START_US: i64 = 10_000;
/// Steps that a check names.
const STEPS_NAMED: usize = 6;

/// Every check that applies to the run.
pub(super) fn checks(report: &Report) -> Vec<Check> {
    let steps = &report.steps;
    if steps.is_empty() {
        return vec![check("complete", Verdict::Note, "no step has ended yet")];
    }
    let mut checks = vec![complete(report)];
    checks.extend(starts(steps));
    checks.extend(caches(steps));
    checks.push(flagged(steps, "tool", "the harness was not the limit"));
    checks.extend(paced(steps));
    checks.push(flagged(steps, "cached", "nothing faster than the network"));
    checks.push(stalls(report));
    checks.push(clients(report));
    checks.push(errors(steps));
    checks.push(losses(report));
    checks.extend(raised(steps, "windows"));
    checks.extend(raised(steps, "latencies"));
    checks.extend(repeats(steps));
    checks
}

fn check(name: &str, verdict: Verdict, text: impl Into<String>) -> Check {
    Check {
        name: name.to_owned(),
        verdict,
        text: text.into(),
    }
}

/// `3 of 18 steps (4, 7, 9)`.
fn steps_of(steps: &[StepReport], is_meant: impl Fn(&StepReport) -> bool) -> Option<String> {
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

fn complete(report: &Report) -> Check {
    let steps = &report.steps;
    let unended = steps_of(steps, |step| {
        step.partial || step.state != "done" || has_flag(step, Flag::NoData)
    });
    let going_on = matches!(report.run.state.as_str(), "running" | "queued");
    match unended {
        Some(unended) => {
            let lost = steps.iter().find_map(|step| {
                Some(format!(
                    "; step {}: {}",
                    step.ordinal,
                    without(&step.missing)?
                ))
            });
            let how = if going_on { "not ended, or" } else { "" };
            let text = format!(
                "{unended} {how} partial or without data{}",
                lost.unwrap_or_default()
            );
            check("complete", Verdict::Warning, text.replace("  ", " "))
        }
        None if going_on => check(
            "complete",
            Verdict::Note,
            format!(
                "the run is still going; {} so far",
                plural(steps.len(), "step")
            ),
        ),
        None if report.run.partial => check("complete", Verdict::Warning, "the run ended early"),
        None => check(
            "complete",
            Verdict::Ok,
            format!("{} with all clients", plural(steps.len(), "step")),
        ),
    }
}

fn starts(steps: &[StepReport]) -> Option<Check> {
    let skews = steps.iter().filter_map(|step| Some((step.skew_us?, step)));
    let (skew, step) = skews.max_by_key(|(skew, _)| *skew)?;
    let error = step
        .skew_error_us
        .map_or_else(String::new, |error| format!(", known to {}", micros(error)));
    let text = format!("within {} of the common instant{error}", micros(skew));
    Some(if skew > LATE_START_US {
        check(
            "starts",
            Verdict::Note,
            format!("{text} (step {})", step.ordinal),
        )
    } else {
        check("starts", Verdict::Ok, text)
    })
}

fn micros(us: i64) -> String {
    if us.abs() < 1000 {
        format!("{us} us")
    } else {
        format!("{} ms", figures::rate(real(us) / 1000.0))
    }
}

fn caches(steps: &[StepReport]) -> Option<Check> {
    let cold: Vec<&StepReport> = steps.iter().filter(|step| step.cache == "cold").collect();
    if cold.is_empty() {
        return None;
    }
    let failed = steps_of(steps, |step| !step.caches_failed.is_empty());
    if let Some(failed) = failed {
        let first = cold.iter().find_map(|step| step.caches_failed.first());
        let why = first.map_or_else(String::new, |one| format!("; {}: {}", one.agent, one.error));
        let text = format!("not dropped before {failed} that should be cold{why}");
        return Some(check("caches", Verdict::Warning, text));
    }
    let unconfirmed = cold.iter().filter(|step| step.caches_dropped == 0).count();
    let kept: BTreeSet<&str> = cold
        .iter()
        .flat_map(|step| step.caches_kept.iter())
        .map(|what| match what.as_str() {
            "fuse-client" => "FUSE clients",
            "daemon-caches" => "the daemons",
            other => other,
        })
        .collect();
    let kept: Vec<&str> = kept.into_iter().collect();
    let hosts = cold
        .iter()
        .map(|step| step.caches_dropped)
        .min()
        .unwrap_or(0);
    let hosts = usize::try_from(hosts).unwrap_or(0);
    let steps = plural(cold.len(), "cold step");
    Some(match (unconfirmed, kept.as_slice()) {
        (0, []) => check(
            "caches",
            Verdict::Ok,
            format!("{steps}, confirmed by {}", plural(hosts, "host")),
        ),
        (0, kept) => check(
            "caches",
            Verdict::Note,
            format!(
                "{steps}, confirmed by {}; caches inside {} cannot be dropped and were kept",
                plural(hosts, "host"),
                kept.join(" and ")
            ),
        ),
        (count, _) => check(
            "caches",
            Verdict::Warning,
            format!("{count} of {steps} without any host that confirmed the drop"),
        ),
    })
}

/// The flags that stand in one line of validity, with their steps; `None`: no step has any.
fn raised(steps: &[StepReport], about: &str) -> Option<Check> {
    let rows = Flag::ROWS.iter().filter(|row| row.about == about);
    let found: Vec<(&FlagRow, String)> = rows
        .filter_map(|row| Some((row, steps_of(steps, |step| has_flag(step, row.flag))?)))
        .collect();
    let worst = found.iter().map(|(row, _)| row.severity).max()?;
    let sentences = found
        .iter()
        .map(|(row, steps)| format!("{steps}: {}", row.meaning));
    let text = sentences.collect::<Vec<_>>().join("; ");
    Some(check(about, Verdict::from(worst), text))
}

fn has_flag(step: &StepReport, flag: Flag) -> bool {
    step.flags.iter().any(|one| one == flag.as_str())
}

fn flagged(steps: &[StepReport], about: &str, fine: &str) -> Check {
    raised(steps, about).unwrap_or_else(|| check(about, Verdict::Ok, fine))
}

fn paced(steps: &[StepReport]) -> Option<Check> {
    let is_paced = |step: &StepReport| step.ops.iter().any(|op| op.response_p99_ms.is_some());
    steps
        .iter()
        .any(is_paced)
        .then(|| flagged(steps, "schedule", "kept"))
}

fn stalls(report: &Report) -> Check {
    let hangs = report
        .events
        .iter()
        .filter(|event| event.kind == "stall")
        .count();
    let zero: i64 = seconds_at_zero(&report.steps);
    match (hangs, zero) {
        (0, 0) => check("stalls", Verdict::Ok, "no second without an operation"),
        (hangs, zero) => {
            let where_ = steps_of(&report.steps, |step| {
                seconds_at_zero(std::slice::from_ref(step)) > 0
            });
            let mut parts = Vec::new();
            if hangs > 0 {
                parts.push(format!(
                    "operations hung {}",
                    match hangs {
                        1 => "once".to_owned(),
                        times => format!("{times} times"),
                    }
                ));
            }
            if let Some(where_) = where_ {
                parts.push(format!(
                    "{} in which nothing completed, in {where_}",
                    plural(usize::try_from(zero).unwrap_or(usize::MAX), "second")
                ));
            }
            check("stalls", Verdict::Note, parts.join("; "))
        }
    }
}

/// Of the operation with the fewest, because in a mix the others went on.
fn seconds_at_zero(steps: &[StepReport]) -> i64 {
    let of_step = |step: &StepReport| {
        let zero = step
            .ops
            .iter()
            .filter_map(|op| Some(op.seconds.as_ref()?.zero));
        zero.min().unwrap_or(0)
    };
    steps.iter().map(of_step).sum()
}

fn clients(report: &Report) -> Check {
    let frozen = raised(&report.steps, "clients");
    let lost = report
        .events
        .iter()
        .filter(|event| event.kind == "agent-lost")
        .count();
    let mut findings = Vec::new();
    if lost > 0 {
        findings.push(format!("{} without contact", plural(lost, "agent")));
    }
    findings.extend(frozen.map(|frozen| frozen.text));
    if findings.is_empty() {
        check("clients", Verdict::Ok, "none lost, none frozen")
    } else {
        check("clients", Verdict::Warning, findings.join("; "))
    }
}

fn errors(steps: &[StepReport]) -> Check {
    let errors: i64 = steps
        .iter()
        .flat_map(|step| &step.ops)
        .map(|op| op.errors)
        .sum();
    match steps_of(steps, |step| step.ops.iter().any(|op| op.errors > 0)) {
        Some(failed) => check(
            "errors",
            Verdict::Warning,
            format!("{} failed operations in {failed}", figures::count(errors)),
        ),
        None => check("errors", Verdict::Ok, "no operation failed"),
    }
}

fn losses(report: &Report) -> Check {
    let of = |kinds: &[LossKind]| -> Vec<&LossReport> {
        let is_meant =
            |loss: &&LossReport| LossKind::parse(&loss.what).is_some_and(|it| kinds.contains(&it));
        report.losses.iter().filter(is_meant).collect()
    };
    let sum = |losses: &[&LossReport]| losses.iter().map(|loss| loss.rows).sum::<i64>();
    let agents = |losses: &[&LossReport]| -> BTreeSet<String> {
        losses.iter().map(|loss| loss.agent.clone()).collect()
    };
    let batches = of(&[LossKind::Batches]);
    if !batches.is_empty() {
        let known = match sum(&of(&[LossKind::Operations])) {
            0 => "how many operations were in them is not known".to_owned(),
            count => format!("with {} operations at least", figures::count(count)),
        };
        let seconds = match sum(&batches) {
            1 => "1 batch of what was measured, of about a second, was lost".to_owned(),
            count => format!(
                "{} batches of what was measured, each of about a second, were lost",
                figures::count(count)
            ),
        };
        let agents = Vec::from_iter(agents(&batches)).join(", ");
        let text = format!("{seconds} on {agents} ({known}): counts and rates may be too low");
        return check("samples", Verdict::Warning, text);
    }
    let rows = sum(&report.losses.iter().collect::<Vec<_>>());
    if rows == 0 {
        return check("samples", Verdict::Ok, "none lost");
    }
    let agents = agents(&report.losses.iter().collect::<Vec<_>>());
    let text = format!(
        "{} lost on {}: what daemons and hosts did has gaps",
        figures::count(rows),
        plural(agents.len(), "agent")
    );
    check("samples", Verdict::Warning, text)
}

fn repeats(steps: &[StepReport]) -> Option<Check> {
    let repeats: BTreeSet<i64> = steps.iter().map(|step| step.repeat).collect();
    Some(match repeats.len() {
        1 => check(
            "repeats",
            Verdict::Note,
            "one: nothing tells a difference from chance",
        ),
        count => check("repeats", Verdict::Ok, format!("{count}, averaged")),
    })
}

#[cfg(test)]
mod tests;
