//! The alarms and objectives of the run under way, evaluated once a second. An alarm that is raised or over, and an
//! objective that is broken, becomes an event, a message to the watchers of the run, and a call of the collector's
//! command. An alarm may also mark the time line, stop the run or end it as failed. At the end of its run every alarm is
//! over; a restarted collector learns from the events which alarms are still raised.

mod command;
mod objectives;
mod record;
mod state;

pub use command::{AlarmCommand, AlarmCommandError, Notifier, Runner};

use crate::overview::sampled_daemons;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunId, StepState};
use benchmesh_plan::{self as plan, AlarmAction};
use benchmesh_scheduler::live::Viewer;
use benchmesh_scheduler::snapshot::AlarmNow;
use benchmesh_scheduler::{RunProgress, Scheduler};
use benchmesh_store::annotate::Annotation;
use benchmesh_store::clock::MeshClock;
use benchmesh_store::off_runtime;
use benchmesh_store::rows::{NewEvent, RunRow};
use benchmesh_store::{Store, StoreError};
use command::Notice;
use objectives::{Objectives, Rest};
use state::{AlarmChange, Alarms, Death, Observation, RaisedAlarm, StepSeen};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(1);
/// Intervals of a running step are stored about this often.
const OBJECTIVES_PERIOD: Duration = Duration::from_secs(5);
/// Figures are means over 3 s, so those of a step count only this long after its start.
const SETTLED: Duration = Duration::from_secs(4);
/// Figures of a step no longer count if no rows of it have come for this long.
const FRESH: Duration = Duration::from_secs(5);
/// Time limit for storing an event, so that it delays neither a stop nor the other alarms.
const STORED_WITHIN: Duration = Duration::from_secs(5);

/// Watches one run after the other.
#[derive(Debug)]
pub struct Watcher {
    scheduler: Scheduler,
    store: Store,
    clock: Arc<MeshClock>,
    notifier: Notifier,
    /// The newest event that was checked for daemon deaths.
    event: i64,
    /// Runs from before the start whose alarms may still be raised.
    earlier: Vec<RunId>,
}

/// The run under way, with its alarms and objectives.
#[derive(Debug)]
struct Watch {
    row: RunRow,
    progress: Arc<RunProgress>,
    alarms: Alarms,
    objectives: Objectives,
    objectives_read: Option<Instant>,
    /// Latencies are computed while this exists.
    _latencies: Option<Viewer>,
}

/// A notification about an alarm or an objective.
#[derive(Debug)]
struct Told<'a> {
    kind: EventKind,
    state: &'static str,
    condition: &'a str,
    message: String,
    detail_json: Option<String>,
}

impl Watcher {
    /// `event`: the newest event when the collector began to serve. Later events include deaths of daemons while it was
    /// down. `earlier`: the runs that were under way, or the last to end, before it began to serve.
    pub fn new(
        scheduler: Scheduler,
        store: Store,
        clock: Arc<MeshClock>,
        notifier: Notifier,
        event: i64,
        earlier: Vec<RunId>,
    ) -> Self {
        Self {
            scheduler,
            store,
            clock,
            notifier,
            event,
            earlier,
        }
    }

    /// Watches the run under way until it is cancelled. The alarms of a run that has not ended by then stay raised.
    pub async fn watch(mut self, closing: CancellationToken) {
        let mut watch: Option<Watch> = None;
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                () = tokio::time::sleep(PERIOD) => {}
            }
            let current = self.scheduler.progress().current();
            let is_going = |progress: &Arc<RunProgress>| {
                progress.with_view(|view| view.driven && !view.state.is_end())
            };
            let current = current.filter(is_going);
            let run = current
                .as_ref()
                .map(|progress| progress.with_view(|view| view.run));
            // A resumed run has the same id and another progress.
            let is_other = |watch: &Watch| {
                !current
                    .as_ref()
                    .is_some_and(|progress| Arc::ptr_eq(progress, &watch.progress))
            };
            if watch.as_ref().is_some_and(is_other)
                && let Some(watch) = watch.take()
            {
                self.end(watch).await;
            }
            let looked = async {
                if let Some(progress) = current {
                    if watch.is_none() {
                        watch = Some(self.begin(progress).await?);
                    }
                    if let Some(watch) = &mut watch {
                        self.look(watch).await?;
                    }
                }
                self.end_earlier(run).await
            };
            if let Err(error) = looked.await {
                tracing::warn!(?run, %error, "cannot watch the alarms of a run");
            }
        }
        if let Some(watch) = watch
            && watch.progress.with_view(|view| view.state.is_end())
        {
            self.end(watch).await;
        }
    }

    /// Ends the alarms of runs from before the start that have ended, and forgets these runs. `watched` takes up its own.
    async fn end_earlier(&mut self, watched: Option<RunId>) -> Result<(), StoreError> {
        self.earlier.retain(|run| Some(*run) != watched);
        while let Some(run) = self.earlier.last() {
            let row = self.store.run(*run).await?;
            if !row.state.is_end() {
                return Ok(());
            }
            for alarm in self.still_raised(row.id).await? {
                self.tell_end_of_run(&row, None, &alarm).await;
            }
            self.earlier.pop();
        }
        Ok(())
    }

    /// The alarms of a run that are raised according to its events.
    async fn still_raised(&self, run: RunId) -> Result<Vec<RaisedAlarm>, StoreError> {
        let events = self
            .store
            .own_events(run, [EventKind::Alarm, EventKind::AlarmOver])
            .await?;
        Ok(record::still_raised(events))
    }

    async fn begin(&self, progress: Arc<RunProgress>) -> Result<Watch, StoreError> {
        let row = self.store.run(progress.with_view(|view| view.run)).await?;
        let (text, name) = (row.plan_text.clone(), row.name.clone());
        // The plan of an accepted run is valid.
        let plan = off_runtime(move || plan::parse(&text, &name)).await;
        let (alarms, objectives) = plan
            .map(|plan| (plan.alarms, plan.objectives))
            .unwrap_or_default();
        let mut alarms = Alarms::new(alarms);
        if self.earlier.contains(&row.id) {
            alarms.restore(self.still_raised(row.id).await?);
        }
        let latencies = alarms.need_latencies().then(|| self.store.live().viewer());
        let told = match objectives.is_empty() {
            true => Vec::new(),
            false => {
                self.store
                    .messages_of(row.id, EventKind::ObjectiveBroken)
                    .await?
            }
        };
        let told = told
            .iter()
            .filter_map(|message| objectives::holds_of(message));
        Ok(Watch {
            objectives: Objectives::new(objectives, told.map(str::to_owned).collect()),
            objectives_read: None,
            row,
            progress,
            alarms,
            _latencies: latencies,
        })
    }

    async fn look(&mut self, watch: &mut Watch) -> Result<(), StoreError> {
        let now = self.clock.now();
        let daemons = match watch.alarms.need_daemons() {
            true => sampled_daemons(&self.store, now).await?,
            false => Vec::new(),
        };
        let deaths = match watch.alarms.need_deaths() {
            true => {
                self.store
                    .daemons_that_died(watch.row.id, &mut self.event)
                    .await?
            }
            false => Vec::new(),
        };
        let deaths: Vec<Death> = deaths
            .into_iter()
            .map(|(name, instance, message)| Death {
                name,
                instance,
                message,
            })
            .collect();
        let ended = match watch.alarms.unsampled(&daemons) {
            unsampled if unsampled.is_empty() => Vec::new(),
            unsampled => self.store.daemons_that_ended(&unsampled).await?,
        };
        let changes = watch.alarms.observe(Observation {
            at: now,
            step: step_seen(&watch.progress, now),
            daemons: &daemons,
            ended: &ended,
            deaths: &deaths,
        });
        let raised: Vec<AlarmNow> = watch.alarms.raised().map(shown).collect();
        if watch.progress.with_view(|view| view.alarms != raised) {
            watch.progress.change(|view| view.alarms = raised);
        }
        for change in changes {
            self.tell_change(watch, &change).await;
        }
        let is_due = watch
            .objectives_read
            .is_none_or(|read| read.elapsed() >= OBJECTIVES_PERIOD);
        if is_due && !watch.objectives.all.is_empty() {
            watch.objectives_read = Some(Instant::now());
            let rest = watch.progress.with_view(|view| view.left(now));
            let step = watch
                .progress
                .with_view(|view| view.step.as_ref().map(|step| step.now.step_id));
            watch
                .objectives
                .read(&self.store, watch.row.id, step)
                .await?;
            self.show_objectives(watch, rest.map_or(Rest::Unknown, Rest::For))
                .await;
        }
        Ok(())
    }

    /// Ends the watch of a run: raises no more alarms, and judges the objectives finally.
    async fn end(&self, mut watch: Watch) {
        watch.progress.change(|view| view.alarms.clear());
        for alarm in watch.alarms.raised() {
            self.tell_end_of_run(&watch.row, Some(&watch.progress), &alarm)
                .await;
        }
        if watch.objectives.all.is_empty() {
            return;
        }
        match watch.objectives.read(&self.store, watch.row.id, None).await {
            Ok(()) => self.show_objectives(&mut watch, Rest::Over).await,
            Err(error) => {
                tracing::warn!(run = %watch.row.id, %error, "cannot judge the objectives of a run");
            }
        }
    }

    async fn show_objectives(&self, watch: &mut Watch, rest: Rest) {
        let objectives = watch.objectives.now(rest);
        watch
            .progress
            .change(|view| view.objectives.clone_from(&objectives));
        for objective in objectives.iter().filter(|objective| objective.broken) {
            if !watch.objectives.told.insert(objective.holds.clone()) {
                continue;
            }
            let told = Told {
                kind: EventKind::ObjectiveBroken,
                state: "broken",
                condition: &objective.holds,
                message: objectives::broken(objective),
                detail_json: None,
            };
            watch.progress.show_message(told.message.clone());
            self.tell(&watch.row, Some(&watch.progress), told).await;
        }
    }

    /// Carries out the plan's action for an alarm that was raised, and tells of the change.
    async fn tell_change(&self, watch: &Watch, change: &AlarmChange) {
        let alarm = &change.alarm;
        let then = match change.is_raised {
            true => watch.alarms.get(alarm.alarm).map(|alarm| alarm.then),
            false => None,
        };
        let message = match change.is_raised {
            true => format!("alarm `{}`: {}", alarm.when, alarm.because),
            false => format!("alarm `{}`{} is over", alarm.when, of_subject(alarm)),
        };
        watch.progress.show_message(message.clone());
        // Stop the load before storing anything: the database may be the problem.
        let (run, row) = (watch.row.id, &watch.row);
        match then {
            Some(AlarmAction::Stop) => {
                if let Err(error) = self.scheduler.stop(row, &message).await {
                    tracing::warn!(%run, %error, "cannot stop a run by its alarm");
                }
            }
            Some(AlarmAction::Abort) => {
                self.scheduler.abort(run, message.clone()).await;
            }
            Some(AlarmAction::Event | AlarmAction::Mark) | None => {}
        }
        let told = Told {
            message: message.clone(),
            ..told(alarm, change.is_raised)
        };
        self.tell(row, Some(&watch.progress), told).await;
        if then == Some(AlarmAction::Mark) {
            let mark = Annotation::Mark {
                text: message,
                at: None,
            };
            let marked = self.store.annotate(&row.uid, mark, self.clock.now());
            let marked = timeout(STORED_WITHIN, marked).await;
            if !matches!(marked, Ok(Ok(_))) {
                tracing::warn!(%run, ?marked, "cannot mark an alarm");
            }
        }
    }

    async fn tell_end_of_run(
        &self,
        row: &RunRow,
        progress: Option<&RunProgress>,
        alarm: &RaisedAlarm,
    ) {
        let message = format!(
            "alarm `{}`{} is over: the run has ended",
            alarm.when,
            of_subject(alarm)
        );
        if let Some(progress) = progress {
            progress.show_message(message.clone());
        }
        let told = Told {
            message,
            ..told(alarm, false)
        };
        self.tell(row, progress, told).await;
    }

    /// Notifies the collector's command, and stores the event. The callers show the message to the watchers of the run.
    async fn tell(&self, row: &RunRow, progress: Option<&RunProgress>, told: Told<'_>) {
        let (run, now) = (row.id, self.clock.now());
        let message = told.message;
        let step = progress.and_then(|progress| {
            progress.with_view(|view| view.step.as_ref().map(|step| step.now.step_id))
        });
        self.notifier.notify(Notice {
            state: told.state,
            condition: told.condition.to_owned(),
            message: message.clone(),
            run_id: run,
            run_uid: row.uid.clone(),
            run: row.name.clone(),
            step_id: step,
            at_us: now.0,
        });
        let event = NewEvent {
            run: Some(run),
            step,
            detail_json: told.detail_json,
            ..NewEvent::new(now, told.kind, message.clone())
        };
        match timeout(STORED_WITHIN, self.store.add_event(event)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%run, %error, message, "cannot store an alarm"),
            Err(_) => tracing::warn!(%run, message, "an alarm is not stored yet"),
        }
    }
}

/// The notification about an alarm, without its message.
fn told(alarm: &RaisedAlarm, is_raised: bool) -> Told<'_> {
    let (kind, state) = match is_raised {
        true => (EventKind::Alarm, "raised"),
        false => (EventKind::AlarmOver, "over"),
    };
    Told {
        kind,
        state,
        condition: &alarm.when,
        message: String::new(),
        detail_json: Some(record::detail(alarm)),
    }
}

fn of_subject(alarm: &RaisedAlarm) -> String {
    match alarm.subject.name.as_str() {
        "" => String::new(),
        daemon => format!(" of {daemon}"),
    }
}

fn shown(alarm: RaisedAlarm) -> AlarmNow {
    AlarmNow {
        when: alarm.when,
        because: alarm.because,
    }
}

/// The running step in the form that alarms use.
fn step_seen(progress: &RunProgress, now: MeshMicros) -> StepSeen {
    progress.with_view(|view| match &view.step {
        Some(step) if step.now.state == StepState::Running => {
            let for_long = |since: Option<MeshMicros>, span: Duration| {
                since.is_some_and(|at| now.since(Some(at)) >= micros(span))
            };
            let has_begun = for_long(step.start, SETTLED);
            let is_fresh = step.last_rows_at.is_some() && !for_long(step.last_rows_at, FRESH);
            match has_begun && is_fresh {
                true => StepSeen::Known(step.now.step_id, step.now.load),
                false => StepSeen::Unknown,
            }
        }
        _ => StepSeen::None,
    })
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
