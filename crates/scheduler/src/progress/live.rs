//! Live figures of the running step, from `live`.

use super::{RunProgress, ViewChange};
use crate::live::{Figures, LiveView, RunningLoad};
use benchmesh_model::mesh::{MeshMicros, StepId, StepState};

impl LiveView for RunProgress {
    fn running(&self) -> Option<RunningLoad> {
        self.with_view(|view| {
            let step = view.step.as_ref()?;
            (step.now.state == StepState::Running).then(|| RunningLoad {
                step: step.now.step_id,
                start: step.start.unwrap_or(step.began),
                tasks: step.tasks.clone(),
            })
        })
    }

    fn show(&self, step: StepId, figures: &Figures, at: MeshMicros) {
        self.change_if(|view| {
            let Some(step) = view.step.as_mut().filter(|view| view.now.step_id == step) else {
                return ViewChange::None;
            };
            step.now.load = figures.load;
            step.now.seconds.clone_from(&figures.seconds);
            step.rates.clone_from(&figures.tasks);
            step.last_rows_at = Some(at);
            ViewChange::Made
        });
    }
}
