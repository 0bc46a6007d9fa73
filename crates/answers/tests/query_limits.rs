//! Limits of a hostile query: it must not affect the next one. The test has its own process, because the memory limit
//! applies to the process.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use benchmesh_answers::query::{self, Limits, QueryError, ResultRow};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::Store;
use benchmesh_store::rows::NewRun;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, oneshot};

const LONG: Duration = Duration::from_secs(60);
/// An endless query.
const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

/// Held by a test that reaches the process's memory limit, and by one whose queries must succeed.
static MEMORY: Mutex<()> = Mutex::const_new(());

/// A database with a little data, stored through the product's own API.
async fn database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let store = Store::open(&path).await.unwrap();
    store.close().await;
    (directory, path)
}

async fn all(path: &Path, sql: &str, limits: Limits) -> Result<Vec<ResultRow>, QueryError> {
    let mut answer = query::run(path, sql, limits, ()).await?;
    let mut rows = Vec::new();
    while let Some(batch) = answer.rows.recv().await {
        rows.extend(batch?);
    }
    Ok(rows)
}

/// The peak resident memory of this process, in MiB.
fn peak_rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    kib / 1024
}

#[tokio::test]
async fn a_zero_byte_is_refused_at_once() {
    let (_directory, path) = database().await;
    for sql in ["select 1\0", "\0", "select '\0'", "-- \0\nselect 1"] {
        let error = all(&path, sql, Limits::shared(LONG)).await.unwrap_err();
        assert!(matches!(error, QueryError::ZeroByte), "{error:?}");
    }
}

/// A row of values that are each twice as long as `bytes`.
fn large(columns: usize, bytes: usize) -> String {
    let column = format!("hex(zeroblob({bytes}))");
    format!("SELECT {}", vec![column; columns].join(", "))
}

fn run(number: usize) -> NewRun {
    NewRun {
        uid: format!("u{number}"),
        name: "r".to_owned(),
        plan_text: "x".repeat(100_000),
        agents_json: "[]".to_owned(),
        order_seed: None,
        created: MeshMicros(1),
        due: None,
        version: "0".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_rows_and_answers_are_bounded() {
    let _alone = MEMORY.lock().await;
    let (_directory, path) = database().await;
    let shared = Limits::shared(LONG);
    // Each value alone is allowed, all of them together are not.
    let error = all(&path, &large(200, 4_000_000), shared)
        .await
        .unwrap_err();
    assert!(matches!(error, QueryError::MemoryLimit { .. }), "{error:?}");
    let error = all(&path, &large(20, 300_000), shared).await.unwrap_err();
    assert!(matches!(error, QueryError::RowTooLarge { .. }), "{error:?}");
    let error = all(&path, &large(1, 32_000_000), shared).await.unwrap_err();
    assert!(error.to_string().contains("too big"), "{error}");
    let error = all(&path, &large(501, 1), shared).await.unwrap_err();
    assert!(error.to_string().contains("too many columns"), "{error}");
    let answer = Limits {
        answer_bytes: 1 << 20,
        ..shared
    };
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT hex(zeroblob(50000)) FROM n";
    let error = all(&path, rows, answer).await.unwrap_err();
    assert!(
        matches!(error, QueryError::AnswerTooLarge { .. }),
        "{error:?}"
    );
    let temp = Limits {
        temp_bytes: 16 << 20,
        ..shared
    };
    let sorted = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT randomblob(500) AS r FROM n ORDER BY r";
    let error = all(&path, sorted, temp).await.unwrap_err();
    assert!(matches!(error, QueryError::TempLimit { .. }), "{error:?}");
    // What our own aggregates hold counts too, and is given back.
    let small = Limits {
        memory_bytes: 48 << 20,
        ..shared
    };
    for _ in 0..3 {
        let ordered = ENDLESS.replace("count(*)", "median(i), quantile(i, 0.9)");
        let error = all(&path, &ordered, small).await.unwrap_err();
        assert!(matches!(error, QueryError::MemoryLimit { .. }), "{error:?}");
    }
    // Far below the 4.4 GB that one such row took without a limit, whatever memory concurrent tests use.
    assert!(peak_rss_mib() < 1000, "{} MiB", peak_rss_mib());
    // The next query is not affected.
    assert_eq!(all(&path, "SELECT 1", shared).await.unwrap().len(), 1);
    rows_are_written_while_queries_reach_the_limit_on_memory(&path).await;
}

/// SQLite's memory limit applies to the whole process.
async fn rows_are_written_while_queries_reach_the_limit_on_memory(path: &Path) {
    let store = Store::open(path).await.unwrap();
    let queries = (0..4).map(|_| {
        let path = path.to_owned();
        tokio::spawn(async move {
            for _ in 0..4 {
                let answered = all(&path, &large(400, 4_000_000), Limits::shared(LONG)).await;
                let error = answered.unwrap_err();
                assert!(matches!(error, QueryError::MemoryLimit { .. }), "{error:?}");
            }
        })
    });
    let queries: Vec<_> = queries.collect();
    let mut written = 0;
    while !queries.iter().all(|query| query.is_finished()) {
        store.create_run(run(written)).await.unwrap();
        written += 1;
    }
    for query in queries {
        query.await.unwrap();
    }
    let runs = all(path, "SELECT uid FROM runs", Limits::shared(LONG));
    assert_eq!(runs.await.unwrap().len(), written);
    assert!(written > 0);
    store.close().await;
}

/// Reports when the query has ended and its file is closed.
struct Ended(Option<oneshot::Sender<()>>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_query() {
    let (_directory, path) = database().await;
    // While it waits for the header of the answer, which has no first row ...
    let (ended, has_ended) = oneshot::channel();
    let limits = Limits::shared(Duration::from_secs(3600));
    let mut answer = query::run(&path, ENDLESS, limits, Ended(Some(ended)))
        .await
        .unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), answer.rows.recv())
            .await
            .is_err()
    );
    drop(answer);
    tokio::time::timeout(LONG, has_ended)
        .await
        .unwrap()
        .unwrap();
    // ... and while the statement is compiled.
    let (ended, has_ended) = oneshot::channel();
    let mut sql = String::from("WITH t0 AS (SELECT * FROM events, events)");
    for depth in 1..40 {
        sql.push_str(&format!(
            ", t{depth} AS (SELECT * FROM t{0} UNION SELECT * FROM t{0})",
            depth - 1
        ));
    }
    sql.push_str(" SELECT count(*) FROM t39");
    let asked = query::run(&path, &sql, limits, Ended(Some(ended)));
    drop(tokio::time::timeout(Duration::from_millis(50), asked).await);
    tokio::time::timeout(LONG, has_ended)
        .await
        .unwrap()
        .unwrap();
}

/// Fragments of SQL, of nearly valid SQL, and of other text.
fn sql() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        8 => prop::sample::select(vec![
            "select", "SELECT", "from", "where", "group by", "order by", "limit", "union all", "with recursive",
            "as", "(", ")", ",", ";", "*", "1", "'a'", "\"id\"", "[id]", "x'00'", "null", "is", "not", "between",
            "runs", "v_results", "agents", "n(i)", "count(*)", "zeroblob(8000000)", "hex(randomblob(100))",
            "printf('%9999999d', 1)", "replace(hex(zeroblob(9999)), '0', 'aaaa')", "json_each('[1,[2]]')", "?1", ":a",
            "--", "/*", "*/", "pragma", "table_info(runs)", "explain", "attach 'x' as y", "delete", "values (1)",
            "like '%a%b%c%'", "over ()", "cast(", "collate nocase", "returning", "\n",
        ]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["'", "\"", "`", "[", "/*", "\u{0}", "\u{feff}", "\u{1f600}", "\\", "$$"])
            .prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (1_usize..20_000).prop_map(|depth| "(".repeat(depth)),
        1 => (1_usize..20_000).prop_map(|count| "1+".repeat(count)),
        1 => (1_usize..200_000).prop_map(|length| format!("'{}", "x".repeat(length))),
        1 => (1_usize..2_000).prop_map(|count| ";".repeat(count)),
    ];
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

#[test]
fn any_text_ends_in_time() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _alone = runtime.block_on(MEMORY.lock());
    let (_directory, path) = runtime.block_on(database());
    let limit = Duration::from_millis(200);
    proptest!(ProptestConfig::with_cases(300), |(sql in sql())| {
        let began = Instant::now();
        let answered = runtime.block_on(all(&path, &sql, Limits::shared(limit)));
        // Its time limit, the wait for its end, and a reserve for a busy machine.
        prop_assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        if sql.contains('\0') {
            prop_assert!(matches!(answered, Err(QueryError::ZeroByte)), "{:?}", answered);
        }
        // The database is unchanged, and the next query succeeds.
        let runs = runtime.block_on(all(&path, "SELECT count(*) FROM runs", Limits::shared(LONG)));
        prop_assert!(runs.is_ok(), "{:?}", runs);
    });
}
