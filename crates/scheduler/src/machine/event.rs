//! The machine's input: plain values that the driver makes of answers, timers, commits and reads.
//!
//! A token ties an answer to its request. The machine ignores unknown tokens, so late or repeated answers are harmless.

pub(crate) use super::ended::EndedSteps;

use super::members::Presence;
use crate::{
    agents::RunAgents,
    live::Steadiness,
    sessions::command::{AgentAnswer, CallError, CommandProgress},
};
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId, StepId, TaskId};
use benchmesh_plan::{Loops, OnLoss, OnStall, PlannedStep, search::ProbeOp, with_probes};
use benchmesh_store::{
    Busy, DirectoryLeft,
    rows::{NewRunAgent, RunDirectoryRow, RunRow, StepRow, TaskRow},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Identifies one awaited entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(pub u64);

/// One input of the machine.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Every agent, sent whenever one attaches or detaches.
    Agents(Vec<Presence>),
    /// A run may have been queued.
    Queued,
    /// A run that had ended is queued again.
    Resumed {
        run: RunId,
    },
    /// The run to drive next, from its rows; `None` if there is none.
    Loaded(Option<Box<LoadedRun>>),
    /// A stop of a run is requested.
    Stop {
        run: RunId,
        reason: String,
        at: MeshMicros,
    },
    /// A run is to begin no further loop.
    EndAfterLoop {
        run: RunId,
    },
    /// An alarm of its plan ends a run.
    Abort {
        run: RunId,
        reason: String,
    },
    Answered {
        token: Token,
        answer: Result<AgentAnswer, CallError>,
    },
    Progressed {
        token: Token,
        progress: CommandProgress,
    },
    Completed {
        token: Token,
        completion: Completion,
    },
    /// A timer is due.
    Due {
        token: Token,
    },
    /// The steadiness of a step's load so far.
    Steadiness {
        step: StepId,
        judged: Steadiness,
    },
    /// The database cannot be written.
    Blocked {
        why: String,
        remedy: String,
    },
    Unblocked,
}

/// The result of a read, of rows that make ids, or of a step's end.
#[derive(Clone, Debug)]
pub(crate) enum Completion {
    Environment(Vec<NewRunAgent>),
    /// The steps of a loop, or the reason why the plan no longer yields any.
    Loop(Result<Arc<[PlannedStep]>, String>),
    StepsMade(Vec<StepId>),
    /// The measurements of each of the steps.
    Probes(Vec<Vec<ProbeOp>>),
    TasksMade(Vec<TaskId>),
    Clocks(Vec<ClockQuality>),
    /// The highest rate ever sent to each agent, in bytes per second; `None` if unknown.
    LinkSpeeds(BTreeMap<AgentId, Option<i64>>),
    /// Unguessable random tokens.
    Secrets(Vec<String>),
    Tasks(Vec<TaskRow>),
    /// `None` if everything up to the requested sequence is stored; otherwise the reason why not.
    Rows(Option<String>),
    Busy(Vec<HostBusy>),
    Daemons(Vec<(HostId, Vec<String>)>),
    Begun(Begun),
    Orphans(Orphans),
    /// The agent is lost, for this reason.
    Lost(String),
    /// The step's results are stored. `without`: a text naming the clients that the step went on without. `failed`: why
    /// the figures turn a step that ended well into a failure.
    Finished {
        without: Option<String>,
        failed: Option<String>,
    },
}

/// The quality of an agent's clock estimate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockQuality {
    /// Zero if not measured yet.
    pub round_trip: Duration,
    pub error: Duration,
}

/// How busy a host was.
#[derive(Clone, Debug)]
pub(crate) struct HostBusy {
    pub host: HostId,
    pub covered_us: i64,
    pub busy: Vec<Busy>,
}

/// Which tasks have sent nothing, and the positions of their agents' spools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begun {
    pub without_rows: Vec<TaskId>,
    pub positions: BTreeMap<AgentId, Vec<(String, u64)>>,
}

/// The leftovers of ended steps and runs on an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orphans {
    pub tasks: Vec<OrphanTask>,
    pub directories: Vec<DirectoryLeft>,
}

/// A task of an ended step or run.
#[derive(Clone, Debug)]
pub(crate) struct OrphanTask {
    pub task: TaskRow,
    pub run: RunId,
    pub ordinal: u32,
    /// Its data, unless a later mode of its cell still uses them.
    pub data: Option<CellData>,
}

/// The data of one task of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellData {
    pub run_uid: String,
    pub path: String,
    pub cell: String,
    pub task_index: u32,
}

/// A run as stored in its rows.
#[derive(Clone, Debug)]
pub(crate) struct LoadedRun {
    pub row: RunRow,
    /// The error is the reason why it cannot run at all.
    pub plan: Result<RunPlan, String>,
    /// The newest loop that has steps; 1 if there are none yet.
    pub loop_number: u32,
    /// Whether no further loop begins, on request.
    pub ends_after_loop: bool,
    /// The ended steps of the loops before it.
    pub earlier: EndedSteps,
    /// The newest attempt of each step of that loop.
    pub steps: Vec<StepRow>,
    /// The tasks of the step that is under way.
    pub tasks: Vec<TaskRow>,
    pub directories: Vec<RunDirectoryRow>,
    /// Steps of a resumed run with a mode that cannot be done on their target.
    pub left_out: BTreeSet<StepId>,
    /// The last probes of searches that have ended.
    pub searched: BTreeSet<StepId>,
}

/// The expansion of a run's plan in one loop.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub policy: Policy,
    pub agents: RunAgents,
    pub loops: Loops,
    /// The steps of this loop.
    pub steps: Arc<[PlannedStep]>,
    /// One sentence for each part of the plan that is left out because it cannot be measured.
    pub left_out: Vec<String>,
}

impl RunPlan {
    /// Adds the probes that were made, from the rows of its loop.
    pub fn add_probes(&mut self, rows: &[StepRow]) {
        let rows = rows.iter();
        let rows = rows.map(|row| (row.ordinal, row.params_json.as_str()));
        if let Some(steps) = with_probes(&self.steps, rows) {
            self.steps = steps.into();
        }
    }

    /// The value for a run with an unreadable plan.
    pub fn none() -> Self {
        Self {
            policy: Policy {
                on_loss: OnLoss::Continue,
                on_stall: OnStall::Continue,
                loss_after: Duration::ZERO,
                lease: Duration::ZERO,
            },
            agents: RunAgents::default(),
            loops: Loops::ONE,
            steps: Arc::default(),
            left_out: Vec::new(),
        }
    }
}

/// The plan's policy on faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub on_loss: OnLoss,
    pub on_stall: OnStall,
    /// An agent without contact for this long is lost.
    pub loss_after: Duration,
    /// How long an agent continues its load without contact.
    pub lease: Duration,
}
