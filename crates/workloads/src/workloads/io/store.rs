//! Where the blocks are: a file per worker in the task's directory, one file for several workers, a part per worker of
//! one raw device, or an RBD image per worker.
//!
//! What a directory remembers of itself (how long its files are, which generations stand in them) is remembered for a
//! device in this process, per cell: after a restart of the agent it is laid out again.

use super::generations;
use super::images::Images;
use super::opened::Opened;
use super::shared::{self, Placement, SharedFile};
use crate::engine::author::*;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Marker: the files may have holes. Removed once they are complete; survives a crash.
const HOLES: &str = "state.holes";

/// Cells that are remembered; a run has one on a device at a time.
const MOST_CELLS: usize = 64;

/// What is known of a device's parts in a cell.
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
    /// As messages and errors call a worker's file.
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

    /// Data are laid out in pieces of this size; in an image, of one object, which is waited for as long as for a part.
    pub(super) fn piece_bytes(&self) -> usize {
        match self {
            Store::Files(_) | Store::Shared(_) | Store::Device(..) => 1 << 20,
            Store::Images(_) => 4 << 20,
        }
    }

    /// Whether the files are in the host's memory alone, where no operation waits for a device.
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

    /// The same with everything above it.
    pub(super) fn path(&self, worker: u32) -> PathBuf {
        match self {
            Store::Files(dir) => dir.path().join(self.name(worker)),
            Store::Shared(shared) => shared.dir.path().join(shared::NAME),
            Store::Device(device, _) => device.path().to_owned(),
            Store::Images(images) => images.path(worker).into(),
        }
    }

    /// Where the blocks of a worker of `task` lie in what [`Store::open`] opens.
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

    /// Where the bytes begin that a worker lays out; `None`: it lays out none.
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

    /// Opens what the layout works on.
    pub(super) fn open_to(&self, worker: u32, access: ImageAccess) -> Result<Opened, TaskError> {
        if let Store::Images(images) = self {
            return images.open(worker, access).map(Opened::Image);
        }
        let flags = match access {
            ImageAccess::Read => OFlags::RDONLY,
            ImageAccess::Write => OFlags::WRONLY | OFlags::CREATE,
        };
        let opened = self.open(worker, flags);
        opened.map(Opened::File).map_err(TaskError::Sandbox)
    }

    /// A worker's file.
    ///
    /// # Errors
    /// Also where it has none, but an image.
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

    /// Refuses more than a device has.
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

    /// Whether what is there of the data may have holes.
    pub(super) fn has_holes(&self) -> Result<bool, TaskError> {
        match self.task_dir() {
            Some(dir) => {
                let noted = dir.file_bytes(HOLES).map_err(TaskError::Sandbox)?;
                Ok(noted.is_some())
            }
            None => Ok(false),
        }
    }

    /// From now on there may be holes, until [`Store::is_filled`].
    pub(super) fn may_have_holes(&self) -> Result<(), TaskError> {
        if let Some(dir) = self.task_dir() {
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let noted = dir.open(HOLES, flags, Mode::RUSR | Mode::WUSR);
            noted.map_err(TaskError::Sandbox)?;
        }
        Ok(())
    }

    /// What is there was written from the beginning on.
    pub(super) fn is_filled(&self) -> Result<(), TaskError> {
        match self.task_dir() {
            Some(dir) => dir.remove_file(HOLES).map_err(TaskError::Sandbox),
            None => Ok(()),
        }
    }

    /// How much of a worker's data is there, from the beginning on, where there are no holes.
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

    /// All workers' data are there.
    pub(super) fn all_laid(&self) -> Result<(), TaskError> {
        self.remember(|memory| memory.is_laid = true);
        match self {
            Store::Shared(shared) => shared.note_laid(),
            Store::Images(images) => images.all_laid(),
            Store::Files(_) | Store::Device(..) => Ok(()),
        }
    }

    /// Takes a worker's data away, as far as that means anything.
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
        if memories.len() >= MOST_CELLS && !memories.contains_key(device.cell()) {
            memories.clear();
        }
        change(memories.entry(device.cell().to_owned()).or_default());
    }
}
