//! The run's directory on each file system: who made it, and who shares it.
//!
//! The first agent by name makes it, the others look first; who finds none makes its own. Equal nonces are one shared
//! file system, so the real sum of what its clients lay out is known here, before anything is laid out.

use super::drive::Drive;
use crate::{
    model::{AgentId, StepState},
    plan::{PlannedStep, Shortage, shortage},
    report::figures::bytes,
    sessions::{
        Call,
        command::{Answer, CallError, Command, Make, RunDirectory},
    },
    store::{StoreError, rows::StepRow},
};
use futures::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

/// Making or finding one directory takes no longer on a file system that works.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// One file system, as far as this run's agents share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    nonce: String,
    /// Who removes the directory.
    pub owner: AgentId,
    pub members: BTreeSet<AgentId>,
    /// The least that a member saw.
    free_bytes: u64,
}

/// Target path -> its file systems.
#[derive(Debug, Default)]
pub(super) struct Directories(Mutex<BTreeMap<String, Vec<Share>>>);

impl Directories {
    fn sites(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Share>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has(&self, path: &str, agent: AgentId) -> bool {
        self.sites()
            .get(path)
            .is_some_and(|shares| shares.iter().any(|share| share.members.contains(&agent)))
    }

    /// Takes up what an agent found or made.
    fn add(&self, path: &str, agent: AgentId, directory: &RunDirectory) {
        let mut sites = self.sites();
        let shares = sites.entry(path.to_owned()).or_default();
        match shares
            .iter_mut()
            .find(|share| share.nonce == directory.nonce)
        {
            Some(share) => {
                share.members.insert(agent);
                share.free_bytes = share.free_bytes.min(directory.free_bytes);
                if directory.made {
                    share.owner = agent;
                }
            }
            None => shares.push(Share {
                nonce: directory.nonce.clone(),
                owner: agent,
                members: BTreeSet::from([agent]),
                free_bytes: directory.free_bytes,
            }),
        }
    }

    /// Nothing is there any more.
    pub fn forget(&self) {
        self.sites().clear();
    }

    pub fn all(&self) -> Vec<(String, Share)> {
        self.sites()
            .iter()
            .flat_map(|(path, shares)| shares.iter().map(|share| (path.clone(), share.clone())))
            .collect()
    }
}

impl Drive {
    /// Opens the run's directory on a step's target for `agents` (by name). Who could not, and why.
    pub(super) async fn open_directories(
        &self,
        path: &str,
        agents: &[AgentId],
    ) -> Vec<(AgentId, CallError)> {
        let wanted: Vec<AgentId> = agents
            .iter()
            .copied()
            .filter(|agent| !self.directories.has(path, *agent))
            .collect();
        let mut failures = Vec::new();
        let mut rest = wanted.as_slice();
        // Until someone has a directory, there is nothing to look for.
        while !self.directories.sites().contains_key(path) {
            let [first, others @ ..] = rest else {
                return failures;
            };
            rest = others;
            failures.extend(self.open_on(path, &[*first], Make::IfMissing).await);
        }
        failures.extend(self.open_on(path, rest, Make::Never).await);
        let missing: Vec<AgentId> = rest
            .iter()
            .copied()
            .filter(|agent| !self.directories.has(path, *agent))
            .filter(|agent| !failures.iter().any(|(failed, _)| failed == agent))
            .collect();
        failures.extend(self.open_on(path, &missing, Make::IfMissing).await);
        failures
    }

    async fn open_on(
        &self,
        path: &str,
        agents: &[AgentId],
        make: Make,
    ) -> Vec<(AgentId, CallError)> {
        let opened = agents.iter().map(|agent| async move {
            let command = Command::OpenRunDirectory {
                run_uid: self.row.uid.clone(),
                path: path.to_owned(),
                make,
            };
            let within = OPEN_WITHIN.max(self.loss_after() * 2);
            let call = Call::to(*agent, command, self.loss_after()).within(within);
            (*agent, self.fleet.call(call).await)
        });
        let mut failures = Vec::new();
        for (agent, answer) in join_all(opened).await {
            match answer {
                Ok(Answer::RunDirectory(directory)) if directory.found || directory.made => {
                    self.directories.add(path, agent, &directory);
                }
                Ok(Answer::RunDirectory(_)) => {}
                Ok(_) => failures.push((
                    agent,
                    CallError::Mismatched {
                        agent: self.team.name(agent).to_owned(),
                    },
                )),
                Err(error) => failures.push((agent, error)),
            }
        }
        failures
    }

    /// After a start of the collector: finds the directories that earlier steps made, once. Nothing is made.
    pub(super) async fn find_directories(&self, rows: &[StepRow]) -> Result<(), StoreError> {
        if self.found.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut sites: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (step, row) in self.steps.iter().zip(rows) {
            if row.state != StepState::Planned && !step.path.is_empty() {
                sites.entry(&step.path).or_default().extend(step.agents());
            }
        }
        for (path, names) in sites {
            let agents: Vec<AgentId> = names.iter().filter_map(|name| self.team.id(name)).collect();
            // Who is lost is found out by the step that needs it.
            self.open_on(path, &agents, Make::Never).await;
        }
        self.found.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether what the steps of this run lay out fits on the file systems as they are really shared.
    pub(super) fn shortage_on(&self, path: &str) -> Option<(PlannedStep, Shortage)> {
        let sites = self.directories.sites();
        let shares = sites.get(path)?;
        for step in self.steps.iter().filter(|step| step.path == path) {
            for share in shares {
                let here = step.tasks.iter().filter(|task| {
                    self.team
                        .id(&task.agent)
                        .is_some_and(|id| share.members.contains(&id))
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

/// For people: why a run cannot lay out what it wants to.
pub(super) fn no_room(step: &PlannedStep, short: &Shortage) -> String {
    format!(
        "{} would lay out {} on one file system at {}, where {} are free and {} must stay free; make it smaller, or free some space",
        step.title(),
        bytes(short.needed_bytes),
        step.path,
        bytes(short.free_bytes),
        bytes(short.floor_bytes),
    )
}
