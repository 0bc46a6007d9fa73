//! The measured loop: a worker's files, one after the other, each from one side to the other.
//!
//! Between two copies it enters the next file's directories where they differ; nothing else.

use super::engine::{Copied, Engine};
use super::prepared::Prepared;
use crate::files::calls::{Durable, Failed};
use crate::op::Op;
use crate::recorder::{ErrorFacts, OpError, Recorder};
use crate::workload::Worker;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct CopyWorker {
    prepared: Arc<Prepared>,
    index: u32,
    engine: Engine,
    durable: Durable,
    /// Counts the workers that copied all of their files.
    whole: Arc<AtomicU32>,
    entered: Option<Entered>,
}

/// The same directory of the tree on both sides.
struct Entered {
    directory: usize,
    from: OwnedFd,
    to: OwnedFd,
}

impl CopyWorker {
    pub(super) fn new(
        prepared: Arc<Prepared>,
        index: u32,
        engine: Engine,
        durable: Durable,
        whole: Arc<AtomicU32>,
    ) -> Self {
        Self {
            prepared,
            index,
            engine,
            durable,
            whole,
            entered: None,
        }
    }

    fn enter(&mut self, directory: usize) -> Result<(), Errno> {
        if self
            .entered
            .as_ref()
            .is_none_or(|entered| entered.directory != directory)
        {
            self.entered = None;
            let Prepared { tree, from, to, .. } = &*self.prepared;
            self.entered = Some(Entered {
                directory,
                from: tree.open(from, directory)?,
                to: tree.open(to, directory)?,
            });
        }
        Ok(())
    }
}

impl Worker for CopyWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let prepared = Arc::clone(&self.prepared);
        let share = usize::try_from(self.index)
            .ok()
            .and_then(|index| prepared.shares.get(index));
        let mut is_whole = true;
        for file in share
            .into_iter()
            .flatten()
            .filter_map(|&index| prepared.tree.files.get(index))
        {
            let entered = self.enter(file.directory);
            let Some(began) = recorder.next(Op::Copy, file.bytes) else {
                return Ok(());
            };
            let copied = match (entered, &self.entered) {
                (Ok(()), Some(Entered { from, to, .. })) => {
                    let both = (from.as_fd(), to.as_fd());
                    let stop = || recorder.should_stop();
                    self.engine
                        .copy(both, &file.name, file.bytes, self.durable, stop)
                }
                (Err(errno), _) => Err(Failed::from(errno)),
                (Ok(()), None) => Err(Failed::from(Errno::BADF)),
            };
            match copied {
                Ok(Copied::Whole(bytes)) => recorder.end(Op::Copy, began, bytes),
                Ok(Copied::Stopped) => {
                    recorder.idle();
                    return Ok(());
                }
                Err(failed) => {
                    is_whole = false;
                    let path = prepared.to.path().join(prepared.tree.path_of_file(file));
                    let facts = ErrorFacts {
                        errno: failed.errno.raw_os_error(),
                        path: &path.to_string_lossy(),
                        offset: failed.offset,
                    };
                    recorder.error(Op::Copy, began, &facts)?;
                }
            }
        }
        if is_whole {
            self.whole.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}
