//! Receives exec events while they are wanted and allowed; pauses while their rate is too costly.

use std::sync::Arc;
use std::time::Duration;

use benchmesh_workloads::clock::MonoNanos;
use tracing::debug;

use super::exec_events::{Drained, ExecEvents, PER_SECOND};
use super::poll::Poll;

/// Pause on a host that executes programs all the time; meanwhile only the scan finds daemons.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Execs {
    events: Option<ExecEvents>,
    /// Earliest instant to listen again; `None`: at once.
    not_before: Option<MonoNanos>,
    /// The kernel does not allow it here.
    refused: bool,
    pids: Vec<i32>,
    /// Whether the last wait reported readable events.
    pub(crate) has_some: bool,
}

impl Execs {
    /// Starts or stops to listen.
    pub(crate) fn listen(&mut self, wanted: bool, poll: &Arc<Poll>) {
        if !wanted {
            self.leave(poll);
            self.not_before = None;
            return;
        }
        let pauses = self.not_before.is_some_and(|at| MonoNanos::now() < at);
        if self.events.is_some() || self.refused || pauses {
            return;
        }
        self.not_before = None;
        let connected = ExecEvents::connect().and_then(|events| {
            poll.add_execs(&events)?;
            Ok(events)
        });
        match connected {
            Ok(events) => self.events = Some(events),
            Err(errno) => {
                self.refused = true;
                debug!(error = %errno, "the kernel does not report new processes: daemons are found by scanning alone");
            }
        }
    }

    /// Pids of processes that have executed a program or changed their name, and whether events were lost.
    pub(crate) fn drain(&mut self, poll: &Arc<Poll>) -> (&[i32], bool) {
        self.pids.clear();
        if !std::mem::take(&mut self.has_some) {
            return (&self.pids, false);
        }
        let Some(events) = &mut self.events else {
            return (&self.pids, false);
        };
        let lost = match events.drain(&mut self.pids) {
            Ok(Drained::Some) => false,
            Ok(Drained::Lost) => true,
            Ok(Drained::TooMany) => {
                debug!(
                    "more than {PER_SECOND} programs were started in a second: for {} s daemons are found by the scan alone",
                    PAUSE.as_secs()
                );
                self.leave(poll);
                self.not_before = Some(MonoNanos::now().saturating_add(PAUSE));
                true
            }
            Err(errno) => {
                self.refused = true;
                debug!(error = %errno, "the kernel no longer reports new processes: daemons are found by scanning alone");
                self.leave(poll);
                true
            }
        };
        // One process may cause several events in a row.
        self.pids.sort_unstable();
        self.pids.dedup();
        (&self.pids, lost)
    }

    fn leave(&mut self, poll: &Arc<Poll>) {
        if let Some(events) = self.events.take() {
            poll.remove_execs(&events);
        }
    }
}
