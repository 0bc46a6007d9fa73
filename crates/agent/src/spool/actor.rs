//! The one task that owns the spools: it packs rows, appends about once a second, sends in order, deletes on ack.
//!
//! Rows of operations arrive on a bounded channel whose sender waits when it is full; samples arrive by [`Samples`],
//! which drops the oldest. While the disk refuses writes, rows stay in memory up to a bound; then the actor stops
//! reading the channel. The actor never waits for the network: batches go into a channel that has room for a whole
//! window.

mod notes;

use super::ledger::Ledger;
use super::pending::Pending;
use super::requests::{Acked, Attached, SpoolEntry, SpoolRequest};
use super::set::SpoolSet;
use super::window::SendWindow;
use super::{Samples, SpoolError};
use crate::clock::{self, Dating, WallReading, WallWatch};
use crate::envelope::{Envelope, RowPosition, Sequence, SpoolId};
use crate::telemetry::TelemetryRow;
use crate::wire;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::error_chain;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How long a row waits for further rows.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a retry after a disk error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of batches in one transaction: about 4 MiB of memory.
const AT_ONCE: usize = 8;
/// A batch is set aside after this many consecutive refusals.
const MAX_REFUSALS: u32 = 3;

/// Health of an operation; a failure is logged once, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Working,
    Failing,
}

pub(super) struct SpoolActor {
    set: SpoolSet,
    samples: Samples,
    dating: Dating,
    wall: WallWatch,
    pending: Pending,
    ledger: Ledger,
    window: Option<SendWindow>,
    /// The last ack, shared with the other parts of the agent.
    acked_now: Acked,
    /// The last ack of each spool since the agent started.
    acked_of: HashMap<SpoolId, Sequence>,
    /// The last acked sequence of the written spool that its file still holds.
    acked: Option<Sequence>,
    flush_at: Option<Instant>,
    flushed: Option<Instant>,
    writing: Health,
    /// Start of the time during which the disk has refused writes.
    blocked_since: Option<Instant>,
    /// The same, shared with the other parts of the agent.
    blocked_now: watch::Sender<Option<MonoNanos>>,
    reading: Health,
    /// A record must be sent once mesh time is known.
    waits_for_clock: bool,
    /// Whether the agent is leaving: once everything is sent, the stream of batches ends.
    is_finishing: bool,
    refusals: u32,
}

impl SpoolActor {
    /// Creates the actor; the disk has refused writes since `blocked_since`.
    pub(super) fn new(
        set: SpoolSet,
        samples: Samples,
        dating: Dating,
        acked_now: Acked,
        blocked_since: Option<Instant>,
        blocked_now: watch::Sender<Option<MonoNanos>>,
    ) -> Self {
        Self {
            set,
            samples,
            dating,
            wall: WallWatch::default(),
            pending: Pending::default(),
            ledger: Ledger::default(),
            window: None,
            acked_now,
            acked_of: HashMap::new(),
            acked: None,
            flush_at: blocked_since.map(|_| Instant::now()),
            flushed: None,
            writing: match blocked_since {
                Some(_) => Health::Failing,
                None => Health::Working,
            },
            blocked_since,
            blocked_now,
            reading: Health::Working,
            waits_for_clock: false,
            is_finishing: false,
            refusals: 0,
        }
    }

    /// Runs until a close request.
    pub(super) async fn run(
        mut self,
        mut entries: mpsc::Receiver<SpoolEntry>,
        mut requests: mpsc::Receiver<SpoolRequest>,
    ) {
        loop {
            let flush_at = self.flush_at;
            let offset_at = self.window.as_ref().map(|window| window.offset_at);
            tokio::select! {
                request = requests.recv() => match request {
                    None => return,
                    Some(SpoolRequest::Close(done)) => {
                        let _ = done.send(self.close(&mut entries).await);
                        return;
                    }
                    Some(SpoolRequest::Finish) => {
                        self.is_finishing = true;
                        self.take_all(&mut entries);
                        self.flush().await;
                    }
                    Some(request) => self.answer(request, &mut entries).await,
                },
                Some(entry) = entries.recv(), if self.pending.has_room() => self.take(entry).await,
                () = self.samples.ready(), if self.writing == Health::Working => {
                    // The scheduler waits for the samples of a step's end.
                    match self.samples.is_awaited() {
                        true => self.flush().await,
                        false => self.flush_soon(),
                    }
                }
                () = at(flush_at) => self.flush().await,
                () = at(offset_at) => self.note_offset(),
                () = self.dating.known(), if self.waits_for_clock => {
                    self.waits_for_clock = false;
                    self.note_unreadable();
                    if self.writing == Health::Working {
                        self.note_blocked();
                    }
                    self.send().await;
                }
            }
            if self.is_finishing {
                self.finish_sent();
            }
        }
    }

    async fn take(&mut self, entry: SpoolEntry) {
        let at_once = matches!(entry, SpoolEntry::Last(..));
        self.pack(entry);
        self.flush_soon();
        if (at_once || self.pending.is_full()) && self.writing == Health::Working {
            self.flush().await;
        }
    }

    fn take_all(&mut self, entries: &mut mpsc::Receiver<SpoolEntry>) {
        while let Ok(entry) = entries.try_recv() {
            self.pack(entry);
        }
    }

    fn pack(&mut self, entry: SpoolEntry) {
        match entry {
            SpoolEntry::Rows(rows) => self.pack_rows(rows),
            SpoolEntry::Last(row, place) => self.pending.push(*row, Some(place)),
        }
    }

    fn pack_rows(&mut self, rows: Vec<TelemetryRow>) {
        for row in rows {
            self.pending.push(row, None);
        }
    }

    async fn answer(&mut self, request: SpoolRequest, entries: &mut mpsc::Receiver<SpoolEntry>) {
        match request {
            SpoolRequest::Announce(reply) => {
                let _ = reply.send(self.set.announced(&self.acked_of));
            }
            SpoolRequest::IsAhead {
                mesh,
                stored,
                reply,
            } => {
                let is_ahead = self.set.vanished(&mesh, &stored, &self.acked_of) > 0;
                let current = stored.get(&self.set.current()).copied();
                let _ = reply.send(is_ahead.then(|| current.unwrap_or_default()));
            }
            SpoolRequest::Attach {
                mesh,
                stored,
                out,
                done,
            } => {
                let attached = self.attach(mesh, stored, out, entries).await;
                let _ = done.send(attached);
                self.send().await;
            }
            SpoolRequest::Detach => self.window = None,
            SpoolRequest::Ack(spool, sequence) => self.ack(spool, sequence).await,
            SpoolRequest::Refused(message) => self.refused(&message).await,
            #[cfg(test)]
            SpoolRequest::LimitPages(pages, done) => {
                self.set.limit_pages(pages).await;
                let _ = done.send(());
            }
            // Handled by the main loop.
            SpoolRequest::Finish | SpoolRequest::Close(_) => {}
        }
    }

    async fn attach(
        &mut self,
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Envelope>,
        entries: &mut mpsc::Receiver<SpoolEntry>,
    ) -> Result<Attached, SpoolError> {
        self.window = None;
        let vanished = self.set.vanished(&mesh, &stored, &self.acked_of);
        if vanished > 0 {
            self.take_all(entries);
            let undelivered = self.set.retire_mesh(&mesh, &self.acked_of).await?;
            for batch in self.pending.batches() {
                self.ledger
                    .add(self.set.current(), Sequence(u64::MAX), batch);
            }
            let dropped = self.drop_pending();
            let of_runs = self.ledger.take_lost(&stored, &self.acked_of);
            self.forget_acks();
            self.note_restored(vanished, undelivered, dropped, of_runs);
            return Ok(Attached::Again);
        }
        let ours = stored.get(&self.set.current()).copied();
        if !self.set.attach(&mesh, stored).await? {
            // Rows still in memory belong to the old mesh as well.
            self.take_all(entries);
            self.drop_pending();
            self.ledger = Ledger::default();
            self.forget_acks();
            return Ok(Attached::Again);
        }
        self.acked = ours;
        self.window = Some(SendWindow::new(mesh, out));
        self.note_unreadable();
        Ok(Attached::Sending)
    }

    fn forget_acks(&mut self) {
        self.acked_of.clear();
        self.acked_now.set(Sequence(0));
        self.acked = None;
    }

    /// Returns the batches that were dropped.
    fn drop_pending(&mut self) -> u32 {
        let mut batches = 0_u32;
        while self.pending.pop().is_some() {
            batches += 1;
        }
        if batches > 0 {
            tracing::warn!(
                batches,
                "dropping data for the old database that were not yet spooled"
            );
        }
        batches
    }

    async fn ack(&mut self, spool: SpoolId, sequence: Sequence) {
        let Some(window) = &mut self.window else {
            return;
        };
        let Some(last) = window.ack(spool, sequence) else {
            return;
        };
        let mesh = window.is_idle().then(|| window.mesh.clone());
        self.refusals = 0;
        self.acked_of.insert(spool, last.sequence);
        if spool == self.set.current() {
            self.acked = self.acked.max(Some(last.sequence));
            self.acked_now.set(last.sequence);
            self.flush_soon();
        }
        if let Some(mesh) = mesh {
            self.set.all_acked(&mesh).await;
        }
        self.send().await;
    }

    async fn refused(&mut self, message: &str) {
        let Some(sent) = self.window.as_ref().and_then(SendWindow::oldest) else {
            return;
        };
        self.refusals += 1;
        if self.refusals < MAX_REFUSALS {
            return;
        }
        self.refusals = 0;
        let (spool, sequence) = (sent.spool, sent.sequence);
        tracing::error!(%spool, %sequence, reason = message, "the collector refuses a batch; it is set aside");
        if let Err(error) = self.set.set_aside(spool, sequence, message).await {
            tracing::warn!(error = %error_chain(&error), "a refused batch cannot be set aside");
        }
    }

    /// Schedules an append, at the earliest a second after the last one.
    fn flush_soon(&mut self) {
        if self.flush_at.is_none() {
            let now = Instant::now();
            let due = self.flushed.map_or(now, |flushed| flushed + FLUSH_INTERVAL);
            self.flush_at = Some(due.max(now));
        }
    }

    async fn flush(&mut self) {
        self.flush_at = None;
        self.flushed = Some(Instant::now());
        if let Some(map) = self.dating.map()
            && self.pending.has_room()
        {
            let rows = self.samples.take(map);
            self.pack_rows(rows);
        }
        if self.pending.is_empty() && self.acked.is_none() && self.writing == Health::Working {
            return;
        }
        match self.append().await {
            Ok(()) => {
                if self.writing == Health::Failing {
                    self.writing = Health::Working;
                    self.blocked_now.send_replace(None);
                    tracing::info!("the spool can be written again");
                    self.note_blocked();
                    self.flush_soon();
                }
                self.note_full();
                self.send().await;
            }
            Err(error) if error.is_damage() => self.replace_spool(&error).await,
            Err(error) => {
                if self.writing == Health::Working {
                    self.writing = Health::Failing;
                    self.blocked_since = Some(Instant::now());
                    self.blocked_now.send_replace(Some(MonoNanos::now()));
                    tracing::warn!(
                        error = %error_chain(&error),
                        "the spool cannot be written: measurements stay in memory, and samples are lost when that \
                         is full; make room in the state directory"
                    );
                }
                self.flush_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
    }

    /// Starts a new spool because the disk has damaged the written one. The session ends, because the next session must
    /// announce the new spool; it first drains the readable part of the old one.
    async fn replace_spool(&mut self, damage: &SpoolError) {
        tracing::error!(error = %error_chain(damage), "the spool is damaged; starting a new one");
        match self.set.roll().await {
            Ok(()) => {
                self.acked = None;
                self.acked_now.set(Sequence(0));
                self.window = None;
                self.flush_soon();
            }
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "cannot create a new spool");
                self.flush_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
    }

    /// Appends everything in memory, a few batches at a time.
    async fn append(&mut self) -> Result<(), SpoolError> {
        loop {
            self.append_some().await?;
            if self.pending.is_empty() {
                return Ok(());
            }
        }
    }

    async fn append_some(&mut self) -> Result<(), SpoolError> {
        let some = self.pending.batches().take(AT_ONCE);
        let bodies: Vec<Vec<u8>> = some.map(wire::batch::encode).collect();
        let bytes = bodies.iter().map(|body| body.len() as u64).sum();
        if !self.set.has_room(bytes).await? {
            // First delete the acked batches.
            self.set.append(&[], self.acked).await?;
            self.acked = None;
            self.set.make_room(bytes).await?;
        }
        let mut sequence = self.set.append(&bodies, self.acked).await?;
        self.acked = None;
        let spool = self.set.current();
        for _ in bodies {
            let packed = self.pending.pop();
            if let Some(packed) = &packed {
                self.ledger.add(spool, sequence, &packed.batch);
            }
            for place in packed.into_iter().flat_map(|packed| packed.waiting) {
                // The receiver may have stopped waiting; then it does not need the position.
                let _ = place.send(RowPosition { spool, sequence });
            }
            sequence = sequence.next();
        }
        Ok(())
    }

    /// Fills the window.
    async fn send(&mut self) {
        // A loss found here needs a date.
        let Some(map) = self.dating.map() else {
            self.waits_for_clock = true;
            return;
        };
        self.waits_for_clock = false;
        let now = map.to_mesh(MonoNanos::now());
        while let Some(window) = &mut self.window
            && window.has_room()
            && (!window.is_finished() || self.set.is_read())
        {
            match self.set.next(now).await {
                Ok(Some(envelope)) => {
                    self.reading = Health::Working;
                    if !window.send(envelope) {
                        // The session has ended and reports that itself.
                        self.window = None;
                    }
                }
                Ok(None) => {
                    let mesh = window.is_idle().then(|| window.mesh.clone());
                    let Some(mesh) = mesh else { return };
                    let more = self.set.all_acked(&mesh).await;
                    self.note_unreadable();
                    if !more {
                        return;
                    }
                }
                Err(error) => {
                    if self.reading == Health::Working {
                        self.reading = Health::Failing;
                        tracing::warn!(error = %error_chain(&error), "nothing can be sent from the spool");
                    }
                    return;
                }
            }
        }
    }

    fn note_offset(&mut self) {
        let Some(window) = &mut self.window else {
            return;
        };
        window.offset_at = Instant::now() + clock::PROBE_INTERVAL;
        // Without space or a reading, the next poll tries again.
        if let Some(estimate) = self.dating.newest()
            && self.pending.has_room()
            && let Some(reading) = WallReading::take()
        {
            let rows = self
                .wall
                .check(&window.mesh, &estimate, MonoNanos::now(), reading);
            if !rows.is_empty() {
                for row in rows {
                    self.pending.push(row, None);
                }
                self.flush_soon();
            }
        }
    }

    /// Ends the stream of batches if everything is sent. Later rows stay in the spool.
    fn finish_sent(&mut self) {
        if let Some(window) = &mut self.window
            && self.pending.is_empty()
            && self.set.is_read()
        {
            window.finish();
        }
    }

    async fn close(mut self, entries: &mut mpsc::Receiver<SpoolEntry>) -> Result<(), SpoolError> {
        self.take_all(entries);
        self.flush().await;
        if !self.pending.is_empty() {
            tracing::error!("the spool cannot be written; the latest measurements are lost");
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
