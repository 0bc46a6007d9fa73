//! Truth tests of rates that a device of known speed or the plan sets: a slow file system, a throttled disk, a shaped
//! link, a paced load.
//!
//! They keep a processor busy for a tenth of their time, so a few run in parallel. Tests of the load's own speed belong
//! in `truth.rs`, where tests run alone.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

// More would contend for the processors, which is visible at tolerances of 2 to 5 %.
share_the_machine!(4);

mod instruments;
mod truth {
    mod clock;
    mod disk;
    mod groups;
    mod link;
    mod lost;
    mod pace;
    mod progress;
    mod ramp;
    mod search;
    mod shapes;
}
