//! The crate's modules have no cyclic imports.

#[test]
fn no_module_imports_another_in_a_circle() {
    benchmesh_testing::layers::assert_no_circle(env!("CARGO_MANIFEST_DIR"));
}
