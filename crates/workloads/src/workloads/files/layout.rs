//! Brings a task's part of a cell into the state that a mode starts from, unmeasured.
//!
//! If an earlier mode left a known state, nothing is touched. Otherwise every directory is checked and repaired:
//! missing or truncated files are written, renamed ones get their first name back, stray entries are removed. This
//! module does not depend on modes. Invariant: if it fails or is interrupted, the state on disk is `Unsettled`.

use super::attributes::Calls;
use super::found::{DirectoryListing, NameSet};
use super::modes::{DatasetState, Wanted, WantedFiles};
use super::name::{Name, NameKind, Names};
use super::tree::{FilesShare, Sharing, TreeShape, open_directory};
use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Mode, mkdirat};
use rustix::io::Errno;
use std::path::Path;

/// The parameters that determine the data.
#[derive(Clone, Debug)]
pub(super) struct FilesLayout {
    pub shape: TreeShape,
    pub sizes: SizeSpec,
    pub seed: u64,
    pub data: DataSpec,
    /// Bytes per write.
    pub unit: usize,
    /// Work only on the files that an interrupted `create` has left.
    pub only_existing: bool,
}

/// Known state of a task's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownData {
    pub dataset: DatasetState,
    /// Number of files of each worker, from its first one. Empty: all.
    pub parts: Vec<u64>,
}

impl KnownData {
    pub(super) fn whole(dataset: DatasetState) -> Self {
        Self {
            dataset,
            parts: Vec::new(),
        }
    }

    /// The existing files of a worker.
    pub(super) fn share(&self, shape: &TreeShape, worker: u32) -> FilesShare {
        let share = shape.share(worker);
        let part = usize::try_from(worker)
            .ok()
            .and_then(|index| self.parts.get(index));
        FilesShare {
            files: part.map_or(share.files, |part| share.files.min(*part)),
            ..share
        }
    }
}

impl FilesLayout {
    /// Description of the data: equal text means equal data.
    fn describe(&self) -> String {
        let TreeShape {
            files,
            workers,
            files_per_directory,
            sharing,
            task,
        } = self.shape;
        let whose = match sharing {
            Sharing::Worker => String::new(),
            Sharing::Task => " of the task".to_owned(),
            Sharing::Step => format!(" of {} tasks", task.1),
        };
        let mut text = format!(
            "{files} files of {} bytes, seed {}, by {workers} workers, {files_per_directory} per directory{whose}",
            self.sizes, self.seed
        );
        if self.data != DataSpec::default() {
            // Verified data depends on the unit that it was written in.
            text.push_str(&format!(", {:?} in units of {}", self.data, self.unit));
        }
        text
    }

    /// The same in terms of the keys, for kept data.
    pub(super) fn data_shape(&self) -> DataShape {
        let shape = &self.shape;
        let mut keys = vec![
            ("files", shape.files.to_string()),
            ("size", self.sizes.to_string()),
            ("numjobs", shape.workers.to_string()),
            ("dirs", shape.files_per_directory.to_string()),
            ("directories-per", shape.sharing.as_str().to_owned()),
            ("seed", self.seed.to_string()),
        ];
        keys.extend(self.data.shape());
        if self.data.verify {
            keys.push(("bs", self.unit.to_string()));
        }
        keys
    }

    /// `parts`: see [`KnownData::parts`].
    pub(super) fn state(&self, dataset: DatasetState, parts: Vec<u64>) -> DatasetRecord {
        DatasetRecord {
            shape: self.describe(),
            content: dataset.content,
            extras: dataset.extras,
            parts,
        }
    }

    /// Source of the bytes to write, one unit at a time.
    pub(super) fn data(&self) -> WriteBuffer {
        self.data_of(self.buffer_bytes(0))
    }

    /// Source of the bytes to write, at most `bytes` at a time.
    pub(super) fn data_of(&self, bytes: usize) -> WriteBuffer {
        WriteBuffer::of(self.content(), bytes)
    }

    /// Content of the files.
    pub(super) fn content(&self) -> Content {
        let own = [self.seed, u64::from(self.shape.task.0)];
        Content::new(self.data, Random::of(&own).next_u64())
    }

    /// Most bytes that one call moves, if files have grown by `appended`.
    pub(super) fn buffer_bytes(&self, appended: u64) -> usize {
        let largest = self.sizes.largest().saturating_add(appended);
        let largest = usize::try_from(largest).unwrap_or(usize::MAX);
        self.unit.min(largest)
    }

    /// Lays out or repairs the data as `wanted`, and returns its state.
    pub(super) fn ensure(
        &self,
        home: &DatasetDirs,
        wanted: &Wanted,
        control: &PrepareControl,
    ) -> Result<KnownData, TaskError> {
        let task = &home.task;
        let same = self.known(task)?;
        if let Some(known) = same
            .as_ref()
            .filter(|known| known.dataset.satisfies(wanted))
        {
            return Ok(known.clone());
        }
        let same = same.map(|known| known.dataset);
        control
            .check_layout_allowed(|| format!("what `files` needs in {}", task.path().display()))?;
        self.unsettle(task)?;
        if same.is_none() {
            // The existing files have other parameters.
            WorkerDirs::remove_from(task, control)?;
        }
        let known = same.filter(|known| known.content != DatasetContent::Unsettled);
        let goal = known.unwrap_or(DatasetState::empty()).repaired(wanted);
        let orders = RepairPlan {
            files: match wanted.files {
                WantedFiles::Either if known.is_some() => None,
                _ => Some(goal.content == DatasetContent::Created),
            },
            goal,
            value: vec![b'x'; self.attribute_bytes(&goal)],
        };
        let total = (self.shape.files, "files");
        in_parallel(self.shape.workers, total, control, |worker, done| {
            let root = home.root(&self.shape, worker)?;
            self.repair(&root, &self.shape.share(worker), &orders, done)
        })?;
        task.sync().map_err(TaskError::Sandbox)?;
        let state = self.state(goal, Vec::new());
        state.write(task).map_err(TaskError::Sandbox)?;
        Ok(KnownData::whole(goal))
    }

    /// State of existing data with these parameters. If all files are wanted, the state of a part counts as unknown.
    fn known(&self, task: &Dir) -> Result<Option<KnownData>, TaskError> {
        let found = DatasetRecord::read(task).map_err(TaskError::Sandbox)?;
        let same = found.filter(|state| state.shape == self.describe());
        Ok(same.map(|state| KnownData {
            dataset: DatasetState {
                content: match state.parts.is_empty() || self.only_existing {
                    true => state.content,
                    false => DatasetContent::Unsettled,
                },
                extras: state.extras,
            },
            parts: state.parts,
        }))
    }

    /// Waits until the data of another task, of this layout, are as `wanted`, and returns their state.
    pub(super) fn of_another(
        &self,
        home: &DatasetDirs,
        wanted: &Wanted,
        control: &PrepareControl,
    ) -> Result<KnownData, TaskError> {
        await_other(self.shape.task.0, control, || {
            let known = self.known(&home.task)?;
            Ok(known.filter(|known| known.dataset.satisfies(wanted)))
        })
    }

    fn attribute_bytes(&self, dataset: &DatasetState) -> usize {
        let bytes = dataset.extras.attribute.unwrap_or(0);
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Marks the data as unsettled. Must be called before anything changes the data.
    pub(super) fn unsettle(&self, task: &Dir) -> Result<(), TaskError> {
        DatasetRecord::unsettle(self.describe(), task).map_err(TaskError::Sandbox)
    }

    fn repair(
        &self,
        root: &Dir,
        share: &FilesShare,
        orders: &RepairPlan,
        done: &Done<'_>,
    ) -> Result<(), TaskError> {
        let mut data = self.data_of(self.buffer_bytes(orders.goal.extras.appended));
        for number in 0..share.directories() {
            let name = Name::directory(number);
            let path = root.path().join(name.to_string());
            let is_new = match mkdirat(root.fd(), name.as_c_str(), Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(failed("make", &path, errno)),
            };
            let dir = open_directory(root, number).map_err(|errno| failed("open", &path, errno))?;
            let files = share.files_of(number);
            let found = match is_new && share.is_alone() {
                true => DirectoryListing::default(),
                false => DirectoryListing::scan(dir.as_fd(), share, files.clone())
                    .map_err(|errno| failed("list", &path, errno))?,
            };
            let mending = Repair {
                layout: self,
                share,
                dir: dir.as_fd(),
                path: &path,
                orders,
            };
            mending.directory(files, &found, &mut data, done)?;
        }
        Ok(())
    }
}

/// The work to do.
struct RepairPlan {
    /// Whether files are created or removed; `None`: they are left alone.
    files: Option<bool>,
    goal: DatasetState,
    /// Value of the attribute, if each file gets one.
    value: Vec<u8>,
}

/// Repair of one directory.
struct Repair<'a> {
    layout: &'a FilesLayout,
    share: &'a FilesShare,
    dir: BorrowedFd<'a>,
    path: &'a Path,
    orders: &'a RepairPlan,
}

impl Repair<'_> {
    fn directory(
        &self,
        files: std::ops::Range<u64>,
        found: &DirectoryListing,
        data: &mut WriteBuffer,
        done: &Done<'_>,
    ) -> Result<(), TaskError> {
        for stray in &found.strays {
            self.remove(stray, AtFlags::empty())?;
        }
        for (place, index) in files.enumerate() {
            let number = self.share.number(index);
            let under = found.under(place);
            if let Some(wanted) = self.orders.files {
                self.file(wanted, index, under, data, done)?;
            }
            for kind in NameKind::ALL {
                self.repair_companion(kind, number, under)?;
            }
            done.add(1)?;
        }
        Ok(())
    }

    fn repair_companion(
        &self,
        kind: NameKind,
        number: u64,
        under: NameSet,
    ) -> Result<(), TaskError> {
        let name = Name::of(kind, number);
        match (self.orders.goal.has(kind), under.is(kind.letter())) {
            (true, false) => {
                let made = match kind {
                    NameKind::Subdirectory => calls::make_directory(self.dir, name.as_c_str()),
                    NameKind::Symlink => {
                        let file = Name::file(Names::Created, number);
                        calls::make_symlink(self.dir, name.as_c_str(), file.as_c_str())
                    }
                };
                made.map_err(|errno| self.failed("make", &name, errno))
            }
            (false, true) => self.remove(name.as_c_str(), kind.removal()),
            _ => Ok(()),
        }
    }

    fn file(
        &self,
        wanted: bool,
        index: u64,
        under: NameSet,
        data: &mut WriteBuffer,
        done: &Done<'_>,
    ) -> Result<(), TaskError> {
        let number = self.share.number(index);
        let created = Name::file(Names::Created, number);
        let renamed = Name::file(Names::Renamed, number);
        let is = |names: Names| under.is(names.letter());
        if !wanted {
            for names in [Names::Created, Names::Renamed] {
                if is(names) {
                    let name = Name::file(names, number);
                    self.remove(name.as_c_str(), AtFlags::empty())?;
                }
            }
            return Ok(());
        }
        if is(Names::Renamed) && is(Names::Created) {
            self.remove(renamed.as_c_str(), AtFlags::empty())?;
        } else if is(Names::Renamed) {
            let both = (renamed.as_c_str(), created.as_c_str());
            rustix::fs::renameat(self.dir, both.0, self.dir, both.1)
                .map_err(|errno| self.failed("rename", &renamed, errno))?;
        }
        let is_there = is(Names::Created) || is(Names::Renamed);
        self.content(&created, index, is_there, data, done)?;
        if self.orders.value.is_empty() {
            return Ok(());
        }
        Calls::known()
            .set(self.dir, created.as_c_str(), &self.orders.value)
            .map(drop)
            .map_err(|error| self.failed("set the attribute of", &created, error.errno))
    }

    /// Writes a file unless it is complete.
    fn content(
        &self,
        name: &Name,
        index: u64,
        is_there: bool,
        data: &mut WriteBuffer,
        done: &Done<'_>,
    ) -> Result<(), TaskError> {
        let index = self.share.first + index;
        let bytes = self.layout.sizes.of(self.layout.seed, index);
        let bytes = bytes.saturating_add(self.orders.goal.extras.appended);
        if is_there {
            let size = calls::stat(self.dir, name.as_c_str())
                .map_err(|errno| self.failed("stat", name, errno))?;
            if size == bytes {
                return Ok(());
            }
            self.remove(name.as_c_str(), AtFlags::empty())?;
        }
        calls::create(
            self.dir,
            name.as_c_str(),
            index,
            bytes,
            data,
            Durable::No,
            |_, wanted| done.next_chunk(u64::MAX, wanted),
        )
        .map(drop)
        .map_err(|error| self.failed("lay out", name, error.errno))
    }

    fn remove(&self, name: &std::ffi::CStr, how: AtFlags) -> Result<(), TaskError> {
        rustix::fs::unlinkat(self.dir, name, how)
            .map_err(|errno| failed("remove", &self.path.join(&*name.to_string_lossy()), errno))
    }

    fn failed(&self, doing: &str, name: &Name, errno: Errno) -> TaskError {
        failed(doing, &self.path.join(name.to_string()), errno)
    }
}

/// Directories of a task's data.
#[derive(Debug)]
pub(super) struct DatasetDirs {
    /// The task's own directory, with its state and, by default, its files.
    pub task: Dir,
    /// Locates the directory of the step's first task, which holds the tree if all tasks share one.
    pub place: CellDir,
}

impl DatasetDirs {
    /// Root of one worker's tree, created if missing.
    pub(super) fn root(&self, shape: &TreeShape, worker: u32) -> Result<Dir, TaskError> {
        let worker_dir = |number| self.task.make_dir(&Name::worker(number).to_string());
        let root = match shape.sharing {
            Sharing::Worker => worker_dir(worker),
            Sharing::Task => worker_dir(0),
            Sharing::Step => self
                .place
                .task_dir(0)
                .and_then(|first| first.make_dir("shared")),
        };
        root.map_err(TaskError::Sandbox)
    }
}

fn failed(doing: &str, path: &Path, errno: Errno) -> TaskError {
    let why = match errno {
        Errno::NOSPC if has_no_inodes(path) => " (no inode is free)",
        _ => "",
    };
    TaskError::io(format!("{doing} `{}`{why}", path.display()), errno)
}
