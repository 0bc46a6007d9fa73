//! JSON over HTTP: all read operations of `Control`. `docs/openapi.json` describes it.

use super::{App, MAX_REPORTS, error::HttpRefusal};
use crate::overview::{self, Published};
use axum::{
    Json,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use benchmesh_answers::{
    pictures,
    query::questions,
    report::{self, Report, ReportError},
};
use benchmesh_scheduler::snapshot::Snapshot;
use benchmesh_store::{StoreError, annotate::RunSearch, rows::RunRow};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking, time::timeout};

const DEFAULT_LIMIT: u32 = 50;
const MAX_EVENTS: u32 = 1000;
/// Default number of points of a timeline, and the maximum.
const DEFAULT_POINTS: i64 = 600;
const MAX_POINTS: i64 = 5000;
/// How long a report waits while others are being made.
const REPORT_WAIT: Duration = Duration::from_secs(20);

pub(super) type JsonAnswer = Result<Json<Value>, HttpRefusal>;

async fn published(app: &App) -> Result<Published, HttpRefusal> {
    app.overview.look().await.ok_or_else(|| {
        HttpRefusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the collector is too busy to compute its state, or is closing; try again",
        )
    })
}

pub(super) fn written(part: &impl serde::Serialize) -> JsonAnswer {
    serde_json::to_value(part)
        .map(Json)
        .map_err(|error| HttpRefusal::failed(&error))
}

/// All topics of the live state in one object.
pub async fn overview(State(app): State<App>) -> Result<Response, HttpRefusal> {
    let published = published(&app).await?;
    let parts: Vec<String> = published
        .topics
        .iter()
        .map(|topic| format!("\"{}\":{}", topic.name, topic.json))
        .collect();
    let headers = [(header::CONTENT_TYPE, "application/json")];
    Ok((headers, format!("{{{}}}", parts.join(","))).into_response())
}

async fn part<T: serde::Serialize>(
    app: &App,
    name: &str,
    part: impl FnOnce(&Snapshot) -> &T,
) -> JsonAnswer {
    let published = published(app).await?;
    let value = written(part(&published.snapshot))?;
    Ok(Json(json!({ name: value.0 })))
}

pub async fn agents(State(app): State<App>) -> JsonAnswer {
    part(&app, "agents", |snapshot| &snapshot.agents).await
}

pub async fn daemons(State(app): State<App>) -> JsonAnswer {
    part(&app, "daemons", |snapshot| &snapshot.daemons).await
}

pub async fn hosts(State(app): State<App>) -> JsonAnswer {
    part(&app, "hosts", |snapshot| &snapshot.hosts).await
}

/// Selects events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsWanted {
    /// Only events after this one.
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

pub async fn events(State(app): State<App>, Query(wanted): Query<EventsWanted>) -> JsonAnswer {
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_EVENTS);
    let events = overview::read::events(app.store.reader(), wanted.after, limit)
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    Ok(Json(json!({ "events": events })))
}

/// Limits a list of runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsWanted {
    limit: Option<u32>,
}

pub async fn runs(State(app): State<App>, Query(wanted): Query<RunsWanted>) -> JsonAnswer {
    let newest = RunSearch {
        limit: wanted.limit.unwrap_or(DEFAULT_LIMIT),
        ..RunSearch::default()
    };
    let runs = app.store.search_runs(&newest).await;
    let runs = runs.map_err(|error| HttpRefusal::failed(&error))?;
    Ok(Json(json!({ "runs": runs })))
}

/// Runs that were saved under a name, for comparisons.
pub async fn baselines(State(app): State<App>) -> JsonAnswer {
    let baselines = overview::read::baselines(app.store.reader())
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    Ok(Json(json!({ "baselines": baselines })))
}

/// Finds a run by id, uid or name, or the `last` one.
async fn find(app: &App, wanted: &str) -> Result<RunRow, HttpRefusal> {
    let wanted = if wanted == "last" { "" } else { wanted };
    app.store
        .find_run(wanted)
        .await
        .map_err(|error| match &error {
            StoreError::NoSuch { .. } | StoreError::NoRunYet => {
                HttpRefusal::new(StatusCode::NOT_FOUND, crate::error_chain(&error))
            }
            _ => HttpRefusal::failed(&error),
        })
}

/// Selects steps of a run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsWanted {
    #[serde(rename = "loop")]
    loop_number: Option<u32>,
}

/// A run with its plan, and the steps of one loop (by default the newest).
pub async fn run(
    State(app): State<App>,
    Path(wanted): Path<String>,
    Query(part): Query<StepsWanted>,
) -> JsonAnswer {
    let row = find(&app, &wanted).await?;
    let loops =
        (app.store.newest_loop(row.id).await).map_err(|error| HttpRefusal::failed(&error))?;
    let loop_number = part.loop_number.or(loops).unwrap_or(1);
    let steps = app
        .store
        .steps_of_loop(row.id, loop_number)
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    let steps: Vec<Value> = steps
        .iter()
        .map(|step| {
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
            json!({
                "step_id": step.id,
                "ordinal": step.ordinal,
                "loop": step.loop_number,
                "repeat": step.repeat,
                "attempt": step.attempt,
                "phase": step.phase,
                "target": step.target,
                "system": step.system,
                "workload": step.workload,
                "mode": step.mode,
                "params": parsed(&step.params_json),
                "clients": step.clients,
                "cache": step.cache,
                "state": step.state,
                "partial": step.partial,
                "flags": parsed(&step.flags_json),
                "reason": step.reason,
                "start_us": step.start,
                "ended_us": step.ended,
            })
        })
        .collect();
    Ok(Json(json!({
        "run_id": row.id,
        "uid": row.uid,
        "run": row.name,
        "state": row.state,
        "partial": row.partial,
        "stopping": row.stop_reason.is_some() && !row.state.is_end(),
        "reason": row.reason,
        "created_us": row.created,
        "started_us": row.started,
        "ended_us": row.ended,
        "version": row.version,
        "plan": row.plan_text,
        "loops": loops,
        "loop": loop_number,
        "steps": steps,
    })))
}

/// Selects a part of a run's load.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineWanted {
    /// Mesh time; data that ended before it are left out.
    #[serde(default)]
    from_us: i64,
    points: Option<i64>,
}

pub async fn timeline(
    State(app): State<App>,
    Path(wanted): Path<String>,
    Query(part): Query<TimelineWanted>,
) -> JsonAnswer {
    let row = find(&app, &wanted).await?;
    let _permit = report_permit(&app).await?;
    let points = part.points.unwrap_or(DEFAULT_POINTS).clamp(1, MAX_POINTS);
    app.store.refresh().await;
    let timeline = pictures::timeline(app.store.path(), row.id.0, part.from_us, points)
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    written(&timeline)
}

/// A permit for a report; pages that are opened together wait for each other.
pub(super) async fn report_permit(app: &App) -> Result<OwnedSemaphorePermit, HttpRefusal> {
    let permit = Arc::clone(&app.reports).acquire_owned();
    match timeout(REPORT_WAIT, permit).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(HttpRefusal::busy("reports", MAX_REPORTS)),
    }
}

async fn loaded(app: &App, wanted: &str) -> Result<Report, HttpRefusal> {
    app.store.refresh().await;
    if let Ok(row) = find(app, wanted).await
        && row.ended.is_none()
        && let Err(error) = app.store.compute_so_far(row.id).await
    {
        tracing::warn!(run = %row.id, %error, "cannot compute the figures of a running step");
    }
    report::load(app.store.reader(), wanted)
        .await
        .map_err(|error| match &error {
            ReportError::NoRun { .. } | ReportError::NoRuns => {
                HttpRefusal::new(StatusCode::NOT_FOUND, crate::error_chain(&error))
            }
            _ => HttpRefusal::failed(&error),
        })
}

/// The document of `benchmesh report --format json`.
pub async fn report(State(app): State<App>, Path(wanted): Path<String>) -> JsonAnswer {
    let _permit = report_permit(&app).await?;
    let report = loaded(&app, &wanted).await?;
    spawn_blocking(move || written(&report))
        .await
        .map_err(|error| HttpRefusal::failed(&error))?
}

/// The answer card of a run.
pub async fn card(State(app): State<App>, Path(wanted): Path<String>) -> JsonAnswer {
    let _permit = report_permit(&app).await?;
    let report = loaded(&app, &wanted).await?;
    Ok(Json(pictures::card_document(&report.card)))
}

/// The tables and series of a report's page.
pub async fn pictures(State(app): State<App>, Path(wanted): Path<String>) -> JsonAnswer {
    let _permit = report_permit(&app).await?;
    let report = Arc::new(loaded(&app, &wanted).await?);
    let pictures = pictures::load(app.store.path(), Arc::clone(&report))
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    spawn_blocking(move || Json(pictures::report_document(&report, &pictures)))
        .await
        .map_err(|error| HttpRefusal::failed(&error))
}

/// The report as one self-contained file.
pub async fn report_file(
    State(app): State<App>,
    Path(wanted): Path<String>,
) -> Result<Response, HttpRefusal> {
    let _permit = report_permit(&app).await?;
    let report = Arc::new(loaded(&app, &wanted).await?);
    let name = format!("benchmesh-run-{}.html", report.run.id);
    let pictures = pictures::load(app.store.path(), Arc::clone(&report))
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    let html = spawn_blocking(move || pictures::html(&report, &pictures))
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    Ok(attached(&name, html))
}

/// A file that browsers save. The name consists of letters, digits, `-` and `.`.
pub(super) fn attached(name: &str, html: String) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    let disposition =
        HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    (headers, html).into_response()
}

/// The documented questions with their SQL, about the newest run.
pub async fn questions() -> Json<Value> {
    let all: Vec<Value> = questions::all()
        .iter()
        .map(|question| json!({ "title": question.asks, "sql": question.about_newest() }))
        .collect();
    Json(json!({ "questions": all }))
}
