//! How well a rate of a whole step is kept by many clients, and how soon after one of them is lost.
//!
//! `cargo bench --bench pace [-- --seconds N] [--rounds N]`. 16 agents as processes on this machine read at 3000
//! operations a second in all, evenly; after so many seconds (60) one of them is killed. Counted by the kernel, client
//! by client, and beside it what is reported. Back: for how long the lost one's part was missing, less the lease. Bars:
//! the total within 1 %, the client that is furthest off its share within 2 %, the total back within 3 s of the end of
//! the lease.

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
