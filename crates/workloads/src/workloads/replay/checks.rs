//! Verifies that a worker reads what its list has written.
//!
//! The expectations hold only while every operation succeeds. After a failed write, nothing is expected of that file
//! any more; after a failed operation on a name or a failed open, nothing is expected of any file.

use super::expected::Expected;
use super::list::ReplayAction;
use crate::engine::author::*;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Checks {
    expected: Arc<Expected>,
    /// Files that no longer match the list.
    unknown: Vec<usize>,
    all_unknown: bool,
}

impl Checks {
    pub(super) fn new(expected: Arc<Expected>) -> Self {
        Self {
            expected,
            unknown: Vec::new(),
            all_unknown: false,
        }
    }

    /// Mismatches in the data that the read of a line returned at `offset`.
    pub(super) fn read(
        &self,
        line: usize,
        open: usize,
        block: &[u8],
        offset: u64,
        content: &Content,
    ) -> Mismatches {
        let mut wrong = Mismatches::default();
        if self.all_unknown || self.unknown.contains(&self.expected.file(open)) {
            return wrong;
        }
        let mut rest = block;
        let mut at = offset;
        for piece in self.expected.of_line(line) {
            debug_assert_eq!(piece.offset, at, "pieces follow each other");
            let count = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
            let (part, after) = rest.split_at(count.min(rest.len()));
            match &piece.from {
                Some(written) => content.check_part(part, at, written, &mut wrong),
                // Parts never written are zeros.
                None => wrong.compare_zeros(part, at),
            }
            at = at.saturating_add(piece.bytes);
            rest = after;
        }
        wrong
    }

    /// Called when an operation has failed.
    #[cold]
    pub(super) fn failed(&mut self, action: &ReplayAction) {
        match action {
            ReplayAction::Write { file, .. } | ReplayAction::Truncate { file, .. } => {
                let file = self.expected.file(*file);
                if !self.unknown.contains(&file) {
                    self.unknown.push(file);
                }
            }
            ReplayAction::Create { .. }
            | ReplayAction::Open { .. }
            | ReplayAction::Rename { .. }
            | ReplayAction::Symlink { .. }
            | ReplayAction::Delete
            | ReplayAction::Mkdir
            | ReplayAction::Rmdir => self.all_unknown = true,
            ReplayAction::Close { .. }
            | ReplayAction::Read { .. }
            | ReplayAction::Fsync { .. }
            | ReplayAction::Stat
            | ReplayAction::List => {}
        }
    }
}
