//! Preparation of a step: makes its tasks, opens the receiving ends of links, lays out data.

use super::{
    departures::Returns,
    effect::{Effect, Lookup, Show, Within},
    ended::NOBODY_LEFT,
    members::Presence,
    next::Next,
    run::{ActiveStep, Run, between, micros},
    stage::Stage,
    tasks::{LinkEndpoint, TaskHandle, TaskSet},
    waiting::Waiting,
};
use crate::{
    links::speed_of_link,
    sessions::command::{AgentAnswer, CallError, Command, Listen, Prepare, RefusalKind},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, StepState, TaskId};
use benchmesh_plan::PlannedLoad;
use benchmesh_results::origin::is_networked;
use benchmesh_store::rows::{NewTask, Row};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// On a healthy host, opening a port takes less than this.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
/// A preparation reports progress. After this long without a report it counts as hung. The longest silence of a working
/// one is the sync of all its data. `late` limits the whole preparation.
pub(super) const PREPARE_SILENCE: Duration = Duration::from_secs(30 * 60);

impl Run {
    pub(super) fn begin_step(&mut self, index: usize) {
        let Some(id) = self.facts.get(index).map(|facts| facts.id) else {
            return self.remove_directories(None);
        };
        self.step = Some(ActiveStep {
            index,
            id,
            tasks: TaskSet::default(),
            rows: Vec::new(),
            links: BTreeMap::new(),
            arm_try: 0,
            may_start: BTreeSet::new(),
            stopped_at: Vec::new(),
            confirmed_stops: BTreeSet::new(),
            preparing_since: self.now,
            half_ready: None,
            refusals: None,
            start: None,
            measured: false,
            end_marked: false,
            resumed: false,
            was_over: false,
            replaced: BTreeSet::new(),
            unsupported: false,
            returns: Returns::default(),
            steadiness: None,
        });
        self.stage = Stage::LinkSpeeds;
        let unknown = self.agents_of_unknown_speed();
        if !unknown.is_empty() {
            self.lookup(Waiting::LinkSpeeds, Lookup::LinkSpeeds(unknown));
        }
    }

    /// Agents of the step with a target behind the network and a link speed that was not read yet.
    fn agents_of_unknown_speed(&self) -> Vec<AgentId> {
        let Some(step) = self.active_plan().filter(|step| !step.path.is_empty()) else {
            return Vec::new();
        };
        let ids = step
            .agents()
            .into_iter()
            .filter_map(|name| self.agents.id(name));
        ids.filter(|agent| is_networked(self.agents.file_system(*agent, &step.path)))
            .filter(|agent| !self.link_speeds.contains_key(agent))
            .collect()
    }

    pub(super) fn make_tasks(&mut self) -> Option<Next> {
        let steps = Arc::clone(&self.steps);
        let Some(step) = self.step.as_ref().and_then(|step| steps.get(step.index)) else {
            return Some(Next::FindStep);
        };
        let known = self.known_tasks(step);
        let mut speeds: BTreeMap<AgentId, Option<i64>> = BTreeMap::new();
        let tasks = known.iter().zip(0_u32..);
        let tasks = tasks
            .map(|((agent, peer, load), task_index)| NewTask {
                agent: *agent,
                peer: *peer,
                task_index,
                group: load.group.clone(),
                workers: load.footprint.workers,
                link_bytes_per_s: *speeds
                    .entry(*agent)
                    .or_insert_with(|| self.link_speed_of(*agent, &step.path)),
            })
            .collect();
        let token = self.wait_for(Waiting::TasksMade);
        self.out.made.push(token);
        if let Some(active) = &self.step {
            let step = active.id;
            self.out.rows.push(Row::Tasks { step, tasks });
        }
        self.enter(StepState::Prepare, None);
        self.stage = Stage::MakingTasks;
        None
    }

    /// The limit that the reads of an agent are checked against.
    pub(super) fn link_speed_of(&self, agent: AgentId, path: &str) -> Option<i64> {
        let measured = self.link_speeds.get(&agent).copied().flatten();
        speed_of_link(self.agents.facts_of(agent), path, measured)
    }

    /// Agent, peer and load of each task, in order.
    fn known_tasks<'s>(
        &self,
        step: &'s benchmesh_plan::PlannedStep,
    ) -> Vec<(AgentId, Option<AgentId>, &'s PlannedLoad)> {
        step.tasks
            .iter()
            .filter_map(|task| {
                let peer = task.peer.as_deref().and_then(|peer| self.agents.id(peer));
                Some((self.agents.id(&task.agent)?, peer, step.load(task)?))
            })
            .collect()
    }

    pub(super) fn on_tasks_made(&mut self, ids: &[TaskId]) {
        let steps = Arc::clone(&self.steps);
        let Some(step) = self.step.as_ref().and_then(|step| steps.get(step.index)) else {
            return;
        };
        let known = self.known_tasks(step);
        let handles = ids.iter().zip(known);
        let tasks = TaskSet::new(handles.map(|(task, (agent, peer, _))| TaskHandle {
            task: *task,
            agent,
            peer,
        }));
        if step.tasks.iter().any(|task| task.peer.is_some()) {
            // The link speeds that this step measures count from the next step on.
            self.link_speeds.clear();
        }
        let Some(active) = &mut self.step else { return };
        active.tasks = tasks;
        self.show_step();
        self.lose_barred();
        self.record_returned_agents();
    }

    pub(super) fn show_step(&mut self) {
        let Some(active) = &self.step else { return };
        let show = Show::Step {
            index: active.index,
            id: active.id,
            tasks: active.tasks.ids(),
        };
        self.show(show);
        if let Some(facts) = self.active_facts() {
            let show = Show::State {
                step: facts.id,
                state: facts.state,
                start: facts.start,
            };
            self.show(show);
        }
    }

    /// Records the lost agents that are attached again: they take part from this step on.
    fn record_returned_agents(&mut self) {
        let back: Vec<AgentId> = self
            .known_lost
            .iter()
            .copied()
            .filter(|agent| self.members.is_attached(*agent) && !self.barred.contains_key(agent))
            .collect();
        for agent in back {
            self.known_lost.remove(&agent);
            let message = format!("agent `{}` is back", self.agents.name(agent));
            self.record_event(Some(agent), EventKind::AgentBack, message);
        }
    }

    /// The load of a task of the step.
    pub(super) fn load_of(&self, task: TaskHandle) -> Option<&PlannedLoad> {
        let active = self.step.as_ref()?;
        let step = self.steps.get(active.index)?;
        step.load(step.tasks.get(active.tasks.index(task.task)?)?)
    }

    /// Opens the receiving end of each link for its sender alone.
    pub(super) fn listen(&mut self) {
        self.stage = Stage::Listening;
        let links = self.live().into_iter().filter(|task| task.peer.is_some());
        let count = links.count();
        if count > 0 {
            self.lookup(Waiting::Secrets, Lookup::Secrets(count));
        }
    }

    pub(super) fn on_secrets(&mut self, secrets: Vec<String>) {
        let links = self.live().into_iter().filter(|task| task.peer.is_some());
        for (task, token) in links.collect::<Vec<_>>().into_iter().zip(secrets) {
            self.listen_for(task, token);
        }
    }

    fn listen_for(&mut self, task: TaskHandle, token: String) {
        let (Some(receiver), Some(load)) = (task.peer, self.load_of(task)) else {
            return;
        };
        let members = (self.members.get(task.agent), self.members.get(receiver));
        let (Some(sender), Some(there)) = members else {
            let error = CallError::Unknown { agent: receiver };
            return self.handle_failure(receiver, &error);
        };
        let command = Command::Listen(Listen {
            task: task.task,
            workload: load.workload.clone(),
            mode: load.mode.clone(),
            params_json: serde_json::Value::Object((*load.params).clone()).to_string(),
            from_address: expected_peer(sender, there),
            address: there.address.clone(),
            token: token.clone(),
        });
        let waiting = Waiting::Listening {
            task,
            receiver,
            token,
        };
        let within = Within::For(LISTEN_TIMEOUT.max(self.policy.loss_after * 2));
        self.ask(waiting, receiver, command, within);
    }

    pub(super) fn on_listening(
        &mut self,
        task: TaskHandle,
        receiver: AgentId,
        token: String,
        answer: Result<AgentAnswer, CallError>,
    ) {
        let error = match answer {
            Ok(AgentAnswer::Listening { port }) => {
                let address = self
                    .members
                    .get(receiver)
                    .map(|there| there.address.clone());
                let link = LinkEndpoint {
                    address: with_port(&address.unwrap_or_default(), port),
                    token,
                };
                if let Some(active) = &mut self.step {
                    active.links.insert(task.task, link);
                }
                return;
            }
            Ok(_) => CallError::Mismatched {
                agent: self.agents.name(receiver).to_owned(),
            },
            Err(error) => error,
        };
        self.handle_failure(receiver, &error);
    }

    /// Opens and lays out every task of the step.
    pub(super) fn prepare(&mut self) {
        self.stage = Stage::Preparing;
        if let Some(step) = &mut self.step {
            step.preparing_since = self.now;
            step.half_ready = None;
        }
        self.note_kept_data();
        for task in self.live() {
            if let Some(prepare) = self.prepare_command(task) {
                let waiting = Waiting::Prepared { task };
                let command = Command::Prepare(prepare);
                self.ask_long(waiting, task.agent, command, PREPARE_SILENCE);
            }
        }
        self.watch_preparation();
    }

    pub(super) fn prepare_command(&self, task: TaskHandle) -> Option<Prepare> {
        let active = self.step.as_ref()?;
        let (step, facts) = (self.active_plan()?, self.active_facts()?);
        let planned = step.tasks.get(active.tasks.index(task.task)?)?;
        let load = step.load(planned)?;
        let link = active.links.get(&task.task).cloned().unwrap_or_default();
        Some(Prepare {
            task: task.task,
            run: self.row.id,
            step: active.id,
            on_stall: self.policy.on_stall,
            run_uid: self.row.uid.clone(),
            workload: load.workload.clone(),
            mode: load.mode.clone(),
            params_json: serde_json::Value::Object((*load.params).clone()).to_string(),
            path: match load.needs_target() {
                true => step.path.clone(),
                false => String::new(),
            },
            cell: step.directory(planned.load, facts.attempt),
            kept: step.kept.as_ref().map(|data| (data.name.clone(), data.how)),
            task_index: planned.index,
            tasks: load.tasks,
            cache: step.cache.of_tasks().as_str().to_owned(),
            peer_address: link.address,
            token: link.token,
            lease_us: micros(self.policy.lease),
        })
    }

    pub(super) fn on_prepared(&mut self, task: TaskHandle, answer: Result<AgentAnswer, CallError>) {
        match answer {
            Ok(_) => {
                if let Some(step) = &self.step {
                    let took = between(step.preparing_since, self.now);
                    self.lead.prepared_within(took);
                    if let Some(step) = &mut self.step {
                        step.returns.prepared_within(task.agent, took);
                    }
                }
                self.note_ready();
            }
            Err(error @ CallError::Refused { .. }) => match task.peer {
                Some(receiver) => self.check_receiver(task, receiver, error.to_string()),
                None => self.handle_failure(task.agent, &error),
            },
            Err(error) => self.handle_failure(task.agent, &error),
        }
    }

    /// Handles a sender that cannot reach its receiver. The receiver is asked to forget the link. If it answers, the
    /// link is impossible; if it is lost, `on-loss` decides.
    fn check_receiver(&mut self, task: TaskHandle, receiver: AgentId, refusal: String) {
        let command = Command::ForgetTask { task: task.task };
        let waiting = Waiting::ReceiverThere { task, refusal };
        let within = Within::For(LISTEN_TIMEOUT.max(self.policy.loss_after * 2));
        self.ask_at_once(waiting, receiver, command, within);
    }

    pub(super) fn on_receiver_there(
        &mut self,
        task: TaskHandle,
        refusal: String,
        answer: Result<AgentAnswer, CallError>,
    ) {
        match (answer, task.peer) {
            (Err(error), Some(receiver)) if error.is_lost() => {
                self.lose(receiver, &error.to_string());
            }
            _ => self.refused_link(task, refusal),
        }
    }

    pub(super) fn prepared(&mut self) -> Option<Next> {
        self.cancel(|waiting| matches!(waiting, Waiting::PreparationDue));
        if self.live().is_empty() {
            self.failing = Some(String::from(NOBODY_LEFT));
            return None;
        }
        Some(Next::Settle)
    }

    /// Applies the policy to an agent that is lost, hangs, has lost its target, or cannot prepare its task. A target
    /// that hangs ends the run.
    pub(super) fn handle_failure(&mut self, agent: AgentId, error: &CallError) {
        match error {
            CallError::Refused { kind, .. } => match kind {
                RefusalKind::Stalled => {
                    self.stalled = true;
                    self.abort(error.to_string());
                }
                RefusalKind::TargetLost => self.lose_target(agent, &error.to_string()),
                _ => self.refused(agent, error),
            },
            // On a missed deadline the session lives, but the requested command hangs.
            CallError::Lost { .. } | CallError::Deadline { .. } => {
                self.lose(agent, &error.to_string());
            }
            CallError::Mismatched { .. }
            | CallError::Unknown { .. }
            | CallError::TooLateToAsk { .. } => self.refused(agent, error),
        }
    }

    pub(super) fn show_progress(
        &mut self,
        task: TaskHandle,
        progress: crate::sessions::command::CommandProgress,
    ) {
        let Some(step) = self.step.as_ref().map(|step| step.id) else {
            return;
        };
        let show = Show::Progress {
            step,
            task: task.task,
            progress,
        };
        self.at_once(Effect::Show {
            run: self.row.id,
            show,
        });
    }
}

/// The address from which the receiver may accept a connection. Empty if the collector cannot know it: a loopback
/// address is useless on another host, and a name is not an address.
fn expected_peer(sender: &Presence, receiver: &Presence) -> String {
    match sender.address.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_loopback() && sender.boot_id != receiver.boot_id => String::new(),
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
