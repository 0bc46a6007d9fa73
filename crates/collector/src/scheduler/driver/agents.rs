//! Commands to agents: asked over each new session until they are answered, the agent is lost, or the time is up.

use super::WorkResult;
use crate::{
    clock::{MeshClock, until},
    model::MeshMicros,
    scheduler::machine::{
        effect::{Ask, Within},
        event::Event,
    },
    sessions::{
        Call, Fleet,
        command::{Answer, CallError, Command, Progress},
    },
};
use futures::{FutureExt, future::BoxFuture};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

/// A mark is worth nothing later.
const MARK_WITHIN: Duration = Duration::from_secs(5);

/// How often a count of progress may begin anew: a preparation has a few parts, each with its own count.
const MAX_RESTARTS: u32 = 32;

/// How far a command is, by its agent's reports.
#[derive(Debug, Default)]
struct Advance {
    last: Progress,
    restarts: u32,
}

impl Advance {
    /// Whether a report says that more is done than before.
    fn is_further(&mut self, report: &Progress) -> bool {
        let last = std::mem::replace(&mut self.last, report.clone());
        if report.unit == last.unit && report.done >= last.done {
            return report.done > last.done;
        }
        self.restarts = self.restarts.saturating_add(1);
        self.restarts <= MAX_RESTARTS
    }
}

/// Asks an agent, and forwards its progress. A command that is no further after `silence` hangs.
pub(super) async fn ask(
    fleet: &Fleet,
    clock: &Arc<MeshClock>,
    ask: Ask,
    events: mpsc::Sender<Event>,
) -> Result<Answer, CallError> {
    let agent = ask.agent;
    let action = ask.command.action();
    let name = || {
        let member = fleet.member(agent);
        member.map_or_else(|| agent.to_string(), |member| member.hello.name.clone())
    };
    let (sender, mut reports) = watch::channel(Progress::default());
    let mut call = Call::to(agent, ask.command, ask.loss_after).for_run(ask.run);
    match ask.within {
        Within::Contact => {}
        Within::For(time) => call = call.within(time),
        Within::Until(at) => {
            let left = until(clock, at);
            if left.is_zero() {
                return Err(CallError::TooLateToAsk {
                    agent: name(),
                    doing: action,
                });
            }
            call = call.within(left);
        }
    }
    let call = fleet.call(call.with_progress(sender));
    tokio::pin!(call);
    let mut advance = Advance::default();
    let mut last_advance = Instant::now();
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            Ok(()) = reports.changed() => {
                let progress = reports.borrow_and_update().clone();
                if advance.is_further(&progress) {
                    last_advance = Instant::now();
                }
                // A full queue drops it; watchers see the next one.
                let _ = events.try_send(Event::Progressed {
                    token: ask.token,
                    progress,
                });
            }
            within = silent_since(last_advance, ask.silence) => {
                return Err(CallError::Deadline {
                    agent: name(),
                    doing: action,
                    within,
                });
            }
        }
    }
}

/// Waits until `silence` has passed since `last`, and returns it; for ever without one.
async fn silent_since(last: Instant, silence: Option<Duration>) -> Duration {
    match silence {
        Some(silence) => {
            sleep_until(last + silence).await;
            silence
        }
        None => std::future::pending().await,
    }
}

/// Lets every sampler read at an instant; `None`: now.
pub(super) fn marks(
    fleet: &Fleet,
    clock: &Arc<MeshClock>,
    at: Option<MeshMicros>,
) -> Vec<BoxFuture<'static, WorkResult>> {
    let samplers = fleet
        .presences()
        .into_iter()
        .filter(|member| member.attached && (member.samples_host || member.samples_interfaces));
    samplers
        .map(|member| {
            let (fleet, clock) = (fleet.clone(), Arc::clone(clock));
            async move {
                let wait = at.map_or(Duration::ZERO, |at| until(&clock, at));
                let call = Call::to(member.id, Command::Mark { at }, MARK_WITHIN);
                if let Err(error) = fleet.call(call.within(MARK_WITHIN + wait)).await {
                    tracing::debug!(%error, "a mark was not taken");
                }
                Ok(None)
            }
            .boxed()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_say_nothing_new_are_no_progress() {
        let report = |done, unit: &str| Progress {
            done,
            total: 100,
            unit: unit.to_owned(),
        };
        let mut advance = Advance::default();
        let mut check = |done, unit, further| {
            assert_eq!(
                advance.is_further(&report(done, unit)),
                further,
                "{done} {unit}"
            );
        };
        check(7, "files removed", true);
        check(0, "bytes", true);
        check(0, "bytes", false);
        check(5, "bytes", true);
        check(5, "bytes", false);
        // Asked again over a new session, it may lay out from the start.
        check(1, "bytes", true);
        check(2, "bytes", true);
        let mut turns = 0;
        while advance.is_further(&report(1, if turns % 2 == 0 { "a" } else { "b" })) {
            turns += 1;
            assert!(turns < 100, "it goes on for ever");
        }
    }
}
