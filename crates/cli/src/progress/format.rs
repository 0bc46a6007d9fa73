//! Progress as text: the name of a step, its state, its result. Pure functions of updates.

use super::names::Names;
use crate::terminal::clean;
use benchmesh_answers::report::figures;
use benchmesh_model::mesh::StepState;
use benchmesh_scheduler::snapshot::{EventNow, ObjectiveNow, OpDone, RunUpdate, StepDone, StepNow};
use std::time::Duration;

pub const MIB: f64 = 1_048_576.0;

/// Maximum age of figures that are shown as current; they arrive every second.
pub const MAX_AGE_US: i64 = 5_000_000;

const SECOND_US: i64 = 1_000_000;

/// `small files: create, cephfs (size=4k), 3 agents`.
pub fn step_now(step: &StepNow, names: &Names) -> String {
    let place = if step.peer.is_empty() {
        &step.target
    } else {
        &step.peer
    };
    let name = names.name(&step.phase, &step.mode, place, &step.params);
    clean(&format!("{name}, {}", agents(step.clients)))
}

/// `12,345 ops/s, 48.2 MiB/s, p50 0.0410 ms, p99 1.20 ms`, or the state of a step that is not running.
pub fn step_rate(step: &StepNow, removed_files: Option<u64>) -> String {
    if let Some(files) = removed_files {
        return cleaning(files);
    }
    if step.state != StepState::Running {
        return state_in_words(step.state).to_owned();
    }
    if step.silent_us >= MAX_AGE_US {
        return format!("no figures for {}", span(step.silent_us));
    }
    let load = &step.load;
    let mut text = format!("{} ops/s", figures::rate(load.ops_per_s));
    if load.bytes_per_s > 0.0 {
        text.push_str(&format!(
            ", {} MiB/s",
            figures::rate(load.bytes_per_s / MIB)
        ));
    }
    if let Some(p50_ms) = load.p50_ms {
        text.push_str(&format!(", p50 {} ms", figures::millis(p50_ms)));
    }
    if let Some(p99_ms) = load.p99_ms {
        text.push_str(&format!(", p99 {} ms", figures::millis(p99_ms)));
    }
    text
}

/// `slowest of 3 clients: n2 at 3,021 ops/s; busiest daemon: ceph-osd osd.3 on s1 at 187 % of a CPU, 1.20 GiB`. Empty
/// if neither is known.
pub fn detail(update: &RunUpdate) -> String {
    let mut parts = Vec::new();
    if let Some(client) = update.run.clients.first().filter(|_| update.clients > 1) {
        parts.push(format!(
            "slowest of {} clients: {} at {} ops/s",
            update.clients,
            client.agent,
            figures::rate(client.ops_per_s)
        ));
    }
    if let Some(daemon) = update.daemons.first() {
        let name = [daemon.name.as_str(), daemon.instance.as_str()].join(" ");
        parts.push(format!(
            "busiest daemon: {} on {} at {} % of a CPU, {}",
            name.trim_end(),
            daemon.host,
            figures::rate(daemon.cpu_percent),
            figures::bytes(u64::try_from(daemon.rss_bytes).unwrap_or(0))
        ));
    }
    parts.extend(update.run.objectives.iter().map(objective_text));
    clean(&parts.join("; "))
}

/// `at risk: p99 < 10ms for 95% of seconds: 9 of 200 seconds were bad, 10 may be`.
pub fn objective_text(objective: &ObjectiveNow) -> String {
    let seconds = objective.in_seconds();
    format!(
        "{}: {}: {}",
        seconds.standing().word(),
        objective.holds,
        seconds.words()
    )
}

/// `2026-11-21 09:41:32 UTC n2: ceph-osd osd.7 (pid 812) has ended`; the severity is added if it is unusual for the
/// kind of event.
pub fn event(event: &EventNow) -> String {
    format!("{}  {}", figures::instant(event.at_us), event_text(event))
}

/// An event without its date.
pub fn event_text(event: &EventNow) -> String {
    let severity = match event.severity.as_str() {
        "info" => String::new(),
        severity => format!("{severity}: "),
    };
    let agent = match &event.agent {
        Some(agent) => format!("{agent}: "),
        None => String::new(),
    };
    clean(&format!("{severity}{agent}{}", event.message))
}

/// The last rates as bars of eight heights, the newest on the right: `▁▃▅█`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of eight heights"
)]
pub fn sparkline(rates: impl IntoIterator<Item = f64> + Clone) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = rates.clone().into_iter().fold(0.0_f64, f64::max);
    rates
        .into_iter()
        .map(|rate| {
            let share = if most > 0.0 {
                rate.max(0.0) / most
            } else {
                0.0
            };
            let height = (share * 7.0).round() as usize;
            HEIGHTS.get(height).copied().unwrap_or('█')
        })
        .collect()
}

/// `cleaning up, 12,000 files removed`.
pub fn cleaning(files: u64) -> String {
    match i64::try_from(files).unwrap_or(i64::MAX) {
        0 => String::from(state_in_words(StepState::Cleaning)),
        files => format!(
            "{}, {} files removed",
            state_in_words(StepState::Cleaning),
            figures::count(files)
        ),
    }
}

/// `4.2 s`, with the completed part of the step if known.
pub fn step_time(step: &StepNow) -> String {
    let mut text = span(step.elapsed_us);
    if let Some(share) = step.share_done {
        text.push_str(&format!(", {:.0} %", share * 100.0));
    }
    text
}

/// `12 of 24 steps, 9.1 s, about 12 s left`, or `time left unknown`.
pub fn run_time(update: &RunUpdate, names: &Names) -> String {
    let mut text = match update.run.loop_in_words.as_str() {
        "" => String::new(),
        words => format!("{}, ", clean(words)),
    };
    text.push_str(&format!(
        "{} of {} steps, {}",
        update.run.steps_done,
        update.run.steps_total,
        span(update.run.elapsed_us)
    ));
    if !update.run.state.is_end() {
        text.push_str(", ");
        text.push_str(&time_left(update, names));
    }
    text
}

/// `about 12 s left`; `at most about 12 s left` of a run that may end early; `more than 12 s left` if the estimate has
/// risen since; `time left unknown`.
fn time_left(update: &RunUpdate, names: &Names) -> String {
    match (update.run.left_us, update.run.left_is_low) {
        (Some(left_us), false) if names.may_end_early => {
            format!("at most about {} left", span(left_us))
        }
        (None, _) => "time left unknown".to_owned(),
        (Some(..SECOND_US), true) => "longer than expected".to_owned(),
        (Some(left_us), true) => format!("more than {} left", span(left_us)),
        (Some(left_us), false) => format!("about {} left", span(left_us)),
    }
}

/// The lines for a completed step: one per kind of operation.
pub fn step_done(step: &StepDone, total: usize, names: &Names) -> Vec<String> {
    let name = step_name(step, names);
    let width = names.width;
    let flags = match step_flags(step).as_str() {
        "" => String::new(),
        flags => format!("  {flags}"),
    };
    let head = format!("[{:>2}/{total}] {name:<width$}", step.ordinal);
    if step.ops.is_empty() {
        return vec![clean(
            format!("{head}  no operation completed{flags}").trim_end(),
        )];
    }
    let lines = step.ops.iter().enumerate().map(|(at, op)| {
        let head = if at == 0 {
            head.clone()
        } else {
            " ".repeat(head.chars().count())
        };
        let kind = match (op.group.as_str(), step.ops.len()) {
            ("", 0 | 1) => String::new(),
            ("", _) => format!("{:<7}", op.op),
            (group, _) => format!("{:<20}", format!("{group} {}", op.op)),
        };
        clean(
            format!(
                "{head}  {kind}{}{}",
                op_done(op),
                if at == 0 { &flags } else { "" }
            )
            .trim_end(),
        )
    });
    lines.collect()
}

/// `small files: create, cephfs (size=4k)`.
pub fn step_name(step: &StepDone, names: &Names) -> String {
    let place = if step.link.is_empty() {
        &step.target
    } else {
        &step.link
    };
    clean(&names.name(&step.phase, &step.mode, place, &step.params))
}

/// `[FAILED, partial]`; empty for a step that is done and has no flags.
pub fn step_flags(step: &StepDone) -> String {
    let mut flags = step.flags.clone();
    if step.state != StepState::Done {
        flags.insert(0, step.state.as_str().to_uppercase());
    }
    match flags.is_empty() {
        true => String::new(),
        false => clean(&format!("[{}]", flags.join(", "))),
    }
}

/// `done`, `stopped, partial`.
pub fn run_end(update: &RunUpdate) -> String {
    let partial = if update.run.partial { ", partial" } else { "" };
    format!(
        "run {} {:?} {}{partial}: {} of {} steps in {}",
        update.run.run_id,
        update.run.run,
        update.run.state,
        update.run.steps_done,
        update.run.steps_total,
        span(update.run.elapsed_us)
    )
}

/// `1 agent`, `3 agents`.
pub fn agents(count: u32) -> String {
    if count == 1 {
        "1 agent".to_owned()
    } else {
        format!("{count} agents")
    }
}

/// `12,346 ops/s     48.2 MiB/s  p50   0.0410  p99     1.20 ms`.
pub fn op_done(op: &OpDone) -> String {
    // Operations without a rate: the agents were not active at the same time.
    let rate = op.ops_per_s.map(figures::rate);
    let rate = rate.as_deref().unwrap_or(figures::NONE);
    let mut text = format!("{rate:>11} ops/s");
    match op.bytes_per_s.filter(|_| op.op != "ping") {
        Some(rate) => text.push_str(&format!("{:>9} MiB/s", figures::rate(rate / MIB))),
        None => text.push_str(&" ".repeat(15)),
    }
    // Operations of which all failed have no latency.
    let has_ended = op.p99_ms > 0.0;
    let millis = |ms: f64| match has_ended {
        true => figures::millis(ms),
        false => figures::NONE.to_owned(),
    };
    text.push_str(&format!(
        "  p50 {:>8}  p99 {:>8} ms",
        millis(op.p50_ms),
        millis(op.p99_ms)
    ));
    if let Some(response) = op.response_p99_ms.filter(|_| has_ended) {
        text.push_str(&format!(
            "  response p99 {:>8} ms",
            figures::millis(response)
        ));
    }
    if op.errors > 0 {
        let word = if op.errors == 1 { "error" } else { "errors" };
        text.push_str(&format!("  {} {word}", figures::count(op.errors)));
    }
    text
}

fn state_in_words(state: StepState) -> &'static str {
    match state {
        StepState::Planned => "about to begin",
        StepState::Prepare => "laying out data",
        StepState::Settle => "settling",
        StepState::Ready | StepState::Armed => "all agents ready, about to start",
        StepState::Cleaning => "cleaning up",
        other => other.as_str(),
    }
}

fn span(us: i64) -> String {
    figures::span(Duration::from_micros(u64::try_from(us).unwrap_or(0)))
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_model::mesh::{RunId, RunState, StepId};
    use benchmesh_scheduler::snapshot::{BusyDaemon, ClientRate, LoadNow, RunNow};

    pub fn now(state: StepState) -> StepNow {
        StepNow {
            step_id: StepId(3),
            ordinal: 3,
            phase: "records".into(),
            target: "cephfs".into(),
            mode: "randread".into(),
            params: serde_json::from_str(r#"{"bs": "4k", "runtime": "2s", "numjobs": 4}"#).unwrap(),
            state,
            clients: 3,
            load: LoadNow {
                ops_per_s: 12_345.6,
                bytes_per_s: 50_567_577.0,
                p50_ms: Some(0.041),
                p99_ms: Some(1.2),
                ..LoadNow::default()
            },
            share_done: Some(0.421),
            elapsed_us: 4_200_000,
            ..StepNow::default()
        }
    }

    pub fn done(ordinal: u32, state: StepState) -> StepDone {
        StepDone {
            step_id: StepId(i64::from(ordinal)),
            ordinal,
            phase: "records".into(),
            target: "cephfs".into(),
            workload: "io".into(),
            mode: "randread".into(),
            params: serde_json::from_str(r#"{"bs": "4k"}"#).unwrap(),
            clients: 3,
            state,
            ops: vec![OpDone {
                group: String::new(),
                op: "read".into(),
                ops: 1,
                ops_per_s: Some(12_345.6),
                bytes_per_s: Some(50_567_577.0),
                mean_ms: 0.1,
                p50_ms: 0.041,
                p99_ms: 1.2,
                max_ms: 2.0,
                response_p99_ms: None,
                errors: 0,
            }],
            ..StepDone::default()
        }
    }

    pub fn update(state: RunState) -> RunUpdate {
        RunUpdate {
            run: RunNow {
                run_id: RunId(7),
                run: "nightly".into(),
                state,
                steps_done: 2,
                steps_total: 24,
                elapsed_us: 9_000_000,
                left_us: Some(72_000_000),
                share_done: 0.11,
                ..RunNow::default()
            },
            ..RunUpdate::default()
        }
    }

    #[test]
    fn the_slowest_client_and_the_busiest_daemon_are_named() {
        let mut looked = update(RunState::Running);
        assert_eq!(detail(&looked), "");
        looked.clients = 3;
        looked.run.clients = vec![ClientRate {
            agent: "n2".into(),
            ops_per_s: 3021.4,
            bytes_per_s: 0.0,
            is_absent: false,
        }];
        assert_eq!(detail(&looked), "slowest of 3 clients: n2 at 3,021 ops/s");
        looked.daemons = vec![BusyDaemon {
            host: "s1".into(),
            name: "ceph-osd".into(),
            instance: "osd.3".into(),
            cpu_percent: 187.2,
            rss_bytes: 1 << 30,
        }];
        assert_eq!(
            detail(&looked),
            "slowest of 3 clients: n2 at 3,021 ops/s; busiest daemon: ceph-osd osd.3 on s1 at 187 % of a CPU, 1.00 GiB"
        );
    }

    #[test]
    fn a_sparkline_is_as_high_as_its_highest_rate() {
        assert_eq!(sparkline([0.0, 50.0, 100.0, 25.0]), "▁▅█▃");
        assert_eq!(sparkline([0.0, 0.0]), "▁▁");
        assert_eq!(sparkline([]), "");
    }

    #[test]
    fn a_step_is_told_in_a_line() {
        let mut step = now(StepState::Running);
        assert_eq!(
            step_now(&step, &Names::unknown()),
            "records: randread, cephfs (bs=4k numjobs=4), 3 agents"
        );
        assert_eq!(
            step_rate(&step, None),
            "12,346 ops/s, 48.2 MiB/s, p50 0.0410 ms, p99 1.20 ms"
        );
        assert_eq!(step_time(&step), "4.2 s, 42 %");
        step.silent_us = 4_999_000;
        assert!(step_rate(&step, None).starts_with("12,346 ops/s"));
        step.silent_us = 12_000_000;
        assert_eq!(step_rate(&step, None), "no figures for 12 s");
        step.silent_us = 0;
        step.target.clear();
        step.peer = "node2".into();
        step.params.clear();
        step.clients = 1;
        step.load.bytes_per_s = 0.0;
        step.share_done = None;
        assert_eq!(
            step_now(&step, &Names::unknown()),
            "records: randread, node2, 1 agent"
        );
        assert_eq!(
            step_rate(&step, None),
            "12,346 ops/s, p50 0.0410 ms, p99 1.20 ms"
        );
        assert_eq!(step_time(&step), "4.2 s");
        assert_eq!(step_rate(&now(StepState::Prepare), None), "laying out data");
        assert_eq!(
            step_rate(&now(StepState::Cleaning), Some(12_000)),
            "cleaning up, 12,000 files removed"
        );
        assert_eq!(step_rate(&now(StepState::Cleaning), Some(0)), "cleaning up");
    }

    #[test]
    fn an_end_is_told_with_what_came_of_it() {
        assert_eq!(
            step_done(&done(3, StepState::Done), 24, &Names::of(&[])),
            [
                "[ 3/24] records: randread, cephfs       12,346 ops/s     48.2 MiB/s  p50   0.0410  p99     1.20 ms"
            ]
        );
        let mut paced = done(3, StepState::Done);
        paced.ops.first_mut().unwrap().response_p99_ms = Some(950.0);
        let line = step_done(&paced, 24, &Names::of(&[])).remove(0);
        assert!(
            line.ends_with("p99     1.20 ms  response p99      950 ms"),
            "{line}"
        );
        let mut failed = done(4, StepState::Failed);
        failed.ops.clear();
        failed.flags = vec!["partial".into()];
        failed.phase = "x\u{1b}[2J".into();
        assert_eq!(
            step_done(&failed, 24, &Names::of(&[])),
            ["[ 4/24] x\u{fffd}[2J: randread, cephfs   no operation completed  [FAILED, partial]"]
        );
        let mut two = done(5, StepState::Done);
        two.ops.push(two.ops.first().unwrap().clone());
        two.ops.last_mut().unwrap().errors = 3;
        let lines = step_done(&two, 24, &Names::of(&[]));
        assert_eq!(lines.len(), 2);
        assert!(lines.last().unwrap().ends_with("3 errors"), "{lines:?}");
    }

    #[test]
    fn a_run_is_told_in_a_line() {
        assert_eq!(
            run_time(&update(RunState::Running), &Names::unknown()),
            "2 of 24 steps, 9.0 s, about 1m 12s left"
        );
        assert_eq!(
            run_time(
                &update(RunState::Running),
                &Names::unknown().of_precise_run()
            ),
            "2 of 24 steps, 9.0 s, at most about 1m 12s left"
        );
        let mut ended = update(RunState::Stopped);
        ended.run.partial = true;
        assert_eq!(
            run_end(&ended),
            "run 7 \"nightly\" stopped, partial: 2 of 24 steps in 9.0 s"
        );
    }
}
