//! The machine's state of each step of a run, and of the step under way.

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
    pub fn from_row(row: &StepRow) -> Self {
        Self {
            id: row.id,
            attempt: row.attempt,
            state: row.state,
            start: row.start,
            partial: row.partial,
            reason: row.reason.clone(),
        }
    }

    /// State of a step that has not begun.
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

    /// Whether any part of the step is under way.
    pub fn is_open(&self) -> bool {
        !self.state.is_end() && self.state != StepState::Planned
    }
}

/// Why agents could not prepare a step.
#[derive(Clone, Debug)]
pub(super) struct Refusals {
    /// The first reason.
    pub reason: String,
    /// Whether every agent reported the mode as unsupported on its target.
    pub all_unsupported: bool,
}

/// The step under way.
#[derive(Clone, Debug)]
pub(super) struct ActiveStep {
    pub index: usize,
    pub id: StepId,
    pub tasks: TaskSet,
    /// The task rows, as last read.
    pub rows: Vec<TaskRow>,
    pub links: LinkEndpoints,
    /// How often arming failed.
    pub arm_try: u32,
    /// Tasks that may start although the step is not armed.
    pub may_start: BTreeSet<TaskId>,
    /// Positions of the last rows of tasks that were stopped for a new attempt.
    pub stopped_at: Vec<(TaskHandle, SpoolPosition)>,
    /// Tasks whose stop an agent has confirmed.
    pub confirmed_stops: BTreeSet<TaskId>,
    /// When its tasks were asked to prepare.
    pub preparing_since: MeshMicros,
    /// How long the faster half of its agents took to prepare; `None` before that.
    pub half_ready: Option<Duration>,
    /// Refusals of agents that could not prepare the step.
    pub refusals: Option<Refusals>,
    pub start: Option<MeshMicros>,
    /// Whether its load was started, so that there is something to measure.
    pub measured: bool,
    /// All samplers were asked for a sample at its end.
    pub end_marked: bool,
    /// Whether it was continued after a restart of the collector.
    pub resumed: bool,
    /// Whether all of its tasks had ended when the run was stopped.
    pub was_over: bool,
    /// Lost tasks whose share of the rate was given to the others.
    pub replaced: BTreeSet<TaskId>,
    /// Whether an agent reported the mode as unsupported on its target.
    pub unsupported: bool,
    /// Clients that left the running step and may come back.
    pub returns: Returns,
    /// The latest judgement of its load; `None` if not judged yet.
    pub steadiness: Option<Steadiness>,
}
