//! Position of a worker: two stores per operation, read only if an operation does not end.

use super::Recorder;
use super::buffer::{NOWHERE, SharedSlot};
use std::sync::Arc;

impl Recorder {
    /// Sets the file of the next operation, for messages about one that does not end: two stores.
    /// [`Load::path_of`](crate::engine::workload::Load::path_of) maps the number to a path.
    #[inline]
    pub fn place(&self, file: u64) {
        self.shared.place(file, NOWHERE);
    }

    /// As [`place`](Self::place), with the offset in the file. May be called during an operation.
    #[inline]
    pub fn place_at(&self, file: u64, offset: u64) {
        self.shared.place(file, offset);
    }

    /// A marker for code that has no access to the recorder.
    pub fn marker(&self) -> Marker {
        Marker(Some(Arc::clone(&self.shared)))
    }
}

/// Sets the position of a worker.
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
