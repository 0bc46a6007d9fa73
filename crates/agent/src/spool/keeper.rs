//! The one task that owns the spools: it packs rows, appends about once a second, sends in order, forgets on ack.
//!
//! Rows of operations come by a bounded channel whose sender waits when it is full; samples by [`Samples`], which gives
//! up the oldest. When the disk takes nothing, rows stay in memory up to a bound, then the channel is not read any more.
//! Nothing here waits for the network: batches go into a channel that has room for a whole window.

use super::handle::{Ask, Attached, Entry};
use super::outlet::Outlet;
use super::pending::Pending;
use super::set::SpoolSet;
use super::{Parcel, Position, Samples, Sequence, SpoolError, SpoolId};
use crate::clock::{self, Estimate, WallWatch};
use crate::telemetry::{MeshMicros, Row};
use crate::{chain, wire};
use benchmesh_workloads::clock::MonoNanos;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// How long a row waits for others.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How long the disk is left alone after an error.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Batches in one transaction: some 4 MiB of memory.
const AT_ONCE: usize = 8;
/// After so many refusals in a row a batch is set aside.
const MOST_REFUSALS: u32 = 3;

/// Whether something works; what does not is logged once, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Works {
    Yes,
    No,
}

pub(super) struct Keeper {
    set: SpoolSet,
    samples: Samples,
    clock: watch::Receiver<Option<Estimate>>,
    wall: WallWatch,
    pending: Pending,
    outlet: Option<Outlet>,
    /// What of the written spool the collector has, and the file still holds.
    acked: Option<Sequence>,
    flush_at: Option<Instant>,
    flushed: Option<Instant>,
    writing: Works,
    reading: Works,
    drains: Vec<oneshot::Sender<()>>,
    refusals: u32,
}

impl Keeper {
    pub(super) fn new(
        set: SpoolSet,
        samples: Samples,
        clock: watch::Receiver<Option<Estimate>>,
    ) -> Self {
        Self {
            set,
            samples,
            clock,
            wall: WallWatch::default(),
            pending: Pending::default(),
            outlet: None,
            acked: None,
            flush_at: None,
            flushed: None,
            writing: Works::Yes,
            reading: Works::Yes,
            drains: Vec::new(),
            refusals: 0,
        }
    }

    /// Until it is asked to close.
    pub(super) async fn run(
        mut self,
        mut entries: mpsc::Receiver<Entry>,
        mut asks: mpsc::Receiver<Ask>,
    ) {
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
                () = self.samples.ready(), if self.writing == Works::Yes => self.flush_soon(),
                () = at(flush_at) => self.flush().await,
                () = at(offset_at) => self.note_offset(),
            }
            self.end_drains();
        }
    }

    async fn take(&mut self, entry: Entry) {
        let at_once = matches!(entry, Entry::Last(..));
        self.pack(entry);
        self.flush_soon();
        if (at_once || self.pending.is_full()) && self.writing == Works::Yes {
            self.flush().await;
        }
    }

    fn take_all(&mut self, entries: &mut mpsc::Receiver<Entry>) {
        while let Ok(entry) = entries.try_recv() {
            self.pack(entry);
        }
    }

    fn pack(&mut self, entry: Entry) {
        match entry {
            Entry::Rows(rows) => self.pack_rows(rows),
            Entry::Last(row, place) => self.pending.push(row, Some(place)),
        }
    }

    fn pack_rows(&mut self, rows: Vec<Row>) {
        for row in rows {
            self.pending.push(row, None);
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
            #[cfg(test)]
            Ask::LimitPages(pages, done) => {
                self.set.limit_pages(pages).await;
                let _ = done.send(());
            }
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
        self.outlet = Some(Outlet::new(mesh, out));
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
        let Some(last) = outlet.ack(spool, sequence) else {
            return;
        };
        let mesh = outlet.is_idle().then(|| outlet.mesh.clone());
        self.refusals = 0;
        if spool == self.set.current() {
            self.acked = self.acked.max(Some(last.sequence));
            self.flush_soon();
        }
        if let Some(mesh) = mesh {
            self.next_spool(&mesh).await;
        }
        self.send().await;
    }

    /// Goes on to the next spool when one is drained. Returns whether there may be more to read.
    async fn next_spool(&mut self, mesh: &str) -> bool {
        match self.set.all_acked(mesh).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "a drained spool cannot be removed");
                false
            }
        }
    }

    async fn refused(&mut self, message: &str) {
        let Some(sent) = self.outlet.as_ref().and_then(Outlet::oldest) else {
            return;
        };
        self.refusals += 1;
        if self.refusals < MOST_REFUSALS {
            return;
        }
        self.refusals = 0;
        let (spool, sequence) = (sent.spool, sent.sequence);
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
        let estimate = *self.clock.borrow();
        if let Some(estimate) = estimate
            && self.pending.has_room()
        {
            let rows = self.samples.take(&estimate.map);
            self.pack_rows(rows);
        }
        if self.pending.is_empty() && self.acked.is_none() && self.writing == Works::Yes {
            return;
        }
        match self.append().await {
            Ok(()) => {
                if self.writing == Works::No {
                    self.writing = Works::Yes;
                    tracing::info!("the spool can be written again");
                    self.flush_soon();
                }
                self.send().await;
            }
            Err(error) => {
                if self.writing == Works::Yes {
                    self.writing = Works::No;
                    tracing::warn!(
                        error = %chain(&error),
                        "the spool cannot be written: what is measured stays in memory, and samples are lost when that \
                         is full; make room in the state directory"
                    );
                }
                self.flush_at = Some(Instant::now() + RETRY_EVERY);
            }
        }
    }

    /// Everything that is in memory, a few batches at a time.
    async fn append(&mut self) -> Result<(), SpoolError> {
        loop {
            self.append_some().await?;
            if self.pending.is_empty() {
                return self.set.keep_the_limit().await;
            }
        }
    }

    async fn append_some(&mut self) -> Result<(), SpoolError> {
        let some = self.pending.batches().take(AT_ONCE);
        let bodies: Vec<Vec<u8>> = some.map(wire::batch::encode).collect();
        let mut sequence = self.set.append(&bodies, self.acked).await?;
        self.acked = None;
        let spool = self.set.current();
        for _ in bodies {
            let packed = self.pending.pop();
            for place in packed.into_iter().flat_map(|packed| packed.waiting) {
                // Who has stopped waiting does not need it.
                let _ = place.send(Position { spool, sequence });
            }
            sequence = sequence.next();
        }
        Ok(())
    }

    /// Fills the window.
    async fn send(&mut self) {
        let now = self
            .clock
            .borrow()
            .map(|estimate| estimate.map.to_mesh(MonoNanos::now()));
        while let Some(outlet) = &mut self.outlet
            && outlet.has_room()
        {
            match self.set.next(now.unwrap_or(MeshMicros(0))).await {
                Ok(Some(parcel)) => {
                    self.reading = Works::Yes;
                    if !outlet.send(parcel) {
                        // The session has ended, and says so itself.
                        self.outlet = None;
                    }
                }
                Ok(None) => {
                    let mesh = outlet.is_idle().then(|| outlet.mesh.clone());
                    let Some(mesh) = mesh else { return };
                    if !self.next_spool(&mesh).await {
                        return;
                    }
                }
                Err(error) => {
                    if self.reading == Works::Yes {
                        self.reading = Works::No;
                        tracing::warn!(error = %chain(&error), "nothing can be sent from the spool");
                    }
                    return;
                }
            }
        }
    }

    fn note_offset(&mut self) {
        let Some(outlet) = &mut self.outlet else {
            return;
        };
        outlet.offset_at = Instant::now() + clock::PROBE_EVERY;
        let estimate = *self.clock.borrow();
        // Where there is no room, the next look sees the same.
        if let Some(estimate) = estimate
            && self.pending.has_room()
        {
            let rows = self
                .wall
                .look(&outlet.mesh, &estimate, MonoNanos::now(), clock::wall_us());
            if !rows.is_empty() {
                for row in rows {
                    self.pending.push(row, None);
                }
                self.flush_soon();
            }
        }
    }

    /// Whoever waits for the drain is told when the collector has everything, or nobody is there to take it.
    fn end_drains(&mut self) {
        let drained =
            |outlet: &Outlet| self.pending.is_empty() && outlet.is_idle() && self.set.is_read();
        if self.outlet.as_ref().is_none_or(drained) {
            for drain in self.drains.drain(..) {
                let _ = drain.send(());
            }
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
