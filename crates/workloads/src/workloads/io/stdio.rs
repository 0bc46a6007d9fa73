//! The engine `stdio`: accesses a file through a small buffer, by bytes or records, and with random seeks, like
//! bonnie++ and iozone's fwrite and fread.
//!
//! The buffer and its calls are our own, one function call per byte; no C library is involved. An operation is one
//! buffer of bytes, or as many records as fill one, because two clock readings around a single byte would measure the
//! clock.

mod stream;

use super::job::IoJob;
use super::keys::RmwChange;
use super::sequence::NextIo;
use super::stdio_spec::{StdioAction, StdioSpec};
use super::worker::{Access, BlockMemory};
use crate::engine::author::*;
use rustix::fd::OwnedFd;
use stream::StdioStream;

/// A worker's file behind its buffer.
pub(super) struct Stdio {
    spec: StdioSpec,
    stream: StdioStream,
    /// File position of the next byte; `None`: unknown.
    at: Option<u64>,
    end_fsync: bool,
}

impl Stdio {
    pub(super) fn new(spec: StdioSpec, job: &IoJob, file: OwnedFd) -> Stdio {
        Stdio {
            spec,
            stream: StdioStream::new(file, spec.buffer),
            at: None,
            end_fsync: job.syncs_at_end(),
        }
    }

    /// Whether the action only writes through the buffer, which may hold unwritten bytes at the end.
    fn only_puts(&self) -> bool {
        matches!(self.spec.action, StdioAction::Putc | StdioAction::Fwrite)
    }
}

impl Access for Stdio {
    fn begin(&mut self, recorder: &Recorder) {
        self.stream.marker = recorder.marker();
    }

    fn op(&self, _next: NextIo) -> Op {
        self.spec.op()
    }

    fn bytes(&self, next: NextIo) -> u64 {
        match (self.spec.action, next.writes) {
            (StdioAction::Seek, true) => 2 * next.bytes,
            _ => next.bytes,
        }
    }

    fn reads(&self, _next: NextIo) -> bool {
        !self.only_puts()
    }

    fn carry_out(&mut self, next: NextIo, memory: &mut BlockMemory) -> Result<(), CallError> {
        let stream = &mut self.stream;
        if self.at != Some(next.offset) {
            stream.seek(next.offset)?;
        }
        self.at = None;
        let (new, read) = memory.both(next);
        match self.spec.action {
            StdioAction::Putc => {
                for byte in new {
                    stream.put(*byte)?;
                }
                stream.flush()?;
            }
            StdioAction::Getc => {
                for byte in read {
                    *byte = stream.take()?;
                }
            }
            StdioAction::Fwrite => {
                for record in new.chunks(self.spec.record) {
                    stream.write(record)?;
                }
            }
            StdioAction::Fread => {
                for record in read.chunks_mut(self.spec.record) {
                    stream.read(record)?;
                }
            }
            StdioAction::Rmw(RmwChange::Each) => stream.rewrite(new, read)?,
            StdioAction::Rmw(RmwChange::One) => stream.rewrite_one(new.len())?,
            StdioAction::Seek => {
                stream.read_past(read, next.offset)?;
                if next.writes {
                    stream.seek(next.offset)?;
                    stream.write_past(new)?;
                }
                // Seek before each place, even if the position is already there.
                return Ok(());
            }
        }
        self.at = Some(next.offset + next.bytes);
        Ok(())
    }

    fn end_op(&self) -> Option<Op> {
        (self.end_fsync || self.only_puts()).then(|| self.spec.op())
    }

    fn end(&mut self) -> Result<(), CallError> {
        if self.only_puts() {
            self.stream.flush()?;
        }
        match self.end_fsync {
            true => self.stream.sync(),
            false => Ok(()),
        }
    }
}
