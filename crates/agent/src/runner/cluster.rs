//! The state of the storage cluster beside the runs: when the agent reads the facts of its sources, and what it tells.
//!
//! A source is read when a run begins, when a step has ended, and again and again while it says that it is degraded. A
//! thread of its own reads; the runner never waits for it. Per run, a fact is told when it is first known and when it
//! has changed. The begin and the end of a degraded state are events, and so is the first failure of each kind.

use crate::clock::Dating;
use crate::facts::{FactSource, Reading};
use crate::spool::Entry;
use crate::telemetry::{Event, Fact, MeshMicros, Row, RunId, Scope, Severity, clipped};
use benchmesh_model::systems::facts::{Value, summary};
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Signals to the thread. While it reads, those of a few steps may wait; more say nothing new.
const SIGNALS: usize = 16;

/// What the runner tells the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A run begins; its id comes with the first step.
    RunBegins,
    /// No run goes on.
    RunsOver,
    StepBegins(Option<RunId>),
    StepEnds(Option<RunId>),
}

/// The sources of the agent's configuration.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    pub sources: Vec<FactSource>,
    /// Between two readings.
    pub period: Duration,
}

/// The way to the thread; ends it when dropped.
#[derive(Debug, Default)]
pub struct ClusterWatch {
    signals: Option<SyncSender<Signal>>,
    stop: Arc<AtomicBool>,
    is_run_on: bool,
}

impl ClusterWatch {
    /// Starts the thread, if there is something to read.
    #[must_use]
    pub fn start(config: ClusterConfig, dating: Dating, entries: mpsc::Sender<Entry>) -> Self {
        if config.sources.is_empty() {
            return Self::default();
        }
        let (signals, incoming) = sync_channel(SIGNALS);
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            schedule: Schedule::new(config.period),
            told: vec![Told::default(); config.sources.len()],
            sources: config.sources,
            dating,
            entries,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("bm-facts".to_owned());
        if let Err(error) = thread.spawn(move || watcher.run(&incoming)) {
            tracing::error!(%error, "no facts of the cluster are read: no thread");
            return Self::default();
        }
        Self {
            signals: Some(signals),
            stop,
            is_run_on: false,
        }
    }

    /// Whether the collector has this host sampled for a run.
    pub fn set_run_on(&mut self, is_on: bool) {
        if self.is_run_on != is_on {
            self.is_run_on = is_on;
            self.signal(match is_on {
                true => Signal::RunBegins,
                false => Signal::RunsOver,
            });
        }
    }

    /// Never waits.
    pub fn signal(&self, signal: Signal) {
        if let Some(signals) = &self.signals {
            // A full channel: it reads anyway.
            let _ = signals.try_send(signal);
        }
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// When to read. Pure.
#[derive(Debug)]
struct Schedule {
    period: Duration,
    run: Option<RunId>,
    is_run_on: bool,
    is_degraded: bool,
    last: Option<Instant>,
    next: Option<Instant>,
}

/// Whether what was told belongs to another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    NewRun,
    SameRun,
}

impl Schedule {
    fn new(period: Duration) -> Self {
        Self {
            period,
            run: None,
            is_run_on: false,
            is_degraded: false,
            last: None,
            next: None,
        }
    }

    fn on(&mut self, signal: Signal, now: Instant) -> Change {
        let run = match signal {
            Signal::RunBegins => {
                (self.run, self.is_run_on) = (None, true);
                self.next = Some(now);
                return Change::NewRun;
            }
            Signal::RunsOver => {
                self.is_run_on = false;
                return Change::SameRun;
            }
            Signal::StepBegins(run) | Signal::StepEnds(run) => run,
        };
        self.is_run_on = true;
        let before = self.run;
        self.run = run.or(before);
        if before.is_some() && before != self.run {
            self.next = Some(now);
            return Change::NewRun;
        }
        if matches!(signal, Signal::StepEnds(_)) || self.last.is_none() {
            // Short steps share a reading.
            let earliest = self.last.map_or(now, |last| last + self.period);
            self.next = Some(self.next.unwrap_or(earliest).min(earliest.max(now)));
        }
        Change::SameRun
    }

    fn read(&mut self, is_degraded: bool, began: Instant, now: Instant) {
        (self.last, self.is_degraded) = (Some(began), is_degraded);
        let again = is_degraded && self.is_run_on;
        self.next = again.then(|| (began + self.period).max(now));
    }
}

/// What was told of one source in this run.
#[derive(Clone, Debug, Default)]
struct Told {
    facts: BTreeMap<String, Value>,
    degraded_since: Option<MeshMicros>,
    /// Commands whose failure was told.
    failures: BTreeSet<String>,
}

/// The thread's own state.
struct Watcher {
    sources: Vec<FactSource>,
    /// One for each source.
    told: Vec<Told>,
    schedule: Schedule,
    dating: Dating,
    entries: mpsc::Sender<Entry>,
    stop: Arc<AtomicBool>,
}

impl Watcher {
    fn run(mut self, signals: &Receiver<Signal>) {
        loop {
            let signal = match self.schedule.next {
                None => signals.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(next) => signals.recv_timeout(next.saturating_duration_since(Instant::now())),
            };
            match signal {
                Ok(signal) => {
                    if self.schedule.on(signal, Instant::now()) == Change::NewRun {
                        self.told.fill(Told::default());
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.read(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn read(&mut self) {
        let began = Instant::now();
        let mut is_degraded = false;
        for (source, told) in self.sources.iter().zip(&mut self.told) {
            let read_at = MonoNanos::now();
            let reading = source.read(&self.stop);
            is_degraded |= reading.facts.is_degraded() == Some(true);
            let Some(map) = self.dating.map() else {
                // Nothing was told: it is after the next reading.
                continue;
            };
            let rows = told.rows(
                source.system(),
                &reading,
                self.schedule.run,
                map.to_mesh(read_at),
            );
            if !rows.is_empty() && self.entries.blocking_send(Entry::Rows(rows)).is_err() {
                return;
            }
        }
        self.schedule.read(is_degraded, began, Instant::now());
    }
}

impl Told {
    /// What is new in a reading.
    fn rows(
        &mut self,
        system: &str,
        reading: &Reading,
        run: Option<RunId>,
        at: MeshMicros,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for fact in reading.facts.as_slice() {
            let before = self.facts.insert(fact.name.clone(), fact.value.clone());
            if before.as_ref() != Some(&fact.value) {
                rows.push(Row::Fact(Fact {
                    at,
                    system: system.to_owned(),
                    name: fact.name.clone(),
                    value: fact.value.clone(),
                    unit: fact.unit.to_owned(),
                }));
            }
        }
        let event = |severity, kind: &str, message: String, detail: serde_json::Value| {
            Row::Event(Event {
                at,
                scope: Scope {
                    run,
                    ..Scope::default()
                },
                severity,
                kind: kind.to_owned(),
                message: clipped(message),
                detail: detail.to_string(),
            })
        };
        for failure in &reading.failures {
            if self.failures.insert(failure.clone()) {
                let message = format!("no facts of {system}: {failure}");
                tracing::info!("{message}");
                let detail = json!({ "system": system });
                rows.push(event(Severity::Warning, "facts-failed", message, detail));
            }
        }
        let state = summary(&reading.facts.texts());
        match (reading.facts.is_degraded(), self.degraded_since) {
            (Some(true), None) => {
                self.degraded_since = Some(at);
                let message = format!("{system} is degraded: {state}");
                let detail = json!({ "system": system, "since_us": at.0 });
                rows.push(event(
                    Severity::Warning,
                    "cluster-degraded",
                    message,
                    detail,
                ));
            }
            (Some(false), Some(since)) => {
                self.degraded_since = None;
                let lasted_us = at.0.saturating_sub(since.0);
                let message = format!(
                    "{system} is whole again after {} s: {state}",
                    lasted_us / 1_000_000
                );
                let detail =
                    json!({ "system": system, "since_us": since.0, "lasted_us": lasted_us });
                rows.push(event(
                    Severity::Info,
                    "cluster-degraded-over",
                    message,
                    detail,
                ));
            }
            _ => {}
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use benchmesh_model::systems::facts::{Facts, parse_own};

    const PERIOD: Duration = Duration::from_secs(10);

    fn reading(output: &str) -> Reading {
        let mut facts = Facts::default();
        parse_own(output, &mut facts).unwrap();
        Reading {
            facts,
            failures: Vec::new(),
        }
    }

    /// Facts as `name=value`, events as their kinds.
    fn shown(rows: &[Row]) -> Vec<String> {
        let one = |row: &Row| match row {
            Row::Fact(fact) => format!("{}={}", fact.name, fact.value),
            Row::Event(event) => event.kind.clone(),
            other => panic!("{other:?}"),
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn changes_alone_are_told_and_a_degraded_state_has_two_ends() {
        let mut told = Told::default();
        let mut rows = |second: i64, output: &str| {
            let at = MeshMicros(second * 1_000_000);
            let rows = told.rows("x", &reading(output), None, at);
            shown(&rows)
        };
        assert_eq!(rows(1, "health=ok\nosds=3"), ["health=ok", "osds=3"]);
        assert!(rows(2, "health=ok\nosds=3").is_empty());
        let degraded = rows(3, "health=bad\nosds=3");
        assert_eq!(degraded, ["health=bad", "cluster-degraded"]);
        assert_eq!(rows(4, "health=bad\nosds=2"), ["osds=2"]);
        assert_eq!(rows(9, "health=ok"), ["health=ok", "cluster-degraded-over"]);
    }

    #[test]
    fn a_failure_is_told_once() {
        let mut told = Told::default();
        let failed = Reading {
            failures: vec!["it was killed".to_owned()],
            ..Reading::default()
        };
        let rows = told.rows("x", &failed, Some(RunId(3)), MeshMicros(1));
        assert_eq!(shown(&rows), ["facts-failed"]);
        assert!(told.rows("x", &failed, None, MeshMicros(2)).is_empty());
    }

    #[test]
    fn it_reads_as_a_run_begins_after_steps_and_while_degraded() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = Schedule::new(PERIOD);
        assert_eq!(schedule.on(Signal::RunBegins, start), Change::NewRun);
        assert_eq!(schedule.next, Some(start));
        schedule.read(false, start, at(1));
        assert_eq!(schedule.next, None);
        // The id of the run comes late.
        let run = Some(RunId(5));
        assert_eq!(schedule.on(Signal::StepBegins(run), at(2)), Change::SameRun);
        assert_eq!(schedule.next, None);
        // Steps that end soon after a reading share the next one.
        for second in [4, 5, 6] {
            schedule.on(Signal::StepEnds(run), at(second));
            assert_eq!(schedule.next, Some(at(10)));
        }
        schedule.read(true, at(10), at(11));
        assert_eq!(schedule.next, Some(at(20)));
        schedule.on(Signal::StepEnds(run), at(13));
        assert_eq!(schedule.next, Some(at(20)));
        // The next run begins without a pause between the two.
        let next = Signal::StepBegins(Some(RunId(6)));
        assert_eq!(schedule.on(next, at(15)), Change::NewRun);
        assert_eq!(schedule.next, Some(at(15)));
        schedule.on(Signal::RunsOver, at(16));
        schedule.read(true, at(16), at(17));
        assert_eq!(schedule.next, None);
    }
}
