//! Shared support of the tests from outside: a mesh of real processes, the machine's features that they need, and the
//! gate that skips a test.
//!
//! It uses the commands, the plan file, the database and the wire, and not the crates behind them. Everything that it
//! starts, mounts or creates ends and is removed when the value for it is dropped. Nothing here sleeps for a guessed
//! time: [`wait`] waits on conditions.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part of the support"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

pub mod browser;
pub mod cgroup;
pub mod clients;
pub mod command;
pub mod database;
pub mod fake_agent;
pub mod fuse_fs;
pub mod gate;
pub mod intervals;
pub mod lab;
pub mod loop_device;
pub mod loss;
pub mod mesh;
pub mod meter;
pub mod net;
pub mod paced;
pub mod permit;
pub mod plan;
pub mod process;
pub mod quickstart;
pub mod starts;
pub mod stops;
pub mod wait;
