//! The measured loop of `read`: reads the files block by block in the order in which they were written.
//!
//! A block is verified, and the end of a file checked, outside of the operation. Invariants: each readable block is
//! verified, whatever was wrong with earlier ones; a file that cannot be opened, or ends early, fails one operation.

use super::name_of;
use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Expected content of the blocks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// Not checked.
    Anything,
    /// These bytes repeated from the beginning of each block.
    Repeated([u8; 8]),
    /// Self-describing content of this generation.
    Placed(Content, u64),
}

pub(super) struct ReadWorker {
    pub root: Dir,
    /// Bytes of all files of this worker, and the size of each file.
    pub bytes: u64,
    pub file_bytes: u64,
    /// One block, as large as the blocks that were written.
    pub buffer: AlignedBytes,
    pub expected: Expected,
}

/// A block of a file.
#[derive(Clone, Copy)]
struct Block {
    file: u64,
    offset: u64,
    bytes: u64,
    is_last: bool,
}

impl ReadWorker {
    /// The files with their sizes.
    fn files(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (bytes, each) = (self.bytes, self.file_bytes.max(1));
        let begin = move |number: u64| number.saturating_mul(each);
        let begun = move |number: &u64| begin(*number) < bytes;
        (0..)
            .take_while(begun)
            .map(move |number| (number, each.min(bytes - begin(number))))
    }

    fn blocks(&self, (file, bytes): (u64, u64)) -> impl Iterator<Item = Block> + use<> {
        let unit = u64::try_from(self.buffer.len()).unwrap_or(u64::MAX).max(1);
        (0..bytes.div_ceil(unit)).map(move |number| {
            let offset = number * unit;
            let length = unit.min(bytes - offset);
            Block {
                file,
                offset,
                bytes: length,
                is_last: offset + length == bytes,
            }
        })
    }

    fn read(&mut self, file: &OwnedFd, block: Block) -> Result<(), CallError> {
        let length = usize::try_from(block.bytes).unwrap_or(usize::MAX);
        let buffer = self.buffer.get_mut(..length).unwrap_or_default();
        read_at(file.as_fd(), buffer, block.offset)
    }

    /// Verifies the part of the block that was read, and the end of its file; returns what is wrong.
    fn fault(&self, file: &OwnedFd, block: Block, read: Result<(), CallError>) -> Fault {
        let came = match read {
            Ok(()) => block.bytes,
            Err(failed) => {
                let came = failed.offset.unwrap_or(0).saturating_sub(block.offset);
                came.min(block.bytes)
            }
        };
        let came = usize::try_from(came).unwrap_or(usize::MAX);
        let found = self.buffer.get(..came).unwrap_or_default();
        let mut mismatches = Mismatches::default();
        match &self.expected {
            Expected::Anything => return Fault::of(read, mismatches),
            Expected::Repeated(bytes) => {
                mismatches.compare_repeated(*bytes, found, block.offset);
            }
            Expected::Placed(content, generation) => {
                let written = Written {
                    file: block.file,
                    offset: block.offset,
                    bytes: block.bytes,
                    generation: *generation,
                };
                content.check_part(found, block.offset, &written, &mut mismatches);
            }
        }
        let ends = match read {
            Ok(()) if block.is_last => {
                let offset = block.offset + block.bytes;
                match read_at(file.as_fd(), &mut [0], offset) {
                    Ok(()) => {
                        let found = FoundData::More;
                        mismatches.add(Mismatch { offset, found });
                        Ok(())
                    }
                    Err(failed) if failed.errno == Errno::NODATA => Ok(()),
                    failed => failed,
                }
            }
            read => read,
        };
        Fault::of(ends, mismatches)
    }

    fn open(&self, file: u64) -> Result<OwnedFd, CallError> {
        Ok(calls::open_to_read(self.root.fd(), &name_of(file))?)
    }

    /// Reads everything once, unmeasured and unverified: the measured step finds wrong data.
    pub(super) fn warm(&mut self, done: &Done<'_>) -> Result<(), TaskError> {
        for (file, bytes) in self.files() {
            let path = self.root.path().join(&*name_of(file).to_string_lossy());
            let failed = |failed: CallError| {
                let doing = format!("warm the caches with `{}`", path.display());
                TaskError::io(doing, failed.errno)
            };
            let open = self.open(file).map_err(failed)?;
            for block in self.blocks((file, bytes)) {
                done.add(block.bytes)?;
                match self.read(&open, block) {
                    Err(error) if error.errno == Errno::NODATA => break,
                    other => other.map_err(failed)?,
                };
            }
        }
        Ok(())
    }
}

impl Worker for ReadWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        for (file, bytes) in self.files() {
            recorder.set_file(file);
            if recorder.should_stop() {
                return Ok(());
            }
            let open = recorder.untimed(Op::Read, || self.open(file));
            for block in self.blocks((file, bytes)) {
                recorder.set_position(file, block.offset);
                let Some(began) = recorder.next(Op::Read, block.bytes) else {
                    return Ok(());
                };
                let (now, fault) = match &open {
                    Ok(open) => {
                        let read = self.read(open, block);
                        (recorder.now(), self.fault(open, block, read))
                    }
                    Err(failed) => (recorder.now(), Fault::from(*failed)),
                };
                if fault == Fault::default() {
                    recorder.end_at(now, Op::Read, began, block.bytes);
                    continue;
                }
                let path = self.root.path().join(&*name_of(file).to_string_lossy());
                fault.record(recorder, Op::Read, began, &path)?;
                let has_ended = fault.failed.map(|error| error.errno) == Some(Errno::NODATA);
                if open.is_err() || has_ended {
                    break;
                }
            }
            recorder.untimed(Op::Read, || drop(open));
        }
        Ok(())
    }
}
