//! Runs that are resumed after their end.

use crate::simulation::staged::{NULL, is_running, world};
use crate::simulation::world::World;
use benchmesh_model::mesh::{RunState, StepId, StepState};
use benchmesh_plan::OnLoss;

const IO_TARGETS: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n";

/// The attempts of each step, and their states.
fn attempts(world: &World) -> Vec<(u32, u32, StepState)> {
    let mut steps: Vec<_> = world
        .store
        .steps
        .iter()
        .map(|step| (step.ordinal, step.attempt, step.state))
        .collect();
    steps.sort_by_key(|(ordinal, attempt, _)| (*ordinal, *attempt));
    steps
}

#[test]
fn a_resumed_run_repeats_only_the_cell_that_was_not_done() {
    let io = |name: &str| {
        format!(
            "[[phase]]\nname = \"{name}\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]\n"
        )
    };
    let plan = format!("{IO_TARGETS}{}{NULL}{}", io("first"), io("last"));
    let mut world = world(&plan, 2, OnLoss::Continue);
    // The second mode of the first cell.
    world.run_until(|world| {
        let steps = &world.store.steps;
        steps
            .get(1)
            .is_some_and(|step| step.state == StepState::Running)
    });
    world.stop();
    world.run_until(|_| false);
    assert!(world.resume());
    world.run_to_end();
    world.check_end();
    assert_eq!(
        attempts(&world),
        [
            (1, 1, StepState::Done),
            (1, 2, StepState::Done),
            (2, 1, StepState::Stopped),
            (2, 2, StepState::Done),
            (3, 1, StepState::Done),
            (4, 1, StepState::Done),
            (5, 1, StepState::Done),
        ]
    );
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial, &run.reason),
        (RunState::Done, false, &None)
    );
    assert!(!world.resume(), "it is complete");
}

#[test]
fn a_resumed_run_can_be_stopped_in_the_queue() {
    let mut world = world(NULL, 1, OnLoss::Continue);
    world.run_until(is_running);
    world.stop();
    world.run_until(|_| false);
    assert!(world.resume());
    world.stop();
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Stopped);
    assert!(
        !world.store.ran.contains(&StepId(2)),
        "nothing was repeated"
    );
}
