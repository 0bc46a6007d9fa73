//! The action after a stage: the part of the machine that ends the stage returns it, and `run` carries it out. No part
//! calls the next one, so all transitions between stages are in one place.

use super::stage::{Goal, StepEnd};
use benchmesh_model::mesh::MeshMicros;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next step that has not ended.
    FindStep,
    Listen,
    Settle,
    DropCaches,
    Arm,
    /// The load runs, from this instant.
    StartLoad(MeshMicros),
    StoreRows(Goal),
    Close(Goal),
    Conclude,
    /// The step's cell is repeated as its next attempt.
    RepeatCell {
        reason: String,
    },
    Finish(StepEnd),
    /// A requested stop ends the step.
    StopStep {
        reason: String,
    },
    /// The later modes of a failed cell end; `cleaned`: its data are gone already.
    FailCell {
        index: usize,
        reason: String,
        cleaned: bool,
    },
    RemoveDirectories,
    ConcludeRun,
}
