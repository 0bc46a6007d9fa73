//! Tasks that are armed too late or again, and stops before, during and after it.

use crate::simulation::agent::{Faults, SimTaskState};
use crate::simulation::staged::{NULL, S, kinds, stage_is, world, world_of_seed};
use crate::simulation::world::{SimEvent, World};
use benchmesh_model::mesh::{RunState, StepState, TaskState};
use benchmesh_plan::OnLoss;

#[test]
fn all_agents_that_come_too_late_are_armed_again_with_more_time() {
    let mut world = world(NULL, 3, OnLoss::Continue);
    world.faults.late_arm = 1000;
    world.run_until(|world| kinds(world, "step-late").len() == 2);
    world.faults = Faults::default();
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Done);
    // The tasks of one attempt; none of them can have started.
    assert_eq!(world.store.steps.len(), 1);
}

#[test]
fn a_collector_that_is_too_slow_to_arm_names_the_delay_and_arms_again() {
    let mut world = world(NULL, 2, OnLoss::Continue);
    world.faults.late_ask = 1000;
    world.run_until(|world| kinds(world, "step-late").len() == 1);
    world.faults = Faults::default();
    world.run_to_end();
    world.check_end();
    let late = kinds(&world, "step-late");
    let why = "was not asked in time to arm its task: the collector was too slow";
    assert!(late.iter().all(|late| late.contains(why)), "{late:?}");
    assert_eq!(world.store.run.state, RunState::Done);
    // The tasks of one attempt; a task that was not asked cannot have started.
    assert_eq!(world.store.steps.len(), 1);
}

#[test]
fn a_step_that_could_not_be_armed_has_no_start_instant() {
    let plan = "[[phase]]\nworkload = \"null\"\nstagger = \"1s\"\n";
    let mut world = world(plan, 2, OnLoss::Continue);
    world.faults.late_arm = 1000;
    world.run_until(|_| false);
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Failed);
    assert!(!kinds(&world, "step-late").is_empty());
    let steps = world.store.steps.iter().filter_map(|step| step.start);
    let tasks = world.store.tasks.iter().filter_map(|task| task.start);
    assert_eq!((steps.count(), tasks.count()), (0, 0));
}

fn is_armed(world: &World, agent: usize) -> bool {
    let mut tasks = world.agents[agent].tasks.values();
    tasks.any(|task| matches!(task.state, SimTaskState::Running { .. }))
}

fn has_ended(world: &World, agent: usize) -> bool {
    let mut tasks = world.agents[agent].tasks.values();
    tasks.any(|task| matches!(task.state, SimTaskState::Ended(_)))
}

/// The run was stopped while the tasks of a step that was not armed in time were being stopped, and its only task had
/// run to its end all the same.
fn check_done_with_its_start(mut world: World) {
    world.run_until(|world| has_ended(world, 0));
    world.stop();
    world.run_to_end();
    world.check_end();
    let (step, task) = (&world.store.steps[0], &world.store.tasks[0]);
    assert_eq!(
        (step.state, task.state, world.store.run.state),
        (StepState::Done, TaskState::Done, RunState::Stopped)
    );
    assert!(
        step.start.is_some() && step.start == task.start,
        "{step:?}\n{task:?}"
    );
}

#[test]
fn a_stop_during_the_closing_of_a_failed_arming_keeps_the_start_instant() {
    let mut world = world(NULL, 1, OnLoss::Continue);
    world.run_until(|world| is_armed(world, 0));
    // Its confirmation is lost.
    world.detach(0);
    world.run_until(|world| stage_is(world, "Closing(Retry"));
    world.faults.ignores_stop = 1000;
    world.attach(0);
    check_done_with_its_start(world);
}

#[test]
fn a_stop_during_the_closing_after_a_restart_keeps_the_start_instant() {
    let mut world = world(NULL, 1, OnLoss::Continue);
    world.run_until(|world| is_armed(world, 0) && world.store.steps[0].start.is_some());
    world.crash();
    world.run_until(|world| stage_is(world, "Closing(Again"));
    world.faults.ignores_stop = 1000;
    world.attach(0);
    check_done_with_its_start(world);
}

#[test]
fn a_step_that_is_stopped_before_its_start_has_no_start_instant() {
    let mut world = world(NULL, 2, OnLoss::Continue);
    world.run_until(|world| (0..2).all(|agent| is_armed(world, agent)));
    world.stop();
    world.run_to_end();
    world.check_end();
    let step = &world.store.steps[0];
    assert_eq!((step.state, step.partial), (StepState::Stopped, false));
    let steps = world.store.steps.iter().filter_map(|step| step.start);
    let tasks = world.store.tasks.iter().filter_map(|task| task.start);
    assert_eq!((steps.count(), tasks.count()), (0, 0));
}

#[test]
fn a_task_whose_last_rows_are_missing_is_not_armed_again() {
    let mut world = world(NULL, 2, OnLoss::Continue);
    world.run_until(|world| is_armed(world, 0) != is_armed(world, 1));
    let armed = usize::from(is_armed(&world, 1));
    // The other one is refused, and this one is cut off before its spool is stored.
    world.faults.late_arm = 1000;
    world.run_until(|world| stage_is(world, "Closing(Retry"));
    world.blocked = true;
    world.run_until(|world| stage_is(world, "StoringRows(Retry"));
    world.faults = Faults::default();
    world.detach(armed);
    world.run_event(SimEvent::Unblock);
    world.run_until(|world| world.store.steps.len() == 2);
    world.run_to_end();
    world.check_end();
    let states: Vec<StepState> = world.store.steps.iter().map(|step| step.state).collect();
    assert_eq!(states, [StepState::Failed, StepState::Done]);
}

#[test]
fn a_task_that_is_armed_again_is_no_leftover() {
    // In some of them its agent attaches between the end of its first arming and the second one.
    for seed in 1..=100 {
        let mut world = world_of_seed(seed, NULL, 2, OnLoss::Continue);
        world.run_until(|world| is_armed(world, 0) != is_armed(world, 1));
        let armed = usize::from(is_armed(&world, 1));
        world.faults.late_arm = 1000;
        world.run_until(|world| stage_is(world, "Closing(Retry"));
        world.faults = Faults::default();
        world.detach(armed);
        let back = world.now + S / 20;
        world.at(back, SimEvent::Attach { agent: armed });
        world.run_to_end();
        world.check_end();
        let run = &world.store.run;
        assert_eq!((run.state, run.partial), (RunState::Done, false), "{seed}");
    }
}
