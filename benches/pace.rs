//! How accurately many clients keep a rate of a whole step, and how quickly it recovers after one of them is lost.
//!
//! `cargo bench --bench pace [-- --seconds N] [--rounds N]`. 16 agents, as processes on this machine, read at a total
//! of 3000 operations per second, evenly spaced; after N seconds (default 60) one of them is killed. The kernel's count
//! of each client is printed beside the reported figures. "Back" is the time for which the lost client's part was
//! missing, minus the lease. Limits: the total within 1 %, the client with the largest deviation from its share within
//! 2 %, the total back within 3 s after the lease ends.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that measures, prints, and panics when it cannot"
)]

mod arguments;
#[path = "../tests"]
mod shared {
    pub mod support;
}

use arguments::value;
use shared::support::paced::{self, BACK_WITHIN, CLIENTS, LEASE, RATE};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = value(&arguments, "--seconds").unwrap_or(60);
    let rounds = value(&arguments, "--rounds").unwrap_or(1);
    println!(
        "{RATE} per second over {CLIENTS} clients for {seconds} s; a lease of {} s; bars: total 1 %, client 2 %, back {} s",
        LEASE.as_secs(),
        BACK_WITHIN.as_secs()
    );
    println!("total %  reported %  worst client %  while leased %  back after s  after that %");
    let percent = |part: f64| (part - 1.0) * 100.0;
    for _ in 0..rounds {
        let figures = paced::measure(Duration::from_secs(seconds));
        println!(
            "{:+7.3}  {:+10.3}  {:14.3}  {:+14.3}  {:12.2}  {:+12.3}",
            percent(figures.total),
            percent(figures.reported),
            figures.worst_client * 100.0,
            percent(figures.while_leased),
            figures.back_after_s,
            percent(figures.after),
        );
    }
}
