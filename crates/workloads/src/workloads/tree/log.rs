//! Where operations are reported: to a recorder in a measured step, nowhere while data are laid out.

use super::source::{Entry, Source};
use crate::engine::author::*;
use rustix::io::Errno;
use std::path::PathBuf;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Done,
    /// It failed; the others go on.
    Failed,
    /// It was not begun, because the load has to end.
    Stop,
}

impl Flow {
    /// Takes note of the operation in its pass; whether the load has to end.
    pub(super) fn ends(self, pass: &mut Pass) -> bool {
        match self {
            Flow::Done => {}
            Flow::Failed => *pass = Pass::WithErrors,
            Flow::Stop => *pass = Pass::Stopped,
        }
        self == Flow::Stop
    }
}

/// What an operation comes to: the bytes that count, or that there was nothing to do.
pub(super) type Outcome = Result<Option<Moved>, Fault>;

pub(super) trait Log {
    type Error;

    /// Carries out one operation that is about to move `bytes`, and that says between its chunks how many it has moved;
    /// `path` is asked for when it fails.
    fn operation(
        &mut self,
        op: Op,
        bytes: u64,
        path: impl FnOnce() -> PathBuf,
        act: impl FnOnce(&mut dyn FnMut(u64)) -> Outcome,
    ) -> Result<Flow, Self::Error>;

    /// Whether the load is ending, so that untimed walking stops too.
    fn has_to_end(&self) -> bool {
        false
    }

    /// Carries out what comes before an operation and is no part of it, but may hang like one.
    fn untimed<T>(&mut self, _op: Op, act: impl FnOnce() -> T) -> T {
        act()
    }

    /// What the tree is made from cannot be read any further.
    fn broken(&mut self, why: String) -> Self::Error;
}

/// Placeholder: the path comes from [`CurrentPath`](crate::target::cursor::CurrentPath).
const HERE: u64 = 0;

impl Log for &mut Recorder {
    type Error = OpError;

    #[inline]
    fn operation(
        &mut self,
        op: Op,
        bytes: u64,
        path: impl FnOnce() -> PathBuf,
        act: impl FnOnce(&mut dyn FnMut(u64)) -> Outcome,
    ) -> Result<Flow, OpError> {
        self.place(HERE);
        let Some(began) = self.next(op, bytes) else {
            return Ok(Flow::Stop);
        };
        let done = act(&mut |moved| self.reached(op, began, (HERE, moved), moved));
        match done {
            Ok(Some(moved)) => self.end(op, moved.shorten(began), moved.bytes),
            Ok(None) => self.idle(),
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
        self.place(HERE);
        Recorder::untimed(self, op, act)
    }

    fn broken(&mut self, why: String) -> OpError {
        OpError::Broken { what: why }
    }
}

/// Laying out: the first failure ends it.
pub(super) struct Quiet<'a> {
    pub done: &'a Done<'a>,
}

impl Log for Quiet<'_> {
    type Error = TaskError;

    fn operation(
        &mut self,
        op: Op,
        bytes: u64,
        path: impl FnOnce() -> PathBuf,
        act: impl FnOnce(&mut dyn FnMut(u64)) -> Outcome,
    ) -> Result<Flow, TaskError> {
        self.done.add(1)?;
        self.done.moves(bytes);
        match act(&mut |_| ()) {
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

/// One pass over all that a source has, until its end or until the load has to end.
pub(super) fn each_entry<L: Log>(
    source: &mut dyn Source,
    log: &mut L,
    mut act: impl FnMut(&Entry, &mut dyn Source, &mut L) -> Result<Flow, L::Error>,
) -> Result<Pass, L::Error> {
    let mut pass = Pass::Whole;
    let mut entry = Entry::new();
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
