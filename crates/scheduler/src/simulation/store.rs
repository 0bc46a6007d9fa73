//! The database of a schedule: a real one in memory, written and read as the scheduler does it. Its rows are copied
//! for the checks whenever SQLite says that they have changed.

use crate::{
    Inner, Scheduler,
    driver::{load, reads, results},
    machine::{
        effect::Lookup,
        event::{Completion, LoadedRun},
    },
    sessions::Fleet,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId, StepId, StepState, TaskId};
use benchmesh_proto::v1;
use benchmesh_store::{
    DirectoryLeft, Doing, Store, StoreError,
    clock::MeshClock,
    ingest::batch::Batch,
    rows::{
        Anchor, FinishedStep, NewAgent, NewEvent, NewHost, NewRun, Row, RunRow, StepRow, TaskRow,
    },
};
use sqlx::sqlite::UpdateHookResult;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};
use tokio::runtime::{Builder, Runtime};

const RUN: RunId = RunId(1);

/// Each step and run ends once.
const SETUP: &str = "
    CREATE TRIGGER step_ends_once BEFORE UPDATE OF state ON steps WHEN OLD.state IN ('done', 'failed', 'stopped')
    BEGIN SELECT RAISE(ABORT, 'a step ends twice'); END;
    CREATE TRIGGER run_ends_once BEFORE UPDATE OF state ON runs
    WHEN OLD.state IN ('done', 'failed', 'stopped') AND NEW.state <> 'queued'
    BEGIN SELECT RAISE(ABORT, 'a run ends twice'); END;";

/// Tables and ids.
type Changed = BTreeSet<(String, i64)>;

pub(super) struct SimStore {
    inner: Arc<Inner>,
    runtime: Runtime,
    changed: Arc<Mutex<Changed>>,
    pub run: RunRow,
    /// Every attempt.
    pub steps: Vec<StepRow>,
    pub tasks: Vec<TaskRow>,
    /// Those of the machine.
    pub events: Vec<NewEvent>,
    /// The run's environment was written.
    environment: bool,
    /// Steps that were ever running.
    pub ran: BTreeSet<StepId>,
    /// The run was resumed.
    pub pauses: Vec<(i64, i64)>,
    /// A request or the policy ended the load at one of its ends.
    pub was_halted: bool,
    /// Steps that no resumption may repeat.
    pub kept: BTreeSet<StepId>,
}

impl SimStore {
    /// With a queued run, and the agents that it needs, which have the ids from 1 on.
    pub fn new(run: NewRun, agents: &[AgentId]) -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let changed = Arc::new(Mutex::new(Changed::new()));
        let begin = begin(run, agents, Arc::clone(&changed));
        let (store, run) = runtime.block_on(begin).unwrap();
        let clock = Arc::new(MeshClock::new(Anchor {
            boot_id: String::new(),
            boottime_ns: 0,
            mesh_us: MeshMicros(0),
        }));
        let fleet = Fleet::new(&store, Arc::clone(&clock));
        let inner = Scheduler::new(&store, clock, fleet).0;
        Self {
            inner,
            runtime,
            changed,
            run,
            steps: Vec::new(),
            tasks: Vec::new(),
            events: Vec::new(),
            environment: false,
            ran: BTreeSet::new(),
            pauses: Vec::new(),
            was_halted: false,
            kept: BTreeSet::new(),
        }
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> T {
        self.runtime.block_on(work).unwrap()
    }

    /// Copies what a write has changed.
    fn refresh(&mut self) {
        let changed = std::mem::take(&mut *self.changed.lock().unwrap());
        let store = self.inner.store.clone();
        for (table, id) in changed {
            match table.as_str() {
                "runs" => {
                    let run = self.wait(store.run(RUN));
                    let paused_us = run.paused_us - self.run.paused_us;
                    let from = self.run.paused_from.filter(|_| run.paused_from.is_none());
                    self.pauses
                        .extend(from.map(|from| (from.0, from.0 + paused_us)));
                    self.run = run;
                }
                "steps" => {
                    let step = self.wait(store.step(StepId(id)));
                    put(&mut self.steps, id, step);
                }
                _ => {
                    let task = self.wait(store.task(TaskId(id)));
                    put(&mut self.tasks, id, task.unwrap());
                }
            }
        }
    }

    /// Commits one transaction of the machine. Returns the new ids.
    pub fn apply(&mut self, rows: &[Row]) -> Vec<Vec<i64>> {
        for row in rows {
            match row {
                Row::Environment { .. } => {
                    assert!(!self.environment, "the environment is written twice");
                    self.environment = true;
                }
                Row::Steps { .. } => {
                    assert!(self.environment, "steps are made before the environment");
                }
                Row::Step { step, change } if change.state == StepState::Running => {
                    self.ran.insert(*step);
                }
                Row::Event(event) => self.events.push(event.clone()),
                _ => {}
            }
        }
        let made = self.wait(self.inner.store.apply(rows.to_vec()));
        self.refresh();
        made
    }

    pub fn finish(&mut self, step: StepId, finished: FinishedStep) -> Completion {
        let completion = self.wait(results::finish(&self.inner, RUN, 0, step, finished));
        self.refresh();
        completion
    }

    /// Stores a batch of an agent's spool.
    pub fn ingest(&mut self, agent: AgentId, batch: v1::Batch) {
        let host = HostId(agent.0);
        let publisher = self.inner.store.publisher(agent, host, String::new());
        let batch = Batch::try_from(batch).unwrap();
        let stored = async { publisher.submit(batch).await?.await };
        self.runtime.block_on(stored).unwrap();
        self.refresh();
    }

    /// Whether the rows of an agent are stored up to a sequence.
    pub fn has_rows(&self, agent: AgentId, sequence: u64) -> bool {
        let positions = self.wait(self.inner.store.spool_positions(agent));
        positions.iter().any(|(_, last)| *last >= sequence)
    }

    pub fn store_stop_request(&mut self, reason: String, at: MeshMicros) {
        self.wait(self.inner.store.store_stop_request(RUN, reason, at));
        self.refresh();
    }

    pub fn request_last_loop(&mut self, at: MeshMicros) {
        let message = String::from("enough");
        let request = NewEvent {
            run: Some(RUN),
            ..NewEvent::new(at, EventKind::LastLoopRequested, message)
        };
        self.wait(self.inner.store.add_event(request));
        self.refresh();
    }

    /// Queues an ended run again. False: it has not ended.
    pub fn resume(&mut self) -> bool {
        let was_halted = self.run.halted.is_some();
        let resumed = self.wait(self.inner.store.resume_run(RUN, Vec::new()));
        self.was_halted |= resumed && was_halted;
        self.refresh();
        resumed
    }

    pub fn load(&self) -> Option<Box<LoadedRun>> {
        self.wait(load::load(&self.inner, None))
    }

    pub fn lookup(&self, lookup: Lookup) -> Completion {
        self.wait(reads::lookup(&self.inner, lookup))
    }

    pub fn step(&self, step: StepId) -> &StepRow {
        &self.steps[usize::try_from(step.0).unwrap() - 1]
    }

    pub fn task(&self, task: TaskId) -> &TaskRow {
        &self.tasks[usize::try_from(task.0).unwrap() - 1]
    }

    pub fn tasks_of(&self, step: StepId) -> Vec<TaskRow> {
        let tasks = self.tasks.iter().filter(|task| task.step == step);
        tasks.cloned().collect()
    }

    /// The newest attempt of each step, in order.
    pub fn newest_steps(&self) -> Vec<StepRow> {
        self.wait(self.inner.store.steps(RUN))
    }

    /// The directories that stay on an agent and have not been removed since.
    pub fn directories_left(&self, agent: AgentId) -> Vec<DirectoryLeft> {
        self.wait(self.inner.store.directories_left(agent))
    }
}

/// Rows are numbered from 1 on, without a gap.
fn put<T>(rows: &mut Vec<T>, id: i64, row: T) {
    let place = usize::try_from(id).unwrap() - 1;
    match rows.get_mut(place) {
        Some(known) => *known = row,
        None => {
            assert_eq!(rows.len(), place);
            rows.push(row);
        }
    }
}

async fn begin(
    run: NewRun,
    agents: &[AgentId],
    changed: Arc<Mutex<Changed>>,
) -> Result<(Store, RunRow), StoreError> {
    const DOING: &str = "begin a schedule";
    let store = Store::in_memory().await?;
    let mut connection = store.reader().acquire().await.doing(DOING)?;
    let setup = sqlx::raw_sql(SETUP).execute(&mut *connection).await;
    setup.doing(DOING)?;
    let note = move |row: UpdateHookResult<'_>| {
        if ["runs", "steps", "tasks"].contains(&row.table) {
            let row = (row.table.to_owned(), row.rowid);
            changed.lock().unwrap().insert(row);
        }
    };
    let handle = connection.lock_handle().await;
    handle.doing(DOING)?.set_update_hook(note);
    drop(connection);
    for agent in agents {
        let agent_of = NewAgent {
            uid: format!("uid-{agent}"),
            name: format!("agent-{agent}"),
            host: NewHost {
                boot_id: format!("boot-{agent}"),
                pid_namespace: String::from("pid"),
                name: format!("host-{agent}"),
                kernel: String::from("Linux"),
                cpus: 1,
                memory_bytes: 1 << 30,
            },
            labels_json: String::from("{}"),
            version: String::from("0"),
            may_rename: false,
            describes_host: true,
            at: run.created,
        };
        let known = store.attach_agent(agent_of).await?;
        assert_eq!(known, (*agent, HostId(agent.0)));
    }
    store.create_run(run).await?;
    let run = store.run(RUN).await?;
    Ok((store, run))
}
