//! Position of a worker: two stores per operation, read only if an operation does not end.

use super::Recorder;
use super::buffer::{NO_POSITION, SharedSlot};
use std::sync::Arc;

impl Recorder {
    /// Sets the file of the next operation, for messages about one that does not end: two stores.
    /// [`Load::path_of`](crate::engine::workload::Load::path_of) maps the number to a path.
    #[inline]
    pub fn set_file(&self, file: u64) {
        self.shared.set_position(file, NO_POSITION);
    }

    /// As [`set_file`](Self::set_file), with the offset in the file. May be called during an operation.
    #[inline]
    pub fn set_position(&self, file: u64, offset: u64) {
        self.shared.set_position(file, offset);
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
    /// As [`Recorder::set_position`]; no-op if detached.
    #[inline]
    pub fn at(&self, file: u64, offset: u64) {
        if let Some(shared) = &self.0 {
            shared.set_position(file, offset);
        }
    }
}
