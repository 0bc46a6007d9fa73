//! Each reason why a database cannot be opened has its own error; a valid database has the documented settings.

use super::{Mesh, message, new_agent};
use crate::maintain::backup;
use crate::{Doing, Store, StoreError};
use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, Figure, Figures, HostFigures, NetFigures, TargetFigures, Unit,
};
use rusqlite::OptionalExtension;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
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
             AND name NOT LIKE 'sqlite_%'",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(loose.is_empty(), "tables that are not STRICT: {loose:?}");
}

/// It contains command lines of daemons and all results.
#[tokio::test]
async fn a_new_database_is_private_and_an_old_one_keeps_its_mode() {
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    for suffix in ["", "-wal", "-shm"] {
        let mut file = mesh.path().into_os_string();
        file.push(suffix);
        assert_eq!(mode(Path::new(&file)), 0o600, "{}", file.display());
    }
    let copy = mesh.directory.path().join("copy.db");
    fs::set_permissions(mesh.path(), fs::Permissions::from_mode(0o640)).unwrap();
    backup(&mesh.path(), &copy).unwrap();
    assert_eq!(mode(&copy), 0o640);
    Store::open(&copy).await.unwrap().close().await;
    assert_eq!(mode(&copy), 0o640);
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
                    .doing("read a setting")
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
async fn rows_survive_a_reopening() {
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

/// Takes as long as an opening waits for a lock.
#[tokio::test]
async fn a_file_that_another_program_locks_is_not_in_use_by_a_collector() {
    let mesh = Mesh::new().await;
    mesh.agent("a").await;
    mesh.store.close().await;
    let other = rusqlite::Connection::open(mesh.path()).unwrap();
    other
        .execute_batch("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE")
        .unwrap();
    let error = refusal(&mesh.path()).await;
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    assert!(message(&error).contains("another program"));
}

#[tokio::test]
async fn another_path_to_the_same_file_is_in_use_too() {
    let mesh = Mesh::new().await;
    let (symlink, hard_link) = (
        mesh.directory.path().join("symlink.db"),
        mesh.directory.path().join("hard_link.db"),
    );
    std::os::unix::fs::symlink(mesh.path(), &symlink).unwrap();
    std::fs::hard_link(mesh.path(), &hard_link).unwrap();
    for other in [symlink, hard_link] {
        let error = refusal(&other).await;
        assert!(
            matches!(error, StoreError::InUse { holder: Some(pid), .. } if pid == std::process::id()),
            "{error:?}"
        );
    }
    // The locks of the first one are unchanged.
    mesh.agent("a").await;
    mesh.store.close().await;
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

/// This process's descriptors of files in a directory.
fn descriptors(directory: &Path) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|file| file.starts_with(directory)).count()
}

#[tokio::test]
async fn a_dropped_store_closes_its_files() {
    let Mesh { directory, store } = Mesh::new().await;
    store.open_readers().await;
    store.attach_agent(new_agent("a")).await.unwrap();
    let clone = store.for_scheduler();
    drop(store);
    clone.attach_agent(new_agent("b")).await.unwrap();
    assert!(descriptors(directory.path()) > 0);
    drop(clone);
    let limit = Instant::now() + Duration::from_secs(60);
    while descriptors(directory.path()) > 0 {
        assert!(Instant::now() < limit, "the files stay open");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_unusable_path_has_its_error() {
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

/// Writes and reads refuse it, and it stays as it is.
async fn refused_with(path: &Path, changes: &str) -> StoreError {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(&format!("{changes} PRAGMA journal_mode = DELETE;"))
        .unwrap();
    drop(file);
    let before = fs::read(path).unwrap();
    let error = refusal(path).await;
    let read = crate::maintain::reader(path).unwrap_err();
    assert_eq!(read.to_string(), message(&error));
    assert!(fs::read(path).unwrap() == before, "it was changed");
    error
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let mesh = Mesh::new().await;
    mesh.store.close().await;
    let changes = "PRAGMA user_version = 7; UPDATE meta SET schema = 9999;";
    let error = refused_with(&mesh.path(), changes).await;
    assert!(
        matches!(error, StoreError::NewerSchema { found: 9999, .. }),
        "{error:?}"
    );
    assert!(message(&error).contains("knows schemas up to"));
}

/// Files from before the first release have no number, and fewer columns and tables.
#[tokio::test]
async fn a_database_of_another_text_of_the_schema_is_refused() {
    let mesh = Mesh::new().await;
    mesh.store.close().await;
    for changes in [
        "PRAGMA user_version = 7;",
        "ALTER TABLE meta DROP COLUMN schema; UPDATE meta SET version = '0.0.9'; DROP TABLE facts;",
    ] {
        let error = refused_with(&mesh.path(), changes).await;
        assert!(matches!(error, StoreError::OtherSchema { .. }), "{error:?}");
        assert!(message(&error).contains("choose another file"));
    }
    assert!(message(&refusal(&mesh.path()).await).contains("benchmesh (0.0.9)"));
}

/// A column for each sampled figure, and one for each that is stored per step.
#[tokio::test]
async fn every_figure_has_its_column() {
    let mesh = Mesh::new().await;
    let in_step = DaemonFigures::ALL.iter().filter(|it| it.in_step.is_some());
    let of = |table, figures: &'static [Figure]| figures.iter().map(move |it| (table, it));
    let figures = of(DaemonFigures::TABLE, DaemonFigures::ALL)
        .chain(of(HostFigures::TABLE, HostFigures::ALL))
        .chain(of(DiskFigures::TABLE, DiskFigures::ALL))
        .chain(of(NetFigures::TABLE, NetFigures::ALL))
        .chain(of(TargetFigures::TABLE, TargetFigures::ALL))
        .chain(in_step.map(|it| ("step_daemons", it)));
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    let column = "SELECT type, \"notnull\" FROM pragma_table_info(?1) WHERE name = ?2";
    for (table, figure) in figures {
        let found: Option<(String, bool)> = file
            .query_row(column, [table, figure.name], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .unwrap();
        let kind = match figure.unit {
            Unit::Hundredths => "REAL",
            Unit::Bytes | Unit::Micros | Unit::Count => "INTEGER",
        };
        let is_required = table != "step_daemons" && !figure.is_optional;
        assert_eq!(
            found,
            Some((kind.to_owned(), is_required)),
            "schema.sql: the column {} of {table}",
            figure.name
        );
    }
}

#[tokio::test]
async fn opening_again_changes_no_schema() {
    let mut mesh = Mesh::new().await;
    let pragmas = |mesh: &Mesh| -> (i64, i64) {
        let file = rusqlite::Connection::open(mesh.path()).unwrap();
        let sql =
            "SELECT schema_version, user_version FROM pragma_schema_version, pragma_user_version";
        file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    };
    let made = pragmas(&mesh);
    mesh.reopen().await;
    assert_eq!(pragmas(&mesh), made);
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
    use crate::rows::Anchor;
    use benchmesh_model::mesh::MeshMicros;
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
    let stored = anchor.clone();
    mesh.store
        .set_clock_anchor(move || stored.clone())
        .await
        .unwrap();
    mesh.reopen().await;
    assert_eq!(mesh.store.clock_anchor().await.unwrap(), Some(anchor));
    let newest = Some(MeshMicros(super::T0 + 7));
    assert_eq!(mesh.store.newest_instant().await.unwrap(), newest);
}
