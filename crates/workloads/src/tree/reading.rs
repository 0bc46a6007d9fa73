//! Reading a tree that is there, file by file, in the order in which its source has them, as tar does it.
//!
//! Where it is to be verified, each piece is held against what the source says as it comes: an archive's content, or a
//! pattern that knows its place. Between two operations it goes to the next file's directory.

use super::log::{Flow, Log, Outcome, Passed};
use super::source::{Entry, Kind, Source};
use super::stack::{Stack, c_string, components, split};
use super::trail::Trail;
use super::unpack::{in_full, shown};
use crate::data::Mismatch;
use crate::files::calls::{self, Failed, Fault};
use crate::op::Op;
use crate::sandbox::Dir;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;

pub(super) struct Reading {
    stack: Stack,
    entry: Entry,
    buffer: Vec<u8>,
    verify: bool,
    trail: Arc<Trail>,
}

impl Reading {
    pub(super) fn new(root: Dir, unit: usize, verify: bool, trail: Arc<Trail>) -> Self {
        Self {
            stack: Stack::new(root),
            entry: Entry::new(),
            buffer: vec![1; unit],
            verify,
            trail,
        }
    }

    pub(super) fn all<L: Log>(
        &mut self,
        source: &mut dyn Source,
        log: &mut L,
    ) -> Result<Passed, L::Error> {
        let mut passed = Passed::Whole;
        loop {
            match source.next(&mut self.entry) {
                Ok(true) if self.entry.kind == Kind::File => {}
                Ok(true) => continue,
                Ok(false) => return Ok(passed),
                Err(error) => return Err(log.broken(in_full(&error))),
            }
            let flow = self.file(source, log)?;
            if passed.ends_with(flow) {
                return Ok(passed);
            }
        }
    }

    fn file<L: Log>(&mut self, source: &mut dyn Source, log: &mut L) -> Result<Flow, L::Error> {
        let Self {
            stack,
            entry,
            buffer,
            verify,
            trail,
        } = self;
        let (directories, last) = split(&entry.path);
        trail.go(directories, last);
        let common = stack.back_to_common(directories);
        let mut entered = Ok(());
        for part in components(directories).skip(common) {
            if log.has_to_end() {
                return Ok(Flow::Stop);
            }
            entered = log.on_the_way(Op::Read, || stack.step(c_string(part)));
            if entered.is_err() {
                break;
            }
        }
        let (dir, name, bytes) = (stack.top(), c_string(last), entry.bytes);
        let path = || shown(stack.root(), &entry.path);
        log.operation(Op::Read, bytes, path, |log| {
            entered?;
            match verify {
                true => compare(dir, &name, source, buffer, log),
                false => {
                    let reached = |offset| log.reached(offset);
                    Ok(Some(calls::read(dir, &name, bytes, buffer, reached)?))
                }
            }
        })
    }
}

fn compare(
    dir: BorrowedFd<'_>,
    name: &CStr,
    source: &mut dyn Source,
    buffer: &mut [u8],
    log: &impl Log,
) -> Outcome {
    let fd = calls::open_to_read(dir, name)?;
    let mut have = 0;
    loop {
        let piece = source.content().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::ENODATA);
            Failed::at(Errno::from_raw_os_error(errno), have)
        })?;
        let Some(block) = buffer.get_mut(..piece.len()).filter(|it| !it.is_empty()) else {
            break;
        };
        log.reached(have);
        calls::read_full(fd.as_fd(), block, have)?;
        if let Err(first) = Mismatch::compare(piece, block, have) {
            return Err(Fault::Mismatch(source.explain(first, block, have)));
        }
        have += u64::try_from(block.len()).unwrap_or(0);
    }
    calls::ends_at(fd.as_fd(), have)?;
    calls::close(fd)?;
    Ok(Some(have))
}
