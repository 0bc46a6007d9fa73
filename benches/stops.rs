//! How long a load goes on after `benchmesh stop`.
//!
//! `cargo bench --bench stops [-- --agents N] [--rounds N]`. 64 agents as processes on this machine, each issuing 20
//! operations a second, are stopped at once, several times. Command: from before the command was typed to the last read
//! call of any worker, by the kernel's count, looked at all along and rounded up to the next look. Wish: from the
//! collector's hearing of it to the begin of the last operation, as the agents say. Bar: no operation begins 500 ms
//! after.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that measures, prints, and panics when it cannot"
)]

mod arguments;
#[path = "../tests"]
mod shared {
    pub mod support;
}

use arguments::value;
use shared::support::stops::{QUIET_AFTER, Stops};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let agents = value(&arguments, "--agents").unwrap_or(64);
    let rounds = value(&arguments, "--rounds").unwrap_or(10);
    let mut stops = Stops::with(agents);
    let (mut by_command, mut by_wish) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let stopped = stops.by_command();
        by_command.push(stopped.after_command.as_secs_f64() * 1e3);
        by_wish.push(stopped.after_wish_us as f64 / 1e3);
    }
    println!(
        "{agents} agents, {rounds} stops; milliseconds; the bar is {}",
        QUIET_AFTER.as_millis()
    );
    for (what, mut values) in [("command", by_command), ("wish", by_wish)] {
        values.sort_by(f64::total_cmp);
        let (median, worst) = (values[values.len() / 2], values[values.len() - 1]);
        println!("{what:8} median {median:7.1}  worst {worst:7.1}");
    }
}
