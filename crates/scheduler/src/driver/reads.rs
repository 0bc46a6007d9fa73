//! Reads that the machine requests from the store and the fleet. They change nothing.

use crate::{
    Inner, admission, environment,
    machine::{
        effect::Lookup,
        event::{Begun, CellData, ClockQuality, Completion, HostBusy, OrphanTask, Orphans},
        has_ended,
    },
};
use benchmesh_model::mesh::{AgentId, RunId, TaskId};
use benchmesh_plan::{PlannedStep, step_of_ordinal};
use benchmesh_store::{
    StoreError, off_runtime,
    rows::{RunRow, StepRow, TaskRow},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// A spool whose stored position does not move for this long is abandoned.
const ROWS_TIMEOUT: Duration = Duration::from_secs(60);
/// A spool that moves is waited for as long as it will be there within this time. An agent may name a last batch that
/// never comes, and go on sending others.
const MAX_ROWS_WAIT: Duration = Duration::from_secs(3600);

pub(crate) async fn lookup(inner: &Inner, lookup: Lookup) -> Result<Completion, StoreError> {
    let store = &inner.store;
    Ok(match lookup {
        Lookup::Environment { run, loss_after } => {
            Completion::Environment(environment::read(inner, run, loss_after).await?)
        }
        Lookup::Loop { run, number } => {
            let row = store.run(run).await?;
            let plan = super::load::plan(row, number).await;
            Completion::Loop(plan.map(|plan| plan.steps))
        }
        Lookup::Probes(steps) => Completion::Probes(store.probes(&steps).await?),
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
            store.flush().await;
            let mut positions = BTreeMap::new();
            for agent in agents {
                positions.insert(agent, store.spool_positions(agent).await?);
            }
            Completion::Begun(Begun {
                without_rows: store.tasks_without_rows(step).await?,
                positions,
            })
        }
        Lookup::Orphans { agent, held } => {
            Completion::Orphans(orphans_of(inner, agent, &held).await?)
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
    let began = Instant::now();
    let mut position = spool_position(inner, agent, spool).await?.unwrap_or(0);
    loop {
        let stored = tokio::select! {
            stored = timeout(ROWS_TIMEOUT, inner.store.stored(agent, spool, sequence)) => stored,
            lost = inner.fleet.lost(agent, loss_after) => {
                // If the agent left after its last row, all of its rows are stored.
                let last = spool_position(inner, agent, spool).await?;
                return Ok(last.is_none_or(|last| last < sequence).then(|| lost.to_string()));
            }
        };
        if let Ok(stored) = stored {
            return stored.map(|()| None);
        }
        let now = spool_position(inner, agent, spool).await?.unwrap_or(0);
        let (moved, left) = (now.saturating_sub(position), sequence.saturating_sub(now));
        if let Some(why) = why_abandoned(began.elapsed(), moved, left) {
            return Ok(Some(why));
        }
        position = now;
    }
}

/// Why to abandon a spool; `None`: keep waiting. `moved` batches arrived in the last `ROWS_TIMEOUT`, and `left` are
/// missing.
fn why_abandoned(waited: Duration, moved: u64, left: u64) -> Option<String> {
    if moved == 0 {
        let within = ROWS_TIMEOUT.as_secs();
        return Some(format!("no rows arrived for {within} s"));
    }
    let needed = left.div_ceil(moved).saturating_mul(ROWS_TIMEOUT.as_secs());
    let late = waited.as_secs().saturating_add(needed) > MAX_ROWS_WAIT.as_secs();
    late.then(|| {
        format!(
            "{left} batches of its spool are still missing, and only {moved} arrived in {} s",
            ROWS_TIMEOUT.as_secs()
        )
    })
}

/// The last sequence that is stored of a spool.
async fn spool_position(
    inner: &Inner,
    agent: AgentId,
    spool: &str,
) -> Result<Option<u64>, StoreError> {
    inner.store.flush().await;
    let positions = inner.store.spool_positions(agent).await?;
    let completion = positions.into_iter().find(|(known, _)| known == spool);
    Ok(completion.map(|(_, last)| last))
}

async fn orphans_of(inner: &Inner, agent: AgentId, held: &[TaskId]) -> Result<Orphans, StoreError> {
    let mut orphans = OrphanTasks::default();
    for task in held {
        add_orphan(inner, *task, &mut orphans).await?;
    }
    Ok(Orphans {
        tasks: planned_orphans(orphans).await,
        directories: inner.store.directories_left(agent).await?,
    })
}

/// Tasks that no run waits for any longer.
#[derive(Debug, Default)]
struct OrphanTasks {
    tasks: Vec<OrphanTask>,
    /// Tasks with data that no run uses any longer: indexes in `tasks`, and their steps.
    unused: Vec<(usize, StepRow)>,
    /// The runs of these steps.
    runs: BTreeMap<RunId, RunRow>,
}

async fn planned_orphans(orphans: OrphanTasks) -> Vec<OrphanTask> {
    off_runtime(move || orphans.with_data()).await
}

impl OrphanTasks {
    /// Plans each loop of a run once, which takes long where it has many steps.
    fn with_data(mut self) -> Vec<OrphanTask> {
        let loops = self
            .unused
            .iter()
            .map(|(_, step)| (step.run, step.loop_number));
        let loops: BTreeSet<(RunId, u32)> = loops.collect();
        for (id, number) in loops {
            let Some(run) = self.runs.get(&id) else {
                continue;
            };
            let Ok((_, _, expansion)) = admission::expanded(run, number) else {
                continue;
            };
            let of_loop = self
                .unused
                .iter()
                .filter(|(_, step)| (step.run, step.loop_number) == (id, number));
            for (place, step) in of_loop {
                if let Some(orphan) = self.tasks.get_mut(*place) {
                    orphan.data = cell_data(run, &expansion.steps, step, &orphan.task);
                }
            }
        }
        self.tasks
    }
}

/// Adds nothing where the run under way still waits for the task, or it is not known.
async fn add_orphan(
    inner: &Inner,
    task: TaskId,
    orphans: &mut OrphanTasks,
) -> Result<(), StoreError> {
    let Some(task) = inner.store.task(task).await? else {
        return Ok(());
    };
    let step = inner.store.step(task.step).await?;
    let run = inner.store.run(step.run).await?;
    if !run.state.is_end() && !step.state.is_end() && !has_ended(task.state) {
        return Ok(());
    }
    let used = !run.state.is_end() && is_used(inner, run.id, &step).await?;
    orphans.tasks.push(OrphanTask {
        run: run.id,
        ordinal: step.ordinal,
        task,
        data: None,
    });
    if !used {
        orphans.unused.push((orphans.tasks.len() - 1, step));
        orphans.runs.entry(run.id).or_insert(run);
    }
    Ok(())
}

/// Whether a mode of the cell is still to come, or under way.
async fn is_used(inner: &Inner, run: RunId, step: &StepRow) -> Result<bool, StoreError> {
    let steps = inner.store.steps_of_loop(run, step.loop_number).await?;
    Ok(steps.iter().any(|other| {
        other.cell == step.cell && other.attempt == step.attempt && !other.state.is_end()
    }))
}

/// The data of a task, from the run's steps.
fn cell_data(
    run: &RunRow,
    steps: &[PlannedStep],
    step: &StepRow,
    task: &TaskRow,
) -> Option<CellData> {
    let planned = step_of_ordinal(steps, step.ordinal)?;
    let place = planned
        .tasks
        .get(usize::try_from(task.client_index).ok()?)?;
    (!planned.path.is_empty()).then(|| CellData {
        run_uid: run.uid.clone(),
        path: planned.path.clone(),
        cell: planned.directory(place.load, step.attempt),
        task_index: place.index,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::agents::{RunAgent, RunAgents};
    use benchmesh_model::mesh::{MeshMicros, RunState, StepId, StepState, TaskState};
    use benchmesh_plan as plan;
    use benchmesh_testing::beats_meanwhile;

    const STEPS: u32 = 4000;

    #[test]
    fn a_spool_that_will_not_be_here_in_time_is_given_up() {
        let abandoned = |waited_s, moved, left| {
            why_abandoned(Duration::from_secs(waited_s), moved, left).is_some()
        };
        assert!(abandoned(60, 0, 1));
        assert!(!abandoned(60, 1, 1));
        // An hour's spool of a batch a second, at ten times that rate.
        assert!(!abandoned(60, 600, 3600));
        assert!(!abandoned(3540, 600, 600));
        // A last batch that the agent never had.
        assert!(abandoned(60, 10_000, u64::MAX));
        assert!(abandoned(3600, 1, 1));
    }

    fn run() -> RunRow {
        let text = "repeat = 1000\n[targets.t]\nsystem = \"local\"\npath = \"/mnt/t\"\n[[phase]]\nworkload = \"files\"\n\
                    modes = [\"create\"]\nmatrix = { numjobs = [1, 2, 3, 4] }\n";
        let plan = plan::parse(text, "p.toml").unwrap();
        let agents = (1..).map(AgentId).zip(plan::assumed_agents(&plan, 3));
        let agents = agents.map(|(id, facts)| RunAgent {
            id,
            uid: String::new(),
            facts,
        });
        RunRow {
            id: RunId(1),
            uid: "run".to_owned(),
            name: "p.toml".to_owned(),
            plan_text: text.to_owned(),
            agents_json: RunAgents::new(agents.collect()).to_json(),
            order_seed: None,
            state: RunState::Done,
            partial: false,
            reason: None,
            created: MeshMicros(0),
            due: None,
            started: None,
            ended: None,
            version: String::new(),
            stop_reason: None,
            halted: None,
            paused_us: 0,
            paused_from: None,
        }
    }

    fn step(ordinal: u32) -> StepRow {
        StepRow {
            id: StepId(i64::from(ordinal)),
            run: RunId(1),
            ordinal,
            loop_number: 1,
            repeat: 0,
            attempt: 1,
            phase: String::new(),
            cell: String::new(),
            target: String::new(),
            system: String::new(),
            workload: String::new(),
            mode: String::new(),
            params_json: String::new(),
            clients: 3,
            cache: String::new(),
            state: StepState::Done,
            partial: false,
            flags_json: String::new(),
            reason: None,
            start: None,
            ended: None,
        }
    }

    fn orphan(ordinal: u32) -> OrphanTask {
        let task = TaskRow {
            id: TaskId(1),
            step: StepId(i64::from(ordinal)),
            task_index: 0,
            part: 1,
            client_index: 0,
            agent: AgentId(1),
            peer: None,
            state: TaskState::Lost,
            workers: 1,
            start: None,
            skew_us: None,
            skew_error_us: None,
            first_done: None,
            ended: None,
            last_begun: None,
            cpu_user_us: None,
            cpu_system_us: None,
            wait_cpu_us: None,
            harness_ns_per_op: None,
            error: None,
            last_batch: None,
        };
        OrphanTask {
            task,
            run: RunId(1),
            ordinal,
            data: None,
        }
    }

    /// One expansion finds the data of many tasks of a long plan. It runs outside of the runtime's only thread.
    #[tokio::test]
    async fn what_tasks_have_left_is_planned_beside_the_runtime() {
        let orphans = OrphanTasks {
            tasks: (1..=STEPS).map(orphan).collect(),
            unused: (0..STEPS - 1)
                .map(|at| (at as usize, step(at + 1)))
                .collect(),
            runs: BTreeMap::from([(RunId(1), run())]),
        };
        let (tasks, beats) = beats_meanwhile(planned_orphans(orphans)).await;
        let with_data = tasks.iter().filter(|orphan| orphan.data.is_some()).count();
        assert_eq!(with_data, STEPS as usize - 1);
        assert!(beats > 0, "nothing else ran meanwhile");
    }
}
