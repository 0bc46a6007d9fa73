//! Where the blocks are: a file per worker in the task's directory, one file for several workers, a part of a raw
//! device per worker, or an RBD image per worker.
//!
//! A directory stores its own state (the length of its files, their generations). The state of a device is kept in this
//! process, per cell, so a device is laid out again after a restart of the agent.

use super::generations;
use super::images::Images;
use super::opened::FileOrImage;
use super::shared::{self, Placement, SharedFile};
use crate::engine::author::*;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Marker: the files may have holes. Removed when they are complete; survives a crash.
const HOLES: &str = "state.holes";

/// Limit on remembered cells; a run uses one cell per device at a time.
const MAX_CELLS: usize = 64;

/// State of a device's parts in a cell.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    is_laid: bool,
    generations: Generations,
}

static MEMORIES: Mutex<BTreeMap<String, Memory>> = Mutex::new(BTreeMap::new());

fn memories() -> MutexGuard<'static, BTreeMap<String, Memory>> {
    // A panic elsewhere leaves every value valid.
    MEMORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) enum Store {
    Files(Dir),
    /// One file for several workers.
    Shared(SharedFile),
    /// The device, and the bytes of each worker's part.
    Device(Arc<Device>, u64),
    Images(Images),
}

impl Store {
    /// Name of a worker's file in messages and errors.
    pub(super) fn name(&self, worker: u32) -> String {
        match self {
            Store::Files(_) => format!("w{worker}.dat"),
            Store::Shared(_) => shared::NAME.to_owned(),
            Store::Device(device, _) => device.path().display().to_string(),
            Store::Images(images) => images.name(worker),
        }
    }

    pub(super) fn library_cpu(&self) -> Option<CpuTime> {
        match self {
            Store::Files(_) | Store::Shared(_) | Store::Device(..) => Some(CpuTime::default()),
            Store::Images(images) => images.library_cpu(),
        }
    }

    /// Piece size of the layout. In an image it is one object, which takes as long to write as a part of one.
    pub(super) fn piece_bytes(&self) -> usize {
        match self {
            Store::Files(_) | Store::Shared(_) | Store::Device(..) => 1 << 20,
            Store::Images(_) => 4 << 20,
        }
    }

    /// Whether the files are in host memory, where no operation waits for a device.
    pub(super) fn is_memory(&self) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        const RAMFS: u64 = 0x8584_58f6;
        let dir = match self {
            Store::Files(dir) => dir,
            Store::Shared(shared) => &shared.dir,
            Store::Device(..) | Store::Images(_) => return false,
        };
        rustix::fs::fstatfs(dir.fd())
            .is_ok_and(|facts| matches!(u64::try_from(facts.f_type), Ok(TMPFS | RAMFS)))
    }

    /// Full path of a worker's file.
    pub(super) fn path(&self, worker: u32) -> PathBuf {
        match self {
            Store::Files(dir) => dir.path().join(self.name(worker)),
            Store::Shared(shared) => shared.dir.path().join(shared::NAME),
            Store::Device(device, _) => device.path().to_owned(),
            Store::Images(images) => images.path(worker).into(),
        }
    }

    /// Location of a worker's blocks in what [`Store::open`] opens.
    pub(super) fn placement(&self, task: u32, worker: u32) -> Placement {
        match self {
            Store::Files(_) | Store::Images(_) => Placement::OWN_FILE,
            Store::Shared(shared) => shared.placement(task, worker),
            Store::Device(_, part) => Placement {
                base: part * u64::from(worker),
                factor: 1,
            },
        }
    }

    /// Start of the bytes that a worker lays out; `None` if it lays out nothing.
    pub(super) fn laid_from(&self, worker: u32) -> Option<u64> {
        match self {
            Store::Files(_) | Store::Images(_) => Some(0),
            Store::Shared(shared) => shared.laid_from(worker),
            Store::Device(_, part) => Some(part * u64::from(worker)),
        }
    }

    /// The task's own directory.
    fn task_dir(&self) -> Option<&Dir> {
        match self {
            Store::Files(dir) => Some(dir),
            Store::Shared(shared) => Some(&shared.task),
            Store::Device(..) | Store::Images(_) => None,
        }
    }

    /// Opens a worker's file or image for the layout.
    pub(super) fn open_to(
        &self,
        worker: u32,
        access: ImageAccess,
    ) -> Result<FileOrImage, TaskError> {
        if let Store::Images(images) = self {
            return images.open(worker, access).map(FileOrImage::Image);
        }
        let flags = match access {
            ImageAccess::Read => OFlags::RDONLY,
            ImageAccess::Write => OFlags::WRONLY | OFlags::CREATE,
        };
        let opened = self.open(worker, flags);
        opened.map(FileOrImage::File).map_err(TaskError::Sandbox)
    }

    /// Opens a worker's file.
    ///
    /// # Errors
    /// Also if the worker has an image instead.
    pub(super) fn open(&self, worker: u32, flags: OFlags) -> Result<OwnedFd, SandboxError> {
        match self {
            Store::Files(dir) => dir.open(&self.name(worker), flags, Mode::RUSR | Mode::WUSR),
            // The first task to open it creates it.
            Store::Shared(shared) => {
                let flags = flags | OFlags::CREATE;
                shared
                    .dir
                    .open(shared::NAME, flags, Mode::RUSR | Mode::WUSR)
            }
            Store::Device(device, _) => device.open(flags.difference(OFlags::CREATE)),
            Store::Images(images) => Err(images.no_file(worker)),
        }
    }

    /// Refuses parts that exceed the device.
    pub(super) fn check_room(&self, workers: u32) -> Result<(), TaskError> {
        let Store::Device(device, part) = self else {
            return Ok(());
        };
        match part.checked_mul(workers.into()) {
            Some(bytes) if bytes <= device.bytes() => Ok(()),
            _ => Err(TaskError::Unsupported {
                why: format!(
                    "{} has {} bytes, and {workers} workers with {part} bytes each do not fit",
                    device.path().display(),
                    device.bytes()
                ),
            }),
        }
    }

    /// Whether the existing data may have holes.
    pub(super) fn has_holes(&self) -> Result<bool, TaskError> {
        match self.task_dir() {
            Some(dir) => {
                let noted = dir.file_bytes(HOLES).map_err(TaskError::Sandbox)?;
                Ok(noted.is_some())
            }
            None => Ok(false),
        }
    }

    /// Marks the data as possibly having holes until [`Store::is_filled`].
    pub(super) fn may_have_holes(&self) -> Result<(), TaskError> {
        if let Some(dir) = self.task_dir() {
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let noted = dir.open(HOLES, flags, Mode::RUSR | Mode::WUSR);
            noted.map_err(TaskError::Sandbox)?;
        }
        Ok(())
    }

    /// Records that the existing data has no holes.
    pub(super) fn is_filled(&self) -> Result<(), TaskError> {
        match self.task_dir() {
            Some(dir) => dir.remove_file(HOLES).map_err(TaskError::Sandbox),
            None => Ok(()),
        }
    }

    /// Bytes of a worker's data that exist without holes, from the beginning.
    pub(super) fn laid_bytes(&self, worker: u32) -> Result<u64, TaskError> {
        match self {
            Store::Files(dir) => {
                let bytes = dir.file_bytes(&self.name(worker));
                Ok(bytes.map_err(TaskError::Sandbox)?.unwrap_or(0))
            }
            Store::Shared(shared) => match shared.is_laid()? {
                true => Ok(shared.part),
                false => Ok(0),
            },
            Store::Device(device, part) => {
                let memory = memories().get(device.cell()).copied();
                Ok(memory.map_or(0, |memory| if memory.is_laid { *part } else { 0 }))
            }
            Store::Images(images) => images.laid_bytes(worker),
        }
    }

    /// Records that all workers' data is laid out.
    pub(super) fn all_laid(&self) -> Result<(), TaskError> {
        self.remember(|memory| memory.is_laid = true);
        match self {
            Store::Shared(shared) => shared.note_laid(),
            Store::Images(images) => images.all_laid(),
            Store::Files(_) | Store::Device(..) => Ok(()),
        }
    }

    /// Removes a worker's data if it is a file.
    pub(super) fn remove(&self, worker: u32) -> Result<(), TaskError> {
        match self {
            Store::Files(dir) => {
                let removed = dir.remove_file(&self.name(worker));
                removed.map_err(TaskError::Sandbox)?;
            }
            Store::Shared(shared) => shared.empty(worker)?,
            Store::Device(..) => {}
            Store::Images(images) => images.remove(worker)?,
        }
        self.remember(|memory| memory.is_laid = false);
        Ok(())
    }

    pub(super) fn generations(&self) -> Result<Generations, TaskError> {
        match self {
            Store::Files(dir) => generations::read(dir),
            Store::Shared(shared) => generations::read(&shared.task),
            Store::Device(device, _) => {
                let memory = memories().get(device.cell()).copied();
                Ok(memory.unwrap_or_default().generations)
            }
            Store::Images(images) => images.generations(),
        }
    }

    pub(super) fn set_generations(&self, known: Generations) -> Result<(), TaskError> {
        if let Some(dir) = self.task_dir() {
            return generations::write(known, dir);
        }
        if let Store::Images(images) = self {
            return images.set_generations(known);
        }
        self.remember(|memory| memory.generations = known);
        Ok(())
    }

    fn remember(&self, change: impl FnOnce(&mut Memory)) {
        let Store::Device(device, _) = self else {
            return;
        };
        let mut memories = memories();
        if memories.len() >= MAX_CELLS && !memories.contains_key(device.cell()) {
            memories.clear();
        }
        change(memories.entry(device.cell().to_owned()).or_default());
    }
}
