//! Loads that share a limit on their bytes per second. Tests check lower bounds of durations only, because a busy
//! machine is slower.

use crate::engine::task::{PrepareControl, TaskSpec};
use crate::measure::clock::MonoNanos;
use crate::measure::pacing::RateLimit;
use crate::registry;
use crate::testing::{TestCell, run};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// One mebibyte takes half a second, less the time of the last operations and the limit's credit.
const AT_LEAST: Duration = Duration::from_millis(400);

fn limited(cell: &TestCell, mode: &str, params: Value) -> TaskSpec {
    TaskSpec {
        limit: Some(Arc::new(RateLimit::new(2 * MIB))),
        ..cell.spec(mode, params)
    }
}

/// For every way to issue operations: one at a time, several in flight, by a faster schedule.
#[test]
fn a_load_takes_at_least_the_time_that_its_bytes_take_at_the_limit() {
    let in_flight = json!({"size": "512k", "bs": "64k", "numjobs": 2, "iodepth": 4, "ioengine": "io_uring", "ioengine-fallback": "psync"});
    let paced = json!({"size": "512k", "bs": "64k", "numjobs": 2, "rate_iops": 10_000});
    for params in [
        json!({"size": "512k", "bs": "64k", "numjobs": 2}),
        in_flight,
        paced,
    ] {
        let cell = TestCell::new("io");
        let outcome = run(&limited(&cell, "write", params.clone()));
        outcome.expect_sums(16, MIB, 0);
        let took = outcome.end.ended.since(outcome.end.planned_start);
        assert!(took >= AT_LEAST, "{took:?}: {params}");
    }
    let cell = TestCell::new("files");
    let outcome = run(&limited(
        &cell,
        "create",
        json!({"files": 16, "size": "64k"}),
    ));
    assert_eq!(outcome.sum(|it| it.bytes), MIB);
    assert_eq!(outcome.end.error, None);
    let took = outcome.end.ended.since(outcome.end.planned_start);
    assert!(took >= AT_LEAST, "{took:?}");
}

#[test]
fn laying_out_data_is_limited_too() {
    let list = "0 open a\n0 read a 0 1048576\n0 close a\n0 open b\n0 read b 0 1048576\n0 close b\n";
    for (workload, mode, params) in [
        ("replay", "replay", json!({ "operations": list })),
        ("io", "read", json!({"size": "2m"})),
        ("files", "read", json!({"files": 17, "size": "64k"})),
    ] {
        let cell = TestCell::new(workload);
        let spec = limited(&cell, mode, params);
        let limit = spec.limit.clone();
        let control = PrepareControl::silent().limited_by(limit);
        let began = MonoNanos::now();
        drop(registry::prepare(&spec, &control).unwrap());
        let took = MonoNanos::now().since(began);
        assert!(took >= AT_LEAST, "{workload}: {took:?}");
    }
}
