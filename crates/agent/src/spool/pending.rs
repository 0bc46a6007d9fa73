//! Rows that wait to be written, packed into batches of bounded size.
//!
//! A full batch is sealed and the next begun; a caller that waits for a row's position is stored with the row's batch.

use crate::envelope::RowPosition;
use crate::telemetry::{Batch, TelemetryRow};
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// A batch is sealed at this many bytes: half of the wire's limit, so that a row of any size still fits.
const SEAL_BYTES: usize = crate::wire::batch::MAX_BYTES / 2;

/// Upper bound of rows in memory, in bytes, while the disk refuses writes.
const MAX_BYTES: usize = 8 << 20;

/// One batch, and the callers that wait for its position.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) batch: Batch,
    pub(super) waiting: Vec<oneshot::Sender<RowPosition>>,
}

/// Batches in the order of appending.
#[derive(Debug, Default)]
pub(super) struct Pending {
    batches: VecDeque<Packed>,
    bytes: usize,
}

impl Pending {
    /// Adds a row; `waiting` is answered once the row is on disk.
    pub(super) fn push(
        &mut self,
        row: TelemetryRow,
        waiting: Option<oneshot::Sender<RowPosition>>,
    ) {
        let size = row.size_bound();
        let full = self.batches.back().is_none_or(|last| {
            !last.batch.is_empty() && last.batch.size_bound() + size > SEAL_BYTES
        });
        if full {
            self.batches.push_back(Packed::default());
        }
        if let Some(last) = self.batches.back_mut() {
            last.batch.push(row);
            last.waiting.extend(waiting);
            self.bytes += size;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether a full batch is ready.
    pub(super) fn is_full(&self) -> bool {
        self.batches.len() > 1
    }

    /// Whether more rows are accepted.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES
    }

    /// The batches to append, oldest first.
    pub(super) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().map(|packed| &packed.batch)
    }

    /// Removes the oldest batch after it was appended.
    pub(super) fn pop(&mut self) -> Option<Packed> {
        let packed = self.batches.pop_front();
        if self.batches.is_empty() {
            self.bytes = 0;
        } else if let Some(packed) = &packed {
            self.bytes = self.bytes.saturating_sub(packed.batch.size_bound());
        }
        packed
    }
}
