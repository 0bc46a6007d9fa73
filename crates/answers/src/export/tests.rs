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

/// Such a view never ends.
#[test]
fn a_file_with_a_foreign_view_is_refused_and_one_of_another_name_is_left_out() {
    let (directory, path) = database();
    let endless =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let change = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    change(&format!(
        "CREATE VIEW v_own AS {endless}; CREATE TABLE \"../../outside\" (a);"
    ));
    let out = directory.path().join("out");
    let written = to_directory(&request(&path, None, &[], Format::Csv), &out).unwrap();
    assert!(
        written
            .iter()
            .all(|it| it.table != "v_own" && !it.table.contains("outside"))
    );
    std::fs::remove_dir_all(&out).unwrap();
    change(&format!(
        "DROP VIEW v_marks; CREATE VIEW v_marks AS {endless}"
    ));
    let error = to_directory(&request(&path, None, &[], Format::Csv), &out).unwrap_err();
    let expected = "the view \"v_marks\" is not as benchmesh makes it";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(!out.exists());
}

/// Each page of a level has the page of the next level as its child, hundreds of times.
#[test]
fn an_export_of_pages_that_repeat_ends() {
    const PAGE: usize = 4096;
    let (directory, path) = database();
    let file = Connection::open(&path).unwrap();
    // A page at the end of the file is made from each of these numbers.
    file.execute_batch("PRAGMA journal_mode = DELETE; CREATE TABLE padding (a BLOB);")
        .unwrap();
    file.execute(
        "INSERT INTO padding VALUES (zeroblob(?1))",
        [i64::try_from(8 * PAGE).unwrap()],
    )
    .unwrap();
    let number = |sql: &str| -> usize {
        let number: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
        usize::try_from(number).unwrap()
    };
    let root = number("SELECT rootpage FROM sqlite_schema WHERE name = 'tasks'");
    let last = number("SELECT page_count FROM pragma_page_count");
    drop(file);
    let mut bytes = std::fs::read(&path).unwrap();
    let leaf = bytes[(root - 1) * PAGE..root * PAGE].to_vec();
    assert!(leaf[0] == 13 || leaf[0] == 5, "a table's page: {}", leaf[0]);
    // An interior page: its header, pointers to cells, and cells of a child and a key.
    let interior = |child: usize| {
        const CELLS: usize = 400;
        let mut page = vec![0; PAGE];
        let child = u32::try_from(child).unwrap().to_be_bytes();
        page[0] = 5;
        page[3..5].copy_from_slice(&u16::try_from(CELLS).unwrap().to_be_bytes());
        let content = PAGE - 5 * CELLS;
        page[5..7].copy_from_slice(&u16::try_from(content).unwrap().to_be_bytes());
        page[8..12].copy_from_slice(&child);
        for cell in 0..CELLS {
            let at = content + 5 * cell;
            page[12 + 2 * cell..14 + 2 * cell]
                .copy_from_slice(&u16::try_from(at).unwrap().to_be_bytes());
            page[at..at + 4].copy_from_slice(&child);
            page[at + 4] = 1;
        }
        page
    };
    let mut put = |number: usize, page: &[u8]| {
        bytes[(number - 1) * PAGE..number * PAGE].copy_from_slice(page);
    };
    put(last, &leaf);
    put(last - 1, &interior(last));
    put(last - 2, &interior(last - 1));
    put(last - 3, &interior(last - 2));
    put(root, &interior(last - 3));
    std::fs::write(&path, bytes).unwrap();
    let out = directory.path().join("out");
    let error = to_directory(&request(&path, None, &[], Format::Csv), &out).unwrap_err();
    assert!(error.to_string().contains("cannot read tasks"), "{error}");
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
