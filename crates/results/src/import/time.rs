//! Output of the shell's `time`, usually of `time cp`: three lines, `real`, `user` and `sys`.
//!
//! A step per command, with one operation for the whole time. The number of bytes is unknown; a command line before the
//! times, after a prompt, names the step.

use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedStep, at, nanos};
use serde_json::{Map, Value};

/// Name of a step without a command line.
const PHASE: &str = "time";

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut steps: Vec<ImportedStep> = Vec::new();
    let mut command = None;
    let mut begun_us = 0_i64;
    for (number, line) in log.lines().enumerate() {
        let line = line.trim();
        if let Some(timed) = line.split_once("time ").map(|(_, timed)| timed.trim())
            && !timed.is_empty()
        {
            command = Some(timed.to_owned());
            continue;
        }
        let Some((what, seconds)) = timed(line) else {
            continue;
        };
        if what == "real" {
            let named: Option<String> = command.take();
            let step = step(named, seconds, &hints.mode);
            steps.push(ImportedStep {
                at_us: begun_us,
                ..step
            });
            begun_us = begun_us.saturating_add(nanos(seconds * 1e6));
        } else {
            let step = steps
                .last_mut()
                .ok_or_else(|| at(number + 1, format!("no line `real` before `{what}`")))?;
            step.params
                .insert(format!("{what}_s"), Value::from(seconds));
        }
    }
    Ok(ImportedLog {
        tool: String::from("time"),
        started_us: hints.written_us.saturating_sub(begun_us),
        steps,
    })
}

pub(super) fn is_result(line: &str) -> bool {
    timed(line.trim()).is_some_and(|(what, _)| what == "real")
}

/// `real 5m21.340s` of bash, `real 321.34` of POSIX; a comma in other languages.
fn timed(line: &str) -> Option<(&str, f64)> {
    let (what, time) = line.split_once([' ', '\t'])?;
    let time = time.trim().replace(',', ".");
    let time = time.strip_suffix('s').unwrap_or(&time);
    let (minutes, seconds) = time.split_once('m').unwrap_or(("0", time));
    let (minutes, seconds): (u32, f64) = (minutes.parse().ok()?, seconds.parse().ok()?);
    let is_time = matches!(what, "real" | "user" | "sys") && seconds.is_finite() && seconds >= 0.0;
    is_time.then(|| (what, f64::from(minutes) * 60.0 + seconds))
}

fn step(command: Option<String>, seconds: f64, mode: &str) -> ImportedStep {
    let mut params = Map::new();
    if let Some(command) = &command {
        params.insert(String::from("command"), Value::from(command.as_str()));
    }
    let is_copy = command
        .as_deref()
        .is_none_or(|command| command.split(' ').next() == Some("cp"));
    let op = if is_copy { "copy" } else { "command" };
    ImportedStep {
        phase: command.unwrap_or_else(|| PHASE.to_owned()),
        workload: op.to_owned(),
        mode: match (is_copy, mode) {
            (true, "read") => String::from("out"),
            (true, _) => String::from("in"),
            (false, _) => op.to_owned(),
        },
        params,
        lasted_us: nanos(seconds * 1e6),
        tasks: 1,
        ops: vec![ImportedOp {
            op: op.to_owned(),
            ops: Some(1),
            ops_per_s: (seconds > 0.0).then(|| 1.0 / seconds),
            mean_ns: Some(seconds * 1e9),
            max_ns: Some(nanos(seconds * 1e9)),
            ..ImportedOp::default()
        }],
        ..ImportedStep::default()
    }
}
