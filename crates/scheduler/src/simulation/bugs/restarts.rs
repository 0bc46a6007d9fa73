//! Starts of the collector with the database that it left, or an older one.

use crate::simulation::staged::{NULL, S, is_running, kinds, run_end, world, world_of_seed};
use crate::simulation::world::{SimEvent, World};
use benchmesh_model::mesh::{RunState, TaskState};
use benchmesh_plan::OnLoss;

#[test]
fn a_stored_end_of_a_task_is_not_asked_for_after_a_restart() {
    let mut world = world(NULL, 2, OnLoss::Abort);
    world.run_until(|world| {
        let ended = world.store.tasks.iter();
        is_running(world) && ended.filter(|task| task.state == TaskState::Done).count() == 1
    });
    let done = world
        .store
        .tasks
        .iter()
        .position(|task| task.state == TaskState::Done);
    world.crash();
    // The agent whose task is done restarts, and no longer knows the task.
    world.agents[done.unwrap()].restart();
    world.run_until(|world| world.machine.is_some());
    for agent in 0..2 {
        world.attach(agent);
    }
    world.run_to_end();
    world.check_end();
    assert_eq!(run_end(&world), (RunState::Done, false));
    assert_eq!(kinds(&world, "agent-lost"), [] as [String; 0]);
}

/// Both agents go on with the step that an older copy of the database has as running, and one of them drops its task
/// because the copy has less than was acknowledged to it: no task was started again.
#[test]
fn a_step_of_a_restored_database_is_repeated_and_nobody_is_lost() {
    for held_by_the_other in [true, false] {
        let mut world = world(NULL, 2, OnLoss::AtLeast(2));
        world.run_until(is_running);
        world.crash();
        world.agents[0].restart();
        world.agents[0].was_ahead = true;
        if !held_by_the_other {
            world.agents[1].restart();
            world.agents[1].was_ahead = true;
        }
        world.run_until(|world| world.machine.is_some());
        // The one that still holds its task is first: the step is awaited.
        world.attach(1);
        world.attach(0);
        world.run_to_end();
        world.check_end();
        assert_eq!(run_end(&world), (RunState::Done, false));
        assert_eq!(kinds(&world, "agent-lost"), [] as [String; 0]);
    }
}

/// A collector that is started again after it had stored the end of a task and not its rows; which task that is.
fn ended_without_rows(on_loss: OnLoss) -> (World, usize) {
    let without_rows = |world: &World| {
        let mut tasks = world.store.tasks.iter();
        tasks.position(|task| task.state == TaskState::Done && task.start.is_none())
    };
    let mut found = (1..100).filter_map(|seed| {
        let mut world = world_of_seed(seed, NULL, 2, on_loss);
        world.run_until(|world| without_rows(world).is_some());
        let done = without_rows(&world)?;
        world.crash();
        world.run_until(|world| world.machine.is_some());
        without_rows(&world).map(|_| (world, done))
    });
    found
        .next()
        .expect("a seed in which an end is stored before its rows")
}

#[test]
fn missing_rows_of_an_ended_task_are_awaited_after_a_restart() {
    let (mut world, done) = ended_without_rows(OnLoss::Continue);
    // Its agent comes back late, and with it the rows of its task.
    let late = world.now + 2 * S;
    world.attach(1 - done);
    world.at(late, SimEvent::Attach { agent: done });
    world.run_to_end();
    world.check_end();
    assert_eq!(run_end(&world), (RunState::Done, false));
    assert!(world.store.steps[0].ended.unwrap().0 >= late);
    assert_eq!(kinds(&world, "rows-missing"), [] as [String; 0]);
}

#[test]
fn rows_that_stay_missing_after_a_restart_have_an_event() {
    let (mut world, done) = ended_without_rows(OnLoss::Continue);
    world.attach(1 - done);
    world.run_until(|_| false);
    assert_eq!(run_end(&world), (RunState::Done, true));
    assert_eq!(kinds(&world, "rows-missing").len(), 1);
}

#[test]
fn on_loss_decides_about_rows_that_stay_missing() {
    let (mut world, done) = ended_without_rows(OnLoss::Abort);
    world.attach(1 - done);
    world.run_until(|_| false);
    assert_eq!(run_end(&world), (RunState::Failed, true));
    let reason = world.store.run.reason.as_deref().unwrap_or_default();
    assert!(
        reason.contains("are missing") && reason.contains("on-loss"),
        "{reason}"
    );
}
