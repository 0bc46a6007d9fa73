//! Ends of a run, a loop or a step that are no loss: an alarm, a request, a steady load.

use crate::simulation::staged::{IO, NULL, S, is_running, kinds, run_end, stage_is, world};
use crate::simulation::world::World;
use benchmesh_model::mesh::{RunState, StepState, TaskState};
use benchmesh_plan::OnLoss;

const STEADY: &str = "[[phase]]\nworkload = \"null\"\nruntime = \"60s\"\nrate_iops = 100\nuntil = \"steady\"\n\
                      ss = \"iops:5%\"\nss_dur = \"10s\"\n";

#[test]
fn an_alarm_ends_a_run_as_failed_and_one_that_comes_late_changes_nothing() {
    let mut world = world(IO, 2, OnLoss::Continue);
    world.run_until(is_running);
    world.abort();
    world.run_to_end();
    let run = world.store.run.clone();
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(run.reason.as_deref(), Some("too slow"));
    assert!(run.partial && run.halted.is_some());
    assert!(world.disks.is_empty(), "{:?}", world.store.events);
    world.abort();
    assert_eq!(world.store.run.ended, run.ended);
}

/// Its tasks are stopped as soon as the load is steady, and they are done.
fn ends_well(world: &World) {
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial),
        (RunState::Done, false),
        "{:?}",
        run.reason
    );
    assert_eq!(run.halted, None);
    let step = world.store.steps.last().unwrap();
    assert_eq!((step.state, step.partial), (StepState::Done, false));
    for task in world.store.tasks.iter().filter(|task| task.step == step.id) {
        assert_eq!(task.state, TaskState::Done);
        assert_eq!(task.error.clone().unwrap_or_default(), "");
    }
    assert_eq!(kinds(world, "task-stopped"), [""; 0]);
    assert_eq!(kinds(world, "step-failed"), [""; 0]);
    assert_eq!(kinds(world, "not-steady"), [""; 0]);
}

#[test]
fn a_steady_load_ends_its_step_regularly() {
    let mut world = world(STEADY, 3, OnLoss::Abort);
    world.run_to_end();
    ends_well(&world);
    let steady = kinds(&world, "steady");
    assert_eq!(steady.len(), 1, "{steady:?}");
    assert!(
        steady[0].contains("is steady after 10 s: mean"),
        "{steady:?}"
    );
}

#[test]
fn a_load_that_is_never_steady_has_an_event() {
    let text = STEADY.replace("\"10s\"", "\"20s\"");
    let mut world = world(&text, 2, OnLoss::Abort);
    world.run_to_end();
    assert_eq!(world.store.run.state, RunState::Done);
    let told = [kinds(&world, "steady"), kinds(&world, "not-steady")].concat();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("is not steady in "), "{told:?}");
}

/// A plan that cannot work does not fill the database. The pause ends with a request, or when it is over.
#[test]
fn a_loop_that_measured_nothing_is_followed_by_a_pause() {
    type End = fn(&mut World);
    let ends: [(End, usize, RunState); 3] = [
        (World::stop, 1, RunState::Stopped),
        (World::end_after_loop, 1, RunState::Failed),
        (|_| {}, 3, RunState::Failed),
    ];
    for (end, loops, state) in ends {
        let mut world = world(&format!("loops = 3\n{NULL}"), 1, OnLoss::Continue);
        world.faults.refuses_prepare = 1000;
        world.run_until(|world| stage_is(world, "PausingLoops"));
        let began = world.now;
        end(&mut world);
        world.run_until(|world| world.store.run.state.is_end());
        let pauses = i64::try_from(loops).unwrap() - 1;
        let took = (world.now - began) / (60 * S);
        assert_eq!((run_end(&world).0, took), (state, pauses));
        assert_eq!(world.store.steps.len(), loops);
        world.run_to_end();
        world.check_end();
    }
}
