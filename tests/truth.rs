//! Truth tests: what benchmesh reports, held against something independent, each with its tolerance.

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
    mod breadth;
    mod clock;
    mod counts;
    mod cpu;
    mod delay;
    mod disk;
    mod failing;
    mod fallback;
    mod flips;
    mod full;
    mod groups;
    mod io;
    mod latency;
    mod link;
    mod lost;
    mod once;
    mod pace;
    mod queue;
    mod ramp;
    mod shapes;
    mod stall;
    mod stand_ins;
    mod start;
    mod two_runs;
    mod unfit;
    mod vanish;
}
