//! The measured loop: issues an operation as soon as a slot is free.
//!
//! Content is generated before an operation's clock starts, and verified after it has ended; the library's callback
//! dates the end. However the load ends, the worker waits for operations in flight, at most for the session's timeout.
//! After a stop from outside it waits only briefly.

use super::sequence::{NextObjectOp, Sequence};
use super::{ObjectAction, ObjectsLoad};
use crate::engine::author::*;
use std::ffi::CStr;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest sleep before the next check of the stop flag and the schedule.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// Time that a stopped load waits for operations in flight before it abandons them.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Separates the random sequence of actions from that of objects.
const MIX: u64 = 0x006d_6978;

/// Builds the names of a worker's objects without allocating.
#[derive(Debug)]
pub(super) struct Names {
    text: Vec<u8>,
    prefix: usize,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        let mut text = prefix.as_bytes().to_vec();
        // Room for the digits of the largest number and the NUL.
        text.resize(prefix.len() + 21, 0);
        Names {
            text,
            prefix: prefix.len(),
        }
    }

    #[inline]
    pub(super) fn of(&mut self, number: u64) -> &CStr {
        if let Some(mut rest) = self.text.get_mut(self.prefix..) {
            // The buffer has room for every number.
            let _ = write!(rest, "{number}\0");
        }
        CStr::from_bytes_until_nul(&self.text).unwrap_or_default()
    }
}

/// What the worker does after it has filled the free slots.
enum ObjectFillResult {
    Full,
    /// Wait until the next operation is due.
    Until(MonoNanos),
    /// Start no more operations.
    Last,
}

/// An operation drawn from the mix.
#[derive(Debug, Clone, Copy)]
struct DrawnOp {
    next: NextObjectOp,
    action: ObjectAction,
}

pub(super) struct ObjectsWorker {
    issuer: Issuer,
    mix: Weighted<ObjectAction>,
    random: Random,
    names: Names,
    prefix: String,
    block: usize,
    data: WriteBuffer,
    /// Total bytes of the values that one `omap` sets.
    omap_bytes: usize,
    content: Content,
    /// [`ObjectsLoad::content_id`] of object 0.
    first_id: u64,
    sequence: Sequence,
    /// Drawn, but not yet due.
    waits: Option<DrawnOp>,
    slots: Box<[DrawnOp]>,
    /// Slots with nothing in flight.
    free: Vec<u16>,
    /// Number of the first failed operation.
    first_failed: u64,
    blocks: u64,
    objects: Option<u64>,
    whole: Arc<[AtomicU64]>,
    index: usize,
}

impl ObjectsWorker {
    pub(super) fn open(load: &ObjectsLoad, index: u32) -> Result<ObjectsWorker, TaskError> {
        let job = &load.job;
        let read_bytes = if job.reads() { job.block } else { 0 };
        let opened = Issuer::open(&load.session, job.depth, read_bytes, job.omap);
        let prefix = load.data_place.worker_prefix(index);
        let content = job.content();
        let omap_bytes = job.omap.value_bytes.saturating_mul(job.omap.keys as usize);
        let block_bytes = if job.mix.has(ObjectAction::Write) {
            job.block
        } else {
            0
        };
        let idle = DrawnOp {
            next: NextObjectOp {
                number: 0,
                object: 0,
                block: 0,
            },
            action: ObjectAction::Stat,
        };
        let sequence = load.sequence(index);
        Ok(ObjectsWorker {
            issuer: opened.map_err(|error| TaskError::io("allocate buffers", error))?,
            mix: job.mix.clone(),
            random: Random::of(&[job.seed, load.task_index.into(), index.into(), MIX]),
            names: Names::new(&prefix),
            prefix,
            block: job.block,
            data: WriteBuffer::of(content, block_bytes.max(omap_bytes)),
            omap_bytes,
            content,
            first_id: ObjectsLoad::content_id(load.data_task, index, 0),
            objects: sequence.objects(),
            sequence,
            waits: None,
            slots: vec![idle; job.depth.into()].into(),
            free: (0..job.depth).rev().collect(),
            first_failed: u64::MAX,
            blocks: job.blocks(),
            whole: Arc::clone(&load.whole),
            index: index as usize,
        })
    }

    /// Bytes counted per operation.
    fn bytes(&self, action: ObjectAction) -> u64 {
        match action {
            ObjectAction::Write | ObjectAction::Read => self.block as u64,
            ObjectAction::Omap => self.omap_bytes as u64,
            ObjectAction::Stat | ObjectAction::Delete => 0,
        }
    }

    /// Offset of an operation in its object.
    fn offset(&self, drawn: DrawnOp) -> u64 {
        match drawn.action.moves_a_block() {
            true => drawn.next.block * self.block as u64,
            false => 0,
        }
    }

    #[inline]
    fn draw(&mut self) -> Option<DrawnOp> {
        let next = self.sequence.next()?;
        let action = self.mix.draw(&mut self.random);
        Some(DrawnOp { next, action })
    }

    /// Fills the free slots with operations that are due.
    #[inline]
    fn fill(&mut self, recorder: &mut Recorder) -> Result<ObjectFillResult, OpError> {
        while let Some(slot) = self.free.last().copied() {
            if recorder.should_stop() {
                return Ok(ObjectFillResult::Last);
            }
            let Some(drawn) = self.waits.take().or_else(|| self.draw()) else {
                return Ok(ObjectFillResult::Last);
            };
            match recorder.turn(self.bytes(drawn.action)) {
                Turn::Now => self.issue(recorder, slot, drawn)?,
                turn => {
                    self.waits = Some(drawn);
                    return Ok(match turn {
                        Turn::At(due) => ObjectFillResult::Until(due),
                        _ => ObjectFillResult::Last,
                    });
                }
            }
        }
        Ok(ObjectFillResult::Full)
    }

    #[inline]
    fn issue(&mut self, recorder: &mut Recorder, slot: u16, drawn: DrawnOp) -> Result<(), OpError> {
        let DrawnOp { next, action } = drawn;
        let (bytes, offset) = (self.bytes(action), self.offset(drawn));
        let id = self.first_id ^ next.object;
        self.free.pop();
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            *entry = drawn;
        }
        let call = match action {
            ObjectAction::Write => {
                let data = self.data.written_as(0, id, offset, self.block);
                match self.blocks {
                    1 => ObjectCall::WriteFull { data },
                    _ => ObjectCall::Write { data, offset },
                }
            }
            ObjectAction::Read => ObjectCall::Read {
                bytes: self.block,
                offset,
            },
            ObjectAction::Stat => ObjectCall::Stat,
            ObjectAction::Omap => {
                let data = self.data.written_as(next.number, id, 0, self.omap_bytes);
                ObjectCall::Omap { data }
            }
            ObjectAction::Delete => ObjectCall::Remove,
        };
        let name = self.names.of(next.object);
        let now = recorder.now();
        recorder.submit(slot, action.op(), (next.object, offset), bytes, now);
        match self.issuer.issue(slot, name, call) {
            Ok(()) => Ok(()),
            Err(errno) => {
                let at = recorder.now();
                self.failed(recorder, at, slot, errno)
            }
        }
    }

    #[inline]
    fn ended(&mut self, recorder: &mut Recorder, ended: EndedOp) -> Result<(), OpError> {
        let EndedOp { slot, at, result } = ended;
        let action = self
            .in_slot(slot)
            .map_or(ObjectAction::Stat, |drawn| drawn.action);
        let reads = action == ObjectAction::Read;
        let Ok(moved) = usize::try_from(result) else {
            return self.failed(recorder, at, slot, -result);
        };
        if reads && moved < self.block {
            return self.failed(recorder, at, slot, libc::ENODATA);
        }
        if reads && self.content.verifies() {
            let wrong = self.verify(slot);
            if !wrong.is_empty() {
                let name = self.name(slot);
                self.free.push(slot);
                return recorder.complete_mismatch(slot, at, &name, &wrong);
            }
        }
        self.free.push(slot);
        recorder.complete(slot, at, self.bytes(action));
        Ok(())
    }

    fn in_slot(&self, slot: u16) -> Option<DrawnOp> {
        self.slots.get(usize::from(slot)).copied()
    }

    fn verify(&self, slot: u16) -> Mismatches {
        let mut wrong = Mismatches::default();
        if let Some(drawn) = self.in_slot(slot) {
            let block = self.issuer.buffer(slot, self.block);
            let id = self.first_id ^ drawn.next.object;
            let offset = self.offset(drawn);
            self.content
                .check(block, id, offset, &mut (0..=0), &mut wrong);
        }
        wrong
    }

    fn name(&self, slot: u16) -> String {
        let object = self.in_slot(slot).map_or(0, |drawn| drawn.next.object);
        format!("{}{object}", self.prefix)
    }

    #[cold]
    fn failed(
        &mut self,
        recorder: &mut Recorder,
        at: MonoNanos,
        slot: u16,
        errno: i32,
    ) -> Result<(), OpError> {
        self.free.push(slot);
        let drawn = self.in_slot(slot);
        let number = drawn.map_or(0, |drawn| drawn.next.number);
        self.first_failed = self.first_failed.min(number);
        if errno == libc::ECANCELED && recorder.is_stopped() {
            recorder.cancelled(slot, at);
            return Ok(());
        }
        let facts = ErrorFacts {
            errno,
            path: &self.name(slot),
            offset: drawn
                .filter(|drawn| self.bytes(drawn.action) > 0)
                .map(|drawn| self.offset(drawn)),
        };
        recorder.complete_error(slot, at, &facts)
    }

    /// Called when the worker has ended: records its objects without a gap.
    fn note_whole(&self) {
        let ended = self.sequence.issued() - u64::from(self.waits.is_some());
        let objects = ended.min(self.first_failed) / self.blocks.max(1);
        let objects = self.objects.map_or(objects, |all| objects.min(all));
        if let Some(whole) = self.whole.get(self.index) {
            whole.store(objects, Ordering::Relaxed);
        }
    }
}

impl Worker for ObjectsWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut outcome = Ok(());
        let mut stopped_at = None;
        loop {
            let filled = match outcome {
                Ok(()) => self.fill(recorder).unwrap_or_else(|error| {
                    outcome = Err(error);
                    ObjectFillResult::Last
                }),
                Err(_) => ObjectFillResult::Last,
            };
            let mut max_wait = MAX_SLEEP;
            match filled {
                ObjectFillResult::Last if self.issuer.in_flight() == 0 => break,
                ObjectFillResult::Until(due) => max_wait = max_wait.min(due.since(recorder.now())),
                ObjectFillResult::Last | ObjectFillResult::Full => {}
            }
            let mut has_ended = false;
            while let Some(ended) = self.issuer.reap() {
                has_ended = true;
                let ended = self.ended(recorder, ended);
                outcome = outcome.and(ended);
            }
            if has_ended {
                continue;
            }
            self.issuer.wait(max_wait);
            let now = recorder.now();
            recorder.advance_to(now);
            if recorder.is_stopped() {
                let since = *stopped_at.get_or_insert(now);
                if now.since(since) >= STOP_TIMEOUT {
                    self.issuer.cancel();
                }
            }
        }
        self.note_whole();
        outcome
    }
}
