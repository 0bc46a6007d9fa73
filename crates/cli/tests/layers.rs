//! The crate's layers are ordered and have no cyclic imports.

use benchmesh_testing::layers::{assert_no_circle, assert_order};

/// Bottom to top.
const LAYERS: &[&str] = &[
    "terminal",
    "output",
    "failure",
    "interrupts",
    "systemd",
    "args",
    "config_file",
    "logging",
    "client",
    "progress",
    "follow",
    "daemon",
    "command",
];

#[test]
fn an_import_goes_down_the_layers() {
    assert_order(env!("CARGO_MANIFEST_DIR"), LAYERS);
}

#[test]
fn no_module_imports_another_in_a_circle() {
    assert_no_circle(env!("CARGO_MANIFEST_DIR"));
}
