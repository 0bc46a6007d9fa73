//! A worker's file: how it is opened, and synced at the end.

use super::job::IoJob;
use super::keys::SyncKind;
use super::sequence::{BlockOrder, Direction};
use super::store::Store;
use crate::engine::author::*;
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags, fadvise, statx};
use rustix::io::Errno;
use std::path::Path;

/// Opens a worker's file with the flags and the advice that the load needs.
pub(super) fn open(job: &IoJob, store: &Store, worker: u32) -> Result<OwnedFd, TaskError> {
    let mut flags = match job.pattern.direction {
        Direction::WriteNew => OFlags::WRONLY | OFlags::CREATE,
        Direction::WriteOver => OFlags::WRONLY,
        Direction::Read => OFlags::RDONLY,
        Direction::Mixed(_) => OFlags::RDWR,
    };
    if job.pattern.direction.writes() {
        flags |= match job.sync {
            SyncKind::None => OFlags::empty(),
            SyncKind::Sync => OFlags::SYNC,
            SyncKind::Dsync => OFlags::DSYNC,
        };
    }
    let file = if job.direct {
        direct(
            store.open(worker, flags | OFlags::DIRECT),
            &store.path(worker),
        )?
    } else {
        store.open(worker, flags).map_err(TaskError::Sandbox)?
    };
    let advice = match job.pattern.order {
        // Programs that use stdio give no advice.
        _ if job.stdio.is_some() => return Ok(file),
        BlockOrder::EachOnce | BlockOrder::Drawn(_) => Advice::Random,
        BlockOrder::Strided(_) => Advice::Normal,
        BlockOrder::Forward | BlockOrder::Backward | BlockOrder::Same => Advice::Sequential,
    };
    // Only a hint; an error changes nothing.
    let _ = fadvise(&file, 0, None, advice);
    Ok(file)
}

fn direct(opened: Result<OwnedFd, SandboxError>, path: &Path) -> Result<OwnedFd, TaskError> {
    match opened {
        Ok(file) => Ok(file),
        Err(error) if error.errno() == Some(Errno::INVAL.raw_os_error()) => Err(no_direct(path)),
        Err(error) => Err(TaskError::Sandbox(error)),
    }
}

/// Checks, before anything is laid out, whether direct I/O works here with this block size.
pub(super) fn probe_direct(job: &IoJob, store: &Store) -> Result<(), TaskError> {
    const PROBE: &str = "direct.probe";
    let (file, path) = match store {
        Store::Files(dir) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::DIRECT;
            let file = dir.open(PROBE, flags, Mode::RUSR | Mode::WUSR);
            dir.remove_file(PROBE).map_err(TaskError::Sandbox)?;
            (file, dir.path())
        }
        Store::Shared(shared) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::DIRECT;
            let file = shared.task.open(PROBE, flags, Mode::RUSR | Mode::WUSR);
            shared.task.remove_file(PROBE).map_err(TaskError::Sandbox)?;
            (file, shared.task.path())
        }
        Store::Device(device, _) => (device.open(OFlags::RDONLY | OFlags::DIRECT), device.path()),
        // This host does not cache images.
        Store::Images(_) => return Ok(()),
    };
    let file = direct(file, path)?;
    let facts = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let known = facts.ok().filter(|facts| {
        let mask = StatxFlags::from_bits_retain(facts.stx_mask);
        mask.contains(StatxFlags::DIOALIGN)
    });
    match known.map(|facts| u64::from(facts.stx_dio_offset_align)) {
        Some(0) => Err(no_direct(path)),
        Some(alignment) => job.check_alignment(alignment).map_err(TaskError::Params),
        None => Ok(()),
    }
}

fn no_direct(path: &Path) -> TaskError {
    TaskError::Unsupported {
        why: format!(
            "the file system of {} refuses O_DIRECT; leave out `direct` and `cache = \"bypass\"`",
            path.display()
        ),
    }
}

/// Does the work after the last operation, outside the measured time; an error counts as one of `op`.
pub(super) fn end(
    name: &str,
    recorder: &mut Recorder,
    op: Op,
    work: impl FnOnce() -> Result<(), CallError>,
) -> Result<(), OpError> {
    recorder.set_file(0);
    let (began, ended) = recorder.untimed_since(op, work);
    match ended {
        Ok(()) => Ok(()),
        Err(failed) => {
            let facts = ErrorFacts {
                errno: failed.errno.raw_os_error(),
                path: name,
                offset: failed.offset,
            };
            recorder.error(op, began, &facts)
        }
    }
}
