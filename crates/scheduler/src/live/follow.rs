//! Shows the figures of a run's running step, a few times per second.

pub use super::window::{Figures, TaskRate};
use super::{Feed, window::Window};
use benchmesh_model::mesh::{MeshMicros, StepId, TaskId};
use benchmesh_store::clock::MeshClock;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    sync::broadcast::error::{RecvError, TryRecvError},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

/// How often figures are computed while intervals come: watchers are told no more often.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);

/// What figures are shown on.
pub trait LiveView: Send + Sync + 'static {
    /// The step whose load runs, with its tasks; `None`: no load runs.
    fn running(&self) -> Option<(StepId, BTreeSet<TaskId>)>;
    /// New figures of that step, and when they came.
    fn show(&self, step: StepId, figures: &Figures, at: MeshMicros);
}

/// Follows what comes until it is dropped.
#[derive(Debug)]
pub struct Follower(JoinHandle<()>);

impl Follower {
    pub fn of(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Shows on `view` what comes of its running step.
pub fn follow(feed: &Feed, clock: Arc<MeshClock>, view: Arc<impl LiveView>) -> Follower {
    let mut intervals = feed.subscribe();
    Follower::of(async move {
        let mut window = Window::default();
        let mut step = None;
        loop {
            let mut batches = match intervals.recv().await {
                Ok(batch) => vec![batch],
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let show_at = Instant::now() + SHOW_INTERVAL;
            loop {
                match intervals.try_recv() {
                    Ok(batch) => batches.push(batch),
                    Err(TryRecvError::Lagged(_)) => {}
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                }
            }
            let Some((running, tasks)) = view.running() else {
                continue;
            };
            if step.replace(running) != Some(running) {
                window = Window::default();
            }
            for interval in batches.iter().flat_map(|batch| batch.iter()) {
                window.add(interval, &tasks);
            }
            view.show(running, &window.figures(&tasks), clock.now());
            // What comes meanwhile waits in the feed.
            sleep_until(show_at).await;
        }
    })
}
