//! What of a database is kept how long, and the task that sees to it.
//!
//! Rows of seconds (`op_intervals`, `step_intervals`, samples) of ended runs are merged into rows of 10 s and of 60 s
//! as they grow old; of a database that is too large the oldest runs' rows are merged, and at last deleted. Results,
//! `step_daemons`, events, marks, notes and findings stay. Ages are of mesh time, which never goes back. Of a run that
//! has not ended, steps of earlier loops grow old, and of its running step the rows that are summed up and behind
//! everything that is still awaited; its other rows and samples stay. `store::prune` does the work.

use crate::clock::MeshClock;
use crate::prune::{KeptFree, Pruned, Pruner, Resolution, Settings, StepToPrune};
use crate::rows::NewEvent;
use crate::{Store, StoreError};
use benchmesh_model::mesh::{MeshMicros, RunId, Severity, StepId};
use benchmesh_workloads::figures;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// How often is looked for what has grown old.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Samples are thinned in spans of this length; what is done is remembered after each.
const SPAN_US: i64 = 6 * 3_600_000_000;
/// Less than this is not worth a look at each series.
const MIN_SPAN_US: i64 = 600_000_000;
/// Spans begin and end at whole minutes, as the rows do that they are thinned to.
const MINUTE_US: i64 = 60_000_000;
/// A run that ended lately keeps its rows also in a database that is too large: its findings are made of them.
const LATELY_US: i64 = 600_000_000;

/// Slices of a step under way that are merged before others have their turn: an hour.
const SLICES_AT_ONCE: usize = 6;
/// `runs_without_findings` lists so many at most.
const MANY_RUNS: usize = 100;

/// How long rows stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFor {
    Span(Duration),
    Forever,
}

impl KeepFor {
    fn us(self) -> Option<i64> {
        match self {
            Self::Span(span) => Some(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
            Self::Forever => None,
        }
    }
}

/// How large the database may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxSize {
    Bytes(u64),
    Unlimited,
}

impl MaxSize {
    fn bytes(self) -> Option<i64> {
        match self {
            Self::Bytes(bytes) => Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
            Self::Unlimited => None,
        }
    }
}

/// What is kept how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Rows of seconds, after their run has ended.
    pub keep_seconds: KeepFor,
    /// Rows of 10 s, likewise.
    pub keep_10s: KeepFor,
    pub max_size: MaxSize,
    /// Runs with one of these tags keep all.
    pub keep_tags: Vec<(String, String)>,
    /// Steps that would have fewer rows than this are merged only when the database is too large, or on request: they
    /// hold little, and verdicts are made of their seconds.
    pub min_rows: i64,
}

/// A step of 10 minutes in rows of 10 s.
pub const MIN_ROWS: i64 = 60;

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Self {
            keep_seconds: KeepFor::Span(7 * DAY),
            keep_10s: KeepFor::Span(30 * DAY),
            max_size: MaxSize::Bytes(20_000_000_000),
            keep_tags: Vec::new(),
            min_rows: MIN_ROWS,
        }
    }
}

/// Why rows cannot be kept so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    #[error(
        "--keep-10s ({}) is shorter than --keep-seconds ({}): both count from the end of a run; rows are merged into 10 s \
         after --keep-seconds and into 60 s after --keep-10s",
        figures::span(*keep_10s), figures::span(*keep_seconds)
    )]
    Order {
        keep_seconds: Duration,
        keep_10s: Duration,
    },
    #[error(
        "--keep-seconds forever with --keep-10s {}: rows of seconds would be merged into 60 s and never into 10 s; write \
         --keep-10s forever too, or a span for --keep-seconds",
        figures::span(*keep_10s)
    )]
    SecondsForever { keep_10s: Duration },
}

impl Retention {
    /// Whether it can be meant so.
    pub fn check(&self) -> Result<(), RetentionError> {
        match (self.keep_seconds, self.keep_10s) {
            (KeepFor::Span(keep_seconds), KeepFor::Span(keep_10s)) if keep_10s < keep_seconds => {
                Err(RetentionError::Order {
                    keep_seconds,
                    keep_10s,
                })
            }
            (KeepFor::Forever, KeepFor::Span(keep_10s)) => {
                Err(RetentionError::SecondsForever { keep_10s })
            }
            _ => Ok(()),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            keep_seconds_us: self.keep_seconds.us(),
            keep_10s_us: self.keep_10s.us(),
            max_size_bytes: self.max_size.bytes(),
            keep_tags: self.keep_tags.clone(),
        }
    }

    /// What ended before which instant has to be at which resolution.
    fn due(&self, now: MeshMicros) -> impl Iterator<Item = (Resolution, MeshMicros)> + use<> {
        let before = |keep: KeepFor| keep.us().map(|us| MeshMicros(now.0.saturating_sub(us)));
        [
            // First, so that rows are not merged twice.
            (Resolution::Minute, before(self.keep_10s)),
            (Resolution::TenSeconds, before(self.keep_seconds)),
        ]
        .into_iter()
        .filter_map(|(to, before)| Some((to, before?)))
    }
}

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Runs that ended so long ago.
    pub older: Duration,
    pub to: Resolution,
    /// Beside the configured tags.
    pub keep_tags: Vec<(String, String)>,
    pub dry_run: bool,
}

/// How far a request is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub steps: u64,
    pub steps_total: u64,
    pub runs_total: u64,
    /// Rows that are gone.
    pub rows: u64,
    pub longest: Duration,
    pub used_bytes: i64,
    pub file_bytes: i64,
}

/// Prunes one database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Retainer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    retention: Retention,
    /// Held while something is pruned; who asks by hand waits for one step at most.
    turn: Mutex<()>,
    /// That the limit cannot be met was said.
    is_excess_known: AtomicBool,
    /// Runs under way of which it was said that the limit takes their rows.
    limit_reported: std::sync::Mutex<HashSet<(RunId, i64)>>,
    /// Steps whose rows cannot be merged.
    unreadable: std::sync::Mutex<HashSet<StepId>>,
    /// Runs whose findings are being made of their rows.
    awaited: std::sync::Mutex<HashSet<RunId>>,
}

impl Retainer {
    pub fn new(store: Store, retention: Retention) -> Self {
        Self(Arc::new(Inner {
            store,
            retention,
            turn: Mutex::new(()),
            is_excess_known: AtomicBool::new(false),
            limit_reported: std::sync::Mutex::default(),
            unreadable: std::sync::Mutex::default(),
            awaited: std::sync::Mutex::default(),
        }))
    }

    /// Sees to the retention until it is cancelled.
    pub async fn keep(self, clock: Arc<MeshClock>, closing: CancellationToken) {
        let stored = self
            .0
            .store
            .set_retention(self.0.retention.settings())
            .await;
        if let Err(error) = stored {
            tracing::debug!(%error, "what is kept how long is not stored");
        }
        let mut unfound = usize::MAX;
        loop {
            let pass = async {
                self.await_findings(&mut unfound).await;
                if let Err(error) = self.pass(clock.now()).await {
                    tracing::warn!(error = %benchmesh_workloads::error_chain(&error), "old rows are not merged; it is tried again");
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            };
            tokio::select! {
                () = closing.cancelled() => return,
                () = pass => {}
            }
        }
    }

    /// Runs without findings keep their rows as long as there become fewer of them: after an upgrade and a merge all
    /// are made anew.
    async fn await_findings(&self, before: &mut usize) {
        let runs = self.0.store.runs_without_findings().await;
        let runs: HashSet<RunId> = runs.unwrap_or_default().into_iter().collect();
        let are_fewer = runs.len() < *before || runs.len() >= MANY_RUNS;
        *before = runs.len();
        *locked(&self.0.awaited) = match are_fewer {
            true => runs,
            false => HashSet::new(),
        };
    }

    /// Merges what has grown old, and what is too much.
    pub async fn pass(&self, now: MeshMicros) -> Result<Pruned, StoreError> {
        let mut pruner = self.0.store.pruner().await?;
        self.merge_late(&mut pruner, now).await?;
        for (to, before) in self.0.retention.due(now) {
            for found in self
                .steps_due(before, to, self.0.retention.min_rows)
                .await?
            {
                let _turn = self.0.turn.lock().await;
                self.prune(&mut pruner, found).await?;
            }
            self.merge_running(&mut pruner, before, now, to).await?;
            self.thin(&mut pruner, before, to).await?;
        }
        self.shrink(&mut pruner, now).await?;
        pruner.give_back(KeptFree::ForNewRows).await?;
        let pruned = pruner.pruned();
        if pruned.rows > 0 {
            self.0.store.set_pruned(now, pruned.rows).await?;
            tracing::info!(
                steps = pruned.steps,
                rows = pruned.rows,
                longest_ms = pruned.longest.as_millis(),
                "old rows are merged"
            );
        }
        Ok(pruned)
    }

    /// Does what an operator asks for, and tells how far it is. Dropping it stops it between two transactions.
    pub async fn by_hand(
        &self,
        request: &Request,
        now: MeshMicros,
        told: &watch::Sender<Progress>,
    ) -> Result<(), StoreError> {
        let store = &self.0.store;
        let older = i64::try_from(request.older.as_micros()).unwrap_or(i64::MAX);
        let before = MeshMicros(now.0.saturating_sub(older));
        let mut tags = self.0.retention.keep_tags.clone();
        tags.extend(request.keep_tags.iter().cloned());
        let _turn = self.0.turn.lock().await;
        let steps = self.steps(before, request.to, &tags, 0).await?;
        let mut runs: Vec<RunId> = steps.iter().map(|found| found.run).collect();
        runs.dedup();
        told.send_modify(|progress| {
            progress.steps_total = u64::try_from(steps.len()).unwrap_or(u64::MAX);
            progress.runs_total = u64::try_from(runs.len()).unwrap_or(u64::MAX);
        });
        if request.dry_run {
            return tell(store, Pruned::default(), told).await;
        }
        let mut pruner = store.pruner().await?;
        for found in steps {
            self.prune(&mut pruner, found).await?;
            tell(store, pruner.pruned(), told).await?;
        }
        // From the beginning: what was kept for its tag then may have lost it.
        if let Some(oldest) = store.oldest_sample().await? {
            let untouched = store.untouched_spans(before, request.to, &tags).await?;
            let until = samples_until(before, &untouched);
            let mut from = MeshMicros(whole_minute(oldest.0));
            while from < until {
                let end = MeshMicros(from.0.saturating_add(SPAN_US).min(until.0));
                pruner
                    .prune_samples(from, end, request.to, &untouched)
                    .await?;
                tell(store, pruner.pruned(), told).await?;
                from = end;
            }
            // What the request left out is not kept for good.
            if request.keep_tags.is_empty() {
                store.set_samples_pruned_until(request.to, until).await?;
            }
        }
        pruner.give_back(KeptFree::Least).await?;
        let rows = pruner.pruned().rows;
        if rows > 0 {
            store.set_pruned(now, rows).await?;
        }
        tell(store, pruner.pruned(), told).await
    }

    /// Merges or deletes rows that came when those of their step had been.
    async fn merge_late(&self, pruner: &mut Pruner, now: MeshMicros) -> Result<(), StoreError> {
        let store = &self.0.store;
        let late = store.steps_with_late_slices().await?;
        {
            let _turn = self.0.turn.lock().await;
            pruner.finish_slices().await?;
        }
        for (step, run, batches) in late {
            store.late_rows_merged(step, batches).await?;
            let message = String::from(
                "rows of this step came late, when the others of their time had been merged: they are merged too, and its \
                 results are without them",
            );
            let event = NewEvent {
                step: Some(step),
                ..event(now, Some(run), Severity::Warning, "rows-too-late", message)
            };
            store.add_event(event).await?;
        }
        for (found, batches) in store.steps_with_late_rows().await? {
            if locked(&self.0.unreadable).contains(&found.step) {
                continue;
            }
            let _turn = self.0.turn.lock().await;
            let before = pruner.pruned().rows;
            if !self.prune(pruner, found).await? {
                continue;
            }
            store.late_rows_merged(found.step, batches).await?;
            let what = match found.to {
                Resolution::Nothing => format!(
                    "{} rows of it are deleted",
                    figures::count(
                        i64::try_from(pruner.pruned().rows - before).unwrap_or(i64::MAX)
                    )
                ),
                _ => String::from("they are merged too"),
            };
            let message = format!(
                "rows of this step came late, when the others had been {}: {what}, and its results are without them",
                found.to.done_to_rows()
            );
            let event = NewEvent {
                step: Some(found.step),
                ..event(
                    now,
                    Some(found.run),
                    Severity::Warning,
                    "rows-too-late",
                    message,
                )
            };
            store.add_event(event).await?;
        }
        Ok(())
    }

    /// Says whether the step was pruned. One with a histogram that cannot be read stays as it is, and does not hold up
    /// the others.
    async fn prune(&self, pruner: &mut Pruner, found: StepToPrune) -> Result<bool, StoreError> {
        match pruner.prune_step(found.step, found.to).await {
            Err(error @ StoreError::Histogram { .. }) => {
                let error = benchmesh_workloads::error_chain(&error);
                tracing::warn!(step = %found.step, %error, "the rows of a step cannot be merged");
                locked(&self.0.unreadable).insert(found.step);
                Ok(false)
            }
            pruned => pruned,
        }
    }

    /// Those that the collector prunes by itself.
    async fn steps_due(
        &self,
        before: MeshMicros,
        to: Resolution,
        min_rows: i64,
    ) -> Result<Vec<StepToPrune>, StoreError> {
        let tags = &self.0.retention.keep_tags;
        let mut steps = self.steps(before, to, tags, min_rows).await?;
        let awaited = locked(&self.0.awaited);
        steps.retain(|found| !awaited.contains(&found.run));
        Ok(steps)
    }

    async fn steps(
        &self,
        before: MeshMicros,
        to: Resolution,
        tags: &[(String, String)],
        min_rows: i64,
    ) -> Result<Vec<StepToPrune>, StoreError> {
        let found = self.0.store.steps_to_prune(before, to, tags, min_rows);
        let mut steps = found.await?;
        let unreadable = locked(&self.0.unreadable);
        steps.retain(|found| !unreadable.contains(&found.step));
        Ok(steps)
    }

    /// Merges the rows before an instant of steps that go on, as far as nothing of them is awaited any more.
    async fn merge_running(
        &self,
        pruner: &mut Pruner,
        before: MeshMicros,
        now: MeshMicros,
        to: Resolution,
    ) -> Result<(), StoreError> {
        let tags = &self.0.retention.keep_tags;
        for step in self
            .0
            .store
            .prunable_running_steps(before, now, tags)
            .await?
        {
            loop {
                let _turn = self.0.turn.lock().await;
                if pruner.prune_running(step, to, SLICES_AT_ONCE).await? < SLICES_AT_ONCE {
                    break;
                }
            }
        }
        Ok(())
    }

    /// While the database is too large and nothing else is left: likewise, an hour at a time. Says whether it has
    /// become small enough.
    async fn shrink_running(
        &self,
        pruner: &mut Pruner,
        now: MeshMicros,
        limit: i64,
    ) -> Result<bool, StoreError> {
        let store = &self.0.store;
        let before = MeshMicros(now.0.saturating_sub(LATELY_US));
        let tags = &self.0.retention.keep_tags;
        for to in [Resolution::TenSeconds, Resolution::Minute] {
            for step in store.prunable_running_steps(before, now, tags).await? {
                loop {
                    let used = store.size().await?.used_bytes();
                    if used <= limit {
                        return Ok(true);
                    }
                    let merged = {
                        let _turn = self.0.turn.lock().await;
                        pruner.prune_running(step, to, SLICES_AT_ONCE).await?
                    };
                    if merged == 0 {
                        break;
                    }
                    if locked(&self.0.limit_reported).insert((step.run, to.seconds())) {
                        self.add_size_limit_event(now, step.run, to, used, limit)
                            .await?;
                    }
                    self.thin(pruner, before, to).await?;
                }
            }
        }
        Ok(store.size().await?.used_bytes() <= limit)
    }

    /// Thins the samples before an instant that are not thinned yet.
    async fn thin(
        &self,
        pruner: &mut Pruner,
        before: MeshMicros,
        to: Resolution,
    ) -> Result<(), StoreError> {
        while self.thin_span(pruner, before, to).await? {}
        Ok(())
    }

    /// Thins one span of samples; says whether there was one.
    async fn thin_span(
        &self,
        pruner: &mut Pruner,
        before: MeshMicros,
        to: Resolution,
    ) -> Result<bool, StoreError> {
        let store = &self.0.store;
        let tags = &self.0.retention.keep_tags;
        let untouched = store.untouched_spans(before, to, tags).await?;
        let until = samples_until(before, &untouched);
        let from = match store.samples_pruned_until(to).await? {
            Some(from) => from,
            None => match store.oldest_sample().await? {
                Some(oldest) => MeshMicros(whole_minute(oldest.0)),
                None => return Ok(false),
            },
        };
        if until.0.saturating_sub(from.0) < MIN_SPAN_US {
            return Ok(false);
        }
        let end = MeshMicros(from.0.saturating_add(SPAN_US).min(until.0));
        let _turn = self.0.turn.lock().await;
        pruner.prune_samples(from, end, to, &untouched).await?;
        store.set_samples_pruned_until(to, end).await?;
        Ok(true)
    }

    /// While the database is too large: merges the rows of the oldest run that can be, into 10 s, then into 60 s, and
    /// deletes them at last.
    async fn shrink(&self, pruner: &mut Pruner, now: MeshMicros) -> Result<(), StoreError> {
        let Some(limit) = self.0.retention.max_size.bytes() else {
            return Ok(());
        };
        let store = &self.0.store;
        let before = MeshMicros(now.0.saturating_sub(LATELY_US));
        for to in Resolution::ALL {
            loop {
                let used = store.size().await?.used_bytes();
                if used <= limit {
                    // A size that swings around the limit is said once.
                    if used < limit / 100 * 95 {
                        self.0.is_excess_known.store(false, Ordering::Relaxed);
                    }
                    return Ok(());
                }
                let steps = self.steps_due(before, to, 0).await?;
                let Some(run) = steps.first().map(|found| found.run) else {
                    if self.thin_span(pruner, before, to).await? {
                        continue;
                    }
                    break;
                };
                self.add_size_limit_event(now, run, to, used, limit).await?;
                let mut is_pruned = false;
                for found in steps.iter().take_while(|found| found.run == run) {
                    let _turn = self.0.turn.lock().await;
                    is_pruned |= self.prune(pruner, *found).await?;
                }
                if !is_pruned {
                    // Late data have just come; the next look finds what they left.
                    return Ok(());
                }
                // Of a run under way its earlier loops.
                let ended = store.run_ended(run).await?.unwrap_or(before);
                self.thin(pruner, ended, to).await?;
            }
        }
        if self.shrink_running(pruner, now, limit).await? {
            return Ok(());
        }
        let used = store.size().await?.used_bytes();
        if used > limit && !self.0.is_excess_known.swap(true, Ordering::Relaxed) {
            let message = format!(
                "the database has {}, above its limit of {} (--max-size), and nothing of it can be merged or deleted: what is \
                 left are results, runs that ended within 10 minutes, the newest rows of a run that goes on, and runs that are kept \
                 for a tag; raise the limit, or delete runs with `benchmesh db delete`",
                size(used),
                size(limit)
            );
            tracing::warn!("{message}");
            let event = event(now, None, Severity::Warning, "size-limit-exceeded", message);
            store.add_event(event).await?;
        }
        Ok(())
    }

    async fn add_size_limit_event(
        &self,
        now: MeshMicros,
        run: RunId,
        to: Resolution,
        used: i64,
        limit: i64,
    ) -> Result<(), StoreError> {
        let message = format!(
            "the database has {}, above its limit of {} (--max-size): the rows of seconds of this run, and samples up to its \
             end, are {}",
            size(used),
            size(limit),
            to.done_to_rows()
        );
        tracing::info!(%run, "{message}");
        let event = event(now, Some(run), Severity::Info, "size-limit", message);
        self.0.store.add_event(event).await
    }
}

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn tell(
    store: &Store,
    pruned: Pruned,
    told: &watch::Sender<Progress>,
) -> Result<(), StoreError> {
    let size = store.size().await?;
    told.send_modify(|progress| {
        progress.steps = pruned.steps;
        progress.rows = pruned.rows;
        progress.longest = pruned.longest;
        progress.used_bytes = size.used_bytes();
        progress.file_bytes = size.file_bytes;
    });
    Ok(())
}

/// Up to where samples may be thinned: not into the time of a run that goes on or ended later.
fn samples_until(before: MeshMicros, untouched: &[(i64, i64)]) -> MeshMicros {
    let running = untouched.iter().filter(|(_, until)| *until == i64::MAX);
    let first = running.map(|(from, _)| *from).min().unwrap_or(i64::MAX);
    MeshMicros(whole_minute(before.0.min(first)))
}

fn whole_minute(us: i64) -> i64 {
    us.div_euclid(MINUTE_US) * MINUTE_US
}

fn size(bytes: i64) -> String {
    figures::bytes(u64::try_from(bytes).unwrap_or(0))
}

fn event(
    at: MeshMicros,
    run: Option<RunId>,
    severity: Severity,
    kind: &str,
    message: String,
) -> NewEvent {
    NewEvent {
        at,
        run,
        step: None,
        agent: None,
        severity,
        kind: kind.to_owned(),
        message,
        detail_json: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_in_the_wrong_order_are_refused() {
        let hours = |hours: u64| KeepFor::Span(Duration::from_secs(hours * 3600));
        let cases = [
            (hours(1), hours(2), true),
            (hours(2), hours(2), true),
            (hours(3), hours(2), false),
            (hours(3), KeepFor::Forever, true),
            (KeepFor::Forever, hours(2), false),
            (KeepFor::Forever, KeepFor::Forever, true),
        ];
        for (keep_seconds, keep_10s, is_good) in cases {
            let retention = Retention {
                keep_seconds,
                keep_10s,
                ..Retention::default()
            };
            let checked = retention.check();
            assert_eq!(checked.is_ok(), is_good, "{retention:?}: {checked:?}");
        }
    }
}
