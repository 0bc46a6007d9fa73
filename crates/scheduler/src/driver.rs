//! Carries out the machine's effects, and turns answers, timers and commits into events. It makes no decisions.
//!
//! One task owns the machine and all pending work. Rows are committed one transaction after the other; the effects of
//! an event follow its commit, in order. Events are always accepted: a database that cannot be written delays only the
//! work that depends on it. When the store fails, all pending work is dropped and a new machine starts from the rows,
//! as after a restart of the collector.

pub(super) mod agents;
pub(super) mod load;
pub(super) mod reads;
pub(super) mod results;
mod retry;
mod steady;
mod timers;

use super::{
    Inner,
    machine::{
        Machine,
        effect::{Effect, NewIds, Output, Show},
        event::{Event, Token},
    },
};
use crate::live::{self, Follower, SteadyJudge};
use benchmesh_model::mesh::RunId;
use benchmesh_store::{Blocked, StoreError};
use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture, abortable},
    stream::FuturesUnordered,
};
use retry::retried;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use timers::Timers;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// Delay before the rows are loaded again after the store failed.
const RETRY_AFTER: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });
/// How often the rows of one run may be refused before it fails.
const MAX_REFUSALS: u32 = 3;
/// Refusals further apart than this are not counted together.
const REFUSALS_WINDOW: Duration = Duration::from_secs(600);
/// Queue for the progress of long commands, for watchers. When it is full, the newest report is dropped.
const PROGRESS: usize = 1024;

/// The event after completed work, if any.
type WorkResult = Result<Option<Event>, StoreError>;
type Work = Abortable<BoxFuture<'static, WorkResult>>;
type Commit = BoxFuture<'static, Result<Vec<Vec<i64>>, StoreError>>;

/// Rows that are being committed, and the effects that follow.
struct Committing {
    commit: Commit,
    kinds: Vec<NewIds>,
    made: Vec<Token>,
    then: Vec<Effect>,
}

/// Rows of a run that the database refused because of their data. The same rows would come again after each restart.
#[derive(Clone, Debug)]
struct Refused {
    run: RunId,
    times: u32,
    last: Instant,
    why: String,
}

pub(super) struct Driver {
    inner: Arc<Inner>,
    machine: Machine,
    /// Outputs that wait for the current commit.
    queue: VecDeque<Output>,
    committing: Option<Committing>,
    work: FuturesUnordered<Work>,
    aborts: HashMap<Token, AbortHandle>,
    /// The wait for the next scheduled run.
    due: Option<AbortHandle>,
    /// Cancelled tokens whose effects are still in the queue.
    cancelled: HashSet<Token>,
    timers: Timers,
    progress: mpsc::Sender<Event>,
    progressed: mpsc::Receiver<Event>,
    /// Events that are ready immediately.
    ready: VecDeque<Event>,
    live: Option<(RunId, Follower)>,
    /// Judges the running step.
    steadiness: Option<Follower>,
    /// The run that was loaded last.
    loaded: Option<RunId>,
    refused: Option<Refused>,
}

impl Driver {
    pub fn new(inner: Arc<Inner>) -> Self {
        Self::after(inner, None)
    }

    /// Restarts from the rows after an error.
    fn after(inner: Arc<Inner>, refused: Option<Refused>) -> Self {
        let (progress, progressed) = mpsc::channel(PROGRESS);
        let (machine, first) = Machine::start();
        let mut driver = Self {
            inner,
            machine,
            queue: VecDeque::new(),
            committing: None,
            work: FuturesUnordered::new(),
            aborts: HashMap::new(),
            due: None,
            cancelled: HashSet::new(),
            timers: Timers::default(),
            progress,
            progressed,
            ready: VecDeque::new(),
            live: None,
            steadiness: None,
            loaded: None,
            refused,
        };
        driver.take(first);
        driver.agents_changed();
        driver
    }

    /// Drives runs until `closing`; then drops all pending work and leaves the run as it is.
    pub async fn run(mut self, mut requests: mpsc::Receiver<Event>, closing: CancellationToken) {
        let mut agents = self.inner.fleet.changes();
        let mut blocked = self.inner.store.blocked();
        self.blocked_changed(&mut blocked);
        loop {
            let next = tokio::select! {
                () = closing.cancelled() => return,
                next = self.next(&mut requests, &mut agents, &mut blocked) => next,
            };
            if let Err(failed) = next {
                error!(
                    error = %benchmesh_workloads::error_chain(&failed),
                    "a database operation of the scheduler failed; the scheduler continues from the stored state"
                );
                tokio::select! {
                    () = closing.cancelled() => return,
                    () = sleep(RETRY_AFTER) => {}
                }
                let refused = self.count_refusal(&failed);
                self = Self::after(Arc::clone(&self.inner), refused);
                self.blocked_changed(&mut blocked);
            }
        }
    }

    /// Counts the refusals of the run under way. Transient errors do not count.
    fn count_refusal(&mut self, failed: &StoreError) -> Option<Refused> {
        let before = self
            .refused
            .take()
            .filter(|before| before.last.elapsed() < REFUSALS_WINDOW);
        let is_of_rows = !failed.is_retryable() && !matches!(failed, StoreError::Closed);
        let Some(run) = self.loaded.filter(|_| is_of_rows) else {
            return before;
        };
        let times = before
            .filter(|before| before.run == run)
            .map_or(0, |before| before.times);
        Some(Refused {
            run,
            times: times + 1,
            last: Instant::now(),
            why: benchmesh_workloads::error_chain(failed),
        })
    }

    /// The run that is abandoned, with the reason.
    fn abandoned_run(&self) -> Option<(RunId, String)> {
        let refused = self.refused.as_ref()?;
        (refused.times >= MAX_REFUSALS).then(|| {
            let reason = format!(
                "the collector could not store its rows, {} times in a row: {}",
                refused.times, refused.why
            );
            (refused.run, reason)
        })
    }

    /// Waits for the next occurrence and turns it into an event.
    async fn next(
        &mut self,
        requests: &mut mpsc::Receiver<Event>,
        agents: &mut watch::Receiver<u64>,
        blocked: &mut watch::Receiver<Option<Blocked>>,
    ) -> Result<(), StoreError> {
        while let Some(event) = self.ready.pop_front() {
            self.handle(event);
        }
        let due = self.timers.next(&self.inner.clock);
        let committed = async {
            match &mut self.committing {
                Some(committing) => (&mut committing.commit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(request) = requests.recv() => self.handle(request),
            made = committed => self.committed(made?),
            Some(done) = self.work.next(), if !self.work.is_empty() => {
                if let Ok(outcome) = done
                    && let Some(event) = outcome?
                {
                    self.forget_work(&event);
                    if let Event::Loaded(Some(loaded)) = &event {
                        self.loaded = Some(loaded.row.id);
                    }
                    self.handle(event);
                }
            }
            Some(event) = self.progressed.recv() => self.handle(event),
            Ok(()) = agents.changed() => self.agents_changed(),
            Ok(()) = blocked.changed() => self.blocked_changed(blocked),
            () = due => {
                for token in self.timers.due(self.inner.clock.now()) {
                    self.handle(Event::Due { token });
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        // A resumed run is driven anew.
        if let Event::Resumed { run } = &event {
            self.refused.take_if(|refused| refused.run == *run);
        }
        let out = self.machine.handle(event, self.inner.clock.now());
        self.take(out);
    }

    fn agents_changed(&mut self) {
        let agents = self.inner.fleet.presences();
        self.handle(Event::Agents(agents));
    }

    fn blocked_changed(&mut self, blocked: &mut watch::Receiver<Option<Blocked>>) {
        let now = blocked.borrow_and_update().clone();
        let event = match now {
            Some(Blocked { why, remedy }) => Event::Blocked {
                why,
                remedy: remedy.to_owned(),
            },
            None => Event::Unblocked,
        };
        self.handle(event);
    }

    /// Carries out the immediate effects, and queues the rest.
    fn take(&mut self, mut out: Output) {
        for effect in std::mem::take(&mut out.at_once) {
            self.carry_out(effect);
        }
        if !out.is_empty() {
            self.queue.push_back(out);
            self.process_queue();
        }
    }

    /// Takes outputs from the queue until one has rows to commit. All outputs queued behind it are committed with it,
    /// so that tasks that end together cost one write to the disk.
    fn process_queue(&mut self) {
        while self.committing.is_none()
            && let Some(mut out) = self.queue.pop_front()
        {
            if out.rows.is_empty() {
                for effect in out.then {
                    self.carry_out(effect);
                }
                continue;
            }
            for next in self.queue.drain(..) {
                out.append(next);
            }
            let store = self.inner.store.clone();
            self.committing = Some(Committing {
                kinds: NewIds::of_rows(&out.rows),
                made: out.made,
                then: out.then,
                commit: async move { store.apply(out.rows).await }.boxed(),
            });
        }
        if self.committing.is_none() {
            self.cancelled.clear();
        }
    }

    fn committed(&mut self, made: Vec<Vec<i64>>) {
        let Some(committing) = self.committing.take() else {
            return;
        };
        for effect in committing.then {
            self.carry_out(effect);
        }
        let kinds = committing.kinds.into_iter().zip(made);
        for (token, (kind, ids)) in committing.made.into_iter().zip(kinds) {
            let completion = kind.completion(ids);
            self.ready.push_back(Event::Completed { token, completion });
        }
        self.process_queue();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Ask(ask) => {
                let token = ask.token;
                let fleet = self.inner.fleet.clone();
                let clock = Arc::clone(&self.inner.clock);
                let progress = self.progress.clone();
                self.begin(token, async move {
                    let answer = agents::ask(&fleet, &clock, *ask, progress).await;
                    Ok(Some(Event::Answered { token, answer }))
                });
            }
            Effect::Cancel(token) => self.cancel(token),
            Effect::Wait { token, at } => {
                if !self.cancelled.remove(&token) {
                    self.timers.add(token, at);
                }
            }
            Effect::Lookup { token, lookup } => {
                let inner = Arc::clone(&self.inner);
                self.begin(token, async move {
                    let completion = retried(|| reads::lookup(&inner, lookup.clone())).await?;
                    Ok(Some(Event::Completed { token, completion }))
                });
            }
            Effect::Finish {
                token,
                run,
                index,
                step,
                finished,
            } => {
                let inner = Arc::clone(&self.inner);
                self.begin(token, async move {
                    let finish = || results::finish(&inner, run, index, step, finished.clone());
                    let completion = retried(finish).await?;
                    Ok(Some(Event::Completed { token, completion }))
                });
            }
            Effect::JudgeSteadiness {
                step,
                steady,
                start,
                earliest,
                tasks,
                max_silence,
            } => {
                let judge = SteadyJudge::new(steady, start, tasks, max_silence).from(earliest);
                self.steadiness = Some(steady::follow(&self.inner, step, judge, &self.progress));
            }
            Effect::Mark { run, at } => {
                let marks = agents::marks(&self.inner.fleet, &self.inner.clock, run, at);
                for mark in marks {
                    self.work.push(abortable(mark).0);
                }
            }
            Effect::Sample { period_us, run } => self.inner.fleet.set_sampling(period_us, run),
            Effect::LossAfter(time) => self.inner.fleet.set_loss_after(time),
            Effect::Show { run, show } => self.show(run, show),
            Effect::ShowAll(message) => self.inner.progress.show_to_all(&message),
            Effect::Load => {
                let inner = Arc::clone(&self.inner);
                let abandoned = self.abandoned_run();
                let load = async move {
                    let loaded = retried(|| load::load(&inner, abandoned.as_ref())).await;
                    loaded.map(|run| Some(Event::Loaded(run)))
                };
                self.work.push(abortable(load.boxed()).0);
                let inner = Arc::clone(&self.inner);
                let due = async move {
                    load::until_due(&inner).await;
                    Ok(Some(Event::Queued))
                };
                let (due, abort) = abortable(due.boxed());
                self.work.push(due);
                if let Some(before) = self.due.replace(abort) {
                    before.abort();
                }
            }
        }
    }

    fn begin(&mut self, token: Token, work: impl Future<Output = WorkResult> + Send + 'static) {
        if self.cancelled.remove(&token) {
            return;
        }
        let (work, abort) = abortable(work.boxed());
        self.aborts.insert(token, abort);
        self.work.push(work);
    }

    fn forget_work(&mut self, event: &Event) {
        if let Event::Answered { token, .. } | Event::Completed { token, .. } = event {
            self.aborts.remove(token);
        }
    }

    fn cancel(&mut self, token: Token) {
        if let Some(abort) = self.aborts.remove(&token) {
            abort.abort();
        } else if !self.timers.remove(token) {
            self.cancelled.insert(token);
        }
    }

    fn show(&mut self, run: RunId, show: Show) {
        let Some(progress) = self.inner.progress.run(run) else {
            return;
        };
        match &show {
            Show::Began { .. } => {
                let clock = Arc::clone(&self.inner.clock);
                let live = live::follow(self.inner.store.live(), clock, Arc::clone(&progress));
                self.live = Some((run, live));
                info!(%run, "run begins");
            }
            Show::Ended(change) => {
                if self.live.as_ref().is_some_and(|(of, _)| *of == run) {
                    self.live = None;
                }
                self.steadiness = None;
                info!(%run, state = %change.state, "run ended");
            }
            _ => {}
        }
        match show {
            Show::Ended(change) => self.inner.progress.ended(run, change),
            show => progress.apply(show, self.inner.clock.now()),
        }
    }
}

#[cfg(test)]
mod tests;
