//! The mesh from outside: commands, counts, faults, hostile peers and real file systems.
//!
//! These tests mostly wait (for a stall, a lost agent, a killed process), so many run in parallel. A test that measures
//! time, a rate or CPU belongs in `truth.rs`, whose tests run alone.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

// libtest runs as many tests in parallel as the machine has processors, which is too few for tests that wait.
share_the_machine!(10);

mod alarms;
mod bad_input;
mod between_runs;
mod campaign;
mod ceph;
mod cluster_facts;
mod comparisons;
mod database_files;
mod dependencies;
mod end_to_end;
mod examples;
mod faults;
mod file_systems;
mod full_screen;
mod ganesha;
mod gluster;
mod hostile_peers;
mod kept_data;
mod matrix;
mod measure;
mod moosefs;
mod one_workload;
mod packaging;
mod page;
mod policy;
mod query_prompt;
mod quickstart;
mod resume;
mod retention;
mod services;
mod steady;
mod stop;
mod trust;
mod truth {
    mod breadth;
    mod counts;
    mod failing;
    mod fallback;
    mod flips;
    mod freeze;
    mod full;
    mod io;
    mod latency;
    mod many_clients;
    mod no_double_count;
    mod recomputed;
    mod stall;
    mod two_runs;
    mod unsupported_fs;
    mod vanish;
}
