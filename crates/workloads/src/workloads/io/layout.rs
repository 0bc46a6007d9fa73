//! Lays out the data that a mode needs before anything is measured: real data, no holes, synced.

use super::sequence::Direction;
use super::{IoLoad, file};
use crate::engine::author::*;

pub(super) fn prepare(load: &IoLoad, control: &PrepareControl) -> Result<(), TaskError> {
    if load.job.direct {
        file::probe_direct(&load.job, &load.store)?;
    }
    if load.job.pattern.direction == Direction::WriteNew {
        load.store.may_have_holes()?;
        for worker in 0..load.job.workers {
            control.check()?;
            load.store.remove(worker)?;
        }
        return load.await_others(control);
    }
    let keeps = match load.store.has_holes()? {
        true => KeptPart::Nothing,
        false => KeptPart::Beginning,
    };
    let passes = if load.is_warmed() { 2 } else { 1 };
    let total = load
        .job
        .file_bytes()
        .saturating_mul(load.job.workers.into())
        .saturating_mul(passes);
    in_parallel(
        load.job.workers,
        (total, "bytes"),
        control,
        |worker, done| {
            let layout = WorkerLayout { load, worker, done };
            let mut piece = vec![0; load.store.piece_bytes()];
            layout.lay_out(&mut piece, keeps)?;
            match load.is_warmed() {
                true => layout.warm_up(&mut piece),
                false => Ok(()),
            }
        },
    )?;
    load.store.all_laid()?;
    load.store.is_filled()?;
    load.await_others(control)
}

/// How much of the existing files is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptPart {
    /// The part written so far, from the beginning.
    Beginning,
    Nothing,
}

impl IoLoad {
    /// Direct reads bypass the cache, so warming it has no effect.
    fn is_warmed(&self) -> bool {
        self.warm && !self.job.direct
    }
}

/// One worker's file, or its part of the device.
struct WorkerLayout<'a> {
    load: &'a IoLoad,
    worker: u32,
    done: &'a Done<'a>,
}

impl WorkerLayout<'_> {
    /// Writes the part of the file that is missing, or all of it.
    fn lay_out(&self, piece: &mut [u8], keeps: KeptPart) -> Result<(), TaskError> {
        let (store, worker) = (&self.load.store, self.worker);
        let path = store.path(worker);
        let Some(base) = store.laid_from(worker) else {
            return Ok(());
        };
        let bytes = self.load.job.file_bytes();
        let mut offset = match keeps {
            KeptPart::Beginning => self.load.job.whole_blocks(store.laid_bytes(worker)?),
            KeptPart::Nothing => 0,
        };
        self.done.count(offset)?;
        if offset == bytes {
            return Ok(());
        }
        self.done
            .check_layout_allowed(|| path.display().to_string())?;
        let (content, file_id) = (self.load.content(), self.load.own_file_id(worker));
        content.fill(piece);
        let opened = store.open_to(worker, ImageAccess::Write)?;
        while offset < bytes {
            let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            let length = left.min(piece.len());
            let part = piece.get_mut(..length).unwrap_or_default();
            content.place(part, file_id, base + offset, 0);
            opened.write_at(&path, part, base + offset)?;
            offset += length as u64;
            self.done.add(length as u64)?;
        }
        opened.sync(&path)
    }

    fn warm_up(&self, piece: &mut [u8]) -> Result<(), TaskError> {
        let store = &self.load.store;
        let path = store.path(self.worker);
        let Some(base) = store.laid_from(self.worker) else {
            return Ok(());
        };
        let opened = store.open_to(self.worker, ImageAccess::Read)?;
        let mut offset = 0;
        while offset < self.load.job.file_bytes() {
            let left = self.load.job.file_bytes() - offset;
            let length = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            let part = piece.get_mut(..length).unwrap_or_default();
            let read = opened.read_at(&path, part, base + offset)?;
            if read == 0 {
                break;
            }
            offset += read as u64;
            self.done.add(read as u64)?;
        }
        Ok(())
    }
}
