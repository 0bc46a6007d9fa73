//! How long the steps of a plan last, before anything has run: by their `runtime`, or by an assumed rate of files.

use benchmesh_answers::report::figures::{self, plural};
use benchmesh_results::sum::MIN_WINDOW_US;
use benchmesh_scheduler::snapshot::StepPlanned;
use std::time::Duration;

/// Workloads whose time is that of their files, whatever these hold.
const OF_FILES: [&str; 2] = ["files", "tree"];
/// Files per second and client. Nothing is known of the targets before a run: a disk does hundreds, a local file system
/// in memory a hundred thousand.
const ASSUMED_FILES_PER_S: f64 = 1000.0;
/// Maximum number of steps that a warning names.
const MAX_NAMED: usize = 5;

/// The duration of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lasting {
    /// By its `runtime`, in seconds.
    Known(f64),
    /// At the assumed rate of files, in seconds.
    Assumed(f64),
    /// As long as the work takes.
    Unknown,
}

impl Lasting {
    pub fn of(step: &StepPlanned) -> Self {
        if let Some(seconds) = step.expected_s {
            return Self::Known(seconds);
        }
        match step.agents.len() {
            clients @ 1.. if step.files > 0 && OF_FILES.contains(&step.workload.as_str()) => {
                Self::Assumed(real(step.files) / ASSUMED_FILES_PER_S / real(clients))
            }
            _ => Self::Unknown,
        }
    }

    /// `20 s`, `~20 s`; `None` if unknown.
    pub fn shown(self) -> Option<String> {
        match self {
            Self::Known(seconds) => span(seconds),
            Self::Assumed(seconds) => Some(format!("~{}", span(seconds)?)),
            Self::Unknown => None,
        }
    }
}

/// The sums of a plan's steps: `, 1m 00s by their runtime, about 20 s for files (...), 2 steps as long as the work
/// takes`.
pub fn totals(steps: &[StepPlanned]) -> String {
    let (mut known, mut assumed, mut unknown) = (0.0, 0.0, 0);
    for step in steps {
        match Lasting::of(step) {
            Lasting::Known(seconds) => known += seconds,
            Lasting::Assumed(seconds) => assumed += seconds,
            Lasting::Unknown => unknown += 1,
        }
    }
    let mut text = String::new();
    if known > 0.0 {
        text.push_str(&format!(
            ", {} by their runtime",
            span(known).unwrap_or_default()
        ));
    }
    if assumed > 0.0 {
        text.push_str(&format!(
            ", about {} for files (rate unknown: at {} files/s per client)",
            span(assumed).unwrap_or_default(),
            figures::count(1000)
        ));
    }
    if unknown > 0 {
        text.push_str(&format!(
            ", {} as long as the work takes",
            plural(unknown, "step")
        ));
    }
    text
}

/// Steps whose rates will not be those of a window in which all clients are active, because they are too short for one.
pub fn too_short(steps: &[StepPlanned]) -> Vec<String> {
    let is_short = |step: &StepPlanned, seconds: f64| {
        let ramp = step.params.get("ramp_time").and_then(seconds_of);
        (seconds - ramp.unwrap_or(0.0)) * 1e6 < real(MIN_WINDOW_US)
    };
    let (mut known, mut assumed) = (Vec::new(), Vec::new());
    for step in steps {
        match Lasting::of(step) {
            Lasting::Known(seconds) if is_short(step, seconds) => known.push(step.ordinal),
            Lasting::Assumed(seconds) if is_short(step, seconds) => assumed.push(step.ordinal),
            _ => {}
        }
    }
    let least = span(real(MIN_WINDOW_US) / 1e6).unwrap_or_default();
    let mut warnings = Vec::new();
    if !known.is_empty() {
        warnings.push(format!(
            "{} shorter than {least} and will be flagged `window-short`: set a longer `runtime`",
            named(&known)
        ));
    }
    if !assumed.is_empty() {
        warnings.push(format!(
            "at {} files/s per client {} shorter than {least} and will be flagged `window-short`: set more `files` or \
             a `runtime`",
            figures::count(1000),
            named(&assumed)
        ));
    }
    warnings
}

/// `step 3 is`, `steps 1, 2, 3, 4, 5 and 7 more are`.
fn named(steps: &[u32]) -> String {
    let first: Vec<String> = steps.iter().take(MAX_NAMED).map(u32::to_string).collect();
    let first = first.join(", ");
    match (steps.len(), steps.len().saturating_sub(MAX_NAMED)) {
        (1, _) => format!("step {first} is"),
        (_, 0) => format!("steps {first} are"),
        (_, more) => format!("steps {first} and {more} more are"),
    }
}

fn seconds_of(value: &serde_json::Value) -> Option<f64> {
    use benchmesh_workloads::params::units::Span;
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let span: Span = text.parse().ok()?;
    Some(span.0.as_secs_f64())
}

fn span(seconds: f64) -> Option<String> {
    Duration::try_from_secs_f64(seconds).ok().map(figures::span)
}

/// Counts are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn real(count: impl TryInto<i64>) -> f64 {
    count.try_into().unwrap_or(i64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    fn step(
        ordinal: u32,
        workload: &str,
        files: i64,
        params: Value,
        expected_s: Option<f64>,
    ) -> StepPlanned {
        StepPlanned {
            ordinal,
            repeat: 1,
            phase: workload.to_owned(),
            target: "t".to_owned(),
            workload: workload.to_owned(),
            mode: "read".to_owned(),
            params: params.as_object().cloned().unwrap_or_else(Map::new),
            agents: vec!["a".to_owned(), "b".to_owned()],
            files,
            expected_s,
            ..StepPlanned::default()
        }
    }

    #[test]
    fn files_are_estimated_and_short_steps_are_named() {
        let steps = [
            step(1, "files", 40_000, json!({}), None),
            step(2, "files", 1000, json!({}), None),
            step(3, "io", 4, json!({}), None),
            step(4, "io", 4, json!({"ramp_time": "1s"}), Some(3.0)),
            step(5, "io", 4, json!({"ramp_time": 1}), Some(4.0)),
        ];
        let shown: Vec<Option<String>> =
            steps.iter().map(|step| Lasting::of(step).shown()).collect();
        let shown: Vec<&str> = shown
            .iter()
            .map(|name| name.as_deref().unwrap_or("-"))
            .collect();
        assert_eq!(shown, ["~20 s", "~500 ms", "-", "3.0 s", "4.0 s"]);
        assert_eq!(
            totals(&steps),
            ", 7.0 s by their runtime, about 20 s for files (rate unknown: at 1,000 files/s per client), 1 step as \
             long as the work takes"
        );
        assert_eq!(
            too_short(&steps),
            [
                "step 4 is shorter than 2.5 s and will be flagged `window-short`: set a longer `runtime`",
                "at 1,000 files/s per client step 2 is shorter than 2.5 s and will be flagged `window-short`: set more \
                 `files` or a `runtime`"
            ]
        );
    }
}
