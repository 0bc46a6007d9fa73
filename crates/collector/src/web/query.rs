//! SQL over HTTP, within the bounds of `benchmesh query`. The answer is always one JSON document, even after an error.

use super::{App, MAX_QUERIES, error::HttpRefusal};
use axum::{
    Json,
    body::{Body, Bytes},
    extract::{State, rejection::JsonRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use benchmesh_answers::query::{self, Limits, QueryAnswer, QueryError, ResultRow, Rows, Value};
use futures::stream;
use serde::Deserialize;
use serde_json::Value as Json_;
use std::{convert::Infallible, sync::Arc, time::Duration};

const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The largest integer that a browser's numbers hold exactly; larger ones are sent as text.
const EXACT: i64 = 1 << 53;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    sql: String,
    /// Maximum number of rows; all if absent.
    #[serde(default)]
    limit: Option<u64>,
}

pub async fn query(
    State(app): State<App>,
    question: Result<Json<Question>, JsonRejection>,
) -> Result<Response, HttpRefusal> {
    let Json(question) =
        question.map_err(|error| HttpRefusal::new(error.status(), error.body_text()))?;
    let permit = Arc::clone(&app.queries)
        .try_acquire_owned()
        .map_err(|_| HttpRefusal::busy("queries", MAX_QUERIES))?;
    let limits = Limits::shared(TIME_LIMIT);
    app.store.refresh().await;
    let answer = query::run(app.store.path(), &question.sql, limits, permit)
        .await
        .map_err(|error| HttpRefusal::new(status(&error), crate::error_chain(&error)))?;
    let headers = [(header::CONTENT_TYPE, "application/json")];
    let pieces = Document::begin(answer, question.limit.unwrap_or(u64::MAX));
    let body = stream::unfold(pieces, |mut document| async {
        let piece = document.next().await?;
        Some((Ok::<_, Infallible>(piece), document))
    });
    Ok((headers, Body::from_stream(body)).into_response())
}

fn status(error: &QueryError) -> StatusCode {
    match error {
        QueryError::NotReading
        | QueryError::SeveralStatements
        | QueryError::NoStatement
        | QueryError::ZeroByte
        | QueryError::Sql { .. } => StatusCode::BAD_REQUEST,
        QueryError::TimeLimit { .. }
        | QueryError::MemoryLimit { .. }
        | QueryError::TempLimit { .. }
        | QueryError::RowTooLarge { .. }
        | QueryError::AnswerTooLarge { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        QueryError::NoThread { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// `{"columns": [...], "rows": [...], "truncated": false, "error": null}`, piece by piece.
struct Document {
    columns: Option<Vec<String>>,
    rows: Option<Rows>,
    left: u64,
    is_first: bool,
    /// Rows of the last batch were left out.
    is_cut: bool,
}

impl Document {
    fn begin(answer: QueryAnswer, limit: u64) -> Self {
        Self {
            columns: Some(answer.columns),
            rows: Some(answer.rows),
            left: limit,
            is_first: true,
            is_cut: false,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(columns) = self.columns.take() {
            let columns = Json_::from(columns);
            return Some(format!("{{\"columns\":{columns},\"rows\":[").into());
        }
        let rows = self.rows.as_mut()?;
        let (truncated, error) = if self.is_cut {
            (true, Json_::Null)
        } else {
            match rows.recv().await {
                Some(Ok(_)) if self.left == 0 => (true, Json_::Null),
                Some(Ok(batch)) => return Some(self.piece(batch)),
                Some(Err(error)) => (false, Json_::from(crate::error_chain(&error))),
                None => (false, Json_::Null),
            }
        };
        // Dropping the rows ends the query.
        self.rows = None;
        Some(format!("],\"truncated\":{truncated},\"error\":{error}}}").into())
    }

    fn piece(&mut self, batch: Vec<ResultRow>) -> Bytes {
        let mut piece = String::new();
        for row in batch {
            if self.left == 0 {
                self.is_cut = true;
                break;
            }
            self.left -= 1;
            if !std::mem::replace(&mut self.is_first, false) {
                piece.push(',');
            }
            let row: Vec<Json_> = row.into_iter().map(json).collect();
            piece.push_str(&Json_::from(row).to_string());
        }
        piece.into()
    }
}

/// A blob becomes hex, as in `benchmesh query`.
fn json(value: Value) -> Json_ {
    match value {
        Value::Null => Json_::Null,
        Value::Integer(integer) if integer.unsigned_abs() > EXACT.unsigned_abs() => {
            integer.to_string().into()
        }
        Value::Integer(integer) => integer.into(),
        Value::Real(real) => real.into(),
        Value::Text(text) => text.into(),
        Value::Blob(bytes) => bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            .into(),
    }
}
