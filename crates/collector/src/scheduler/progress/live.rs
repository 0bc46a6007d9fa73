//! Live figures of the running step, from `live`.

use super::{Change, RunProgress};
use crate::{
    live::{Figures, LiveView},
    model::{MeshMicros, StepId, StepState, TaskId},
};
use std::collections::BTreeSet;

impl LiveView for RunProgress {
    fn running(&self) -> Option<(StepId, BTreeSet<TaskId>)> {
        self.look(|view| {
            let step = view.step.as_ref()?;
            (step.state == StepState::Running).then(|| (step.id, step.tasks.clone()))
        })
    }

    fn show(&self, step: StepId, figures: &Figures, at: MeshMicros) {
        self.change_if(|view| {
            let Some(step) = view.step.as_mut().filter(|view| view.id == step) else {
                return Change::None;
            };
            step.ops = figures.ops;
            step.bytes = figures.bytes;
            step.ops_per_s = figures.ops_per_s;
            step.bytes_per_s = figures.bytes_per_s;
            step.p50_ms = figures.p50_ms;
            step.p99_ms = figures.p99_ms;
            step.max_ms = figures.max_ms;
            step.rates.clone_from(&figures.tasks);
            step.last_rows_at = Some(at);
            Change::Made
        });
    }
}
