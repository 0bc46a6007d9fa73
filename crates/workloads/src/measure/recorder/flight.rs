//! The operations of an engine that keeps several in flight.
//!
//! Each has a slot, a number below the depth. They are linked in the order of submission, so that the oldest one, which
//! is shown to others, is known at once in whatever order they complete. Nothing is allocated after the start.

use super::buffer::NO_POSITION;
use super::{Began, ErrorFacts, OpError, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::mismatch::Mismatches;
use crate::measure::op::Op;

/// No slot.
const NONE: u16 = u16::MAX;

#[derive(Debug, Clone, Copy)]
struct FlightSlot {
    op: Op,
    began: Began,
    /// File and offset.
    position: (u64, u64),
    older: u16,
    younger: u16,
}

/// The operations in flight, in the order of submission.
#[derive(Debug)]
pub(super) struct Flight {
    slots: Box<[FlightSlot]>,
    oldest: u16,
    youngest: u16,
}

impl Flight {
    pub(super) fn new(depth: u16) -> Flight {
        let empty = FlightSlot {
            op: Op::Null,
            began: Began::at(MonoNanos(0)),
            position: (NO_POSITION, NO_POSITION),
            older: NONE,
            younger: NONE,
        };
        Flight {
            slots: vec![empty; usize::from(depth)].into(),
            oldest: NONE,
            youngest: NONE,
        }
    }

    fn get(&self, slot: u16) -> Option<&FlightSlot> {
        self.slots.get(usize::from(slot))
    }

    #[inline]
    fn add(&mut self, slot: u16, op: Op, began: Began, position: (u64, u64)) {
        let older = self.youngest;
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else {
            slot_out_of_range(slot)
        };
        *entry = FlightSlot {
            op,
            began,
            position,
            older,
            younger: NONE,
        };
        self.youngest = slot;
        match self.slots.get_mut(usize::from(older)) {
            Some(older) => older.younger = slot,
            None => self.oldest = slot,
        }
    }

    #[inline]
    fn remove(&mut self, slot: u16) -> FlightSlot {
        let Some(entry) = self.get(slot).copied() else {
            slot_out_of_range(slot)
        };
        match self.slots.get_mut(usize::from(entry.older)) {
            Some(older) => older.younger = entry.younger,
            None => self.oldest = entry.younger,
        }
        match self.slots.get_mut(usize::from(entry.younger)) {
            Some(younger) => younger.older = entry.older,
            None => self.youngest = entry.older,
        }
        entry
    }

    fn is_empty(&self) -> bool {
        self.oldest == NONE
    }

    /// All operations, oldest first.
    pub(super) fn each(&self) -> impl Iterator<Item = (Op, Began)> + '_ {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let slot = self.get(next)?;
            next = slot.younger;
            Some((slot.op, slot.began))
        })
    }
}

#[cold]
#[inline(never)]
fn slot_out_of_range(slot: u16) -> ! {
    panic!("slot {slot} is beyond the depth that the load has announced")
}

impl Recorder {
    /// Submits the operation of `slot` at `now`, whether it is due or not, and takes its instant from the schedule.
    /// `position` is file and offset, as in [`Recorder::set_position`].
    #[inline]
    pub fn submit(&mut self, slot: u16, op: Op, position: (u64, u64), bytes: u64, now: MonoNanos) {
        let intended = self.take_instant(bytes, now).unwrap_or(now);
        let began = Began { at: now, intended };
        let mut ledger = self.ledger.get();
        let was_idle = ledger.flight.is_empty();
        ledger.flight.add(slot, op, began, position);
        drop(ledger);
        self.shared.submitted(now);
        if was_idle {
            let (file, offset) = position;
            self.shared.set_position(file, offset);
            self.shared.show(op, now);
        }
    }

    /// Records that the operation of `slot` completed successfully at `now`.
    #[inline]
    pub fn complete(&mut self, slot: u16, now: MonoNanos, bytes: u64) {
        let (op, began) = self.remove(slot);
        self.count(now, op, began, bytes);
    }

    /// Records that the operation of `slot` failed at `now`; as [`Recorder::error`].
    #[cold]
    #[inline(never)]
    pub fn complete_error(
        &mut self,
        slot: u16,
        now: MonoNanos,
        facts: &ErrorFacts<'_>,
    ) -> Result<(), OpError> {
        let op = self.complete_failed(slot, now);
        let mut ledger = self.ledger.get();
        ledger.errors.add(op, now, self.streak, facts)?;
        drop(ledger);
        self.back_off();
        Ok(())
    }

    /// Records that the operation of `slot` completed at `now` but read wrong data.
    #[cold]
    #[inline(never)]
    pub fn complete_mismatch(
        &mut self,
        slot: u16,
        now: MonoNanos,
        path: &str,
        wrong: &Mismatches,
    ) -> Result<(), OpError> {
        let op = self.complete_failed(slot, now);
        self.add_mismatches(op, path, wrong)
    }

    fn complete_failed(&mut self, slot: u16, now: MonoNanos) -> Op {
        let (op, began) = self.remove(slot);
        self.count_failed(now, op, began);
        op
    }

    /// Drops the operation of `slot`, which is recorded neither as done nor as failed.
    pub fn withdraw(&mut self, slot: u16) {
        self.remove(slot);
    }

    /// Drops the operation of `slot`, which a stop has cancelled. If it had a due instant, its age until `now` counts
    /// in the response times.
    pub fn cancelled(&mut self, slot: u16, now: MonoNanos) {
        let (op, began) = self.remove(slot);
        self.record_age(op, began.intended, now);
    }

    /// Advances the clock to `now` without a completion.
    pub fn advance_to(&mut self, now: MonoNanos) {
        if now >= self.boundary {
            self.roll(None, now);
        }
        self.last = now;
    }

    /// Removes the operation of `slot`, and shows the oldest one that remains.
    #[inline]
    fn remove(&mut self, slot: u16) -> (Op, Began) {
        let mut ledger = self.ledger.get();
        let FlightSlot { op, began, .. } = ledger.flight.remove(slot);
        match ledger.flight.get(ledger.flight.oldest) {
            Some(slot) => {
                let (file, offset) = slot.position;
                self.shared.set_position(file, offset);
                self.shared.show(slot.op, slot.began.at);
            }
            None => self.shared.hide(),
        }
        (op, began)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Settings, pair};
    use super::*;
    use crate::measure::recorder::InFlightOp;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn the_order_of_issue_is_kept_however_they_end(
            turns in proptest::collection::vec((0_u16..8, any::<bool>()), 0..200),
        ) {
            let mut flight = Flight::new(8);
            let mut model: Vec<(u16, MonoNanos)> = Vec::new();
            for (at, (slot, _)) in (1..).zip(turns) {
                match model.iter().position(|(known, _)| *known == slot) {
                    Some(index) => {
                        let (_, issued) = model.remove(index);
                        prop_assert_eq!(flight.remove(slot).began.at, issued);
                    }
                    None => {
                        model.push((slot, MonoNanos(at)));
                        flight.add(slot, Op::Read, Began::at(MonoNanos(at)), (0, at));
                    }
                }
                let order: Vec<MonoNanos> = flight.each().map(|(_, began)| began.at).collect();
                prop_assert_eq!(order, model.iter().map(|(_, at)| *at).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn each_has_its_own_latency_and_the_oldest_is_shown() {
        let (mut recorder, consumer) = pair(Settings {
            depth: 3,
            ..Settings::of(&[Op::Read, Op::Write])
        });
        let start = MonoNanos(1_000_000_000);
        let at = |millis: u64| start.saturating_add(Duration::from_millis(millis));
        let shown = |op, millis| {
            let since = at(millis);
            let (file, offset) = (Some(7), Some(millis));
            Some(InFlightOp {
                op,
                since,
                file,
                offset,
                is_untimed: false,
            })
        };
        recorder.set_start(start);
        assert_eq!(consumer.in_flight(), None);
        recorder.submit(0, Op::Read, (7, 100), 512, at(100));
        recorder.submit(2, Op::Write, (7, 200), 512, at(200));
        recorder.submit(1, Op::Read, (7, 300), 512, at(300));
        assert_eq!(consumer.in_flight(), shown(Op::Read, 100));
        recorder.complete(2, at(400), 512);
        assert_eq!(consumer.in_flight(), shown(Op::Read, 100));
        recorder.complete(0, at(500), 512);
        assert_eq!(consumer.in_flight(), shown(Op::Read, 300));
        recorder.submit(0, Op::Write, (7, 600), 512, at(600));
        recorder.submit(2, Op::Write, (7, 1050), 512, at(1050));
        // The first completion after the period: of three in flight, two were so at its end.
        let facts = ErrorFacts {
            errno: libc::EIO,
            path: "w0.dat",
            offset: Some(0),
        };
        recorder.complete_error(1, at(1100), &facts).unwrap();
        assert_eq!(consumer.in_flight(), shown(Op::Write, 600));
        recorder.complete(0, at(1200), 512);
        recorder.complete(2, at(1300), 512);
        assert_eq!(consumer.in_flight(), None);
        assert_eq!(consumer.last_begun(), Some(at(1050)));
        recorder.finish();

        let mut seen = Vec::new();
        consumer.take(&mut |buffer| {
            for series in &buffer.series {
                let worst = series.service.max_ns() / 1_000_000;
                let ops = series.service.count();
                seen.push((
                    buffer.index,
                    series.op,
                    ops,
                    series.errors,
                    series.in_flight,
                    worst,
                ));
            }
        });
        assert_eq!(
            seen,
            [
                (0, Op::Read, 1, 0, 1, 400),
                (0, Op::Write, 1, 0, 1, 200),
                (1, Op::Read, 0, 1, 0, 0),
                (1, Op::Write, 2, 0, 0, 600),
            ]
        );
    }
}
