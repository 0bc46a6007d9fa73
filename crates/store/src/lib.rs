//! The database: opened once, written by one task, read through a pool that cannot write.
//!
//! Every write returns after its commit. The scheduler's rows are plain structs (`rows`); telemetry comes in through
//! a `Publisher`. Only this crate and the reports name tables.

mod agents;
pub mod annotate;
pub mod archived;
mod blocked;
pub(crate) mod busy;
pub mod clock;
pub mod database;
mod direct;
pub mod distribution;
mod environment;
mod findings;
mod finish;
pub mod import;
mod in_memory;
pub mod ingest;
mod kept;
pub(crate) mod left;
mod lock;
pub mod maintain;
pub mod objectives;
mod off_runtime;
pub mod open;
mod probes;
pub mod prune;
mod publisher;
mod read;
pub mod retention;
pub mod rows;
pub mod run_rows;
mod runs;
mod samplers;
pub mod schema;
pub(crate) mod writer;

pub use crate::database::{Blocked, Doing, StoreError};
pub use busy::Busy;
pub use direct::directly;
pub use finish::last_samples::HOSTS_AWAITED;
pub use kept::KeptSet;
pub use left::DirectoryLeft;
pub use off_runtime::off_runtime;
pub use publisher::MAX_WINDOW;
pub use publisher::Publisher;
pub use schema::IS_OF_RUN;
pub use writer::GROUP_ROWS;

use crate::database::WriteRows;
use crate::ingest::apply::Ingest;
use crate::ingest::feed::Feed;
use crate::ingest::reserve::Reserve;
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros};
use finish::claims::StepClaims;
use publisher::QUEUED_ROWS;
use rows::Anchor;
use sqlx::sqlite::SqlitePool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use writer::{CommitPolicy, LastRequest, WriterHandle};

/// How long `close` waits for the store's own readers before it closes the writer.
const QUIET_END: Duration = Duration::from_secs(5);

/// How often gathered rows are committed while a caller waits for a batch.
const FLUSH_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time that a caller waits for the intervals of running steps.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum wait for readers that are opened at the start.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of queued refresh requests; further callers wait.
const QUEUED_REFRESHES: usize = 64;

/// An open database. Cheap to clone; call `close` at the end. When the last clone is dropped without it, queued writes
/// are done and all connections are closed too, but that is not awaited.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    readers: Readers,
}

/// Which connections a store reads through.
#[derive(Clone, Copy, Debug)]
enum Readers {
    /// Shared by reports, pages and exports, of which there are many and some are slow.
    Shared,
    /// For the scheduler, the sessions, and the figures of steps, so that a run does not wait for reports.
    Scheduler,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    mesh_uid: String,
    reader: SqlitePool,
    scheduler_reader: SqlitePool,
    writer: WriterHandle,
    /// The tasks of the writer, of the recomputation of figures, and of the following of running steps; taken by
    /// `close`.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Cancelled first at `close`: ends the store's own readers and writers.
    closing: CancellationToken,
    rows: Arc<Semaphore>,
    /// Asks the task that follows running steps to run now. It drops the received sender when it is done.
    refresh: mpsc::Sender<oneshot::Sender<()>>,
    live: Feed,
    reserve: Arc<Reserve>,
    blocked: blocked::Blockage,
    /// Steps whose figures are being computed.
    computing: StepClaims,
    /// The latest instant that the collector itself wrote.
    newest: Arc<AtomicI64>,
    /// Agents' claims raise the ids of runs at most to it.
    run_ids_bound: OnceCell<i64>,
}

impl Shared {
    /// Creates a store with the writer from `start` and its tasks. The readers are those of reports and of the
    /// scheduler.
    fn new(
        path: PathBuf,
        mesh_uid: String,
        [reader, scheduler_reader]: [SqlitePool; 2],
        refresh: mpsc::Sender<oneshot::Sender<()>>,
        start: impl FnOnce(
            Ingest,
            blocked::Blockage,
        ) -> Result<(WriterHandle, Vec<JoinHandle<()>>), StoreError>,
    ) -> Result<Self, StoreError> {
        let live = Feed::new();
        let reserve = Arc::new(Reserve::of(&path));
        let blocked = blocked::Blockage::new(None);
        let ingest = Ingest::new(live.clone(), Arc::clone(&reserve));
        let (writer, tasks) = start(ingest, blocked.clone())?;
        Ok(Self {
            path,
            mesh_uid,
            reader,
            scheduler_reader,
            writer,
            tasks: Mutex::new(tasks),
            closing: CancellationToken::new(),
            rows: Arc::new(Semaphore::new(QUEUED_ROWS as usize)),
            refresh,
            live,
            reserve,
            blocked,
            computing: StepClaims::default(),
            newest: Arc::new(AtomicI64::new(0)),
            run_ids_bound: OnceCell::new(),
        })
    }
}

impl Drop for Shared {
    /// The connections of the readers are closed with their pools; the writer has its own thread.
    fn drop(&mut self) {
        self.closing.cancel();
        self.writer.close();
    }
}

impl Store {
    /// Opens the database at `path`. Creates it if it is missing.
    #[boxed]
    #[inline(never)]
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_in(path, LastRequest::default()).await
    }

    async fn open_in(path: &Path, last_request: LastRequest) -> Result<Self, StoreError> {
        let opened = open::open(path).await?;
        let readers = [opened.reader, opened.scheduler_reader];
        let (refresh, refreshes) = mpsc::channel(QUEUED_REFRESHES);
        let start = |ingest, blocked| {
            let (connection, options) = (opened.writer, opened.options);
            WriterHandle::start(
                connection,
                options,
                opened.lock,
                ingest,
                blocked,
                last_request,
            )
            .map(|(writer, task)| (writer, vec![task]))
        };
        let shared = Shared::new(opened.path, opened.mesh_uid, readers, refresh, start)?;
        let store = Self {
            shared: Arc::new(shared),
            readers: Readers::Shared,
        };
        if let Some(newest) = store.newest_instant().await? {
            store.note(newest);
        }
        let weak = Arc::downgrade(&store.shared);
        let mut tasks = store.shared.tasks.lock().await;
        tasks.push(tokio::spawn(finish::recompute_late(weak.clone())));
        tasks.push(tokio::spawn(finish::follow::follow(weak, refreshes)));
        drop(tasks);
        Ok(store)
    }

    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Resolves if nothing can be written any more, because the writer's thread ended unexpectedly.
    pub async fn writer_died(&self) {
        self.shared.writer.died().await;
    }

    /// Connections that cannot write. Keep reads short: a snapshot that stays open keeps the WAL from shrinking.
    pub fn reader(&self) -> &SqlitePool {
        match self.readers {
            Readers::Shared => &self.shared.reader,
            Readers::Scheduler => &self.shared.scheduler_reader,
        }
    }

    /// Opens the connections of the readers, and has each read the schema. A collector calls this at its start.
    /// Otherwise the schemas, half a megabyte of small blocks each, are allocated later between blocks in short use,
    /// whose pages they keep from the system. A connection that does not open now is opened when it is needed.
    pub async fn open_readers(&self) {
        for pool in [&self.shared.reader, &self.shared.scheduler_reader] {
            match timeout(OPEN_TIMEOUT, open_all(pool)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "some readers are not opened yet"),
                Err(_) => tracing::debug!("some readers are not opened yet"),
            }
        }
    }

    /// The same store, reading through connections that reports do not share.
    #[must_use]
    pub fn for_scheduler(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            readers: Readers::Scheduler,
        }
    }

    /// For the store's own tasks, which compute the figures of steps.
    fn own(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            readers: Readers::Scheduler,
        }
    }

    /// Created with the database; distinguishes meshes.
    pub fn mesh_uid(&self) -> &str {
        &self.shared.mesh_uid
    }

    /// A session's handle for storing batches.
    pub fn publisher(&self, agent: AgentId, host: HostId, net_namespace: String) -> Publisher {
        Publisher::new(
            self.shared.writer.clone(),
            Arc::clone(&self.shared.rows),
            Arc::clone(&self.shared.newest),
            self.shared.live.clone(),
            agent,
            host,
            net_namespace,
        )
    }

    /// The bytes that one agent may have stored within an hour: a share of the database's disk.
    pub fn agent_bytes_per_hour(&self) -> u64 {
        self.shared.reserve.agent_bytes_per_hour()
    }

    /// Whether the remaining space of the database's disk is reserved for results.
    pub fn is_low_on_space(&self) -> bool {
        self.shared.reserve.poll()
    }

    /// Whether space was low at any time since the last call.
    pub fn take_was_low_on_space(&self) -> bool {
        self.shared.reserve.take_was_low()
    }

    /// Notifications of arriving rows and commits.
    pub fn live(&self) -> &Feed {
        &self.shared.live
    }

    /// Resolves once everything up to `sequence` of the agent's spool is committed.
    pub async fn stored(
        &self,
        agent: AgentId,
        spool_id: &str,
        sequence: u64,
    ) -> Result<(), StoreError> {
        let mut commits = self.shared.live.commits();
        self.flush().await;
        loop {
            commits.mark_unchanged();
            // Hundreds of agents are waited for at the end of a step, and each commit wakes all waiters. The database
            // is queried only if the feed does not have the position.
            let position = match self.shared.live.position(agent, spool_id) {
                Some(position) => position,
                None => self.position(agent, spool_id).await?,
            };
            if position >= sequence {
                return Ok(());
            }
            match timeout(FLUSH_AGAIN, commits.changed()).await {
                Ok(changed) => changed.map_err(|_| StoreError::Closed)?,
                // Rows that arrived since may have been gathered and not committed.
                Err(_) => self.flush().await,
            }
        }
    }

    /// The latest instant in the database from the collector's own clock; `None` in a new one. Instants of imported
    /// runs come from other clocks and do not count.
    pub async fn newest_instant(&self) -> Result<Option<MeshMicros>, StoreError> {
        sqlx::query_scalar::<_, Option<i64>>(
            "SELECT max(at_us) FROM (
                 SELECT max(last_seen_us) AS at_us FROM agents
                 UNION ALL SELECT max(max(created_us, coalesce(started_us, 0), coalesce(ended_us, 0))) FROM runs
                     WHERE imported_from IS NULL
                 UNION ALL SELECT max(max(coalesce(start_us, 0), coalesce(ended_us, 0))) FROM steps
                     WHERE run_id NOT IN (SELECT id FROM runs WHERE imported_from IS NOT NULL)
                 UNION ALL SELECT max(at_us) FROM cache_drops
                 UNION ALL SELECT clock_mesh_us FROM meta)",
        )
        .fetch_one(self.reader())
        .await
        .map(|at| at.filter(|&at| at > 0).map(MeshMicros))
        .doing("read its latest instant")
    }

    /// The stored anchor of mesh time, of this boot or an earlier one.
    pub async fn clock_anchor(&self) -> Result<Option<Anchor>, StoreError> {
        let row: Option<(String, i64, i64)> = sqlx::query_as(
            "SELECT clock_boot_id, clock_boottime_ns, clock_mesh_us FROM meta
             WHERE clock_boot_id IS NOT NULL AND clock_boottime_ns IS NOT NULL AND clock_mesh_us IS NOT NULL",
        )
        .fetch_optional(self.reader())
        .await
        .doing("read its clock anchor")?;
        Ok(row.map(|(boot_id, boottime_ns, mesh_us)| Anchor {
            boot_id,
            boottime_ns,
            mesh_us: MeshMicros(mesh_us),
        }))
    }

    /// Stores an anchor with the gathered rows. `anchor_now` is called when they are committed.
    pub async fn set_clock_anchor(
        &self,
        anchor_now: impl Fn() -> Anchor + Send + Sync + 'static,
    ) -> Result<(), StoreError> {
        self.note(anchor_now().mesh_us);
        self.write_in(
            CommitPolicy::WhenDue,
            anchor_now,
            |anchor_now, connection| {
                Box::pin(async move {
                    let anchor = anchor_now();
                    sqlx::query(
                    "UPDATE meta SET clock_boot_id = ?, clock_boottime_ns = ?, clock_mesh_us = ?",
                )
                .bind(anchor.boot_id.as_str())
                .bind(anchor.boottime_ns)
                .bind(anchor.mesh_us.0)
                .write(connection, "store the clock anchor")
                .await
                })
            },
        )
        .await
    }

    /// Writes everything queued, refuses later writes, and closes the file. Sessions should have ended before.
    #[boxed]
    #[inline(never)]
    pub async fn close(&self) {
        self.shared.closing.cancel();
        // The store's own tasks may wait for gathered rows.
        self.flush().await;
        let mut tasks = std::mem::take(&mut *self.shared.tasks.lock().await);
        // Readers first: only the last connection removes the WAL, and only if it may write.
        let writer = (!tasks.is_empty()).then(|| tasks.remove(0));
        for task in &mut tasks {
            // They end at once, unless they wait for a writer that waits for disk space.
            if let Ok(outcome) = timeout(QUIET_END, task).await {
                ended(outcome);
            }
        }
        self.shared.reader.close().await;
        self.shared.scheduler_reader.close().await;
        self.shared.writer.close();
        if let Some(writer) = writer {
            ended(writer.await);
        }
    }

    pub async fn write<D, T>(&self, data: D, apply: writer::Apply<D, T>) -> Result<T, StoreError>
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.write_in(CommitPolicy::Now, data, apply).await
    }

    pub(crate) async fn write_in<D, T>(
        &self,
        commit_policy: CommitPolicy,
        data: D,
        apply: writer::Apply<D, T>,
    ) -> Result<T, StoreError>
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.shared.writer.write(data, apply, commit_policy).await
    }

    /// Commits everything that has arrived, so that a reader sees it. Does nothing while the database cannot be
    /// written; readers then see older rows.
    pub async fn flush(&self) {
        self.flush_in(CommitPolicy::NowWithGathered).await;
    }

    async fn flush_in(&self, commit_policy: CommitPolicy) {
        let commit = self.write_in(commit_policy, (), |(), _| Box::pin(async { Ok(()) }));
        tokio::select! {
            biased;
            _ = self.is_blocked() => {}
            committed = commit => if let Err(error) = committed {
                tracing::debug!(%error, "cannot commit the gathered rows");
            },
        }
    }

    /// Commits everything that has arrived, and updates the intervals of running steps, so that a viewer's next read
    /// is current.
    pub async fn refresh(&self) {
        self.flush_in(CommitPolicy::NowForViewer).await;
        if self.shared.blocked.borrow().is_some() {
            return;
        }
        let (done, followed) = oneshot::channel();
        let follow = async {
            if self.shared.refresh.send(done).await.is_ok() {
                // It drops the sender when it is done.
                let _ = followed.await;
            }
        };
        if timeout(REFRESH_TIMEOUT, follow).await.is_err() {
            tracing::debug!("the timeline of a running step is delayed");
        }
    }

    /// Remembers an instant from the collector's clock.
    pub(crate) fn note(&self, at: MeshMicros) {
        self.shared.newest.fetch_max(at.0, Ordering::Relaxed);
    }
}

fn ended(task: Result<(), tokio::task::JoinError>) {
    if let Err(error) = task {
        tracing::error!(%error, "a task of the store ended early");
    }
}

/// Opens as many connections as a pool may have.
async fn open_all(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let mut held = Vec::new();
    // The store's own tasks may use some already.
    while pool.size() < pool.options().get_max_connections() {
        let mut connection = pool.acquire().await?;
        sqlx::query("SELECT 1 FROM sqlite_schema LIMIT 1")
            .execute(&mut *connection)
            .await?;
        held.push(connection);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
benchmesh_testing::counts_memory!();
