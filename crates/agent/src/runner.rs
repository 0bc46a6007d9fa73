//! The runner turns commands into tasks: one actor owns them, and each is prepared and run on threads of its own.
//!
//! Every command is answered exactly once and may be repeated: it is idempotent by the task's id. The session is never
//! blocked: anything that may block runs on its own OS thread. Without contact for longer than a task's lease, the
//! task's load is stopped. The runner does not know about gRPC. The agent's configuration, not the collector, decides
//! which load is allowed.

mod caches;
mod claimed_task;
mod cluster;
mod denials;
mod follow;
mod link_speed;
mod per_minute;
mod permissions;
mod reply;
mod run_mounts;
mod running;
mod sampling;
mod slots;
mod space;
mod survey;
mod task_events;

pub use cluster::{ClusterConfig, ClusterWatch};
pub use permissions::Permissions;
pub use reply::ReplyHandle;
pub use run_mounts::RunMounts;
pub use sampling::SamplerControl;
pub use space::SpaceWatch;

use crate::clock::{Dating, Gap};
use crate::command::{Command, Refusal, Sampling, TaskEnded};
use crate::envelope::Sequence;
use crate::policy::Denial;
use crate::spool::{Acked, SpoolEntry};
use benchmesh_workloads::clock::MonoNanos;
use claimed_task::ClaimedTask;
use slots::{Preparation, RunPath, Slots};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::telemetry::TaskId;

/// Capacity of the actor's queue, more than a scheduler sends to one agent at once. The actor answers each request
/// immediately.
const REQUESTS: usize = 256;

/// Instant of the last contact with the collector.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<AtomicU64>);

impl Contact {
    /// Records contact now.
    pub fn touch(&self) {
        self.0.store(MonoNanos::now().0, Ordering::Relaxed);
    }

    /// The instant of the last contact.
    #[must_use]
    pub fn last(&self) -> MonoNanos {
        MonoNanos(self.0.load(Ordering::Relaxed))
    }
}

/// Requests to the actor, and the results of its threads.
#[derive(Debug)]
enum RunnerRequest {
    Do(Box<Command>, mpsc::Sender<crate::wire::reply::Outgoing>),
    Appoint(Sampling),
    Mesh(String),
    Restored(Sequence),
    /// A jump between mesh time and this agent's clock.
    ClockGap(Gap),
    /// This agent has created a run's directory; with the position that was acked before.
    Made(RunPath, Sequence),
    Removed(RunPath),
    ListTasks(oneshot::Sender<Vec<i64>>),
    Prepared(TaskId, Preparation, Result<Box<ClaimedTask>, Refusal>),
    /// The preparation hangs and is abandoned.
    AbandonPreparation(TaskId, Preparation, Refusal),
    /// Free space on the task's target is below the policy's floor.
    FloorReached(TaskId, Denial),
    /// The workers of a task have ended.
    LoadOver(TaskId),
    Ended(TaskId, TaskEnded),
    /// The receiving end of a link is closed, and its ports are free.
    ReceiverClosed,
    StopAll(oneshot::Sender<()>),
}

/// Dependencies of the actor.
#[derive(Debug)]
pub struct RunnerDeps {
    pub permissions: Permissions,
    pub watch: SamplerControl,
    pub cluster: ClusterWatch,
    pub space: SpaceWatch,
    pub dating: Dating,
    pub entries: mpsc::Sender<SpoolEntry>,
    pub acked: Acked,
    pub contact: Contact,
    /// File for the raw starts of workers.
    pub start_log: Option<Arc<Path>>,
}

/// Handle to the actor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    requests: mpsc::Sender<RunnerRequest>,
}

impl Runner {
    /// Starts the actor.
    #[must_use]
    pub fn start(deps: RunnerDeps) -> (Self, JoinHandle<()>) {
        let (requests, requests_in) = mpsc::channel(REQUESTS);
        let slots = Slots::new(deps, requests.downgrade());
        let actor = tokio::spawn(run(slots, requests_in));
        (Self { requests }, actor)
    }

    /// Executes a command; the reply goes into `outgoing`.
    pub async fn execute(
        &self,
        command: Command,
        outgoing: mpsc::Sender<crate::wire::reply::Outgoing>,
    ) {
        self.send(RunnerRequest::Do(Box::new(command), outgoing))
            .await;
    }

    /// Sets the samples that the agent takes.
    pub async fn appoint(&self, sampling: Sampling) {
        self.send(RunnerRequest::Appoint(sampling)).await;
    }

    /// Sets the mesh that the agent is attached to. Tasks of another mesh are stopped and forgotten.
    pub async fn mesh(&self, uid: String) {
        self.send(RunnerRequest::Mesh(uid)).await;
    }

    /// Handles a database that was restored from a copy, which contains the written spool up to `stored`.
    ///
    /// Stops and forgets every task, removes the directories of runs that began after that copy, and makes the sampler
    /// announce its daemons again.
    pub async fn database_restored(&self, stored: Sequence) {
        self.send(RunnerRequest::Restored(stored)).await;
    }

    /// Records a jump between mesh time and this agent's clock in the running steps.
    pub async fn clock_gap(&self, gap: Gap) {
        self.send(RunnerRequest::ClockGap(gap)).await;
    }

    /// The tasks that are prepared, running, or ended and not yet forgotten.
    pub async fn held(&self) -> Vec<i64> {
        let (reply, answer) = oneshot::channel();
        self.send(RunnerRequest::ListTasks(reply)).await;
        answer.await.unwrap_or_default()
    }

    /// Stops the sampler and every task, and waits for their last rows.
    pub async fn stop_all(&self) {
        let (done, answer) = oneshot::channel();
        self.send(RunnerRequest::StopAll(done)).await;
        // An actor that has ended has stopped everything already.
        let _ = answer.await;
    }

    async fn send(&self, request: RunnerRequest) {
        // Cannot fail: the actor outlives all of its handles.
        let _ = self.requests.send(request).await;
    }
}

async fn run(mut slots: Slots, mut requests: mpsc::Receiver<RunnerRequest>) {
    loop {
        let next = [slots.next_lease(), slots.next_poll()]
            .into_iter()
            .flatten()
            .min();
        let request = tokio::select! {
            request = requests.recv() => Some(request),
            () = until(next) => None,
        };
        // Runs before the requests below, because they may end the task that was frozen.
        slots.poll(MonoNanos::now());
        slots.date_events();
        let Some(request) = request else {
            slots.end_leases();
            continue;
        };
        match request {
            None => return,
            Some(RunnerRequest::Do(command, outgoing)) => slots.command(*command, outgoing),
            Some(RunnerRequest::Appoint(sampling)) => slots.appoint(sampling),
            Some(RunnerRequest::Mesh(uid)) => slots.mesh(uid),
            Some(RunnerRequest::Restored(stored)) => slots.database_restored(stored),
            Some(RunnerRequest::ClockGap(gap)) => slots.note_gap(gap),
            Some(RunnerRequest::Made(path, acked)) => slots.made(path, acked),
            Some(RunnerRequest::Removed(path)) => slots.removed(&path),
            Some(RunnerRequest::ListTasks(reply)) => {
                let _ = reply.send(slots.held());
            }
            Some(RunnerRequest::Prepared(task, preparation, result)) => {
                slots.prepared(task, preparation, result);
            }
            Some(RunnerRequest::AbandonPreparation(task, preparation, why)) => {
                slots.abandon_preparation(task, preparation, why);
            }
            Some(RunnerRequest::FloorReached(task, denial)) => slots.end_for_floor(task, &denial),
            Some(RunnerRequest::LoadOver(task)) => slots.load_over(task),
            Some(RunnerRequest::Ended(task, ended)) => slots.ended(task, ended),
            Some(RunnerRequest::ReceiverClosed) => slots.receiver_closed(),
            Some(RunnerRequest::StopAll(done)) => {
                if let Some(sampler) = slots.stop_sampler() {
                    // The sampler ends within one sample, and its last sample belongs in the spool.
                    let _ = tokio::task::spawn_blocking(move || sampler.join()).await;
                }
                slots.stop_all(done);
            }
        }
    }
}

async fn until(lease: Option<std::time::Duration>) {
    match lease {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
