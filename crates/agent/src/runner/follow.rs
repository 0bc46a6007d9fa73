//! Adjusts a running task's seconds to mesh time as the session's estimate of it changes.
//!
//! A task begins on the mapping with which it was armed. Two clocks drift apart by up to 100 ppm, which is 9 s a day.
//! After the ramp, the task's periods therefore shift on its own clock towards the newest estimate, each by at most
//! [`MAX_STEP`]. They shift only by the part of the difference that the errors of both mappings cannot explain, so an
//! estimate over a busy path has no effect within its error. After a gap (a machine that was paused or suspended) the
//! rest of the task moves to the new mapping at once. In mesh time, the seconds stay whole seconds from the start: no
//! second has two rows, and none is left out. The seconds of a pause are rows without an operation; where mesh time
//! fell behind, one second lasts correspondingly longer.

use crate::clock::{MeshMap, TaskDating};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::interval::Shift;
use std::sync::Arc;
use std::time::Duration;

/// Maximum correction per second: five times a poor crystal's drift, and too small to be visible in a second's counts.
const MAX_STEP: Duration = Duration::from_micros(500);

/// After seconds without an interval, the correction of up to this many seconds is applied at once (at most 50 ms). A
/// load with one operation in some minutes then keeps up with the drift, and each second keeps exactly one row.
const MAX_SECONDS: u64 = 100;

/// Shifts the seconds of a task.
#[derive(Debug)]
pub(super) struct Follow {
    /// The mapping at arming, or the first one after the newest gap.
    base: MeshMap,
    /// The shift of the periods when `base` became known.
    base_shift_ns: i64,
    dating: TaskDating,
    shift: Arc<Shift>,
    /// End of the ramp.
    from: MonoNanos,
    /// The last second that was shifted.
    moved: Option<u64>,
}

impl Follow {
    pub(super) fn new(
        armed_with: MeshMap,
        dating: TaskDating,
        shift: Arc<Shift>,
        from: MonoNanos,
    ) -> Self {
        Self {
            base: armed_with,
            base_shift_ns: 0,
            dating,
            shift,
            from,
            moved: None,
        }
    }

    /// Called after second `index` of the task, at `now`: shifts the later seconds according to the newest estimate.
    pub(super) fn ended(&mut self, index: u64, now: MonoNanos) {
        if now < self.from || self.moved.is_some_and(|moved| moved >= index) {
            return;
        }
        // A second in which no operation ended is not reported; the next reported second takes over its share of the
        // shift.
        let seconds = self.moved.map_or(1, |moved| index - moved);
        self.moved = Some(index);
        let Some(newest) = self.dating.newest() else {
            return;
        };
        if newest.map.is_of_era(self.base) {
            self.slew(newest.map, seconds, now);
        } else {
            self.rebase(newest.map);
        }
        self.dating.moved_to(self.map());
    }

    fn slew(&self, newest: MeshMap, seconds: u64, now: MonoNanos) {
        let seconds = i64::try_from(seconds.min(MAX_SECONDS)).unwrap_or(1);
        let most = i64::try_from(MAX_STEP.as_nanos()).unwrap_or(i64::MAX);
        let most = most.saturating_mul(seconds);
        let off = self.map().later_by_ns(newest);
        let errors = newest.error_ns(now);
        let errors = errors.saturating_add(self.base.least_error_ns());
        let errors = i64::try_from(errors).unwrap_or(i64::MAX);
        let known = off.saturating_abs().saturating_sub(errors).max(0);
        let step = off.signum().saturating_mul(known.min(most));
        self.shift.set(self.shift.get().saturating_add(step));
    }

    fn rebase(&mut self, newest: MeshMap) {
        let jump = self.map().later_by_ns(newest);
        self.shift.set(self.shift.get().saturating_add(jump));
        self.base = newest;
        self.base_shift_ns = self.shift.get();
    }

    /// The current mapping of the task.
    pub(super) fn map(&self) -> MeshMap {
        let moved = self.shift.get().saturating_sub(self.base_shift_ns);
        self.base.moved(moved)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::clock::{Dating, Estimate, Exchange, Filter};
    use tokio::sync::watch;

    const SECOND: u64 = 1_000_000_000;
    const MESH_AHEAD: i64 = 1_700_000_000_000_000_000;

    /// Mesh time in nanoseconds, on a collector's clock that runs `ppm` faster.
    fn mesh_ns(mono: u64, ppm: i64) -> i64 {
        let mono = i64::try_from(mono).unwrap();
        MESH_AHEAD + mono + mono / 1_000_000 * ppm
    }

    fn exchange(at: u64, ppm: i64) -> Exchange {
        Exchange {
            sent: MonoNanos(at),
            mesh_received_ns: mesh_ns(at + 50_000, ppm),
            mesh_sent_ns: mesh_ns(at + 50_000, ppm),
            received: MonoNanos(at + 100_000),
            slept_ns: 0,
        }
    }

    fn task(newest: watch::Receiver<Option<Estimate>>, armed_with: MeshMap) -> TaskDating {
        Dating::new(newest).begin_task(armed_with)
    }

    /// After a pause of 10 s of the agent's or the collector's machine, the task's seconds are correct from the next
    /// one on.
    #[test]
    fn after_a_gap_the_seconds_lie_where_mesh_time_has_them() {
        for jump_ns in [10_000_000_000_i64, -10_000_000_000] {
            let start = 5 * SECOND;
            let mut filter = Filter::default();
            let armed = filter.add(exchange(start - SECOND, 0)).unwrap();
            let (newest, watched) = watch::channel(Some(armed));
            let shift = Arc::new(Shift::default());
            let ramp_end = MonoNanos(start);
            let dating = task(watched, armed.map);
            let mut follow = Follow::new(armed.map, dating, Arc::clone(&shift), ramp_end);
            let start_mesh_us = armed.map.to_mesh(MonoNanos(start)).0;
            for second in 0..40_u64 {
                let at = start + (second + 1) * SECOND;
                let jumped = if second < 20 { 0 } else { jump_ns };
                let honest = exchange(at, 0);
                let seen = Exchange {
                    mesh_received_ns: honest.mesh_received_ns + jumped,
                    mesh_sent_ns: honest.mesh_sent_ns + jumped,
                    ..honest
                };
                newest.send_replace(Some(filter.add(seen).unwrap()));
                // The period in which the worker's clock is.
                let index = at.checked_add_signed(-shift.get()).unwrap() / SECOND - start / SECOND;
                follow.ended(index.saturating_sub(1), MonoNanos(at));
                let truth_us = (mesh_ns(at, 0) + jumped) / 1000;
                let dated_us = follow.map().to_mesh(MonoNanos(at)).0;
                if !(20..=32).contains(&second) || jump_ns > 0 {
                    assert!(
                        (dated_us - truth_us).abs() < 1000,
                        "{jump_ns}: {second}: {dated_us}"
                    );
                }
                if second == 20 {
                    assert_eq!(shift.get(), -jump_ns);
                    let row_us = start_mesh_us + i64::try_from(second + 1).unwrap() * 1_000_000;
                    assert_eq!(truth_us - row_us, jump_ns / 1000);
                }
            }
            assert_eq!(shift.get(), -jump_ns, "nothing else has moved");
        }
    }

    /// Three days with a probe each second, as in a session.
    #[test]
    fn the_seconds_of_days_stay_where_mesh_time_has_them() {
        for ppm in [100_i64, -100, 0] {
            let start = 5 * SECOND;
            let mut filter = Filter::default();
            let armed = filter.add(exchange(start - SECOND, ppm)).unwrap();
            let (newest, watched) = watch::channel(Some(armed));
            let shift = Arc::new(Shift::default());
            let ramp_end = MonoNanos(start + 60 * SECOND);
            let mut follow = Follow::new(
                armed.map,
                task(watched, armed.map),
                Arc::clone(&shift),
                ramp_end,
            );
            let start_mesh_us = armed.map.to_mesh(MonoNanos(start)).0;
            let mut worst_us = 0;
            for second in 0..3 * 24 * 3600_u64 {
                // The end of the second on the task's own clock, as its workers use it.
                let ends = start + (second + 1) * SECOND;
                let ends = ends.checked_add_signed(shift.get()).unwrap();
                let labelled_us = start_mesh_us + i64::try_from(second + 1).unwrap() * 1_000_000;
                let truth_us = mesh_ns(ends, ppm) / 1000;
                if second > 600 {
                    worst_us = worst_us.max((labelled_us - truth_us).abs());
                }
                let mesh_us = follow.map().to_mesh(MonoNanos(ends)).0;
                assert!((mesh_us - labelled_us).abs() <= 1, "{ppm}: {second}");
                newest.send_replace(Some(filter.add(exchange(ends, ppm)).unwrap()));
                follow.ended(second, MonoNanos(ends + 200_000_000));
                // Another kind of operation in the same second causes no further shift.
                let moved = shift.get();
                follow.ended(second, MonoNanos(ends + 300_000_000));
                assert_eq!(shift.get(), moved);
            }
            assert!(worst_us < 1000, "{ppm}: off by {worst_us} us");
        }
    }

    /// A path that becomes saturated in one direction: the answers are delayed, and the midpoint is off by half of the
    /// delay.
    #[test]
    fn the_error_of_a_late_exchange_moves_nothing() {
        let armed = Filter::default().add(exchange(SECOND, 0)).unwrap();
        let (newest, watched) = watch::channel(Some(armed));
        let shift = Arc::new(Shift::default());
        let mut follow = Follow::new(
            armed.map,
            task(watched, armed.map),
            Arc::clone(&shift),
            MonoNanos(SECOND),
        );
        for second in 10..200_u64 {
            let honest = exchange(second * SECOND, 0);
            let received = MonoNanos(honest.received.0 + 80_000_000);
            let late = Exchange { received, ..honest };
            newest.send_replace(Some(Filter::default().add(late).unwrap()));
            follow.ended(second, received);
        }
        assert_eq!(shift.get(), 0);
        // The part that exceeds the error is followed.
        let far = Exchange {
            mesh_received_ns: mesh_ns(200 * SECOND, 0) - 1_000_000,
            mesh_sent_ns: mesh_ns(200 * SECOND, 0) - 1_000_000,
            ..exchange(200 * SECOND, 0)
        };
        newest.send_replace(Some(Filter::default().add(far).unwrap()));
        for second in 200..210 {
            follow.ended(second, far.received);
        }
        assert_eq!(shift.get(), 1_000_000 + 50_000 - 2 * 50_000);
    }

    #[test]
    fn a_load_that_is_seldom_told_of_keeps_up() {
        let mut filter = Filter::default();
        let armed = filter.add(exchange(SECOND, 100)).unwrap();
        let (newest, watched) = watch::channel(Some(armed));
        let shift = Arc::new(Shift::default());
        let mut follow = Follow::new(
            armed.map,
            task(watched, armed.map),
            Arc::clone(&shift),
            MonoNanos(SECOND),
        );
        let mut last = 0;
        for second in (20..36_000).step_by(20) {
            let at = exchange(second * SECOND, 100);
            newest.send_replace(Some(filter.add(at).unwrap()));
            follow.ended(second, at.received);
            let moved = (shift.get() - last).abs();
            assert!(moved <= 20 * 500_000, "{moved}");
            last = shift.get();
            let off = follow.map().later_by_ns(newest.borrow().unwrap().map);
            assert!(off.abs() < 3_000_000, "{second}: {off}");
        }
        // After an hour without an exchange, with mesh time far away: at most a twentieth of a second at once.
        let far = Exchange {
            mesh_received_ns: MESH_AHEAD,
            mesh_sent_ns: MESH_AHEAD,
            ..exchange(40_000 * SECOND, 100)
        };
        newest.send_replace(Some(Filter::default().add(far).unwrap()));
        follow.ended(40_000, far.received);
        assert_eq!((shift.get() - last).abs(), 50_000_000);
    }

    #[test]
    fn no_second_moves_by_much_and_none_within_the_ramp() {
        let armed = Filter::default().add(exchange(SECOND, 0)).unwrap();
        let far = Exchange {
            mesh_received_ns: MESH_AHEAD + 10_000_000_000,
            mesh_sent_ns: MESH_AHEAD + 10_000_000_000,
            ..exchange(SECOND, 0)
        };
        let far = Filter::default().add(far).unwrap();
        let (_newest, watched) = watch::channel(Some(far));
        let shift = Arc::new(Shift::default());
        let from = MonoNanos(10 * SECOND);
        let mut follow = Follow::new(
            armed.map,
            task(watched, armed.map),
            Arc::clone(&shift),
            from,
        );
        follow.ended(3, MonoNanos(9 * SECOND));
        assert_eq!(shift.get(), 0);
        for second in 10..13 {
            follow.ended(second, MonoNanos(second * SECOND));
        }
        let moved = 3 * i64::try_from(MAX_STEP.as_nanos()).unwrap();
        assert_eq!(shift.get().abs(), moved);
    }
}
