//! The measured loop: copies a worker's files one after the other.
//!
//! Between two copies it only enters the next file's directories, if they differ.

use super::engine::{Copied, Engine};
use super::prepared::{LAY_OUT_BYTES, Prepared};
use super::tree::{FileEntry, OpenDirectory};
use super::verify::Verifier;
use crate::engine::author::*;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) struct CopyWorker {
    pub prepared: Arc<Prepared>,
    pub index: u32,
    pub engine: Engine,
    pub durable: Durable,
    pub verifier: Option<Verifier>,
    pub whole: WholePasses,
    /// The current directory of the tree on both sides.
    pub from: OpenDirectory,
    pub to: OpenDirectory,
}

/// Flag in a worker's reported place while it verifies the copy. The other operations involve both sides, and report
/// the target's path.
pub(super) const OF_COPY: u64 = 1 << 63;

impl CopyWorker {
    /// Entering is no part of an operation, but can hang like one, and is reported like one.
    fn enter(&mut self, directory: usize, recorder: &Recorder) -> Result<(), Errno> {
        if self.from.is_in(directory) && self.to.is_in(directory) {
            return Ok(());
        }
        let Prepared { tree, from, to, .. } = &*self.prepared;
        recorder.untimed(Op::Copy, || {
            self.from.enter(tree, from, directory)?;
            self.to.enter(tree, to, directory).map(drop)
        })
    }

    /// Copies one file, and records a failure.
    fn copy(
        &mut self,
        prepared: &Prepared,
        (index, file): (usize, &FileEntry),
        recorder: &mut Recorder,
    ) -> Result<Flow, OpError> {
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        if recorder.should_stop() {
            return Ok(Flow::Stop);
        }
        recorder.set_file(index);
        let entered = self.enter(file.directory, recorder);
        recorder.set_position(index, 0);
        let Some(began) = recorder.next_in_chunks(Op::Copy, file.bytes, self.engine.chosen_call())
        else {
            return Ok(Flow::Stop);
        };
        let both = entered.and_then(|()| Ok((self.from.dir()?, self.to.dir()?)));
        let copied = both.map_err(CallError::from).and_then(|both| {
            let allow = |copied, wanted| match recorder.should_stop() {
                true => Err(Errno::CANCELED),
                false => recorder.next_chunk(Op::Copy, began, (index, copied), copied, wanted),
            };
            self.engine
                .copy(both, &file.name, file.bytes, self.durable, allow)
        });
        match copied {
            Ok(Copied::Whole(bytes)) => {
                recorder.end(Op::Copy, began, bytes);
                Ok(Flow::Done)
            }
            Ok(Copied::Stopped) => {
                recorder.idle();
                Ok(Flow::Stop)
            }
            Err(failed) => {
                let fault = Fault::from(failed);
                fault.record(recorder, Op::Copy, began, &path_of(prepared, file))?;
                Ok(Flow::Failed)
            }
        }
    }

    /// Verifies the copy that was just made.
    fn verify(
        &mut self,
        prepared: &Prepared,
        (index, file): (usize, &FileEntry),
        recorder: &mut Recorder,
    ) -> Result<Flow, OpError> {
        let (Some(verifier), Ok(from), Ok(to)) =
            (&mut self.verifier, self.from.dir(), self.to.dir())
        else {
            return Ok(Flow::Done);
        };
        let index = u64::try_from(index).unwrap_or(u64::MAX);
        recorder.set_file(index | OF_COPY);
        let Some(began) = recorder.next_in_chunks(Op::Read, file.bytes, LAY_OUT_BYTES) else {
            return Ok(Flow::Stop);
        };
        let place = index | OF_COPY;
        let allow = |at, wanted| recorder.next_chunk(Op::Read, began, (place, at), at, wanted);
        match verifier.check((from, to), &file.name, index, file.bytes, allow) {
            Ok(moved) => {
                recorder.end(Op::Read, moved.minus_excluded(began), moved.bytes);
                Ok(Flow::Done)
            }
            Err(fault) if recorder.is_cut_off() => {
                fault.record_cut_off(recorder, Op::Read, &path_of(prepared, file))?;
                Ok(Flow::Stop)
            }
            Err(fault) => {
                fault.record(recorder, Op::Read, began, &path_of(prepared, file))?;
                Ok(Flow::Failed)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Done,
    Failed,
    Stop,
}

/// Path for messages.
#[cold]
fn path_of(prepared: &Prepared, file: &FileEntry) -> PathBuf {
    prepared.to.path().join(prepared.tree.path_of_file(file))
}

impl Worker for CopyWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let prepared = Arc::clone(&self.prepared);
        let share = usize::try_from(self.index)
            .ok()
            .and_then(|index| prepared.shares.get(index));
        let mut is_whole = true;
        for &index in share.into_iter().flatten() {
            let Some(file) = prepared.tree.files.get(index) else {
                continue;
            };
            let flow = match self.copy(&prepared, (index, file), recorder)? {
                Flow::Done => self.verify(&prepared, (index, file), recorder)?,
                other => other,
            };
            match flow {
                Flow::Done => {}
                Flow::Failed => is_whole = false,
                Flow::Stop => return Ok(()),
            }
        }
        if is_whole {
            self.whole.add();
        }
        Ok(())
    }
}
