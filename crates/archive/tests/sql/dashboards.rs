//! The dashboards of packaging/grafana: their JSON is what Grafana imports, and their SQL runs, expanded as Grafana
//! does.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Column, Connection, PgConnection, Row, TypeInfo};
use std::collections::{BTreeMap, BTreeSet};

const DASHBOARDS: [(&str, &str); 3] = [
    (
        "runs",
        include_str!("../../../../packaging/grafana/runs.json"),
    ),
    (
        "cost",
        include_str!("../../../../packaging/grafana/cost.json"),
    ),
    (
        "fleet",
        include_str!("../../../../packaging/grafana/fleet.json"),
    ),
];
const SOURCE: &str = "grafana-postgresql-datasource";
/// The generated database's time.
const TIME: &str = "BETWEEN '2025-01-01T00:00:00Z' AND '2026-01-01T00:00:00Z'";
/// Panels of what no generated run has.
const WITHOUT_ROWS: [&str; 2] = ["Findings by kind", "Lost data by agent"];

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} of {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} of {value}"))
}

fn dashboards() -> impl Iterator<Item = (&'static str, Value)> {
    DASHBOARDS
        .iter()
        .map(|(name, json)| (*name, serde_json::from_str(json).unwrap()))
}

#[test]
fn dashboards_are_what_grafana_imports() {
    let mut uids = BTreeSet::new();
    for (name, dashboard) in dashboards() {
        assert!(uids.insert(text(&dashboard, "uid").to_owned()), "{name}");
        assert_eq!(dashboard["schemaVersion"], 39, "{name}");
        assert!(
            !text(&dashboard, "title").is_empty() && dashboard.get("id").is_none(),
            "{name}"
        );
        let variables = list(&dashboard["templating"], "list");
        assert_eq!(text(&variables[0], "type"), "datasource", "{name}");
        assert_eq!(text(&variables[0], "query"), SOURCE, "{name}");
        let mut ids = BTreeSet::new();
        let mut cells = BTreeSet::new();
        for panel in list(&dashboard, "panels") {
            let title = text(panel, "title");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {title}");
            let place = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            let [x, y, w, h] = place;
            assert!(x + w <= 24 && w > 0 && h > 0, "{name}: {title}");
            for cell in (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column))) {
                assert!(cells.insert(cell), "{name}: {title} overlaps");
            }
            let targets = list(panel, "targets");
            assert_eq!(targets.len(), 1, "{name}: {title}");
            for one in std::iter::once(panel).chain(targets) {
                assert_eq!(
                    text(&one["datasource"], "uid"),
                    "${datasource}",
                    "{name}: {title}"
                );
                assert_eq!(text(&one["datasource"], "type"), SOURCE, "{name}: {title}");
            }
            assert!(targets[0]["rawQuery"].as_bool().unwrap(), "{name}: {title}");
            let is_time_series = text(panel, "type") == "timeseries";
            let format = if is_time_series {
                "time_series"
            } else {
                "table"
            };
            assert_eq!(text(&targets[0], "format"), format, "{name}: {title}");
            assert!(
                text(&targets[0], "rawSql").contains("benchmesh"),
                "{name}: {title}"
            );
        }
    }
}

/// With `All` chosen in every variable.
pub async fn run_all(connection: &mut PgConnection) {
    let mut empty = Vec::new();
    for (name, dashboard) in dashboards() {
        let mut chosen: BTreeMap<String, String> = BTreeMap::new();
        for variable in list(&dashboard["templating"], "list").iter().skip(1) {
            let sql = expanded(text(variable, "query"), &chosen);
            let values: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql.clone()))
                .fetch_all(&mut *connection)
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
            assert!(!values.is_empty(), "{name}: {sql}");
            let quoted: Vec<String> = values
                .iter()
                .map(|it| format!("'{}'", it.replace('\'', "''")))
                .collect();
            chosen.insert(text(variable, "name").to_owned(), quoted.join(","));
        }
        for panel in list(&dashboard, "panels") {
            let title = text(panel, "title");
            let sql = expanded(text(&list(panel, "targets")[0], "rawSql"), &chosen);
            // As the role that the documentation says.
            let mut transaction = connection.begin().await.unwrap();
            sqlx::raw_sql("SET LOCAL ROLE benchmesh_reader")
                .execute(&mut *transaction)
                .await
                .unwrap();
            let rows = sqlx::query(AssertSqlSafe(sql.clone()))
                .fetch_all(&mut *transaction)
                .await;
            let rows = rows.unwrap_or_else(|error| panic!("{name}: {title}: {error}\n{sql}"));
            transaction.rollback().await.unwrap();
            let Some(first) = rows.first() else {
                empty.push(title.to_owned());
                continue;
            };
            if text(panel, "type") == "timeseries" {
                let columns: Vec<(&str, &str)> = first
                    .columns()
                    .iter()
                    .map(|it| (it.name(), it.type_info().name()))
                    .collect();
                assert_eq!(columns[0], ("time", "TIMESTAMPTZ"), "{name}: {title}");
                assert_eq!(columns[1], ("metric", "TEXT"), "{name}: {title}");
                assert_eq!(columns[2].0, "value", "{name}: {title}");
            }
        }
    }
    assert_eq!(empty, WITHOUT_ROWS);
}

/// The macro and the variables that the dashboards use; any other one stays, and is an error.
fn expanded(sql: &str, chosen: &BTreeMap<String, String>) -> String {
    let mut sql = sql.to_owned();
    for (name, values) in chosen {
        sql = sql.replace(&format!("${{{name}:sqlstring}}"), values);
    }
    while let Some((before, rest)) = sql.split_once("$__timeFilter(") {
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let (column, after) = rest.split_at(end.unwrap());
        sql = format!("{before}{column} {TIME}{}", &after[1..]);
    }
    assert!(!sql.contains('$'), "{sql}");
    sql
}
