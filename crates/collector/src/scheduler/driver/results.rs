//! The end of a step: its results are computed, stored, and shown to watchers.

use crate::{
    model::{RunId, StepId, StepState, TaskState},
    results::{Missing, StepResults, missing::without},
    scheduler::{
        Inner,
        machine::event::Completion,
        progress::{OpSummary, StepSummary},
    },
    store::{
        StoreError,
        rows::{FinishedStep, StepRow},
    },
};

/// Which clients are missing from the step, and whether its figures make it a failure.
pub(super) async fn finish(
    inner: &Inner,
    run: RunId,
    index: usize,
    step: StepId,
    finished: FinishedStep,
) -> Result<Completion, StoreError> {
    let ended_well = finished.state == StepState::Done;
    let results = inner.store.finish_step(step, finished).await?;
    let without = missing(inner, step, &results).await?;
    let row = inner.store.step(step).await?;
    let state = row.state;
    let failed = (ended_well && state == StepState::Failed).then(|| row.reason.clone());
    if let Some(progress) = inner.progress.run(run) {
        let link = progress.planned(index).map(|step| step.link());
        progress.finish(StepSummary {
            state,
            link: link.unwrap_or_default(),
            ..summary(row, results)
        });
    }
    Ok(Completion::Finished {
        without,
        failed: failed.flatten(),
    })
}

fn summary(row: StepRow, results: StepResults) -> StepSummary {
    StepSummary {
        id: row.id,
        ordinal: row.ordinal,
        phase: row.phase,
        target: row.target,
        workload: row.workload,
        mode: row.mode,
        params_json: row.params_json,
        clients: row.clients,
        state: row.state,
        link: String::new(),
        ops: results.ops.iter().map(OpSummary::from).collect(),
        skew_us: results.max_skew_us,
        skew_error_us: results.skew_error_us,
        flags: results.flags,
    }
}

async fn missing(
    inner: &Inner,
    step: StepId,
    results: &StepResults,
) -> Result<Option<String>, StoreError> {
    if results.ops.is_empty() {
        return Ok(None);
    }
    let mut missing = Vec::new();
    for task in inner.store.tasks(step).await? {
        if task.state == TaskState::Done {
            continue;
        }
        let done = || results.tasks.iter().filter(|done| done.task == task.id);
        let agent = inner.fleet.member(task.agent);
        missing.push(Missing {
            agent: agent.map_or_else(
                || task.agent.to_string(),
                |member| member.hello.name.clone(),
            ),
            state: task.state.as_str().to_owned(),
            ran_us: done().filter_map(|done| done.busy_us).max(),
            ops: done().map(|done| done.ops).sum(),
            bytes: done().map(|done| done.bytes).sum(),
        });
    }
    Ok(without(&missing))
}
