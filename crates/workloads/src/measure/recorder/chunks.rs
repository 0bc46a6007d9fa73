//! Operations that move more than a chunk: the rate and the limit hold for each chunk, not for the whole operation.
//!
//! [`Recorder::next_in_chunks`] waits for the first chunk as for an operation; before each further one the worker calls
//! [`Recorder::next_chunk`]. Invariants: a chunk is not moved before its instant in the schedule and its slot within
//! the limit; the waits in between are no part of the service time, and those for the schedule no part of the response
//! time; a chunk that would have to wait beyond the end of the runtime is not moved, and its operation is cut off.

use super::{Began, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use crate::measure::pacing::{RateLimit, Schedule, WaitEnd, WaitMethod};
use rustix::io::Errno;
use std::time::Duration;

/// The chunks of the operation in flight.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Bytes that rate and limit let through at once; `u64::MAX` if operations are not divided.
    max_chunk: u64,
    /// Bytes of the operation's largest chunk: these, or one of its system calls if that moves more.
    chunk: u64,
    /// The schedule has an instant for each chunk, not only for each operation.
    schedule_divides: bool,
    /// Bytes that the operation is expected to move.
    expected: u64,
    /// Bytes of the operation that may be moved by now.
    allowed: u64,
    for_schedule: Duration,
    for_limit: Duration,
    is_cut: bool,
}

impl Chunks {
    pub(super) fn new(schedule: Option<&Schedule>, limit: Option<&RateLimit>) -> Chunks {
        let of_schedule = schedule.and_then(Schedule::chunk_bytes);
        let of_limit = limit.map(RateLimit::chunk_bytes);
        Chunks {
            max_chunk: of_schedule
                .into_iter()
                .chain(of_limit)
                .min()
                .unwrap_or(u64::MAX),
            chunk: u64::MAX,
            schedule_divides: of_schedule.is_some(),
            expected: 0,
            allowed: 0,
            for_schedule: Duration::ZERO,
            for_limit: Duration::ZERO,
            is_cut: false,
        }
    }

    /// Bytes of the first chunk of the next operation, which moves `bytes` in system calls of up to `call` bytes.
    fn first(&mut self, bytes: u64, call: usize) -> u64 {
        self.chunk = self.max_chunk.max(u64::try_from(call).unwrap_or(u64::MAX));
        bytes.min(self.chunk)
    }

    /// An operation has begun that is expected to move `expected` bytes, of which it may move `allowed` at once.
    pub(super) fn begin(&mut self, expected: u64, allowed: u64) {
        (self.expected, self.allowed) = (expected, allowed);
        (self.for_schedule, self.for_limit) = (Duration::ZERO, Duration::ZERO);
    }

    /// Bytes that the schedule counts for an operation of `bytes` when its first chunk begins.
    pub(super) fn scheduled(&self, bytes: u64, first: u64) -> u64 {
        match self.schedule_divides {
            true => first,
            false => bytes,
        }
    }
}

impl Recorder {
    /// As [`Recorder::next`], for an operation that calls [`Recorder::next_chunk`] before each chunk. A system call of
    /// up to `call` bytes is not divided, because its size is part of the plan; 0: calls may have any size.
    #[inline(always)]
    pub fn next_in_chunks(&mut self, op: Op, bytes: u64, call: usize) -> Option<Began> {
        if self.waits {
            let first = self.chunks.first(bytes, call);
            return self.next_waited(op, bytes, first);
        }
        self.next(op, bytes)
    }

    /// Reports that the operation in flight has moved `moved` bytes, as [`Recorder::reached`], and waits until the rate
    /// and the limit let more through. Returns how many of `wanted` bytes may be moved now: at least one. `wanted` may
    /// go beyond the operation's end.
    ///
    /// # Errors
    /// CANCELED if the load has to end before that; see [`Recorder::is_cut_off`].
    #[inline]
    pub fn next_chunk(
        &mut self,
        op: Op,
        began: Began,
        position: (u64, u64),
        moved: u64,
        wanted: usize,
    ) -> Result<usize, Errno> {
        self.reached(op, began, position, moved);
        match self.waits {
            true => self.wait_for_chunk(op, began, moved, wanted),
            false => Ok(wanted),
        }
    }

    /// Whether the last operation was ended by [`Recorder::next_chunk`], because the load had to end. It counts neither
    /// as done nor as failed: use [`Recorder::idle`].
    pub fn is_cut_off(&self) -> bool {
        self.chunks.is_cut
    }

    #[inline(never)]
    fn wait_for_chunk(
        &mut self,
        op: Op,
        began: Began,
        moved: u64,
        wanted: usize,
    ) -> Result<usize, Errno> {
        let Chunks {
            chunk,
            expected,
            allowed,
            ..
        } = self.chunks;
        let left = expected.saturating_sub(moved);
        // The operation moves more than was expected: a file that has grown.
        let owed = moved.saturating_sub(allowed);
        let wanted_bytes = u64::try_from(wanted).unwrap_or(u64::MAX);
        if owed > 0 || (left > 0 && moved >= allowed) {
            let bytes = owed + left.min(chunk).min(wanted_bytes);
            // Chunks may be smaller than what `reached` counts at once.
            self.credit_at(op, began, moved);
            // A worker that waits does not hang.
            self.shared.hide();
            let waited = self.wait_between(op, began, bytes);
            self.shared.show(op, began.at);
            self.chunks.is_cut = waited.is_none();
            if waited.is_none() {
                // Its age would be that of the rate, not of the target.
                self.ledger.get().issued = None;
            }
            waited.ok_or(Errno::CANCELED)?;
            self.chunks.allowed += bytes;
        }
        let free = self.chunks.allowed.saturating_sub(moved);
        match left > 0 && free <= left {
            true => Ok(wanted.min(usize::try_from(free).unwrap_or(usize::MAX))),
            false => Ok(wanted),
        }
    }

    /// Waits for the instant and the slot of a chunk of the operation in flight.
    fn wait_between(&mut self, op: Op, began: Began, bytes: u64) -> Option<()> {
        if self.chunks.schedule_divides {
            let taken = self
                .ledger
                .get()
                .pacer
                .as_mut()
                .map(|limit| limit.take_chunk(bytes));
            let (due, wait) = taken?;
            let waited = self.wait_within((op, began), due, wait)?;
            self.chunks.for_schedule += waited;
            if let Some((_, due)) = &mut self.ledger.get().issued {
                *due = due.saturating_add(waited);
            }
        }
        if let Some(limit) = &self.limit {
            let from = limit.take(bytes, MonoNanos::now());
            let wait = (WaitMethod::SLEEPING, Duration::ZERO);
            let waited = self.wait_within((op, began), from, wait)?;
            self.chunks.for_limit += waited;
        }
        Some(())
    }

    /// Waits for `due` within an operation, and returns how long; `None` if the load has to end before it.
    fn wait_within(
        &mut self,
        (op, began): (Op, Began),
        due: MonoNanos,
        (waiting, mean_gap): (WaitMethod, Duration),
    ) -> Option<Duration> {
        let from = self.now();
        let mut now = from;
        while now < due {
            if now >= self.until || self.is_stopped() {
                self.last = now;
                return None;
            }
            now = match waiting.wait(due.min(self.until), mean_gap) {
                WaitEnd::Due(now) | WaitEnd::Poll(now) => now,
            };
            if now >= self.boundary {
                self.roll(Some((op, began)), now);
            }
        }
        Some(now.since(from))
    }

    /// The begin of the operation that has just ended, moved later by its waits.
    #[inline(never)]
    pub(super) fn without_waits(&mut self, began: Began) -> Began {
        let for_schedule = std::mem::take(&mut self.chunks.for_schedule);
        let for_limit = std::mem::take(&mut self.chunks.for_limit);
        Began {
            at: began.at.saturating_add(for_schedule + for_limit),
            intended: began.intended.saturating_add(for_schedule),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::super::{Consumer, Settings, Turn, pair};
    use super::*;
    use crate::measure::pacing::{ArrivalProcess, Pace, Per, RateUnit, WorkerShare};
    use crate::measure::timing::Timing;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;
    const HERE: (u64, u64) = (0, 0);

    /// A recorder within a limit, with a runtime.
    fn limited(limit: &Arc<RateLimit>, runtime: Option<Duration>) -> (Recorder, Consumer) {
        let (mut recorder, consumer) = pair(Settings {
            limit: Some(Arc::clone(limit)),
            timing: Timing {
                ramp: None,
                runtime,
            },
            ..Settings::of(&[Op::Write])
        });
        recorder.set_start(MonoNanos::now());
        (recorder, consumer)
    }

    fn per_byte(per_second: u64, process: ArrivalProcess) -> Schedule {
        let pace = Pace {
            unit: RateUnit::Bytes,
            per_second,
            per: Per::Task,
            process,
        };
        let share = WorkerShare {
            worker: 0,
            workers: 2,
            task: 0,
            tasks: 1,
        };
        Schedule::new(&pace, share)
    }

    #[test]
    fn the_slower_of_rate_and_limit_divides_operations() {
        let max_chunk = |schedule: Option<&Schedule>, limit| Chunks::new(schedule, limit).max_chunk;
        let limit = RateLimit::new(64 * MIB);
        let linear = per_byte(64 * MIB, ArrivalProcess::Linear);
        assert_eq!(max_chunk(None, None), u64::MAX);
        assert_eq!(max_chunk(None, Some(&limit)), 4 * MIB);
        // Half of the rate is this worker's.
        assert_eq!(max_chunk(Some(&linear), Some(&limit)), 2 * MIB);
        let users = per_byte(64 * MIB, ArrivalProcess::Poisson);
        assert_eq!(max_chunk(Some(&users), None), u64::MAX);
        assert_eq!(max_chunk(Some(&users), Some(&limit)), 4 * MIB);
    }

    #[test]
    fn each_chunk_waits_for_its_slot_and_the_waits_are_not_service() {
        let (mut recorder, consumer) = limited(&Arc::new(RateLimit::new(32 * MIB)), None);
        let before = MonoNanos::now();
        let began = recorder.next_in_chunks(Op::Write, 8 * MIB, 0).unwrap();
        let (mut moved, mut chunks) = (0, Vec::new());
        while moved < 8 * MIB {
            let chunk = recorder
                .next_chunk(Op::Write, began, HERE, moved, 5 << 20)
                .unwrap();
            assert_eq!(consumer.in_flight().map(|it| it.since), Some(began.at));
            chunks.push(chunk);
            moved += chunk as u64;
        }
        // The end of the file is asked for at once.
        let at_the_end = recorder.next_chunk(Op::Write, began, HERE, moved, 7);
        assert_eq!(at_the_end, Ok(7));
        assert_eq!(chunks, [2 << 20; 4]);
        let ended = MonoNanos::now();
        // Three chunks after the first one, less the credit of 10 ms.
        assert!(ended.since(before) >= Duration::from_millis(3 * 62 - 10));
        let waited = recorder.chunks.for_limit;
        recorder.end_at(ended, Op::Write, began, moved);
        recorder.finish();
        let mut service = Vec::new();
        consumer.take(&mut |buffer| service.push(buffer.series.first().unwrap().service.sum_ns()));
        let expected = (ended.since(began.at) - waited).as_nanos() as f64;
        assert_eq!(service, [expected]);
    }

    #[test]
    fn a_call_of_the_plan_s_size_is_not_divided() {
        let (mut recorder, _consumer) = limited(&Arc::new(RateLimit::new(64 * MIB)), None);
        let began = recorder
            .next_in_chunks(Op::Write, 20 * MIB, 8 << 20)
            .unwrap();
        for (moved, chunk) in [(0, 8 << 20), (8 * MIB, 8 << 20), (16 * MIB, 4 << 20)] {
            let wanted = chunk;
            let allowed = recorder.next_chunk(Op::Write, began, HERE, moved, wanted);
            assert_eq!(allowed, Ok(chunk));
        }
    }

    #[test]
    fn more_than_was_expected_is_paid_for_before_the_next_chunk() {
        let (mut recorder, _consumer) = limited(&Arc::new(RateLimit::new(32 * MIB)), None);
        let before = MonoNanos::now();
        let began = recorder.next_in_chunks(Op::Write, MIB, 0).unwrap();
        for grown in [MIB, 3 * MIB, 5 * MIB] {
            recorder
                .next_chunk(Op::Write, began, HERE, grown, 1 << 20)
                .unwrap();
        }
        // Slots of 1, 2 and 2 MiB: the last one begins after the first two.
        let took = MonoNanos::now().since(before);
        assert!(
            took >= Duration::from_millis(3 * 1000 / 32 - 10),
            "{took:?}"
        );
    }

    #[test]
    fn a_chunk_that_would_wait_beyond_the_end_or_a_stop_cuts_the_operation_off() {
        for is_stopped in [false, true] {
            let runtime = match is_stopped {
                true => None,
                false => Some(Duration::from_millis(30)),
            };
            let (mut recorder, consumer) = limited(&Arc::new(RateLimit::new(64 << 10)), runtime);
            let began = recorder.next_in_chunks(Op::Write, MIB, 0).unwrap();
            let first = recorder.next_chunk(Op::Write, began, HERE, 0, 1 << 20);
            assert_eq!(first, Ok(4096));
            assert!(!recorder.is_cut_off());
            if is_stopped {
                recorder.stop.set();
            }
            let cut = (1..100).find_map(|chunk| {
                recorder
                    .next_chunk(Op::Write, began, HERE, chunk * 4096, 1 << 20)
                    .err()
            });
            assert_eq!(cut, Some(Errno::CANCELED));
            assert!(recorder.is_cut_off() && recorder.should_stop());
            recorder.idle();
            assert_eq!(consumer.in_flight(), None);
        }
    }

    #[test]
    fn a_schedule_counts_an_operation_that_failed_early_as_a_whole_one() {
        let (mut recorder, _consumer) = pair(Settings {
            schedule: Some((per_byte(64 * MIB, ArrivalProcess::Linear), 1)),
            ..Settings::of(&[Op::Write])
        });
        let start = MonoNanos::now();
        recorder.set_start(start);
        let began = recorder.next_in_chunks(Op::Write, 4 * MIB, 0).unwrap();
        recorder.count_failed(MonoNanos::now(), Op::Write, began);
        let next = recorder.next_in_chunks(Op::Write, 4 * MIB, 0).unwrap();
        assert_eq!(
            next.intended.since(start),
            Duration::from_millis(125),
            "4 MiB at half of 64 MiB/s"
        );
    }

    /// Workers that ask at the same time may not all submit at once.
    #[test]
    fn engines_with_many_in_flight_get_consecutive_slots() {
        let limit = Arc::new(RateLimit::new(64 * MIB));
        let mut workers: Vec<_> = (0..64).map(|_| limited(&limit, None)).collect();
        let turns: Vec<Turn> = workers.iter_mut().map(|(it, _)| it.turn(MIB)).collect();
        let mut last = MonoNanos(0);
        let mut now = 0;
        for turn in &turns {
            match turn {
                Turn::Now => now += 1,
                Turn::At(at) => {
                    let gap = at.since(last);
                    assert!(
                        last.0 == 0 || gap >= Duration::from_nanos(15_625_000),
                        "{gap:?}"
                    );
                    last = *at;
                }
                Turn::Over => panic!("the load has no end"),
            }
        }
        // One, and what a thread that lost its CPU in between is owed.
        assert!(now < 32, "{now} of 64 may start at once");
        // A slot that was given is kept until the operation is submitted, and no other one is taken then.
        let (recorder, _consumer) = workers.last_mut().unwrap();
        assert_eq!(Some(&recorder.turn(MIB)), turns.last());
        let next = limit.next();
        recorder.take_instant(MIB, last);
        assert_eq!(limit.next(), next);
    }
}
