//! Every way a database cannot be opened is told apart, and a sound one is as the contract says.

use super::{Mesh, message, new_agent};
use crate::store::{Store, StoreError};
use std::path::Path;
use tempfile::TempDir;

async fn refusal(path: &Path) -> StoreError {
    match Store::open(path).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_new_database_has_the_settings_of_the_contract() {
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    let pragma = |name: &str| -> String {
        file.query_row(&format!("PRAGMA {name}"), [], |row| {
            row.get::<_, rusqlite::types::Value>(0)
        })
        .map(|value| format!("{value:?}"))
        .unwrap()
    };
    assert_eq!(pragma("journal_mode"), "Text(\"wal\")");
    assert_eq!(pragma("page_size"), "Integer(4096)");
    assert_eq!(pragma("auto_vacuum"), "Integer(2)");
    assert_eq!(pragma("application_id"), "Integer(1651340136)");
    let loose: Vec<String> = file
        .prepare(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' AND strict = 0
             AND name NOT LIKE 'sqlite_%' AND name <> '_sqlx_migrations'",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(loose.is_empty(), "tables that are not STRICT: {loose:?}");
}

#[tokio::test]
async fn writers_are_durable_and_readers_cannot_write() {
    let mesh = Mesh::new().await;
    let synchronous = mesh
        .store
        .write((), |(), connection| {
            Box::pin(async move {
                sqlx::query_scalar::<_, i64>("PRAGMA synchronous")
                    .fetch_one(connection)
                    .await
                    .map_err(StoreError::sql("read a setting"))
            })
        })
        .await
        .unwrap();
    assert_eq!(synchronous, 2, "FULL");
    let refused = sqlx::query("DELETE FROM agents")
        .execute(mesh.store.reader())
        .await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn what_was_written_is_there_after_opening_again() {
    let mut mesh = Mesh::new().await;
    let uid = mesh.store.mesh_uid().to_owned();
    let (agent, host) = mesh.agent("a").await;
    mesh.reopen().await;
    assert_eq!(mesh.store.mesh_uid(), uid);
    assert_eq!(
        mesh.store.attach_agent(new_agent("a")).await.unwrap(),
        (agent, host)
    );
}

#[tokio::test]
async fn one_collector_at_a_time_and_any_reader() {
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    let error = refusal(&mesh.path()).await;
    assert!(
        matches!(error, StoreError::InUse { holder: Some(pid), .. } if pid == std::process::id()),
        "{error:?}"
    );
    assert!(message(&error).contains("in use by another collector"));
    let reader = rusqlite::Connection::open(mesh.path()).unwrap();
    let agents: i64 = reader
        .query_row("SELECT count(*) FROM agents", [], |row| row.get(0))
        .unwrap();
    assert_eq!(agents, 1);
}

#[tokio::test]
async fn a_clean_end_leaves_only_the_database() {
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    mesh.store.close().await;
    let left: Vec<_> = std::fs::read_dir(mesh.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["mesh.db"]);
    let refused = mesh.store.attach_agent(new_agent("b")).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}

#[tokio::test]
async fn unusable_paths_are_told_apart() {
    let directory = TempDir::new().unwrap();
    let error = refusal(directory.path()).await;
    assert!(matches!(error, StoreError::IsDirectory { .. }), "{error:?}");

    let error = refusal(&directory.path().join("none/mesh.db")).await;
    assert!(matches!(error, StoreError::NoDirectory { .. }), "{error:?}");
    assert!(message(&error).contains("mkdir -p"));

    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "these are my notes, and no database").unwrap();
    let error = refusal(&text).await;
    assert!(
        matches!(error, StoreError::NotADatabase { .. }),
        "{error:?}"
    );
    assert_eq!(
        std::fs::read_to_string(&text).unwrap(),
        "these are my notes, and no database"
    );

    let other = directory.path().join("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE theirs (a)")
        .unwrap();
    let before = std::fs::read(&other).unwrap();
    let error = refusal(&other).await;
    assert!(
        matches!(error, StoreError::ForeignDatabase { .. }),
        "{error:?}"
    );
    assert!(std::fs::read(&other).unwrap() == before, "it was changed");
}

/// As collectors made it before samples could be brief, with a sample in it.
async fn before_samples_could_be_brief(path: &Path) {
    use sqlx::Connection;
    let all = sqlx::migrate!("./migrations");
    let old = sqlx::migrate::Migrator {
        migrations: all
            .iter()
            .filter(|migration| migration.version < 12)
            .cloned()
            .collect(),
        ..sqlx::migrate::Migrator::DEFAULT
    };
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut file = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    old.run(&mut file).await.unwrap();
    sqlx::raw_sql(
        "PRAGMA application_id = 1651340136;
         INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
         VALUES (1, 'b', 'n', 'h', 'Linux', 1, 1);
         INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us)
         VALUES (1, 1, 'ceph-osd', 'osd.1', 1, 1, '', 1, 1);
         INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes, threads,
                                     minor_faults, major_faults)
         VALUES (1, 1, 1, 2, 3, 4, 5, 6, 7);",
    )
    .execute(&mut file)
    .await
    .unwrap();
    file.close().await.unwrap();
}

#[tokio::test]
async fn a_database_of_before_samples_could_be_brief_takes_them() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("old.db");
    before_samples_could_be_brief(&path).await;
    Store::open(&path).await.unwrap().close().await;

    let file = rusqlite::Connection::open(&path).unwrap();
    let column = |sql: &str| -> Vec<String> {
        let mut statement = file.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    file.execute(
        "INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes)
         VALUES (1, 2, 1, 2, 3, 4)",
        [],
    )
    .unwrap();
    assert_eq!(
        column(
            "SELECT at_us || ':' || rss_bytes || ':' || coalesce(threads, '-') || ':' || coalesce(minor_faults, '-') || ':' || coalesce(major_faults, '-')
             FROM daemon_samples"
        ),
        ["1:3:5:6:7", "2:3:-:-:-"]
    );
    assert_eq!(
        column("SELECT name FROM pragma_table_info('daemon_samples') WHERE \"notnull\" = 0"),
        [
            "threads",
            "fds",
            "read_bytes",
            "write_bytes",
            "vol_ctx",
            "invol_ctx",
            "minor_faults",
            "major_faults"
        ],
        "nothing else was loosened"
    );
    assert_eq!(column("PRAGMA integrity_check"), ["ok"]);
    // Both are back as they were for whoever opens it next.
    assert!(
        file.execute("UPDATE sqlite_schema SET sql = sql", [])
            .is_err()
    );
    assert_eq!(
        column("SELECT name FROM sqlite_schema WHERE name = 'samples_may_be_brief'"),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let mesh = Mesh::new().await;
    mesh.store.close().await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    file.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'from the future', 1, x'00', 0)",
        [],
    )
    .unwrap();
    drop(file);
    let error = refusal(&mesh.path()).await;
    assert!(
        matches!(error, StoreError::NewerSchema { found: 9999, .. }),
        "{error:?}"
    );
    assert!(message(&error).contains("knows schemas up to"));
}

#[tokio::test]
async fn a_damaged_database_says_so() {
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    mesh.store.close().await;
    let mut bytes = std::fs::read(mesh.path()).unwrap();
    for byte in &mut bytes[100..8192] {
        *byte = 0xa5;
    }
    std::fs::write(mesh.path(), bytes).unwrap();
    let error = refusal(&mesh.path()).await;
    assert!(
        matches!(
            error,
            StoreError::Damaged { .. } | StoreError::NotADatabase { .. }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_newest_instant_and_the_anchor_survive() {
    use crate::model::MeshMicros;
    use crate::store::rows::Anchor;
    let mut mesh = Mesh::new().await;
    assert_eq!(mesh.store.newest_instant().await.unwrap(), None);
    assert_eq!(mesh.store.clock_anchor().await.unwrap(), None);
    mesh.agent("a").await;
    let newest = Some(MeshMicros(super::T0));
    assert_eq!(mesh.store.newest_instant().await.unwrap(), newest);
    let anchor = Anchor {
        boot_id: "boot".to_owned(),
        boottime_ns: 5,
        mesh_us: MeshMicros(super::T0 + 7),
    };
    mesh.store.set_clock_anchor(anchor.clone()).await.unwrap();
    mesh.reopen().await;
    assert_eq!(mesh.store.clock_anchor().await.unwrap(), Some(anchor));
    let newest = Some(MeshMicros(super::T0 + 7));
    assert_eq!(mesh.store.newest_instant().await.unwrap(), newest);
}

/// The schema before groups, with a step's results in it.
async fn older_database(path: &Path) {
    let older = TempDir::new().unwrap();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    for file in ["0001_the_mesh.sql", "0002_views.sql"] {
        std::fs::copy(all.join(file), older.path().join(file)).unwrap();
    }
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let migrator = sqlx::migrate::Migrator::new(older.path()).await.unwrap();
    migrator.run(&mut connection).await.unwrap();
    let rows = "PRAGMA application_id = 1651340136;
        INSERT INTO hosts VALUES (1, 'b', 'p', 'h', 'k', 2, 1);
        INSERT INTO agents VALUES (1, 'u', 'a', 1, '{}', '0', 0, 0);
        INSERT INTO runs (id, uid, name, plan, state, created_us, version) VALUES (1, 'u', 'r', '', 'done', 0, '0');
        INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, target, system, workload, mode, clients, cache, state,
            start_us) VALUES (7, 1, 1, 1, 'p', 'c', 't', 's', 'io', 'read', 1, 'asis', 'done', 5);
        INSERT INTO tasks (id, step_id, task_index, agent_id, state, skew_us) VALUES (3, 7, 0, 1, 'done', 40);
        INSERT INTO step_intervals VALUES (11, 7, 5, 1000000, 'read', 0, 1, 20, 80, 0, 1.5, 1, 2, 3, x'00');
        INSERT INTO step_results (id, step_id, op, tasks, ops, bytes, errors, headline, ops_per_s, p99_ns, saturated, histogram,
            response_p99_ns) VALUES (12, 7, 'read', 1, 20, 80, 0, 'window', 20.0, 2000000, 0, x'00', 9000000);";
    sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
}

#[tokio::test]
async fn a_database_from_before_groups_is_brought_up_to_date_and_keeps_its_results() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("mesh.db");
    older_database(&path).await;
    let store = Store::open(&path).await.unwrap();
    let mesh = Mesh { directory, store };
    let result: (String, String, i64, f64, f64, f64, f64) = sqlx::query_as(
        "SELECT group_name, mode, ops, ops_per_s, p99_ms, response_p99_ms, max_skew_ms FROM v_results WHERE step_id = 7",
    )
    .fetch_one(mesh.store.reader())
    .await
    .unwrap();
    let expected = (String::new(), "read".to_owned(), 20, 20.0, 2.0, 9.0, 0.04);
    assert_eq!(result, expected);
    assert_eq!(
        mesh.number("SELECT ops FROM v_timeline WHERE step_id = 7")
            .await,
        20
    );
    assert_eq!(mesh.number("SELECT count(*) FROM v_cost").await, 0);
    mesh.assert_sound().await;
}
