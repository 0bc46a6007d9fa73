//! Reading a tree that is there, file by file, in the order in which its source has them, as tar does it.
//!
//! Where it is to be verified, each piece is held against what the source says as it comes: an archive's content, or
//! self-describing blocks. To decompress the one and to make the other is no part of an operation. Between two operations it
//! goes to the next file's directory.

use super::current_path::CurrentPath;
use super::log::{Flow, Log, each_entry};
use super::source::{Entry, EntryKind, Source, unreadable};
use super::unpack::shown;
use crate::engine::passes::Pass;
use crate::measure::op::Op;
use crate::target::calls::{self, CallError};
use crate::target::data::Mismatches;
use crate::target::dir_stack::{Stack, c_string, components, split};
use crate::target::read_back::{Original, read_back};
use crate::target::sandbox::Dir;
use std::sync::Arc;

pub(super) struct Reading {
    stack: Stack,
    buffer: Vec<u8>,
    verify: bool,
    current_path: Arc<CurrentPath>,
}

impl Reading {
    pub(super) fn new(
        root: Dir,
        unit: usize,
        verify: bool,
        current_path: Arc<CurrentPath>,
    ) -> Self {
        Self {
            stack: Stack::new(root),
            buffer: vec![1; unit],
            verify,
            current_path,
        }
    }

    pub(super) fn all<L: Log>(
        &mut self,
        source: &mut dyn Source,
        log: &mut L,
    ) -> Result<Pass, L::Error> {
        each_entry(source, log, |entry, source, log| match entry.kind {
            EntryKind::File => self.file(entry, source, log),
            _ => Ok(Flow::Done),
        })
    }

    fn file<L: Log>(
        &mut self,
        entry: &Entry,
        source: &mut dyn Source,
        log: &mut L,
    ) -> Result<Flow, L::Error> {
        let Self {
            stack,
            buffer,
            verify,
            current_path,
        } = self;
        let (directories, last) = split(&entry.path);
        current_path.go(directories, last);
        let common = stack.back_to_common(directories);
        let mut entered = Ok(());
        for part in components(directories).skip(common) {
            if log.has_to_end() {
                return Ok(Flow::Stop);
            }
            entered = log.untimed(Op::Read, || stack.step(c_string(part)));
            if entered.is_err() {
                break;
            }
        }
        let (dir, name, bytes) = (stack.top(), c_string(last), entry.bytes);
        let path = || shown(stack.root(), &entry.path);
        log.operation(Op::Read, bytes, path, |reached| {
            entered?;
            match verify {
                true => {
                    read_back(dir, &name, buffer, &mut SourceContent(source), reached).map(Some)
                }
                false => Ok(Some(
                    calls::read(dir, &name, bytes, buffer, reached)?.into(),
                )),
            }
        })
    }
}

/// What the source says that the file holds.
struct SourceContent<'a>(&'a mut dyn Source);

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
