//! The alarms of the run under way: what its plan watches is looked at once a second. An alarm that is raised, or over,
//! is an event and a message to those who watch the run; it may mark the time line or stop the run.

mod state;

use crate::clock::MeshClock;
use crate::live::Viewer;
use crate::model::{MeshMicros, RunId, Severity, StepId, StepState};
use crate::off_runtime;
use crate::overview::sampled_daemons;
use crate::plan::{self, AlarmAction};
use crate::scheduler::{RunProgress, Scheduler};
use crate::snapshot::AlarmNow;
use crate::store::annotate::Annotation;
use crate::store::rows::{NewEvent, RunRow};
use crate::store::{Store, StoreError};
use state::{Alarms, Change, Death, Seen};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(1);
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
            watch = None;
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
    let step = progress.look(|view| {
        let step = view.step.as_ref()?;
        let is_running = step.now.state == StepState::Running;
        is_running.then_some((step.now.step_id, step.now.load))
    });
    let daemons = match watch.alarms.need_daemons() {
        true => sampled_daemons(store, now).await?,
        false => Vec::new(),
    };
    let deaths = match watch.alarms.need_deaths() {
        true => store.daemons_that_died(&mut watch.event).await?,
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
        let step = step.map(|(step, _)| step);
        tell(watch, &change, step, progress, scheduler, store, now).await?;
    }
    Ok(())
}

/// Stores what has changed, tells those who watch the run, and does what the plan asks for.
async fn tell(
    watch: &Watch,
    change: &Change,
    step: Option<StepId>,
    progress: &RunProgress,
    scheduler: &Scheduler,
    store: &Store,
    now: MeshMicros,
) -> Result<(), StoreError> {
    let Some(alarm) = watch.alarms.get(change.alarm) else {
        return Ok(());
    };
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
    let event = NewEvent {
        at: now,
        run: Some(watch.row.id),
        step,
        agent: None,
        severity,
        kind: kind.to_owned(),
        message: message.clone(),
        detail_json: None,
    };
    store.add_event(event).await?;
    match alarm.then {
        AlarmAction::Mark if change.is_raised => {
            let mark = Annotation::Mark {
                text: message,
                at: None,
            };
            if let Err(error) = store.annotate(&watch.row.uid, mark, now).await {
                tracing::warn!(run = %watch.row.id, %error, "cannot mark an alarm");
            }
        }
        AlarmAction::Stop if change.is_raised => {
            scheduler.stop(&watch.row, &message).await?;
        }
        AlarmAction::Event | AlarmAction::Mark | AlarmAction::Stop => {}
    }
    Ok(())
}
