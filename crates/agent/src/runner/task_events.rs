//! Events that a task, its preparation or a command on a target reports.

use crate::clock::{Dating, MeshMap};
use crate::spool::SpoolEntry;
use crate::telemetry::{Event, RunScope, TaskId, TelemetryRow, clipped};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{Stall, StallEvent};
use serde_json::json;
use tokio::sync::mpsc::{self, error::TrySendError};

/// Maximum number of operations listed in full; the rest are counted.
const MAX_NAMED: usize = 16;

/// Where stalls outside a load are reported.
#[derive(Clone, Debug)]
pub(super) struct StallReports {
    pub scope: RunScope,
    pub dating: Dating,
    pub entries: mpsc::Sender<SpoolEntry>,
}

impl StallReports {
    /// Never waits, because the thread that watches would delay the end of the work. Nothing is reported while mesh
    /// time is unknown.
    pub(super) fn send(&self, stall: &StallEvent) {
        let Some(map) = self.dating.map() else {
            return;
        };
        let scope = self.scope.clone();
        let event = TaskEvents { scope, map }.stall(stall);
        let message = event.message.clone();
        let rows = vec![TelemetryRow::Event(event)];
        // A closed spool accepts no rows: the agent is shutting down.
        if let Err(TrySendError::Full(_)) = self.entries.try_send(SpoolEntry::Rows(rows)) {
            tracing::warn!("no room in the spool's queue: an event is lost: {message}");
        }
    }
}

/// Common parts of one task's events.
#[derive(Clone, Debug)]
pub(super) struct TaskEvents {
    pub scope: RunScope,
    pub map: MeshMap,
}

impl TaskEvents {
    /// The event of an operation without progress, or of its later progress or end.
    pub(super) fn stall(&self, stall: &StallEvent) -> Event {
        match stall {
            StallEvent::Begun(stall) => {
                self.event(stall, EventKind::Stall, "has made no progress for")
            }
            StallEvent::Over(stall) => {
                self.event(stall, EventKind::StallOver, "went on or ended after")
            }
        }
    }

    /// The event of operations that a stop has not ended.
    pub(super) fn held(&self, task: TaskId, stalls: &[Stall]) -> Event {
        let now = MonoNanos::now();
        let message = held_message(task, stalls, now);
        tracing::warn!(%task, "{message}");
        Event {
            at: self.map.to_mesh(now),
            scope: self.scope.clone(),
            kind: EventKind::OperationStuck.into(),
            message: clipped(message),
            detail: String::new(),
        }
    }

    fn event(&self, stall: &Stall, kind: EventKind, what: &str) -> Event {
        let now = MonoNanos::now();
        let lasted = now.since(stall.since);
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let detail = json!({
            "host": host,
            "worker": stall.phase.worker(),
            "op": stall.phase.as_str(),
            "call": stall.call,
            "path": stall.path,
            "offset": stall.offset,
            "since_us": self.map.to_mesh(stall.since).0,
            "lasted_us": u64::try_from(lasted.as_micros()).unwrap_or(u64::MAX),
        });
        Event {
            at: self.map.to_mesh(now),
            kind: kind.into(),
            message: clipped(format!(
                "host {host}, {stall} {what} {} s",
                lasted.as_secs()
            )),
            scope: self.scope.clone(),
            detail: detail.to_string(),
        }
    }
}

fn held_message(task: TaskId, stalls: &[Stall], now: MonoNanos) -> String {
    let named: Vec<String> = stalls
        .iter()
        .take(MAX_NAMED)
        .map(|stall| format!("{stall} for {:.1} s", now.since(stall.since).as_secs_f64()))
        .collect();
    let more = match stalls.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "task {task} was stopped, and the kernel still holds operations of it: {}{more}",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clock::{Exchange, Filter};
    use crate::telemetry::RunId;
    use benchmesh_testing::logs;
    use benchmesh_workloads::op::Op;
    use benchmesh_workloads::task::{PrepThreads, TaskPhase};
    use std::io::{Read, Write};
    use std::time::Duration;
    use tokio::sync::watch;

    #[test]
    fn operations_that_outlast_a_stop_are_named_with_their_age() {
        let stall = |worker| Stall {
            phase: TaskPhase::Operation {
                worker,
                op: Op::Read,
            },
            call: None,
            since: MonoNanos(1_000_000_000),
            path: None,
            offset: None,
            hangs: true,
        };
        let now = MonoNanos(3_500_000_000);
        assert_eq!(
            held_message(TaskId(7), &[stall(0), stall(3)], now),
            "task 7 was stopped, and the kernel still holds operations of it: worker 0: read for 2.5 s, worker 3: read for 2.5 s"
        );
        let many: Vec<Stall> = (0..20).map(stall).collect();
        assert!(held_message(TaskId(7), &many, now).ends_with("and 4 more"));
    }

    /// Reports of a run, with a known mesh time.
    fn reports(entries: mpsc::Sender<SpoolEntry>) -> StallReports {
        let exchange = Exchange {
            sent: MonoNanos(1),
            mesh_received_ns: 1_700_000_000_000_000_000,
            mesh_sent_ns: 1_700_000_000_000_000_000,
            received: MonoNanos(2),
            slept_ns: 0,
        };
        let estimate = Filter::default().add(exchange).unwrap();
        let (_clock, clock) = watch::channel(Some(estimate));
        StallReports {
            scope: RunScope {
                run_uid: "u".to_owned().into(),
                run: Some(RunId(7)),
                step: None,
            },
            dating: Dating::new(clock),
            entries,
        }
    }

    #[test]
    fn a_full_queue_delays_no_watching_thread_and_the_lost_event_is_logged() {
        logs::keep_warnings();
        let (entries, mut rows) = mpsc::channel(1);
        let reports = reports(entries);
        let stall = StallEvent::Begun(Stall {
            phase: TaskPhase::Command("full-queue"),
            call: Some("read"),
            since: MonoNanos::now(),
            path: None,
            offset: None,
            hangs: true,
        });
        let (sender, sent) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            reports.send(&stall);
            reports.send(&stall);
            sender.send(()).unwrap();
        });
        let sent = sent.recv_timeout(Duration::from_secs(60));
        assert!(sent.is_ok(), "it waits for the queue");
        assert!(rows.try_recv().is_ok() && rows.try_recv().is_err());
        let lost: Vec<String> = logs::warnings("an event is lost")
            .into_iter()
            .filter(|line| line.contains("full-queue"))
            .collect();
        assert_eq!(lost.len(), 1, "{lost:?}");
    }

    #[test]
    fn a_command_that_waits_in_one_call_is_a_stall_of_its_run() {
        let (entries, mut rows) = mpsc::channel(8);
        let reports = reports(entries);
        let run = reports.scope.run;
        let (mut here, mut there) = std::io::pipe().unwrap();
        let command = std::thread::spawn(move || {
            let phase = TaskPhase::Command("open-run-directory");
            let after = Duration::from_millis(100);
            let report = move |event| reports.send(&event);
            PrepThreads::default()
                .watched(phase, after, report, || here.read_exact(&mut [0]).unwrap());
        });
        for kind in ["stall", "stall-over"] {
            let Some(SpoolEntry::Rows(told)) = rows.blocking_recv() else {
                panic!("no rows");
            };
            let [TelemetryRow::Event(event)] = told.as_slice() else {
                panic!("{told:?}");
            };
            assert_eq!(event.kind.as_str(), kind);
            assert_eq!(event.scope.run, run);
            let message = &event.message;
            assert!(message.contains("open-run-directory"), "{message}");
            // Lets the command continue.
            let _ = there.write_all(&[1]);
        }
        command.join().unwrap();
    }
}
