//! Prepares both sides of a copy before anything is measured.
//!
//! `in`: the source files exist, and the target has the empty directories. `overwrite`: the source files exist, and the
//! target has the files of an earlier step, laid out if there are none. `out`: the target has the files, laid out if no
//! `in` has left them; the scratch directory has the empty directories. `list`: the target has the files, and both
//! sides are the target. Invariant: the scratch directory is removed with the prepared copy.

mod files;

use super::engine::CopyMethod;
use super::keys::MAX_FILES;
use super::scratch::Scratch;
use super::tree::Tree;
use super::{CopyLoad, CopyMode, CopySource};
use crate::engine::author::*;
use rustix::fd::AsFd;
use rustix::fs::{OFlags, copy_file_range};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

/// The tree within the task's directory on the target.
const DATA: &str = "data";
/// Bytes per write while laying out.
pub(super) const LAY_OUT_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Prepared {
    pub from: Dir,
    pub to: Dir,
    pub tree: Tree,
    pub shares: Vec<Vec<usize>>,
    scratch: Mutex<Option<Scratch>>,
    shape: String,
}

impl Prepared {
    pub(super) fn make(load: &CopyLoad, control: &PrepareControl) -> Result<Self, TaskError> {
        let params = &load.params;
        let (tree, source) = match &params.source {
            CopySource::Generated {
                files, sizes, seed, ..
            } => (Tree::generated(*files, sizes, *seed), None),
            CopySource::From(_) => {
                let (tree, root) = read_source(load, control)?;
                (tree, Some(root))
            }
        };
        if tree.left_out > 0 {
            tracing::info!(
                count = tree.left_out,
                "symlinks and special files are not copied"
            );
        }
        let shape = format!(
            "copy of {} files, {:016x}",
            tree.files.len(),
            tree.fingerprint()
        );
        let shape = match &params.source {
            CopySource::Generated { data, .. } if *data != DataSpec::default() => {
                format!("{shape}, {data:?}")
            }
            _ => shape,
        };
        let shares = tree.shares(params.workers);
        let mut sides = Sides {
            load,
            tree: &tree,
            shares: &shares,
            shape: &shape,
            control,
            scratch: None,
        };
        let (from, to) = match params.mode {
            CopyMode::In => {
                let from = match source {
                    Some(root) => root,
                    None => sides.make_source()?,
                };
                (from, sides.empty_target()?)
            }
            CopyMode::Overwrite => {
                let to = sides.own_data(source.as_ref())?;
                let from = match source {
                    Some(root) => root,
                    None => sides.make_source()?,
                };
                // Warm last: creating the source may evict the target from memory.
                if load.warm {
                    sides.warm(&to)?;
                }
                sides.unsettle()?;
                (from, to)
            }
            CopyMode::List | CopyMode::Out => {
                let from = sides.data_to_read(source.as_ref())?;
                if load.warm {
                    sides.warm(&from)?;
                }
                let to = match params.mode {
                    CopyMode::Out => sides.empty_scratch()?,
                    _ => sides.data_to_read(source.as_ref())?,
                };
                (from, to)
            }
        };
        if params.mode != CopyMode::List {
            sides.try_way(&from, &to)?;
        }
        let scratch = Mutex::new(sides.scratch);
        Ok(Self {
            from,
            to,
            tree,
            shares,
            scratch,
            shape,
        })
    }

    pub(super) fn state(&self, content: DatasetContent) -> DatasetRecord {
        DatasetRecord {
            shape: self.shape.clone(),
            content,
            extras: Extras::default(),
            parts: Vec::new(),
        }
    }

    pub(super) fn remove_scratch(self: Arc<Self>) -> Result<(), TaskError> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scratch
            .take()
            .map_or(Ok(()), |mut scratch| scratch.remove())
    }
}

/// The tree at `from`, and its parent directory.
fn read_source(load: &CopyLoad, control: &PrepareControl) -> Result<(Tree, Dir), TaskError> {
    let CopySource::From(path) = &load.params.source else {
        return Err(TaskError::Unsupported {
            why: "no source is given".into(),
        });
    };
    let path = load.sources.permits(path).map_err(TaskError::Sandbox)?;
    let facts = std::fs::symlink_metadata(&path)
        .map_err(|error| TaskError::io(format!("look at `{}`", path.display()), error))?;
    let (tree, root) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !facts.is_dir() => {
            let root = open_canonical(parent).map_err(TaskError::Sandbox)?;
            let name = CString::new(name.as_bytes()).unwrap_or_default();
            let tree = Tree::one_file(&root, &name)
                .map_err(|errno| TaskError::io(format!("look at `{}`", path.display()), errno))?;
            (tree, root)
        }
        _ => {
            let root = open_canonical(&path).map_err(TaskError::Sandbox)?;
            (Tree::scan(&root, control)?, root)
        }
    };
    let files = u64::try_from(tree.files.len()).unwrap_or(u64::MAX);
    let why = match files {
        0 => format!("`{}` has no regular file to copy", path.display()),
        _ if files < u64::from(load.params.workers) => format!(
            "`{}` has {files} files, too few for {} workers; set a smaller `numjobs`",
            path.display(),
            load.params.workers
        ),
        _ if files > MAX_FILES => format!(
            "`{}` has {files} files or more; one task copies at most {}",
            path.display(),
            MAX_FILES
        ),
        _ => return Ok((tree, root)),
    };
    Err(TaskError::Unsupported { why })
}

/// The two sides during preparation.
struct Sides<'a> {
    load: &'a CopyLoad,
    tree: &'a Tree,
    shares: &'a [Vec<usize>],
    shape: &'a str,
    control: &'a PrepareControl,
    scratch: Option<Scratch>,
}

impl Sides<'_> {
    fn state(&self, content: DatasetContent) -> DatasetRecord {
        DatasetRecord {
            shape: self.shape.to_owned(),
            content,
            extras: Extras::default(),
            parts: Vec::new(),
        }
    }

    /// Marks the data as unsettled.
    fn unsettle(&self) -> Result<(), TaskError> {
        let task = &self.load.task;
        DatasetRecord::unsettle(self.shape.to_owned(), task).map_err(TaskError::Sandbox)
    }

    /// The target with empty directories.
    fn empty_target(&self) -> Result<Dir, TaskError> {
        let task = &self.load.task;
        self.unsettle()?;
        let control = self.control;
        task.remove_all(DATA, &mut |gone| control.progress(gone, 0, "files removed"))
            .map_err(TaskError::Sandbox)?;
        let data = task.make_dir(DATA).map_err(TaskError::Sandbox)?;
        self.check_space(&data, "the target")?;
        self.tree.make_directories(&data)?;
        Ok(data)
    }

    /// The task's own tree, laid out if missing.
    fn own_data(&self, source: Option<&Dir>) -> Result<Dir, TaskError> {
        let task = &self.load.task;
        if let Some(data) = self.full_target(task)? {
            return Ok(data);
        }
        let data = self.empty_target()?;
        self.fill(&data, source)?;
        let state = self.state(DatasetContent::Created);
        state.write(task).map_err(TaskError::Sandbox)?;
        Ok(data)
    }

    /// The tree to read: the task's own, or another task's.
    fn data_to_read(&self, source: Option<&Dir>) -> Result<Dir, TaskError> {
        let own = self.own_data(source)?;
        match &self.load.others {
            Some((other, dir)) => await_other(*other, self.control, || self.full_target(dir)),
            None => Ok(own),
        }
    }

    /// The tree in a task's directory, if it is complete.
    fn full_target(&self, task: &Dir) -> Result<Option<Dir>, TaskError> {
        let found = DatasetRecord::read(task).map_err(TaskError::Sandbox)?;
        if found != Some(self.state(DatasetContent::Created)) {
            return Ok(None);
        }
        task.dir(DATA).map_err(TaskError::Sandbox)
    }

    /// Fails with a clear error if the file systems do not support the chosen `way`.
    fn try_way(&self, from: &Dir, to: &Dir) -> Result<(), TaskError> {
        let name = c"probe";
        let method = self.load.params.method;
        let tried = match method {
            CopyMethod::Auto | CopyMethod::ReadWrite => return Ok(()),
            CopyMethod::Direct => {
                let task = self.load.task.fd();
                let tried = calls::open_new_with(task, name, OFlags::DIRECT).map(drop);
                let _absent = calls::delete(task, name);
                tried
            }
            CopyMethod::CopyFileRange => {
                let Some(file) = self.tree.files.iter().find(|file| file.bytes > 0) else {
                    return Ok(());
                };
                // The tree to overwrite may have a file of this name.
                let place = match self.load.params.mode {
                    CopyMode::Overwrite => self.load.task.fd(),
                    CopyMode::In | CopyMode::List | CopyMode::Out => to.fd(),
                };
                let tried = self.tree.open(from, file.directory).and_then(|dir| {
                    let source = calls::open_to_read(dir.as_fd(), &file.name)?;
                    let copy = calls::open_new(place, name)?;
                    copy_file_range(&source, None, &copy, None, 1).map(drop)
                });
                let _absent = calls::delete(place, name);
                tried
            }
        };
        let what = match method {
            CopyMethod::Direct => "the target does not take O_DIRECT",
            _ => "the kernel cannot copy between the target and the agent's scratch directory",
        };
        match tried {
            Ok(()) => Ok(()),
            Err(
                errno
                @ (Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM),
            ) => Err(TaskError::Unsupported {
                why: format!("{what} ({errno}); use another `way`"),
            }),
            Err(errno) => Err(TaskError::io("try the way of copying", errno)),
        }
    }

    fn make_source(&mut self) -> Result<Dir, TaskError> {
        let source = self.scratch_dir("source")?;
        self.tree.make_directories(&source)?;
        self.fill(&source, None)?;
        Ok(source)
    }

    fn empty_scratch(&mut self) -> Result<Dir, TaskError> {
        let out = self.scratch_dir("out")?;
        self.tree.make_directories(&out)?;
        Ok(out)
    }

    fn scratch_dir(&mut self, name: &str) -> Result<Dir, TaskError> {
        let Some(parent) = &self.load.scratch else {
            let why = "`copy` needs a scratch directory for its other side, and the agent has none"
                .into();
            return Err(TaskError::Unsupported { why });
        };
        let scratch = Scratch::make(parent)?;
        let dir = scratch.dir(name);
        self.scratch = Some(scratch);
        let dir = dir?;
        self.check_space(&dir, "the agent's scratch directory")?;
        Ok(dir)
    }

    fn check_space(&self, dir: &Dir, what: &str) -> Result<(), TaskError> {
        let (wanted, free) = (
            self.tree.space(BLOCK_BYTES),
            dir.free_bytes().map_err(TaskError::Sandbox)?,
        );
        if wanted <= free {
            return Ok(());
        }
        let why = format!(
            "{wanted} bytes are to be copied, and {what} `{}` has {free} bytes free; copy less, or free some",
            dir.path().display()
        );
        Err(TaskError::Unsupported { why })
    }
}
