//! The run's directory on each file system: which agent may have made it, and which agents share it.
//!
//! The first agent by name makes the directory. The others look for it first, and make their own if they find none.
//! Equal nonces mean one shared file system, so the space that its clients need together is known before any data are
//! laid out. The request to make a directory is stored before it is sent, because the directory may exist from then on.

use super::{
    effect::Within,
    next::Next,
    run::Run,
    stage::{OpenPass, Stage},
    tasks::TaskHandle,
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command, Make, RefusalKind, RunDirectory};
use benchmesh_model::mesh::{AgentId, RunId};
use benchmesh_plan::{PlannedLoad, PlannedStep, Shortage, shortage};
use benchmesh_store::rows::{Row, RunDirectoryRow};
use benchmesh_workloads::figures::bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// On a healthy file system, making or finding one directory takes less than this.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

impl Run {
    /// Opens the run's directory on the step's target for each of its agents.
    pub(super) fn open_directories(&mut self) -> Option<Next> {
        let Some(path) = self.active_plan().map(|step| step.path.clone()) else {
            return Some(Next::FindStep);
        };
        let wanted = self.without_directory(&path);
        let Some(first) = wanted.first() else {
            return self.directories_are_open(&path);
        };
        if self.directories.on(&path).next().is_none() {
            self.open(*first, &path, Make::IfMissing);
            self.stage = Stage::Opening(OpenPass::First);
            return None;
        }
        for agent in &wanted {
            self.open(*agent, &path, Make::Never);
        }
        self.stage = Stage::Opening(OpenPass::Find);
        None
    }

    pub(super) fn opened(&mut self, pass: OpenPass) -> Option<Next> {
        let Some(path) = self.active_plan().map(|step| step.path.clone()) else {
            return Some(Next::FindStep);
        };
        match pass {
            OpenPass::First => self.open_directories(),
            OpenPass::Find => {
                for agent in self.without_directory(&path) {
                    self.open(agent, &path, Make::IfMissing);
                }
                self.stage = Stage::Opening(OpenPass::Make);
                None
            }
            OpenPass::Make => self.directories_are_open(&path),
        }
    }

    fn directories_are_open(&mut self, path: &str) -> Option<Next> {
        if let Some((step, short)) = self.shortage_on(path) {
            self.abort(no_room(&step, &short));
            return None;
        }
        Some(Next::Listen)
    }

    /// The step's agents, by name, that need the target and have no directory on it.
    fn without_directory(&self, path: &str) -> Vec<AgentId> {
        let needs_target =
            |task: &TaskHandle| self.load_of(*task).is_some_and(PlannedLoad::needs_target);
        let live = self.live();
        let agents: BTreeSet<(&str, AgentId)> = live
            .iter()
            .filter(|task| !path.is_empty() && needs_target(task))
            .map(|task| (self.agents.name(task.agent), task.agent))
            .collect();
        let mut agents: Vec<AgentId> = agents.into_iter().map(|(_, agent)| agent).collect();
        agents.retain(|agent| !self.directories.has(path, *agent));
        agents
    }

    fn open(&mut self, agent: AgentId, path: &str, make: Make) {
        if make == Make::IfMissing {
            self.directories.asked(path, agent);
            self.out.rows.push(Row::Directory(RunDirectoryRow {
                run: self.row.id,
                agent,
                path: path.to_owned(),
                nonce: None,
                made: false,
                free_bytes: 0,
            }));
        }
        let command = Command::OpenRunDirectory {
            run_uid: self.row.uid.clone(),
            path: path.to_owned(),
            make,
        };
        let waiting = Waiting::Opened {
            agent,
            path: path.to_owned(),
            make,
        };
        let within = Within::For(OPEN_TIMEOUT.max(self.policy.loss_after * 2));
        self.ask(waiting, agent, command, within);
    }

    /// An agent found or made a directory. After a stop it is only recorded, for its removal.
    pub(super) fn on_opened(
        &mut self,
        agent: AgentId,
        path: &str,
        make: Make,
        answer: Result<AgentAnswer, CallError>,
    ) {
        let going_on = matches!(self.stage, Stage::Opening(_));
        let error = match answer {
            Ok(AgentAnswer::RunDirectory(directory)) if directory.found || directory.made => {
                self.directories.add(path, agent, &directory);
                self.out
                    .rows
                    .push(directory_row(self.row.id, agent, path, &directory));
                return;
            }
            Ok(AgentAnswer::RunDirectory(_)) if make == Make::Never => return,
            Ok(_) => CallError::Mismatched {
                agent: self.agents.name(agent).to_owned(),
            },
            Err(error) if forbids(&error) => {
                if make == Make::IfMissing {
                    self.directories.answered(path, agent);
                    self.out.rows.push(Row::NoDirectory {
                        run: self.row.id,
                        agent,
                        path: path.to_owned(),
                    });
                }
                error
            }
            Err(error) => error,
        };
        if !going_on {
            return;
        }
        match &error {
            // The session lives: the target does not answer.
            CallError::Deadline { .. } => self.lose_target(agent, &error.to_string()),
            other => self.handle_failure(agent, other),
        }
    }

    /// Whether the data of this run's steps fit on the file systems, given which agents share one.
    fn shortage_on(&self, path: &str) -> Option<(PlannedStep, Shortage)> {
        if path.is_empty() {
            return None;
        }
        let ids: BTreeMap<&str, AgentId> = self
            .agents
            .members()
            .map(|(id, facts)| (facts.name.as_str(), id))
            .collect();
        // Existing data of a kept set need no space, and were checked when the run was made.
        let takes_space = |step: &&PlannedStep| step.path == path && step.kept.is_none();
        for step in self.steps.iter().filter(takes_space) {
            for share in self.directories.on(path) {
                let here = step.tasks.iter().filter(|task| {
                    let id = ids.get(task.agent.as_str());
                    id.is_some_and(|id| share.members.contains(id))
                });
                let needed = here
                    .filter_map(|task| step.load(task))
                    .fold(0_u64, |sum, load| sum.saturating_add(load.footprint.bytes));
                if let Some(short) = shortage(needed, share.free_bytes) {
                    return Some((step.clone(), short));
                }
            }
        }
        None
    }
}

/// Whether the error means that the agent made nothing, because it may not or cannot.
fn forbids(error: &CallError) -> bool {
    matches!(
        error.refusal(),
        Some(RefusalKind::NotAllowed | RefusalKind::Unsupported)
    )
}

pub(crate) fn directory_row(
    run: RunId,
    agent: AgentId,
    path: &str,
    directory: &RunDirectory,
) -> Row {
    Row::Directory(RunDirectoryRow {
        run,
        agent,
        path: path.to_owned(),
        nonce: Some(directory.nonce.clone()),
        made: directory.made,
        free_bytes: directory.free_bytes,
    })
}

/// Message: why the data of a run do not fit.
fn no_room(step: &PlannedStep, short: &Shortage) -> String {
    format!(
        "{} would write {} to one file system at {}, where {} are free and {} must stay free; make the data set \
         smaller, or free some space",
        step.title(),
        bytes(short.needed_bytes),
        step.path,
        bytes(short.free_bytes),
        bytes(short.floor_bytes),
    )
}
