//! What the machine keeps of each step of a run, and of the step under way.

use super::{
    departures::Returns,
    tasks::{LinkEndpoints, TaskHandle, TaskSet},
};
use crate::live::Steadiness;
use benchmesh_model::mesh::{MeshMicros, StepId, StepState, TaskId};
use benchmesh_store::rows::{SpoolPosition, StepRow, TaskRow};
use std::{collections::BTreeSet, time::Duration};

/// The machine's state of each step of the plan.
#[derive(Clone, Debug)]
pub(super) struct StepFacts {
    pub id: StepId,
    pub attempt: u32,
    pub state: StepState,
    pub start: Option<MeshMicros>,
    pub partial: bool,
    pub reason: Option<String>,
}

impl StepFacts {
    pub fn of_row(row: &StepRow) -> Self {
        Self {
            id: row.id,
            attempt: row.attempt,
            state: row.state,
            start: row.start,
            partial: row.partial,
            reason: row.reason.clone(),
        }
    }

    /// Of a step that has not begun.
    pub fn planned(id: StepId, attempt: u32) -> Self {
        Self {
            id,
            attempt,
            state: StepState::Planned,
            start: None,
            partial: false,
            reason: None,
        }
    }

    /// Whether something of the step is under way.
    pub fn is_open(&self) -> bool {
        !self.state.is_end() && self.state != StepState::Planned
    }
}

/// Why agents could not prepare a step.
#[derive(Clone, Debug)]
pub(super) struct Refusals {
    /// The first one.
    pub reason: String,
    /// Each of them says that the mode cannot be done there.
    pub all_unsupported: bool,
}

/// The step under way.
#[derive(Clone, Debug)]
pub(super) struct ActiveStep {
    pub index: usize,
    pub id: StepId,
    pub tasks: TaskSet,
    /// Their rows, as they were read last.
    pub rows: Vec<TaskRow>,
    pub links: LinkEndpoints,
    /// How often it was armed in vain.
    pub arm_try: u32,
    /// Tasks that may start although the step is not armed.
    pub may_start: BTreeSet<TaskId>,
    /// Where the last rows are of those that were stopped for it.
    pub stopped_at: Vec<(TaskHandle, SpoolPosition)>,
    /// Tasks whose stop an agent has confirmed.
    pub confirmed_stops: BTreeSet<TaskId>,
    /// When its tasks were asked to prepare.
    pub preparing_since: MeshMicros,
    /// How long the faster half of its agents took to prepare; `None`: they have not.
    pub half_ready: Option<Duration>,
    /// Of agents that could not prepare it.
    pub refusals: Option<Refusals>,
    pub start: Option<MeshMicros>,
    /// Its load was started, so that there is something to measure.
    pub measured: bool,
    /// All samplers were asked for a sample at its end.
    pub end_marked: bool,
    /// It was taken up after a start of the collector.
    pub resumed: bool,
    /// All of its tasks had ended when the run was stopped.
    pub was_over: bool,
    /// Lost tasks whose share of the rate the others have taken.
    pub replaced: BTreeSet<TaskId>,
    /// An agent says that the mode cannot be done there.
    pub unsupported: bool,
    /// Clients that left it while it runs, and may come back.
    pub returns: Returns,
    /// How its load was judged last; `None`: it was not.
    pub steadiness: Option<Steadiness>,
}
