//! The alarms of the run under way: what its plan watches is looked at once a second. An alarm that is raised, or over,
//! is an event and a message to those who watch the run; it may mark the time line or stop the run.

mod state;

use crate::clock::MeshClock;
use crate::live::Viewer;
use crate::model::{MeshMicros, RunId, Severity, StepState};
use crate::off_runtime;
use crate::overview::sampled_daemons;
use crate::plan::{self, AlarmAction};
use crate::scheduler::{RunProgress, Scheduler};
use crate::snapshot::AlarmNow;
use crate::store::annotate::Annotation;
use crate::store::rows::{NewEvent, RunRow};
use crate::store::{Store, StoreError};
use state::{Alarms, Change, Death, Seen, StepSeen};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(1);
/// Figures are means over 3 s: so long after its start those of a step count.
const SETTLED: Duration = Duration::from_secs(4);
/// Figures of a step count no longer when no rows of it have come for this long.
const FRESH: Duration = Duration::from_secs(5);
/// An event that cannot be stored holds up neither a stop nor the other alarms.
const STORED_WITHIN: Duration = Duration::from_secs(5);
/// Kinds of the events.
const RAISED: &str = "alarm";
const OVER: &str = "alarm-over";

/// The run under way, and its alarms.
#[derive(Debug)]
struct Watch {
    row: RunRow,
    alarms: Alarms,
    /// The newest event that was looked at.
    event: i64,
    /// Latencies are computed for as long as this exists.
    _latencies: Option<Viewer>,
}

/// Watches the run under way until it is cancelled.
pub async fn watch(
    scheduler: Scheduler,
    store: Store,
    clock: Arc<MeshClock>,
    closing: CancellationToken,
) {
    let mut watch: Option<Watch> = None;
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let current = scheduler.progress().current();
        let is_going =
            |progress: &Arc<RunProgress>| progress.look(|view| view.driven && !view.state.is_end());
        let Some(progress) = current.filter(is_going) else {
            if let Some(watch) = watch.take()
                && let Some(progress) = scheduler.progress().run(watch.row.id)
            {
                progress.change(|view| view.alarms.clear());
            }
            continue;
        };
        let run = progress.look(|view| view.run);
        let looked = async {
            if watch.as_ref().is_none_or(|watch| watch.row.id != run) {
                watch = Some(begin(&store, run).await?);
            }
            match &mut watch {
                Some(watch) => look(watch, &progress, &scheduler, &store, clock.now()).await,
                None => Ok(()),
            }
        };
        if let Err(error) = looked.await {
            tracing::warn!(%run, %error, "cannot watch the alarms of a run");
        }
    }
}

async fn begin(store: &Store, run: RunId) -> Result<Watch, StoreError> {
    let row = store.run(run).await?;
    let (text, name) = (row.plan_text.clone(), row.name.clone());
    // A plan that was taken up is a good one.
    let plan = off_runtime(move || plan::parse(&text, &name)).await;
    let alarms = Alarms::new(plan.map(|plan| plan.alarms).unwrap_or_default());
    let latencies = alarms.need_latencies().then(|| store.live().viewer());
    let event = match alarms.need_deaths() {
        true => store.newest_event().await?,
        false => 0,
    };
    Ok(Watch {
        row,
        alarms,
        event,
        _latencies: latencies,
    })
}

async fn look(
    watch: &mut Watch,
    progress: &RunProgress,
    scheduler: &Scheduler,
    store: &Store,
    now: MeshMicros,
) -> Result<(), StoreError> {
    let step = progress.look(|view| match &view.step {
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
    });
    let daemons = match watch.alarms.need_daemons() {
        true => sampled_daemons(store, now).await?,
        false => Vec::new(),
    };
    let deaths = match watch.alarms.need_deaths() {
        true => {
            store
                .daemons_that_died(watch.row.id, &mut watch.event)
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
    let changes = watch.alarms.observe(Seen {
        at: now,
        step,
        daemons: &daemons,
        deaths: &deaths,
    });
    let raised: Vec<AlarmNow> = watch.alarms.raised().collect();
    if progress.look(|view| view.alarms != raised) {
        progress.change(|view| view.alarms = raised);
    }
    for change in changes {
        tell(watch, &change, progress, scheduler, store, now).await;
    }
    Ok(())
}

/// Does what the plan asks for, tells those who watch the run, and stores what has changed.
async fn tell(
    watch: &Watch,
    change: &Change,
    progress: &RunProgress,
    scheduler: &Scheduler,
    store: &Store,
    now: MeshMicros,
) {
    let Some(alarm) = watch.alarms.get(change.alarm) else {
        return;
    };
    let run = watch.row.id;
    let (kind, severity, message) = match change.is_raised {
        true => {
            let message = format!("alarm `{}`: {}", alarm.when, change.because);
            (RAISED, Severity::Warning, message)
        }
        false => {
            let message = format!("alarm `{}` is over", alarm.when);
            (OVER, Severity::Info, message)
        }
    };
    progress.show_message(message.clone());
    // The load is stopped before anything is stored: the database may be what is wrong.
    if change.is_raised
        && alarm.then == AlarmAction::Stop
        && let Err(error) = scheduler.stop(&watch.row, &message).await
    {
        tracing::warn!(%run, %error, "cannot stop a run by its alarm");
    }
    let event = NewEvent {
        at: now,
        run: Some(run),
        step: progress.look(|view| view.step.as_ref().map(|step| step.now.step_id)),
        agent: None,
        severity,
        kind: kind.to_owned(),
        message: message.clone(),
        detail_json: None,
    };
    match timeout(STORED_WITHIN, store.add_event(event)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%run, %error, message, "cannot store an alarm"),
        Err(_) => tracing::warn!(%run, message, "an alarm is not stored yet"),
    }
    if change.is_raised && alarm.then == AlarmAction::Mark {
        let mark = Annotation::Mark {
            text: message,
            at: None,
        };
        let marked = timeout(STORED_WITHIN, store.annotate(&watch.row.uid, mark, now)).await;
        if !matches!(marked, Ok(Ok(_))) {
            tracing::warn!(%run, ?marked, "cannot mark an alarm");
        }
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
