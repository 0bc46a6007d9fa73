//! `tree`: unpacks, walks and removes a tree of directories, files and links, like tar, find and rm -r.
//!
//! The tree comes from a tar archive that the agent may read, or is generated from a table of file sizes; two
//! real-world trees are built in. Each worker has a copy of the whole tree in the task's directory. The archive is read
//! and decompressed between operations, never in one, except for files larger than [`archive::READ_AHEAD_BYTES`]. No
//! archive can reach anything outside of the worker's directory: see [`archive`] and [`Cursor`].

mod archive;
mod compressed;
mod keys;
mod log;
mod reading;
mod source;
mod synthetic;
mod tar;
mod tree_walker;
mod unpack;
mod worker;

use crate::engine::author::*;
use archive::{Archive, Contents};
use keys::{MODES, TreeKeys, TreeMode, TreeOptions, TreeOrigin};
use log::LayoutLog;
use reading::TreeReader;
use source::TreeSource;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError};
use synthetic::SyntheticSource;
use tree_walker::TreeWalker;
use unpack::Unpacker;
use worker::{TreeWorker, Work};

const NAME: &str = "tree";

/// The workload.
pub const TREE: &dyn Workload = workload::<TreeOptions>();

impl Definition for TreeOptions {
    const ABOUT: About = About {
        name: NAME,
        revision: 4,
        summary: "a whole tree, from a tar archive or generated: unpack, read, walk, remove",
        modes: MODES,
        bypass: Bypass::Refused(
            "a tree is not unpacked or read with O_DIRECT; use cache = \"cold\"",
        ),
        ..About::ON_TARGET
    };
    type Keys = TreeKeys;

    fn new(mode: &'static ModeInfo, keys: TreeKeys) -> Result<Self, ParamError> {
        TreeOptions::of(mode, keys)
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.workers,
            timing: self.timing,
        }
    }

    /// Only the agent knows the content of an archive; it checks the space when the task is prepared.
    fn footprint(&self) -> Footprint {
        let workers = u64::from(self.workers);
        let mut footprint = Footprint::of(self.threads());
        if let TreeOrigin::SyntheticTree(made) = &self.from {
            let bytes = |unit| made.bytes(unit).saturating_mul(workers);
            footprint.files = made.entries().saturating_mul(workers);
            footprint.bytes = bytes(BLOCK_BYTES)
                .saturating_add(made.directories.saturating_mul(BLOCK_BYTES * workers));
            footprint.moved_bytes = match self.mode {
                TreeMode::Unpack | TreeMode::Read => bytes(1),
                TreeMode::Walk | TreeMode::Remove => 0,
            };
        }
        footprint
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let paths = (0..self.workers).map(|_| Arc::new(CurrentPath::new()));
        Ok(Box::new(TreeLoad {
            paths: paths.collect(),
            options: self,
            dirs: WorkerDirs::of(spec)?,
            task_index: spec.task_index,
            sources: spec.sources.clone(),
            contents: Mutex::default(),
            whole: WholePasses::default(),
        }))
    }
}

struct TreeLoad {
    options: TreeOptions,
    dirs: WorkerDirs,
    task_index: u32,
    sources: Allowed,
    /// Totals of the archive; known once prepared.
    contents: Mutex<Option<Contents>>,
    whole: WholePasses,
    /// Current path of each worker.
    paths: Box<[Arc<CurrentPath>]>,
}

impl TreeLoad {
    fn current_path(&self, worker: u32) -> Arc<CurrentPath> {
        let index = usize::try_from(worker).unwrap_or(usize::MAX);
        self.paths
            .get(index)
            .cloned()
            .unwrap_or_else(|| Arc::new(CurrentPath::new()))
    }

    /// A cursor at the root of a worker's tree.
    fn cursor(&self, worker: u32) -> Result<Cursor, TaskError> {
        let root = self.dirs.open(worker)?;
        Ok(Cursor::shown(root, self.current_path(worker)))
    }

    fn reading(&self, worker: u32, verify: bool) -> Result<TreeReader, TaskError> {
        Ok(TreeReader::new(
            self.cursor(worker)?,
            self.options.unit,
            verify,
        ))
    }

    fn unpacker(&self, worker: u32) -> Result<Unpacker, TaskError> {
        Ok(Unpacker {
            cursor: self.cursor(worker)?,
            durable: self.options.durable,
            unit: self.options.unit,
        })
    }

    /// The source of the tree, at its beginning.
    fn source(&self, worker: u32) -> Result<Box<dyn TreeSource>, TaskError> {
        let options = &self.options;
        match &options.from {
            TreeOrigin::Archive(path) => {
                let archive = Archive::open(path, &self.sources)?;
                Ok(Box::new(archive.entries(options.unit)?))
            }
            TreeOrigin::SyntheticTree(made) => {
                let own = [made.seed, u64::from(self.task_index), u64::from(worker)];
                let bytes = usize::try_from(made.sizes.largest()).unwrap_or(usize::MAX);
                let content = Content::new(made.data, Random::of(&own).next_u64());
                let data = WriteBuffer::of(content, options.unit.min(bytes));
                Ok(Box::new(SyntheticSource::new(made.clone(), data)))
            }
        }
    }

    /// Description of the data: equal text means equal data.
    fn shape(&self) -> Result<String, TaskError> {
        let workers = self.options.workers;
        Ok(match &self.options.from {
            TreeOrigin::SyntheticTree(made) => format!("tree of {made} by {workers} workers"),
            TreeOrigin::Archive(path) => {
                let archive = Archive::open(path, &self.sources)?;
                format!("tree of {} by {workers} workers", archive.identity()?)
            }
        })
    }

    fn state(&self, content: DatasetContent) -> Result<DatasetRecord, TaskError> {
        Ok(DatasetRecord {
            shape: self.shape()?,
            content,
            extras: Extras::default(),
            parts: Vec::new(),
        })
    }

    /// Reads the whole archive before anything is created from it.
    fn scan_archive(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let TreeOrigin::Archive(path) = &self.options.from else {
            return Ok(());
        };
        let mut known = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return Ok(());
        }
        let free = self.dirs.task.free_bytes().map_err(TaskError::Sandbox)?;
        let room = free / u64::from(self.options.workers);
        let archive = Archive::open(path, &self.sources)?;
        *known = Some(Contents::of(
            archive.entries(self.options.unit)?,
            room,
            control,
        )?);
        Ok(())
    }

    fn empty(&self, control: &PrepareControl) -> Result<(), TaskError> {
        self.unsettle()?;
        WorkerDirs::remove_from(&self.dirs.task, control)?;
        self.dirs.make(self.options.workers, control)
    }

    fn unsettle(&self) -> Result<(), TaskError> {
        DatasetRecord::unsettle(self.shape()?, &self.dirs.task).map_err(TaskError::Sandbox)
    }

    fn unpack(&self, control: &PrepareControl) -> Result<(), TaskError> {
        let entries = match &self.options.from {
            TreeOrigin::SyntheticTree(made) => made.entries(),
            TreeOrigin::Archive(_) => {
                let known = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
                known.as_ref().map_or(0, |contents| contents.entries)
            }
        };
        let total = entries.saturating_mul(u64::from(self.options.workers));
        in_parallel(
            self.options.workers,
            (total, "files"),
            control,
            |worker, done| {
                let (mut unpacker, mut source) = (self.unpacker(worker)?, self.source(worker)?);
                unpacker
                    .all(source.as_mut(), &mut LayoutLog { done })
                    .map(drop)
            },
        )?;
        self.dirs.sync()
    }

    fn is_there(&self) -> Result<bool, TaskError> {
        let found = DatasetRecord::read(&self.dirs.task).map_err(TaskError::Sandbox)?;
        Ok(found == Some(self.state(DatasetContent::Created)?))
    }
}

impl Load for TreeLoad {
    fn prepare(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.options.mode == TreeMode::Unpack {
            self.scan_archive(control)?;
            return self.empty(control);
        }
        if !self.is_there()? {
            self.scan_archive(control)?;
            self.empty(control)?;
            self.unpack(control)?;
            let state = self.state(DatasetContent::Created)?;
            state.write(&self.dirs.task).map_err(TaskError::Sandbox)?;
        }
        match self.options.mode {
            TreeMode::Remove => self.unsettle(),
            TreeMode::Unpack | TreeMode::Read | TreeMode::Walk => Ok(()),
        }
    }

    fn warm(&self, control: &PrepareControl) -> Result<(), TaskError> {
        if self.options.mode == TreeMode::Unpack {
            return Ok(());
        }
        in_parallel(
            self.options.workers,
            (0, "files"),
            control,
            |worker, done| {
                if self.options.mode == TreeMode::Read {
                    let mut source = self.source(worker)?;
                    // The step counts wrong data as errors; here it would end the warm pass.
                    let mut reading = self.reading(worker, false)?;
                    return reading
                        .all(source.as_mut(), &mut LayoutLog { done })
                        .map(drop);
                }
                TreeWalker::new(self.cursor(worker)?)
                    .walk(&mut LayoutLog { done })
                    .map(drop)
            },
        )
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let work = match self.options.mode {
            TreeMode::Unpack => Work::Unpack(self.unpacker(index)?, self.source(index)?),
            TreeMode::Read => Work::Read(
                self.reading(index, self.options.verify)?,
                self.source(index)?,
            ),
            TreeMode::Walk => Work::Walk(TreeWalker::new(self.cursor(index)?), self.options.passes),
            TreeMode::Remove => Work::Remove(TreeWalker::new(self.cursor(index)?)),
        };
        Ok(Box::new(TreeWorker {
            work,
            whole: self.whole.clone(),
        }))
    }

    fn path_of(&self, worker: u32, _file: u64) -> Option<String> {
        let path = self.current_path(worker).path()?;
        let root = self.dirs.path(worker);
        let path = match path.is_empty() {
            true => root,
            false => root.join(OsString::from_vec(path)),
        };
        Some(path.display().to_string())
    }

    fn finish(&self) -> Result<(), TaskError> {
        let content = match self.options.mode {
            TreeMode::Unpack => DatasetContent::Created,
            TreeMode::Remove => DatasetContent::Empty,
            TreeMode::Read | TreeMode::Walk => return Ok(()),
        };
        if self.whole.all(self.options.workers) {
            self.state(content)?.write_or_warn(&self.dirs.task);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
