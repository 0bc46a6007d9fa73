//! Comparisons over HTTP: the document of `benchmesh compare --format json`, the page's pictures, and the file.

use super::api::{self, attached, report_permit, written};
use super::{App, error::HttpRefusal};
use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use benchmesh_answers::compare::{self, CompareError, FigureName, KeyFilter, Request, Subject};
use benchmesh_answers::pictures;
use benchmesh_answers::report::ComparisonDocument;
use tokio::task::spawn_blocking;

/// Maximum number of earlier runs of a plan to compare with: the same as for `benchmesh compare --last`.
const MAX_LAST: u32 = 100;

/// The parameters of a request; `where` and `figure` may repeat.
type Wanted = Vec<(String, String)>;

/// The request of these parameters: one subject, and the figures to list besides the usual ones.
fn request(wanted: Wanted) -> Result<Request, HttpRefusal> {
    let refused = |why: String| HttpRefusal::new(StatusCode::BAD_REQUEST, why);
    let (mut given, mut only, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in wanted {
        match name.as_str() {
            "where" => {
                let parsed = value.parse::<KeyFilter>();
                only.push(parsed.map_err(|error| refused(format!("where={value}: {error}")))?);
            }
            "figure" => {
                for name in value.split(',') {
                    let parsed = name.parse::<FigureName>();
                    figures.push(parsed.map_err(|error| refused(error.to_string()))?);
                }
            }
            _ => given.push((name, value)),
        }
    }
    given.sort();
    let subject = subject(&given, only).ok_or_else(|| {
        refused(format!(
            "name one comparison: a=RUN&b=RUN, targets=RUN, by=KEY&run=RUN&where=KEY=VALUE, plan=NAME&last=N (N from 1 \
             to {MAX_LAST}), baseline=NAME&run=RUN, or trend=PLAN"
        ))
    })?;
    Ok(Request { subject, figures })
}

/// The subject of parameters sorted by name; `None` unless they are exactly those of one.
fn subject(given: &[(String, String)], only: Vec<KeyFilter>) -> Option<Subject> {
    let names: Vec<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
    let mut values = given.iter().map(|(_, value)| value.clone());
    let mut next = || values.next();
    Some(match names.as_slice() {
        ["by"] | ["by", "run"] => Subject::by(next()?, next(), only),
        _ if !only.is_empty() => return None,
        ["a", "b"] => Subject::Runs {
            a: next()?,
            b: next()?,
        },
        ["targets"] => Subject::Targets { run: next()? },
        ["last", "plan"] => {
            let last = next()?.parse().ok();
            Subject::Last {
                runs: last.filter(|last| (1..=MAX_LAST).contains(last))?,
                plan: next()?,
            }
        }
        ["baseline"] | ["baseline", "run"] => Subject::Baseline {
            name: next()?,
            run: next().unwrap_or_else(|| "last".to_owned()),
        },
        ["trend"] => Subject::Trend { plan: next()? },
        _ => return None,
    })
}

async fn compared(app: &App, wanted: Wanted) -> Result<compare::CompareAnswer, HttpRefusal> {
    let request = request(wanted)?;
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
