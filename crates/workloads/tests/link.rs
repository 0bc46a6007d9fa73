//! Links between two network namespaces that the test creates, compared with the kernel's counters and tbf's rate.
//!
//! Needs root; reports a skip without it, and fails instead if BENCHMESH_REQUIRE has `root`.
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
