//! A small mesh in a temporary database, and helpers shared by the tests of the store.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

mod annotations;
mod archived;
mod columns;
mod dedupe;
mod faults;
mod former;
mod gathered;
mod grown;
mod host_usage;
mod hostile;
mod identity;
mod imported;
mod late;
mod links;
mod maintained;
mod one_row;
mod opening;
mod prune_running;
mod pruned;
mod pruned_with_new_rows;
mod readers;
mod reference;
mod scheduling;
mod usage;
mod views;
mod withheld;

use super::rows::{
    FinishedStep, NewAgent, NewHost, NewRun, NewStep, NewTask, RunChange, StepChange,
};
use super::{Store, StoreError};
use crate::Publisher;
use crate::distribution::Distribution;
use crate::ingest::Batch;
use crate::ingest::batch::{DaemonSample, DaemonSeen, HostSample, OpInterval, Process, TaskEnd};
use benchmesh_model::figures::{DaemonFigures, Figures, HostFigures};
use benchmesh_model::mesh::{
    AgentId, HostId, MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState,
};
use benchmesh_workloads::histogram::Histogram;
use std::path::PathBuf;
use tempfile::TempDir;

/// An instant in 2025, on a whole second.
pub(super) const T0: i64 = 1_750_000_000_000_000;
pub(super) const S: i64 = 1_000_000;

pub(super) struct Mesh {
    pub directory: TempDir,
    pub store: Store,
}

impl Mesh {
    pub async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("mesh.db"))
            .await
            .unwrap();
        Self { directory, store }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mesh.db")
    }

    pub async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Store::open(&self.path()).await.unwrap();
    }

    pub async fn agent(&self, name: &str) -> (AgentId, HostId) {
        self.store.attach_agent(new_agent(name)).await.unwrap()
    }

    pub async fn run(&self, uid: &str) -> RunId {
        let run = NewRun {
            uid: uid.to_owned(),
            name: format!("run {uid}"),
            plan_text: "name = 'x'".to_owned(),
            agents_json: "[]".to_owned(),
            order_seed: None,
            created: MeshMicros(T0),
            due: None,
            version: "0".to_owned(),
        };
        self.store.create_run(run).await.unwrap().0
    }

    /// A started step with one task per agent.
    pub async fn step(
        &self,
        run: RunId,
        step: NewStep,
        agents: &[AgentId],
    ) -> (StepId, Vec<TaskId>) {
        let id = self.store.create_steps(run, vec![step]).await.unwrap()[0];
        let tasks = agents
            .iter()
            .enumerate()
            .map(|(index, agent)| new_task(*agent, index as u32))
            .collect();
        let tasks = self.tasks(id, tasks).await;
        self.begun(id).await;
        (id, tasks)
    }

    pub async fn tasks(&self, step: StepId, tasks: Vec<NewTask>) -> Vec<TaskId> {
        self.store.create_tasks(step, tasks).await.unwrap()
    }

    /// Marks the step as running since `T0`.
    pub async fn begun(&self, step: StepId) {
        let change = StepChange {
            state: StepState::Running,
            at: MeshMicros(T0),
            start: Some(MeshMicros(T0)),
            ended: None,
            reason: None,
        };
        self.store.set_step_state(step, change).await.unwrap();
    }

    pub async fn finish(&self, step: StepId, ended: i64) -> benchmesh_results::StepResults {
        let finished = FinishedStep {
            state: StepState::Done,
            partial: false,
            ended: MeshMicros(ended),
            reason: None,
        };
        self.store.finish_step(step, finished).await.unwrap()
    }

    pub async fn publisher(&self, name: &str) -> (Publisher, AgentId, HostId) {
        let (agent, host) = self.agent(name).await;
        let publisher = self.store.publisher(agent, host, "net:1".to_owned());
        (publisher, agent, host)
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(self.store.reader())
            .await
            .unwrap()
    }

    /// Runs SQLite's checks of the file.
    pub async fn assert_sound(&self) {
        let integrity: String = sqlx::query_scalar("PRAGMA integrity_check")
            .fetch_one(self.store.reader())
            .await
            .unwrap();
        assert_eq!(integrity, "ok");
        let strays = sqlx::query("PRAGMA foreign_key_check")
            .fetch_all(self.store.reader())
            .await
            .unwrap();
        assert!(strays.is_empty(), "rows without their parents");
    }
}

pub(super) fn new_agent(name: &str) -> NewAgent {
    NewAgent {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        host: NewHost {
            boot_id: "boot".to_owned(),
            pid_namespace: format!("pid-{name}"),
            name: format!("host-{name}"),
            kernel: "Linux 6.18".to_owned(),
            cpus: 2,
            memory_bytes: 8 << 30,
        },
        labels_json: r#"{"role":"client"}"#.to_owned(),
        version: "0".to_owned(),
        may_rename: false,
        describes_host: true,
        at: MeshMicros(T0),
    }
}

pub(super) fn new_step(ordinal: u32, workload: &str, mode: &str) -> NewStep {
    NewStep {
        groups: Vec::new(),
        ordinal,
        loop_number: 1,
        repeat: 1,
        attempt: 1,
        phase: "small files".to_owned(),
        cell: "r1-p1-c1-t1".to_owned(),
        target: "cephfs".to_owned(),
        system: "cephfs".to_owned(),
        workload: workload.to_owned(),
        mode: mode.to_owned(),
        params_json: r#"{"files":10}"#.to_owned(),
        clients: 1,
        cache: "asis".to_owned(),
    }
}

/// A task of one worker, in no group and with no peer.
pub(super) fn new_task(agent: AgentId, task_index: u32) -> NewTask {
    NewTask {
        group: String::new(),
        agent,
        peer: None,
        task_index,
        workers: 1,
        link_bytes_per_s: None,
    }
}

pub(super) fn running(at: i64) -> RunChange {
    RunChange {
        state: RunState::Running,
        partial: false,
        reason: None,
        at: MeshMicros(at),
    }
}

pub(super) fn batch(spool: &str, sequence: u64) -> Batch {
    Batch {
        spool_id: spool.to_owned(),
        first_sequence: sequence,
        sequence,
        ..Batch::default()
    }
}

pub(super) fn seen(pid: i32, name: &str, at: i64) -> DaemonSeen {
    DaemonSeen {
        process: Process {
            pid,
            start_ticks: 1000 + i64::from(pid),
        },
        name: name.to_owned(),
        instance: format!("{name}.{pid}"),
        cmdline: format!("/usr/bin/{name} -i {pid}"),
        version: String::new(),
        is_replaced: false,
        at: MeshMicros(at),
        ended: false,
        born: None,
        is_parent: false,
    }
}

/// CPU time is split 3 to 1 between user and system.
pub(super) fn sample(pid: i32, at: i64, cpu_us: i64, rss_bytes: i64) -> DaemonSample {
    DaemonSample {
        process: Process {
            pid,
            start_ticks: 1000 + i64::from(pid),
        },
        at: MeshMicros(at),
        figures: DaemonFigures {
            cpu_user_us: cpu_us * 3 / 4,
            cpu_system_us: cpu_us - cpu_us * 3 / 4,
            rss_bytes,
            vsz_bytes: rss_bytes * 2,
            threads: 4,
            fds: 10,
            read_bytes: cpu_us,
            vol_ctx: 1,
            invol_ctx: 2,
            minor_faults: 3,
            major_faults: 4,
            ..DaemonFigures::UNREAD
        },
    }
}

pub(super) fn host_sample(at: i64) -> HostSample {
    HostSample {
        at: MeshMicros(at),
        figures: HostFigures::from_values(std::iter::repeat(0)),
        busy_others: None,
    }
}

/// `ops` operations of 4 KiB and of `ns` each, in the second that begins at `at`.
pub(super) fn interval(task: TaskId, at: i64, op: &str, ops: u64, ns: u64) -> OpInterval {
    let mut service = Histogram::new();
    for _ in 0..ops {
        service.record(ns);
    }
    OpInterval {
        task,
        run_uid: String::new(),
        at: MeshMicros(at),
        span_us: S,
        op: op.to_owned(),
        ramp: false,
        ops: ops as i64,
        bytes: ops as i64 * 4096,
        undated_bytes: 0,
        errors: 0,
        in_flight: 0,
        service: Distribution::from(&service),
        response: None,
    }
}

pub(super) fn task_end(task: TaskId, skew_us: i64, ended: i64) -> TaskEnd {
    TaskEnd {
        task,
        run_uid: String::new(),
        state: TaskState::Done,
        workers: 1,
        start: Some(MeshMicros(T0)),
        skew_us,
        skew_error_us: 10,
        first_done: Some(MeshMicros(ended)),
        ended: Some(MeshMicros(ended)),
        last_begun: Some(MeshMicros(ended)),
        cpu_user_us: Some(1),
        cpu_system_us: Some(1),
        wait_cpu_us: Some(0),
        harness_ns_per_op: 50,
        error: None,
        errors: Vec::new(),
    }
}

/// Submits and waits for the commit.
pub(super) async fn send(
    publisher: &Publisher,
    batch: Batch,
) -> Result<u64, crate::ingest::IngestError> {
    Ok(publisher.submit(batch).await?.await?.sequence)
}

pub(super) fn message(error: &StoreError) -> String {
    error.to_string()
}
