//! The last test target of the workspace (cargo runs packages and targets by name): says how many tests were skipped.

#[test]
fn how_many_tests_were_skipped_and_why() {
    benchmesh_testing::say(&format!("\n{}", benchmesh_testing::totals()));
}
