//! The state of the storage cluster during runs: when the agent reads the facts of its sources, and what it reports.
//!
//! A source is read when a run begins, when a step has ended, at marks, which users set and the collector after what may
//! have degraded a cluster, when the run's sampling ends, and periodically while it reports a degraded state. Each source
//! has its own thread, and the runner never waits for it. Per run, a fact is reported when it is first known and whenever
//! it changes, and the first fact of a reading always, so that the time of the last reading is known. The start and the
//! end of a degraded state are events, and so is the first failure of each command.

use crate::clock::Dating;
use crate::facts::{FactSource, FactsReading};
use crate::spool::SpoolEntry;
use crate::telemetry::{Event, Fact, MeshMicros, RunId, RunScope, TelemetryRow, clipped};
use benchmesh_model::events::EventKind;
use benchmesh_model::systems::facts::{Value, summary};
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Capacity of a thread's queue while it reads: more signals than the collector sends during the longest reading.
const SIGNALS: usize = 4096;
/// Delay of the next reading if mesh time is not known yet.
const UNDATED_PAUSE: Duration = Duration::from_secs(1);

/// A signal from the runner to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// The run that is sampled from now on.
    Run(Option<RunId>),
    /// A step has ended, or a user has set a mark.
    Mark,
}

/// The sources of the agent's configuration.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    pub sources: Vec<FactSource>,
    /// Minimum time between two readings.
    pub period: Duration,
    /// Timeout of one command.
    pub timeout: Duration,
}

/// Handle to the threads; stops them on drop.
#[derive(Debug, Default)]
pub struct ClusterWatch {
    threads: Vec<SyncSender<Signal>>,
    stop: Arc<AtomicBool>,
    run: Option<RunId>,
}

impl ClusterWatch {
    /// Starts a thread for each source.
    #[must_use]
    pub fn start(
        config: ClusterConfig,
        dating: &Dating,
        entries: &mpsc::Sender<SpoolEntry>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for source in config.sources {
            let (signals, incoming) = sync_channel(SIGNALS);
            let watcher = Watcher {
                source,
                timeout: config.timeout,
                schedule: ClusterSchedule::new(config.period),
                reported: Reported::default(),
                dating: dating.clone(),
                entries: entries.clone(),
                stop: Arc::clone(&stop),
            };
            let thread = std::thread::Builder::new().name("bm-facts".to_owned());
            match thread.spawn(move || watcher.run(&incoming)) {
                Ok(_) => threads.push(signals),
                Err(error) => {
                    tracing::error!(%error, "facts of the cluster are not read: no thread")
                }
            }
        }
        Self {
            threads,
            stop,
            run: None,
        }
    }

    /// Sets the run for which the collector has this host sampled.
    pub fn set_run(&mut self, run: Option<RunId>) {
        if self.run != run {
            self.run = run;
            self.signal(Signal::Run(run));
        }
    }

    pub fn mark(&self) {
        self.signal(Signal::Mark);
    }

    /// Signals every thread. Never waits.
    fn signal(&self, signal: Signal) {
        for thread in &self.threads {
            // Fails if the thread has ended, which happens after the spool's end.
            let _ = thread.try_send(signal);
        }
    }

    /// Kills running commands and starts no more. Does not wait.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Decides when to read, and for which run. Pure.
#[derive(Debug)]
struct ClusterSchedule {
    period: Duration,
    /// The run that is being sampled or was sampled last.
    run: Option<RunId>,
    is_run_on: bool,
    last: Option<Instant>,
    next: Option<Instant>,
}

/// Whether later readings belong to another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunSwitch {
    NewRun,
    SameRun,
}

impl ClusterSchedule {
    fn new(period: Duration) -> Self {
        Self {
            period,
            run: None,
            is_run_on: false,
            last: None,
            next: None,
        }
    }

    fn on(&mut self, signal: Signal, now: Instant) -> RunSwitch {
        match signal {
            Signal::Run(Some(run)) => {
                let before = self.run.replace(run);
                (self.is_run_on, self.next) = (true, Some(now));
                if before != self.run {
                    return RunSwitch::NewRun;
                }
            }
            // To show the state after the run.
            Signal::Run(None) => {
                let was_on = std::mem::take(&mut self.is_run_on);
                self.next = was_on.then_some(now).or(self.next);
            }
            Signal::Mark if !self.is_run_on => {}
            Signal::Mark => {
                // Signals in quick succession share a reading.
                let earliest = self.last.map_or(now, |last| last + self.period).max(now);
                self.next = Some(self.next.map_or(earliest, |next| next.min(earliest)));
            }
        }
        RunSwitch::SameRun
    }

    fn read(&mut self, is_degraded: bool, began: Instant, now: Instant) {
        self.last = Some(began);
        let again = is_degraded && self.is_run_on;
        self.next = again.then(|| (began + self.period).max(now));
    }
}

/// What has been reported in this run.
#[derive(Clone, Debug, Default)]
struct Reported {
    facts: BTreeMap<String, Value>,
    degraded_since: Option<MeshMicros>,
    failed_commands: BTreeSet<String>,
}

/// The state of one thread.
struct Watcher {
    source: FactSource,
    timeout: Duration,
    schedule: ClusterSchedule,
    reported: Reported,
    dating: Dating,
    entries: mpsc::Sender<SpoolEntry>,
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
                    if self.schedule.on(signal, Instant::now()) == RunSwitch::NewRun {
                        self.reported = Reported::default();
                    }
                }
                Err(RecvTimeoutError::Timeout) if !self.stop.load(Ordering::Relaxed) => self.read(),
                Err(_) => return,
            }
        }
    }

    fn read(&mut self) {
        let Some(map) = self.dating.map() else {
            self.schedule.next = Some(Instant::now() + UNDATED_PAUSE);
            return;
        };
        let (began, read_at) = (Instant::now(), MonoNanos::now());
        let reading = self.source.read(&self.stop, self.timeout);
        let (system, run) = (self.source.system(), self.schedule.run);
        let rows = self
            .reported
            .rows(system, &reading, run, map.to_mesh(read_at));
        let is_degraded = self.reported.degraded_since.is_some();
        self.schedule.read(is_degraded, began, Instant::now());
        if !rows.is_empty() {
            // Fails if the spool has ended, because the agent is ending too.
            let _ = self.entries.blocking_send(SpoolEntry::Rows(rows));
        }
    }
}

impl Reported {
    /// The changes in a reading, as rows.
    fn rows(
        &mut self,
        system: &str,
        reading: &FactsReading,
        run: Option<RunId>,
        at: MeshMicros,
    ) -> Vec<TelemetryRow> {
        let mut rows = Vec::new();
        for (place, fact) in reading.facts.as_slice().iter().enumerate() {
            let before = self.facts.insert(fact.name.clone(), fact.value.clone());
            if place == 0 || before.as_ref() != Some(&fact.value) {
                rows.push(TelemetryRow::Fact(Fact {
                    at,
                    run,
                    system: system.to_owned(),
                    name: fact.name.clone(),
                    value: fact.value.clone(),
                    unit: fact.unit.to_owned(),
                }));
            }
        }
        let event = |kind: EventKind, message: String, detail: serde_json::Value| {
            TelemetryRow::Event(Event {
                at,
                scope: RunScope {
                    run,
                    ..RunScope::default()
                },
                kind: kind.into(),
                message: clipped(message),
                detail: detail.to_string(),
            })
        };
        for failure in &reading.failures {
            if self.failed_commands.insert(failure.command.clone()) {
                let message = format!("no facts of {system}: {failure}");
                tracing::info!("{message}");
                let detail = json!({ "system": system });
                rows.push(event(EventKind::FactsFailed, message, detail));
            }
        }
        let state = summary(&reading.facts.texts());
        match (reading.facts.is_degraded(), self.degraded_since) {
            (Some(true), None) => {
                self.degraded_since = Some(at);
                let message = format!("{system} is degraded: {state}");
                let detail = json!({ "system": system, "since_us": at.0 });
                rows.push(event(EventKind::ClusterDegraded, message, detail));
            }
            (Some(false), Some(since)) => {
                self.degraded_since = None;
                let lasted_us = at.0.saturating_sub(since.0);
                let lasted_s = lasted_us / 1_000_000;
                let message = format!("{system} is whole again after {lasted_s} s: {state}");
                let detail =
                    json!({ "system": system, "since_us": since.0, "lasted_us": lasted_us });
                rows.push(event(EventKind::ClusterDegradedOver, message, detail));
            }
            // This reading has no health: keep the last known state.
            _ => {}
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::facts::Failure;
    use benchmesh_model::systems::facts::{Facts, parse_own};

    const PERIOD: Duration = Duration::from_secs(10);

    fn reading(output: &str) -> FactsReading {
        let mut facts = Facts::default();
        parse_own(output, &mut facts).unwrap();
        FactsReading {
            facts,
            failures: Vec::new(),
        }
    }

    /// Facts as `name=value`, events as their kinds.
    fn shown(rows: &[TelemetryRow]) -> Vec<String> {
        let one = |row: &TelemetryRow| match row {
            TelemetryRow::Fact(fact) => format!("{}={}", fact.name, fact.value),
            TelemetryRow::Event(event) => event.kind.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        rows.iter().map(one).collect()
    }

    #[test]
    fn changes_alone_are_reported_and_a_degraded_state_has_two_ends() {
        let mut reported = Reported::default();
        let mut rows = |second: i64, output: &str| {
            let at = MeshMicros(second * 1_000_000);
            let rows = reported.rows("x", &reading(output), None, at);
            shown(&rows)
        };
        assert_eq!(rows(1, "health=ok\nosds=3"), ["health=ok", "osds=3"]);
        // The first fact tells when the cluster was read.
        assert_eq!(rows(2, "health=ok\nosds=3"), ["health=ok"]);
        let degraded = rows(3, "health=bad\nosds=3");
        assert_eq!(degraded, ["health=bad", "cluster-degraded"]);
        assert_eq!(rows(4, "health=bad\nosds=2"), ["health=bad", "osds=2"]);
        assert_eq!(rows(9, "health=ok"), ["health=ok", "cluster-degraded-over"]);
    }

    #[test]
    fn a_failure_is_reported_once_per_command() {
        let mut reported = Reported::default();
        let failed = |at: &str| FactsReading {
            failures: vec![Failure {
                command: "ceph -s".to_owned(),
                problem: format!("{at} no keyring"),
            }],
            ..FactsReading::default()
        };
        let rows = reported.rows("x", &failed("12:00"), Some(RunId(3)), MeshMicros(1));
        assert_eq!(shown(&rows), ["facts-failed"]);
        let again = reported.rows("x", &failed("12:01"), Some(RunId(3)), MeshMicros(2));
        assert!(again.is_empty(), "{again:?}");
    }

    #[test]
    fn it_reads_as_a_run_begins_after_steps_and_while_degraded() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let run = |id| Signal::Run(Some(RunId(id)));
        let mut schedule = ClusterSchedule::new(PERIOD);
        assert_eq!(schedule.on(Signal::Mark, start), RunSwitch::SameRun);
        assert_eq!(schedule.next, None, "no run is on");
        assert_eq!(schedule.on(run(5), start), RunSwitch::NewRun);
        assert_eq!(schedule.next, Some(start));
        schedule.read(false, start, at(1));
        assert_eq!(schedule.next, None);
        // Steps that end soon after a reading share the next one.
        for second in [4, 5, 6] {
            schedule.on(Signal::Mark, at(second));
            assert_eq!(schedule.next, Some(at(10)));
        }
        schedule.read(true, at(10), at(11));
        assert_eq!(schedule.next, Some(at(20)));
        schedule.on(Signal::Mark, at(13));
        assert_eq!(schedule.next, Some(at(20)));
        // The next run begins immediately after the first one.
        assert_eq!(schedule.on(run(6), at(15)), RunSwitch::NewRun);
        assert_eq!(schedule.next, Some(at(15)));
        schedule.read(false, at(15), at(16));
        // The pending reading of the last step's end is made at the end of the run.
        schedule.on(Signal::Mark, at(17));
        assert_eq!(schedule.next, Some(at(25)));
        schedule.on(Signal::Run(None), at(18));
        assert_eq!(
            (schedule.next, schedule.run),
            (Some(at(18)), Some(RunId(6)))
        );
        schedule.read(true, at(18), at(19));
        assert_eq!(schedule.next, None, "no run is on");
        schedule.on(Signal::Run(None), at(20));
        assert_eq!(schedule.next, None, "it has been read after the run");
        // The run is resumed.
        assert_eq!(schedule.on(run(6), at(30)), RunSwitch::SameRun);
        assert_eq!(schedule.next, Some(at(30)));
    }
}
