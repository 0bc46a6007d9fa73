//! Commands become tasks here: one actor holds them, each is prepared and run on threads of its own.
//!
//! Every command is answered exactly once, and may come again: it is idempotent by the task's id. The session is never
//! held up: whatever may block runs on its own OS thread. Without contact for longer than a task's lease, its load is
//! stopped. It knows nothing of gRPC; what is allowed was decided by the agent's configuration, not by the collector.

mod caches;
mod claimed_task;
mod denials;
mod follow;
mod link_speed;
mod permissions;
mod reply;
mod running;
mod sampling;
mod slots;
mod survey;
mod task_events;

pub use permissions::Permissions;
pub use reply::ReplyHandle;
pub use sampling::SamplerControl;

use crate::clock::Estimate;
use crate::command::{Command, Ended, Refusal, Sampling};
use crate::envelope::Sequence;
use crate::policy::Denial;
use crate::spool::{Acked, Entry};
use benchmesh_workloads::clock::MonoNanos;
use claimed_task::ClaimedTask;
use slots::{Preparation, RunPath, Slots};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot, watch as watch_channel};
use tokio::task::JoinHandle;

use crate::telemetry::TaskId;

/// Orders that wait for the actor, which answers each at once: more than a scheduler asks of one agent in a moment.
const ORDERS: usize = 256;

/// When the collector was last heard.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<AtomicU64>);

impl Contact {
    /// Records contact now.
    pub fn touch(&self) {
        self.0.store(MonoNanos::now().0, Ordering::Relaxed);
    }

    /// When.
    #[must_use]
    pub fn last(&self) -> MonoNanos {
        MonoNanos(self.0.load(Ordering::Relaxed))
    }
}

/// What the actor is told.
#[derive(Debug)]
enum Order {
    Do(Box<Command>, mpsc::Sender<crate::wire::reply::Outgoing>),
    Appoint(Sampling),
    Mesh(String),
    Restored(Sequence),
    /// This agent has made a run's directory; what was acked before.
    Made(RunPath, Sequence),
    Removed(RunPath),
    Held(oneshot::Sender<Vec<i64>>),
    Prepared(TaskId, Preparation, Result<Box<ClaimedTask>, Refusal>),
    /// The preparation hangs and is abandoned.
    AbandonPreparation(TaskId, Preparation, Refusal),
    /// Too little is left free on the task's target.
    FloorReached(TaskId, Denial),
    /// The workers of a task have ended.
    LoadOver(TaskId),
    Ended(TaskId, Ended),
    StopAll(oneshot::Sender<()>),
}

/// What the actor needs of the others.
#[derive(Debug)]
pub struct RunnerDeps {
    pub permissions: Permissions,
    pub watch: SamplerControl,
    pub clock: watch_channel::Receiver<Option<Estimate>>,
    pub entries: mpsc::Sender<Entry>,
    pub acked: Acked,
    pub contact: Contact,
    /// Where the raw starts of workers are written.
    pub start_log: Option<Arc<Path>>,
    /// The host or address where other agents reach this one.
    pub advertised: Option<String>,
}

/// The way to the actor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    orders: mpsc::Sender<Order>,
}

impl Runner {
    /// Starts the actor.
    #[must_use]
    pub fn start(deps: RunnerDeps) -> (Self, JoinHandle<()>) {
        let (orders, orders_in) = mpsc::channel(ORDERS);
        let slots = Slots::new(deps, orders.downgrade());
        let actor = tokio::spawn(run(slots, orders_in));
        (Self { orders }, actor)
    }

    /// Does it; the reply goes into `said`.
    pub async fn order(
        &self,
        command: Command,
        outgoing: mpsc::Sender<crate::wire::reply::Outgoing>,
    ) {
        self.tell(Order::Do(Box::new(command), outgoing)).await;
    }

    /// What the agent is to sample.
    pub async fn appoint(&self, sampling: Sampling) {
        self.tell(Order::Appoint(sampling)).await;
    }

    /// The mesh that the agent has attached to. The tasks of another are stopped and forgotten.
    pub async fn mesh(&self, uid: String) {
        self.tell(Order::Mesh(uid)).await;
    }

    /// The database was restored from a copy that has the written spool up to `stored`. Stops and forgets every task,
    /// removes the directories of runs that began after that copy, and lets the sampler announce its daemons anew.
    pub async fn database_restored(&self, stored: Sequence) {
        self.tell(Order::Restored(stored)).await;
    }

    /// The tasks that are prepared, run, or have ended and are not forgotten.
    pub async fn held(&self) -> Vec<i64> {
        let (reply, answer) = oneshot::channel();
        self.tell(Order::Held(reply)).await;
        answer.await.unwrap_or_default()
    }

    /// Stops the sampler and every task, and waits for their last rows.
    pub async fn stop_all(&self) {
        let (done, answer) = oneshot::channel();
        self.tell(Order::StopAll(done)).await;
        // An actor that has ended has stopped everything.
        let _ = answer.await;
    }

    async fn tell(&self, order: Order) {
        // The actor ends only after all of its handles.
        let _ = self.orders.send(order).await;
    }
}

async fn run(mut slots: Slots, mut orders: mpsc::Receiver<Order>) {
    loop {
        let next = [slots.next_lease(), slots.next_look()]
            .into_iter()
            .flatten()
            .min();
        let order = tokio::select! {
            order = orders.recv() => Some(order),
            () = until(next) => None,
        };
        // Before anything else: what is done next may end the task that stood still.
        slots.look(MonoNanos::now());
        slots.end_hours();
        slots.date_events();
        let Some(order) = order else {
            slots.end_leases();
            continue;
        };
        match order {
            None => return,
            Some(Order::Do(command, outgoing)) => slots.command(*command, outgoing),
            Some(Order::Appoint(sampling)) => slots.appoint(sampling),
            Some(Order::Mesh(uid)) => slots.mesh(uid),
            Some(Order::Restored(stored)) => slots.database_restored(stored),
            Some(Order::Made(path, acked)) => slots.made(path, acked),
            Some(Order::Removed(path)) => slots.removed(&path),
            Some(Order::Held(reply)) => {
                let _ = reply.send(slots.held());
            }
            Some(Order::Prepared(task, preparation, result)) => {
                slots.prepared(task, preparation, result);
            }
            Some(Order::AbandonPreparation(task, preparation, why)) => {
                slots.abandon_preparation(task, preparation, why);
            }
            Some(Order::FloorReached(task, denial)) => slots.end_for_floor(task, &denial),
            Some(Order::LoadOver(task)) => slots.load_over(task),
            Some(Order::Ended(task, ended)) => slots.ended(task, ended),
            Some(Order::StopAll(done)) => {
                if let Some(sampler) = slots.stop_sampler() {
                    // It ends within one sample, and its last one is wanted in the spool.
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
