//! How long a load continues after `benchmesh stop`.
//!
//! `cargo bench --bench stops [-- --agents N] [--rounds N]`. 64 agents, as processes on this machine, each with 20
//! operations per second, are stopped at the same time, repeatedly. "Command" is the time from before the command was
//! typed to the last read call of any worker, from continuous checks of the kernel's count, rounded up to the next
//! check. "Wish" is the time from the collector's receipt of the request to the begin of the last operation, as
//! reported by the agents. Limit: no operation begins 500 ms after the request.

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
