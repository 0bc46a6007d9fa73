//! Cleans up agents that attach again: stops tasks of steps and runs that are over, and removes their data.
//!
//! The measurements of a lost agent are kept: its rows arrive with its spool and count up to the end of its load. The
//! cleanup skips tasks that the current run still needs, or needs again meanwhile. The database
//! records which steps are over, so the cleanup also works after a restart of the collector. An agent that does not
//! answer is asked again when it next attaches.
//!
//! A stop does not wait for the database. Any attached task that the step under way does not know is over, because only
//! one step can be under way.

use super::{
    effect::{Ask, Effect, Lookup, Output, Show, Within},
    event::{CellData, Completion, Event, OrphanTask, Orphans, Token},
    members::{Members, Presence},
    removal::STALLED,
    run::Tokens,
    stop::STOP_TIMEOUT,
};
use crate::sessions::command::{AgentAnswer, CallError, Command};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, RunId, TaskId, TaskState};
use benchmesh_store::{
    DirectoryLeft,
    rows::{NewEvent, Row},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// A stopped task that has not ended by then has a hung operation.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// An agent that is lost during the cleanup is asked again when it attaches.
const LOSS_AFTER: Duration = Duration::from_secs(5);
/// Reason given to the agent for stopping a task of an ended step.
const GONE_ON: &str = "the step has gone on without this agent";

/// The open request to one agent.
#[derive(Clone, Debug)]
enum CleanupRequest {
    Looking,
    Stopping(OrphanTask),
    AwaitingEnd(OrphanTask),
    Forgetting(OrphanTask),
    RemovingCell(OrphanTask),
    RemovingDirectory(DirectoryLeft),
}

impl CleanupRequest {
    /// The task that it is about.
    fn task(&self) -> Option<TaskId> {
        match self {
            Self::Stopping(orphan)
            | Self::AwaitingEnd(orphan)
            | Self::Forgetting(orphan)
            | Self::RemovingCell(orphan) => Some(orphan.task.id),
            Self::Looking | Self::RemovingDirectory(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
struct AgentCleanup {
    name: String,
    token: Token,
    request: CleanupRequest,
    tasks: VecDeque<OrphanTask>,
    directories: VecDeque<DirectoryLeft>,
}

/// The agents that are being cleaned up.
#[derive(Debug)]
pub(super) struct OrphanCleanup {
    tokens: Tokens,
    /// The session in which each agent was cleaned up.
    seen: BTreeMap<AgentId, u64>,
    /// The session in which each agent was asked to stop tasks that are over.
    stopped: BTreeMap<AgentId, u64>,
    cleanups: BTreeMap<AgentId, AgentCleanup>,
    /// Agents that could not remove a directory: a mount may be dead. They are asked again after the next run.
    failed: BTreeSet<AgentId>,
    /// The run under way, which uses the directories that its earlier end left behind.
    excluded_run: Option<RunId>,
}

impl OrphanCleanup {
    pub fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            seen: BTreeMap::new(),
            stopped: BTreeMap::new(),
            cleanups: BTreeMap::new(),
            failed: BTreeSet::new(),
            excluded_run: None,
        }
    }

    /// Excludes directories of the run under way from removal.
    pub fn exclude_directories_of(&mut self, run: Option<RunId>) {
        self.excluded_run = run;
        for cleanup in self.cleanups.values_mut() {
            cleanup.directories.retain(|left| Some(left.run) != run);
        }
    }

    /// Whether an agent is removing a directory that this run left behind.
    pub fn is_removing(&self, run: RunId) -> bool {
        let mut cleanups = self.cleanups.values();
        cleanups.any(|cleanup| {
            matches!(&cleanup.request, CleanupRequest::RemovingDirectory(left) if left.run == run)
        })
    }

    /// The tokens that the cleanup waits for.
    pub fn waits_for(&self) -> impl Iterator<Item = Token> + '_ {
        self.cleanups.values().map(|cleanup| cleanup.token)
    }

    /// Begins to clean up every agent with a new session.
    pub fn on_agents(&mut self, members: &Members, out: &mut Output) {
        for member in members.all().filter(|member| member.attached) {
            if self.seen.insert(member.id, member.session) != Some(member.session) {
                self.lookup(member, out);
            }
        }
    }

    /// The agents to clean up again after a run: those lost during the removal of its directories, which attached
    /// before the run ended, as what they left behind was recorded only at its end; and those that failed to remove a
    /// directory of an earlier run. Those that failed in this run have their turn after the next one.
    pub fn after_run(&mut self, lost: Vec<AgentId>, failed: Vec<AgentId>) -> Vec<AgentId> {
        let earlier = std::mem::replace(&mut self.failed, failed.into_iter().collect());
        lost.into_iter().chain(earlier).collect()
    }

    /// Cleans up these agents again, as far as they are attached.
    pub fn clean_again(&mut self, agents: &[AgentId], members: &Members, out: &mut Output) {
        let attached = members.all().filter(|member| member.attached);
        for member in attached.filter(|member| agents.contains(&member.id)) {
            self.lookup(member, out);
        }
    }

    /// Stops every attached task that does not belong to the step under way. The answer is not awaited: the cleanup
    /// stops the task again, and awaits its end.
    pub fn stop_orphans(
        &mut self,
        members: &Members,
        is_under_way: impl Fn(TaskId) -> bool,
        out: &mut Output,
    ) {
        for member in members.all().filter(|member| member.attached) {
            if self.stopped.insert(member.id, member.session) == Some(member.session) {
                continue;
            }
            let held = member.held_tasks.iter().copied();
            for task in held.filter(|task| !is_under_way(*task)) {
                out.at_once.push(Effect::Ask(Box::new(Ask {
                    token: self.tokens.next(),
                    agent: member.id,
                    run: None,
                    command: Command::StopTask {
                        task,
                        reason: String::from(GONE_ON),
                    },
                    loss_after: LOSS_AFTER,
                    within: Within::For(STOP_TIMEOUT),
                    silence: None,
                })));
            }
        }
    }

    fn lookup(&mut self, member: &Presence, out: &mut Output) {
        let token = self.tokens.next();
        let before = self.cleanups.insert(
            member.id,
            AgentCleanup {
                name: member.name.clone(),
                token,
                request: CleanupRequest::Looking,
                tasks: VecDeque::new(),
                directories: VecDeque::new(),
            },
        );
        if let Some(before) = before {
            out.at_once.push(Effect::Cancel(before.token));
        }
        let lookup = Lookup::Orphans {
            agent: member.id,
            held: member.held_tasks.clone(),
        };
        out.then.push(Effect::Lookup { token, lookup });
    }

    /// Returns whether the event belongs to the cleanup. Tasks that the step under way needs are no longer cleaned up.
    pub fn handle(
        &mut self,
        event: &Event,
        is_needed: impl Fn(TaskId) -> bool,
        now: MeshMicros,
        out: &mut Output,
    ) -> bool {
        let token = match event {
            Event::Answered { token, .. } | Event::Completed { token, .. } => *token,
            // Progress of these removals is not shown.
            Event::Progressed { token, .. } => {
                return self.waits_for().any(|known| known == *token);
            }
            _ => return false,
        };
        let mut cleanups = self.cleanups.iter();
        let Some(agent) = cleanups.find(|(_, cleanup)| cleanup.token == token) else {
            return false;
        };
        let agent = *agent.0;
        let Some(mut cleanup) = self.cleanups.remove(&agent) else {
            return false;
        };
        cleanup.tasks.retain(|orphan| !is_needed(orphan.task.id));
        if cleanup.request.task().is_some_and(&is_needed) {
            self.next(agent, cleanup, out);
            return true;
        }
        match event {
            Event::Completed {
                completion: Completion::Orphans(Orphans { tasks, directories }),
                ..
            } => {
                let tasks = tasks.iter().filter(|orphan| !is_needed(orphan.task.id));
                cleanup.tasks = tasks.cloned().collect();
                // The rows may have been read before the run was resumed.
                let left = directories
                    .iter()
                    .filter(|left| self.excluded_run != Some(left.run));
                cleanup.directories = left.cloned().collect();
                self.next(agent, cleanup, out);
            }
            Event::Answered { answer, .. } => self.answered(agent, cleanup, answer, now, out),
            _ => {}
        }
        true
    }

    /// Handles the next item that the agent holds.
    fn next(&mut self, agent: AgentId, mut cleanup: AgentCleanup, out: &mut Output) {
        if let Some(orphan) = cleanup.tasks.pop_front() {
            let command = Command::StopTask {
                task: orphan.task.id,
                reason: String::from(GONE_ON),
            };
            self.ask(
                agent,
                cleanup,
                CleanupRequest::Stopping(orphan),
                command,
                out,
            );
        } else if let Some(left) = cleanup.directories.pop_front() {
            let command = Command::RemoveRunDirectory {
                run_uid: left.run_uid.clone(),
                path: left.path.clone(),
            };
            self.ask(
                agent,
                cleanup,
                CleanupRequest::RemovingDirectory(left),
                command,
                out,
            );
        }
    }

    fn ask(
        &mut self,
        agent: AgentId,
        mut cleanup: AgentCleanup,
        request: CleanupRequest,
        command: Command,
        out: &mut Output,
    ) {
        let token = self.tokens.next();
        let removes = matches!(
            request,
            CleanupRequest::RemovingCell(_) | CleanupRequest::RemovingDirectory(_)
        );
        out.then.push(Effect::Ask(Box::new(Ask {
            token,
            agent,
            run: None,
            command,
            loss_after: LOSS_AFTER,
            within: match removes {
                true => Within::Contact,
                false => Within::For(END_TIMEOUT),
            },
            silence: removes.then_some(STALLED),
        })));
        cleanup.token = token;
        cleanup.request = request;
        self.cleanups.insert(agent, cleanup);
    }

    fn answered(
        &mut self,
        agent: AgentId,
        cleanup: AgentCleanup,
        answer: &Result<AgentAnswer, CallError>,
        now: MeshMicros,
        out: &mut Output,
    ) {
        match (cleanup.request.clone(), answer) {
            (CleanupRequest::Stopping(orphan), Ok(_)) => {
                let command = Command::AwaitEnd {
                    task: orphan.task.id,
                };
                self.ask(
                    agent,
                    cleanup,
                    CleanupRequest::AwaitingEnd(orphan),
                    command,
                    out,
                );
            }
            // A task that was never armed has no end.
            (CleanupRequest::AwaitingEnd(orphan), Ok(_) | Err(CallError::Refused { .. })) => {
                let command = Command::ForgetTask {
                    task: orphan.task.id,
                };
                self.ask(
                    agent,
                    cleanup,
                    CleanupRequest::Forgetting(orphan),
                    command,
                    out,
                );
            }
            (CleanupRequest::Forgetting(orphan), Ok(_)) => match orphan.data.clone() {
                Some(data) => {
                    let CellData {
                        run_uid,
                        path,
                        cell,
                        task_index,
                    } = data;
                    let command = Command::RemoveCell {
                        run_uid,
                        path,
                        cell,
                        task_index,
                    };
                    self.ask(
                        agent,
                        cleanup,
                        CleanupRequest::RemovingCell(orphan),
                        command,
                        out,
                    );
                }
                None => self.task_is_gone(agent, cleanup, &orphan, now, out),
            },
            // If its data stay, they are removed with the run's directory.
            (CleanupRequest::RemovingCell(orphan), _) => {
                self.task_is_gone(agent, cleanup, &orphan, now, out);
            }
            (CleanupRequest::RemovingDirectory(left), Ok(_)) => {
                let message = format!(
                    "agent `{}` has removed the run's directory {}/benchmesh-{}, which was left at the run's end",
                    cleanup.name, left.path, left.run_uid
                );
                let detail =
                    serde_json::json!({ "run_uid": left.run_uid, "path": left.path }).to_string();
                record_event(
                    out,
                    NewEvent {
                        run: Some(left.run),
                        agent: Some(agent),
                        detail_json: Some(detail),
                        ..NewEvent::new(now, EventKind::DirectoryRemoved, message)
                    },
                );
                self.next(agent, cleanup, out);
            }
            // It hangs or refuses: it is asked again after the next run, and when it next attaches.
            (request, Err(error)) if !error.is_lost() => {
                if matches!(request, CleanupRequest::RemovingDirectory(_)) {
                    self.failed.insert(agent);
                }
                self.next(agent, cleanup, out);
            }
            // The agent is lost: it is cleaned up when it attaches again.
            _ => {}
        }
    }

    fn task_is_gone(
        &mut self,
        agent: AgentId,
        cleanup: AgentCleanup,
        orphan: &OrphanTask,
        now: MeshMicros,
        out: &mut Output,
    ) {
        // An ended task only has to be forgotten.
        if orphan.task.state == TaskState::Lost {
            let message = format!(
                "agent `{}` is back and still ran its task of step {}: the task is stopped, and its measurements until \
                 then are kept",
                cleanup.name, orphan.ordinal
            );
            record_event(
                out,
                NewEvent {
                    run: Some(orphan.run),
                    step: Some(orphan.task.step),
                    agent: Some(agent),
                    ..NewEvent::new(now, EventKind::AgentTidied, message)
                },
            );
        }
        self.next(agent, cleanup, out);
    }
}

/// Stores an event of a run, and shows its message to watchers.
fn record_event(out: &mut Output, event: NewEvent) {
    let show = Show::Message(event.message.clone());
    let run = event.run;
    out.rows.push(Row::Event(event));
    out.then.extend(run.map(|run| Effect::Show { run, show }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_failed_to_remove_is_asked_again_after_the_next_run() {
        let mut leftovers = OrphanCleanup::new(Tokens::from(0));
        let [lost, failed] = [AgentId(1), AgentId(2)];
        assert_eq!(leftovers.after_run(vec![lost], vec![failed]), [lost]);
        assert_eq!(leftovers.after_run(Vec::new(), Vec::new()), [failed]);
        assert_eq!(leftovers.after_run(Vec::new(), Vec::new()), []);
    }
}
