//! Tests without a cluster; the others are in tests/ceph.rs.
#![allow(clippy::unwrap_used)]

use super::keys::MODES;
use super::worker::Names;
use super::*;
use crate::engine::workload::Params;
use crate::error_chain;
use serde_json::{Value, json};

fn params(value: &Value) -> &Params {
    value.as_object().unwrap()
}

#[test]
fn parameters_are_checked() {
    let check = |mode: &str, value: Value| OBJECTS.check(mode, params(&value));
    let laid = check(
        "seq",
        json!({"size": "4m", "bs": "1m", "objects": 3, "numjobs": 2}),
    )
    .unwrap();
    assert_eq!((laid.workers, laid.bytes), (2, 24 << 20));
    assert_eq!(laid.moved_bytes, 24 << 20);
    // Sixteen in flight, each with the library's copy of it.
    assert!(laid.memory_bytes > (2 * 2 * 16) << 20);
    let timed = check("write", json!({"runtime": "60s"})).unwrap();
    assert_eq!((timed.bytes, timed.runtime.unwrap().as_secs()), (0, 60));
    for mode in MODES {
        check(mode.name, json!({"objects": 10})).unwrap();
    }
    for (mode, bad, key) in [
        ("write", json!({}), "objects"),
        ("write", json!({"objects": 1, "bs": "3m"}), "bs"),
        (
            "write",
            json!({"objects": 1, "size": "4k", "bs": "8k"}),
            "bs",
        ),
        ("write", json!({"objects": 1, "size": "1g"}), "size"),
        ("write", json!({"objects": 1, "iodepth": 0}), "iodepth"),
        ("omap", json!({"omap-keys": 0}), "omap-keys"),
        ("seq", json!({"verify": true, "data": "zero"}), "verify"),
    ] {
        let error = check(mode, bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{mode} {bad}");
    }
}

#[test]
fn names_are_made_in_place() {
    let mut names = Names::new("c1.t0.w3.");
    for (number, name) in [
        (0, c"c1.t0.w3.0"),
        (u64::MAX, c"c1.t0.w3.18446744073709551615"),
        (17, c"c1.t0.w3.17"),
    ] {
        assert_eq!(names.of(number), name);
    }
}

#[test]
fn a_task_without_a_pool_is_refused() {
    let spec = TaskSpec::new("objects", "seq", params(&json!({"objects": 1})).clone());
    let refused = OBJECTS.load(&spec).err().unwrap();
    assert!(
        error_chain(&refused).contains("needs a target"),
        "{refused}"
    );
}
