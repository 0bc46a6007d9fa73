//! The end of a step: its results are computed, stored, and shown to watchers.

use crate::{
    Inner,
    machine::event::Completion,
    snapshot::{OpDone, StepDone},
};
use benchmesh_model::mesh::{RunId, StepId, StepState, TaskState};
use benchmesh_results::{Missing, OpResult, StepResults, missing::without};
use benchmesh_store::{
    StoreError,
    rows::{FinishedStep, StepRow, TaskRow},
};

/// Which clients are missing from the step, and whether its figures make it a failure.
pub(crate) async fn finish(
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
    let failed = (ended_well && row.state == StepState::Failed).then(|| row.reason.clone());
    if let Some(progress) = inner.progress.run(run) {
        let link = progress.planned(index).map(|step| step.link());
        progress.finish(step_done(row, results, link.unwrap_or_default()));
    }
    Ok(Completion::Finished {
        without,
        failed: failed.flatten(),
    })
}

fn step_done(row: StepRow, results: StepResults, link: String) -> StepDone {
    StepDone {
        step_id: row.id,
        ordinal: row.ordinal,
        phase: row.phase,
        target: row.target,
        workload: row.workload,
        mode: row.mode,
        // For display alone.
        params: serde_json::from_str(&row.params_json).unwrap_or_default(),
        clients: row.clients,
        state: row.state,
        link,
        ops: results.ops.iter().map(op_done).collect(),
        max_skew_us: results.max_skew_us,
        skew_error_us: results.skew_error_us,
        flags: results
            .flags
            .iter()
            .map(|flag| flag.as_str().to_owned())
            .collect(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds to look at")]
fn op_done(op: &OpResult) -> OpDone {
    let ms = |ns: u64| ns as f64 / 1e6;
    OpDone {
        group: op.group.clone(),
        op: op.op.clone(),
        ops: op.ops,
        errors: op.errors,
        ops_per_s: op.ops_per_s,
        bytes_per_s: op.bytes_per_s,
        mean_ms: op.service.mean_ns() / 1e6,
        p50_ms: ms(op.service.quantile(0.5)),
        p99_ms: ms(op.service.quantile(0.99)),
        max_ms: ms(op.service.max_ns()),
        response_p99_ms: op
            .response
            .as_ref()
            .map(|response| ms(response.quantile(0.99))),
    }
}

/// Time from the last known activity of a task to the start of its client's next part; `None`: the client did not
/// come back.
fn away_us(
    task: &TaskRow,
    ran_us: Option<i64>,
    tasks: &[TaskRow],
    results: &StepResults,
) -> Option<i64> {
    let next = tasks.iter().find(|next| {
        next.client_index == task.client_index
            && next.part == task.part + 1
            && results.tasks.iter().any(|done| done.task == next.id)
    })?;
    let first = tasks.iter().filter_map(|task| task.start).min();
    let begun = task.start.or(first)?;
    let gap = next.start?.0.saturating_sub(begun.0);
    Some(gap.saturating_sub(ran_us.unwrap_or(0)))
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
    let tasks = inner.store.tasks(step).await?;
    for task in &tasks {
        let done = || results.tasks.iter().filter(|done| done.task == task.id);
        // A part that never began says nothing more than the one before it.
        if task.state == TaskState::Done || (task.part > 1 && done().next().is_none()) {
            continue;
        }
        let ran_us = done().filter_map(|done| done.busy_us).max();
        let agent = inner.fleet.member(task.agent);
        missing.push(Missing {
            agent: agent.map_or_else(
                || task.agent.to_string(),
                |member| member.hello.name.clone(),
            ),
            state: task.state.as_str().to_owned(),
            ran_us,
            ops: done().map(|done| done.ops).sum(),
            bytes: done().map(|done| done.bytes).sum(),
            away_us: away_us(task, ran_us, &tasks, results),
        });
    }
    Ok(without(&missing))
}
