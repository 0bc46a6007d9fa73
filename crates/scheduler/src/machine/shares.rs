//! The known directories of the run on each file system. Equal nonces mean one shared file system.

use crate::sessions::command::RunDirectory;
use benchmesh_model::mesh::AgentId;
use benchmesh_store::rows::RunDirectoryRow;
use std::collections::BTreeSet;

/// One file system as shared by this run's agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub path: String,
    nonce: String,
    /// The agent that removes the directory.
    pub owner: AgentId,
    pub members: BTreeSet<AgentId>,
    /// The smallest value that a member reported.
    pub free_bytes: u64,
}

/// An agent that was asked to make a directory and has not answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unanswered {
    pub path: String,
    pub agent: AgentId,
}

/// The known directories of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Directories {
    shares: Vec<Share>,
    unanswered: BTreeSet<Unanswered>,
}

impl Directories {
    pub fn of_rows(rows: &[RunDirectoryRow]) -> Self {
        let mut known = Self::default();
        for row in rows {
            match &row.nonce {
                Some(nonce) => known.add(
                    &row.path,
                    row.agent,
                    &RunDirectory {
                        found: true,
                        made: row.made,
                        nonce: nonce.clone(),
                        free_bytes: row.free_bytes,
                    },
                ),
                None => known.asked(&row.path, row.agent),
            }
        }
        known
    }

    pub fn has(&self, path: &str, agent: AgentId) -> bool {
        let mut shares = self.on(path);
        shares.any(|share| share.members.contains(&agent))
    }

    pub fn on<'s>(&'s self, path: &'s str) -> impl Iterator<Item = &'s Share> {
        self.shares.iter().filter(move |share| share.path == path)
    }

    pub fn asked(&mut self, path: &str, agent: AgentId) {
        self.unanswered.insert(Unanswered {
            path: path.to_owned(),
            agent,
        });
    }

    pub fn answered(&mut self, path: &str, agent: AgentId) {
        self.unanswered
            .retain(|asked| asked.agent != agent || asked.path != path);
    }

    /// Adds the directory that an agent found or made.
    pub fn add(&mut self, path: &str, agent: AgentId, directory: &RunDirectory) {
        self.answered(path, agent);
        let mut shares = self.shares.iter_mut();
        match shares.find(|share| share.path == path && share.nonce == directory.nonce) {
            Some(share) => {
                share.members.insert(agent);
                share.free_bytes = share.free_bytes.min(directory.free_bytes);
                if directory.made {
                    share.owner = agent;
                }
            }
            None => self.shares.push(Share {
                path: path.to_owned(),
                nonce: directory.nonce.clone(),
                owner: agent,
                members: BTreeSet::from([agent]),
                free_bytes: directory.free_bytes,
            }),
        }
    }

    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    pub fn unanswered(&self) -> impl Iterator<Item = &Unanswered> {
        self.unanswered.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.shares.is_empty() && self.unanswered.is_empty()
    }

    /// Forgets all directories, after their removal.
    pub fn clear(&mut self) {
        self.shares.clear();
        self.unanswered.clear();
    }
}
