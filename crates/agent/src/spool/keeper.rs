//! The one task that owns the spools: it packs rows, appends about once a second, sends in order, forgets on ack.
//!
//! Rows of operations come by a bounded channel whose sender waits when it is full; samples by [`Samples`], which gives
//! up the oldest. When the disk takes nothing, rows stay in memory up to a bound, then the channel is not read any more.
//! Nothing here waits for the network: batches go into a channel that has room for a whole window.

use super::pending::Pending;
use super::set::SpoolSet;
use super::{Parcel, Position, Samples, Sequence, SpoolError, SpoolId};
use crate::clock::{self, Estimate};
use crate::state::StateDir;
use crate::telemetry::{MeshMicros, Row};
use crate::{chain, wire};
use benchmesh_workloads::clock::MonoNanos;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Batches that may be sent and not acked: enough to keep a slow link busy, few enough to be bounded in memory.
pub(crate) const WINDOW_BATCHES: usize = 32;
const WINDOW_BYTES: usize = 4 << 20;
/// How long a row waits for others.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How long the disk is left alone after an error.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Rows on their way from the tasks: a second of many tasks; then their threads wait, never the workers.
const ENTRIES: usize = 64;
/// Questions of the session; they are answered at once, so few wait.
const ASKS: usize = 64;
/// After so many refusals in a row a batch is set aside.
const MOST_REFUSALS: u32 = 3;

/// Something to be spooled.
#[derive(Debug)]
pub enum Entry {
    Rows(Vec<Row>),
    /// Appended at once; answered with its place when it is on disk.
    Last(Row, oneshot::Sender<Position>),
}

/// What attaching has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// Batches come.
    Sending,
    /// It is another mesh than before: the spools have changed, and the agent must attach again.
    Again,
}

#[derive(Debug)]
enum Ask {
    Ids(oneshot::Sender<Vec<SpoolId>>),
    Attach {
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Parcel>,
        done: oneshot::Sender<Result<Attached, SpoolError>>,
    },
    Detach,
    Ack(SpoolId, Sequence),
    Refused(String),
    Drain(oneshot::Sender<()>),
    Close(oneshot::Sender<Result<(), SpoolError>>),
}

/// The way to the spools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool {
    entries: mpsc::Sender<Entry>,
    asks: mpsc::Sender<Ask>,
}

impl Spool {
    /// Begins a spool in the state directory and starts the task that keeps it.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub async fn open(
        state: Arc<StateDir>,
        limit_bytes: u64,
        samples: Samples,
        clock: watch::Receiver<Option<Estimate>>,
    ) -> Result<(Self, JoinHandle<()>), SpoolError> {
        let set = SpoolSet::open(state, limit_bytes).await?;
        let (entries, entries_in) = mpsc::channel(ENTRIES);
        let (asks, asks_in) = mpsc::channel(ASKS);
        let keeper = Keeper {
            set,
            samples,
            clock,
            pending: Pending::default(),
            outlet: None,
            acked: None,
            flush_at: None,
            flushed: None,
            disk: Disk::Works,
            drains: Vec::new(),
            refusals: 0,
        };
        let task = tokio::spawn(keeper.run(entries_in, asks_in));
        Ok((Self { entries, asks }, task))
    }

    /// Where rows of operations go. A sender waits while it is full.
    #[must_use]
    pub fn entries(&self) -> mpsc::Sender<Entry> {
        self.entries.clone()
    }

    /// The spools' ids, oldest first, the one that is written last.
    ///
    /// # Errors
    /// When the spool has ended.
    pub async fn ids(&self) -> Result<Vec<SpoolId>, SpoolError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Ids(reply)).await?;
        answer.await.map_err(|_| SpoolError::Closed)
    }

    /// Sends everything after what the collector has `stored` into `out`, which needs room for [`WINDOW_BATCHES`].
    ///
    /// # Errors
    /// When the spools cannot be read.
    pub async fn attach(
        &self,
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Parcel>,
    ) -> Result<Attached, SpoolError> {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::Attach {
            mesh,
            stored,
            out,
            done,
        })
        .await?;
        answer.await.map_err(|_| SpoolError::Closed)?
    }

    /// The session is over; nothing is sent until the next one.
    pub async fn detach(&self) {
        // An ended spool sends nothing anyway.
        let _ = self.ask(Ask::Detach).await;
    }

    /// The collector has committed everything up to there.
    ///
    /// # Errors
    /// When the spool has ended.
    pub async fn ack(&self, spool: SpoolId, sequence: Sequence) -> Result<(), SpoolError> {
        self.ask(Ask::Ack(spool, sequence)).await
    }

    /// The collector has refused the oldest batch that it has not acked.
    pub async fn refused(&self, message: String) {
        let _ = self.ask(Ask::Refused(message)).await;
    }

    /// Appends what is in memory, and waits until the collector has everything or no session is left.
    pub async fn drain(&self) {
        let (done, answer) = oneshot::channel();
        if self.ask(Ask::Drain(done)).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Appends what is in memory and closes the files.
    ///
    /// # Errors
    /// When the disk does not take the rest.
    pub async fn close(&self) -> Result<(), SpoolError> {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::Close(done)).await?;
        answer.await.map_err(|_| SpoolError::Closed)?
    }

    async fn ask(&self, ask: Ask) -> Result<(), SpoolError> {
        self.asks.send(ask).await.map_err(|_| SpoolError::Closed)
    }
}

/// The session's end of the way.
#[derive(Debug)]
struct Outlet {
    mesh: String,
    out: mpsc::Sender<Parcel>,
    in_flight: VecDeque<(SpoolId, Sequence, usize)>,
    bytes: usize,
    /// When the next clock offset is due.
    offset_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Works,
    Fails,
}

struct Keeper {
    set: SpoolSet,
    samples: Samples,
    clock: watch::Receiver<Option<Estimate>>,
    pending: Pending,
    outlet: Option<Outlet>,
    /// What of the written spool the collector has, and the file still holds.
    acked: Option<Sequence>,
    flush_at: Option<Instant>,
    flushed: Option<Instant>,
    disk: Disk,
    drains: Vec<oneshot::Sender<()>>,
    refusals: u32,
}

impl Keeper {
    async fn run(mut self, mut entries: mpsc::Receiver<Entry>, mut asks: mpsc::Receiver<Ask>) {
        loop {
            let flush_at = self.flush_at;
            let offset_at = self.outlet.as_ref().map(|outlet| outlet.offset_at);
            tokio::select! {
                ask = asks.recv() => match ask {
                    None => return,
                    Some(Ask::Close(done)) => {
                        let _ = done.send(self.close(&mut entries).await);
                        return;
                    }
                    Some(Ask::Drain(done)) => {
                        self.take_all(&mut entries);
                        self.flush().await;
                        self.drains.push(done);
                    }
                    Some(ask) => self.answer(ask).await,
                },
                Some(entry) = entries.recv(), if self.pending.has_room() => self.take(entry).await,
                () = self.samples.ready(), if self.disk == Disk::Works => self.flush_soon(),
                () = at(flush_at) => self.flush().await,
                () = at(offset_at) => self.note_offset(),
            }
            self.end_drains();
        }
    }

    async fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Rows(rows) => {
                rows.into_iter()
                    .for_each(|row| self.pending.push(row, None));
                self.flush_soon();
                if self.pending.is_full() && self.disk == Disk::Works {
                    self.flush().await;
                }
            }
            Entry::Last(row, place) => {
                self.pending.push(row, Some(place));
                if self.disk == Disk::Works {
                    self.flush().await;
                }
            }
        }
    }

    fn take_all(&mut self, entries: &mut mpsc::Receiver<Entry>) {
        while let Ok(entry) = entries.try_recv() {
            match entry {
                Entry::Rows(rows) => rows
                    .into_iter()
                    .for_each(|row| self.pending.push(row, None)),
                Entry::Last(row, place) => self.pending.push(row, Some(place)),
            }
        }
    }

    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Ids(reply) => {
                let _ = reply.send(self.set.ids());
            }
            Ask::Attach {
                mesh,
                stored,
                out,
                done,
            } => {
                let attached = self.attach(mesh, stored, out).await;
                let _ = done.send(attached);
                self.send().await;
            }
            Ask::Detach => self.outlet = None,
            Ask::Ack(spool, sequence) => self.ack(spool, sequence).await,
            Ask::Refused(message) => self.refused(&message).await,
            // They are taken care of in the loop.
            Ask::Drain(_) | Ask::Close(_) => {}
        }
    }

    async fn attach(
        &mut self,
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Parcel>,
    ) -> Result<Attached, SpoolError> {
        self.outlet = None;
        let ours = stored.get(&self.set.current()).copied();
        if !self.set.attach(&mesh, stored).await? {
            // What is still in memory belongs to the old mesh as well.
            self.drop_pending();
            self.acked = None;
            return Ok(Attached::Again);
        }
        self.acked = ours;
        let offset_at = Instant::now() + clock::PROBE_EVERY;
        self.outlet = Some(Outlet {
            mesh,
            out,
            in_flight: VecDeque::new(),
            bytes: 0,
            offset_at,
        });
        Ok(Attached::Sending)
    }

    fn drop_pending(&mut self) {
        let mut batches = 0_u32;
        while self.pending.pop().is_some() {
            batches += 1;
        }
        if batches > 0 {
            tracing::warn!(
                batches,
                "what was not yet spooled for the old database is dropped"
            );
        }
    }

    async fn ack(&mut self, spool: SpoolId, sequence: Sequence) {
        let Some(outlet) = &mut self.outlet else {
            return;
        };
        while let Some((first_spool, first, bytes)) = outlet.in_flight.front().copied() {
            if first_spool != spool || first > sequence {
                break;
            }
            outlet.in_flight.pop_front();
            outlet.bytes -= bytes;
            self.refusals = 0;
            if spool == self.set.current() {
                self.acked = self.acked.max(Some(first));
            }
        }
        let (idle, mesh) = (outlet.in_flight.is_empty(), outlet.mesh.clone());
        self.flush_soon();
        if idle && let Err(error) = self.set.all_acked(&mesh).await {
            tracing::warn!(error = %chain(&error), "a drained spool cannot be removed");
        }
        self.send().await;
    }

    async fn refused(&mut self, message: &str) {
        let Some((spool, sequence, _)) = self
            .outlet
            .as_ref()
            .and_then(|outlet| outlet.in_flight.front().copied())
        else {
            return;
        };
        self.refusals += 1;
        if self.refusals < MOST_REFUSALS {
            return;
        }
        self.refusals = 0;
        tracing::error!(%spool, %sequence, reason = message, "the collector refuses a batch; it is set aside");
        if let Err(error) = self.set.set_aside(spool, sequence, message).await {
            tracing::warn!(error = %chain(&error), "a refused batch cannot be set aside");
        }
    }

    /// Appends soon: when the last time is a second ago.
    fn flush_soon(&mut self) {
        if self.flush_at.is_none() {
            let now = Instant::now();
            let due = self.flushed.map_or(now, |flushed| flushed + FLUSH_EVERY);
            self.flush_at = Some(due.max(now));
        }
    }

    async fn flush(&mut self) {
        self.flush_at = None;
        self.flushed = Some(Instant::now());
        if self.pending.has_room()
            && let Some(estimate) = *self.clock.borrow()
        {
            let rows = self.samples.take(&estimate.map);
            rows.into_iter()
                .for_each(|row| self.pending.push(row, None));
        }
        if self.pending.is_empty() && self.acked.is_none() && self.disk == Disk::Works {
            return;
        }
        match self.append().await {
            Ok(()) => {
                if self.disk == Disk::Fails {
                    self.disk = Disk::Works;
                    tracing::info!("the spool can be written again");
                    self.flush_soon();
                }
                self.send().await;
            }
            Err(error) => {
                if self.disk == Disk::Works {
                    self.disk = Disk::Fails;
                    tracing::warn!(
                        error = %chain(&error),
                        "the spool cannot be written: what is measured stays in memory, and samples will be lost when \
                         that is full; make room in the state directory"
                    );
                }
                self.flush_at = Some(Instant::now() + RETRY_EVERY);
            }
        }
    }

    async fn append(&mut self) -> Result<(), SpoolError> {
        let bodies: Vec<Vec<u8>> = self.pending.batches().map(wire::batch::encode).collect();
        let first = self.set.append(&bodies, self.acked).await?;
        self.acked = None;
        let spool = self.set.current();
        let mut sequence = first;
        for _ in bodies {
            for place in self
                .pending
                .pop()
                .into_iter()
                .flat_map(|packed| packed.waiting)
            {
                // Who has stopped waiting does not need it.
                let _ = place.send(Position { spool, sequence });
            }
            sequence = sequence.next();
        }
        self.set.keep_the_limit().await?;
        self.set.shrink().await
    }

    /// Fills the window.
    async fn send(&mut self) {
        let Some(outlet) = &mut self.outlet else {
            return;
        };
        let now = self
            .clock
            .borrow()
            .map_or(MeshMicros(0), |it| it.map.to_mesh(MonoNanos::now()));
        while outlet.in_flight.len() < WINDOW_BATCHES && outlet.bytes < WINDOW_BYTES {
            match self.set.next(now).await {
                Ok(Some(parcel)) => {
                    let size = parcel.body.len();
                    let entry = (parcel.spool, parcel.sequence, size);
                    if outlet.out.try_send(parcel).is_err() {
                        // The session has ended, and says so itself.
                        self.outlet = None;
                        return;
                    }
                    outlet.in_flight.push_back(entry);
                    outlet.bytes += size;
                }
                Ok(None) => {
                    let done = outlet.in_flight.is_empty();
                    let mesh = outlet.mesh.clone();
                    match done {
                        true => match self.set.all_acked(&mesh).await {
                            Ok(true) => {}
                            Ok(false) => return,
                            Err(error) => {
                                tracing::warn!(error = %chain(&error), "a drained spool cannot be removed");
                                return;
                            }
                        },
                        false => return,
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the spool cannot be read");
                    return;
                }
            }
        }
    }

    fn note_offset(&mut self) {
        let Some(outlet) = &mut self.outlet else {
            return;
        };
        outlet.offset_at = Instant::now() + clock::OFFSET_EVERY;
        let estimate = *self.clock.borrow();
        if let Some(estimate) = estimate {
            let row = clock::offset_row(&estimate, MonoNanos::now());
            if self.pending.has_room() {
                self.pending.push(Row::ClockOffset(row), None);
            }
            self.flush_soon();
        }
    }

    /// Whoever waits for the drain is told when the collector has everything, or nobody is there to take it.
    fn end_drains(&mut self) {
        let done = self.outlet.as_ref().is_none_or(|outlet| {
            self.pending.is_empty() && outlet.in_flight.is_empty() && self.set.is_read()
        });
        if done {
            self.drains.drain(..).for_each(|drain| {
                let _ = drain.send(());
            });
        }
    }

    async fn close(mut self, entries: &mut mpsc::Receiver<Entry>) -> Result<(), SpoolError> {
        self.take_all(entries);
        self.flush().await;
        if !self.pending.is_empty() {
            tracing::error!("the spool cannot be written, and what was measured last is lost");
        }
        self.set.close().await
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
