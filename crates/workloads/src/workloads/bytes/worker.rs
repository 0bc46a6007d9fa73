//! The measured loop: one operation after the other through the file, or over and over until the time is over.

use super::expected::Expected;
use super::keys::{BytesMode, BytesOptions, Change};
use super::stream::Stream;
use crate::engine::author::*;
use std::hint::black_box;
use std::path::PathBuf;

pub(super) struct BytesWorker {
    pub options: BytesOptions,
    pub stream: Stream,
    /// What is written; what is read goes here too.
    pub data: WriteBuffer,
    /// Its number among all of the step's.
    pub file: u64,
    /// The generation of what is written and not checked: a rewrite makes another content than it finds.
    pub unchecked: u64,
    /// What is read is checked.
    pub expected: Option<Expected>,
    pub random: Random,
    /// For messages.
    pub path: PathBuf,
    pub whole: WholePasses,
}

impl Worker for BytesWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        self.stream.marker = recorder.marker();
        let (mut passes, whole) = (self.options.passes, self.whole.clone());
        passes.repeat(&whole, || match self.options.mode {
            BytesMode::Seek => self.seeks(recorder),
            _ => self.through(recorder),
        })
    }
}

impl BytesWorker {
    /// From the beginning of the file to its end.
    fn through(&mut self, recorder: &mut Recorder) -> Result<Pass, OpError> {
        let op = self.options.mode.op();
        let mut pass = Pass::Whole;
        let mut place = 0;
        // At the beginning the position is that of the last pass, and after an error it is unknown.
        let mut lost = true;
        while place < self.options.size {
            let bytes = self
                .options
                .operation_bytes()
                .min(self.options.size - place);
            let is_last = place + bytes == self.options.size;
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
                let writes = !matches!(self.options.mode, BytesMode::Getc | BytesMode::Fread);
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
        match self.options.mode {
            BytesMode::Putc | BytesMode::Fwrite | BytesMode::Frewrite => {
                let known = self.expected.as_ref().map(|it| it.generations.newest);
                let generation = known.unwrap_or(self.unchecked);
                self.data.written_as(generation, self.file, place, length);
            }
            BytesMode::Rewrite | BytesMode::Seek => {
                if let Some(expected) = &mut self.expected {
                    expected.renew(place, length);
                }
            }
            BytesMode::Getc | BytesMode::Fread => {}
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
        let op = self.options.mode.op();
        let reads = !self.options.mode.only_writes();
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
        failed: CallError,
    ) -> Result<(), OpError> {
        let at = failed.offset.unwrap_or(place);
        let fault = Fault::from(CallError::at(failed.errno, at));
        fault.record(recorder, self.options.mode.op(), began, &self.path)
    }

    fn operation(&mut self, length: usize) -> Result<(), CallError> {
        let Self {
            stream,
            data,
            expected,
            ..
        } = self;
        match self.options.mode {
            BytesMode::Putc => {
                for byte in data.current(length) {
                    stream.put(*byte)?;
                }
                stream.flush()
            }
            BytesMode::Getc if expected.is_some() => {
                for byte in data.current_mut(length) {
                    *byte = stream.take()?;
                }
                Ok(())
            }
            BytesMode::Getc => {
                let mut sum = 0_u8;
                for _ in 0..length {
                    sum ^= stream.take()?;
                }
                black_box(sum);
                Ok(())
            }
            BytesMode::Rewrite if self.options.change == Change::One => {
                let place = stream.position;
                let block = place / u64::try_from(length.max(1)).unwrap_or(1);
                let changed = usize::try_from(block).unwrap_or(0) % length.max(1);
                stream.rewrite_one(length, changed)
            }
            BytesMode::Rewrite => match expected {
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
            BytesMode::Fwrite | BytesMode::Frewrite => {
                for record in data.current(length).chunks(self.options.record) {
                    stream.write(record)?;
                }
                Ok(())
            }
            BytesMode::Fread => {
                for record in data.current_mut(length).chunks_mut(self.options.record) {
                    stream.read(record)?;
                }
                Ok(())
            }
            BytesMode::Seek => Ok(()),
        }
    }

    fn close_file(&mut self) -> Result<(), CallError> {
        self.stream.flush()?;
        match self.options.fsync {
            true => self.stream.sync(),
            false => Ok(()),
        }
    }

    /// Has the kernel have what operations have put into the buffer and counted, where no other one will.
    fn write_rest(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        if !self.options.mode.only_writes() {
            return Ok(());
        }
        let place = self.stream.position;
        let op = self.options.mode.op();
        let (began, written) = recorder.untimed_since(op, || self.stream.flush());
        match written {
            Ok(()) => Ok(()),
            Err(failed) => self.fail(recorder, began, place, failed),
        }
    }

    fn seeks(&mut self, recorder: &mut Recorder) -> Result<Pass, OpError> {
        let op = self.options.mode.op();
        let record = self.options.record_bytes();
        let places = self.options.size / record.max(1);
        let mut pass = Pass::Whole;
        for _ in 0..self.options.seeks {
            let place = self.random.below(places) * record;
            let rewrites = self.random.below(100) < self.options.rewrite_share.into();
            let bytes = if rewrites { 2 * record } else { record };
            if rewrites {
                self.make_ready(place, self.options.record);
            }
            let Some(began) = recorder.next(op, bytes) else {
                return Ok(Pass::Stopped);
            };
            match self.seek(place, rewrites) {
                Ok(()) => self.succeeded(recorder, began, (place, self.options.record), bytes)?,
                Err(failed) => {
                    pass = Pass::WithErrors;
                    self.fail(recorder, began, place, failed)?;
                }
            }
        }
        Ok(pass)
    }

    fn seek(&mut self, place: u64, rewrites: bool) -> Result<(), CallError> {
        let Self {
            stream,
            data,
            expected,
            ..
        } = self;
        let record = data.current_mut(self.options.record);
        stream.seek(place)?;
        stream.read_past(record, place)?;
        if rewrites {
            let new = match expected {
                Some(expected) => expected.fresh.current(self.options.record),
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
