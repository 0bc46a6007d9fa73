//! The stages of a run, and what is kept in each of them.

use crate::sessions::command::CallError;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, StepId};
use benchmesh_store::rows::NewCacheDrop;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How far the run is. Each stage ends when nothing is waited for that belongs to it.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Its environment is being read, then its steps are made.
    Beginning,
    /// No step is under way.
    Between,
    /// After a loop in which nothing was measured.
    PausingLoops,
    /// The steps of the next loop are being planned, then made.
    PlanningLoop,
    /// What the probes of a search measured is being read, then the next one is made.
    Searching,
    /// The speeds of its agents' links are being read.
    LinkSpeeds,
    MakingTasks,
    Opening(OpenPass),
    Listening,
    Preparing,
    Settling,
    SettlingUntilIdle(Idle),
    DroppingCaches(Dropping),
    /// That it is armed is being stored, then the clocks of its agents are read.
    ReadingClocks,
    Arming(Arming),
    /// After a start of the collector: whether any agent still has the running step's tasks.
    FindingTaskHolders,
    Running,
    Closing(Goal),
    StoringRows(Goal),
    ReadingTasks(Goal),
    /// The stored tasks are here.
    Closed(Goal),
    Cleaning(StepEnd),
    Finishing(StepEnd),
    /// The rest of a failed cell goes.
    CleaningFailed,
    /// A cell's next attempt is being made.
    RepeatingCell,
    Removing(Removal),
    Over,
}

/// How far the agents of a step have come with its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenPass {
    /// One agent after the other, until one has a directory.
    First,
    /// The others look for it.
    Find,
    /// Agents that found none make one.
    Make,
}

/// A rest until the storage is idle.
#[derive(Clone, Debug)]
pub(super) struct Idle {
    pub percent: f64,
    pub limit: Duration,
    pub began: MeshMicros,
    pub hosts: BTreeMap<HostId, String>,
}

/// The kernels that drop their caches.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropping {
    pub kernels: Vec<Kernel>,
    pub daemons: Option<Vec<(HostId, Vec<String>)>>,
}

/// One kernel and its agents, those that carry load first.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub agents: Vec<AgentId>,
    /// How many of them were asked.
    pub asked: usize,
    /// The first agent's answer, until one has dropped everything.
    pub drops: Option<Vec<NewCacheDrop>>,
}

/// The confirmations of a step's tasks so far.
#[derive(Clone, Debug)]
pub(super) struct Arming {
    pub chosen: MeshMicros,
    pub start: MeshMicros,
    /// The least that was left when an agent had it.
    pub margin: Option<Duration>,
    /// Why the step is not armed.
    pub late: Option<String>,
    /// Agents that were asked and have not confirmed.
    pub unconfirmed: BTreeSet<AgentId>,
}

/// Why a step's tasks are stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// All of them have ended by themselves.
    Conclude,
    /// The load has not ended in time: tasks that still run are lost.
    CutOff,
    /// It could not be armed in time.
    Retry { reason: String },
    /// Its cell has to be repeated as its next attempt.
    Again { reason: String },
    /// It cannot go on, the run can.
    Fail { reason: String },
    /// The policy ends the run.
    Abort { reason: String },
    /// A stop was requested.
    Stop,
}

/// What happens after the end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    /// The next step.
    Done,
    /// The rest of its cell is not measured.
    Failed { reason: String },
    /// The run ends.
    Abort { reason: String },
    /// The run ends on request; `whole`: all of the step was done.
    Stop { whole: bool },
}

/// The directories that are being removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Removal {
    pub entries: Vec<DirectoryToRemove>,
    /// A step that was stopped ends after it.
    pub step: Option<StepId>,
}

/// One directory on one file system.
#[derive(Clone, Debug)]
pub(super) struct DirectoryToRemove {
    pub path: String,
    /// The agents that may remove it, the owner first.
    pub removers: Vec<AgentId>,
    pub asked: usize,
    pub existence: Existence,
    pub problem: Option<CallError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    Confirmed,
    /// Its agent was asked to make it and has not answered.
    Possible,
}
