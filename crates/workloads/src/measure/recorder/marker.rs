//! Where a worker is: two stores for each operation, read only when one does not end.

use super::Recorder;
use super::buffer::{NOWHERE, SharedSlot};
use std::sync::Arc;

impl Recorder {
    /// Says what the next operation works on, for messages about one that does not end: two stores. What the number
    /// stands for, [`Load::path_of`](crate::engine::workload::Load::path_of) knows.
    #[inline]
    pub fn place(&self, file: u64) {
        self.shared.place(file, NOWHERE);
    }

    /// The same with the offset in the file; it may be called in the midst of an operation.
    #[inline]
    pub fn place_at(&self, file: u64, offset: u64) {
        self.shared.place(file, offset);
    }

    /// The same for what a worker works with, which does not see its recorder.
    pub fn marker(&self) -> Marker {
        Marker(Some(Arc::clone(&self.shared)))
    }
}

/// A worker's word of where it is.
#[derive(Debug, Clone, Default)]
pub struct Marker(Option<Arc<SharedSlot>>);

impl Marker {
    /// As [`Recorder::place_at`]; no-op if detached.
    #[inline]
    pub fn at(&self, file: u64, offset: u64) {
        if let Some(shared) = &self.0 {
            shared.place(file, offset);
        }
    }
}
