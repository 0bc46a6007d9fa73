//! Reports operations to a recorder in a measured step; discards them during layout.

use super::source::{TreeEntry, TreeSource};
use crate::engine::author::*;
use rustix::io::Errno;
use std::path::PathBuf;

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Done,
    /// It failed; the pass continues.
    Failed,
    /// It was not started or was cut off, because the load must end.
    Stop,
}

impl Flow {
    /// Records the outcome in the pass; returns whether the load must end.
    pub(super) fn ends(self, pass: &mut Pass) -> bool {
        match self {
            Flow::Done => {}
            Flow::Failed => *pass = Pass::WithErrors,
            Flow::Stop => *pass = Pass::Stopped,
        }
        self == Flow::Stop
    }
}

/// Asks for the next chunk of an operation.
pub(super) type Allow<'a> = &'a mut dyn FnMut(u64, usize) -> Result<usize, Errno>;

/// Result of an operation: the bytes to count, or `None` if there was nothing to do.
pub(super) type OpOutcome = Result<Option<Moved>, Fault>;

pub(super) trait Log {
    type Error;

    /// Executes one operation. `moves` are its bytes and those of a system call. It asks before each chunk with the
    /// bytes moved so far and those of the chunk; see [`Recorder::next_chunk`]. `path` is called when it fails.
    fn operation(
        &mut self,
        op: Op,
        moves: (u64, usize),
        path: impl FnOnce() -> PathBuf,
        act: impl FnOnce(Allow<'_>) -> OpOutcome,
    ) -> Result<Flow, Self::Error>;

    /// Whether the load is ending, so that untimed walking stops too.
    fn has_to_end(&self) -> bool {
        false
    }

    /// Executes work that is no part of an operation, but may hang like one.
    fn untimed<T>(&mut self, _op: Op, act: impl FnOnce() -> T) -> T {
        act()
    }

    /// The source of the tree cannot be read any further.
    fn broken(&mut self, why: String) -> Self::Error;
}

/// The result of an operation that moves no bytes.
pub(super) const NO_BYTES: (u64, usize) = (0, 0);

/// Placeholder: the path comes from [`CurrentPath`](crate::target::cursor::CurrentPath).
const HERE: u64 = 0;

impl Log for &mut Recorder {
    type Error = OpError;

    #[inline]
    fn operation(
        &mut self,
        op: Op,
        (bytes, call): (u64, usize),
        path: impl FnOnce() -> PathBuf,
        act: impl FnOnce(Allow<'_>) -> OpOutcome,
    ) -> Result<Flow, OpError> {
        self.set_file(HERE);
        let Some(began) = self.next_in_chunks(op, bytes, call) else {
            return Ok(Flow::Stop);
        };
        let done =
            act(&mut |moved, wanted| self.next_chunk(op, began, (HERE, moved), moved, wanted));
        match done {
            Ok(Some(moved)) => self.end(op, moved.minus_excluded(began), moved.bytes),
            Ok(None) => self.idle(),
            Err(fault) if self.is_cut_off() => {
                fault.record_cut_off(self, op, &path())?;
                return Ok(Flow::Stop);
            }
            Err(fault) => {
                fault.record(self, op, began, &path())?;
                return Ok(Flow::Failed);
            }
        }
        Ok(Flow::Done)
    }

    fn has_to_end(&self) -> bool {
        self.should_stop()
    }

    fn untimed<T>(&mut self, op: Op, act: impl FnOnce() -> T) -> T {
        self.set_file(HERE);
        Recorder::untimed(self, op, act)
    }

    fn broken(&mut self, why: String) -> OpError {
        OpError::Broken { what: why }
    }
}

/// For layout: the first failure ends it.
pub(super) struct LayoutLog<'a> {
    pub done: &'a Done<'a>,
}

impl Log for LayoutLog<'_> {
    type Error = TaskError;

    fn operation(
        &mut self,
        op: Op,
        (bytes, _): (u64, usize),
        path: impl FnOnce() -> PathBuf,
        act: impl FnOnce(Allow<'_>) -> OpOutcome,
    ) -> Result<Flow, TaskError> {
        self.done.add(1)?;
        let allow = &mut |moved, wanted| self.done.next_chunk(bytes.saturating_sub(moved), wanted);
        match act(allow) {
            Ok(_) => Ok(Flow::Done),
            Err(fault) => {
                let errno = fault.failed.map_or(Errno::BADMSG, |failed| failed.errno);
                let doing = format!("{op} `{}`", path().display());
                Err(TaskError::io(doing, errno))
            }
        }
    }

    fn broken(&mut self, why: String) -> TaskError {
        TaskError::Unsupported { why }
    }
}

/// Passes over all entries of a source, until its end or until the load must end.
pub(super) fn each_entry<L: Log>(
    source: &mut dyn TreeSource,
    log: &mut L,
    mut act: impl FnMut(&TreeEntry, &mut dyn TreeSource, &mut L) -> Result<Flow, L::Error>,
) -> Result<Pass, L::Error> {
    let mut pass = Pass::Whole;
    let mut entry = TreeEntry::new();
    loop {
        match source.next(&mut entry) {
            Ok(true) => {}
            Ok(false) => return Ok(pass),
            Err(error) => return Err(log.broken(error_chain(&error))),
        }
        let flow = act(&entry, source, log)?;
        if flow.ends(&mut pass) {
            return Ok(pass);
        }
    }
}
