//! What `on-loss` makes of losses that leave the agent in place: a dead target on one of two clients, and links that
//! break.

use super::{
    agent::Hostile,
    world::{SimEvent, World},
};
use crate::simulation::staged::{is_running, kinds, world};
use benchmesh_model::mesh::{RunState, StepState, TaskState};
use benchmesh_plan::OnLoss;

const DATA: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[[phase]]\nname = \"p0\"\nworkload = \"io\"\nsize = \"1m\"\n\
                    modes = [\"write\", \"read\"]\n[[phase]]\nname = \"p1\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
const LINK: &str = "[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nruntime = \"5s\"\n";

fn states(world: &World) -> Vec<(StepState, bool)> {
    let steps = world.store.steps.iter();
    steps.map(|step| (step.state, step.partial)).collect()
}

#[test]
fn a_dead_target_on_one_client_leaves_the_others_to_go_on() {
    let mut world = world(DATA, 2, OnLoss::Continue);
    world.run_until(is_running);
    world.agents[1].target_is_dead = true;
    world.run_until(|_| false);
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial, run.reason.as_deref()),
        (RunState::Done, true, None)
    );
    assert_eq!(states(&world), [(StepState::Done, true); 3]);
    let limit = kinds(&world, "errors-limit");
    assert_eq!(limit.len(), 1, "{limit:?}");
    assert!(
        limit[0].starts_with("agent `b`: worker 0: errors-limit:")
            && limit[0].ends_with("; the step goes on with 1"),
        "{limit:?}"
    );
    // It is asked again in each later step, and refuses.
    let lost = kinds(&world, "target-lost");
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert_eq!(kinds(&world, "agent-lost"), [] as [String; 0]);
}

#[test]
fn a_target_that_is_back_is_used_in_the_next_step() {
    let mut world = world(DATA, 2, OnLoss::Continue);
    world.run_until(is_running);
    world.agents[1].target_is_dead = true;
    world.run_until(|world| kinds(world, "errors-limit").len() == 1);
    world.agents[1].target_is_dead = false;
    world.run_until(|_| false);
    assert_eq!(
        states(&world),
        [
            (StepState::Done, true),
            (StepState::Done, false),
            (StepState::Done, false)
        ]
    );
}

#[test]
fn a_dead_target_on_one_client_ends_the_run_where_the_policy_says_so() {
    for (policy, goes_on) in [
        (OnLoss::Abort, false),
        (OnLoss::AtLeast(2), false),
        (OnLoss::AtLeast(1), true),
    ] {
        let mut world = world(DATA, 2, policy);
        world.run_until(is_running);
        world.agents[1].target_is_dead = true;
        world.run_until(|_| false);
        let run = &world.store.run;
        let ends = match goes_on {
            true => RunState::Done,
            false => RunState::Failed,
        };
        assert_eq!((run.state, run.partial), (ends, true), "{policy:?}");
        if !goes_on {
            let reason = run.reason.clone().unwrap_or_default();
            assert!(
                reason.contains("errors-limit") && reason.contains("on-loss"),
                "{reason}"
            );
        }
    }
}

#[test]
fn a_target_that_is_dead_on_all_clients_fails_its_steps_and_names_the_first() {
    let mut world = world(DATA, 2, OnLoss::Continue);
    world.run_until(is_running);
    for agent in &mut world.agents {
        agent.target_is_dead = true;
    }
    world.run_until(|_| false);
    assert_eq!(world.store.run.state, RunState::Failed);
    let reason = world.store.steps[0].reason.clone().unwrap_or_default();
    assert!(
        reason.starts_with("no agent of the step is left: agent `a`: worker 0: errors-limit:"),
        "{reason}"
    );
}

/// The end of a task is stored, the verdict on its step is not.
#[test]
fn a_dead_target_is_a_loss_after_a_start_of_the_collector_too() {
    let mut world = world(DATA, 2, OnLoss::Continue);
    world.run_until(is_running);
    world.agents[1].target_is_dead = true;
    world.run_until(|world| {
        let mut tasks = world.store.tasks.iter();
        tasks.any(|task| task.state == TaskState::Failed)
    });
    world.crash();
    world.run_until(|world| world.machine.is_some());
    for agent in 0..2 {
        world.attach(agent);
    }
    world.run_to_end();
    let run = &world.store.run;
    assert_eq!((run.state, run.partial), (RunState::Done, true));
    // The collector was killed after the end was stored and before `on-loss` had decided.
    assert_eq!(kinds(&world, "errors-limit").len(), 1);
}

#[test]
fn a_broken_link_fails_its_step_and_not_the_run() {
    let null = "[[phase]]\nname = \"p0\"\nworkload = \"null\"\n";
    let mut world = world(&format!("{null}{LINK}"), 2, OnLoss::Continue);
    world.run_until(is_running);
    world.run_until(|world| world.store.steps[0].state == StepState::Done);
    world.faults.fails = 1000;
    world.run_until(|_| false);
    let run = &world.store.run;
    assert_eq!((run.state, run.partial), (RunState::Done, true));
    let broken = kinds(&world, "link-broken");
    assert!(
        broken.iter().any(|it| it.contains("Input/output error")),
        "{broken:?}"
    );
}

/// The receiver of a link does not answer any more, and its sender notices first, because it cannot open the link.
#[test]
fn a_link_to_a_stopped_receiver_is_a_loss() {
    let null = "[[phase]]\nname = \"p0\"\nworkload = \"null\"\n";
    let mut world = world(&format!("{null}{LINK}"), 2, OnLoss::Continue);
    world.run_until(|world| !world.agents[1].receivers.is_empty());
    world.faults.refuses_prepare = 1000;
    world.detach(1);
    world.run_until(|world| kinds(world, "agent-lost").len() == 1);
    world.faults.refuses_prepare = 0;
    let back = world.now + 1_000_000;
    world.at(back, SimEvent::Attach { agent: 1 });
    world.run_to_end();
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial),
        (RunState::Done, true),
        "{:?}",
        run.reason
    );
}

/// The receiver is there: the sender is refused by something else, such as a firewall, and that is the step's failure.
#[test]
fn a_link_that_cannot_be_opened_although_both_ends_are_there_fails_the_run() {
    let null = "[[phase]]\nname = \"p0\"\nworkload = \"null\"\n";
    let mut world = world(&format!("{null}{LINK}"), 2, OnLoss::Continue);
    world.run_until(|world| !world.agents[1].receivers.is_empty());
    world.faults.refuses_prepare = 1000;
    world.run_to_end();
    let run = &world.store.run;
    assert_eq!(run.state, RunState::Failed);
    assert!(
        run.reason
            .as_deref()
            .unwrap_or_default()
            .contains("the disk is full"),
        "{:?}",
        run.reason
    );
}

/// Its sender waits for it, so that no command fails.
#[test]
fn a_receiver_that_is_lost_while_the_load_runs_costs_its_links() {
    let phases = "[[phase]]\nname = \"p0\"\nworkload = \"null\"\n[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\n\
                  from = [\"a\"]\nto = [\"b\"]\nruntime = \"300s\"\n";
    let mut world = world(phases, 2, OnLoss::Continue);
    world.run_until(
        |world| matches!(world.store.steps.first(), Some(step) if step.state == StepState::Done),
    );
    // It runs until it is stopped.
    world.faults.hangs = 1000;
    world.run_until(is_running);
    for task in world.agents[0].tasks.values_mut() {
        task.hangs = false;
    }
    let began = world.now;
    world.detach(1);
    world.run_until(|world| kinds(world, "agent-lost").len() == 1);
    let took = world.now - began;
    assert!(
        took <= 3_500_000,
        "its silence is its loss, and it took {took} us"
    );
    let back = world.now + 1_000_000;
    world.at(back, SimEvent::Attach { agent: 1 });
    world.run_to_end();
    let run = &world.store.run;
    assert_eq!((run.state, run.partial), (RunState::Done, true));
    assert_eq!(
        states(&world),
        [(StepState::Done, false), (StepState::Failed, true)]
    );
}

const TWO_STEPS: &str = "[[phase]]\nname = \"p0\"\nworkload = \"null\"\n[[phase]]\nname = \"p1\"\nworkload = \"null\"\n";

/// One of three agents holds up the run. Returns the state of the run, and the events about the hostile agent.
fn beside(hostile: Hostile, plan: &str, policy: OnLoss) -> (World, i64) {
    let mut world = world(plan, 3, policy);
    world.agents[1].hostile = Some(hostile);
    let began = world.now;
    world.run_until(|world| world.store.run.state.is_end());
    let took = world.now - began;
    world.run_until(|_| false);
    world.check_end();
    (world, took)
}

#[test]
fn an_agent_that_reports_progress_for_ever_holds_up_one_step_for_half_an_hour() {
    for plan in [TWO_STEPS, DATA] {
        let (world, took) = beside(Hostile::PreparesForEver, plan, OnLoss::Continue);
        let run = &world.store.run;
        assert_eq!(
            (run.state, run.partial),
            (RunState::Done, true),
            "{:?}",
            run.reason
        );
        assert!(
            states(&world)
                .iter()
                .all(|step| *step == (StepState::Done, true))
        );
        // In the next steps it has no part: it would hold up each of them.
        let lost = kinds(&world, "agent-lost");
        assert_eq!(lost.len(), 1, "{lost:?}");
        let why = "agent `b` has not prepared its task within 30m; it takes no part in the rest of the run";
        assert!(lost[0].starts_with(why), "{lost:?}");
        assert!((1_800_000_000..1_900_000_000).contains(&took), "{took}");
    }
    let (world, _) = beside(Hostile::PreparesForEver, TWO_STEPS, OnLoss::Abort);
    assert_eq!(world.store.run.state, RunState::Failed);
    let reason = world.store.run.reason.clone().unwrap_or_default();
    assert!(
        reason.contains("agent `b`") && reason.contains("on-loss"),
        "{reason}"
    );
}

/// Only this agent lays out data, so there is no other to compare it with: it has 24 h.
#[test]
fn agents_that_are_all_slow_are_not_late() {
    let mut world = world(TWO_STEPS, 2, OnLoss::Continue);
    for agent in &mut world.agents {
        agent.hostile = Some(Hostile::PreparesForEver);
    }
    let began = world.now;
    world.run_until(|world| !kinds(world, "agent-lost").is_empty());
    assert!(world.now - began >= 24 * 3_600_000_000);
}

#[test]
fn an_agent_that_never_answers_a_start_costs_no_step() {
    let (world, _) = beside(Hostile::IgnoresArm, TWO_STEPS, OnLoss::Continue);
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial),
        (RunState::Done, true),
        "{:?}",
        run.reason
    );
    let lost = kinds(&world, "agent-lost");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(
        lost[0].starts_with("agent `b` has not confirmed its start 5 times"),
        "{lost:?}"
    );
    let (world, _) = beside(Hostile::IgnoresArm, TWO_STEPS, OnLoss::AtLeast(3));
    assert_eq!(world.store.run.state, RunState::Failed);
}

#[test]
fn an_agent_that_cannot_prepare_leaves_the_others_to_go_on() {
    let (world, _) = beside(Hostile::RefusesPrepare, DATA, OnLoss::Continue);
    let run = &world.store.run;
    assert_eq!(
        (run.state, run.partial),
        (RunState::Done, true),
        "{:?}",
        run.reason
    );
    assert_eq!(states(&world), [(StepState::Done, true); 3]);
    // It is asked again in each step: what it lacks may be there by then.
    let refused = kinds(&world, "prepare-failed");
    assert_eq!(
        refused,
        vec!["agent `b`: the disk is full; the step goes on with 2"; 3]
    );
    for policy in [OnLoss::Abort, OnLoss::AtLeast(3)] {
        let (world, _) = beside(Hostile::RefusesPrepare, DATA, policy);
        assert_eq!(world.store.run.state, RunState::Failed);
        let reason = world.store.steps[0].reason.clone().unwrap_or_default();
        assert_eq!(reason, "agent `b`: the disk is full", "{policy:?}");
    }
}

#[test]
fn a_step_that_nobody_can_prepare_fails_with_the_first_reason() {
    let mut world = world(DATA, 3, OnLoss::Continue);
    world.faults.refuses_prepare = 1000;
    world.run_until(|_| false);
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Failed);
    let reason = world.store.steps[0].reason.clone().unwrap_or_default();
    assert!(reason.ends_with(": the disk is full"), "{reason}");
}

#[test]
fn a_failed_step_ends_its_cell_and_not_the_run() {
    let mut world = world(DATA, 1, OnLoss::Continue);
    world.faults.refuses_prepare = 1000;
    world.run_until(|world| states(world).first() == Some(&(StepState::Failed, true)));
    world.faults.refuses_prepare = 0;
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Failed);
    let ends: Vec<(StepState, Option<&str>)> = world
        .store
        .steps
        .iter()
        .map(|step| (step.state, step.reason.as_deref()))
        .collect();
    assert_eq!(
        ends,
        [
            (StepState::Failed, Some("agent `a`: the disk is full")),
            (
                StepState::Failed,
                Some("an earlier mode of the cell failed")
            ),
            (StepState::Done, None),
        ]
    );
    assert!(world.disks.is_empty(), "{:?}", world.disks);
}

#[test]
fn a_mode_that_the_target_does_not_support_leaves_the_others_of_its_cell() {
    let mut world = world(
        &DATA.replace("\"read\"]", "\"read\", \"randread\"]"),
        1,
        OnLoss::Continue,
    );
    world.faults.unsupported = Some("read");
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Failed);
    let states: Vec<StepState> = world.store.steps.iter().map(|step| step.state).collect();
    let done = StepState::Done;
    assert_eq!(states, [done, StepState::Failed, done, done]);
    assert_eq!(
        kinds(&world, "mode-left-out"),
        [
            "step 2 (p0 read on a) cannot run there and is skipped; the other modes of its cell continue"
        ]
    );
}

#[test]
fn an_agent_that_starts_at_another_instant_fails_the_step() {
    let mut world = world(TWO_STEPS, 2, OnLoss::Continue);
    world.faults.starts_apart = 1000;
    world.run_to_end();
    world.check_end();
    assert_eq!(world.store.run.state, RunState::Failed);
    let reason = world.store.steps[0].reason.clone().unwrap_or_default();
    assert!(
        reason.ends_with(": it started 2000000 us away from the instant that it had confirmed"),
        "{reason}"
    );
}
