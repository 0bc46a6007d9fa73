//! Follows a run to its end: shows its progress, reconnects when the collector is unreachable, and stops the run on
//! request.
//!
//! The run belongs to the collector: losing the connection or leaving does not end it.

use crate::client::{CallError, Client, Detail, StopWhen, Watch};
use crate::failure::Outcome;
use crate::interrupts::Interrupts;
pub use crate::interrupts::OnInterrupt;
use crate::progress::ProgressOutput;
use benchmesh_model::mesh::{RunId, RunState};
use benchmesh_scheduler::snapshot::{Forward, RunUpdate};
use std::time::Duration;
use tokio::time::Instant;

/// Pause before reconnecting to an unreachable collector: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long to wait for an unreachable collector once the run is to be stopped: it may be restarting.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// How the following of a run ended.
#[derive(Debug)]
pub enum Followed {
    /// The run has ended; this is its last update.
    Ended(Box<RunUpdate>),
    /// The user left: by Ctrl-C, if that does not stop the run, or by a key of the full-screen view. The run, if its
    /// first update had come.
    Left(Option<RunId>),
}

/// Follows the run until it ends or the user leaves.
pub async fn follow(
    address: &str,
    run: &str,
    progress: &mut ProgressOutput,
    interrupts: &mut Interrupts,
    on_interrupt: OnInterrupt,
) -> anyhow::Result<Followed> {
    // A command that may leave only watches. One that waits for the run's end is part of the measurement, and requests
    // no more than it shows.
    let detail = match on_interrupt {
        OnInterrupt::StopRun if !progress.shows_detail() => Detail::Step,
        OnInterrupt::Leave | OnInterrupt::StopRun => Detail::All,
    };
    let mut watcher = RunWatcher::new(address, run, detail);
    let mut shown = ShownMessages::default();
    // A collector that was restarted estimates anew.
    let mut forward = Forward::default();
    let mut id = None;
    let mut stopping = None;
    let mut lost = None;
    loop {
        let since: Option<Instant> = stopping.max(lost).filter(|_| stopping.min(lost).is_some());
        let seen = tokio::select! {
            seen = watcher.next() => seen.map_err(CallError::into_error)?,
            () = interrupts.first(), if stopping.is_none() => {
                if on_interrupt == OnInterrupt::Leave {
                    return Ok(Followed::Left(id));
                }
                stopping = Some(Instant::now());
                progress.stopping();
                tokio::spawn(stop(address.to_owned(), run.to_owned()));
                continue;
            }
            () = progress.left() => {
                // The stop request of a command that has left might not arrive.
                if stopping.is_none() {
                    return Ok(Followed::Left(id));
                }
                continue;
            }
            () = reconnect_timeout(since) => anyhow::bail!(
                "the collector at {address} has not answered for {} s and may not have received the stop request. When \
                 it is back, run `benchmesh stop {run}`; while it is away, the load ends after the plan's `lease`",
                STOP_TIMEOUT.as_secs()
            ),
        };
        lost = match seen {
            WatchEvent::Lost(_) => Some(Instant::now()),
            WatchEvent::Update(_) | WatchEvent::Back => None,
        };
        match seen {
            WatchEvent::Update(mut update) => {
                shown.drop_repeated(&mut update);
                forward.hold(&mut update.run);
                id = Some(update.run.run_id);
                progress.update(&update);
                if update.run.state.is_end() {
                    return Ok(Followed::Ended(update));
                }
            }
            WatchEvent::Lost(reason) => progress.warn(&format!(
                "lost the connection ({reason}); the run continues; reconnecting to {address}"
            )),
            WatchEvent::Back => {
                shown.reconnected();
                progress.say("the collector is back");
            }
        }
    }
}

/// Returns when the command stops waiting for a collector that is to stop a run and has been unreachable since then.
async fn reconnect_timeout(since: Option<Instant>) {
    match since {
        Some(since) => tokio::time::sleep_until(since + STOP_TIMEOUT).await,
        None => std::future::pending().await,
    }
}

/// Messages already shown: after a lost connection the collector repeats everything from the beginning.
#[derive(Debug, Default)]
struct ShownMessages {
    step: u32,
    messages: usize,
    /// The newest event and mark.
    event: i64,
    mark_us: i64,
    /// Number of messages of the new connection that an earlier one already showed.
    old: usize,
}

impl ShownMessages {
    fn reconnected(&mut self) {
        self.old = self.messages;
    }

    fn drop_repeated(&mut self, update: &mut RunUpdate) {
        update.run.finished.retain(|step| step.ordinal > self.step);
        if let Some(last) = update.run.finished.last() {
            self.step = last.ordinal;
        }
        update.events.retain(|event| match event.event_id {
            0 => event.at_us > self.mark_us,
            id => id > self.event,
        });
        for event in &update.events {
            match event.event_id {
                0 => self.mark_us = self.mark_us.max(event.at_us),
                id => self.event = self.event.max(id),
            }
        }
        let old = self.old.min(update.run.messages.len());
        update.run.messages.drain(..old);
        self.old -= old;
        self.messages += update.run.messages.len();
    }
}

/// Events of [`RunWatcher`].
enum WatchEvent {
    Update(Box<RunUpdate>),
    Lost(String),
    Back,
}

/// The updates of one run across lost connections.
struct RunWatcher<'a> {
    address: &'a str,
    run: &'a str,
    detail: Detail,
    watch: Option<Watch>,
    /// The pause before the next connection attempt; `None` if no connection was lost.
    pause: Option<Duration>,
}

impl<'a> RunWatcher<'a> {
    fn new(address: &'a str, run: &'a str, detail: Detail) -> Self {
        Self {
            address,
            run,
            detail,
            watch: None,
            pause: None,
        }
    }

    /// The next event. Cancel-safe: an interrupted request is started again.
    async fn next(&mut self) -> Result<WatchEvent, CallError> {
        let Some(watch) = &mut self.watch else {
            return self.dial().await;
        };
        let reason = match watch.next().await {
            Ok(Some(update)) => return Ok(WatchEvent::Update(Box::new(update))),
            // The collector ends the stream after the last update; a stream that ends without one means that it is
            // shutting down.
            Ok(None) => "the collector ended the connection".to_owned(),
            Err(CallError::Away { reason, .. }) => reason,
            Err(error) => return Err(error),
        };
        self.watch = None;
        self.pause = Some(FIRST_PAUSE);
        Ok(WatchEvent::Lost(reason))
    }

    /// The first failure to connect is an error; after a lost connection, attempts continue forever.
    async fn dial(&mut self) -> Result<WatchEvent, CallError> {
        loop {
            if let Some(pause) = self.pause {
                tokio::time::sleep(pause).await;
            }
            let opened = async {
                Client::connect(self.address)
                    .await?
                    .watch_run(self.run, self.detail)
                    .await
            };
            match (opened.await, self.pause) {
                (Ok(mut watch), None) => {
                    let Some(first) = watch.next().await? else {
                        return Err(CallError::Away {
                            address: self.address.to_owned(),
                            reason: "it ended the connection at once".to_owned(),
                        });
                    };
                    self.watch = Some(watch);
                    return Ok(WatchEvent::Update(Box::new(first)));
                }
                (Ok(watch), Some(_)) => {
                    self.watch = Some(watch);
                    self.pause = None;
                    return Ok(WatchEvent::Back);
                }
                (Err(CallError::Away { .. }), Some(pause)) => {
                    self.pause = Some((pause * 2).min(MAX_PAUSE))
                }
                (Err(error), _) => return Err(error),
            }
        }
    }
}

/// The outcome of the command, derived from the final state of the run.
pub fn outcome(last: &RunUpdate) -> Outcome {
    match last.run.state {
        RunState::Failed => Outcome::RunFailed,
        RunState::Done if !last.run.partial => Outcome::Done,
        _ => Outcome::Partial,
    }
}

/// Repeats the request until the collector has received it. A refusal is reported to the run's followers too.
async fn stop(address: String, run: String) {
    let mut pause = FIRST_PAUSE;
    loop {
        let asked = async {
            Client::connect(&address)
                .await?
                .stop_run(&run, "interrupted by its user", StopWhen::Now)
                .await
        };
        match asked.await {
            Ok(_) => return,
            Err(CallError::Away { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "stop the run");
                return;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::format::tests::{done, update};
    use benchmesh_model::mesh::StepState;
    use benchmesh_scheduler::snapshot::EventNow;

    #[test]
    fn after_a_lost_connection_only_news_are_told() {
        let mut shown = ShownMessages::default();
        let mut first = update(RunState::Running);
        first.run.finished = vec![done(1, StepState::Done), done(2, StepState::Done)];
        first.run.messages = vec!["one".into()];
        shown.drop_repeated(&mut first);
        assert_eq!((first.run.finished.len(), first.run.messages.len()), (2, 1));
        let mut second = update(RunState::Running);
        second.run.messages = vec!["two".into()];
        shown.drop_repeated(&mut second);
        assert_eq!(second.run.messages, ["two"]);
        shown.reconnected();
        let mut whole = update(RunState::Running);
        whole.run.finished = vec![
            done(1, StepState::Done),
            done(2, StepState::Done),
            done(3, StepState::Done),
        ];
        whole.run.messages = ["one", "two", "three"].map(str::to_owned).into();
        shown.drop_repeated(&mut whole);
        assert_eq!(whole.run.messages, ["three"]);
        assert_eq!(
            whole
                .run
                .finished
                .iter()
                .map(|step| step.ordinal)
                .collect::<Vec<_>>(),
            [3]
        );
    }

    #[test]
    fn events_and_marks_are_told_once() {
        let event = |event_id, at_us| EventNow {
            event_id,
            at_us,
            severity: "info".into(),
            ..EventNow::default()
        };
        let mut shown = ShownMessages::default();
        let unseen = |shown: &mut ShownMessages, events: &[(i64, i64)]| -> Vec<(i64, i64)> {
            let mut update = update(RunState::Running);
            update.events = events.iter().map(|(id, at)| event(*id, *at)).collect();
            shown.drop_repeated(&mut update);
            update
                .events
                .iter()
                .map(|one| (one.event_id, one.at_us))
                .collect()
        };
        assert_eq!(
            unseen(&mut shown, &[(3, 30), (4, 20), (0, 10)]),
            [(3, 30), (4, 20), (0, 10)]
        );
        shown.reconnected();
        // Arrived late from an agent, and therefore has an earlier date.
        let again = [(4, 20), (5, 5), (0, 10), (0, 11)];
        assert_eq!(unseen(&mut shown, &again), [(5, 5), (0, 11)]);
    }

    #[test]
    fn the_end_of_a_run_is_the_end_of_the_command() {
        for (state, partial, expected) in [
            (RunState::Done, false, Outcome::Done),
            (RunState::Done, true, Outcome::Partial),
            (RunState::Stopped, true, Outcome::Partial),
            (RunState::Failed, false, Outcome::RunFailed),
        ] {
            let mut last = update(state);
            last.run.partial = partial;
            assert_eq!(outcome(&last), expected);
        }
    }
}
