//! SQL on an archive answers as SQLite does: views, documented questions and functions give the same rows for the same
//! runs, and the panels of the dashboards run. Against a real PostgreSQL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod dashboards;
mod rows;

use benchmesh_answers::query::questions;
use benchmesh_archive::postgres::definitions;
use benchmesh_archive::postgres::push::{PushRequest, push_runs};
use benchmesh_archive::postgres::{Patience, Server, Site, UrlOrigin};
use benchmesh_archive::source::{EndedRun, Source};
use benchmesh_synthetic::{Shape, generate};
use benchmesh_testing::postgres::PostgresServer;
use rows::{archived, compare, same_columns, sqlite};
use sqlx::{Connection, PgConnection};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// What a generated database lacks.
const EXTRA: &str = include_str!("extra.sql");

struct Archived {
    directory: tempfile::TempDir,
    db: PathBuf,
    connection: PgConnection,
    /// Ended as the last of all, so that nothing of it is dropped before.
    _server: PostgresServer,
}

/// An archive of one generated database, pushed under two sites: their ids are the same.
async fn archive() -> Option<Archived> {
    let server = PostgresServer::start()?;
    let url = server.url("postgres", "postgres");
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("mesh.db");
    let path = db.clone();
    let generated = tokio::task::spawn_blocking(move || generate(&path, &Shape::small()).unwrap());
    generated.await.unwrap();
    let file = rusqlite::Connection::open(&db).unwrap();
    file.execute_batch(EXTRA).unwrap();
    drop(file);
    for site in ["lab", "it's another"] {
        let copy = directory.path().join("copy.db");
        std::fs::copy(&db, &copy).unwrap();
        let file = rusqlite::Connection::open(&copy).unwrap();
        file.execute("UPDATE meta SET mesh_uid = ?", [site])
            .unwrap();
        drop(file);
        let request = PushRequest {
            db: copy,
            runs: Vec::new(),
            site: Site::Named(site.to_owned()),
            server: Server::parse(&url, UrlOrigin::Private, None).unwrap(),
            patience: Patience::default(),
        };
        let pushed = push_runs(&request, &CancellationToken::new(), &mut |_| {}).await;
        assert_eq!(pushed.unwrap().new, 3);
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("ANALYZE")
        .execute(&mut connection)
        .await
        .unwrap();
    Some(Archived {
        directory,
        db,
        connection,
        _server: server,
    })
}

/// A database that has one run and nothing else.
fn only(run: &EndedRun, from: &Path, directory: &Path) -> PathBuf {
    let path = directory.join(format!("only-{}.db", run.id));
    std::fs::copy(from, &path).unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch("PRAGMA foreign_keys = off; PRAGMA synchronous = off; BEGIN")
        .unwrap();
    let source = Source::open(from).unwrap();
    let of_run = source.begin(run.clone()).unwrap();
    for table in source.tables() {
        file.execute(&format!("DELETE FROM {}", table.name), [])
            .unwrap();
        let places = vec!["?"; table.columns.len()].join(", ");
        let sql = format!("INSERT INTO {} VALUES ({places})", table.name);
        let mut insert = file.prepare(&sql).unwrap();
        let inserted = of_run.read(table, |values| {
            let values = values
                .iter()
                .map(|value| rusqlite::types::Value::try_from(*value).unwrap());
            insert.execute(rusqlite::params_from_iter(values)).unwrap();
            Ok::<_, benchmesh_archive::source::SourceError>(())
        });
        inserted.unwrap();
    }
    file.execute_batch("COMMIT").unwrap();
    path
}

#[tokio::test]
async fn views_questions_and_functions_give_the_rows_of_sqlite() {
    let Some(mut archive) = archive().await else {
        return;
    };
    let runs = Source::open(&archive.db).unwrap().ended_runs().unwrap();
    let mut empty: Vec<String> = definitions::views().map(|view| view.name).collect();
    empty.extend(questions::all().iter().map(|one| one.name.to_owned()));
    for run in &runs {
        let alone = only(run, &archive.db, archive.directory.path());
        for view in definitions::views() {
            let expected = sqlite(&alone, &format!("SELECT * FROM {}", view.name)).await;
            same_columns(&mut archive.connection, &view.name, &expected.columns).await;
            let found = archived(&mut archive.connection, &view.name, "lab", &run.uid).await;
            compare(&view.name, &expected, &found);
            empty.retain(|name| expected.rows.is_empty() || *name != view.name);
        }
        for question in questions::all() {
            // Only this question is about other runs.
            let file = if question.name == "history" {
                &archive.db
            } else {
                &alone
            };
            let view = definitions::question_view(question.name);
            let expected = sqlite(file, &question.about(run.id)).await;
            same_columns(&mut archive.connection, &view, &expected.columns).await;
            let found = archived(&mut archive.connection, &view, "it''s another", &run.uid).await;
            compare(&view, &expected, &found);
            empty.retain(|name| expected.rows.is_empty() || name != question.name);
        }
    }
    assert!(
        empty.is_empty(),
        "without rows in all runs, so not compared: {empty:?}"
    );
    histograms(&mut archive, &runs).await;
}

/// Merged and asked as SQLite's functions do it, over the same rows.
async fn histograms(archive: &mut Archived, runs: &[EndedRun]) {
    let shares = ["0", "0.001", "0.5", "0.9", "0.99", "0.999", "0.9999", "1"];
    for (table, column) in [
        ("op_intervals", "service_histogram"),
        ("step_intervals", "histogram"),
        ("step_results", "histogram"),
    ] {
        let asked = |prefix: &str, cast: &str| {
            let merged = format!("{prefix}hist_merge({column})");
            let each =
                shares.map(|share| format!("{prefix}hist_quantile({merged}, {share}){cast}"));
            format!(
                "op, {prefix}hist_count({merged}){cast}, {}",
                each.join(", ")
            )
        };
        let expected = format!(
            "SELECT {} FROM {table} GROUP BY op ORDER BY op",
            asked("", "")
        );
        let expected = sqlite(&archive.db, &expected).await;
        let uids: Vec<String> = runs.iter().map(|run| format!("'{}'", run.uid)).collect();
        let sql = format!(
            "SELECT array_to_json(ARRAY[{}])::text FROM benchmesh.{table} WHERE site = 'lab' AND run_uid IN ({}) GROUP BY op \
             ORDER BY op",
            asked("benchmesh.", "::text"),
            uids.join(", ")
        );
        let found: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_all(&mut archive.connection)
            .await
            .unwrap();
        let expected: Vec<String> = expected
            .rows
            .iter()
            .map(|row| rows::as_text_array(row))
            .collect();
        assert!(!expected.is_empty(), "{table}");
        assert_eq!(found, expected, "{table}.{column}");
    }
}

#[tokio::test]
async fn functions_refuse_what_is_no_histogram() {
    let Some(mut archive) = archive().await else {
        return;
    };
    for (sql, reason) in [
        (
            "SELECT benchmesh.hist_count('\\x1c849314')",
            "this is no histogram of an archive: 4 bytes",
        ),
        (
            "SELECT benchmesh.hist_quantile(benchmesh.hist_of(ARRAY[1, 2]), 1.5)",
            "takes a share from 0 to 1",
        ),
        (
            "SELECT benchmesh.hist_count(substring(benchmesh.hist_of(ARRAY[1]) FOR 40) || '\\xffffffffffffffffff')",
            "larger than its scale",
        ),
        (
            "SELECT benchmesh.hist_count(substring(benchmesh.hist_of(ARRAY[1]) FOR 40) || '\\xff')",
            "out of valid range",
        ),
    ] {
        let error = sqlx::raw_sql(sql)
            .execute(&mut archive.connection)
            .await
            .unwrap_err();
        assert!(error.to_string().contains(reason), "{sql}: {error}");
    }
    let nothing: Option<i64> =
        sqlx::query_scalar("SELECT benchmesh.hist_quantile(benchmesh.hist_of('{}'), 0.5)")
            .fetch_one(&mut archive.connection)
            .await
            .unwrap();
    assert_eq!(nothing, None);
}

#[tokio::test]
async fn every_panel_of_a_dashboard_runs() {
    let Some(mut archive) = archive().await else {
        return;
    };
    dashboards::run_all(&mut archive.connection).await;
}

#[tokio::test]
async fn the_documented_curve_has_a_row_for_each_release_and_site() {
    let Some(mut archive) = archive().await else {
        return;
    };
    let document = include_str!("../../../../docs/archive.md");
    let mut blocks = 0;
    for block in document.split("```sql\n").skip(1) {
        let (sql, _) = block.split_once("```").unwrap();
        let sql = sql.trim().trim_end_matches(';');
        let sql = format!("SELECT count(*) FROM ({sql}) AS asked");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.clone()))
            .fetch_one(&mut archive.connection)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        if sql.contains("AS release") {
            assert!(rows >= 2, "{rows}");
        }
        blocks += 1;
    }
    assert!(blocks >= 3, "{blocks}");
}
