//! The first table: a row per step and operation, and what its figures, flags and gaps mean.

use super::{Table, skew};
use crate::figures::{self, NONE, plural};
use crate::report::{Line, OpReport, Report, StepReport};
use crate::results::missing::without;
use crate::results::{Flag, FlagRow};
use std::collections::{BTreeMap, BTreeSet};

/// Partial steps that are spelled out.
const PARTIAL_SHOWN: usize = 8;

/// Failed tasks that are spelled out.
const FAILURES_SHOWN: usize = 8;

/// Steps that did not end well, and why.
pub(super) fn troubles(report: &Report) -> Option<Table> {
    if report.steps.is_empty() {
        return Some(Table::titled("Results").note("No step has ended yet."));
    }
    let mut table = Table::titled("Steps that did not end well");
    table.notes = partial_notes(report);
    (!table.notes.is_empty()).then_some(table)
}

/// Every step, a row per operation.
pub(super) fn table(report: &Report) -> Table {
    let lines: Vec<Line<'_>> = report.steps.iter().flat_map(StepReport::lines).collect();
    if lines.is_empty() {
        return Table::titled("Steps").note("No step has ended yet.");
    }
    let varying = varying(&report.steps);
    let common = common(&report.steps);
    let any = |wanted: fn(&Line<'_>) -> bool| lines.iter().any(wanted);
    let of_line =
        |cell: &dyn Fn(&Line<'_>) -> String| -> Vec<String> { lines.iter().map(cell).collect() };
    let of_step = |cell: &dyn Fn(&StepReport) -> String| -> Vec<String> {
        lines.iter().map(|line| cell(line.step)).collect()
    };
    let of_op = |cell: fn(&OpReport) -> String| -> Vec<String> {
        lines
            .iter()
            .map(|line| line.op.map_or_else(|| NONE.to_owned(), cell))
            .collect()
    };

    let mut table =
        Table::titled("Steps").figures("step", of_step(&|step| step.ordinal.to_string()));
    if any(|line| line.step.repeat > 1) {
        table = table.figures("repeat", of_step(&|step| step.repeat.to_string()));
    }
    table = table
        .text("phase", of_step(&|step| step.phase.clone()))
        .text_if_any(target_head(&report.steps), of_step(&target))
        .text_if_any("group", of_line(&|line| line.group_name().to_owned()))
        .text("mode", of_line(&|line| line.mode().to_owned()))
        .text_if_any("params", of_line(&|line| params_of(line, &varying)))
        .text_if_any("cache", of_step(&cache))
        .figures("clients", of_line(&|line| line.clients().to_string()));
    if any(|line| line.op.is_some_and(|op| op.op != line.mode())) {
        table = table.text("op", of_op(|op| op.op.clone()));
    }
    table = table
        .figures("ops/s", of_op(|op| figures::maybe_rate(op.ops_per_s)))
        .figures("MiB/s", of_op(mib_per_s))
        .figures("mean ms", of_op(|op| figures::maybe_millis(op.mean_ms)))
        .figures("p50 ms", of_op(|op| figures::maybe_millis(op.p50_ms)))
        .figures("p99 ms", of_op(|op| figures::maybe_millis(op.p99_ms)))
        .figures("max ms", of_op(|op| figures::maybe_millis(op.max_ms)));
    if any(|line| line.op.is_some_and(|op| op.response_p99_ms.is_some())) {
        table = table
            .figures(
                "response p50",
                of_op(|op| figures::maybe_millis(op.response_p50_ms)),
            )
            .figures("p99", of_op(|op| figures::maybe_millis(op.response_p99_ms)));
    }
    table = table
        .figures("errors", of_op(|op| figures::count(op.errors)))
        .text_if_any("flags", of_step(&|step| flags(step, &common)));
    table.notes = notes(report, &common);
    table.spare = vec![
        "clients",
        "mean ms",
        "response p50",
        "p50 ms",
        "repeat",
        "cache",
        "errors",
    ];
    table
}

/// The parameters whose values differ between the steps of a phase, by phase, group and mode: what only one mode has
/// tells no step from another.
pub(super) type Varying<'r> = BTreeMap<RowKey<'r>, BTreeSet<&'r str>>;

/// Phase, group and mode of a line.
type RowKey<'r> = (&'r str, &'r str, &'r str);

fn row_key<'r>(line: &Line<'r>) -> RowKey<'r> {
    (line.step.phase.as_str(), line.group_name(), line.mode())
}

pub(super) fn varying(steps: &[StepReport]) -> Varying<'_> {
    let mut firsts: BTreeMap<RowKey<'_>, Line<'_>> = BTreeMap::new();
    let mut varying: Varying<'_> = BTreeMap::new();
    for line in steps.iter().flat_map(StepReport::lines) {
        let key = row_key(&line);
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
    let Some(keys) = varying.get(&row_key(line)) else {
        return Vec::new();
    };
    line.params()
        .iter()
        .filter(|(key, _)| keys.contains(key.as_str()))
        .map(|(key, value)| format!("{key}={}", figures::parameter(value)))
        .collect()
}

fn target_head(steps: &[StepReport]) -> &'static str {
    let links = steps.iter().any(|step| !step.links.is_empty());
    let targets = steps.iter().any(|step| !step.target.is_empty());
    match (targets, links) {
        (true, true) => "target or link",
        (false, true) => "link",
        _ => "target",
    }
}

fn target(step: &StepReport) -> String {
    match step.target.as_str() {
        "" => step.links.clone(),
        target => target.to_owned(),
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

/// The flags that every one of several steps has: they are lines once, beneath the table.
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

/// A ping's few bytes are no throughput.
fn mib_per_s(op: &OpReport) -> String {
    match op.bytes_per_s.filter(|_| op.op != "ping") {
        Some(bytes) if op.bytes > 0 => figures::rate(bytes / 1_048_576.0),
        _ => NONE.to_owned(),
    }
}

fn notes(report: &Report, common: &BTreeSet<&str>) -> Vec<String> {
    let steps = &report.steps;
    let mut notes = Vec::new();
    let latest = steps
        .iter()
        .filter_map(|step| step.skew_us.map(|skew| (skew, step)))
        .max_by_key(|(skew, _)| skew.unsigned_abs());
    let error_us = steps.iter().filter_map(|step| step.skew_error_us).max();
    if let Some((skew_us, step)) = latest {
        notes.push(format!(
            "Starts: {}, start within {} of the common instant; no step's was later (step {}).",
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

/// Who was missing in which step, and what failed.
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

/// Why a step did not end well: what the run's own reason doesn't say already.
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
