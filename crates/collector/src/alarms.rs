//! The alarms and objectives of the run under way, evaluated once a second. An alarm that is raised or over, and an
//! objective that is broken, becomes an event, a message to the watchers of the run, and a call of the collector's
//! command. An alarm may also mark the time line, stop the run or end it as failed.

mod command;
mod objectives;
mod state;

pub use command::{AlarmCommand, AlarmCommandError, Notifier, Runner};

use crate::overview::sampled_daemons;
use benchmesh_model::mesh::{MeshMicros, Severity, StepState};
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
use state::{AlarmChange, Alarms, Death, Observation, StepSeen};
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
/// Kinds of the events.
const RAISED: &str = "alarm";
const OVER: &str = "alarm-over";
const BROKEN: &str = "objective-broken";

/// Watches one run after the other.
#[derive(Debug)]
pub struct Watcher {
    scheduler: Scheduler,
    store: Store,
    clock: Arc<MeshClock>,
    notifier: Notifier,
    /// The newest event that was checked for daemon deaths.
    event: i64,
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
    kind: &'static str,
    severity: Severity,
    state: &'static str,
    condition: &'a str,
    message: String,
    then: AlarmAction,
}

impl Watcher {
    /// `event`: the newest event when the collector began to serve. Later events include deaths of daemons while it was
    /// down.
    pub fn new(
        scheduler: Scheduler,
        store: Store,
        clock: Arc<MeshClock>,
        notifier: Notifier,
        event: i64,
    ) -> Self {
        Self {
            scheduler,
            store,
            clock,
            notifier,
            event,
        }
    }

    /// Watches the run under way until it is cancelled.
    pub async fn watch(mut self, closing: CancellationToken) {
        let mut watch: Option<Watch> = None;
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(PERIOD) => {}
            }
            let current = self.scheduler.progress().current();
            let is_going = |progress: &Arc<RunProgress>| {
                progress.look(|view| view.driven && !view.state.is_end())
            };
            let current = current.filter(is_going);
            let run = current
                .as_ref()
                .map(|progress| progress.look(|view| view.run));
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
            let Some(progress) = current else { continue };
            let looked = async {
                if watch.is_none() {
                    watch = Some(self.begin(progress).await?);
                }
                match &mut watch {
                    Some(watch) => self.look(watch).await,
                    None => Ok(()),
                }
            };
            if let Err(error) = looked.await {
                tracing::warn!(?run, %error, "cannot watch the alarms of a run");
            }
        }
    }

    async fn begin(&self, progress: Arc<RunProgress>) -> Result<Watch, StoreError> {
        let row = self.store.run(progress.look(|view| view.run)).await?;
        let (text, name) = (row.plan_text.clone(), row.name.clone());
        // The plan of an accepted run is valid.
        let plan = off_runtime(move || plan::parse(&text, &name)).await;
        let (alarms, objectives) = plan
            .map(|plan| (plan.alarms, plan.objectives))
            .unwrap_or_default();
        let alarms = Alarms::new(alarms);
        let latencies = alarms.need_latencies().then(|| self.store.live().viewer());
        let told = match objectives.is_empty() {
            true => Vec::new(),
            false => self.store.messages_of(row.id, BROKEN).await?,
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
        let changes = watch.alarms.observe(Observation {
            at: now,
            step: step_seen(&watch.progress, now),
            daemons: &daemons,
            deaths: &deaths,
        });
        let raised: Vec<AlarmNow> = watch.alarms.raised().collect();
        if watch.progress.look(|view| view.alarms != raised) {
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
            let rest = watch.progress.look(|view| view.left(now));
            let step = watch
                .progress
                .look(|view| view.step.as_ref().map(|step| step.now.step_id));
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
        let raised: Vec<AlarmNow> = watch.alarms.raised().collect();
        watch.progress.change(|view| view.alarms.clear());
        for alarm in &raised {
            let told = Told {
                kind: OVER,
                severity: Severity::Info,
                state: "over",
                condition: &alarm.when,
                message: format!("alarm `{}` is over: the run has ended", alarm.when),
                then: AlarmAction::Event,
            };
            self.tell(&watch, told).await;
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
                kind: BROKEN,
                severity: Severity::Warning,
                state: "broken",
                condition: &objective.holds,
                message: objectives::broken(objective),
                then: AlarmAction::Event,
            };
            self.tell(watch, told).await;
        }
    }

    async fn tell_change(&self, watch: &Watch, change: &AlarmChange) {
        let Some(alarm) = watch.alarms.get(change.alarm) else {
            return;
        };
        let told = match change.is_raised {
            true => Told {
                kind: RAISED,
                severity: Severity::Warning,
                state: "raised",
                condition: &alarm.when,
                message: format!("alarm `{}`: {}", alarm.when, change.because),
                then: alarm.then,
            },
            false => Told {
                kind: OVER,
                severity: Severity::Info,
                state: "over",
                condition: &alarm.when,
                message: format!("alarm `{}` is over", alarm.when),
                then: AlarmAction::Event,
            },
        };
        self.tell(watch, told).await;
    }

    /// Carries out the plan's action, notifies the watchers of the run and the collector's command, and stores the
    /// event.
    async fn tell(&self, watch: &Watch, told: Told<'_>) {
        let (run, now) = (watch.row.id, self.clock.now());
        let message = told.message;
        watch.progress.show_message(message.clone());
        // Stop the load before storing anything: the database may be the problem.
        match told.then {
            AlarmAction::Stop => {
                if let Err(error) = self.scheduler.stop(&watch.row, &message).await {
                    tracing::warn!(%run, %error, "cannot stop a run by its alarm");
                }
            }
            AlarmAction::Abort => self.scheduler.abort(run, message.clone()).await,
            AlarmAction::Event | AlarmAction::Mark => {}
        }
        let step = watch
            .progress
            .look(|view| view.step.as_ref().map(|step| step.now.step_id));
        self.notifier.notify(Notice {
            state: told.state,
            condition: told.condition.to_owned(),
            message: message.clone(),
            run_id: run,
            run_uid: watch.row.uid.clone(),
            run: watch.row.name.clone(),
            step_id: step,
            at_us: now.0,
        });
        let event = NewEvent {
            at: now,
            run: Some(run),
            step,
            agent: None,
            severity: told.severity,
            kind: told.kind.to_owned(),
            message: message.clone(),
            detail_json: None,
        };
        match timeout(STORED_WITHIN, self.store.add_event(event)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%run, %error, message, "cannot store an alarm"),
            Err(_) => tracing::warn!(%run, message, "an alarm is not stored yet"),
        }
        if told.then == AlarmAction::Mark {
            let mark = Annotation::Mark {
                text: message,
                at: None,
            };
            let marked = self.store.annotate(&watch.row.uid, mark, now);
            let marked = timeout(STORED_WITHIN, marked).await;
            if !matches!(marked, Ok(Ok(_))) {
                tracing::warn!(%run, ?marked, "cannot mark an alarm");
            }
        }
    }
}

/// The running step in the form that alarms use.
fn step_seen(progress: &RunProgress, now: MeshMicros) -> StepSeen {
    progress.look(|view| match &view.step {
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
