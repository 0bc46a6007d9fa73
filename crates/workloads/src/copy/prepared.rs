//! Both sides of a copy, made ready before anything is measured.
//!
//! `in`: the files to copy in are at hand, the target has the empty directories. `out`: the target has the files, laid
//! out where no `in` has left them; the scratch directory has the empty directories. Invariant: the scratch directory
//! goes with it.

use super::engine::{Engine, TargetSide, Way};
use super::keys::MOST_FILES;
use super::scratch::Scratch;
use super::tree::{Entry, Tree};
use super::{CopyLoad, Mode, Source};
use crate::data::DataSpec;
use crate::files::BLOCK_BYTES;
use crate::files::calls::{self, Durable};
use crate::files::data::Data;
use crate::files::side_by_side::{Done, side_by_side};
use crate::files::state::{Content, Extras, State};
use crate::sandbox::{Dir, open_canonical};
use crate::task::{PrepareControl, TaskError};
use rustix::fd::{AsFd, OwnedFd};
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
        let plan = &load.plan;
        let (tree, source) = match &plan.source {
            Source::Generated {
                files, sizes, seed, ..
            } => (Tree::generated(*files, sizes, *seed), None),
            Source::From(_) => {
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
        let shape = match &plan.source {
            Source::Generated { data, .. } if *data != DataSpec::default() => {
                format!("{shape}, {data:?}")
            }
            _ => shape,
        };
        let shares = tree.shares(plan.workers);
        let mut sides = Sides {
            load,
            tree: &tree,
            shares: &shares,
            shape: &shape,
            control,
            scratch: None,
        };
        let (from, to) = match plan.mode {
            Mode::In => {
                let from = match source {
                    Some(root) => root,
                    None => sides.make_source()?,
                };
                (from, sides.empty_target()?)
            }
            Mode::Out => {
                let from = sides.full_target(source.as_ref())?;
                if load.warm {
                    sides.warm(&from)?;
                }
                (from, sides.empty_scratch()?)
            }
        };
        sides.try_way(&from, &to)?;
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

    pub(super) fn state(&self, content: Content) -> State {
        State {
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

/// The tree at `from`, and the directory that it hangs in.
fn read_source(load: &CopyLoad, control: &PrepareControl) -> Result<(Tree, Dir), TaskError> {
    let Source::From(path) = &load.plan.source else {
        return Err(TaskError::Unfit {
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
        _ if files < u64::from(load.plan.workers) => format!(
            "`{}` has {files} files, too few for {} workers; set a smaller `numjobs`",
            path.display(),
            load.plan.workers
        ),
        _ if files > MOST_FILES => format!(
            "`{}` has {files} files; one task copies at most {}",
            path.display(),
            MOST_FILES
        ),
        _ => return Ok((tree, root)),
    };
    Err(TaskError::Unfit { why })
}

/// The two sides on their way to be ready.
struct Sides<'a> {
    load: &'a CopyLoad,
    tree: &'a Tree,
    shares: &'a [Vec<usize>],
    shape: &'a str,
    control: &'a PrepareControl,
    scratch: Option<Scratch>,
}

impl Sides<'_> {
    fn state(&self, content: Content) -> State {
        State {
            shape: self.shape.to_owned(),
            content,
            extras: Extras::default(),
            parts: Vec::new(),
        }
    }

    /// The target with the directories and no file.
    fn empty_target(&self) -> Result<Dir, TaskError> {
        let task = &self.load.task;
        State::unsettle(self.shape.to_owned(), task).map_err(TaskError::Sandbox)?;
        let control = self.control;
        task.remove_all(DATA, &mut |gone| control.progress(gone, 0, "files removed"))
            .map_err(TaskError::Sandbox)?;
        let data = task.make_dir(DATA).map_err(TaskError::Sandbox)?;
        self.check_space(&data, "the target")?;
        self.tree.make_directories(&data)?;
        Ok(data)
    }

    /// The target with all files.
    fn full_target(&self, source: Option<&Dir>) -> Result<Dir, TaskError> {
        let task = &self.load.task;
        let wanted = self.state(Content::Created);
        if State::read(task).map_err(TaskError::Sandbox)? == Some(wanted.clone())
            && let Some(data) = task.dir(DATA).map_err(TaskError::Sandbox)?
        {
            return Ok(data);
        }
        let data = self.empty_target()?;
        self.fill(&data, source)?;
        wanted.write(task).map_err(TaskError::Sandbox)?;
        Ok(data)
    }

    /// One clear error where the file systems cannot copy in the way that is asked for.
    fn try_way(&self, from: &Dir, to: &Dir) -> Result<(), TaskError> {
        let name = c"probe";
        let way = self.load.plan.way;
        let tried = match way {
            Way::Auto | Way::ReadWrite => return Ok(()),
            Way::Direct => {
                let task = self.load.task.fd();
                let tried = calls::open_new_with(task, name, OFlags::DIRECT).map(drop);
                let _absent = calls::delete(task, name);
                tried
            }
            Way::CopyFileRange => {
                let Some(file) = self.tree.files.iter().find(|file| file.bytes > 0) else {
                    return Ok(());
                };
                let tried = self.tree.open(from, file.directory).and_then(|dir| {
                    let source = calls::open_to_read(dir.as_fd(), &file.name)?;
                    let copy = calls::open_new(to.fd(), name)?;
                    copy_file_range(&source, None, &copy, None, 1).map(drop)
                });
                let _absent = calls::delete(to.fd(), name);
                tried
            }
        };
        let what = match way {
            Way::Direct => "the target does not take O_DIRECT",
            _ => "the kernel cannot copy between the target and the agent's scratch directory",
        };
        match tried {
            Ok(()) => Ok(()),
            Err(
                errno
                @ (Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM),
            ) => Err(TaskError::Unfit {
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
            return Err(TaskError::Unfit { why });
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
        Err(TaskError::Unfit { why })
    }

    /// Writes every file beneath `to`: copied where there is a source, random otherwise.
    fn fill(&self, to: &Dir, source: Option<&Dir>) -> Result<(), TaskError> {
        let content = self.load.content();
        self.each_file("lay out", self.tree.bytes(), to, |prepare| {
            let mut writer = match (source, content) {
                (Some(root), _) => {
                    let engine = Engine::new(Way::Auto, TargetSide::To, LAY_OUT_BYTES);
                    let engine = engine
                        .map_err(|error| TaskError::io("get memory to lay out data", error))?;
                    Writer::Copy(root, engine)
                }
                (None, Some(content)) => Writer::Made(Data::of(content, LAY_OUT_BYTES)),
                (None, None) => return Ok(()),
            };
            prepare.run(|dir, index, file| match &mut writer {
                Writer::Made(data) => {
                    let index = u64::try_from(index).unwrap_or(u64::MAX);
                    calls::create(
                        dir.as_fd(),
                        &file.name,
                        index,
                        file.bytes,
                        data,
                        Durable::No,
                        |_| (),
                    )
                    .map(drop)
                    .map_err(|error| error.errno)
                }
                Writer::Copy(root, engine) => {
                    let from = self.tree.open(root, file.directory)?;
                    let both = (from.as_fd(), dir.as_fd());
                    engine
                        .copy(both, &file.name, file.bytes, Durable::No, |_| false)
                        .map(drop)
                        .map_err(|error| error.errno)
                }
            })
        })?;
        to.sync().map_err(TaskError::Sandbox)
    }

    /// Reads every file once.
    fn warm(&self, from: &Dir) -> Result<(), TaskError> {
        self.each_file("warm the caches with", self.tree.bytes(), from, |prepare| {
            let mut buffer = vec![1; LAY_OUT_BYTES];
            prepare.run(|dir, _, file| {
                calls::read(dir.as_fd(), &file.name, file.bytes, &mut buffer, |_| ())
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
        side_by_side(
            self.load.plan.workers,
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
    Made(Data),
    Copy(&'a Dir, Engine),
}

/// One worker's files, in the order of the tree.
struct OneShare<'a> {
    tree: &'a Tree,
    files: &'a [usize],
    root: &'a Dir,
    doing: &'a str,
    done: &'a Done,
}

impl OneShare<'_> {
    fn run(
        self,
        mut act: impl FnMut(&OwnedFd, usize, &Entry) -> Result<(), rustix::io::Errno>,
    ) -> Result<(), TaskError> {
        let mut current: Option<(usize, OwnedFd)> = None;
        for &index in self.files {
            let Some(file) = self.tree.files.get(index) else {
                continue;
            };
            let failed = |errno| {
                let path = self.root.path().join(self.tree.path_of_file(file));
                TaskError::io(format!("{} `{}`", self.doing, path.display()), errno)
            };
            let fd = match current.take() {
                Some((number, fd)) if number == file.directory => fd,
                _ => self.tree.open(self.root, file.directory).map_err(failed)?,
            };
            act(&fd, index, file).map_err(failed)?;
            current = Some((file.directory, fd));
            self.done.add(file.bytes)?;
        }
        Ok(())
    }
}
