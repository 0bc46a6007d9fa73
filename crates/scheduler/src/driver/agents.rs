//! Commands to agents, repeated over each new session until they are answered, the agent is lost, or time is up.

use super::WorkResult;
use crate::{
    machine::{
        effect::{Ask, Within},
        event::Event,
    },
    sessions::{
        Call, Fleet,
        command::{AgentAnswer, CallError, Command, CommandProgress},
    },
};
use benchmesh_model::mesh::{MeshMicros, RunId};
use benchmesh_store::clock::{MeshClock, until};
use futures::{FutureExt, future::BoxFuture};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

/// A later mark is worthless.
const MARK_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks an agent, and forwards its progress. A command without progress for `silence` counts as hung.
pub(super) async fn ask(
    fleet: &Fleet,
    clock: &Arc<MeshClock>,
    ask: Ask,
    events: mpsc::Sender<Event>,
) -> Result<AgentAnswer, CallError> {
    let agent = ask.agent;
    let action = ask.command.action();
    let name = || {
        let member = fleet.member(agent);
        member.map_or_else(|| agent.to_string(), |member| member.hello.name.clone())
    };
    let (sender, mut reports) = watch::channel(CommandProgress::default());
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
    let mut last_report = Instant::now();
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            Ok(()) = reports.changed() => {
                let progress = reports.borrow_and_update().clone();
                last_report = Instant::now();
                // A full queue drops the report; watchers see the next one.
                let _ = events.try_send(Event::Progressed {
                    token: ask.token,
                    progress,
                });
            }
            within = silent_since(last_report, ask.silence) => {
                return Err(CallError::Deadline {
                    agent: name(),
                    doing: action,
                    within,
                });
            }
        }
    }
}

/// Waits until `silence` has passed since `last`, and returns it. Without a limit it never resolves.
async fn silent_since(last: Instant, silence: Option<Duration>) -> Duration {
    match silence {
        Some(silence) => {
            sleep_until(last + silence).await;
            silence
        }
        None => std::future::pending().await,
    }
}

/// Has every sampler read at an instant; `None` means now. Agents that sample nothing may read facts of a cluster.
pub(crate) fn marks(
    fleet: &Fleet,
    clock: &Arc<MeshClock>,
    run: RunId,
    at: Option<MeshMicros>,
) -> Vec<BoxFuture<'static, WorkResult>> {
    let attached = fleet
        .presences()
        .into_iter()
        .filter(|member| member.attached);
    attached
        .map(|member| {
            let (fleet, clock) = (fleet.clone(), Arc::clone(clock));
            async move {
                let wait = at.map_or(Duration::ZERO, |at| until(&clock, at));
                let call =
                    Call::to(member.id, Command::Mark { at }, MARK_TIMEOUT).for_run(Some(run));
                if let Err(error) = fleet.call(call.within(MARK_TIMEOUT + wait)).await {
                    tracing::debug!(%error, "an agent did not take a mark");
                }
                Ok(None)
            }
            .boxed()
        })
        .collect()
}
