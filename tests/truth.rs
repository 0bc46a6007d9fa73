//! Truth tests that measure time, rates or CPU of a load that keeps the machine busy: they compare benchmesh's report
//! with an independent source, each with its tolerance. One mesh at a time.
//!
//! Truth tests of counts are in `mesh.rs`, those of rates that a slow device sets in `rates.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

mod truth {
    mod delay;
    mod queue;
    mod start;
    mod usage;
}
