//! Reads an existing tree file by file, in the order of its source, like tar.
//!
//! With verification, each piece is compared with the source: the archive's content, or self-describing blocks.
//! Decompressing and generating are no part of an operation. Between two operations it enters the next file's
//! directory.

use super::log::{Flow, Log, each_entry};
use super::source::{EntryKind, TreeEntry, TreeSource, unreadable};
use crate::engine::author::*;

pub(super) struct TreeReader {
    cursor: Cursor,
    buffer: AlignedBytes,
    verify: bool,
}

impl TreeReader {
    pub(super) fn new(cursor: Cursor, unit: usize, verify: bool) -> Self {
        Self {
            cursor,
            buffer: AlignedBytes::new(1, unit),
            verify,
        }
    }

    pub(super) fn all<L: Log>(
        &mut self,
        source: &mut dyn TreeSource,
        log: &mut L,
    ) -> Result<Pass, L::Error> {
        each_entry(source, log, |entry, source, log| match entry.kind {
            EntryKind::File => self.file(entry, source, log),
            _ => Ok(Flow::Done),
        })
    }

    fn file<L: Log>(
        &mut self,
        entry: &TreeEntry,
        source: &mut dyn TreeSource,
        log: &mut L,
    ) -> Result<Flow, L::Error> {
        let Self {
            cursor,
            buffer,
            verify,
        } = self;
        let (directories, last) = cursor::split(&entry.path);
        cursor.show(directories, last);
        let entered = cursor.go(directories, |cursor, name| match log.has_to_end() {
            true => Err(None),
            false => log.untimed(Op::Read, || cursor.down(name)).map_err(Some),
        });
        let entered = match entered {
            Err(None) => return Ok(Flow::Stop),
            Err(Some(errno)) => Err(errno),
            Ok(()) => Ok(()),
        };
        let (dir, name, bytes) = (cursor.dir(), cursor::c_string(last), entry.bytes);
        let path = || cursor.path_from_root(&entry.path);
        log.operation(Op::Read, (bytes, buffer.len()), path, |allow| {
            entered?;
            match verify {
                true => read_back(dir, &name, buffer, &mut SourceContent(source), allow).map(Some),
                false => Ok(Some(calls::read(dir, &name, bytes, buffer, allow)?.into())),
            }
        })
    }
}

/// Expected content of a file, from the source.
struct SourceContent<'a>(&'a mut dyn TreeSource);

impl Original for SourceContent<'_> {
    fn next(&mut self, offset: u64, _room: usize) -> Result<usize, CallError> {
        match self.0.content() {
            Ok(piece) => Ok(piece.len()),
            Err(error) => Err(unreadable(&error, offset)),
        }
    }

    fn check(&mut self, found: &[u8], offset: u64, wrong: &mut Mismatches) {
        self.0.check(found, offset, wrong);
    }
}
