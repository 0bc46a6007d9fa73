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
        scratch: Some(cell.top.path().to_owned()),
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

/// One large operation moves its bytes as slowly as many small ones: under the limit of an agent and at the rate of a
/// plan, in every workload with operations of several system calls.
#[test]
fn the_bytes_of_one_operation_are_spread_over_its_seconds() {
    let cases = [
        ("copy", "in", json!({"size": "3m"})),
        (
            "copy",
            "in",
            json!({"size": "3m", "way": "read-write", "bs": "64k"}),
        ),
        ("copy", "out", json!({"size": "3m"})),
        (
            "files",
            "create",
            json!({"files": 1, "size": "3m", "bs": "64k"}),
        ),
        (
            "files",
            "read",
            json!({"files": 1, "size": "3m", "bs": "64k"}),
        ),
        (
            "files",
            "read",
            json!({"files": 1, "size": "3m", "bs": "64k", "verify": true}),
        ),
        (
            "tree",
            "unpack",
            json!({"files": 1, "size": "3m", "bs": "64k"}),
        ),
        (
            "tree",
            "read",
            json!({"files": 1, "size": "3m", "bs": "64k"}),
        ),
    ];
    let check = |(workload, mode, params): &(&'static str, &str, Value), rate: Option<&str>| {
        let cell = TestCell::new(workload);
        let mut params = params.clone();
        let mut spec = limited(&cell, mode, params.clone());
        if let Some(rate) = rate {
            params["rate"] = rate.into();
            spec.params = params.as_object().unwrap().clone();
            spec.limit = None;
        }
        let outcome = run(&spec);
        let what = format!("{workload} {mode} {params}");
        assert_eq!(outcome.end.error, None, "{what}");
        assert_eq!(outcome.sum(|it| it.bytes), 3 * MIB, "{what}");
        let in_first: u64 = outcome
            .intervals
            .iter()
            .filter(|it| it.index == 0)
            .map(|it| it.bytes)
            .sum();
        // A second's bytes, a chunk, and the limit's credit.
        assert!(
            in_first < 2 * MIB + MIB / 4,
            "{what}: {in_first} in the first second"
        );
        let took = outcome.end.ended.since(outcome.end.planned_start);
        assert!(took >= 2 * AT_LEAST, "{what}: {took:?}");
    };
    std::thread::scope(|scope| {
        let check = &check;
        for case in &cases {
            scope.spawn(move || check(case, None));
            scope.spawn(move || check(case, Some("2m")));
        }
    });
}
