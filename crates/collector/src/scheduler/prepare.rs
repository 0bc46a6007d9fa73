//! Before the start: directories, receiving ends, layout.

use super::{
    arm::micros,
    directories::no_room,
    drive::{Drive, Held},
    ends::Crew,
    loss::Verdict,
    step::StepEnd,
};
use crate::{
    model::{AgentId, TaskId},
    plan::{PlannedLoad, PlannedStep},
    sessions::{
        Call, MemberFacts,
        command::{Answer, CallError, Command, Listen, Prepare, Progress, RefusalKind},
    },
    store::{StoreError, rows::StepRow},
};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::sync::watch;

/// Opening a port takes no longer on a host that works.
const LISTEN_WITHIN: Duration = Duration::from_secs(30);

impl Drive {
    /// Opens and lays out every task of the step; `Some` when the step cannot go on.
    pub(super) async fn prepare(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        crew: &mut Crew,
    ) -> Result<Option<StepEnd>, StoreError> {
        if !step.path.is_empty() {
            let on_target = |held: &Held| {
                let load = load_of(step, crew, held.task);
                load.is_some_and(PlannedLoad::needs_target)
            };
            let held = crew.live().filter(on_target);
            let agents: BTreeSet<AgentId> = held.map(|held| held.agent).collect();
            let mut agents: Vec<AgentId> = agents.into_iter().collect();
            agents.sort_by_key(|agent| self.team.name(*agent).to_owned());
            for (agent, error) in self.open_directories(&step.path, &agents).await {
                if let Some(end) = self.judge_failure(row, crew, agent, error).await? {
                    return Ok(Some(end));
                }
            }
            if let Some((step, short)) = self.shortage_on(&step.path) {
                let reason = no_room(&step, &short);
                return Ok(Some(StepEnd::Aborted { reason }));
            }
        }
        let mut links = BTreeMap::new();
        let with_load = |held: Held| Some((held, load_of(step, crew, held.task)?));
        let links_wanted = crew.live().filter(|held| held.peer.is_some());
        let listening: Vec<(Held, &PlannedLoad)> = links_wanted.filter_map(with_load).collect();
        let opened = listening
            .into_iter()
            .map(|(held, load)| self.listen(load, held));
        let opened = join_all(opened).await;
        for (held, answer) in opened {
            match answer {
                Ok(link) => {
                    links.insert(held.task, link);
                }
                Err(error) => {
                    let receiver = held.peer.unwrap_or(held.agent);
                    if let Some(end) = self.judge_failure(row, crew, receiver, error).await? {
                        return Ok(Some(end));
                    }
                }
            }
        }
        self.prepare_tasks(step, row, crew, &links).await
    }

    async fn prepare_tasks(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        crew: &mut Crew,
        links: &BTreeMap<TaskId, Link>,
    ) -> Result<Option<StepEnd>, StoreError> {
        let mut preparing: FuturesUnordered<_> = crew
            .live()
            .filter_map(|held| {
                let task = step.tasks.get(crew.index(held.task)?)?;
                let load = step.load(task)?;
                let link = links.get(&held.task).cloned().unwrap_or_default();
                let prepare = Prepare {
                    task: held.task,
                    run: self.row.id,
                    step: row.id,
                    on_stall: self.plan.on_stall,
                    run_uid: self.row.uid.clone(),
                    workload: load.workload.clone(),
                    mode: load.mode.clone(),
                    params_json: serde_json::Value::Object(load.params.clone()).to_string(),
                    path: match load.needs_target() {
                        true => step.path.clone(),
                        false => String::new(),
                    },
                    cell: step.directory(task.load, row.attempt),
                    task_index: task.index,
                    tasks: load.tasks,
                    cache: step.cache.as_str().to_owned(),
                    peer_address: link.address,
                    token: link.token,
                    lease_us: micros(self.plan.lease),
                };
                Some(self.prepare_one(row, held, prepare))
            })
            .collect();
        while let Some((held, answer)) = preparing.next().await {
            if let Err(error) = answer
                && let Some(end) = self.judge_failure(row, crew, held.agent, error).await?
            {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    async fn prepare_one(
        &self,
        row: &StepRow,
        held: Held,
        prepare: Prepare,
    ) -> (Held, Result<Answer, CallError>) {
        let (progress, mut told) = watch::channel(Progress::default());
        let call =
            Call::to(held.agent, Command::Prepare(prepare), self.loss_after()).telling(progress);
        let call = self.fleet.call(call);
        tokio::pin!(call);
        loop {
            tokio::select! {
                answer = &mut call => return (held, answer),
                Ok(()) = told.changed() => {
                    let progress = told.borrow_and_update().clone();
                    self.board.change_step(row.id, |view| {
                        view.progress.insert(held.task, progress);
                    });
                }
            }
        }
    }

    /// A lost agent is a matter of the policy; a refusal ends the step, and the run where a target hangs.
    async fn judge_failure(
        &self,
        row: &StepRow,
        crew: &mut Crew,
        agent: AgentId,
        error: CallError,
    ) -> Result<Option<StepEnd>, StoreError> {
        if error.refusal() == Some(RefusalKind::Stalled) {
            let reason = error.to_string();
            self.mark_stalled();
            self.abort(&reason).await?;
            return Ok(Some(StepEnd::Aborted { reason }));
        }
        if !error.is_lost() {
            return Ok(Some(StepEnd::Failed {
                reason: error.to_string(),
            }));
        }
        let verdict = self.lose(row.id, crew, agent, &error.to_string()).await?;
        Ok(match verdict {
            Verdict::GoOn => None,
            Verdict::Abort { reason } => Some(StepEnd::Aborted { reason }),
        })
    }

    /// Opens the receiving end of a link for its sender alone.
    async fn listen(&self, load: &PlannedLoad, held: Held) -> (Held, Result<Link, CallError>) {
        let (Some(peer), Some(sender)) = (
            held.peer.and_then(|peer| self.fleet.member(peer)),
            self.fleet.member(held.agent),
        ) else {
            let agent = held.peer.unwrap_or(held.agent);
            return (held, Err(CallError::Unknown { agent }));
        };
        let token = uuid::Uuid::new_v4().simple().to_string();
        let command = Command::Listen(Listen {
            task: held.task,
            workload: load.workload.clone(),
            mode: load.mode.clone(),
            params_json: serde_json::Value::Object(load.params.clone()).to_string(),
            from_address: expected_peer(&sender, &peer),
            token: token.clone(),
        });
        let within = LISTEN_WITHIN.max(self.loss_after() * 2);
        let call = Call::to(peer.id, command, self.loss_after()).within(within);
        let link = match self.fleet.call(call).await {
            Ok(Answer::Listening { port }) => Ok(Link {
                address: with_port(&peer.address, port),
                token,
            }),
            Ok(_) => Err(CallError::Mismatched {
                agent: peer.hello.name,
            }),
            Err(error) => Err(error),
        };
        (held, link)
    }
}

/// What a task of the step does.
fn load_of<'s>(step: &'s PlannedStep, crew: &Crew, task: TaskId) -> Option<&'s PlannedLoad> {
    step.load(step.tasks.get(crew.index(task)?)?)
}

/// Where a sender finds its receiver, and what it presents there.
#[derive(Clone, Debug, Default)]
struct Link {
    address: String,
    token: String,
}

/// The address that the receiver may expect; empty where the collector cannot know it: a loopback address says nothing
/// to another host, and a name is no address.
fn expected_peer(sender: &MemberFacts, receiver: &MemberFacts) -> String {
    match sender.address.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_loopback() && sender.hello.boot_id != receiver.hello.boot_id => {
            String::new()
        }
        Ok(_) => sender.address.clone(),
        Err(_) => String::new(),
    }
}

fn with_port(address: &str, port: u16) -> String {
    if address.contains(':') && !address.starts_with('[') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_takes_its_port() {
        assert_eq!(with_port("10.0.0.1", 5), "10.0.0.1:5");
        assert_eq!(with_port("fe80::1", 5), "[fe80::1]:5");
        assert_eq!(with_port("node-3", 5), "node-3:5");
    }
}
