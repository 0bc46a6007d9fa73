//! Agents that are lost, what they are lost for, and what that makes of the run.

use crate::simulation::staged::{
    IO, NULL, S, is_running, kinds, run_end, stage_is, world, world_of_seed,
};
use crate::simulation::world::SimEvent;
use benchmesh_model::mesh::{RunState, StepState};
use benchmesh_plan::OnLoss;

const LINKS: &str = "[[phase]]\nworkload = \"null\"\n\
                     [[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nruntime = \"5s\"\n";

#[test]
fn an_agent_that_never_prepares_is_lost_with_its_name() {
    let mut world = world(IO, 2, OnLoss::Continue);
    world.faults.never_prepares = 1000;
    world.run_until(|_| false);
    let lost = kinds(&world, "agent-lost");
    assert_eq!(lost.len(), 2, "{lost:?}");
    for name in ["`a`", "`b`"] {
        let why = format!("agent {name} did not prepare its task within 1800.0s");
        assert!(lost.iter().any(|lost| lost.starts_with(&why)), "{lost:?}");
    }
    assert_eq!(world.store.steps[0].state, StepState::Failed);
}

/// The operations of a group with a rate do not show how many the other group did.
#[test]
fn an_agent_that_never_begins_is_lost_beside_a_group_with_a_rate() {
    const LOAD: &str = "clients = 1\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
    let plan = format!(
        "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[[phase]]\n\
         [[phase.group]]\nname = \"x\"\n{LOAD}runtime = \"60s\"\nrate_iops = 50\n\
         [[phase.group]]\nname = \"y\"\n{LOAD}"
    );
    let mut world = world(&plan, 2, OnLoss::Continue);
    world.faults.never_begins = 1000;
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
    assert_eq!(run_end(&world), (RunState::Done, true));
    let states: Vec<StepState> = world.store.steps.iter().map(|step| step.state).collect();
    assert_eq!(
        states,
        [StepState::Done, StepState::Failed, StepState::Failed]
    );
}

#[test]
fn a_lost_agent_that_is_back_takes_part_from_the_next_step_on() {
    let plan = format!(
        "{NULL}[[phase]]\nname = \"after\"\nworkload = \"null\"\nsettle = \"10s\"\n\
         [[phase]]\nname = \"last\"\nworkload = \"null\"\n"
    );
    let mut world = world(&plan, 2, OnLoss::Continue);
    world.run_until(is_running);
    world.detach(1);
    world.run_until(|world| stage_is(world, "Settling"));
    world.attach(1);
    world.run_to_end();
    world.check_end();
    assert_eq!(run_end(&world), (RunState::Done, true));
    let partial: Vec<bool> = world.store.steps.iter().map(|step| step.partial).collect();
    assert_eq!(partial, [true, true, false]);
    let counts = ["agent-lost", "agent-back"].map(|kind| kinds(&world, kind).len());
    assert_eq!(counts, [1, 1]);
}

#[test]
fn a_lost_agent_that_still_runs_its_task_after_the_run_is_told_to_stop() {
    let plan = "[[phase]]\nworkload = \"null\"\nruntime = \"120s\"\n";
    let mut world = world(plan, 2, OnLoss::Abort);
    world.faults.lasts_us = Some(120 * S);
    world.run_until(is_running);
    world.detach(1);
    world.run_until(|world| world.store.run.state.is_end());
    world.attach(1);
    world.run_to_end();
    world.check_end();
    assert_eq!(run_end(&world), (RunState::Failed, true));
    assert_eq!(kinds(&world, "agent-tidied").len(), 1);
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
fn a_receiver_that_attaches_as_its_sender_is_lost_stops_listening() {
    let plan = "[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nfrom = [\"b\"]\nto = [\"a\"]\n\
                runtime = \"5s\"\n";
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
