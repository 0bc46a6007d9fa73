//! The last test target of the workspace (cargo runs packages and targets by name). It reports how many tests were
//! skipped and how many were measured again.

#[test]
fn how_many_tests_were_skipped_or_measured_again() {
    benchmesh_testing::say(&format!("\n{}", benchmesh_testing::totals()));
}
