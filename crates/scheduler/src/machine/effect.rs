//! The machine's output, in the order that the driver keeps: rows are one transaction, and the effects follow its
//! commit.

use super::event::{Completion, Token};
use crate::sessions::command::{Command, CommandProgress};
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId, StepId, StepState, TaskId};
use benchmesh_plan::{PlannedStep, Steady};
use benchmesh_store::rows::{FinishedStep, Row, RunChange};
use std::{sync::Arc, time::Duration};

/// The complete output of one event.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Effects that do not depend on a row: above all stops, and requests that change nothing that has to be stored.
    pub at_once: Vec<Effect>,
    /// One transaction.
    pub rows: Vec<Row>,
    /// The tokens that wait for the ids of the steps and tasks made by the rows, in their order.
    pub made: Vec<Token>,
    /// After the commit, in this order.
    pub then: Vec<Effect>,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.at_once.is_empty() && self.rows.is_empty() && self.then.is_empty()
    }

    pub fn append(&mut self, mut other: Self) {
        self.at_once.append(&mut other.at_once);
        self.rows.append(&mut other.rows);
        self.made.append(&mut other.made);
        self.then.append(&mut other.then);
    }
}

/// A kind of row that gets an id when it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewIds {
    Steps,
    Tasks,
}

impl NewIds {
    /// The kinds of the rows that get ids, in their order.
    pub fn of_rows(rows: &[Row]) -> Vec<Self> {
        let kind = |row: &Row| match row {
            Row::Steps { .. } => Some(Self::Steps),
            Row::Tasks { .. } | Row::Parts { .. } => Some(Self::Tasks),
            _ => None,
        };
        rows.iter().filter_map(kind).collect()
    }

    /// The completion for rows of this kind, stored with these ids.
    pub fn completion(self, ids: Vec<i64>) -> Completion {
        match self {
            Self::Steps => Completion::StepsMade(ids.into_iter().map(StepId).collect()),
            Self::Tasks => Completion::TasksMade(ids.into_iter().map(TaskId).collect()),
        }
    }
}

/// One action for the driver.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Ask(Box<Ask>),
    /// The token is no longer awaited.
    Cancel(Token),
    /// Sends `Due` at an instant.
    Wait {
        token: Token,
        at: MeshMicros,
    },
    Lookup {
        token: Token,
        lookup: Lookup,
    },
    /// Ends a step and computes its results.
    Finish {
        token: Token,
        run: RunId,
        /// The step's index in the plan.
        index: usize,
        step: StepId,
        finished: FinishedStep,
    },
    /// Judges the load of a running step once a second, until it is in steady state.
    JudgeSteadiness {
        step: StepId,
        steady: Steady,
        start: MeshMicros,
        /// Windows begin at this instant or later.
        earliest: MeshMicros,
        tasks: Vec<TaskId>,
        /// How long to wait for a task that sends nothing.
        max_silence: Duration,
    },
    /// Samplers also read everything at this instant; `None` means now.
    Mark {
        run: RunId,
        at: Option<MeshMicros>,
    },
    /// Sampling period and run. A period of 0 means only at marks.
    Sample {
        period_us: i64,
        run: Option<RunId>,
    },
    /// The current run's `loss-after`; `None` without a run.
    LossAfter(Option<Duration>),
    Show {
        run: RunId,
        show: Show,
    },
    /// A message for all watchers of runs that have not ended.
    ShowAll(String),
    /// Find the run to drive next.
    Load,
}

/// A command to an agent.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub token: Token,
    pub agent: AgentId,
    pub run: Option<RunId>,
    pub command: Command,
    /// An agent without contact for this long is lost.
    pub loss_after: Duration,
    pub within: Within,
    /// A command without progress for this long counts as hung; `None` if it reports no progress.
    pub silence: Option<Duration>,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Within {
    /// While the agent is not lost.
    Contact,
    For(Duration),
    /// Until this instant, after which the agent is no longer asked.
    Until(MeshMicros),
}

/// A read of the store or the fleet.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// Surveys the agents for the run's environment. A detached agent has `loss_after` to attach again.
    Environment {
        run: RunId,
        loss_after: Duration,
    },
    /// Plans the steps of a loop.
    Loop {
        run: RunId,
        number: u32,
    },
    /// The measurements of a search's steps.
    Probes(Vec<StepId>),
    Clocks(Vec<AgentId>),
    LinkSpeeds(Vec<AgentId>),
    Secrets(usize),
    Tasks(StepId),
    /// Waits until everything up to a sequence of a spool is stored.
    Rows {
        agent: AgentId,
        spool: String,
        sequence: u64,
        loss_after: Duration,
    },
    Busy {
        hosts: Vec<HostId>,
        since: MeshMicros,
    },
    Daemons(Vec<HostId>),
    Begun {
        step: StepId,
        agents: Vec<AgentId>,
    },
    Orphans {
        agent: AgentId,
        held: Vec<TaskId>,
    },
    /// Waits until an agent is lost.
    Loss {
        agent: AgentId,
        loss_after: Duration,
    },
}

/// A change of a run's progress.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    Began {
        at: MeshMicros,
        /// The total of the run's pauses since `at`, before its resumptions.
        paused_us: i64,
        steps_done: usize,
    },
    /// A loop after the first begins, or a step was added to the current one.
    Loop {
        number: u32,
        /// Number of steps in the loops before it.
        before: usize,
        steps: Arc<[PlannedStep]>,
    },
    /// A step is under way: its index in the plan, and its tasks.
    Step {
        index: usize,
        id: StepId,
        tasks: Vec<TaskId>,
    },
    /// Further tasks of clients that have come back into the step.
    Parts {
        step: StepId,
        tasks: Vec<TaskId>,
    },
    State {
        step: StepId,
        state: StepState,
        start: Option<MeshMicros>,
    },
    Progress {
        step: StepId,
        task: TaskId,
        progress: CommandProgress,
    },
    /// How long the load of a step took.
    Took {
        index: usize,
        took: Duration,
    },
    /// The step ended without results.
    StepGone,
    StepDone,
    /// This many completed steps have to be repeated.
    StepsUndone(usize),
    /// Data are being removed.
    Removing,
    /// This many more files are removed.
    Removed(u64),
    RemovingOver,
    Message(String),
    Ended(RunChange),
}
