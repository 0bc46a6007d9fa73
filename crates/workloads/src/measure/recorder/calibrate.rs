//! The recorder's own cost per operation: the time of an operation that does nothing.

use super::{Settings, pair};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use std::sync::OnceLock;
use std::time::Duration;

const OPERATIONS: u64 = 20_000;
const ROUNDS: u32 = 5;

/// Nanoseconds per operation that the recorder costs on this machine: the best of a few short rounds, measured once per
/// process (about 10 ms the first time).
pub fn harness_ns_per_op() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| {
        let (mut recorder, _taker) = pair(Settings {
            period: Duration::from_secs(3600),
            ..Settings::of(&[Op::Null])
        });
        recorder.set_start(MonoNanos::now());
        let round = |_| {
            let began = MonoNanos::now();
            for _ in 0..OPERATIONS {
                let at = recorder.begin();
                recorder.end(Op::Null, at, 0);
                if recorder.should_stop() {
                    break;
                }
            }
            MonoNanos::now().nanos_since(began) / OPERATIONS
        };
        (0..ROUNDS).map(round).min().unwrap_or(0)
    })
}
