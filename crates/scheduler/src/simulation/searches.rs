//! Searches: a collector that is killed between probes or within one, a stop and a resumption, and clients that leave.

use super::{
    staged::{kinds, world},
    world::World,
};
use benchmesh_model::mesh::{RunState, StepState};
use benchmesh_plan::OnLoss;
use benchmesh_store::rows::StepRow;

const TARGET: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n";
const KEYS: &str = "runtime = \"5s\"\nsearch = { rate = \"max\", while = \"p99 < 10ms\" }\n";
/// The expected result: the simulated storage does at most 1000 operations per second, and answers in time up to 600.
const RATES: [Option<u64>; 6] = [None, Some(500), Some(707), Some(595), Some(649), Some(621)];

/// Probes without data, on common data, and each with its own.
fn plans() -> [String; 3] {
    let io = |mode: &str| {
        format!("{TARGET}[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"{mode}\"]\n{KEYS}")
    };
    let null = format!("[[phase]]\nworkload = \"null\"\n{KEYS}");
    [null, io("read"), io("write")]
}

fn rates(steps: &[StepRow]) -> Vec<Option<u64>> {
    let rate = |step: &StepRow| {
        let params: serde_json::Value = serde_json::from_str(&step.params_json).unwrap();
        params.get("rate_iops").and_then(serde_json::Value::as_u64)
    };
    steps.iter().map(rate).collect()
}

fn found(world: &World) {
    assert_eq!(world.store.run.state, RunState::Done);
    let newest = world.store.newest_steps();
    assert_eq!(rates(&newest), RATES);
    assert!(newest.iter().all(|step| step.state == StepState::Done));
    let found = kinds(world, "search-found");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(" is 595 operations/s"), "{found:?}");
    assert_eq!(kinds(world, "search-not-found"), [""; 0]);
}

fn is_under_way(world: &World, ordinal: u32, state: StepState) -> bool {
    let mut steps = world.store.steps.iter();
    steps.any(|step| step.ordinal == ordinal && step.state == state)
}

#[test]
fn a_search_closes_in_on_the_knee() {
    for plan in plans() {
        let mut world = world(&plan, 2, OnLoss::Continue);
        world.run_to_end();
        world.check_end();
        found(&world);
        assert_eq!(world.store.steps.len(), RATES.len(), "{plan}");
    }
}

#[test]
fn a_killed_collector_goes_on_with_the_probe_that_was_due() {
    for plan in plans() {
        for ordinal in 1..=6 {
            for state in [StepState::Planned, StepState::Running, StepState::Done] {
                let mut world = world(&plan, 2, OnLoss::Continue);
                world.run_until(|world| is_under_way(world, ordinal, state));
                world.crash();
                world.start_collector();
                (0..2).for_each(|agent| world.attach(agent));
                world.run_to_end();
                world.check_end();
                found(&world);
            }
        }
    }
}

#[test]
fn a_stopped_search_is_resumed() {
    for plan in plans() {
        for state in [StepState::Running, StepState::Done] {
            let mut world = world(&plan, 2, OnLoss::Continue);
            world.run_until(|world| is_under_way(world, 3, state));
            world.stop();
            world.run_to_end();
            world.check_end();
            assert_eq!(kinds(&world, "search-found"), [""; 0]);
            assert!(world.resume(), "{plan}");
            world.run_to_end();
            world.check_end();
            found(&world);
        }
    }
}

/// One probe without any client is no answer: the search ends, and says why.
#[test]
fn a_search_ends_without_a_rate_when_a_probe_fails() {
    for plan in plans() {
        let mut world = world(&plan, 1, OnLoss::Continue);
        world.run_until(|world| is_under_way(world, 3, StepState::Running));
        world.detach(0);
        world.run_to_end();
        world.check_end();
        let not_found = kinds(&world, "search-not-found");
        assert_eq!(not_found.len(), 1, "{not_found:?}");
        assert!(not_found[0].contains("step 3 "), "{not_found:?}");
    }
}
