//! Reports commands on a target that hang: each is an event with its system call and path, like an operation of a load.
//!
//! Meanwhile the agent stays attached and continues with everything else.

use crate::clock::Dating;
use crate::runner::task_events::TaskEvents;
use crate::spool::SpoolEntry;
use crate::telemetry::{RunScope, TelemetryRow};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{HangDetector, PrepThreads, StallEvent, TaskPhase};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// On a working file system, each system call of a command takes less than this.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// Watches the thread of one command.
pub(super) struct HangWatch {
    /// The name of the command in events.
    pub word: &'static str,
    pub scope: RunScope,
    pub dating: Dating,
    pub entries: mpsc::Sender<SpoolEntry>,
}

impl HangWatch {
    /// Watches until the other end of `over` is dropped.
    pub async fn run(self, threads: PrepThreads, over: oneshot::Receiver<()>) {
        self.run_after(HANGS_AFTER, threads, over).await;
    }

    async fn run_after(
        self,
        after: Duration,
        threads: PrepThreads,
        mut over: oneshot::Receiver<()>,
    ) {
        let mut detector = HangDetector::new(threads, TaskPhase::Command(self.word), after);
        loop {
            tokio::select! {
                _ = &mut over => break,
                () = tokio::time::sleep(detector.every()) => {}
            }
            for event in detector.look(MonoNanos::now()) {
                self.tell(&event).await;
            }
        }
        for event in detector.over() {
            self.tell(&event).await;
        }
    }

    async fn tell(&self, event: &StallEvent) {
        let (StallEvent::Begun(stall) | StallEvent::Over(stall)) = event;
        if !stall.hangs {
            return;
        }
        tracing::warn!(command = self.word, "{stall} hangs, or has hung");
        let Some(map) = self.dating.map() else {
            return;
        };
        let scope = self.scope.clone();
        let row = TelemetryRow::Event(TaskEvents { scope, map }.stall(event));
        // A closed spool accepts no rows: the agent is shutting down.
        let _ = self.entries.send(SpoolEntry::Rows(vec![row])).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clock::{Exchange, Filter};
    use crate::telemetry::RunId;
    use std::io::{Read, Write};
    use tokio::sync::watch;

    #[tokio::test]
    async fn a_command_that_waits_in_one_call_is_a_stall_of_its_run() {
        let exchange = Exchange {
            sent: MonoNanos(1),
            mesh_received_ns: 1_700_000_000_000_000_000,
            mesh_sent_ns: 1_700_000_000_000_000_000,
            received: MonoNanos(2),
            slept_ns: 0,
        };
        let estimate = Filter::default().add(exchange).unwrap();
        let (_clock, clock) = watch::channel(Some(estimate));
        let (entries, mut rows) = mpsc::channel(8);
        let run = Some(RunId(7));
        let hang_watch = HangWatch {
            word: "open-run-directory",
            scope: RunScope {
                run_uid: "u".to_owned().into(),
                run,
                step: None,
            },
            dating: Dating::new(clock),
            entries,
        };
        let threads = PrepThreads::default();
        let (working, over) = oneshot::channel::<()>();
        let (mut here, mut there) = std::io::pipe().unwrap();
        let watched = threads.clone();
        let command = std::thread::spawn(move || {
            let _working = working;
            let _present = watched.present();
            here.read_exact(&mut [0]).unwrap();
        });
        let watching =
            tokio::spawn(hang_watch.run_after(Duration::from_millis(100), threads, over));
        for kind in ["stall", "stall-over"] {
            let Some(SpoolEntry::Rows(told)) = rows.recv().await else {
                panic!("no rows");
            };
            let [TelemetryRow::Event(event)] = told.as_slice() else {
                panic!("{told:?}");
            };
            assert_eq!(event.kind.as_str(), kind);
            assert_eq!(event.scope.run, run);
            assert!(
                event.message.contains("open-run-directory"),
                "{}",
                event.message
            );
            // Lets the command continue.
            let _ = there.write_all(&[1]);
        }
        watching.await.unwrap();
        command.join().unwrap();
    }
}
