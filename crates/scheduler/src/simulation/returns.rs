//! Lost clients that come back into their running step.

use super::{
    plans::planned,
    staged::{is_running, kinds, world},
    world::{FaultMode, SimEvent, World},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunState, StepState, TaskState};
use benchmesh_plan::OnLoss;
use benchmesh_store::rows::TaskRow;
use benchmesh_workloads::random::Random;
use std::time::Duration;

const S: i64 = 1_000_000;
const TIMED: &str = "[[phase]]\nworkload = \"null\"\nruntime = \"120s\"\n";
const ON_TARGET: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\n\
                         modes = [\"randread\"]\nruntime = \"120s\"\n[[phase]]\nname = \"next\"\nworkload = \"null\"\n";

/// Loads last as long as their plan says.
fn timed(plan: &str, agents: usize, on_loss: OnLoss) -> World {
    let mut world = world(plan, agents, on_loss);
    world.faults.lasts_us = Some(120 * S);
    world.run_until(is_running);
    world
}

fn run_for(world: &mut World, seconds: i64) {
    let until = world.now + seconds * S;
    // Something that happens then, and changes nothing.
    world.at(until, SimEvent::TargetIsBack { agent: 0 });
    world.run_until(|world| world.now >= until);
}

/// The tasks of an agent in the first step, in order.
fn parts(world: &World, agent: usize) -> Vec<TaskRow> {
    let step = world.store.steps[0].id;
    let mut tasks = world.store.tasks_of(step);
    tasks.retain(|task| task.agent == world.agents[agent].id);
    tasks
}

fn states(tasks: &[TaskRow]) -> Vec<(u32, TaskState)> {
    tasks.iter().map(|task| (task.part, task.state)).collect()
}

fn ends_done_and_partial(world: &World) {
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial),
        (RunState::Done, true),
        "{:?}",
        run.reason
    );
    let step = &world.store.steps[0];
    assert_eq!((step.state, step.partial), (StepState::Done, true));
}

const CAME_BACK: [(u32, TaskState); 2] = [(1, TaskState::Lost), (2, TaskState::Done)];

#[test]
fn an_agent_that_is_started_again_goes_on_with_the_next_part() {
    for plan in [TIMED, ON_TARGET] {
        let mut world = timed(plan, 3, OnLoss::Continue);
        let start = world.store.steps[0].start.unwrap();
        run_for(&mut world, 30);
        world.run_event(SimEvent::RestartAgent { agent: 1 });
        world.run_to_end();
        world.check_end();
        ends_done_and_partial(&world);
        let parts = parts(&world, 1);
        assert_eq!(states(&parts), CAME_BACK, "{plan}");
        let back = parts[1].start.unwrap();
        let after_s = (back.0 - start.0) / S;
        assert!((30..36).contains(&after_s), "{after_s}");
        // All ended at the common end.
        let ended = world.store.steps[0].ended.unwrap();
        assert!(ended.0 - start.0 < 122 * S, "{ended:?}");
        let returned = kinds(&world, "client-returned");
        assert_eq!(returned.len(), 1, "{returned:?}");
        assert!(
            returned[0].starts_with("agent `b` is back in the step after"),
            "{returned:?}"
        );
        assert_eq!(kinds(&world, "agent-back"), [""; 0]);
    }
}

#[test]
fn an_agent_without_contact_for_longer_than_its_lease_goes_on() {
    // Lost before its lease is over, and back before it is, or long after.
    for away in [10, 50] {
        let mut world = timed(TIMED, 2, OnLoss::Continue);
        run_for(&mut world, 20);
        world.detach(1);
        run_for(&mut world, away);
        world.attach(1);
        world.run_to_end();
        world.check_end();
        ends_done_and_partial(&world);
        assert_eq!(states(&parts(&world, 1)), CAME_BACK, "{away}");
        let events = world.store.events.iter();
        let detail = events
            .filter(|event| event.kind == EventKind::ClientReturned)
            .find_map(|event| event.detail_json.clone());
        let detail: serde_json::Value = serde_json::from_str(&detail.unwrap()).unwrap();
        let gap_s = detail["gap_us"].as_i64().unwrap() / S;
        assert!((away..away + 4).contains(&gap_s), "{gap_s} of {away}");
    }
}

/// The agent is never lost: it has stopped its load by itself, and says so when it is back.
#[test]
fn a_load_that_its_lease_has_stopped_goes_on() {
    let plan = planned(TIMED, 2);
    let mut world = World::with(1, Random::new(1), plan, FaultMode::None);
    world.faults.lasts_us = Some(120 * S);
    world.policy.on_loss = OnLoss::Abort;
    world.policy.lease = Duration::from_secs(2);
    world.policy.loss_after = Duration::from_secs(20);
    world.start_collector();
    world.run_until(is_running);
    run_for(&mut world, 20);
    world.detach(1);
    run_for(&mut world, 10);
    world.attach(1);
    world.run_to_end();
    world.check_end();
    ends_done_and_partial(&world);
    let expected = [(1, TaskState::Stopped), (2, TaskState::Done)];
    assert_eq!(states(&parts(&world, 1)), expected);
    assert_eq!(kinds(&world, "agent-lost"), [""; 0]);
    assert_eq!(kinds(&world, "client-returned").len(), 1);
}

#[test]
fn the_only_client_of_a_step_is_waited_for() {
    let mut world = timed(TIMED, 1, OnLoss::Continue);
    run_for(&mut world, 30);
    world.run_event(SimEvent::RestartAgent { agent: 0 });
    world.run_to_end();
    world.check_end();
    ends_done_and_partial(&world);
    assert_eq!(states(&parts(&world, 0)), CAME_BACK);
    let lost = kinds(&world, "agent-lost");
    assert!(
        lost[0].ends_with("the step waits for its return"),
        "{lost:?}"
    );
}

#[test]
fn an_agent_that_crashes_again_and_again_comes_back_ever_later() {
    let mut world = timed(TIMED, 2, OnLoss::Continue);
    for _ in 0..50 {
        world.run_event(SimEvent::RestartAgent { agent: 1 });
        run_for(&mut world, 2);
    }
    world.run_to_end();
    world.check_end();
    ends_done_and_partial(&world);
    let parts = parts(&world, 1);
    assert!((3..12).contains(&parts.len()), "{:?}", states(&parts));
}

/// The collector is started again while the client is away.
#[test]
fn a_client_that_was_lost_before_a_start_of_the_collector_goes_on() {
    let mut world = timed(TIMED, 3, OnLoss::Continue);
    run_for(&mut world, 10);
    world.detach(1);
    run_for(&mut world, 40);
    assert_eq!(states(&parts(&world, 1)), [(1, TaskState::Lost)]);
    world.run_event(SimEvent::Crash);
    world.run_event(SimEvent::StartCollector);
    for agent in [0, 2] {
        world.attach(agent);
    }
    run_for(&mut world, 10);
    world.run_event(SimEvent::RestartAgent { agent: 1 });
    world.run_to_end();
    world.check_end();
    ends_done_and_partial(&world);
    assert_eq!(states(&parts(&world, 1)), CAME_BACK);
    assert_eq!(kinds(&world, "client-returned").len(), 1);
}

#[test]
fn others_stay_out_until_the_next_step() {
    // Too late in the step; and a load that does not end by time.
    let by_amount = TIMED.replace("runtime", "ops = 1000000000\nruntime");
    for (plan, at) in [(TIMED, 112), (by_amount.as_str(), 20)] {
        let mut world = timed(plan, 2, OnLoss::Continue);
        run_for(&mut world, at);
        world.run_event(SimEvent::RestartAgent { agent: 1 });
        world.run_to_end();
        world.check_end();
        ends_done_and_partial(&world);
        assert_eq!(states(&parts(&world, 1)), [(1, TaskState::Lost)], "{plan}");
        assert_eq!(kinds(&world, "client-returned"), [""; 0]);
    }
    // The policy ends the run.
    let mut world = timed(TIMED, 2, OnLoss::Abort);
    run_for(&mut world, 20);
    world.run_event(SimEvent::RestartAgent { agent: 1 });
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Failed);
    assert_eq!(parts(&world, 1).len(), 1);
}

#[test]
fn a_rate_of_the_step_is_split_with_a_client_that_is_back() {
    let plan = format!("{TIMED}rate_iops = 100\nrate-per = \"step\"\n");
    let mut world = timed(&plan, 3, OnLoss::Continue);
    run_for(&mut world, 20);
    world.run_event(SimEvent::RestartAgent { agent: 1 });
    run_for(&mut world, 10);
    for agent in &world.agents {
        let running = agent.tasks.values().filter(|task| task.began.is_none());
        let shares: Vec<Option<u32>> = running.map(|task| task.rate_tasks).collect();
        assert_eq!(shares, [Some(3)]);
    }
    world.run_to_end();
    world.check_end();
    ends_done_and_partial(&world);
}

#[test]
fn a_stop_and_the_end_of_the_others_end_a_client_that_is_coming_back() {
    let mut world = timed(ON_TARGET, 2, OnLoss::Continue);
    run_for(&mut world, 20);
    world.run_event(SimEvent::RestartAgent { agent: 1 });
    world.run_until(|world| world.store.tasks.len() > 2);
    assert_eq!(world.store.tasks[2].start, None);
    world.stop();
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Stopped);
    let last = parts(&world, 1);
    assert!(
        matches!(last[1].state, TaskState::Stopped | TaskState::Lost),
        "{last:?}"
    );
    assert_eq!(last[1].start.map(|start: MeshMicros| start.0), None);
}
