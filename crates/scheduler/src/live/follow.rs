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

/// Interval between updates while intervals come; watchers are not notified more often.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);

/// The load of a step that runs now.
#[derive(Clone, Debug)]
pub struct RunningLoad {
    pub step: StepId,
    /// The planned start, from which its seconds are counted.
    pub start: MeshMicros,
    pub tasks: BTreeSet<TaskId>,
}

/// The display of the figures.
pub trait LiveView: Send + Sync + 'static {
    /// `None` if no load runs.
    fn running(&self) -> Option<RunningLoad>;
    /// Shows new figures of that step, with their arrival time.
    fn show(&self, step: StepId, figures: &Figures, at: MeshMicros);
}

/// Follows the feed until it is dropped.
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

/// Shows the intervals of the running step on `view`.
pub fn follow(feed: &Feed, clock: Arc<MeshClock>, view: Arc<impl LiveView>) -> Follower {
    let mut intervals = feed.subscribe();
    Follower::of(async move {
        let mut followed: Option<(StepId, Window)> = None;
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
            let Some(RunningLoad { step, start, tasks }) = view.running() else {
                continue;
            };
            let mut window = match followed.take() {
                Some((known, window)) if known == step => window,
                _ => Window::new(start),
            };
            for interval in batches.iter().flat_map(|batch| batch.iter()) {
                window.add(interval, &tasks);
            }
            view.show(step, &window.figures(&tasks), clock.now());
            followed = Some((step, window));
            // Intervals that come meanwhile wait in the feed.
            sleep_until(show_at).await;
        }
    })
}
