//! The measured loop: one operation after the other through the file, or over and over until the time is over.

use super::expected::Expected;
use super::keys::{Mode, Plan};
use super::stream::Stream;
use crate::files::calls::Failed;
use crate::files::data::Data;
use crate::files::fault::Fault;
use crate::random::Random;
use crate::recorder::{Began, OpError, Recorder};
use crate::workload::Worker;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) struct BytesWorker {
    pub plan: Plan,
    pub stream: Stream,
    /// What is written; what is read goes here too.
    pub data: Data,
    /// Its number among all of the step's.
    pub file: u64,
    /// What is read is checked.
    pub expected: Option<Expected>,
    pub random: Random,
    /// For messages.
    pub path: PathBuf,
    /// A pass of its own was whole and without error.
    pub is_whole: bool,
    /// Counts the workers with such a pass: the task's data are then known.
    pub whole: Arc<AtomicU32>,
}

/// How a pass ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Whole,
    WithErrors,
    Stopped,
}

impl Worker for BytesWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        self.stream.marker = recorder.marker();
        loop {
            let pass = match self.plan.mode {
                Mode::Seek => self.seeks(recorder)?,
                _ => self.through(recorder)?,
            };
            if pass == Pass::Whole && !self.is_whole {
                self.is_whole = true;
                self.whole.fetch_add(1, Ordering::Release);
            }
            if pass == Pass::Stopped || !self.plan.passes.go_on() {
                return Ok(());
            }
        }
    }
}

impl BytesWorker {
    /// From the beginning of the file to its end.
    fn through(&mut self, recorder: &mut Recorder) -> Result<Pass, OpError> {
        let op = self.plan.mode.op();
        let mut pass = Pass::Whole;
        let mut place = 0;
        // At the beginning the position is that of the last pass, and after an error it is unknown.
        let mut lost = true;
        while place < self.plan.size {
            let bytes = self.plan.operation_bytes().min(self.plan.size - place);
            let is_last = place + bytes == self.plan.size;
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.make_ready(place, length);
            let sought = match lost {
                true => self.stream.seek(place),
                false => Ok(()),
            };
            let Some(began) = recorder.next(op, bytes) else {
                self.write_rest(recorder)?;
                return Ok(Pass::Stopped);
            };
            let done = sought.and_then(|()| self.operation(length)).and_then(|()| {
                let writes = !matches!(self.plan.mode, Mode::Getc | Mode::Fread);
                match is_last && writes {
                    true => self.close_file(),
                    false => Ok(()),
                }
            });
            lost = done.is_err();
            match done {
                Ok(()) => self.succeeded(recorder, began, (place, length), bytes)?,
                Err(failed) => {
                    pass = Pass::WithErrors;
                    self.fail(recorder, began, place, failed)?;
                }
            }
            place += bytes;
        }
        Ok(pass)
    }

    /// Has at hand what is written next.
    fn make_ready(&mut self, place: u64, length: usize) {
        match self.plan.mode {
            Mode::Putc | Mode::Fwrite => {
                let generation = self.expected.as_ref().map_or(0, |it| it.generations.newest);
                self.data.written_as(generation, self.file, place, length);
            }
            Mode::Rewrite | Mode::Seek => {
                if let Some(expected) = &mut self.expected {
                    expected.renew(place, length);
                }
            }
            Mode::Getc | Mode::Fread => {}
        }
    }

    /// Records an operation that came to its end now; what was read is checked after that.
    fn succeeded(
        &self,
        recorder: &mut Recorder,
        began: Began,
        (place, length): (u64, usize),
        bytes: u64,
    ) -> Result<(), OpError> {
        let op = self.plan.mode.op();
        let reads = !self.plan.mode.makes_file();
        let Some(expected) = self.expected.as_ref().filter(|_| reads) else {
            recorder.end(op, began, bytes);
            return Ok(());
        };
        let now = recorder.now();
        match Fault::found(expected.check(self.data.current(length), place)) {
            Ok(()) => recorder.end_at(now, op, began, bytes),
            Err(fault) => fault.record(recorder, op, began, &self.path)?,
        }
        Ok(())
    }

    fn fail(
        &self,
        recorder: &mut Recorder,
        began: Began,
        place: u64,
        failed: Failed,
    ) -> Result<(), OpError> {
        let at = failed.offset.unwrap_or(place);
        let fault = Fault::from(Failed::at(failed.errno, at));
        fault.record(recorder, self.plan.mode.op(), began, &self.path)
    }

    fn operation(&mut self, length: usize) -> Result<(), Failed> {
        let Self {
            stream,
            data,
            expected,
            ..
        } = self;
        match self.plan.mode {
            Mode::Putc => {
                for byte in data.current(length) {
                    stream.put(*byte)?;
                }
                stream.flush()
            }
            Mode::Getc if expected.is_some() => {
                for byte in data.current_mut(length) {
                    *byte = stream.take()?;
                }
                Ok(())
            }
            Mode::Getc => {
                let mut sum = 0_u8;
                for _ in 0..length {
                    sum ^= stream.take()?;
                }
                black_box(sum);
                Ok(())
            }
            Mode::Rewrite => match expected {
                None => stream.rewrite(length, |_, byte| byte ^ 0x55),
                Some(expected) => {
                    let (read, new) = (data.current_mut(length), expected.fresh.current(length));
                    stream.rewrite(length, |at, byte| {
                        if let Some(slot) = read.get_mut(at) {
                            *slot = byte;
                        }
                        new.get(at).copied().unwrap_or(byte)
                    })
                }
            },
            Mode::Fwrite => {
                for record in data.current(length).chunks(self.plan.record) {
                    stream.write(record)?;
                }
                Ok(())
            }
            Mode::Fread => {
                for record in data.current_mut(length).chunks_mut(self.plan.record) {
                    stream.read(record)?;
                }
                Ok(())
            }
            Mode::Seek => Ok(()),
        }
    }

    fn close_file(&mut self) -> Result<(), Failed> {
        self.stream.flush()?;
        match self.plan.fsync {
            true => self.stream.sync(),
            false => Ok(()),
        }
    }

    /// Has the kernel have what operations have put into the buffer and counted, where no other one will.
    fn write_rest(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        if !self.plan.mode.makes_file() {
            return Ok(());
        }
        let place = self.stream.position;
        let op = self.plan.mode.op();
        let (began, written) = recorder.on_the_way_since(op, || self.stream.flush());
        match written {
            Ok(()) => Ok(()),
            Err(failed) => self.fail(recorder, began, place, failed),
        }
    }

    fn seeks(&mut self, recorder: &mut Recorder) -> Result<Pass, OpError> {
        let op = self.plan.mode.op();
        let record = self.plan.record_bytes();
        let places = self.plan.size / record.max(1);
        let mut pass = Pass::Whole;
        for _ in 0..self.plan.seeks {
            let place = self.random.below(places) * record;
            let rewrites = self.random.below(100) < self.plan.rewrite_share.into();
            let bytes = if rewrites { 2 * record } else { record };
            if rewrites {
                self.make_ready(place, self.plan.record);
            }
            let Some(began) = recorder.next(op, bytes) else {
                return Ok(Pass::Stopped);
            };
            match self.seek(place, rewrites) {
                Ok(()) => self.succeeded(recorder, began, (place, self.plan.record), bytes)?,
                Err(failed) => {
                    pass = Pass::WithErrors;
                    self.fail(recorder, began, place, failed)?;
                }
            }
        }
        Ok(pass)
    }

    fn seek(&mut self, place: u64, rewrites: bool) -> Result<(), Failed> {
        let Self {
            stream,
            data,
            expected,
            ..
        } = self;
        let record = data.current_mut(self.plan.record);
        stream.seek(place)?;
        stream.read_past(record, place)?;
        if rewrites {
            let new = match expected {
                Some(expected) => expected.fresh.current(self.plan.record),
                None => {
                    if let Some(byte) = record.first_mut() {
                        *byte ^= 0x55;
                    }
                    &*record
                }
            };
            stream.seek(place)?;
            stream.write_past(new)?;
        }
        Ok(())
    }
}
