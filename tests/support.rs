//! Shared support of the tests from outside: a mesh of real processes, the features of the machine that they need, and
//! the gate that skips a test.
//!
//! It uses the commands, the plan file, the database and the wire format, and not the crates behind them. Dropping a
//! value ends, unmounts or removes everything that was started, mounted or created for it. Nothing here sleeps for a
//! guessed time: [`wait`] waits for conditions.

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
pub mod daemons;
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
pub mod terminal;
pub mod wait;
