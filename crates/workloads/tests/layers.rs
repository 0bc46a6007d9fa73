//! The order of the crate's layers, and no circle of imports within them.

use benchmesh_testing::layers::{Crate, Import, assert_no_circle, assert_order};
use std::path::Path;

/// Bottom to top.
const LAYERS: &[&str] = &[
    "error_chain",
    "params",
    "figures",
    "measure",
    "target",
    "engine",
    "workloads",
    "registry",
];

#[test]
fn an_import_goes_down_the_layers() {
    assert_order(env!("CARGO_MANIFEST_DIR"), LAYERS);
}

#[test]
fn no_module_imports_another_in_a_circle() {
    assert_no_circle(env!("CARGO_MANIFEST_DIR"));
}

#[test]
fn no_workload_imports_another() {
    let code = Crate::read(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("read the source");
    let imports = code.between(&["workloads"]);
    let texts: Vec<String> = imports.map(Import::to_string).collect();
    assert_eq!(texts, Vec::<String>::new());
}

#[test]
fn a_workload_imports_the_author_module_and_nothing_else() {
    let code = Crate::read(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("read the source");
    let imports = code.between(&[]).map(Import::to_string);
    let others = imports.filter(|import| {
        let is_of_author = import.contains(" by crate::engine::author");
        import.starts_with("workloads/") && import.contains(" by crate::") && !is_of_author
    });
    assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new());
}
