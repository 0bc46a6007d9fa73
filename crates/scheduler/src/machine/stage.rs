//! The stages of a run, and the state kept in each.

use crate::sessions::command::CallError;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, StepId};
use benchmesh_store::rows::NewCacheDrop;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The stage of the run. A stage ends when everything that it waits for has arrived.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// The environment is being read, then the steps are made.
    Beginning,
    /// No step is under way.
    Between,
    /// Pausing after a loop that measured nothing.
    PausingLoops,
    /// The steps of the next loop are being planned, then made.
    PlanningLoop,
    /// The measurements of a search's probes are being read, then the next probe is made.
    Searching,
    /// The speeds of the agents' links are being read.
    LinkSpeeds,
    MakingTasks,
    Opening(OpenPass),
    Listening,
    Preparing,
    Settling,
    SettlingUntilIdle(Idle),
    DroppingCaches(Dropping),
    /// The armed state is being stored, then the agents' clocks are read.
    ReadingClocks,
    Arming(Arming),
    /// After a restart of the collector: finding out whether any agent still holds the running step's tasks.
    FindingTaskHolders,
    Running,
    Closing(Goal),
    StoringRows(Goal),
    ReadingTasks(Goal),
    /// The stored tasks have been read.
    Closed(Goal),
    Cleaning(StepEnd),
    Finishing(StepEnd),
    /// The remaining data of a failed cell are being removed.
    CleaningFailed,
    /// A cell's next attempt is being made.
    RepeatingCell,
    Removing(Removal),
    Over,
}

/// Progress of a step's agents with its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenPass {
    /// The agents are asked one after the other, until one has a directory.
    First,
    /// The other agents look for it.
    Find,
    /// Agents that found none make their own.
    Make,
}

/// A wait until the storage is idle.
#[derive(Clone, Debug)]
pub(super) struct Idle {
    pub percent: f64,
    pub limit: Duration,
    pub began: MeshMicros,
    pub hosts: BTreeMap<HostId, String>,
}

/// The kernels whose caches are being dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropping {
    pub kernels: Vec<Kernel>,
    pub daemons: Option<Vec<(HostId, Vec<String>)>>,
}

/// One kernel and its agents, load-carrying agents first.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub agents: Vec<AgentId>,
    /// How many of the agents were asked.
    pub asked: usize,
    /// The first agent's answer, until one has dropped everything.
    pub drops: Option<Vec<NewCacheDrop>>,
}

/// The confirmations of a step's tasks so far.
#[derive(Clone, Debug)]
pub(super) struct Arming {
    pub chosen: MeshMicros,
    pub start: MeshMicros,
    /// The smallest margin left when an agent received it.
    pub margin: Option<Duration>,
    /// Why the step could not be armed.
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
    /// The step could not be armed in time.
    Retry { reason: String },
    /// The cell has to be repeated as its next attempt.
    Again { reason: String },
    /// The step cannot continue, but the run can.
    Fail { reason: String },
    /// The policy ends the run.
    Abort { reason: String },
    /// A stop was requested.
    Stop,
}

/// What follows the end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepEnd {
    /// The run continues with the next step.
    Done,
    /// The other steps of its cell are not measured.
    Failed { reason: String },
    /// The run ends.
    Abort { reason: String },
    /// The run ends on request. `whole`: the step was complete.
    Stop { whole: bool },
}

/// The directories that are being removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Removal {
    pub entries: Vec<DirectoryToRemove>,
    /// The stopped step that ends after the removal.
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
