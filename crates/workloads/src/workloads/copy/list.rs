//! The measured loop of `list`: walks the tree on the target like `ls -lR`.
//!
//! Each directory is listed to its end, and then each name that was copied into it is looked up. The workers take
//! directories in turn. Invariant: a copied name that is missing is an error; nothing is allocated per name.

use super::prepared::Prepared;
use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct ListWorker {
    prepared: Arc<Prepared>,
    index: u32,
    workers: u32,
    buffer: Vec<MaybeUninit<u8>>,
}

impl ListWorker {
    pub(super) fn new(prepared: Arc<Prepared>, index: u32, workers: u32) -> Self {
        Self {
            prepared,
            index,
            workers,
            buffer: calls::listing_buffer(),
        }
    }

    fn list(
        &mut self,
        directory: usize,
        opened: &OwnedFd,
        expected: usize,
        recorder: &mut Recorder,
    ) -> Result<bool, OpError> {
        let Some(began) = recorder.next(Op::List, 0) else {
            return Ok(false);
        };
        let mut names = 0_usize;
        let listed = calls::list(opened.as_fd(), c".", &mut self.buffer, |_| names += 1);
        match listed {
            Ok(()) if names == expected => recorder.end(Op::List, began, 0),
            failed => {
                let errno = failed.err().unwrap_or(Errno::NOENT);
                let path = self.path(directory);
                Fault::from(errno).record(recorder, Op::List, began, &path)?;
            }
        }
        Ok(true)
    }

    fn stat(
        &self,
        directory: usize,
        opened: &OwnedFd,
        name: &CStr,
        recorder: &mut Recorder,
    ) -> Result<bool, OpError> {
        let Some(began) = recorder.next(Op::Stat, 0) else {
            return Ok(false);
        };
        match calls::stat(opened.as_fd(), name) {
            Ok(_) => recorder.end(Op::Stat, began, 0),
            Err(errno) => {
                let path = self
                    .path(directory)
                    .join(Path::new(&*name.to_string_lossy()));
                Fault::from(errno).record(recorder, Op::Stat, began, &path)?;
            }
        }
        Ok(true)
    }

    fn path(&self, directory: usize) -> PathBuf {
        let Prepared { from, tree, .. } = &*self.prepared;
        from.path().join(tree.path_of(directory))
    }
}

impl Worker for ListWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let prepared = Arc::clone(&self.prepared);
        let Prepared { from, tree, .. } = &*prepared;
        let (mut files, mut directories) = (0..0, 0..0);
        for directory in 0..tree.directory_count() {
            files = tree.files_of(directory, files.end);
            directories = tree.directories_of(directory, directories.end);
            let ours = u64::try_from(directory).unwrap_or(0) % u64::from(self.workers.max(1));
            if ours != u64::from(self.index) {
                continue;
            }
            if recorder.should_stop() {
                return Ok(());
            }
            recorder.set_file(u64::try_from(files.start).unwrap_or(0));
            let opened = recorder.untimed_since(Op::List, || tree.open(from, directory));
            let opened = match opened {
                (_, Ok(opened)) => opened,
                (began, Err(errno)) => {
                    let path = self.path(directory);
                    Fault::from(errno).record(recorder, Op::List, began, &path)?;
                    continue;
                }
            };
            let names = || names_of(tree, files.clone(), directories.clone());
            let shown = names().filter(|name| !name.to_bytes().starts_with(b"."));
            let expected = shown.count();
            if !self.list(directory, &opened, expected, recorder)? {
                return Ok(());
            }
            for name in names() {
                if !self.stat(directory, &opened, name, recorder)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn names_of(
    tree: &super::tree::Tree,
    files: Range<usize>,
    directories: Range<usize>,
) -> impl Iterator<Item = &CStr> {
    let files = tree.files.get(files).unwrap_or_default();
    let files = files.iter().map(|file| file.name.as_c_str());
    tree.names_of_directories(directories).chain(files)
}
