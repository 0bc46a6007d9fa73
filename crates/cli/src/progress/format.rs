//! Progress as text: the name of a step, its state, its result. Pure functions of updates.

use super::names::Names;
use crate::client::{EventNow, OpDone, StepDone, StepNow, Update};
use crate::terminal::clean;
use benchmesh_collector::report::figures;
use std::time::Duration;

const MIB: f64 = 1_048_576.0;

/// Figures come every second; older ones are not shown as if they were of now.
const FRESH: Duration = Duration::from_secs(5);

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

/// `12,345 ops/s, 48.2 MiB/s, p50 0.0410 ms, p99 1.20 ms`, or the state while it is not running.
pub fn step_rate(step: &StepNow, removed_files: Option<u64>) -> String {
    if let Some(files) = removed_files {
        return cleaning(files);
    }
    if step.state != "running" {
        return clean(state_in_words(&step.state));
    }
    if step.silent >= FRESH {
        return format!("no figures for {}", figures::span(step.silent));
    }
    let mut text = format!("{} ops/s", figures::rate(step.ops_per_s));
    if step.bytes_per_s > 0.0 {
        text.push_str(&format!(
            ", {} MiB/s",
            figures::rate(step.bytes_per_s / MIB)
        ));
    }
    if step.p50_ms > 0.0 {
        text.push_str(&format!(", p50 {} ms", figures::millis(step.p50_ms)));
    }
    if step.p99_ms > 0.0 {
        text.push_str(&format!(", p99 {} ms", figures::millis(step.p99_ms)));
    }
    text
}

/// `slowest of 3 clients: n2 at 3,021 ops/s; busiest daemon: ceph-osd osd.3 on s1 at 187 % of a CPU, 1.20 GiB`. Empty
/// where neither is known.
pub fn detail(update: &Update) -> String {
    let mut parts = Vec::new();
    if let Some(client) = update.slowest_client.as_ref().filter(|it| it.clients > 1) {
        parts.push(format!(
            "slowest of {} clients: {} at {} ops/s",
            client.clients,
            client.agent,
            figures::rate(client.ops_per_s)
        ));
    }
    if let Some(daemon) = &update.busiest_daemon {
        let name = [daemon.name.as_str(), daemon.instance.as_str()].join(" ");
        parts.push(format!(
            "busiest daemon: {} on {} at {} % of a CPU, {}",
            name.trim_end(),
            daemon.host,
            figures::rate(daemon.cpu_percent),
            figures::bytes(u64::try_from(daemon.rss_bytes).unwrap_or(0))
        ));
    }
    clean(&parts.join("; "))
}

/// `2026-11-21 09:41:32 UTC  n2: ceph-osd osd.7 (pid 812) has ended`; what is no news for its kind says how severe it is.
pub fn event(event: &EventNow) -> String {
    let severity = match event.severity.as_str() {
        "info" => String::new(),
        severity => format!("{severity}: "),
    };
    let agent = match event.agent.as_str() {
        "" => String::new(),
        agent => format!("{agent}: "),
    };
    clean(&format!(
        "{}  {severity}{agent}{}",
        figures::instant(event.at_us),
        event.message
    ))
}

/// The last rates as bars of eight heights, the newest at the right: `▁▃▅█`.
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
        0 => String::from(state_in_words("cleaning")),
        files => format!(
            "{}, {} files removed",
            state_in_words("cleaning"),
            figures::count(files)
        ),
    }
}

/// `4.2 s`, and how much of the step is done when that is known.
pub fn step_time(step: &StepNow) -> String {
    let mut text = figures::span(step.elapsed);
    if let Some(share) = step.share_done {
        text.push_str(&format!(", {:.0} %", share * 100.0));
    }
    text
}

/// `12 of 24 steps, 9.1 s, about 12 s left`, or `time left unknown`.
pub fn run_time(update: &Update) -> String {
    let mut text = match update.loop_in_words.as_str() {
        "" => String::new(),
        words => format!("{}, ", clean(words)),
    };
    text.push_str(&format!(
        "{} of {} steps, {}",
        update.steps_done,
        update.steps_total,
        figures::span(update.elapsed)
    ));
    if !update.state.is_end() {
        match update.left {
            Some(left) => text.push_str(&format!(", about {} left", figures::span(left))),
            None => text.push_str(", time left unknown"),
        }
    }
    text
}

/// The lines that a step leaves when it ends: one per kind of operation.
pub fn step_done(step: &StepDone, total: u32, names: &Names) -> Vec<String> {
    let place = if step.link.is_empty() {
        &step.target
    } else {
        &step.link
    };
    let name = names.name(&step.phase, &step.mode, place, &step.params);
    let width = names.width;
    let mut flags = step.flags.clone();
    if step.state != "done" {
        flags.insert(0, step.state.to_uppercase());
    }
    let flags = if flags.is_empty() {
        String::new()
    } else {
        format!("  [{}]", flags.join(", "))
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

/// `done`, `stopped, partial`.
pub fn run_end(update: &Update) -> String {
    let partial = if update.partial { ", partial" } else { "" };
    format!(
        "run {} {:?} {}{partial}: {} of {} steps in {}",
        update.run_id,
        update.run,
        update.state,
        update.steps_done,
        update.steps_total,
        figures::span(update.elapsed)
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

fn op_done(op: &OpDone) -> String {
    // Operations without a rate: the agents were not active at the same time.
    let rate = if op.ops_per_s > 0.0 {
        figures::rate(op.ops_per_s)
    } else {
        figures::NONE.to_owned()
    };
    let mut text = format!("{rate:>11} ops/s");
    if op.bytes_per_s > 0.0 && op.op != "ping" {
        text.push_str(&format!("{:>9} MiB/s", figures::rate(op.bytes_per_s / MIB)));
    } else {
        text.push_str(&" ".repeat(15));
    }
    // What only failed has no latency.
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
        text.push_str(&format!(
            "  {} {word}",
            figures::count(i64::try_from(op.errors).unwrap_or(i64::MAX))
        ));
    }
    text
}

fn state_in_words(state: &str) -> &str {
    match state {
        "planned" => "about to begin",
        "prepare" => "laying out data",
        "settle" => "settling",
        "ready" | "armed" => "all agents ready, about to start",
        "cleaning" => "cleaning up",
        other => other,
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::client::{ClientNow, DaemonNow};
    use benchmesh_collector::model::RunState;

    pub fn now(state: &str) -> StepNow {
        StepNow {
            ordinal: 3,
            phase: "records".into(),
            target: "cephfs".into(),
            mode: "randread".into(),
            params: serde_json::from_str(r#"{"bs": "4k", "runtime": "2s", "numjobs": 4}"#).unwrap(),
            state: state.into(),
            clients: 3,
            ops_per_s: 12_345.6,
            bytes_per_s: 50_567_577.0,
            p50_ms: 0.041,
            p99_ms: 1.2,
            share_done: Some(0.421),
            elapsed: Duration::from_millis(4200),
            peer: String::new(),
            silent: Duration::ZERO,
        }
    }

    pub fn done(ordinal: u32, state: &str) -> StepDone {
        StepDone {
            ordinal,
            phase: "records".into(),
            target: "cephfs".into(),
            mode: "randread".into(),
            params: serde_json::from_str(r#"{"bs": "4k"}"#).unwrap(),
            state: state.into(),
            ops: vec![OpDone {
                group: String::new(),
                op: "read".into(),
                ops_per_s: 12_345.6,
                bytes_per_s: 50_567_577.0,
                p50_ms: 0.041,
                p99_ms: 1.2,
                response_p99_ms: None,
                errors: 0,
            }],
            flags: vec![],
            link: String::new(),
        }
    }

    pub fn update(state: RunState) -> Update {
        Update {
            run_id: 7,
            run: "nightly".into(),
            state,
            partial: false,
            loop_in_words: String::new(),
            steps_done: 2,
            steps_total: 24,
            elapsed: Duration::from_secs(9),
            left: Some(Duration::from_secs(72)),
            step: None,
            messages: vec![],
            finished: vec![],
            removed_files: None,
            events: Vec::new(),
            slowest_client: None,
            busiest_daemon: None,
        }
    }

    #[test]
    fn the_slowest_client_and_the_busiest_daemon_are_named() {
        let mut looked = update(RunState::Running);
        assert_eq!(detail(&looked), "");
        looked.slowest_client = Some(ClientNow {
            agent: "n2".into(),
            ops_per_s: 3021.4,
            clients: 3,
        });
        assert_eq!(detail(&looked), "slowest of 3 clients: n2 at 3,021 ops/s");
        looked.busiest_daemon = Some(DaemonNow {
            host: "s1".into(),
            name: "ceph-osd".into(),
            instance: "osd.3".into(),
            cpu_percent: 187.2,
            rss_bytes: 1 << 30,
        });
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
        let mut step = now("running");
        assert_eq!(
            step_now(&step, &Names::unknown()),
            "records: randread, cephfs (bs=4k numjobs=4), 3 agents"
        );
        assert_eq!(
            step_rate(&step, None),
            "12,346 ops/s, 48.2 MiB/s, p50 0.0410 ms, p99 1.20 ms"
        );
        assert_eq!(step_time(&step), "4.2 s, 42 %");
        step.silent = Duration::from_millis(4999);
        assert!(step_rate(&step, None).starts_with("12,346 ops/s"));
        step.silent = Duration::from_secs(12);
        assert_eq!(step_rate(&step, None), "no figures for 12 s");
        step.silent = Duration::ZERO;
        step.target.clear();
        step.peer = "node2".into();
        step.params.clear();
        step.clients = 1;
        step.bytes_per_s = 0.0;
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
        assert_eq!(step_rate(&now("prepare"), None), "laying out data");
        assert_eq!(
            step_rate(&now("cleaning"), Some(12_000)),
            "cleaning up, 12,000 files removed"
        );
        assert_eq!(step_rate(&now("cleaning"), Some(0)), "cleaning up");
    }

    #[test]
    fn an_end_is_told_with_what_came_of_it() {
        assert_eq!(
            step_done(&done(3, "done"), 24, &Names::of(&[])),
            [
                "[ 3/24] records: randread, cephfs       12,346 ops/s     48.2 MiB/s  p50   0.0410  p99     1.20 ms"
            ]
        );
        let mut paced = done(3, "done");
        paced.ops.first_mut().unwrap().response_p99_ms = Some(950.0);
        let line = step_done(&paced, 24, &Names::of(&[])).remove(0);
        assert!(
            line.ends_with("p99     1.20 ms  response p99      950 ms"),
            "{line}"
        );
        let mut failed = done(4, "failed");
        failed.ops.clear();
        failed.flags = vec!["partial".into()];
        failed.phase = "x\u{1b}[2J".into();
        assert_eq!(
            step_done(&failed, 24, &Names::of(&[])),
            ["[ 4/24] x\u{fffd}[2J: randread, cephfs   no operation completed  [FAILED, partial]"]
        );
        let mut two = done(5, "done");
        two.ops.push(two.ops.first().unwrap().clone());
        two.ops.last_mut().unwrap().errors = 3;
        let lines = step_done(&two, 24, &Names::of(&[]));
        assert_eq!(lines.len(), 2);
        assert!(lines.last().unwrap().ends_with("3 errors"), "{lines:?}");
    }

    #[test]
    fn a_run_is_told_in_a_line() {
        assert_eq!(
            run_time(&update(RunState::Running)),
            "2 of 24 steps, 9.0 s, about 1m 12s left"
        );
        let mut ended = update(RunState::Stopped);
        ended.partial = true;
        assert_eq!(
            run_end(&ended),
            "run 7 \"nightly\" stopped, partial: 2 of 24 steps in 9.0 s"
        );
    }
}
