//! The order of the crate's layers, and no circle of imports within them.

use benchmesh_testing::layers::{assert_no_circle, assert_order};

/// Bottom to top.
const LAYERS: &[&str] = &[
    "envelope",
    "execute",
    "finding",
    "host",
    "identity",
    "leftovers",
    "targets",
    "policy",
    "privileges",
    "state",
    "sampler",
    "facts",
    "config",
    "telemetry",
    "command",
    "clock",
    "wire",
    "spool",
    "runner",
    "session",
    "doctor",
];

#[test]
fn an_import_goes_down_the_layers() {
    assert_order(env!("CARGO_MANIFEST_DIR"), LAYERS);
}

#[test]
fn no_module_imports_another_in_a_circle() {
    assert_no_circle(env!("CARGO_MANIFEST_DIR"));
}
