//! The events of a schedule, each at its instant, and the commands in transit.

use super::super::agent::{Later, Reply};
use crate::{
    machine::{
        effect::Lookup,
        event::{LoadedRun, Token},
    },
    sessions::command::Command,
};
use benchmesh_model::mesh::{StepId, TaskId};
use benchmesh_plan::Steady;
use benchmesh_store::rows::FinishedStep;
use std::time::Duration;

/// Something that happens at an instant.
#[derive(Clone, Debug)]
pub(in crate::simulation) enum SimEvent {
    /// A command reaches an agent.
    Arrives {
        token: Token,
        agent: usize,
        session: u64,
        command: Box<Command>,
    },
    /// A reply reaches the collector.
    Replied {
        token: Token,
        agent: usize,
        session: u64,
        reply: Box<Reply>,
        doubled: bool,
    },
    Later {
        agent: usize,
        later: Later,
    },
    /// A batch of an agent's spool is stored.
    SpoolStored {
        agent: usize,
        session: u64,
    },
    /// Rows may have been stored before they were awaited.
    RowsStored,
    LostCheck {
        token: Token,
    },
    Deadline {
        token: Token,
    },
    Timer {
        token: Token,
        at: i64,
    },
    Committed {
        number: u64,
    },
    LookupDone {
        token: Token,
        lookup: Lookup,
        generation: u64,
    },
    Finished {
        token: Token,
        step: StepId,
        finished: Box<FinishedStep>,
        generation: u64,
    },
    /// The load of a step is found to be in steady state.
    Steady {
        step: StepId,
        steady: Steady,
        generation: u64,
    },
    Loaded {
        loaded: Option<Box<LoadedRun>>,
        generation: u64,
    },
    AgentsChanged {
        generation: u64,
    },
    LeaseOver {
        agent: usize,
    },
    // Chaos.
    Cut {
        agent: usize,
    },
    Attach {
        agent: usize,
    },
    RestartAgent {
        agent: usize,
    },
    /// Every operation on an agent's target fails from now on.
    TargetDies {
        agent: usize,
    },
    TargetIsBack {
        agent: usize,
    },
    Crash,
    StartCollector,
    Stop,
    /// Someone lets the run end after its loop.
    EndAfterLoop,
    /// An alarm ends the run.
    Abort,
    /// Someone resumes a run that has ended.
    Resume,
    Block,
    Unblock,
    /// Checks that a task that ended for its step does not load on an agent that is attached.
    CheckStoppedOnAgent {
        agent: usize,
        session: u64,
        task: TaskId,
        generation: u64,
    },
    /// Checks that the others have taken the share of a lost task in the rate of its step.
    CheckShares {
        lost: TaskId,
        since: i64,
        generation: u64,
    },
    /// Checks that a stop has reached every agent that could be reached.
    CheckStop {
        reached: Vec<(usize, u64, TaskId)>,
        generation: u64,
    },
}

/// A question to an agent.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub agent: usize,
    pub command: Command,
    pub loss_after: i64,
    pub within: Option<Duration>,
    pub asked_at: i64,
    /// When its time is up, answered or not.
    pub deadline: Option<i64>,
}
