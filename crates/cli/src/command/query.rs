//! `benchmesh query`: executes SQL and streams the rows, in constant memory except for a table. Without a statement it
//! is a prompt ([`prompt`]).

mod names;
mod prompt;

use super::source::{Asked, refused_in};
use crate::args::{QueryArguments, RowFormat};
use crate::client::{CallError, Client, Rows};
use crate::failure::{self, Outcome, wrong_usage};
use crate::output::{self, DocumentClosed, Results};
use crate::terminal;
use anyhow::Context;
use benchmesh_answers::query::{
    self, Limits, QueryAnswer, QueryError, ResultRow, Value, questions,
};
use benchmesh_answers::report::Table;
use benchmesh_model::mesh::{NO_RUN_YET, no_such_run};
use benchmesh_model::text::meant_first;
use benchmesh_workloads::params::nearest;
use std::fmt::Write as _;
use std::io::Read;
use std::time::Duration;

/// Maximum number of rows of a table: all widths must be known before its first line.
const TABLE_ROWS: usize = 10_000;

/// Maximum length of a table cell; blobs and plans would push everything else off the screen.
const CELL_CHARS: usize = 100;

pub async fn query(arguments: QueryArguments) -> anyhow::Result<Outcome> {
    if arguments.examples {
        return examples(arguments.format);
    }
    let source = arguments.source.asked()?;
    let limit = arguments.time_limit;
    let sql = match (&arguments.example, arguments.sql.as_deref()) {
        (Some(name), _) => example(&source, limit, name, arguments.run.as_deref()).await?,
        (None, Some("-")) => {
            let mut sql = String::new();
            std::io::stdin()
                .read_to_string(&mut sql)
                .context("read the statement from standard input")?;
            sql
        }
        (None, Some(sql)) => sql.to_owned(),
        (None, None) if prompt::is_possible() => {
            let format = arguments.format;
            return prompt::run(prompt::Asking {
                source,
                limit,
                format,
            })
            .await;
        }
        (None, None) => {
            return Err(wrong_usage(
                "give a statement, or - to read it from standard input; without one, query is a prompt, which needs a \
                 terminal",
            ));
        }
    };
    let rows = asked(&source, limit, &sql).await?;
    let found = answer(rows, arguments.format).await?;
    if let (Found::Nothing, Some(name)) = (found, &arguments.example) {
        explain_nothing(name);
    }
    Ok(Outcome::Done)
}

/// Whether an answer has rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Rows,
    Nothing,
}

/// Prints the rows.
async fn answer(mut rows: RowSource, format: RowFormat) -> anyhow::Result<Found> {
    let written = match format {
        RowFormat::Table => table(&mut rows).await,
        RowFormat::Csv => csv(&mut rows).await,
        RowFormat::Json => json(&mut rows).await,
    };
    let found = rows.found;
    rows.end().await;
    written.map(|()| found)
}

/// Says why a documented question has no rows.
fn explain_nothing(name: &str) {
    if let Some(why) = questions::find(name).and_then(|question| question.without_rows) {
        output::print_notice(&format!("no rows: {}", terminal::clean(why)));
    }
}

async fn asked(source: &Asked, limit: Duration, sql: &str) -> anyhow::Result<RowSource> {
    match source {
        Asked::Database(path) => {
            let answer = query::run(path, sql, Limits::own_process(limit), ()).await;
            Ok(RowSource::of(Origin::Local(answer.map_err(into_error)?)))
        }
        Asked::Collector(address) => {
            let mut client = Client::connect(address)
                .await
                .map_err(CallError::into_error)?;
            let rows = client.query(sql).await;
            Ok(RowSource::of(Origin::Remote(Box::new(
                rows.map_err(CallError::into_error)?,
            ))))
        }
    }
}

/// The SQL of a documented question about a run.
async fn example(
    source: &Asked,
    limit: Duration,
    name: &str,
    run: Option<&str>,
) -> anyhow::Result<String> {
    let Some(question) = questions::find(name) else {
        let meant = meant_first(questions::nearest_name(name));
        return Err(wrong_usage(format!(
            "there is no documented question {name:?}; {meant}`benchmesh query --examples` lists them"
        )));
    };
    let mut answer = asked(source, limit, &questions::which_run(run)).await?;
    let first = answer.next().await?.unwrap_or_default();
    answer.end().await;
    match (first.first().and_then(|row| row.first()), run) {
        (Some(Value::Integer(id)), _) => Ok(question.about(*id)),
        (_, None | Some("last")) => Err(wrong_usage(NO_RUN_YET)),
        (_, Some(run)) => {
            let names = texts(source, limit, query::RUN_NAMES).await?;
            let near = nearest(run, names.iter().map(String::as_str));
            let refusal = no_such_run(run, near);
            Err(match source {
                Asked::Database(path) => refused_in(path, refusal),
                Asked::Collector(_) => wrong_usage(refusal),
            })
        }
    }
}

/// The texts in the first column.
async fn texts(source: &Asked, limit: Duration, sql: &str) -> anyhow::Result<Vec<String>> {
    let mut rows = asked(source, limit, sql).await?;
    let mut texts = Vec::new();
    while let Some(batch) = rows.next().await? {
        texts.extend(batch.into_iter().filter_map(|row| match row.first() {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }));
    }
    rows.end().await;
    Ok(texts)
}

/// The documented questions, with their SQL in formats for programs.
fn examples(format: RowFormat) -> anyhow::Result<Outcome> {
    let all = questions::all();
    match format {
        RowFormat::Table => {
            let table = Table::titled("")
                .text("name", all.iter().map(|one| one.name.to_owned()))
                .text("question", all.iter().map(|one| one.asks.to_owned()));
            output::result(&terminal::shown(&table, "json"))?;
        }
        RowFormat::Csv => {
            let rows = all.iter().map(|one| {
                format!(
                    "{},{},{}\n",
                    field(one.name),
                    field(one.asks),
                    field(one.sql)
                )
            });
            output::result(&format!("name,question,sql\n{}", rows.collect::<String>()))?;
        }
        RowFormat::Json => {
            let all: Vec<serde_json::Value> = all
                .iter()
                .map(|one| serde_json::json!({ "name": one.name, "question": one.asks, "sql": one.sql }))
                .collect();
            output::document(&all)?;
        }
    }
    Ok(Outcome::Done)
}

/// The rows of an answer.
struct RowSource {
    origin: Origin,
    /// Until now.
    found: Found,
}

/// A file or a collector.
enum Origin {
    Local(QueryAnswer),
    Remote(Box<Rows>),
}

impl RowSource {
    fn of(origin: Origin) -> Self {
        let found = Found::Nothing;
        Self { origin, found }
    }

    fn columns(&self) -> &[String] {
        match &self.origin {
            Origin::Local(answer) => &answer.columns,
            Origin::Remote(rows) => &rows.columns,
        }
    }

    /// Ends the query at any point.
    async fn end(self) {
        if let Origin::Local(answer) = self.origin {
            answer.end().await;
        }
    }

    /// The first value, if it is a text; ends the query.
    async fn first_text(mut self) -> anyhow::Result<Option<String>> {
        let first = self.next().await?.and_then(|rows| rows.into_iter().next());
        self.end().await;
        Ok(match first.and_then(|row| row.into_iter().next()) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        })
    }

    async fn next(&mut self) -> anyhow::Result<Option<Vec<ResultRow>>> {
        let batch = match &mut self.origin {
            Origin::Local(answer) => answer.rows.recv().await.transpose().map_err(into_error)?,
            Origin::Remote(rows) => rows.next().await.map_err(CallError::into_error)?,
        };
        if batch.as_ref().is_some_and(|rows| !rows.is_empty()) {
            self.found = Found::Rows;
        }
        Ok(batch)
    }
}

pub fn into_error(error: QueryError) -> anyhow::Error {
    match error {
        QueryError::NotReading
        | QueryError::SeveralStatements
        | QueryError::NoStatement
        | QueryError::ZeroByte
        | QueryError::NoFile { .. }
        | QueryError::IsDirectory { .. }
        | QueryError::Sql { .. } => wrong_usage(error.to_string()),
        QueryError::Unreadable { .. }
        | QueryError::OtherSchema { .. }
        | QueryError::TimeLimit { .. }
        | QueryError::MemoryLimit { .. }
        | QueryError::TempLimit { .. }
        | QueryError::RowTooLarge { .. }
        | QueryError::AnswerTooLarge { .. }
        | QueryError::NoThread { .. }
        | QueryError::Sqlite { .. }
        | QueryError::Failed { .. } => anyhow::Error::new(error),
    }
}

async fn table(answer: &mut RowSource) -> anyhow::Result<()> {
    let (text, notices) = drawn(answer).await?;
    output::result(&text)?;
    for notice in notices {
        output::print_notice(&notice);
    }
    Ok(())
}

/// The rows as a table, and what is not shown of them.
async fn drawn(answer: &mut RowSource) -> anyhow::Result<(String, Vec<String>)> {
    let columns = answer.columns().to_vec();
    let mut rows: Vec<ResultRow> = Vec::new();
    let mut more = false;
    while let Some(batch) = answer.next().await? {
        rows.extend(batch);
        if rows.len() > TABLE_ROWS {
            rows.truncate(TABLE_ROWS);
            more = true;
            break;
        }
    }
    let mut table = Table::default();
    for (at, title) in columns.iter().enumerate() {
        let column = || rows.iter().filter_map(|row| row.get(at));
        let numbers = column().all(|value| !matches!(value, Value::Text(_) | Value::Blob(_)));
        let cells = column().map(cell);
        table = if numbers && !rows.is_empty() {
            table.figures(title, cells)
        } else {
            table.text(title, cells)
        };
    }
    let mut notices = Vec::new();
    if rows
        .iter()
        .flatten()
        .any(|value| cell(value).chars().count() > CELL_CHARS)
    {
        notices.push(format!(
            "texts are cut after {CELL_CHARS} characters; --format csv or json shows them whole"
        ));
    }
    if more {
        notices.push(format!(
            "only the first {TABLE_ROWS} rows are shown; --format csv or json streams all of them"
        ));
    }
    Ok((terminal::plain(&table), notices))
}

async fn csv(answer: &mut RowSource) -> anyhow::Result<()> {
    let mut out = Results::begin()?;
    let head: Vec<String> = answer.columns().iter().map(|name| field(name)).collect();
    out.write(format!("{}\n", head.join(","))).await?;
    let rows = csv_rows(answer, &mut out).await;
    // Rows received before an error are written.
    out.end().await?;
    rows
}

async fn csv_rows(answer: &mut RowSource, out: &mut Results) -> anyhow::Result<()> {
    while let Some(batch) = answer.next().await? {
        let mut text = String::new();
        for row in &batch {
            let fields: Vec<String> = row.iter().map(|value| field(&plain(value))).collect();
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        out.write(text).await?;
    }
    Ok(())
}

/// `{"columns": [...], "rows": [{...}, ...]}`, with `"error"` after the rows if it ends early.
async fn json(answer: &mut RowSource) -> anyhow::Result<()> {
    let mut out = Results::begin()?;
    let keys = keys(answer.columns());
    let columns = serde_json::to_string(&keys).context("write the columns as JSON")?;
    out.write(format!("{{\"columns\": {columns},\n \"rows\": ["))
        .await?;
    let mut separator = "\n  ";
    loop {
        let batch = match answer.next().await {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(error) => {
                let value = output::error_value(&failure::chain(&error), failure::code(&error));
                out.write(format!("\n ],\n \"error\": {value}}}\n")).await?;
                out.end().await?;
                return Err(error.context(DocumentClosed));
            }
        };
        let mut text = String::new();
        for row in &batch {
            text.push_str(separator);
            text.push_str(&object(&keys, row).context("write a row as JSON")?);
            separator = ",\n  ";
        }
        out.write(text).await?;
    }
    out.write(String::from("\n ]}\n")).await?;
    out.end().await
}

/// One row as an object, its keys in the order of the columns.
fn object(keys: &[String], row: &ResultRow) -> serde_json::Result<String> {
    let mut text = String::from("{");
    for (at, (key, value)) in keys.iter().zip(row).enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&serde_json::to_string(key)?);
        text.push_str(": ");
        text.push_str(&document(key, value).to_string());
    }
    text.push('}');
    Ok(text)
}

/// The columns of the database that contain JSON.
const DOCUMENTS: [&str; 8] = [
    "agents",
    "detail",
    "disks",
    "flags",
    "interfaces",
    "labels",
    "packages",
    "params",
];

/// A value; in a JSON column, the parsed array or object instead of its text.
fn document(column: &str, value: &Value) -> serde_json::Value {
    let parsed = match value {
        Value::Text(text) if DOCUMENTS.contains(&column) => serde_json::from_str(text).ok(),
        _ => None,
    };
    parsed
        .filter(|parsed: &serde_json::Value| parsed.is_array() || parsed.is_object())
        .unwrap_or_else(|| json_value(value))
}

/// Column names made unique as SQLite's own tools do: `n`, `n:1`, `n:2`.
fn keys(columns: &[String]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for name in columns {
        let mut key = name.clone();
        let mut again = 0_u32;
        while keys.contains(&key) {
            again += 1;
            key = format!("{name}:{again}");
        }
        keys.push(key);
    }
    keys
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(integer) => integer.to_string(),
        Value::Real(real) => real.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => hex(bytes),
    }
}

fn cell(value: &Value) -> String {
    let text = match value {
        // Rounded for reading; CSV and JSON have all digits.
        Value::Real(real) if real.abs() >= 1e-3 && real.abs() < 1e15 => {
            let text = format!("{real:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        other => plain(other),
    };
    match text.char_indices().nth(CELL_CHARS) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

fn json_value(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(integer) => (*integer).into(),
        // JSON has no infinity: null, as in SQLite's own JSON.
        Value::Real(real) => (*real).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Blob(bytes) => hex(bytes).into(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn field(text: &str) -> String {
    benchmesh_answers::report::csv_field(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::history::{History, wait};

    #[test]
    fn values_have_one_text_per_format() {
        for (value, in_csv, in_table, in_json) in [
            (Value::Null, "", "", "null"),
            (Value::Integer(-3), "-3", "-3", "-3"),
            (
                Value::Real(0.1 + 0.2),
                "0.30000000000000004",
                "0.3",
                "0.30000000000000004",
            ),
            (Value::Real(3.0), "3", "3", "3.0"),
            (Value::Real(1e-7), "0.0000001", "0.0000001", "1e-7"),
            (Value::Real(f64::INFINITY), "inf", "inf", "null"),
            (
                Value::Text("a,\"b\"".into()),
                "\"a,\"\"b\"\"\"",
                "a,\"b\"",
                "\"a,\\\"b\\\"\"",
            ),
            (Value::Blob(vec![0, 255]), "00ff", "00ff", "\"00ff\""),
        ] {
            assert_eq!(field(&plain(&value)), in_csv);
            assert_eq!(cell(&value), in_table);
            assert_eq!(json_value(&value).to_string(), in_json);
        }
        assert_eq!(cell(&Value::Text("x".repeat(101))).len(), 103);
    }

    #[test]
    fn rows_are_a_table() {
        let history = History::of_targets(1);
        let source = Asked::Database(history.path());
        let sql =
            "SELECT mode, params ->> 'bs' AS bs, p99_ms, flags, NULL AS none, zeroblob(60) AS bytes
                   FROM v_results WHERE run_id = 2 ORDER BY step_id LIMIT 3";
        let (text, notices) = wait(async {
            let mut rows = asked(&source, Duration::from_secs(60), sql).await?;
            drawn(&mut rows).await
        })
        .unwrap();
        insta::assert_snapshot!(format!("{text}{}", notices.join("\n")));
    }

    #[test]
    fn a_misspelt_question_or_run_is_refused_with_the_nearest_name() {
        let history = History::of_targets(1);
        let source = Asked::Database(history.path());
        for (name, run, expected) in [
            ("worst-second", None, "did you mean worst-seconds?"),
            ("results", Some("nigthly"), "did you mean nightly?"),
        ] {
            let error = wait(example(&source, Duration::from_secs(60), name, run)).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let nowhere = Asked::Database("nothere.db".into());
        let error = wait(asked(&nowhere, Duration::from_secs(60), "SELECT 1")).err();
        let error = error.unwrap().to_string();
        assert!(error.contains("--collector HOST:PORT"), "{error}");
    }

    #[test]
    fn an_answer_says_whether_it_has_rows() {
        let history = History::of_targets(1);
        let source = Asked::Database(history.path());
        for (sql, expected) in [
            ("SELECT 1", Found::Rows),
            ("SELECT 1 WHERE 0", Found::Nothing),
        ] {
            let found = wait(async {
                let mut rows = asked(&source, Duration::from_secs(60), sql).await?;
                drawn(&mut rows).await?;
                anyhow::Ok(rows.found)
            });
            assert_eq!(found.unwrap(), expected, "{sql}");
        }
    }

    #[test]
    fn columns_of_one_name_are_told_apart() {
        let names = ["n", "n", "m", "n"].map(str::to_owned);
        assert_eq!(keys(&names), ["n", "n:1", "m", "n:2"]);
        let row = vec![Value::Integer(1), Value::Null];
        assert_eq!(
            object(&["z".to_owned(), "a\"".to_owned()], &row).unwrap(),
            r#"{"z": 1, "a\"": null}"#
        );
        let row = vec![
            Value::Text(r#"["errors"]"#.into()),
            Value::Text("[]".into()),
            Value::Text("3".into()),
        ];
        let columns = ["flags", "name", "detail"].map(str::to_owned);
        assert_eq!(
            object(&columns, &row).unwrap(),
            r#"{"flags": ["errors"], "name": "[]", "detail": "3"}"#
        );
    }
}
