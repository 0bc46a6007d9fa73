//! Loads the next run from its rows, from where a machine continues.

use crate::{
    Inner, admission,
    machine::event::{EndedSteps, LoadedRun, Policy, RunPlan},
};
use benchmesh_model::mesh::{RunId, RunState, StepState};
use benchmesh_store::{StoreError, rows::RunRow};
use std::time::Duration;

/// Poll interval for scheduled runs.
const DUE_BEAT: Duration = Duration::from_secs(10);

/// The run to drive next: a running one before queued ones, oldest first. A run that the driver abandoned has a reason
/// instead of a plan.
pub(crate) async fn load(
    inner: &Inner,
    abandoned: Option<&(RunId, String)>,
) -> Result<Option<Box<LoadedRun>>, StoreError> {
    let unfinished = inner.store.unfinished_runs().await?;
    for row in unfinished.iter().filter(|row| !inner.progress.has(row.id)) {
        let progress = inner.progress.open(row);
        if let Some(due) = row.due.filter(|due| *due > inner.clock.now()) {
            progress.show_message(admission::waits_until(row.id, due));
        }
        // A run whose plan can no longer be expanded fails when it is loaded.
        if let Ok(plan) = plan(row.clone(), 1).await {
            progress.set_size(plan.steps.len(), plan.loops);
        }
    }
    let now = inner.clock.now();
    let running = unfinished.iter().find(|row| row.state == RunState::Running);
    let due = unfinished.iter().find(|row| row.is_due(now));
    let Some(row) = running.or(due).cloned() else {
        return Ok(None);
    };
    inner.progress.driven(row.id);
    let loop_number = inner.store.newest_loop(row.id).await?.unwrap_or(1);
    let mut plan = match abandoned {
        Some((run, reason)) if *run == row.id => Err(reason.clone()),
        _ => plan(row.clone(), loop_number).await,
    };
    let steps = inner.store.steps_of_loop(row.id, loop_number).await?;
    let (done, flawed) = inner.store.steps_before_loop(row.id, loop_number).await?;
    let earlier = EndedSteps::of_rows(done, &flawed);
    if let Ok(plan) = &mut plan {
        plan.add_probes(&steps);
    }
    let open = steps
        .iter()
        .find(|step| !step.state.is_end() && step.state != StepState::Planned);
    let tasks = match open {
        Some(step) => inner.store.tasks(step.id).await?,
        None => Vec::new(),
    };
    let directories = inner.store.run_directories(row.id).await?;
    let left_out = inner.store.steps_left_out(row.id).await?;
    let searched = inner.store.steps_searched(row.id).await?;
    let ends_after_loop = inner.store.ends_after_loop(row.id).await?;
    if let (Ok(plan), Some(progress)) = (&plan, inner.progress.run(row.id)) {
        progress.set_loop(loop_number, plan.loops, earlier.count(), plan.steps.clone());
    }
    Ok(Some(Box::new(LoadedRun {
        row,
        plan,
        loop_number,
        ends_after_loop,
        earlier,
        steps,
        tasks,
        directories,
        left_out,
        searched,
    })))
}

/// Resolves when a scheduled run is due; never if there is none. It reads the time repeatedly, in case the clock is
/// set.
pub(super) async fn until_due(inner: &Inner) {
    let from = inner.clock.now();
    loop {
        let beat = match inner.store.next_due(from).await {
            Ok(Some(due)) => match u64::try_from(due.0.saturating_sub(inner.clock.now().0)) {
                Err(_) | Ok(0) => return,
                Ok(left) => Duration::from_micros(left).min(DUE_BEAT),
            },
            Ok(None) => return std::future::pending().await,
            Err(_) => DUE_BEAT,
        };
        tokio::time::sleep(beat).await;
    }
}

/// Expands one loop of a run's plan off the scheduler's own task, because it may have a hundred thousand steps.
pub(super) async fn plan(row: RunRow, loop_number: u32) -> Result<RunPlan, String> {
    let expanded =
        tokio::task::spawn_blocking(move || admission::expanded(&row, loop_number)).await;
    let (plan, agents, expansion) = expanded.map_err(|error| error.to_string())??;
    Ok(RunPlan {
        policy: Policy {
            on_loss: plan.on_loss,
            on_stall: plan.on_stall,
            loss_after: plan.loss_after,
            lease: plan.lease,
        },
        agents,
        loops: plan.loops,
        steps: expansion.steps.into(),
        left_out: plan.left_out(),
    })
}
