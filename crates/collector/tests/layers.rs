//! The order of the crate's layers, and that no modules import one another in a circle.

use benchmesh_testing::layers::{assert_no_circle, assert_order};

/// Bottom to top.
const LAYERS: &[&str] = &[
    "model",
    "cut",
    "refusals",
    "trust",
    "figures",
    "database",
    "results",
    "plan",
    "import",
    "ingest",
    "store",
    "clock",
    "retention",
    "snapshot",
    "live",
    "query",
    "compare",
    "findings",
    "sessions",
    "scheduler",
    "report",
    "export",
    "pictures",
    "overview",
    "alarms",
    "web",
    "service",
];

#[test]
fn an_import_goes_down_the_layers() {
    assert_order(env!("CARGO_MANIFEST_DIR"), LAYERS);
}

#[test]
fn no_module_imports_another_in_a_circle() {
    assert_no_circle(env!("CARGO_MANIFEST_DIR"));
}
