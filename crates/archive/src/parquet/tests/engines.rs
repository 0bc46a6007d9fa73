//! Independent readers: DuckDB and pyarrow from the Python registry, and with `BENCHMESH_ALL_ENGINES=1` Spark (which
//! needs Java) and ClickHouse, 1.5 GB more. Of every table, run and column they count values, and sum numbers and
//! lengths.

use super::*;
use crate::tables::ColumnType;
use rusqlite::types::ValueRef;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Reads `{"engines": [...], "tables": {name: [[column, kind], ...]}}` and answers
/// `{engine: {table: {site/run: [rows, values, sum, values, sum, ...]}}}`; sums are texts. It runs where `mesh` is.
const SCRIPT: &str = r#"
import json, math, sys
given = json.load(sys.stdin)

def duckdb_(table, columns):
    import duckdb
    lengths = {"bytes": "octet_length({})", "text": "octet_length(encode({}))"}
    what = {"number": "{}", "real": "{}", **lengths}
    total = lambda kind: "fsum" if kind == "real" else "sum"
    sums = [f"count({c}), {total(kind)}({what[kind].format(c)})::VARCHAR" for c, kind in columns]
    sql = f"""SELECT site || '/' || run_uid, count(*), {', '.join(sums)}
              FROM read_parquet('mesh/{table}/**/*.parquet', union_by_name = true) GROUP BY 1"""
    return duckdb.sql(sql).fetchall()

def pyarrow_(table, columns):
    import pyarrow.dataset as ds
    files = ds.dataset(f"mesh/{table}", format="parquet", partitioning="hive").to_table().to_pylist()
    found = {}
    for row in files:
        found.setdefault(f"{row['site']}/{row['run_uid']}", []).append(row)
    measure = {"number": lambda v: v, "bytes": len, "text": lambda v: len(v.encode()), "real": lambda v: v}
    answer = []
    for run, rows in found.items():
        line = [run, len(rows)]
        for column, kind in columns:
            values = [measure[kind](row[column]) for row in rows if row[column] is not None]
            total = (math.fsum if kind == "real" else sum)(values)
            line += [len(values), str(total) if values else None]
        answer.append(line)
    return answer

def spark_(table, columns):
    lengths = {"bytes": "octet_length({})", "text": "octet_length({})"}
    what = {"number": "CAST({} AS DECIMAL(38, 0))", "real": "{}", **lengths}
    sums = [f"count({c}), CAST(sum({what[kind].format(c)}) AS STRING)" for c, kind in columns]
    spark.read.option("mergeSchema", "true").parquet(f"mesh/{table}").createOrReplaceTempView("t")
    sql = f"SELECT concat(site, '/', run_uid), count(*), {', '.join(sums)} FROM t GROUP BY site, run_uid"
    return [list(row) for row in spark.sql(sql).collect()]

def clickhouse_(table, columns):
    what = {"number": "toInt128({})", "bytes": "length({})", "text": "length({})", "real": "{}"}
    sums = [f"count({c}), if(count({c}) = 0, NULL, toString(sum({what[kind].format(c)})))" for c, kind in columns]
    sql = f"""SELECT concat(site, '/', run_uid), count(*), {', '.join(sums)}
              FROM file('mesh/{table}/**/*.parquet') GROUP BY site, run_uid"""
    return json.loads(clickhouse.query(sql, "JSONCompact").bytes())["data"]

if "clickhouse" in given["engines"]:
    from chdb import session
    clickhouse = session.Session()
    clickhouse.query("SET output_format_json_quote_64bit_integers = 0")
if "spark" in given["engines"]:
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
answer = {}
for engine in given["engines"]:
    answer[engine] = {}
    for table, columns in given["tables"].items():
        rows = globals()[engine + "_"](table, columns)
        answer[engine][table] = {row[0]: row[1:] for row in rows}
json.dump(answer, open("answer.json", "w"))
"#;

/// The versions of engines, which `.ci/run` installs as well.
const ENGINES: &str = include_str!("engines.txt");
const MORE_ENGINES: &str = include_str!("more_engines.txt");

/// The lines `name==version` of a file for pip.
fn packages(text: &'static str) -> Vec<&'static str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn the_document_names_the_versions_that_tests_read_with() {
    let document = include_str!("../../../../../docs/parquet.md");
    let words: Vec<&str> = document.split_whitespace().collect();
    let words = words.join(" ").to_lowercase();
    for package in [packages(ENGINES), packages(MORE_ENGINES)].concat() {
        let (name, version) = package.split_once("==").unwrap();
        assert!(words.contains(&format!("{name} {version}")), "{package}");
    }
}

pub(super) fn python() -> Result<PathBuf, String> {
    let mut packages = packages(ENGINES);
    if with_all() {
        packages.extend(self::packages(MORE_ENGINES));
    }
    benchmesh_testing::python("python-engines", &packages)
}

pub(super) fn with_all() -> bool {
    std::env::var_os("BENCHMESH_ALL_ENGINES").is_some()
}

/// Runs a script beside `mesh`; it leaves its answer in a file there, because engines print.
pub(super) fn ask(python: &Path, directory: &Path, script: &str, given: &Value) -> Value {
    let answer = directory.join("answer.json");
    let _ = std::fs::remove_file(&answer);
    let mut child = Command::new(python)
        .args(["-c", script])
        .current_dir(directory)
        // Spark's workers use the same one.
        .env("PYSPARK_PYTHON", python)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let given = given.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(given.as_bytes()));
    let done = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    writer.join().unwrap().unwrap();
    serde_json::from_slice(&std::fs::read(answer).unwrap()).unwrap()
}

/// Two databases with the same uids of runs, under two sites. The second has a run of the month before.
pub(super) fn two_sites() -> Scene {
    let scene = Scene::new(&Shape::small());
    scene.change(UNUSUAL);
    let other = scene.db("lab2.db");
    generate(&other, &Shape::small()).unwrap();
    change(&other, UNUSUAL);
    change(
        &other,
        "UPDATE runs SET created_us = created_us - 31 * 86400000000 WHERE id = 1;
         UPDATE daemons SET version = iif(name LIKE 'ceph%', '19.2.0', '11.1');
         UPDATE step_results SET p99_ns = p99_ns * 2, ops = ops * 3;",
    );
    scene.export().unwrap();
    let request = Request {
        db: other,
        site: Some(String::from("lab2")),
        ..scene.request()
    };
    assert_eq!(export(&request, &mut |_| ()).unwrap().runs_written, 3);
    scene
}

/// The count and the sum of a column's values.
#[derive(Clone, Copy, Default)]
struct Sum {
    values: i64,
    whole: i128,
    real: f64,
}

impl Sum {
    fn add(&mut self, value: ValueRef<'_>) {
        self.values += 1;
        match value {
            ValueRef::Null => self.values -= 1,
            ValueRef::Integer(number) => self.whole += i128::from(number),
            ValueRef::Real(number) => self.real += number,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                self.whole += i128::try_from(bytes.len()).unwrap();
            }
        }
    }
}

fn kind(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Integer => "number",
        ColumnType::Real => "real",
        ColumnType::Text | ColumnType::Any => "text",
        ColumnType::Blob => "bytes",
    }
}

#[test]
fn engines_count_and_sum_as_sqlite_does() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return benchmesh_testing::skip("pypi", &why),
    };
    let scene = two_sites();
    let source = Source::open(&scene.db("benchmesh.db")).unwrap();
    let has_files = |table: &&Table| scene.mesh().join(&table.name).exists();
    let tables: Vec<&Table> = source.tables().iter().filter(has_files).collect();
    assert!(tables.len() > 20, "{}", tables.len());
    let columns = |table: &Table| -> Vec<[String; 2]> {
        let columns = table.columns.iter();
        columns
            .map(|one| [one.name.clone(), kind(one.kind).to_owned()])
            .collect()
    };
    let asked: BTreeMap<&str, _> = tables
        .iter()
        .map(|one| (one.name.as_str(), columns(one)))
        .collect();
    let mut engines = vec!["duckdb", "pyarrow"];
    if with_all() {
        engines.extend(["spark", "clickhouse"]);
    }
    let given = json!({"engines": engines, "tables": asked});
    let answer = ask(&python, scene.directory.path(), SCRIPT, &given);
    for (site, db) in [("lab1", "benchmesh.db"), ("lab2", "lab2.db")] {
        let source = Source::open(&scene.db(db)).unwrap();
        let sqlite = Connection::open(scene.db(db)).unwrap();
        for run in source.ended_runs().unwrap() {
            let found_in_sqlite = Run {
                sqlite: &sqlite,
                // Samples are those of its times, which the second site's first run was not created at.
                run: EndedRun {
                    created_us: sqlite
                        .query_row(
                            "SELECT started_us FROM runs WHERE id = ?",
                            [run.id],
                            |row| row.get(0),
                        )
                        .unwrap(),
                    ..run.clone()
                },
            };
            for table in &tables {
                for engine in &engines {
                    let key = format!("{site}/{}", run.uid);
                    found_in_sqlite.same_as(engine, table, &answer[engine][&table.name][&key]);
                }
            }
        }
    }
}

struct Run<'a> {
    sqlite: &'a Connection,
    run: EndedRun,
}

impl Run<'_> {
    fn same_as(&self, engine: &str, table: &Table, answer: &Value) {
        let names: Vec<String> = table
            .columns
            .iter()
            // The engines have numbers of any type as texts.
            .map(|one| match one.kind {
                ColumnType::Any => format!("CAST({} AS TEXT)", one.name),
                _ => one.name.clone(),
            })
            .collect();
        let sql = format!(
            "SELECT {} FROM {} WHERE {}",
            names.join(", "),
            table.name,
            of_run(table, &self.run)
        );
        let mut statement = self.sqlite.prepare(&sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        let mut count = 0;
        let mut sums = vec![Sum::default(); names.len()];
        while let Some(row) = rows.next().unwrap() {
            count += 1;
            for (at, sum) in sums.iter_mut().enumerate() {
                sum.add(row.get_ref(at).unwrap());
            }
        }
        let what = format!("{} of {} in {engine}", table.name, self.run.uid);
        if count == 0 {
            assert!(answer.is_null(), "{what}: {answer}");
            return;
        }
        assert_eq!(answer[0], count, "{what}");
        for (at, (sum, column)) in sums.iter().zip(&table.columns).enumerate() {
            let (values, found) = (&answer[1 + 2 * at], &answer[2 + 2 * at]);
            let what = format!("{what}: {}", column.name);
            assert_eq!(*values, sum.values, "{what}");
            if sum.values == 0 {
                assert!(found.is_null(), "{what}: {found}");
            } else if column.kind == ColumnType::Real {
                let found: f64 = found.as_str().unwrap().parse().unwrap();
                let (low, high) = (sum.real.min(found), sum.real.max(found));
                assert!(
                    high - low <= 1e-9 * high.abs().max(low.abs()),
                    "{what}: {low} {high}"
                );
            } else {
                assert_eq!(found.as_str().unwrap(), sum.whole.to_string(), "{what}");
            }
        }
    }
}
