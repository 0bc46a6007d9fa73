//! Commands become tasks here: one actor holds them, each is prepared and run on threads of its own.
//!
//! Every command is answered exactly once, and may come again: it is idempotent by the task's id. The session is never
//! held up: whatever may block runs on its own OS thread. Without contact for longer than a task's lease, its load is
//! stopped. It knows nothing of gRPC; what is allowed was decided by the agent's configuration, not by the collector.

pub mod command;

mod caches;
mod follow;
mod link;
mod place;
mod running;
mod slots;
mod survey;
mod tidings;
mod voice;
mod watch;

pub use place::Grounds;
pub use voice::Voice;
pub use watch::Watch;

use crate::clock::Estimate;
use crate::spool::Entry;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::Task;
use command::{Command, Ended, Refusal, Sampling};
use slots::Slots;
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
    /// It was heard now.
    pub fn heard(&self) {
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
    Do(Box<Command>, mpsc::Sender<crate::wire::reply::Said>),
    Appoint(Sampling),
    Mesh(String),
    Held(oneshot::Sender<Vec<i64>>),
    Prepared(TaskId, Result<Box<Task>, Refusal>),
    /// Its preparation hangs, and is not waited for.
    LeftPreparing(TaskId, Refusal),
    Ended(TaskId, Ended),
    StopAll(oneshot::Sender<()>),
}

/// What the actor needs of the others.
#[derive(Debug)]
pub struct Surroundings {
    pub grounds: Grounds,
    pub watch: Watch,
    pub clock: watch_channel::Receiver<Option<Estimate>>,
    pub entries: mpsc::Sender<Entry>,
    pub contact: Contact,
    /// Where the raw starts of workers are written.
    pub start_log: Option<Arc<Path>>,
}

/// The way to the actor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    orders: mpsc::Sender<Order>,
}

impl Runner {
    /// Starts the actor.
    #[must_use]
    pub fn start(surroundings: Surroundings) -> (Self, JoinHandle<()>) {
        let (orders, orders_in) = mpsc::channel(ORDERS);
        let slots = Slots::new(surroundings, orders.downgrade());
        let actor = tokio::spawn(run(slots, orders_in));
        (Self { orders }, actor)
    }

    /// Does it; the reply goes into `said`.
    pub async fn order(&self, command: Command, said: mpsc::Sender<crate::wire::reply::Said>) {
        self.tell(Order::Do(Box::new(command), said)).await;
    }

    /// What the agent is to sample.
    pub async fn appoint(&self, sampling: Sampling) {
        self.tell(Order::Appoint(sampling)).await;
    }

    /// The mesh that the agent has attached to. The tasks of another are stopped and forgotten.
    pub async fn mesh(&self, uid: String) {
        self.tell(Order::Mesh(uid)).await;
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
        let lease = slots.next_lease();
        tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(Order::Do(command, said)) => slots.command(*command, said),
                Some(Order::Appoint(sampling)) => slots.appoint(sampling),
                Some(Order::Mesh(uid)) => slots.mesh(uid),
                Some(Order::Held(reply)) => {
                    let _ = reply.send(slots.held());
                }
                Some(Order::Prepared(task, result)) => slots.prepared(task, result),
                Some(Order::LeftPreparing(task, why)) => slots.leave_preparing(task, why),
                Some(Order::Ended(task, ended)) => slots.ended(task, ended),
                Some(Order::StopAll(done)) => {
                    if let Some(sampler) = slots.stop_sampler() {
                        // It ends within one sample, and its last one is wanted in the spool.
                        let _ = tokio::task::spawn_blocking(move || sampler.join()).await;
                    }
                    slots.stop_all(done);
                }
            },
            () = until(lease) => slots.end_leases(),
        }
    }
}

async fn until(lease: Option<std::time::Duration>) {
    match lease {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
