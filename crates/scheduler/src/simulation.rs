//! The machine in a simulated mesh: seeded schedules of faults, in virtual time, with what must hold after each.
//!
//! A schedule is a mesh of one to eight agents, a plan and a policy, and at any moment a chance that the collector is
//! killed and started, an agent is lost, comes back or is started again, a reply is late or doubled, the disk is full,
//! or someone stops the run. The database is a real one in memory, written and read by the scheduler's own statements
//! (`store.rs`); agents, clocks and what the storage does are simulated. Everything follows from the seed.
//! `BENCHMESH_SIMULATION_SEED=N` replays one schedule and prints what happens; `BENCHMESH_SIMULATIONS=N` sets how many
//! there are, and `BENCHMESH_SIMULATIONS_FROM=N` the first seed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod agent;
mod bugs;
mod checks;
mod losses;
mod plans;
mod returns;
mod searches;
mod staged;
mod store;
mod world;

use plans::Plans;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{FaultMode, World};

/// Schedules of one run of the tests, some 20 s of CPU; 10,000 by BENCHMESH_SIMULATIONS take 16 minutes of it.
const SCHEDULES: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
#[expect(clippy::print_stderr, reason = "how many schedules ran in how long")]
fn every_run_ends_under_any_schedule_of_faults() {
    let plans = Plans::new();
    if let Some(seed) = number("BENCHMESH_SIMULATION_SEED") {
        let mut world = World::new(seed, &plans, FaultMode::All);
        world.trace = true;
        world.play();
        return;
    }
    let schedules = number("BENCHMESH_SIMULATIONS").unwrap_or(SCHEDULES);
    let first = number("BENCHMESH_SIMULATIONS_FROM").unwrap_or(0);
    let began = std::time::Instant::now();
    // A schedule and its database have a thread each, of which one waits for the other.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let plans = &plans;
        let parts: Vec<_> = (0..threads as u64)
            .map(|part| {
                scope.spawn(move || {
                    (first + part..first + schedules)
                        .step_by(threads)
                        .filter_map(|seed| Some((seed, failure(seed, plans)?)))
                        .take(3)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap())
            .collect()
    });
    let took = began.elapsed();
    eprintln!("{schedules} schedules in {took:.1?}");
    let messages: Vec<String> = failed
        .iter()
        .map(|(seed, why)| format!("BENCHMESH_SIMULATION_SEED={seed}: {why}"))
        .collect();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

/// Why a schedule fails; `None`: it does not.
fn failure(seed: u64, plans: &Plans) -> Option<String> {
    let played = catch_unwind(AssertUnwindSafe(|| {
        World::new(seed, plans, FaultMode::All).play()
    }));
    let panic = played.err()?;
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some(text.unwrap_or_default())
}
