//! Reads that the machine requests from the store and the fleet. They change nothing.

use crate::{
    model::{AgentId, RunId, TaskId},
    scheduler::{
        Inner, admission, environment,
        machine::{
            effect::Lookup,
            event::{Begun, CellData, ClockQuality, Completion, HostBusy, Leftover, StrayTask},
            has_ended,
        },
    },
    store::{
        StoreError,
        rows::{RunRow, StepRow, TaskRow},
    },
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::timeout;

/// A spool whose stored position does not move for this long is given up.
const ROWS_WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn lookup(inner: &Inner, lookup: Lookup) -> Result<Completion, StoreError> {
    let store = &inner.store;
    Ok(match lookup {
        Lookup::Environment { run, loss_after } => {
            Completion::Environment(environment::read(inner, run, loss_after).await?)
        }
        Lookup::Clocks(agents) => Completion::Clocks(clocks(inner, &agents)),
        Lookup::LinkSpeeds(agents) => {
            let mut speeds = BTreeMap::new();
            for agent in agents {
                speeds.insert(agent, store.most_received_per_s(agent).await?);
            }
            Completion::LinkSpeeds(speeds)
        }
        Lookup::Secrets(count) => {
            let secret = |_| uuid::Uuid::new_v4().simple().to_string();
            Completion::Secrets((0..count).map(secret).collect())
        }
        Lookup::Tasks(step) => Completion::Tasks(store.tasks(step).await?),
        Lookup::Rows {
            agent,
            spool,
            sequence,
            loss_after,
        } => Completion::Rows(rows(inner, agent, &spool, sequence, loss_after).await?),
        Lookup::Busy { hosts, since } => {
            let mut all = Vec::with_capacity(hosts.len());
            for host in hosts {
                let (covered_us, busy) = store.busy_since(host, since).await?;
                all.push(HostBusy {
                    host,
                    covered_us,
                    busy,
                });
            }
            Completion::Busy(all)
        }
        Lookup::Daemons(hosts) => {
            let mut daemons = Vec::with_capacity(hosts.len());
            for host in hosts {
                daemons.push((host, store.daemons_alive(host).await?));
            }
            Completion::Daemons(daemons)
        }
        Lookup::Begun { step, agents } => {
            let mut positions = BTreeMap::new();
            for agent in agents {
                positions.insert(agent, store.spool_positions(agent).await?);
            }
            Completion::Begun(Begun {
                without_rows: store.tasks_without_rows(step).await?,
                positions,
            })
        }
        Lookup::Leftovers { agent, held } => {
            Completion::Leftovers(leftovers(inner, agent, &held).await?)
        }
        Lookup::Loss { agent, loss_after } => {
            Completion::Lost(inner.fleet.lost(agent, loss_after).await.to_string())
        }
    })
}

fn clocks(inner: &Inner, agents: &[AgentId]) -> Vec<ClockQuality> {
    let duration = |us: i64| Duration::from_micros(us.max(0).unsigned_abs());
    agents
        .iter()
        .filter_map(|agent| inner.fleet.clock_quality(*agent))
        .map(|(round_trip_us, error_us)| ClockQuality {
            round_trip: duration(round_trip_us),
            error: duration(error_us),
        })
        .collect()
}

/// `None`: everything up to the sequence is stored; else why it is not.
async fn rows(
    inner: &Inner,
    agent: AgentId,
    spool: &str,
    sequence: u64,
    loss_after: Duration,
) -> Result<Option<String>, StoreError> {
    let mut position = None;
    loop {
        let stored = tokio::select! {
            stored = timeout(ROWS_WITHIN, inner.store.stored(agent, spool, sequence)) => stored,
            lost = inner.fleet.lost(agent, loss_after) => {
                // Of one that went away after its last row, all is here.
                let last = spool_position(inner, agent, spool).await?;
                return Ok(last.is_none_or(|last| last < sequence).then(|| lost.to_string()));
            }
        };
        if let Ok(stored) = stored {
            return stored.map(|()| None);
        }
        let now = spool_position(inner, agent, spool).await?;
        if now == position {
            return Ok(Some(format!(
                "nothing came for {} s",
                ROWS_WITHIN.as_secs()
            )));
        }
        position = now;
    }
}

/// The last sequence that is stored of a spool.
async fn spool_position(
    inner: &Inner,
    agent: AgentId,
    spool: &str,
) -> Result<Option<u64>, StoreError> {
    let positions = inner.store.spool_positions(agent).await?;
    let completion = positions.into_iter().find(|(known, _)| known == spool);
    Ok(completion.map(|(_, last)| last))
}

async fn leftovers(inner: &Inner, agent: AgentId, held: &[TaskId]) -> Result<Leftover, StoreError> {
    let mut tasks = Vec::new();
    for task in held {
        tasks.extend(stray(inner, *task).await?);
    }
    Ok(Leftover {
        tasks,
        directories: inner.store.directories_left(agent).await?,
    })
}

/// `None`: the run under way still waits for the task, or it is not known.
async fn stray(inner: &Inner, task: TaskId) -> Result<Option<StrayTask>, StoreError> {
    let Some(task) = inner.store.task(task).await? else {
        return Ok(None);
    };
    let step = inner.store.step(task.step).await?;
    let run = inner.store.run(step.run).await?;
    if !run.state.is_end() && !step.state.is_end() && !has_ended(task.state) {
        return Ok(None);
    }
    let used = !run.state.is_end() && is_used(inner, run.id, &step).await?;
    let data = match used {
        true => None,
        false => cell_data(&run, &step, &task),
    };
    Ok(Some(StrayTask {
        run: run.id,
        ordinal: step.ordinal,
        task,
        data,
    }))
}

/// Whether a mode of the cell is still to come, or under way.
async fn is_used(inner: &Inner, run: RunId, step: &StepRow) -> Result<bool, StoreError> {
    let steps = inner.store.steps(run).await?;
    Ok(steps.iter().any(|other| {
        other.cell == step.cell && other.attempt == step.attempt && !other.state.is_end()
    }))
}

/// The data of a task, from the run's plan.
fn cell_data(run: &RunRow, step: &StepRow, task: &TaskRow) -> Option<CellData> {
    let (_, _, expansion) = admission::expanded(run).ok()?;
    let mut steps = expansion.steps.into_iter();
    let planned = steps.find(|planned| planned.ordinal == step.ordinal)?;
    let place = planned.tasks.get(usize::try_from(task.task_index).ok()?)?;
    (!planned.path.is_empty()).then(|| CellData {
        run_uid: run.uid.clone(),
        path: planned.path.clone(),
        cell: planned.directory(place.load, step.attempt),
        task_index: place.index,
    })
}
