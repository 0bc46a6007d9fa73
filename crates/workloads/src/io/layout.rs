//! The data that a mode needs, laid out before anything is measured: real data, no holes, synced.

use super::sequence::Direction;
use super::{IoLoad, file};
use crate::block_io::write_at;
use crate::task::{PrepareControl, TaskError};
use rustix::fd::AsFd;
use rustix::fs::OFlags;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Data are laid out in pieces of this size.
const PIECE: usize = 1 << 20;
/// More threads hardly lay out faster, and a task may have thousands of workers.
const THREADS: u32 = 8;

pub(super) fn prepare(load: &IoLoad, control: &PrepareControl) -> Result<(), TaskError> {
    if load.job.direct {
        file::probe_direct(&load.job, &load.store)?;
    }
    if load.job.pattern.direction == Direction::WriteNew {
        for worker in 0..load.job.workers {
            control.check()?;
            load.store.remove(worker)?;
        }
        return Ok(());
    }
    let passes = if load.is_warmed() { 2 } else { 1 };
    let layout = Layout {
        load,
        control,
        next: AtomicU32::new(0),
        done: AtomicU64::new(0),
        total: load.job.file_bytes() * u64::from(load.job.workers) * passes,
    };
    let threads = load.job.workers.min(THREADS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| layout.work()))
            .collect();
        let mut outcome = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| {
                Err(TaskError::Died {
                    worker: 0,
                    message: "a thread that laid out data panicked".to_owned(),
                })
            });
            outcome = outcome.and(ended);
        }
        outcome?;
        load.store.all_laid();
        Ok(())
    })
}

impl IoLoad {
    /// Direct reads have no cache to be warm in.
    fn is_warmed(&self) -> bool {
        self.warm && !self.job.direct
    }
}

/// A layout by several threads, each of which takes one file after the other.
struct Layout<'a> {
    load: &'a IoLoad,
    control: &'a PrepareControl,
    next: AtomicU32,
    done: AtomicU64,
    total: u64,
}

impl Layout<'_> {
    fn work(&self) -> Result<(), TaskError> {
        let mut piece = vec![0; PIECE];
        loop {
            let worker = self.next.fetch_add(1, Ordering::Relaxed);
            if worker >= self.load.job.workers {
                return Ok(());
            }
            let laid = self.lay_out(worker, &mut piece);
            if laid.is_err() {
                self.next.store(self.load.job.workers, Ordering::Relaxed);
            }
            laid?;
            if self.load.is_warmed() {
                self.warm_up(worker, &mut piece)?;
            }
        }
    }

    /// What is there of the file stays: it was written from the beginning on.
    fn lay_out(&self, worker: u32, piece: &mut [u8]) -> Result<(), TaskError> {
        let store = &self.load.store;
        let (base, path) = (store.base(worker), store.path(worker));
        let bytes = self.load.job.file_bytes();
        let mut offset = store.laid_bytes(worker)?.min(bytes);
        self.advance(offset);
        if offset == bytes {
            return self.control.check();
        }
        let (content, file_id) = (self.load.content(), self.load.file_id(worker));
        content.fill(piece);
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let opened = store.open(worker, flags).map_err(TaskError::Sandbox)?;
        while offset < bytes {
            self.control.check()?;
            let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            let length = left.min(piece.len());
            let part = piece.get_mut(..length).unwrap_or_default();
            content.place(part, file_id, base + offset, 0);
            write_at(opened.as_fd(), part, base + offset).map_err(|failed| {
                let doing = format!("lay out {} at offset {}", path.display(), base + offset);
                TaskError::io(doing, failed.errno)
            })?;
            offset += length as u64;
            self.advance(length as u64);
        }
        rustix::fs::fdatasync(&opened)
            .map_err(|errno| TaskError::io(format!("sync {}", path.display()), errno))
    }

    fn warm_up(&self, worker: u32, piece: &mut [u8]) -> Result<(), TaskError> {
        let store = &self.load.store;
        let (base, name) = (store.base(worker), store.name(worker));
        let opened = store.open(worker, OFlags::RDONLY);
        let opened = opened.map_err(TaskError::Sandbox)?;
        let mut offset = 0;
        while offset < self.load.job.file_bytes() {
            self.control.check()?;
            let left = self.load.job.file_bytes() - offset;
            let length = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            let part = piece.get_mut(..length).unwrap_or_default();
            let read = rustix::io::pread(&opened, part, base + offset).map_err(|errno| {
                TaskError::io(format!("read {name} at offset {offset} to warm it"), errno)
            })?;
            if read == 0 {
                break;
            }
            offset += read as u64;
            self.advance(read as u64);
        }
        Ok(())
    }

    fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.control
            .progress(done.min(self.total), self.total, "bytes");
    }
}
