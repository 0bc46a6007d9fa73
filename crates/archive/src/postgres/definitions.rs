//! Everything in an archive's schema that has no rows: functions, indexes, and views. They are made anew when their text
//! has changed, so they need no migration.
//!
//! The views are those of the store, over all archived runs: `site` and `run_uid` first, then the same columns. A
//! documented question is a view, too: `q_results` has the rows that `query --example results` prints, of every run.

use super::dialect::{NullOrder, Relations, Scope, translate};
use crate::tables::{self, Table};
use benchmesh_answers::query::questions;
use benchmesh_store::schema;
use std::fmt::Write;
use std::sync::LazyLock;

const FUNCTIONS: &str = include_str!("functions.sql");
const INDEXES: &str = include_str!("indexes.sql");

/// Views of what is not archived.
const NOT_ARCHIVED: [&str; 1] = ["v_kept_data"];
/// Questions about other runs of the same collector.
const OF_SITE: [&str; 1] = ["history"];
const ARCHIVED_RUN: &str = "archived.id";

/// The views of the store that an archive has.
pub fn views() -> impl Iterator<Item = schema::View> {
    let all = schema::views().into_iter();
    all.filter(|view| !NOT_ARCHIVED.contains(&view.name.as_str()))
}

/// The name of the view that answers a documented question.
pub fn question_view(question: &str) -> String {
    format!("q_{}", question.replace('-', "_"))
}

/// The names of all views.
pub fn names() -> Vec<String> {
    let questions = questions::all()
        .iter()
        .map(|question| question_view(question.name));
    views().map(|view| view.name).chain(questions).collect()
}

static SQL: LazyLock<String> = LazyLock::new(|| {
    let tables = tables::known().expect("SQLite makes the store's own schema in memory");
    text(tables)
});

/// Replaces all functions of the schema `benchmesh`, makes missing indexes, and all views and questions, which must not be
/// there. To be executed in a transaction.
pub fn sql() -> &'static str {
    &SQL
}

fn text(tables: Vec<Table>) -> String {
    let mut relations = relations(tables);
    let mut sql =
        format!("{INDEXES}\n{FUNCTIONS}\nSET LOCAL search_path = benchmesh, pg_catalog;\n");
    for view in views() {
        let select = translate(&view.select, &relations, Scope::Run, NullOrder::AsWritten);
        create(&mut sql, &view.name, &select);
    }
    relations.views = views().map(|view| view.name).collect();
    for question in questions::all() {
        let scope = if OF_SITE.contains(&question.name) {
            Scope::Site
        } else {
            Scope::Run
        };
        let asked = question.about_expression(ARCHIVED_RUN);
        let select = translate(&asked, &relations, scope, NullOrder::Smallest);
        create(&mut sql, &question_view(question.name), &select);
    }
    sql.push_str("SET LOCAL search_path = DEFAULT;\n");
    sql
}

fn create(sql: &mut String, name: &str, select: &str) {
    let _ = writeln!(
        sql,
        "CREATE VIEW benchmesh.{name} AS\nSELECT archived.site, archived.run_uid, shown.*\nFROM benchmesh.runs AS \
         archived\nCROSS JOIN LATERAL (\n{select}\n) AS shown;\n"
    );
}

fn relations(tables: Vec<Table>) -> Relations {
    let partitioned = tables.iter().filter(|table| table.is_partitioned());
    Relations {
        partitioned: partitioned.map(|table| table.name.clone()).collect(),
        tables: tables.into_iter().map(|table| table.name).collect(),
        views: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_view_and_question_is_defined_and_names_no_table_of_sqlite() {
        let sql = sql();
        let all = schema::tables_and_views().unwrap();
        for name in all.iter().filter(|name| name.starts_with("v_")) {
            let is_defined = sql.contains(&format!("CREATE VIEW benchmesh.{name} AS"));
            assert!(
                is_defined != NOT_ARCHIVED.contains(&name.as_str()),
                "{name}"
            );
        }
        for question in questions::all() {
            let name = question_view(question.name);
            assert!(
                sql.contains(&format!("CREATE VIEW benchmesh.{name} AS")),
                "{name}"
            );
        }
        for name in all {
            for before in ["FROM", "JOIN"] {
                assert!(!sql.contains(&format!("{before} {name} ")), "{name}");
            }
        }
        assert!(!sql.contains(":run"));
    }
}
