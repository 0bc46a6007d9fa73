//! The intervals of running steps, so that a soak of days has its timeline from the first minute.
//!
//! These rows are provisional: an agent without contact sends its part later. The end of the step computes every
//! interval again from the rows stored then.

use super::timeline::Changes;
use super::{SLICE_US, blocking, load, packed};
use crate::database::StoreError;
use crate::writer::CommitPolicy;
use crate::{Shared, Store};
use benchmesh_model::mesh::StepId;
use benchmesh_results::grid::Grid;
use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// How often running steps are processed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The newest seconds are left out, because their rows may still be arriving.
const LAG_US: i64 = 3_000_000;
/// Number of intervals after which they are stored.
const MANY_ROWS: usize = 4096;
/// Minimum length of a followed step; shorter ones get their intervals at their end.
const MIN_STEP_US: i64 = 10_000_000;

/// How far each running step has been followed.
#[derive(Debug)]
pub(crate) struct FollowedSteps {
    places: HashMap<StepId, FollowPosition>,
    commit_policy: CommitPolicy,
}

impl FollowedSteps {
    pub(crate) fn new(commit_policy: CommitPolicy) -> Self {
        Self {
            places: HashMap::new(),
            commit_policy,
        }
    }
}

#[derive(Debug)]
struct FollowPosition {
    grid: Grid,
    until_us: i64,
    /// A slice is tried again only when there are rows newer than this.
    summed_us: i64,
}

/// Follows running steps periodically, and on request (`Store::refresh`); ends when the store is closed.
pub(crate) async fn follow(
    store: Weak<Shared>,
    mut refreshes: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let Some(closing) = store.upgrade().map(|shared| shared.closing.clone()) else {
        return;
    };
    let mut followed = FollowedSteps::new(CommitPolicy::WhenDue);
    let mut looked = Instant::now();
    loop {
        let mut asking = Vec::new();
        tokio::select! {
            () = closing.cancelled() => return,
            () = sleep_until(looked + POLL_INTERVAL) => {}
            Some(done) = refreshes.recv() => asking.push(done),
        }
        while let Ok(done) = refreshes.try_recv() {
            asking.push(done);
        }
        if looked.elapsed() < POLL_INTERVAL {
            continue;
        }
        looked = Instant::now();
        followed.commit_policy = match asking.is_empty() {
            true => CommitPolicy::WhenDue,
            false => CommitPolicy::Now,
        };
        let Some(shared) = store.upgrade() else {
            return;
        };
        let store = Store::own(shared);
        let followed_once = store.follow_once(&mut followed).await;
        // Requests are answered before slices are summed up.
        drop(asking);
        let summed = match followed_once {
            Ok(()) => store.sum_once(&mut followed).await,
            failed => failed,
        };
        if let Err(error) = summed
            && !closing.is_cancelled()
        {
            tracing::debug!(%error, "the timeline of a running step is delayed");
        }
    }
}

impl Store {
    /// Stores the intervals of running steps from the rows that have arrived.
    pub(crate) async fn follow_once(&self, followed: &mut FollowedSteps) -> Result<(), StoreError> {
        let running = load::running_steps(self.reader()).await?;
        followed.places.retain(|step, _| running.contains(step));
        for step in running {
            let _claim = self.claim(step).await;
            self.advance(step, followed).await?;
        }
        Ok(())
    }

    async fn advance(&self, step: StepId, followed: &mut FollowedSteps) -> Result<(), StoreError> {
        // It may have ended while this waited for the claim.
        let Some(start_us) = load::running_since(self.reader(), step).await? else {
            return Ok(());
        };
        let Some(newest) = load::newest_interval(self.reader(), step).await? else {
            return Ok(());
        };
        if newest.saturating_sub(start_us) < MIN_STEP_US {
            return Ok(());
        }
        let mut place = match followed.places.remove(&step) {
            Some(place) => place,
            None => FollowPosition {
                grid: Grid::new(start_us),
                until_us: load::stored_until(self.reader(), step).await?,
                summed_us: i64::MIN,
            },
        };
        // Merged rows and summed slices are already in the time line, with rows that came after those in the grid.
        let kept_us = load::merged_until(self.reader(), step)
            .await?
            .max(load::summed_until(self.reader(), step).await?);
        if place.until_us < kept_us {
            place.grid = Grid::new(start_us);
            place.until_us = kept_us;
        }
        let ready = place.grid.before_a_line(newest.saturating_sub(LAG_US));
        let place = self
            .catch_up(step, place, ready, followed.commit_policy)
            .await?;
        followed.places.insert(step, place);
        Ok(())
    }

    /// Sums up the complete slices of the followed steps.
    pub(crate) async fn sum_once(&self, followed: &mut FollowedSteps) -> Result<(), StoreError> {
        for (step, place) in &mut followed.places {
            let _claim = self.claim(*step).await;
            let Some(start_us) = load::running_since(self.reader(), *step).await? else {
                continue;
            };
            let newest = load::newest_interval(self.reader(), *step).await?;
            if let Some(newest) = newest.filter(|newest| *newest > place.summed_us) {
                place.summed_us = self.sum_slices(*step, start_us, newest).await?;
            }
        }
        Ok(())
    }

    async fn catch_up(
        &self,
        step: StepId,
        mut place: FollowPosition,
        ready_us: i64,
        commit_policy: CommitPolicy,
    ) -> Result<FollowPosition, StoreError> {
        let mut computed = Vec::new();
        while let Some(first) = load::next_instant(self.reader(), step, place.until_us).await?
            && first < ready_us
            && !self.shared.closing.is_cancelled()
        {
            let until = place
                .grid
                .before_a_line(first.saturating_add(SLICE_US))
                .clamp(first.saturating_add(1), ready_us);
            let rows = load::intervals(self.reader(), step, first, until).await?;
            let (next, done) = blocking(move || {
                for row in rows {
                    place.grid.add(&row.facts()?);
                }
                place.until_us = until;
                let done = packed(place.grid.take_before(until));
                Ok::<_, StoreError>((place, done))
            })
            .await??;
            place = next;
            computed.extend(done);
            if computed.len() >= MANY_ROWS {
                // Many intervals are outstanding, for example after a restart.
                let changes = Changes::put(std::mem::take(&mut computed));
                self.change_timeline(step, changes).await?;
            }
        }
        if !computed.is_empty() {
            let changes = Changes::put(computed);
            self.change_timeline_in(commit_policy, step, changes)
                .await?;
        }
        Ok(place)
    }
}
