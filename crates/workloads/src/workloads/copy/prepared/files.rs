//! Passes over every file of a tree with one thread per worker, which write missing files or read each file once.

use super::super::engine::{CopyMethod, Engine, TargetSide};
use super::super::tree::{FileEntry, OpenDirectory, Tree};
use super::{LAY_OUT_BYTES, Sides};
use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd};

impl Sides<'_> {
    /// Writes every file beneath `to`: copied if there is a source, generated otherwise.
    pub(super) fn fill(&self, to: &Dir, source: Option<&Dir>) -> Result<(), TaskError> {
        let content = self.load.content(self.load.task_index);
        self.each_file("lay out", self.tree.bytes(), to, |prepare| {
            let mut writer = match (source, content) {
                (Some(root), _) => {
                    let engine = Engine::new(CopyMethod::Auto, TargetSide::To, LAY_OUT_BYTES);
                    let engine = engine
                        .map_err(|error| TaskError::io("get memory to lay out data", error))?;
                    Writer::Copy(root, engine)
                }
                (None, Some(content)) => Writer::Made(WriteBuffer::of(content, LAY_OUT_BYTES)),
                (None, None) => return Ok(()),
            };
            let done = prepare.done;
            prepare.run(|dir, index, file| match &mut writer {
                Writer::Made(data) => {
                    let index = u64::try_from(index).unwrap_or(u64::MAX);
                    calls::create(
                        dir,
                        &file.name,
                        index,
                        file.bytes,
                        data,
                        Durable::No,
                        |_, wanted| done.next_chunk(u64::MAX, wanted),
                    )
                    .map(drop)
                    .map_err(|error| error.errno)
                }
                Writer::Copy(root, engine) => {
                    let from = self.tree.open(root, file.directory)?;
                    let both = (from.as_fd(), dir);
                    let allow = |at, wanted| done.next_chunk(file.bytes.saturating_sub(at), wanted);
                    engine
                        .copy(both, &file.name, file.bytes, Durable::No, allow)
                        .map(drop)
                        .map_err(|error| error.errno)
                }
            })
        })?;
        to.sync().map_err(TaskError::Sandbox)
    }

    /// Reads every file once.
    pub(super) fn warm(&self, from: &Dir) -> Result<(), TaskError> {
        self.each_file("warm the caches with", self.tree.bytes(), from, |prepare| {
            let mut buffer = AlignedBytes::new(1, LAY_OUT_BYTES);
            let done = prepare.done;
            prepare.run(|dir, _, file| {
                let allow = |at, wanted| done.next_chunk(file.bytes.saturating_sub(at), wanted);
                calls::read(dir, &file.name, file.bytes, &mut buffer, allow)
                    .map(drop)
                    .map_err(|error| error.errno)
            })
        })
    }

    fn each_file(
        &self,
        doing: &str,
        total: u64,
        root: &Dir,
        share: impl Fn(OneShare<'_>) -> Result<(), TaskError> + Sync,
    ) -> Result<(), TaskError> {
        in_parallel(
            self.load.params.workers,
            (total, "bytes"),
            self.control,
            |worker, done| {
                let files = usize::try_from(worker)
                    .ok()
                    .and_then(|index| self.shares.get(index));
                share(OneShare {
                    tree: self.tree,
                    files: files.map_or(&[], Vec::as_slice),
                    root,
                    doing,
                    done,
                })
            },
        )
    }
}

enum Writer<'a> {
    Made(WriteBuffer),
    Copy(&'a Dir, Engine),
}

/// One worker's files, in the order of the tree.
struct OneShare<'a> {
    tree: &'a Tree,
    files: &'a [usize],
    root: &'a Dir,
    doing: &'a str,
    done: &'a Done<'a>,
}

impl OneShare<'_> {
    fn run(
        self,
        mut act: impl FnMut(BorrowedFd<'_>, usize, &FileEntry) -> Result<(), rustix::io::Errno>,
    ) -> Result<(), TaskError> {
        let mut entered = OpenDirectory::default();
        for &index in self.files {
            let Some(file) = self.tree.files.get(index) else {
                continue;
            };
            let done = entered
                .enter(self.tree, self.root, file.directory)
                .and_then(|dir| act(dir, index, file));
            done.map_err(|errno| {
                let path = self.root.path().join(self.tree.path_of_file(file));
                TaskError::io(format!("{} `{}`", self.doing, path.display()), errno)
            })?;
            self.done.count(file.bytes)?;
        }
        Ok(())
    }
}
