//! The rows of planned steps.

use benchmesh_plan::PlannedStep;
use benchmesh_store::rows::{NewGroup, NewStep};

/// The rows of planned steps.
pub(super) fn new_steps<'s>(
    steps: impl Iterator<Item = &'s PlannedStep>,
    attempt: u32,
) -> Vec<NewStep> {
    steps
        .map(|step| NewStep {
            ordinal: step.ordinal,
            loop_number: step.loop_number,
            repeat: step.repeat,
            attempt,
            phase: step.phase.clone(),
            cell: step.cell_name.clone(),
            target: step.target.clone(),
            system: step.system.clone(),
            workload: step.workload.clone(),
            mode: step.mode.clone(),
            params_json: serde_json::Value::Object((*step.params).clone()).to_string(),
            clients: u32::try_from(step.agents().len()).unwrap_or(u32::MAX),
            cache: step.cache.as_str().to_owned(),
            groups: groups(step),
        })
        .collect()
}

/// The groups of a step, if any.
fn groups(step: &PlannedStep) -> Vec<NewGroup> {
    let named = step.loads.iter().filter(|load| !load.group.is_empty());
    named
        .map(|load| NewGroup {
            name: load.group.clone(),
            workload: load.workload.clone(),
            mode: load.mode.clone(),
            params_json: serde_json::Value::Object((*load.params).clone()).to_string(),
            clients: load.clients,
            tasks: load.tasks,
        })
        .collect()
}
