//! One command to one agent, repeated over each new session until it is answered or the agent is lost.

use super::{
    command::{AgentAnswer, CallError, Command, CommandProgress},
    fleet::Fleet,
    member::{Outgoing, PendingReply, Reply},
};
use benchmesh_model::mesh::{AgentId, RunId};
use std::time::Duration;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// One call to one agent.
#[derive(Debug)]
pub struct Call {
    pub agent: AgentId,
    /// The calling run.
    pub run: Option<RunId>,
    pub command: Command,
    /// An agent without contact for this long is lost.
    pub loss_after: Duration,
    /// From now; `None` means until the agent is lost.
    pub deadline: Option<Duration>,
    pub progress: Option<watch::Sender<CommandProgress>>,
}

impl Call {
    /// A call that is repeated until the agent is lost.
    pub fn to(agent: AgentId, command: Command, loss_after: Duration) -> Self {
        Self {
            agent,
            run: None,
            command,
            loss_after,
            deadline: None,
            progress: None,
        }
    }

    /// Sets the calling run.
    pub fn for_run(mut self, run: Option<RunId>) -> Self {
        self.run = run;
        self
    }

    /// Sets the deadline of the answer.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Adds progress reports.
    pub fn with_progress(mut self, progress: watch::Sender<CommandProgress>) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl Fleet {
    /// Sends the command and waits for the answer; sends it again when the agent has reattached meanwhile. Cancel-safe.
    pub async fn call(&self, call: Call) -> Result<AgentAnswer, CallError> {
        let deadline = call.deadline.map(|within| Instant::now() + within);
        let expired = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = self.ask_until_lost(&call) => answer,
            () = expired => Err(CallError::Deadline {
                agent: self.member(call.agent).map_or_else(|| call.agent.to_string(), |member| member.hello.name.clone()),
                doing: call.command.action(),
                within: call.deadline.unwrap_or_default(),
            }),
        }
    }

    async fn ask_until_lost(&self, call: &Call) -> Result<AgentAnswer, CallError> {
        let mut changes = self.changes();
        loop {
            if let Some((outgoing, cancel)) = self.outgoing(call.agent)? {
                let (pending, reply) = self.wait_for(call);
                let message = Outgoing::Command {
                    id: pending.id,
                    run: call.run,
                    command: Box::new(call.command.clone()),
                };
                let sent = tokio::select! {
                    sent = outgoing.send(message) => sent.is_ok(),
                    () = cancel.cancelled() => false,
                };
                if sent && let Ok(reply) = reply.await {
                    return self.answer_of(call, reply);
                }
                // The session ended before its answer.
                continue;
            }
            let lost_at = self.lost_at(call)?;
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(lost_at) => {
                    let state = self.state();
                    if let Some(member) = state.members.get(&call.agent) && member.session.is_none() {
                        return Err(member.lost());
                    }
                }
            }
        }
    }

    /// Resolves once the agent is lost.
    pub async fn lost(&self, agent: AgentId, loss_after: Duration) -> CallError {
        let mut changes = self.changes();
        loop {
            let lost_at = {
                let state = self.state();
                match state.members.get(&agent) {
                    None => return CallError::Unknown { agent },
                    Some(member) if member.session.is_some() => None,
                    Some(member) if member.last_contact + loss_after <= Instant::now() => {
                        return member.lost();
                    }
                    Some(member) => Some(member.last_contact + loss_after),
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(lost_at.unwrap_or_else(Instant::now)), if lost_at.is_some() => {}
            }
        }
    }

    fn answer_of(&self, call: &Call, reply: Reply) -> Result<AgentAnswer, CallError> {
        reply.map_err(|(kind, message)| CallError::Refused {
            agent: self.member(call.agent).map_or_else(
                || call.agent.to_string(),
                |member| member.hello.name.clone(),
            ),
            kind,
            message,
        })
    }

    fn outgoing(
        &self,
        agent: AgentId,
    ) -> Result<Option<(mpsc::Sender<Outgoing>, CancellationToken)>, CallError> {
        let state = self.state();
        let member = state
            .members
            .get(&agent)
            .ok_or(CallError::Unknown { agent })?;
        Ok(member
            .session
            .as_ref()
            .map(|session| (session.outgoing.clone(), session.cancel.clone())))
    }

    fn lost_at(&self, call: &Call) -> Result<Instant, CallError> {
        let state = self.state();
        let member = state
            .members
            .get(&call.agent)
            .ok_or(CallError::Unknown { agent: call.agent })?;
        Ok(member.last_contact + call.loss_after)
    }

    /// Registers a call with the agent's session; without a session the receiver reports a closed channel at once.
    fn wait_for(&self, call: &Call) -> (PendingGuard<'_>, oneshot::Receiver<Reply>) {
        let id = self.number();
        let (reply, receiver) = oneshot::channel();
        if let Some(session) = self
            .state()
            .members
            .get_mut(&call.agent)
            .and_then(|member| member.session.as_mut())
        {
            let progress = call.progress.clone();
            session.waiting.insert(id, PendingReply { reply, progress });
        }
        let pending = PendingGuard {
            fleet: self,
            agent: call.agent,
            id,
        };
        (pending, receiver)
    }
}

/// An open call; removed from its session when it is dropped.
struct PendingGuard<'f> {
    fleet: &'f Fleet,
    agent: AgentId,
    id: u64,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        if let Some(session) = self
            .fleet
            .state()
            .members
            .get_mut(&self.agent)
            .and_then(|member| member.session.as_mut())
        {
            session.waiting.remove(&self.id);
        }
    }
}
