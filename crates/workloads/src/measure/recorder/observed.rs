//! Records other than timed operations: counts from the peer of a link, several operations in one system call, and the
//! end of the load before the peer's last report.

use super::{Began, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;

impl Recorder {
    /// Adds operations counted by the peer; they have no latency.
    pub fn observe(&mut self, op: Op, count: u64, bytes: u64) {
        if count > 0 {
            self.advance_within_load();
            self.counts(op, |series| {
                series.untimed += count;
                series.bytes += bytes;
            });
        }
    }

    /// Records a duration that was measured elsewhere.
    pub fn observe_duration(&mut self, op: Op, ns: u64) {
        self.advance_within_load();
        self.counts(op, |series| series.service.record(ns));
    }

    /// Records `count` operations that succeeded in one system call. Each gets the call's duration; together they moved
    /// `bytes`.
    #[inline]
    pub fn end_batch(&mut self, op: Op, began: Began, count: u64, bytes: u64) {
        if count == 0 {
            return self.idle();
        }
        self.end(op, began, bytes);
        let ns = self.last.nanos_since(began.at);
        self.counts(op, |series| series.service.record_many(ns, count - 1));
    }

    /// Ends the load now. Anything observed later counts in its last period.
    pub fn end_of_load(&mut self) {
        let now = self.now();
        self.advance_to(now);
        self.load_ended = Some(now);
    }

    /// When the worker ended its load, if it did so explicitly.
    pub(crate) fn load_ended(&self) -> Option<MonoNanos> {
        self.load_ended
    }

    fn advance_within_load(&mut self) {
        if self.load_ended.is_none() {
            let now = self.now();
            self.advance_to(now);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Settings, pair};
    use super::*;

    #[test]
    fn observations_have_no_duration_and_batches_share_one() {
        let (mut recorder, consumer) = pair(Settings::of(&[Op::Send, Op::Lost, Op::Jitter]));
        recorder.set_start(MonoNanos::now());
        let began = recorder.begin();
        recorder.end_batch(Op::Send, began, 5, 500);
        let began = recorder.begin();
        recorder.end_batch(Op::Send, began, 0, 0);
        recorder.observe(Op::Lost, 3, 0);
        recorder.observe_duration(Op::Jitter, 70);
        recorder.end_of_load();
        let ended = recorder.load_ended();
        recorder.observe(Op::Lost, 4, 0);
        assert_eq!(recorder.load_ended(), ended);
        recorder.finish();
        let mut seen = Vec::new();
        consumer.take(&mut |buffer| {
            for it in &buffer.series {
                seen.push((it.op, it.service.count(), it.untimed, it.bytes));
            }
        });
        assert_eq!(
            seen,
            [
                (Op::Send, 5, 0, 500),
                (Op::Lost, 0, 7, 0),
                (Op::Jitter, 1, 0, 0)
            ]
        );
    }

    #[test]
    fn observations_of_a_paced_load_have_no_response_time() {
        let mut settings = Settings::of(&[Op::Send, Op::Jitter]);
        settings.own_instants = Some(1);
        let (mut recorder, consumer) = pair(settings);
        recorder.set_start(MonoNanos::now());
        recorder.observe_duration(Op::Jitter, 70);
        recorder.finish();
        let mut seen = Vec::new();
        consumer.take(&mut |buffer| {
            for it in &buffer.series {
                seen.push((it.op, it.response.is_some()));
            }
        });
        assert_eq!(seen, [(Op::Send, true), (Op::Jitter, false)]);
    }
}
