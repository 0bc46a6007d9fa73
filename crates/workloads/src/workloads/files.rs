//! `files`: many files, each created, looked up, read, changed, renamed or deleted as a whole, and their directories.
//!
//! A task's files are split over its workers; by default each worker has its own tree in the task's directory. A worker
//! goes through its files in order or at random. The data outlive the mode: the next mode of the cell finds them, even
//! in another process. The parameters alone determine the files. This module does not depend on time or on other tasks.

mod attributes;
mod found;
mod layout;
mod mixed;
mod modes;
mod name;
mod options;
mod tree;
mod walk;
mod worker;

use crate::engine::author::*;
use attributes::Calls;
use layout::{DatasetDirs, FilesLayout, KnownData};
use mixed::MixedOp;
use modes::{DatasetState, FilesMode, MODES};
use name::Name;
use options::{FilesKeys, FilesOptions, check_names};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tree::Directories;
use walk::Walk;
use worker::{FileAction, FilesWorker, MixTools};

const NAME: &str = "files";

/// The workload.
pub const FILES: &dyn Workload = workload::<FilesOptions>();

impl Definition for FilesOptions {
    const ABOUT: About = About {
        name: NAME,
        revision: 6,
        summary: "many files and directories: create, list, stat, read, change and remove them",
        modes: MODES,
        rejoins: Rejoins::In(&[
            "list",
            "list-stat",
            "stat",
            "read",
            "chmod",
            "mix",
            "getxattr",
        ]),
        bypass: Bypass::Refused(
            "small files are not read and written with O_DIRECT; use cache = \"cold\", or workload `io`",
        ),
        ..About::ON_TARGET
    };
    type Keys = FilesKeys;

    fn new(mode: &'static ModeInfo, keys: FilesKeys) -> Result<Self, ParamError> {
        FilesOptions::of(mode, keys)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.layout.shape.workers,
            timing: self.timing,
        }
    }

    fn footprint(&self) -> Footprint {
        let files = self.layout.shape.files;
        let beside = self.mode.companion().is_some();
        let more = match self.mode {
            FilesMode::Append => self.added.append,
            _ => 0,
        };
        Footprint {
            files: if beside { files * 2 } else { files },
            directories: self.layout.shape.directories(),
            bytes: match beside {
                true => files.saturating_mul(BLOCK_BYTES),
                false => self
                    .bytes(BLOCK_BYTES)
                    .saturating_add(files.saturating_mul(more.next_multiple_of(BLOCK_BYTES))),
            },
            moved_bytes: match self.mode {
                FilesMode::Create => self.bytes(1),
                FilesMode::Read | FilesMode::Mix => {
                    self.bytes(1).saturating_mul(self.passes.count())
                }
                FilesMode::Append => files.saturating_mul(more),
                FilesMode::SetXattr | FilesMode::GetXattr => files
                    .saturating_mul(u64::from(self.added.attribute))
                    .saturating_mul(self.passes.count()),
                _ => 0,
            },
            ..Footprint::of(self.threads())
        }
    }

    fn buffer_bytes(&self) -> u64 {
        buffers_of(self.layout.buffer_bytes(self.added.append))
    }

    fn data_shape(&self) -> Option<DataShape> {
        Some(self.layout.data_shape())
    }

    fn load(mut self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        self.layout.shape.task = (spec.task_index, spec.tasks);
        check_names(&self.layout.shape).map_err(TaskError::Params)?;
        let workers = self.layout.shape.workers;
        let place = spec.cell_dir()?.clone();
        let mut data_layout = self.layout.clone();
        let others = other_task(spec, self.reorder_tasks)?.map(|(task, dir)| {
            data_layout.shape.task.0 = task;
            DatasetDirs {
                task: dir,
                place: place.clone(),
            }
        });
        Ok(Box::new(FilesLoad {
            options: self,
            others,
            data_layout,
            home: DatasetDirs {
                task: spec.dir()?,
                place,
            },
            known: Mutex::new(KnownData::whole(DatasetState::empty())),
            created: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            roots: Mutex::default(),
            whole: WholePasses::default(),
        }))
    }
}

struct FilesLoad {
    options: FilesOptions,
    /// Directories of the task's own data.
    home: DatasetDirs,
    /// Directories of another task's data, if the task works on those.
    others: Option<DatasetDirs>,
    /// Layout of the data that the task works on.
    data_layout: FilesLayout,
    /// State of that data; known once prepared.
    known: Mutex<KnownData>,
    /// Files that each worker has created without a gap, from its first one.
    created: Arc<[AtomicU64]>,
    /// Root of each worker's tree, for messages.
    roots: Mutex<BTreeMap<u32, PathBuf>>,
    whole: WholePasses,
}

impl FilesLoad {
    fn known(&self) -> MutexGuard<'_, KnownData> {
        // A panic elsewhere leaves it valid.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dataset(&self) -> DatasetState {
        self.known().dataset
    }

    /// Number of files that each worker leaves behind; `None` if unknown.
    fn parts_left(&self, left: DatasetState) -> Option<Vec<u64>> {
        let layout = &self.options.layout;
        if self.whole.all(layout.shape.workers) {
            return Some(match left.content {
                DatasetContent::Empty => Vec::new(),
                _ => self.known().parts.clone(),
            });
        }
        // Without `only-existing`, the next mode lays out all files anyway.
        let is_part = self.options.mode == FilesMode::Create && layout.only_existing;
        let created = self.created.iter();
        is_part.then(|| created.map(|files| files.load(Ordering::Relaxed)).collect())
    }

    /// Directories that each worker may keep open: together at most half of the process's descriptor limit.
    fn directories_to_keep(&self) -> u64 {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        limit / 2 / u64::from(self.options.layout.shape.workers)
    }

    fn walk(&self, worker: u32) -> Result<Walk, TaskError> {
        let layout = &self.data_layout;
        let share = self.known().share(&layout.shape, worker);
        let home = self.others.as_ref().unwrap_or(&self.home);
        let root = home.root(&layout.shape, worker)?;
        let path = root.path().to_owned();
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.insert(worker, path.clone());
        drop(roots);
        let directories =
            Directories::open(root, &share, self.directories_to_keep()).map_err(|errno| {
                TaskError::io(
                    format!("open the directories in `{}`", path.display()),
                    errno,
                )
            })?;
        Ok(Walk {
            directories,
            share,
            dataset: self.dataset(),
            sizes: layout.sizes.clone(),
            seed: layout.seed,
            order: self.options.order,
            worker: u64::from(layout.shape.task.0) << 32 | u64::from(worker),
            path,
        })
    }

    /// Fails with a clear error if the file system lacks the attributes that the mode needs.
    fn try_attribute(&self) -> Result<(), TaskError> {
        let name = c"probe";
        let dir = self.home.task.fd();
        let path = self.home.task.path().join("probe");
        let failed = |doing: &str, errno: Errno| {
            TaskError::io(format!("{doing} `{}`", path.display()), errno)
        };
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("remove", errno)),
        }
        let mut nothing = WriteBuffer::new(0, 0);
        calls::create(dir, name, 0, 0, &mut nothing, Durable::No, |_, wanted| {
            Ok(wanted)
        })
        .map_err(|error| failed("make", error.errno))?;
        let value = self.attribute();
        let tried = Calls::known().set(dir, name, &value);
        calls::delete(dir, name).map_err(|errno| failed("remove", errno))?;
        let bytes = value.len();
        let why = match tried.map_err(|error| error.errno) {
            Ok(_) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                format!(
                    "the file system of {} keeps no extended attributes (user.*)",
                    self.home.task.path().display()
                )
            }
            Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::DQUOT) => {
                format!(
                    "the file system of {} takes no extended attribute of {bytes} bytes; set a smaller `xattr-size`",
                    self.home.task.path().display()
                )
            }
            Err(errno) => return Err(failed("set an extended attribute of", errno)),
        };
        Err(TaskError::Unsupported { why })
    }

    /// The random sequence of a `mix` worker.
    fn random(&self, worker: u32) -> Random {
        let layout = &self.options.layout;
        let op = u64::try_from(MixedOp::Write.op().ordinal()).unwrap_or(0);
        Random::of(&[layout.seed, layout.shape.task.0.into(), worker.into(), op])
    }

    fn attribute(&self) -> Vec<u8> {
        vec![b'x'; usize::try_from(self.options.added.attribute).unwrap_or(0)]
    }
}

impl Load for FilesLoad {
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let (layout, mode) = (&self.options.layout, self.options.mode);
        if matches!(mode, FilesMode::SetXattr | FilesMode::GetXattr) {
            self.try_attribute()?;
        }
        let wanted = mode.wants(self.options.added.attribute);
        let own = layout.ensure(&self.home, &wanted, control)?;
        let known = match &self.others {
            Some(others) => self.data_layout.of_another(others, &wanted, control)?,
            None => own,
        };
        let leaves = mode.leaves(known.dataset, self.options.added);
        *self.known() = known;
        if leaves.is_some() {
            layout.unsettle(&self.home.task)?;
        }
        Ok(())
    }

    fn warm(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let (layout, mode) = (&self.options.layout, self.options.mode);
        let appended = self.dataset().extras.appended;
        let total = (layout.shape.files, "files");
        in_parallel(layout.shape.workers, total, control, |worker, done| {
            let mut buffer = AlignedBytes::new(1, layout.buffer_bytes(appended));
            self.walk(worker)?.warm(mode, &mut buffer, done)
        })
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let options = &self.options;
        let action = match options.mode {
            FilesMode::Create => FileAction::Create(options.layout.data(), options.durable),
            FilesMode::Append => {
                let bytes = usize::try_from(options.added.append).unwrap_or(usize::MAX);
                let data = options.layout.data_of(bytes.min(options.layout.unit));
                FileAction::Append(
                    data,
                    (options.durable, HardLinks::of_kernel()),
                    options.added.append,
                )
            }
            FilesMode::Read => {
                let appended = self.dataset().extras.appended;
                let buffer = AlignedBytes::new(1, options.layout.buffer_bytes(appended));
                match self.data_layout.content() {
                    content if content.verifies() => {
                        FileAction::Check(buffer, content, options.added.append)
                    }
                    _ => FileAction::Read(buffer),
                }
            }
            FilesMode::List | FilesMode::ListStat => FileAction::List(calls::listing_buffer()),
            FilesMode::SetXattr => FileAction::SetXattr(Calls::known(), self.attribute()),
            FilesMode::GetXattr => FileAction::GetXattr(Calls::known(), self.attribute()),
            FilesMode::Chmod => FileAction::Chmod(Calls::known()),
            FilesMode::Mix => {
                let content = self.data_layout.content();
                let appended = self.dataset().extras.appended;
                FileAction::Mix(MixTools {
                    mix: options.mix.clone(),
                    random: self.random(index),
                    calls: Calls::known(),
                    durable: options.durable,
                    data: options.layout.data(),
                    buffer: AlignedBytes::new(1, options.layout.buffer_bytes(appended)),
                    content: content.verifies().then_some(content),
                    append: options.added.append,
                })
            }
            FilesMode::Stat => FileAction::Stat,
            FilesMode::Rename => FileAction::Rename,
            FilesMode::Symlink => FileAction::Symlink,
            FilesMode::Mkdir => FileAction::Mkdir,
            FilesMode::Rmdir => FileAction::Rmdir,
            FilesMode::Delete => FileAction::Delete,
        };
        Ok(Box::new(FilesWorker {
            mode: options.mode,
            walk: self.walk(index)?,
            action,
            whole: self.whole.clone(),
            done: 0,
            created: (Arc::clone(&self.created), index as usize),
            passes: options.passes,
        }))
    }

    fn path_of(&self, worker: u32, file: u64) -> Option<String> {
        let mode = self.options.mode;
        let roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let root = roots.get(&worker)?;
        let path = match mode {
            FilesMode::List | FilesMode::ListStat => root.join(Name::directory(file).to_string()),
            _ => {
                let share = self.data_layout.shape.share(worker);
                let names = self.dataset().names();
                let letter = mode
                    .companion()
                    .map_or(names.letter(), |kind| kind.letter());
                root.join(Name::directory(share.directory_of(file)).to_string())
                    .join(Name::new(letter, share.number(file)).to_string())
            }
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let left = self.options.mode.leaves(self.dataset(), self.options.added);
        let Some(left) = left else {
            return Ok(());
        };
        if let Some(parts) = self.parts_left(left) {
            let state = self.options.layout.state(left, parts);
            state.write_or_warn(&self.home.task);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
