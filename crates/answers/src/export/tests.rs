#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use benchmesh_synthetic::{Shape, generate};
use tempfile::TempDir;

fn database() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("small.db");
    generate(&path, &Shape::small()).unwrap();
    (directory, path)
}

fn request(path: &Path, run: Option<&str>, tables: &[&str], format: Format) -> Request {
    Request {
        path: path.to_owned(),
        run: run.map(str::to_owned),
        tables: tables.iter().map(|table| (*table).to_owned()).collect(),
        format,
    }
}

fn count(path: &Path, sql: &str) -> u64 {
    let file = Connection::open(path).unwrap();
    let count: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
    count.unsigned_abs()
}

#[test]
fn every_table_and_view_has_all_its_rows() {
    let (directory, path) = database();
    for format in [Format::Csv, Format::JsonLines] {
        let out = directory.path().join(format.extension());
        let written = to_directory(&request(&path, None, &[], format), &out).unwrap();
        assert!(written.len() > 40, "{written:?}");
        for one in &written {
            let sql = format!("SELECT count(*) FROM {}", one.table);
            assert_eq!(one.rows, count(&path, &sql), "{}", one.table);
            let file = out.join(format!("{}.{}", one.table, format.extension()));
            assert!(file.is_file(), "{}", file.display());
        }
    }
    let text = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let lines = text("jsonl/step_results.jsonl");
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let (ops, histogram): (i64, Vec<u8>) = Connection::open(&path)
        .unwrap()
        .query_row(
            "SELECT ops, histogram FROM step_results LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(first["ops"], ops);
    assert_eq!(
        first["histogram"].as_str().unwrap().len(),
        2 * histogram.len()
    );
    assert!(first["response_p50_ns"].is_null());
    // A plan of several lines is one field.
    let runs = text("csv/runs.csv");
    assert!(runs.starts_with("id,uid,name,plan,"), "{runs}");
    assert!(runs.contains("\"name = \"\"nightly\"\"\n"), "{runs}");
}

#[test]
fn one_run_is_its_own_rows_and_the_samples_of_its_time() {
    let (directory, path) = database();
    let out = directory.path().join("run");
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "INSERT INTO targets (run_id, agent_id, path, nonce) SELECT id, 1, '/mnt', uid FROM runs;
             INSERT INTO target_samples SELECT t.id, r.started_us, 2, 1, NULL, NULL
                 FROM targets AS t JOIN runs AS r ON r.id IN (1, 2);",
        )
        .unwrap();
    let written = to_directory(&request(&path, Some("2"), &[], Format::Csv), &out).unwrap();
    let rows = |table: &str| written.iter().find(|one| one.table == table).unwrap().rows;
    for (table, sql) in [
        ("runs", "SELECT 1"),
        ("steps", "SELECT count(*) FROM steps WHERE run_id = 2"),
        ("targets", "SELECT 1"),
        ("target_samples", "SELECT 1"),
        (
            "op_intervals",
            "SELECT count(*) FROM op_intervals AS i JOIN tasks AS t ON t.id = i.task_id JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 2",
        ),
        (
            "v_timeline",
            "SELECT count(*) FROM v_timeline WHERE run_id = 2",
        ),
        ("daemons", "SELECT count(*) FROM daemons"),
        (
            "daemon_samples",
            "SELECT count(*) FROM daemon_samples AS d JOIN runs AS r WHERE r.id = 2 AND d.at_us BETWEEN r.started_us AND r.ended_us",
        ),
        (
            "net_samples",
            "SELECT count(*) FROM net_samples AS d JOIN runs AS r WHERE r.id = 2 AND d.at_us BETWEEN r.started_us AND r.ended_us",
        ),
        ("meta", "SELECT 1"),
    ] {
        assert_eq!(rows(table), count(&path, sql), "{table}");
        assert!(rows(table) > 0, "{table}");
    }
}

#[test]
fn wrong_requests_leave_nothing() {
    let (directory, path) = database();
    let out = directory.path().join("out");
    let refused = |request: Request, what: &str| {
        let error = to_directory(&request, &out).unwrap_err();
        assert!(
            error.is_request() && error.to_string().contains(what),
            "{error}"
        );
        assert!(!out.exists() && !directory.path().join("out.partial").exists());
    };
    refused(
        request(&path, Some("none"), &[], Format::Csv),
        "there is no run \"none\"",
    );
    refused(
        request(&path, None, &["shopping"], Format::Csv),
        "no table or view \"shopping\"; the database has meta",
    );
    refused(
        request(&directory.path().join("no.db"), None, &[], Format::Csv),
        "there is no database",
    );
    let other = directory.path().join("other.db");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE milk (litres REAL)")
        .unwrap();
    refused(
        request(&other, None, &[], Format::Csv),
        "is not a database of benchmesh",
    );
    let both = to_writer(
        &request(&path, None, &["runs", "steps"], Format::Csv),
        &mut Vec::new(),
    );
    assert!(both.unwrap_err().to_string().contains("--out"));
    std::fs::create_dir(&out).unwrap();
    let there = to_directory(&request(&path, None, &[], Format::Csv), &out).unwrap_err();
    assert!(there.to_string().contains("already exists"), "{there}");
}
