//! The validity of the figures: a fixed list of checks, each with a verdict and a sentence.
//!
//! Pure. A check that found nothing has a short text, one that could not be made gives the reason; a check that does
//! not apply (no cold step, no repeat) is left out. The meaning of flags is in their table.

mod cached;
mod flagged;
mod imported;
mod lost;
mod starts;
mod table;

use self::flagged::{
    cpu, flagged, has_flag, name_others, paced, policy, raised, steps_of, under_rate, unless,
};
use self::lost::{clients, losses};
pub(in crate::report) use self::table::table;
use super::{Report, StepReport};
use benchmesh_results::missing::without;
use benchmesh_results::{Flag, FlagSeverity, real};
use benchmesh_workloads::figures::{self, plural};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One check of the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// `starts`, `caches`, `complete`, ...
    pub name: String,
    pub verdict: CheckVerdict,
    pub text: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    /// Checked, and fine.
    Ok,
    /// It was not or cannot be checked; the text gives the reason.
    NotChecked,
    /// Limits the meaning of the figures.
    Note,
    /// Figures may be wrong or missing.
    Warning,
    /// There are no usable figures.
    Failed,
}

impl From<FlagSeverity> for CheckVerdict {
    fn from(severity: FlagSeverity) -> Self {
        match severity {
            FlagSeverity::Note => Self::Note,
            FlagSeverity::Warning => Self::Warning,
            FlagSeverity::Failed => Self::Failed,
        }
    }
}

/// Every check that applies to the run.
pub(in crate::report) fn checks(report: &Report) -> Vec<Check> {
    let steps = &report.steps;
    if steps.is_empty() {
        return vec![check(
            "complete",
            CheckVerdict::Note,
            "no step has ended yet",
        )];
    }
    if let Some(tool) = &report.run.imported_from {
        return imported::checks(report, tool);
    }
    let mut checks = vec![complete(report), starts::check_starts(steps)];
    checks.extend(caches(steps));
    let mut tool = flagged(steps, "tool", "the harness was not the limit", |step| {
        under_rate(step).or_else(|| unless(step.judged.harness, "without a calibration"))
    });
    name_others(report, Flag::ToolBound, &mut tool);
    checks.push(tool);
    checks.push(cpu(report));
    checks.push(policy(report));
    checks.extend(paced(steps));
    checks.extend(cached::check(steps));
    checks.push(stalls(report));
    checks.push(clients(report));
    checks.push(errors(steps));
    checks.push(losses(report));
    checks.extend(raised(steps, "windows"));
    checks.extend(raised(steps, "latencies"));
    checks.extend(raised(steps, "steady"));
    checks.extend(repeats(steps));
    checks.extend(resolution(steps));
    checks
}

/// The resolution of the time line of steps whose old rows were merged or deleted.
fn resolution(steps: &[StepReport]) -> Option<Check> {
    let of = |resolution_s, what: &str| {
        let those = steps_of(steps, |step| step.resolution_s == resolution_s)?;
        Some(format!("rows of seconds of {those} are {what}"))
    };
    let going_on = |step: &StepReport| {
        let until_us = step
            .merged_10s_until_us
            .filter(|_| step.resolution_s == 1)?;
        let coarser = step.merged_60s_until_us.map(|until_us| {
            let until = figures::instant(until_us);
            format!(", before {until} of 60 s")
        });
        Some(format!(
            "rows of seconds of step {} before {} are merged into rows of 10 s{}",
            step.ordinal,
            figures::instant(until_us),
            coarser.unwrap_or_default()
        ))
    };
    let parts: Vec<String> = [
        of(10, "merged into rows of 10 s"),
        of(60, "merged into rows of 60 s"),
        of(0, "deleted"),
    ]
    .into_iter()
    .flatten()
    .chain(steps.iter().filter_map(going_on))
    .collect();
    let text = format!(
        "{}; the results come from the rows of seconds",
        parts.join("; ")
    );
    (!parts.is_empty()).then(|| check("resolution", CheckVerdict::Note, text))
}

fn check(name: &str, verdict: CheckVerdict, text: impl Into<String>) -> Check {
    Check {
        name: name.to_owned(),
        verdict,
        text: text.into(),
    }
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
            check("complete", CheckVerdict::Warning, text.replace("  ", " "))
        }
        None if going_on => check(
            "complete",
            CheckVerdict::Note,
            format!(
                "the run is still going; {} so far",
                plural(steps.len(), "step")
            ),
        ),
        None if report.run.partial => {
            check("complete", CheckVerdict::Warning, "the run ended early")
        }
        None => check(
            "complete",
            CheckVerdict::Ok,
            format!("{} with all clients", plural(steps.len(), "step")),
        ),
    }
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
        let text = format!("not dropped before {failed}, which should be cold{why}");
        return Some(check("caches", CheckVerdict::Warning, text));
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
            CheckVerdict::Ok,
            format!("{steps}, confirmed by {}", plural(hosts, "host")),
        ),
        (0, kept) => check(
            "caches",
            CheckVerdict::Note,
            format!(
                "{steps}, confirmed by {}; caches inside {} cannot be dropped and were kept",
                plural(hosts, "host"),
                kept.join(" and ")
            ),
        ),
        (count, _) => check(
            "caches",
            CheckVerdict::Warning,
            format!("no host confirmed the drop in {count} of {steps}"),
        ),
    })
}

fn stalls(report: &Report) -> Check {
    let hangs = report
        .events
        .iter()
        .filter(|event| event.kind == "stall")
        .count();
    let mut parts = Vec::new();
    match hangs {
        0 => {}
        1 => parts.push("operations hung once".to_owned()),
        times => parts.push(format!("operations hung {times} times")),
    }
    parts.extend(seconds_in_words(&report.steps));
    let unseen = steps_of(&report.steps, |step| {
        !step.ops.iter().any(|op| op.seconds.is_some())
    });
    let unseen = unseen.map(|steps| format!("{steps}: no whole second to judge"));
    match (parts.is_empty(), unseen) {
        (true, None) => check("stalls", CheckVerdict::Ok, "no second without an operation"),
        (true, Some(unseen)) => check("stalls", CheckVerdict::NotChecked, unseen),
        (false, _) => check("stalls", CheckVerdict::Note, parts.join("; ")),
    }
}

/// The seconds without an operation; `None` if there are none.
fn seconds_in_words(steps: &[StepReport]) -> Option<String> {
    let zero = usize::try_from(seconds_at_zero(steps)).ok()?;
    let has = |step: &StepReport| seconds_at_zero(std::slice::from_ref(step)) > 0;
    let steps = steps_of(steps, has)?;
    Some(format!(
        "{} in which nothing completed, in {steps}",
        plural(zero, "second")
    ))
}

/// The number for the operation with the fewest, because in a mix the other operations continued.
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

fn errors(steps: &[StepReport]) -> Check {
    let errors: i64 = steps
        .iter()
        .flat_map(|step| &step.ops)
        .filter_map(|op| op.errors)
        .sum();
    let Some(failed) = steps_of(steps, |step| step.ops.iter().any(|op| op.errors > Some(0))) else {
        return check("errors", CheckVerdict::Ok, "no operation failed");
    };
    let mostly = |step: &StepReport| has_flag(step, Flag::MostlyFailed);
    let text = format!("{} failed operations in {failed}", figures::count(errors));
    match steps_of(steps, mostly) {
        Some(mostly) => check(
            "errors",
            CheckVerdict::Failed,
            format!("{text}; {mostly}: more failed than succeeded"),
        ),
        None => check("errors", CheckVerdict::Warning, text),
    }
}

fn repeats(steps: &[StepReport]) -> Option<Check> {
    let repeats: BTreeSet<(i64, i64)> = steps
        .iter()
        .map(|step| (step.loop_number, step.repeat))
        .collect();
    Some(match repeats.len() {
        1 => check(
            "repeats",
            CheckVerdict::Note,
            "only one: a difference cannot be told from chance",
        ),
        count => check(
            "repeats",
            CheckVerdict::Ok,
            format!("geometric mean of {count}"),
        ),
    })
}

#[cfg(test)]
mod tests;
