//! A database that cannot be written holds up neither a loss nor a stop.

use crate::simulation::agent::SimTaskState;
use crate::simulation::staged::{S, is_running, stage_is, world};
use crate::simulation::world::{SimEvent, World};
use benchmesh_model::mesh::StepState;
use benchmesh_plan::OnLoss;

#[test]
fn an_agent_that_reattaches_during_a_stop_is_stopped_while_the_database_is_blocked() {
    let mut world = world(
        "[[phase]]\nworkload = \"null\"\nruntime = \"600s\"\n",
        2,
        OnLoss::Continue,
    );
    world.run_until(is_running);
    world.detach(1);
    world.blocked = true;
    world.stop();
    let back = world.now + 5 * S;
    world.at(back, SimEvent::Attach { agent: 1 });
    let stopped = |world: &World| world.agents[1].tasks.values().all(|task| task.stopped);
    world.run_until(stopped);
    assert!(
        world.blocked && world.now - back < S,
        "{}",
        world.now - back
    );
}

#[test]
fn a_database_that_cannot_be_written_does_not_delay_a_loss() {
    let mut world = world(
        "[[phase]]\nworkload = \"null\"\nruntime = \"600s\"\n",
        2,
        OnLoss::Abort,
    );
    // Loads do not end by themselves.
    world.faults.hangs = 1000;
    world.run_until(is_running);
    world.blocked = true;
    let cut = world.now;
    world.detach(1);
    let stopped = |world: &World| world.agents[0].tasks.values().any(|task| task.stopped);
    world.run_until(stopped);
    assert!(world.blocked);
    let took = world.now - cut;
    assert!((3 * S..4 * S).contains(&took), "{took}");
    assert_eq!(world.store.run.reason, None);
}

#[test]
fn an_agent_that_returns_with_a_task_of_an_earlier_step_is_stopped_while_the_database_is_blocked() {
    let phase = |name| {
        format!(
            "[[phase]]\nname = \"{name}\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n"
        )
    };
    let targets = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n";
    let plan = format!("{targets}{}{}", phase("first"), phase("second"));
    let mut world = world(&plan, 2, OnLoss::Continue);
    let is_prepared = |world: &World| {
        let mut tasks = world.agents[1].tasks.values();
        tasks.any(|task| task.state == SimTaskState::Prepared)
    };
    world.run_until(is_prepared);
    world.detach(1);
    world.run_until(|world| world.store.steps[0].state == StepState::Done);
    // The tasks of the next step wait to be stored, and everything behind them.
    world.blocked = true;
    world.run_until(|world| stage_is(world, "MakingTasks"));
    world.attach(1);
    let back = world.now;
    let stopped = |world: &World| world.agents[1].loads().next().is_none();
    assert!(!stopped(&world));
    world.run_until(|world| stopped(world) || world.now > back + S);
    assert!(world.blocked && stopped(&world));
}
