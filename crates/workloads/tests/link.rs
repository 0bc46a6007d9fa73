//! Links between two network namespaces of the test's own, held against what the kernel counted and what tbf lets
//! through.
//!
//! Needs root; says so when it is skipped, and fails instead when BENCHMESH_REQUIRE has `root`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a panic is how a test fails, and all counts are far below 2^53"
)]

mod link {
    mod counted;
    mod nodes;
    mod shaped;
    mod udp;
}
