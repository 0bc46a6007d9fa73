//! Progress within an operation: bytes count in the period in which they are moved, not in which the operation ends.
//!
//! Operations and latencies count at the end. Invariant: a successful operation counts its bytes exactly once, however
//! often it reported. An operation that moves less than [`GRAIN_BYTES`] reads no clock here.

use super::{Began, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;

/// One clock reading per this many bytes: at 1 MiB/s, sixteen times a second.
const GRAIN_BYTES: u64 = 64 << 10;

/// Bytes of the operation in flight that are already counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Credit {
    bytes: u64,
    /// When bytes were last counted; 0: not yet.
    at: MonoNanos,
}

impl Credit {
    /// The part of `bytes` that is not counted yet. Resets for the next operation.
    #[inline(always)]
    pub(super) fn take_rest(&mut self, bytes: u64) -> u64 {
        let rest = bytes.saturating_sub(self.bytes);
        self.bytes = 0;
        rest
    }
}

impl Recorder {
    /// The operation in flight has moved `moved` bytes in all, and continues at `offset` of `file`. Call it between two
    /// chunks of an operation that can outlast a period. Hang detection uses it too: it distinguishes slow from
    /// hanging.
    #[inline]
    pub fn reached(&mut self, op: Op, began: Began, (file, offset): (u64, u64), moved: u64) {
        self.set_position(file, offset);
        if moved.saturating_sub(self.credit.bytes) >= GRAIN_BYTES {
            self.credit_at(op, began, moved);
        }
    }

    /// Counts the bytes moved so far.
    #[inline(never)]
    pub(super) fn credit_at(&mut self, op: Op, began: Began, moved: u64) {
        let now = self.now();
        self.credit_to(now, op, began, moved);
    }

    pub(super) fn credit_to(&mut self, now: MonoNanos, op: Op, began: Began, moved: u64) {
        if now >= self.boundary {
            self.roll(Some((op, began)), now);
        }
        let more = moved.saturating_sub(self.credit.bytes);
        self.credit.bytes = moved.max(self.credit.bytes);
        self.credit.at = now;
        self.counts(op, |series| series.bytes += more);
    }

    /// Changes the buffer before an operation that succeeded at `now` is counted. When its bytes were moved is unknown
    /// if it reported nothing for a whole period before its end: in one long call, or in a flush at its end.
    #[cold]
    #[inline(never)]
    pub(super) fn roll_ended(&mut self, op: Op, began: Began, now: MonoNanos, bytes: u64) {
        self.roll(Some((op, began)), now);
        let signed = match self.credit.bytes {
            0 => began.at,
            _ => self.credit.at.max(began.at),
        };
        if now.nanos_since(signed) >= self.period_ns {
            self.counts(op, |series| series.undated_bytes += bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Consumer;
    use super::super::tests::recorder;
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = GRAIN_BYTES;

    /// For writes: index, operations, bytes, undated bytes and in flight.
    fn writes(consumer: &Consumer) -> Vec<(u64, u64, u64, u64, u32)> {
        let mut seen = Vec::new();
        consumer.take(&mut |buffer| {
            let series = buffer.series.iter().find(|it| it.op == Op::Write).unwrap();
            seen.push((
                buffer.index,
                series.ops(),
                series.bytes,
                series.undated_bytes,
                series.in_flight,
            ));
        });
        seen
    }

    #[test]
    fn bytes_count_when_they_are_moved_and_the_operation_when_it_ends() {
        let (mut recorder, consumer) = recorder(0);
        let began = Began::at(MonoNanos(100));
        for (now, moved) in [(400, BLOCK), (900, 2 * BLOCK), (1500, 4 * BLOCK)] {
            recorder.credit_to(MonoNanos(now), Op::Write, began, moved);
        }
        recorder.end_at(MonoNanos(2100), Op::Write, began, 5 * BLOCK);
        recorder.record(Op::Write, 2100, 2200);
        recorder.finish();
        assert_eq!(
            writes(&consumer),
            [
                (0, 0, 2 * BLOCK, 0, 1),
                (1, 0, 2 * BLOCK, 0, 1),
                (2, 2, BLOCK + 10, 0, 0)
            ]
        );
    }

    #[test]
    fn an_operation_that_was_silent_for_a_period_before_its_end_says_that_its_bytes_have_no_date() {
        let (mut recorder, consumer) = recorder(0);
        let began = Began::at(MonoNanos(0));
        // In one call; then with a flush at the end; then with chunks until the end.
        recorder.end_at(MonoNanos(1500), Op::Write, began, 7);
        assert_eq!(writes(&consumer), [(0, 0, 0, 0, 1)]);
        let began = Began::at(MonoNanos(1500));
        recorder.credit_to(MonoNanos(1600), Op::Write, began, BLOCK);
        recorder.end_at(MonoNanos(2700), Op::Write, began, BLOCK);
        assert_eq!(writes(&consumer), [(1, 1, 7 + BLOCK, 7, 1)]);
        let began = Began::at(MonoNanos(2700));
        recorder.credit_to(MonoNanos(3900), Op::Write, began, BLOCK);
        recorder.end_at(MonoNanos(4100), Op::Write, began, BLOCK + 1);
        recorder.finish();
        assert_eq!(
            writes(&consumer),
            [(2, 1, 0, BLOCK, 1), (3, 0, BLOCK, 0, 1), (4, 1, 1, 0, 0)]
        );
    }

    #[test]
    fn what_failed_or_was_cut_off_counts_as_far_as_it_reported_and_owes_nothing() {
        let (mut recorder, consumer) = recorder(0);
        let began = Began::at(MonoNanos(0));
        recorder.credit_to(MonoNanos(10), Op::Write, began, BLOCK);
        recorder.count_failed(MonoNanos(20), Op::Write, began);
        recorder.credit_to(MonoNanos(30), Op::Write, began, 2 * BLOCK);
        recorder.idle();
        recorder.record(Op::Write, 40, 50);
        recorder.finish();
        assert_eq!(writes(&consumer), [(0, 1, 3 * BLOCK + 10, 0, 0)]);
    }

    #[test]
    fn a_small_operation_reads_no_clock() {
        let (mut recorder, consumer) = recorder(0);
        let began = Began::at(MonoNanos(0));
        recorder.reached(Op::Write, began, (3, 4096), GRAIN_BYTES - 1);
        assert_eq!(recorder.credit.bytes, 0);
        recorder.end_at(MonoNanos(10), Op::Write, began, GRAIN_BYTES);
        recorder.finish();
        assert_eq!(writes(&consumer), [(0, 1, GRAIN_BYTES, 0, 0)]);
    }

    proptest! {
        #[test]
        fn every_byte_counts_once(
            operations in proptest::collection::vec(
                (proptest::collection::vec((1_u64..700, 1_u64..(1 << 20)), 0..6), 1_u64..900),
                1..20,
            ),
        ) {
            let (mut recorder, consumer) = recorder(0);
            let (mut now, mut total, mut counted) = (0, 0, (0, 0));
            for (chunks, tail) in operations.clone() {
                let (began, mut moved) = (Began::at(MonoNanos(now)), 0);
                for (lasted, bytes) in chunks {
                    now += lasted;
                    moved += bytes;
                    recorder.credit_to(MonoNanos(now), Op::Write, began, moved);
                }
                now += tail;
                recorder.end_at(MonoNanos(now), Op::Write, began, moved + 1);
                total += moved + 1;
                for (_, ops, bytes, ..) in writes(&consumer) {
                    counted = (counted.0 + ops, counted.1 + bytes);
                }
            }
            recorder.finish();
            for (_, ops, bytes, ..) in writes(&consumer) {
                counted = (counted.0 + ops, counted.1 + bytes);
            }
            prop_assert_eq!(counted, (operations.len() as u64, total));
        }
    }
}
