//! Worlds without random faults, for tests that stage their own, and what those tests look at.

use super::{
    plans::planned,
    world::{FaultMode, World},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{RunState, StepState};
use benchmesh_plan::OnLoss;
use benchmesh_workloads::random::Random;
use std::time::Duration;

pub(super) const IO: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n\
                             [[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
pub(super) const NULL: &str = "[[phase]]\nworkload = \"null\"\n";
pub(super) const S: i64 = 1_000_000;

pub(super) fn world(plan: &str, agents: usize, on_loss: OnLoss) -> World {
    world_of_seed(1, plan, agents, on_loss)
}

pub(super) fn world_of_seed(seed: u64, plan: &str, agents: usize, on_loss: OnLoss) -> World {
    let mut world = World::with(
        seed,
        Random::new(seed),
        planned(plan, agents),
        FaultMode::None,
    );
    world.policy.on_loss = on_loss;
    world.policy.loss_after = Duration::from_secs(3);
    world.policy.lease = Duration::from_secs(30);
    for agent in &mut world.agents {
        agent.file_system = 0;
    }
    world.start_collector();
    world
}

pub(super) fn is_running(world: &World) -> bool {
    let steps = &world.store.steps;
    steps.iter().any(|step| step.state == StepState::Running)
}

pub(super) fn stage_is(world: &World, stage: &str) -> bool {
    let machine = world.machine.as_ref();
    machine.is_some_and(|machine| machine.stage().starts_with(stage))
}

pub(super) fn kinds(world: &World, kind: &str) -> Vec<String> {
    let kind = EventKind::parse(kind).unwrap();
    let events = world.store.events.iter();
    let of_kind = events.filter(|event| event.kind == kind);
    of_kind.map(|event| event.message.clone()).collect()
}

/// The state in which the run ended, and whether it is partial.
pub(super) fn run_end(world: &World) -> (RunState, bool) {
    (world.store.run.state, world.store.run.partial)
}
