//! The questions of docs/parquet.md, as they are written there, give what the database's views give.

use super::engines::{ask, python, two_sites, with_all};
use super::*;
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../../docs/parquet.md");

/// The blocks of code of a language in a section.
fn blocks(section: &str, language: &str) -> Vec<&'static str> {
    let (_, text) = PAGE.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.strip_prefix(language));
    let blocks: Vec<&str> = blocks.collect();
    assert!(!blocks.is_empty(), "{section}");
    blocks
}

const DUCKDB: &str = r#"
import duckdb, json, sys
views, *questions = json.load(sys.stdin)
duckdb.sql(views)
json.dump([duckdb.sql(question).fetchall() for question in questions], open("answer.json", "w"))
"#;

const PANDAS: &str = r#"
import sys as sys_, json as json_
exec(json_.load(sys_.stdin))
names = [(p99, ["site", "system", "version", "month", "mode", "steps", "p99_ms"]),
         (cost, ["site", "system", "name", "mode", "steps", "cpu_us_per_op"]),
         (slowest.assign(p99_ms=slowest["p99_ns"] / 1e6),
          ["site", "run_uid", "ordinal", "target", "mode", "op", "at_us", "ops", "p99_ms"])]
rows = [json_.loads(frame[columns].to_json(orient="values", double_precision=15)) for frame, columns in names]
json_.dump(rows, open("answer.json", "w"))
"#;

const SPARK: &str = r#"
import sys as sys_, json as json_
tables, questions = json_.load(sys_.stdin)
exec(tables)
rows = [[list(row) for row in spark.sql(question.strip().rstrip(";")).collect()] for question in questions]
json_.dump(rows, open("answer.json", "w"))
"#;

const CLICKHOUSE: &str = r#"
import json, sys
from chdb import session
views, questions = json.load(sys.stdin)
clickhouse = session.Session()
clickhouse.query("SET output_format_json_quote_64bit_integers = 0")
for view in views.split(";"):
    if view.strip():
        clickhouse.query(view)
def rows(question):
    return json.loads(clickhouse.query(question.strip().rstrip(";"), "JSONCompact").bytes())["data"]
json.dump([rows(question) for question in questions], open("answer.json", "w"))
"#;

/// A row as text, with figures rounded to six digits.
fn line(row: &[Value]) -> String {
    let words = row.iter().map(|value| match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.5e}", number.as_f64().unwrap()),
        other => other.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn lines(rows: &Value) -> Vec<String> {
    let rows = rows.as_array().unwrap().iter();
    let mut lines: Vec<String> = rows.map(|row| line(row.as_array().unwrap())).collect();
    lines.sort();
    lines
}

/// The rows of the database's own SQL in both sites.
fn of_sqlite(scene: &Scene, sql: &str) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for (site, db) in [("lab1", "benchmesh.db"), ("lab2", "lab2.db")] {
        let sqlite = Connection::open(scene.db(db)).unwrap();
        let mut statement = sqlite.prepare(sql).unwrap();
        let width = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values = (0..width).map(|at| match row.get(at).unwrap() {
                rusqlite::types::Value::Integer(number) => json!(number),
                rusqlite::types::Value::Real(number) => json!(number),
                rusqlite::types::Value::Text(text) => json!(text),
                other => panic!("{other:?}"),
            });
            all.push([vec![json!(site)], values.collect()].concat());
        }
    }
    all
}

fn expected(scene: &Scene) -> [Vec<String>; 3] {
    // SQLite has no geometric mean.
    let steps = of_sqlite(
        scene,
        "SELECT r.system, (SELECT max(d.version) FROM step_daemons AS u JOIN daemons AS d ON d.id = u.daemon_id
                           WHERE u.step_id = r.step_id AND u.serves_target = 1),
                strftime('%Y-%m', n.created_us / 1000000, 'unixepoch'), r.mode, r.p99_ms
         FROM v_results AS r JOIN runs AS n ON n.id = r.run_id WHERE r.op = 'write' AND r.params ->> 'bs' = '4k'",
    );
    let mut groups: BTreeMap<String, (Vec<Value>, Vec<f64>)> = BTreeMap::new();
    for step in steps {
        let (p99, key) = step.split_last().unwrap();
        let group = groups
            .entry(line(key))
            .or_insert((key.to_vec(), Vec::new()));
        group.1.push(p99.as_f64().unwrap().ln());
    }
    #[expect(clippy::cast_precision_loss, reason = "few steps")]
    let p99 = groups.into_values().map(|(mut key, logs)| {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        key.extend([json!(logs.len()), json!(mean.exp())]);
        line(&key)
    });
    let mut p99: Vec<String> = p99.collect();
    p99.sort();
    let cost = of_sqlite(
        scene,
        "SELECT system, name, mode, count(*), sum(cpu_s) * 1e6 / sum(ops) FROM v_cost GROUP BY system, name, mode",
    );
    let mut cost: Vec<String> = cost.iter().map(|row| line(row)).collect();
    cost.sort();
    let mut seconds = of_sqlite(
        scene,
        "SELECT n.uid, s.ordinal, s.target, s.mode, i.op, i.at_us, i.ops, i.p99_ns / 1e6
         FROM step_intervals AS i JOIN steps AS s ON s.id = i.step_id JOIN runs AS n ON n.id = s.run_id
         WHERE strftime('%Y-%m', n.created_us / 1000000, 'unixepoch') = '2025-06' AND NOT i.ramp AND i.p99_ns > 0",
    );
    seconds.sort_by(|a, b| {
        let p99 = |row: &[Value]| row[8].as_f64().unwrap();
        let rest = |row: &[Value]| (row[0].to_string(), row[6].as_i64(), row[5].to_string());
        p99(b)
            .total_cmp(&p99(a))
            .then_with(|| rest(a).cmp(&rest(b)))
    });
    let mut slowest: Vec<String> = seconds.iter().take(20).map(|row| line(row)).collect();
    slowest.sort();
    [p99, cost, slowest]
}

#[test]
fn the_page_answers_its_questions() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return benchmesh_testing::skip("pypi", &why),
    };
    let scene = two_sites();
    let expected = expected(&scene);
    let counts = expected.each_ref().map(Vec::len);
    // Two sites, two systems, two modes that write, two months in one site; three kinds of daemons of a system.
    assert!(
        counts[0] == 12 && counts[1] > 12 && counts[2] == 20,
        "{counts:?}"
    );
    let check = |engine: &str, answer: &Value| {
        for (at, expected) in expected.iter().enumerate() {
            assert_eq!(lines(&answer[at]), *expected, "question {at} in {engine}");
        }
    };
    let at = scene.directory.path();
    let sql = blocks("DuckDB", "sql");
    assert_eq!(sql.len(), 4, "the views and three questions");
    check("DuckDB", &ask(&python, at, DUCKDB, &json!(sql)));
    let pandas = blocks("pandas and pyarrow", "python").concat();
    check("pandas", &ask(&python, at, PANDAS, &json!(pandas)));
    if with_all() {
        let with = |json: &str| -> Vec<String> {
            let changed = sql[1..]
                .iter()
                .map(|one| one.replace("s.params ->> 'bs'", json));
            let changed: Vec<String> = changed.collect();
            assert!(changed[0].contains(json) && PAGE.replace('\n', " ").contains(json));
            changed
        };
        let tables = blocks("Spark", "python").concat();
        let given = json!([tables, with("get_json_object(s.params, '$.bs')")]);
        check("Spark", &ask(&python, at, SPARK, &given));
        let views = blocks("ClickHouse", "sql").concat();
        let given = json!([views, with("JSONExtractString(s.params, 'bs')")]);
        check("ClickHouse", &ask(&python, at, CLICKHOUSE, &given));
    }
}
