//! A running task's seconds, which follow mesh time as the session's estimate of it moves.
//!
//! A task begins on the one mapping that it was armed with. Two clocks part by up to 100 ppm, which is 9 s a day; so after
//! its ramp the task's periods move on its own clock, each by at most [`MOST`], towards where the newest estimate has them.
//! Their instants in mesh time stay whole seconds from the start: the row of a second is never two, and none is left out.

use crate::clock::{Estimate, MeshMap};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::interval::Shift;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The most that a second moves: five times what a bad crystal needs, and too little to be seen in the second's counts.
const MOST: Duration = Duration::from_micros(500);

/// Where a task's seconds are.
#[derive(Debug)]
pub(super) struct Follow {
    armed_with: MeshMap,
    newest: watch::Receiver<Option<Estimate>>,
    shift: Arc<Shift>,
    /// The ramp is over.
    from: MonoNanos,
    /// The second that has moved last.
    moved: Option<u64>,
}

impl Follow {
    pub(super) fn new(
        armed_with: MeshMap,
        newest: watch::Receiver<Option<Estimate>>,
        shift: Arc<Shift>,
        from: MonoNanos,
    ) -> Self {
        Self {
            armed_with,
            newest,
            shift,
            from,
            moved: None,
        }
    }

    /// After the second `index` of the task, at `now`: moves those that come by what is known since.
    pub(super) fn ended(&mut self, index: u64, now: MonoNanos) {
        if now < self.from || self.moved.is_some_and(|moved| moved >= index) {
            return;
        }
        self.moved = Some(index);
        let Some(newest) = *self.newest.borrow() else {
            return;
        };
        let most = i64::try_from(MOST.as_nanos()).unwrap_or(i64::MAX);
        let held = self.shift.get();
        let off = self.armed_with.later_by_ns(newest.map).saturating_sub(held);
        self.shift.set(held.saturating_add(off.clamp(-most, most)));
    }

    /// The mapping of the task as it is now.
    pub(super) fn map(&self) -> MeshMap {
        self.armed_with.moved(self.shift.get())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::clock::{Exchange, Filter};

    const SECOND: u64 = 1_000_000_000;
    const MESH_AHEAD: i64 = 1_700_000_000_000_000_000;

    /// The instant of mesh time on a collector's clock that runs `ppm` faster.
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
        }
    }

    /// Three days with a probe each second, as a session has them.
    #[test]
    fn the_seconds_of_days_stay_where_mesh_time_has_them() {
        for ppm in [100_i64, -100, 0] {
            let start = 5 * SECOND;
            let mut filter = Filter::default();
            let armed = filter.add(exchange(start - SECOND, ppm)).unwrap();
            let (newest, watched) = watch::channel(Some(armed));
            let shift = Arc::new(Shift::default());
            let ramp_end = MonoNanos(start + 60 * SECOND);
            let mut follow = Follow::new(armed.map, watched, Arc::clone(&shift), ramp_end);
            let start_mesh_us = armed.map.to_mesh(MonoNanos(start)).0;
            let mut worst_us = 0;
            for second in 0..3 * 24 * 3600_u64 {
                // Where the second ends on the task's own clock, as its workers have it.
                let ends = start + (second + 1) * SECOND;
                let ends = ends.checked_add_signed(shift.get()).unwrap();
                let labelled_us = start_mesh_us + i64::try_from(second + 1).unwrap() * 1_000_000;
                let truth_us = mesh_ns(ends, ppm) / 1000;
                if second > 600 {
                    worst_us = worst_us.max((labelled_us - truth_us).abs());
                }
                let said = follow.map().to_mesh(MonoNanos(ends)).0;
                assert!((said - labelled_us).abs() <= 1, "{ppm}: {second}");
                newest.send_replace(Some(filter.add(exchange(ends, ppm)).unwrap()));
                follow.ended(second, MonoNanos(ends + 200_000_000));
                // Another kind of operation in the same second moves nothing.
                let moved = shift.get();
                follow.ended(second, MonoNanos(ends + 300_000_000));
                assert_eq!(shift.get(), moved);
            }
            assert!(worst_us < 1000, "{ppm}: off by {worst_us} us");
        }
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
        let mut follow = Follow::new(armed.map, watched, Arc::clone(&shift), from);
        follow.ended(3, MonoNanos(9 * SECOND));
        assert_eq!(shift.get(), 0);
        for second in 10..13 {
            follow.ended(second, MonoNanos(second * SECOND));
        }
        let moved = 3 * i64::try_from(MOST.as_nanos()).unwrap();
        assert_eq!(shift.get().abs(), moved);
    }
}
