//! The writer's task: gathers a group, runs it as one transaction, answers after the commit.
//!
//! Rows of samples and intervals wait for more of them, because each commit writes a whole page for every daemon,
//! disk and interface with a new row (`gather`).

use super::super::blocked::Blockage;
use super::gather::{GROUP_ROWS, LastRequest, Load};
use super::{Apply, Ingested, directly};
use crate::database::Blocked;
use crate::database::{Doing, StoreError, WriteRows};
use crate::ingest::apply::Ingest;
use crate::ingest::pending::PendingBatch;
use crate::ingest::source::BatchSource;
use benchmesh_workloads::error_chain;
use futures::future::BoxFuture;
use rusqlite::Connection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _, SqliteConnection};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Maximum number of the scheduler's writes in one transaction.
const GROUP_WRITES: usize = 256;
const DOING: &str = "commit a transaction";
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A write that waits for its transaction and commit.
pub(crate) trait Pending: Send {
    /// Runs within a transaction; the result is kept until `answer`.
    fn apply<'c>(
        &'c mut self,
        connection: &'c mut SqliteConnection,
    ) -> BoxFuture<'c, Result<(), StoreError>>;
    /// Keeps `error` as the answer.
    fn refuse(&mut self, error: StoreError);
    fn answer(self: Box<Self>);
    fn commit_policy(&self) -> CommitPolicy;
}

/// When a write is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitPolicy {
    /// At once; gathered rows keep waiting.
    Now,
    /// At once, with all gathered rows.
    NowWithGathered,
    /// Like `NowWithGathered`, and the next rows do not wait either, because a viewer reads them.
    NowForViewer,
    /// With the gathered rows, when they are due.
    WhenDue,
    /// At once, in a transaction of its own.
    OwnTransaction,
}

pub(super) struct Write<D, T> {
    data: D,
    apply: Apply<D, T>,
    commit_policy: CommitPolicy,
    outcome: Option<Result<T, StoreError>>,
    done: oneshot::Sender<Result<T, StoreError>>,
}

impl<D, T> Write<D, T> {
    pub(super) fn new(
        data: D,
        apply: Apply<D, T>,
        commit_policy: CommitPolicy,
        done: oneshot::Sender<Result<T, StoreError>>,
    ) -> Self {
        Self {
            data,
            apply,
            commit_policy,
            outcome: None,
            done,
        }
    }
}

impl<D: Send + Sync, T: Send> Pending for Write<D, T> {
    fn apply<'c>(
        &'c mut self,
        connection: &'c mut SqliteConnection,
    ) -> BoxFuture<'c, Result<(), StoreError>> {
        Box::pin(async move {
            let value = (self.apply)(&self.data, connection).await?;
            self.outcome = Some(Ok(value));
            Ok(())
        })
    }

    fn refuse(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let outcome = self.outcome.unwrap_or(Err(StoreError::Closed));
        // The caller may be gone; the write is committed anyway.
        drop(self.done.send(outcome));
    }

    fn commit_policy(&self) -> CommitPolicy {
        self.commit_policy
    }
}

#[derive(Default)]
struct WriteGroup {
    writes: Vec<Box<dyn Pending>>,
    /// Writes that are committed before the others, each in its own transaction.
    own_transactions: Vec<Box<dyn Pending>>,
    /// Writes that do not wait for the batches.
    at_once: Vec<Box<dyn Pending>>,
    batches: Vec<PendingBatch>,
    load: Load,
    /// Queued batches that came before a write that is committed with all of them.
    ahead: usize,
    /// Latest time of the commit; `None` if the group is empty.
    due: Option<Instant>,
}

impl WriteGroup {
    fn of(writes: Vec<Box<dyn Pending>>) -> Self {
        Self {
            writes,
            ..Self::default()
        }
    }

    /// The number of writes that are not committed yet.
    fn waiting_writes(&self) -> usize {
        self.writes.len() + self.own_transactions.len() + self.at_once.len()
    }

    /// Its batches alone.
    fn take_batches(&mut self) -> Self {
        Self {
            batches: std::mem::take(&mut self.batches),
            load: std::mem::take(&mut self.load),
            ..Self::default()
        }
    }

    fn push_write(&mut self, write: Box<dyn Pending>, due: Instant) {
        self.due_by(due);
        self.writes.push(write);
    }

    fn push_batch(&mut self, batch: PendingBatch, due: Instant) {
        self.due_by(due);
        self.ahead = self.ahead.saturating_sub(1);
        let BatchSource { agent, window, .. } = *batch.source();
        self.load.add(agent, batch.weight(), window);
        self.batches.push(batch);
    }

    fn due_by(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
    }

    fn is_due(&self, now: Instant) -> bool {
        let Some(due) = self.due else { return false };
        due <= now || self.writes.len() >= GROUP_WRITES || self.load.is_full()
    }
}

/// Whether the batches of a group share their inserts, or each has its own savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitMode {
    Together,
    Singly,
}

pub(super) struct Writer {
    pub(super) connection: SqliteConnection,
    pub(super) options: SqliteConnectOptions,
    pub(super) ingest: Ingest,
    pub(super) blockage: Blockage,
    pub(super) writes: mpsc::Receiver<Box<dyn Pending>>,
    pub(super) batches: mpsc::Receiver<PendingBatch>,
    pub(super) closing: CancellationToken,
    pub(super) last_request: LastRequest,
    pub(super) latest: watch::Sender<Option<Ingested>>,
}

impl Writer {
    /// Runs until it is closed; queued writes are still done.
    pub(super) async fn run(mut self) {
        let closing = self.closing.clone();
        let mut announced = false;
        let mut group = WriteGroup::default();
        loop {
            let shown = group.batches.len();
            tokio::select! {
                biased;
                () = closing.cancelled(), if !announced => {
                    announced = true;
                    self.writes.close();
                    self.batches.close();
                    group.due = group.due.map(|_| Instant::now());
                }
                Some(write) = self.writes.recv() => self.add_write(&mut group, write),
                Some(batch) = self.batches.recv() => self.add_batch(&mut group, batch),
                () = at(group.due), if group.due.is_some() => {}
                else => break,
            }
            self.take_queued(&mut group).await;
            self.show(group.batches.get(shown..).unwrap_or_default())
                .await;
            // More than one transaction has: the last of them is that of the write.
            while group.ahead > 0 {
                self.commit(group.take_batches()).await;
                self.take_queued(&mut group).await;
                self.show(&group.batches).await;
            }
            let at_once = std::mem::take(&mut group.at_once);
            if group.is_due(Instant::now()) {
                group.writes.extend(at_once);
                self.commit(std::mem::take(&mut group)).await;
            } else if !at_once.is_empty() {
                self.commit(WriteGroup::of(at_once)).await;
            }
        }
        let checkpoint = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .execute(&mut self.connection)
            .await;
        if let Err(error) = checkpoint {
            tracing::debug!(%error, "cannot merge the WAL file; the next open of the database merges it");
        }
        if let Err(error) = self.connection.close().await {
            tracing::warn!(%error, "the database was not closed cleanly; what was committed is safe");
        }
    }

    fn add_write(&mut self, group: &mut WriteGroup, write: Box<dyn Pending>) {
        let now = Instant::now();
        match write.commit_policy() {
            CommitPolicy::OwnTransaction => group.own_transactions.push(write),
            CommitPolicy::Now => group.at_once.push(write),
            CommitPolicy::NowWithGathered => self.add_flush(group, write, now),
            CommitPolicy::NowForViewer => {
                self.last_request.record(now);
                self.add_flush(group, write, now);
            }
            CommitPolicy::WhenDue => {
                let due = self.due(now);
                group.push_write(write, due);
            }
        }
    }

    fn add_flush(&self, group: &mut WriteGroup, write: Box<dyn Pending>, now: Instant) {
        group.ahead = self.batches.len();
        group.push_write(write, now);
    }

    fn add_batch(&mut self, group: &mut WriteGroup, batch: PendingBatch) {
        let now = Instant::now();
        let due = match batch.may_wait() {
            true => self.due(now),
            false => now,
        };
        group.push_batch(batch, due);
    }

    /// The latest commit of rows that arrive now.
    fn due(&self, now: Instant) -> Instant {
        match self.closing.is_cancelled() {
            true => now,
            false => now + self.last_request.max_wait(now),
        }
    }

    /// Takes what is queued, and commits writes in transactions of their own.
    async fn take_queued(&mut self, group: &mut WriteGroup) {
        while group.waiting_writes() < GROUP_WRITES
            && let Ok(write) = self.writes.try_recv()
        {
            self.add_write(group, write);
        }
        while group.load.rows() < GROUP_ROWS
            && let Ok(batch) = self.batches.try_recv()
        {
            self.add_batch(group, batch);
        }
        for write in std::mem::take(&mut group.own_transactions) {
            self.commit(WriteGroup::of(vec![write])).await;
        }
    }

    /// Publishes newly arrived batches to live views.
    async fn show(&mut self, batches: &[PendingBatch]) {
        if !self.ingest.is_to_show(batches) {
            return;
        }
        let ingest = &mut self.ingest;
        let shown = directly(&mut self.connection, |connection| {
            ingest.show(connection, batches)
        })
        .await;
        if let Err(error) = shown {
            tracing::debug!(%error, "live figures are left out");
        }
    }

    /// Returns when the group is committed, or each of its members has been answered with the error.
    async fn commit(&mut self, mut group: WriteGroup) {
        let mut mode = CommitMode::Together;
        let mut pause = FIRST_PAUSE;
        let mut reported = false;
        let took = loop {
            let error = match self.attempt(&mut group, mode).await {
                Ok(took) => break took,
                Err(error) => error,
            };
            self.roll_back().await;
            if !error.is_retryable() {
                if mode == CommitMode::Singly {
                    self.refuse_all(group, &error);
                    return;
                }
                mode = CommitMode::Singly;
                continue;
            }
            if !reported {
                reported = true;
                self.blockage.send_replace(Some(Blocked::by(&error)));
                tracing::error!(
                    error = %error_chain(&error),
                    "the database cannot be written, and nothing is acknowledged until it can; {}",
                    error.remedy()
                );
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.closing.cancelled() => {
                    self.refuse_all(group, &error);
                    return;
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
        };
        if reported {
            self.blockage.send_replace(None);
            tracing::warn!("the database can be written again; everything that waited is stored");
        }
        self.ingest.committed(&group.batches);
        if !group.batches.is_empty() {
            let before = *self.latest.borrow();
            let (rows, busy) =
                before.map_or_else(Default::default, |ingested| (ingested.rows, ingested.busy));
            self.latest.send_replace(Some(Ingested {
                rows: rows + u64::try_from(group.load.rows()).unwrap_or(0),
                at: Instant::now(),
                busy: busy + took,
            }));
        }
        for write in group.writes {
            write.answer();
        }
        for batch in group.batches {
            batch.answer();
        }
    }

    /// Returns the time for the rows of agents and for the commit.
    async fn attempt(
        &mut self,
        group: &mut WriteGroup,
        mode: CommitMode,
    ) -> Result<Duration, StoreError> {
        let connection = &mut self.connection;
        command(connection, "BEGIN IMMEDIATE").await?;
        for write in &mut group.writes {
            command(connection, "SAVEPOINT one").await?;
            match write.apply(connection).await {
                Ok(()) => command(connection, "RELEASE one").await?,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => {
                    undo(connection).await?;
                    write.refuse(error);
                }
            }
        }
        let ingest = &mut self.ingest;
        let began = Instant::now();
        directly(connection, |connection| {
            match mode {
                CommitMode::Together => ingest.store(connection, &mut group.batches)?,
                CommitMode::Singly => {
                    for batch in &mut group.batches {
                        store_alone(connection, ingest, batch)?;
                    }
                }
            }
            execute_now(connection, "COMMIT")
        })
        .await?;
        Ok(began.elapsed())
    }

    /// SQLite may have rolled back already; a lost connection is replaced.
    async fn roll_back(&mut self) {
        self.ingest.rolled_back();
        if command(&mut self.connection, "ROLLBACK").await.is_ok() {
            return;
        }
        if self.connection.ping().await.is_ok() {
            return;
        }
        match self.options.connect().await {
            Ok(connection) => self.connection = connection,
            Err(error) => tracing::debug!(%error, "the database does not open yet"),
        }
    }

    /// Answers a group of which nothing was written. If the error is not the rows' fault (a full disk), batches are
    /// closed without a refusal, so that they are sent again.
    fn refuse_all(&mut self, group: WriteGroup, error: &StoreError) {
        let reason = error_chain(error);
        for mut write in group.writes {
            write.refuse(StoreError::NotWritten {
                why: reason.clone(),
            });
            write.answer();
        }
        for mut batch in group.batches {
            match error.is_retryable() {
                true => batch.close(),
                false => batch.refuse(reason.clone()),
            }
            batch.answer();
        }
    }
}

/// Stores one batch behind a savepoint; a batch that the database refuses is undone and answered with the error.
fn store_alone(
    connection: &Connection,
    ingest: &mut Ingest,
    batch: &mut PendingBatch,
) -> Result<(), StoreError> {
    execute_now(connection, "SAVEPOINT one")?;
    let mark = ingest.mark();
    match ingest.store(connection, std::slice::from_mut(batch)) {
        Ok(()) => execute_now(connection, "RELEASE one"),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) => {
            execute_now(connection, "ROLLBACK TO one")?;
            execute_now(connection, "RELEASE one")?;
            ingest.undo_to(mark);
            batch.refuse(error_chain(&error));
            Ok(())
        }
    }
}

fn execute_now(connection: &Connection, sql: &'static str) -> Result<(), StoreError> {
    connection.execute_batch(sql).doing(DOING)
}

async fn command(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), StoreError> {
    sqlx::query(sql).write(connection, DOING).await
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn undo(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    command(connection, "ROLLBACK TO one").await?;
    command(connection, "RELEASE one").await
}
