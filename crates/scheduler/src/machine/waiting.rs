//! The entries that the machine waits for, and how long each is kept.

use super::tasks::TaskHandle;
use crate::sessions::command::{End, Make};
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId};
use std::{collections::BTreeMap, ops::Range};

/// Positions of the agents' spools.
pub(super) type Positions = BTreeMap<AgentId, Vec<(String, u64)>>;

/// How long an entry is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingScope {
    /// Until the stage ends. The stage ends when none of these entries is left.
    Stage,
    /// While its preparation or the load runs; no stage waits for it.
    Load,
    /// While the run is under way; its end waits for it.
    Cleanup,
}

/// One awaited entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Waiting {
    Environment,
    /// Steps of the plan. `only`: these steps of the range.
    StepsMade {
        range: Range<usize>,
        only: Vec<usize>,
        attempt: u32,
    },
    TasksMade,
    /// Further tasks of clients that came back: index and part number of each.
    PartsMade {
        agent: AgentId,
        parts: Vec<(usize, u32)>,
    },
    LoopPause,
    LoopPlanned,
    /// The measurements of a search's probes, up to this step.
    ProbesRead {
        last: usize,
    },
    LinkSpeeds,
    /// An agent's answer to `OpenRunDirectory`.
    Opened {
        agent: AgentId,
        path: String,
        make: Make,
    },
    Secrets,
    Listening {
        task: TaskHandle,
        receiver: AgentId,
        token: String,
    },
    Prepared {
        task: TaskHandle,
    },
    /// Whether the receiver of a link is attached, after its sender could not open the link.
    ReceiverThere {
        task: TaskHandle,
        refusal: String,
    },
    Settled,
    Busy,
    Dropped {
        kernel: usize,
        agent: AgentId,
    },
    Daemons,
    Clocks,
    Armed {
        task: TaskHandle,
    },
    HoldersLost,
    Ended {
        task: TaskHandle,
    },
    /// The rows of a failed task.
    EndStored {
        task: TaskHandle,
        end: End,
    },
    /// The stored end of a failed task, or (`None`) of a task whose agent no longer answers.
    EndRead {
        task: TaskHandle,
        end: Option<End>,
        why: String,
    },
    Stopped {
        task: TaskHandle,
    },
    EndedAfterStop {
        task: TaskHandle,
    },
    /// Before its agent prepares the task again.
    ForgottenForRetry,
    RowsStored {
        task: TaskHandle,
    },
    TasksRead,
    CellRemoved {
        agent: AgentId,
        files: u64,
    },
    Finished,
    DirectoryRemoved {
        entry: usize,
        files: u64,
    },
    // While the load runs.
    /// After this instant an agent is late with its preparation.
    PreparationDue,
    /// The loss of an agent that receives from others.
    ReceiverLost {
        receiver: AgentId,
    },
    Overtime,
    /// By this instant all tasks should have begun.
    BeginningDue,
    BegunBefore,
    BeginTimeout {
        before: Positions,
    },
    BegunAfter {
        before: Positions,
    },
    LeaseOver {
        task: TaskId,
    },
    RateShared {
        load: usize,
    },
    /// From this instant an agent that came back is given further tasks.
    ReturnDue {
        agent: AgentId,
    },
    /// The further task of a client that came back.
    PartPrepared {
        task: TaskHandle,
    },
    PartArmed {
        task: TaskHandle,
        start: MeshMicros,
    },
    /// The stop of a task with a load in steady state; its end is awaited.
    SteadyStop,
    // Independent of the stage.
    StopLost {
        task: TaskHandle,
    },
    EndOfLost {
        task: TaskHandle,
    },
    StoppedAgain,
    Forgotten,
}

impl Waiting {
    pub fn scope(&self) -> WaitingScope {
        match self {
            Self::PreparationDue
            | Self::ReceiverLost { .. }
            | Self::Overtime
            | Self::BeginningDue
            | Self::BegunBefore
            | Self::BeginTimeout { .. }
            | Self::BegunAfter { .. }
            | Self::LeaseOver { .. }
            | Self::RateShared { .. }
            | Self::ReturnDue { .. }
            | Self::PartPrepared { .. }
            | Self::PartArmed { .. }
            | Self::SteadyStop => WaitingScope::Load,
            Self::StopLost { .. }
            | Self::EndOfLost { .. }
            | Self::StoppedAgain
            | Self::Forgotten => WaitingScope::Cleanup,
            _ => WaitingScope::Stage,
        }
    }

    pub fn is_cleanup(&self) -> bool {
        self.scope() == WaitingScope::Cleanup
    }

    /// Whether the answer is needed in any case: rows that are being made exist from then on, and a directory that may
    /// have been made has to be removed afterwards.
    pub fn must_be_awaited(&self) -> bool {
        matches!(
            self,
            Self::StepsMade { .. }
                | Self::TasksMade
                | Self::PartsMade { .. }
                | Self::Finished
                | Self::Opened { .. }
        )
    }
}

impl Waiting {
    /// The task that the awaited answer is about.
    pub fn task(&self) -> Option<TaskHandle> {
        match self {
            Self::Listening { task, .. }
            | Self::Prepared { task }
            | Self::ReceiverThere { task, .. }
            | Self::Armed { task }
            | Self::Ended { task }
            | Self::EndStored { task, .. }
            | Self::EndRead { task, .. }
            | Self::PartPrepared { task }
            | Self::PartArmed { task, .. } => Some(*task),
            _ => None,
        }
    }
}
