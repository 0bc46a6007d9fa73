//! A collector's database and a server to archive it on.

use benchmesh_archive::postgres::push::{PushEvent, PushRequest, Pushed, push_runs};
use benchmesh_archive::postgres::{ArchiveError, Patience, Server, Site, UrlOrigin};
use benchmesh_archive::source::{Source, SourceError};
use benchmesh_synthetic::{Shape, generate};
use benchmesh_testing::postgres::PostgresServer;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub const DATABASE: &str = "bench";

/// Two runs of two repeats and a minute of soak on four hosts; 70,000 rows.
pub struct Lab {
    pub server: PostgresServer,
    pub directory: TempDir,
    pub db: PathBuf,
}

impl Lab {
    pub fn new() -> Option<Self> {
        Self::on(PostgresServer::start()?)
    }

    pub fn on(server: PostgresServer) -> Option<Self> {
        server.sql("postgres", "CREATE DATABASE bench");
        let directory = TempDir::new().unwrap();
        let db = directory.path().join("lab.db");
        generated(&db);
        Some(Self {
            server,
            directory,
            db,
        })
    }

    /// Another collector's database with runs of the same ids.
    pub fn second(&self) -> PathBuf {
        let db = self.directory.path().join("second.db");
        generated(&db);
        db
    }

    pub fn to(&self, user: &str) -> Server {
        Server::parse(&self.server.url(user, DATABASE), UrlOrigin::Private, None).unwrap()
    }

    pub fn request(&self) -> PushRequest {
        PushRequest {
            db: self.db.clone(),
            runs: Vec::new(),
            site: Site::Default(String::from("lab")),
            server: self.to("postgres"),
            patience: patience(),
        }
    }

    pub async fn push(&self) -> Pushed {
        push(&self.request()).await.unwrap()
    }

    pub fn change(&self, sql: &str) {
        let changed = Connection::open(&self.db)
            .unwrap()
            .execute(sql, [])
            .unwrap();
        assert!(changed > 0, "{sql}");
    }

    /// The number of rows of a table in the archive, of one run or of all.
    pub fn archived(&self, table: &str, condition: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM benchmesh.{table} WHERE {condition}");
        self.server.sql(DATABASE, &sql).parse().unwrap()
    }

    pub fn uid(&self, run: i64) -> String {
        let sql = "SELECT uid FROM runs WHERE id = ?";
        let file = Connection::open(&self.db).unwrap();
        file.query_row(sql, [run], |row| row.get(0)).unwrap()
    }

    /// Fails unless the archive has exactly the rows of the database, run by run and table by table.
    pub fn assert_same_counts(&self) {
        let source = Source::open(&self.db).unwrap();
        for run in source.ended_runs().unwrap() {
            let uid = run.uid.clone();
            let rows = source.begin(run).unwrap();
            for table in source.tables() {
                let here = i64::try_from(rows.count(table).unwrap()).unwrap();
                let there = self.archived(&table.name, &format!("run_uid = '{uid}'"));
                assert_eq!(here, there, "{} of {uid}", table.name);
            }
        }
    }
}

/// Beside the test's runtime: the generator has one of its own.
fn generated(db: &Path) {
    std::thread::scope(|scope| {
        let generating = scope.spawn(|| generate(db, &Shape::small()).unwrap());
        generating.join().unwrap();
    });
}

pub fn patience() -> Patience {
    Patience {
        answer: Duration::from_secs(60),
        first_wait: Duration::from_millis(50),
        longest_wait: Duration::from_millis(500),
        give_up_after: Duration::from_secs(30),
    }
}

pub async fn push(request: &PushRequest) -> Result<Pushed, ArchiveError> {
    watched(request, &CancellationToken::new(), |_| ()).await
}

pub async fn watched(
    request: &PushRequest,
    cancel: &CancellationToken,
    mut watch: impl FnMut(&PushEvent<'_>) + Send,
) -> Result<Pushed, ArchiveError> {
    push_runs(request, cancel, &mut |event| watch(&event)).await
}

/// All rows of a run, by table, with the type of each value.
pub fn rows_of(db: &Path, uid: &str) -> Vec<(String, Vec<String>)> {
    let source = Source::open(db).unwrap();
    let run = source.find(uid).unwrap();
    let rows = source.begin(run).unwrap();
    let tables = source.tables().iter().map(|table| {
        let mut all = Vec::new();
        let read = rows.read(table, |values| {
            all.push(format!("{values:?}"));
            Ok::<_, SourceError>(())
        });
        read.unwrap();
        (table.name.clone(), all)
    });
    tables.collect()
}

/// The causes of an error, in one text.
pub fn chain(error: &ArchiveError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!("; {next}"));
        cause = next.source();
    }
    text
}
