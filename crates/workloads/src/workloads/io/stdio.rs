//! The engine `stdio`: a file through a small buffer, a byte or a record at a time, and random seeks, as bonnie++ and
//! iozone's fwrite and fread do it.
//!
//! The buffer and its calls are our own, one function call per byte, and no C library has a part in it. An operation is
//! a buffer's worth of bytes, or as many records as fill one: two clock readings around a single byte would measure the
//! clock.

mod stream;

use super::job::Job;
use super::keys::Change;
use super::sequence::Next;
use super::stdio_spec::{Action, StdioSpec};
use super::worker::{Access, BlockMemory};
use crate::engine::author::*;
use rustix::fd::OwnedFd;
use stream::Stream;

/// A worker's file behind its buffer.
pub(super) struct Stdio {
    spec: StdioSpec,
    stream: Stream,
    /// Where the next byte would be put or taken; `None`: not known.
    at: Option<u64>,
    end_fsync: bool,
}

impl Stdio {
    pub(super) fn new(spec: StdioSpec, job: &Job, file: OwnedFd) -> Stdio {
        Stdio {
            spec,
            stream: Stream::new(file, spec.buffer),
            at: None,
            end_fsync: job.syncs_at_end(),
        }
    }

    /// Whether it only puts bytes into the buffer, of which some may not be written at the end.
    fn only_puts(&self) -> bool {
        matches!(self.spec.action, Action::Putc | Action::Fwrite)
    }
}

impl Access for Stdio {
    fn begin(&mut self, recorder: &Recorder) {
        self.stream.marker = recorder.marker();
    }

    fn op(&self, _next: Next) -> Op {
        self.spec.op()
    }

    fn bytes(&self, next: Next) -> u64 {
        match (self.spec.action, next.writes) {
            (Action::Seek, true) => 2 * next.bytes,
            _ => next.bytes,
        }
    }

    fn reads(&self, _next: Next) -> bool {
        !self.only_puts()
    }

    fn carry_out(&mut self, next: Next, memory: &mut BlockMemory) -> Result<(), CallError> {
        let stream = &mut self.stream;
        if self.at != Some(next.offset) {
            stream.seek(next.offset)?;
        }
        self.at = None;
        let (new, read) = memory.both(next);
        match self.spec.action {
            Action::Putc => {
                for byte in new {
                    stream.put(*byte)?;
                }
                stream.flush()?;
            }
            Action::Getc => {
                for byte in read {
                    *byte = stream.take()?;
                }
            }
            Action::Fwrite => {
                for record in new.chunks(self.spec.record) {
                    stream.write(record)?;
                }
            }
            Action::Fread => {
                for record in read.chunks_mut(self.spec.record) {
                    stream.read(record)?;
                }
            }
            Action::Rmw(Change::Each) => stream.rewrite(new, read)?,
            Action::Rmw(Change::One) => stream.rewrite_one(new.len())?,
            Action::Seek => {
                stream.read_past(read, next.offset)?;
                if next.writes {
                    stream.seek(next.offset)?;
                    stream.write_past(new)?;
                }
                // Each place is sought, also one behind the last.
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
