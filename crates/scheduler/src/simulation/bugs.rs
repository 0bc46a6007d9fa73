//! Regression tests: each is the schedule of a bug that was found in use.

use super::{
    agent::{Faults, SimTaskState},
    plans::planned,
    world::{FaultMode, SimEvent, World},
};
use benchmesh_model::mesh::{AgentId, RunState, StepId, StepState, TaskState};
use benchmesh_plan::OnLoss;
use benchmesh_workloads::random::Random;
use std::time::Duration;

const IO: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
const IO_TARGETS: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n";
const NULL: &str = "[[phase]]\nworkload = \"null\"\n";
const LINKS: &str = "[[phase]]\nworkload = \"null\"\n[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nruntime = \"5s\"\n";
const S: i64 = 1_000_000;

pub(super) fn world(plan: &str, agents: usize, on_loss: OnLoss) -> World {
    world_of_seed(1, plan, agents, on_loss)
}

fn world_of_seed(seed: u64, plan: &str, agents: usize, on_loss: OnLoss) -> World {
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

pub(super) fn kinds(world: &World, kind: &str) -> Vec<String> {
    let events = world.store.events.iter();
    let of_kind = events.filter(|event| event.kind == kind);
    of_kind.map(|event| event.message.clone()).collect()
}

#[test]
fn an_unconfirmed_directory_has_an_event_and_is_removed_later() {
    let mut world = world(IO, 1, OnLoss::Continue);
    world.run_until(|world| !world.disks.is_empty());
    // It is there, and the answer does not come.
    world.detach(0);
    world.stop();
    world.run_until(|_| false);
    assert_eq!(world.store.run.state, RunState::Stopped);
    let messages = kinds(&world, "directory-left");
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("may stay on agent `a`"),
        "{messages:?}"
    );
    world.run_to_end();
    assert!(world.disks.is_empty());
    assert_eq!(kinds(&world, "directory-removed").len(), 1);
}

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

const STEADY: &str = "[[phase]]\nworkload = \"null\"\nruntime = \"60s\"\nrate_iops = 100\nuntil = \"steady\"\nss = \"iops:5%\"\nss_dur = \"10s\"\n";

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

#[test]
fn an_unconfirmed_directory_is_removed_after_a_restart_of_the_collector() {
    let mut world = world(IO, 1, OnLoss::Continue);
    world.run_until(|world| !world.disks.is_empty());
    world.crash();
    let now = world.mesh_now();
    world.store.store_stop_request(String::from("enough"), now);
    world.run_to_end();
    assert_eq!(world.store.run.state, RunState::Stopped);
    assert!(world.disks.is_empty(), "{:?}", world.store.events);
}

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
    // The agent that was done is started again, and knows nothing of its task.
    world.agents[done.unwrap()].restart();
    world.run_until(|world| world.machine.is_some());
    for agent in 0..2 {
        world.attach(agent);
    }
    world.run_to_end();
    world.check_end();
    assert_eq!(
        (world.store.run.state, world.store.run.partial),
        (RunState::Done, false)
    );
    assert_eq!(kinds(&world, "agent-lost"), [] as [String; 0]);
}

/// Both agents go on with the step that an older copy of the database has as running, and one of them drops its task
/// because the copy has less than was acknowledged to it: nobody was started again.
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
        let run = &world.store.run;
        assert_eq!((run.state, run.partial), (RunState::Done, false));
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
    let run = &world.store.run;
    assert_eq!((run.state, run.partial), (RunState::Done, false));
    assert!(world.store.steps[0].ended.unwrap().0 >= late);
    assert_eq!(kinds(&world, "rows-missing"), [] as [String; 0]);
}

#[test]
fn rows_that_stay_missing_after_a_restart_have_an_event() {
    let (mut world, done) = ended_without_rows(OnLoss::Continue);
    world.attach(1 - done);
    world.run_until(|_| false);
    let run = &world.store.run;
    assert_eq!((run.state, run.partial), (RunState::Done, true));
    assert_eq!(kinds(&world, "rows-missing").len(), 1);
}

#[test]
fn on_loss_decides_about_rows_that_stay_missing() {
    let (mut world, done) = ended_without_rows(OnLoss::Abort);
    world.attach(1 - done);
    world.run_until(|_| false);
    let run = &world.store.run;
    assert_eq!((run.state, run.partial), (RunState::Failed, true));
    let reason = run.reason.as_deref().unwrap_or_default();
    assert!(
        reason.contains("are missing") && reason.contains("on-loss"),
        "{reason}"
    );
}

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
fn a_hanging_removal_does_not_block_other_removals() {
    let two = format!("[targets.b]\nsystem = \"sb\"\npath = \"/mnt/b\"\n{IO}");
    let mut world = world(&two, 1, OnLoss::Continue);
    world.run_until(|world| world.disks.len() == 2);
    world.detach(0);
    world.stop();
    world.run_until(|_| false);
    assert_eq!(kinds(&world, "directory-left").len(), 2);
    let first = world.store.directories_left(AgentId(1)).remove(0).path;
    world.faults.hangs_on = Some(if first == "/mnt/a" {
        "/mnt/a"
    } else {
        "/mnt/b"
    });
    world.run_to_end();
    let left: Vec<&String> = world.disks.keys().map(|(path, _)| path).collect();
    assert_eq!(left, [&first]);
    assert_eq!(kinds(&world, "directory-removed").len(), 1);
}

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

/// What an earlier end left is being removed when the run is resumed: a directory that is opened again would lose its
/// data.
#[test]
fn a_resumed_run_waits_until_its_old_directory_is_removed() {
    let mut world = world(IO, 1, OnLoss::Continue);
    world.run_until(|world| !world.disks.is_empty());
    world.detach(0);
    world.stop();
    world.run_until(|_| false);
    assert_eq!(kinds(&world, "directory-left").len(), 1);
    world.faults.hangs_on = Some("/mnt/a");
    world.attach(0);
    world.run_until(|world| world.is_removing("/mnt/a"));
    assert!(world.resume());
    let until = world.now + 60 * S;
    world.at(until, SimEvent::RowsStored);
    world.run_until(|world| world.now >= until);
    assert_eq!(world.store.run.state, RunState::Queued);
    assert!(world.is_removing("/mnt/a"));
    // The removal is given up.
    world.run_until(|world| world.store.run.state == RunState::Running);
    assert!(!world.is_removing("/mnt/a"));
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

#[test]
fn an_agent_that_never_prepares_is_lost_with_its_name() {
    let mut world = world(IO, 2, OnLoss::Continue);
    world.faults = Faults {
        never_prepares: 1000,
        ..Faults::default()
    };
    world.run_until(|_| false);
    let lost = kinds(&world, "agent-lost");
    assert_eq!(lost.len(), 2, "{lost:?}");
    for name in ["`a`", "`b`"] {
        let why = format!("agent {name} did not prepare its task within 1800.0s");
        assert!(lost.iter().any(|lost| lost.starts_with(&why)), "{lost:?}");
    }
    assert_eq!(world.store.steps[0].state, StepState::Failed);
}

/// A group with a rate says nothing of the other group's operations.
#[test]
fn an_agent_that_never_begins_is_lost_beside_a_group_with_a_rate() {
    const LOAD: &str = "clients = 1\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
    let plan = format!(
        "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[[phase]]\n\
         [[phase.group]]\nname = \"x\"\n{LOAD}runtime = \"60s\"\nrate_iops = 50\n\
         [[phase.group]]\nname = \"y\"\n{LOAD}"
    );
    let mut world = world(&plan, 2, OnLoss::Continue);
    world.faults = Faults {
        never_begins: 1000,
        ..Faults::default()
    };
    world.run_until(|world| !kinds(world, "agent-lost").is_empty());
    let lost = kinds(&world, "agent-lost");
    assert!(
        lost.len() == 1 && lost[0].starts_with("agent `b` confirmed its start but has not begun"),
        "{lost:?}"
    );
}

#[test]
fn a_lost_peer_makes_the_run_partial_under_on_loss_continue() {
    let mut world = world(LINKS, 2, OnLoss::Continue);
    world.run_until(is_running);
    world.detach(1);
    world.run_until(|_| false);
    assert_eq!(
        (world.store.run.state, world.store.run.partial),
        (RunState::Done, true)
    );
    let states: Vec<StepState> = world.store.steps.iter().map(|step| step.state).collect();
    assert_eq!(
        states,
        [StepState::Done, StepState::Failed, StepState::Failed]
    );
}

#[test]
fn a_run_without_any_measurement_fails_under_any_policy() {
    let mut world = world(NULL, 1, OnLoss::Continue);
    world.run_until(is_running);
    world.detach(0);
    world.run_until(|_| false);
    assert_eq!(world.store.run.state, RunState::Failed);
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
fn all_agents_that_come_too_late_are_armed_again_with_more_time() {
    let mut world = world(NULL, 3, OnLoss::Continue);
    world.faults = Faults {
        late_arm: 1000,
        ..Faults::default()
    };
    world.run_until(|world| kinds(world, "step-late").len() == 2);
    world.faults = Faults::default();
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Done);
    // Of one attempt: none of them can have started.
    assert_eq!(world.store.steps.len(), 1);
}

#[test]
fn a_collector_that_is_too_slow_to_arm_names_the_delay_and_arms_again() {
    let mut world = world(NULL, 2, OnLoss::Continue);
    world.faults = Faults {
        late_ask: 1000,
        ..Faults::default()
    };
    world.run_until(|world| kinds(world, "step-late").len() == 1);
    world.faults = Faults::default();
    world.run_to_end();
    world.check_end();
    let late = kinds(&world, "step-late");
    let why = "was not asked in time to arm its task: the collector was too slow";
    assert!(late.iter().all(|late| late.contains(why)), "{late:?}");
    assert_eq!(world.store.run.state, RunState::Done);
    // Of one attempt: a task that was not asked cannot have started.
    assert_eq!(world.store.steps.len(), 1);
}

#[test]
fn a_step_that_could_not_be_armed_has_no_start_instant() {
    let plan = "[[phase]]\nworkload = \"null\"\nstagger = \"1s\"\n";
    let mut world = world(plan, 2, OnLoss::Continue);
    world.faults = Faults {
        late_arm: 1000,
        ..Faults::default()
    };
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

fn stage_is(world: &World, stage: &str) -> bool {
    let machine = world.machine.as_ref();
    machine.is_some_and(|machine| machine.stage().starts_with(stage))
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
    assert_eq!(world.store.steps[0].state, StepState::Stopped);
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

#[test]
fn a_receiver_that_attaches_as_its_sender_is_lost_stops_listening() {
    let plan = "[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nfrom = [\"b\"]\nto = [\"a\"]\nruntime = \"5s\"\n";
    // In some of them the machine hears late that the receiver is there.
    for seed in 1..=100 {
        let mut world = world_of_seed(seed, plan, 2, OnLoss::Continue);
        world.detach(1);
        world.detach(0);
        let back = world.now + 3 * S - 1000;
        world.at(back, SimEvent::Attach { agent: 0 });
        world.run_to_end();
        world.check_end();
    }
}
