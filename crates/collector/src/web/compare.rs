//! Comparisons over HTTP: the document of `benchmesh compare --format json`, the page's pictures, and the file.

use super::api::{self, attached, report_permit, written};
use super::{App, error::HttpRefusal};
use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use benchmesh_answers::compare::{self, CompareError, Request};
use benchmesh_answers::pictures;
use benchmesh_answers::report::ComparisonDocument;
use serde::Deserialize;
use tokio::task::spawn_blocking;

/// Maximum number of earlier runs of a plan to compare with: the same as for `benchmesh compare --last`.
const MAX_LAST: u32 = 100;

/// The subject of the comparison: exactly one of `a` with `b`, `targets`, `plan` with `last`, `baseline` with or
/// without `run`, `trend`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    a: Option<String>,
    b: Option<String>,
    targets: Option<String>,
    plan: Option<String>,
    last: Option<u32>,
    baseline: Option<String>,
    run: Option<String>,
    trend: Option<String>,
}

impl TryFrom<Wanted> for Request {
    type Error = HttpRefusal;

    fn try_from(wanted: Wanted) -> Result<Self, HttpRefusal> {
        let Wanted {
            a,
            b,
            targets,
            plan,
            last,
            baseline,
            run,
            trend,
        } = wanted;
        match ((a, b), targets, (plan, last), (baseline, run), trend) {
            ((Some(a), Some(b)), None, (None, None), (None, None), None) => Ok(Self::Runs { a, b }),
            ((None, None), Some(run), (None, None), (None, None), None) => {
                Ok(Self::Targets { run })
            }
            ((None, None), None, (Some(plan), Some(runs @ 1..=MAX_LAST)), (None, None), None) => {
                Ok(Self::Last { plan, runs })
            }
            ((None, None), None, (None, None), (Some(name), run), None) => Ok(Self::Baseline {
                name,
                run: run.unwrap_or_else(|| "last".to_owned()),
            }),
            ((None, None), None, (None, None), (None, None), Some(plan)) => {
                Ok(Self::Trend { plan })
            }
            _ => Err(HttpRefusal::new(
                StatusCode::BAD_REQUEST,
                format!(
                    "name one comparison: a=RUN&b=RUN, targets=RUN, plan=NAME&last=N (N from 1 to {MAX_LAST}), \
                    baseline=NAME&run=RUN, or trend=PLAN"
                ),
            )),
        }
    }
}

async fn compared(app: &App, wanted: Wanted) -> Result<compare::CompareAnswer, HttpRefusal> {
    let request = Request::try_from(wanted)?;
    app.store.refresh().await;
    compare::compare(app.store.reader(), &request)
        .await
        .map_err(|error| match &error {
            CompareError::NoRun { .. }
            | CompareError::NoRunYet
            | CompareError::NoBaseline { .. } => {
                HttpRefusal::new(StatusCode::NOT_FOUND, crate::error_chain(&error))
            }
            error if error.is_request() => {
                HttpRefusal::new(StatusCode::BAD_REQUEST, crate::error_chain(error))
            }
            error => HttpRefusal::failed(error),
        })
}

/// The document of `benchmesh compare --format json`.
pub async fn answer(State(app): State<App>, Query(wanted): Query<Wanted>) -> api::JsonAnswer {
    let _permit = report_permit(&app).await?;
    let answer = compared(&app, wanted).await?;
    spawn_blocking(move || written(&ComparisonDocument::of(&answer)))
        .await
        .map_err(|error| HttpRefusal::failed(&error))?
}

/// The answer with the page's tables and curves.
pub async fn pictures(State(app): State<App>, Query(wanted): Query<Wanted>) -> api::JsonAnswer {
    let _permit = report_permit(&app).await?;
    let answer = compared(&app, wanted).await?;
    let overlays = pictures::overlays(app.store.path(), answer.clone())
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    spawn_blocking(move || Json(pictures::comparison_document(&answer, &overlays)))
        .await
        .map_err(|error| HttpRefusal::failed(&error))
}

/// The comparison as one self-contained file.
pub async fn file(
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, HttpRefusal> {
    let _permit = report_permit(&app).await?;
    let answer = compared(&app, wanted).await?;
    let overlays = pictures::overlays(app.store.path(), answer.clone())
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    let html = spawn_blocking(move || pictures::comparison_html(&answer, &overlays))
        .await
        .map_err(|error| HttpRefusal::failed(&error))?;
    Ok(attached("benchmesh-comparison.html", html))
}
