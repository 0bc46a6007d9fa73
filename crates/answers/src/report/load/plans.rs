//! The query plans of a report and of the views: a query about one run starts at that run and follows indexes.
//!
//! The tests check plans instead of times: a plan is the same on every machine, and shows a scan even if the scan
//! costs little in a small database.
#![allow(clippy::unwrap_used)]

use crate::report::row::Statement;
use crate::report::sections::{
    agents, cluster, costs, daemons, events, findings, hosts, links, losses, marks, queried, steps,
};
use benchmesh_store::Store;

/// Every statement of a report, except those that find the run, those of its steps and those of the listed sections.
const STATEMENTS: [Statement; 12] = [
    agents::AGENTS,
    daemons::USAGE,
    costs::COSTS,
    hosts::HOSTS,
    hosts::AWAITED,
    cluster::FACTS,
    hosts::OTHERS,
    links::LINKS,
    events::EVENTS,
    findings::FINDINGS,
    losses::LOSSES,
    marks::MARKS,
];

/// The loops of a statement that scan a whole table or index. Loops over the statement's own results (subqueries,
/// common tables, JSON) do not count.
fn scans(file: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut explained = file
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap_or_else(|error| panic!("{error}\n{sql}"));
    let lines = explained.raw_query().mapped(|row| row.get(3));
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    let named = |line: &'_ str| -> Option<String> {
        let name = line
            .strip_prefix("CO-ROUTINE ")
            .or_else(|| line.strip_prefix("MATERIALIZE "))?;
        Some(name.to_owned())
    };
    let mut made: Vec<String> = lines.iter().filter_map(|line| named(line)).collect();
    // A common table may have an alias.
    let words: Vec<&str> = sql.split_whitespace().collect();
    for three in words.windows(3) {
        if let [name, "AS", alias] = three
            && made.iter().any(|one| one == name)
        {
            made.push((*alias).to_owned());
        }
    }
    lines
        .iter()
        .filter(|line| {
            line.strip_prefix("SCAN ").is_some_and(|scanned| {
                let name = scanned.split(' ').next().unwrap();
                !made.iter().any(|one| one == name)
                    && !scanned.contains("VIRTUAL TABLE")
                    && name != "CONSTANT"
            })
        })
        .cloned()
        .collect()
}

async fn empty_database(directory: &tempfile::TempDir) -> rusqlite::Connection {
    let path = directory.path().join("mesh.db");
    Store::open(&path).await.unwrap().close().await;
    let file = rusqlite::Connection::open(&path).unwrap();
    // Questions use them; plans do not depend on what they return.
    for name in ["ln", "exp"] {
        let flags = rusqlite::functions::FunctionFlags::SQLITE_DETERMINISTIC;
        file.create_scalar_function(name, 1, flags, |_| Ok(None::<f64>))
            .unwrap();
    }
    file
}

#[tokio::test]
async fn every_statement_of_a_report_begins_at_its_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = empty_database(&directory).await;
    assert_eq!(scans(&file, "SELECT * FROM steps AS s"), ["SCAN s"]);
    let listed = queried::SECTIONS.iter().map(|section| section.statement);
    for statement in STATEMENTS
        .into_iter()
        .chain(steps::STATEMENTS)
        .chain(listed)
    {
        let scans = scans(&file, statement.sql);
        assert!(scans.is_empty(), "{}: {scans:?}", statement.what);
    }
}

#[tokio::test]
async fn a_view_of_one_run_begins_at_that_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = empty_database(&directory).await;
    let mut views = file
        .prepare("SELECT m.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c ON c.name = 'run_id'
                  WHERE m.type = 'view' ORDER BY 1")
        .unwrap();
    let views = views.query_map([], |row| row.get(0)).unwrap();
    let views: Vec<String> = views.map(Result::unwrap).collect();
    assert!(views.len() >= 8, "{views:?}");
    for view in views {
        let mut scans = scans(&file, &format!("SELECT * FROM {view} WHERE run_id = 7"));
        if view.starts_with("v_host_") {
            scans.retain(|line| !is_of_hosts(line));
        }
        assert!(scans.is_empty(), "{view}: {scans:?}");
    }
}

/// Hosts, disks and interfaces may be scanned for samples in the step's time, because their number does not grow with
/// runs.
fn is_of_hosts(line: &str) -> bool {
    let of = ["SCAN h", "SCAN k", "SCAN n"];
    of.iter()
        .any(|of| line == *of || line.starts_with(&format!("{of} ")))
}

#[tokio::test]
async fn a_documented_question_begins_at_its_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = empty_database(&directory).await;
    for question in crate::query::questions::all() {
        let mut scans = scans(&file, &question.about(7));
        if question.name == "host-load" {
            scans.retain(|line| !is_of_hosts(line));
        }
        assert!(scans.is_empty(), "{}: {scans:?}", question.name);
    }
    for wanted in [None, Some("7"), Some("nightly")] {
        let found = scans(&file, &crate::query::questions::which_run(wanted));
        assert!(found.is_empty(), "{wanted:?}: {found:?}");
    }
}
