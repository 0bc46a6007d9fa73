//! Directories that a run leaves behind: removed later, one by one, and not under a run that needs them.

use crate::simulation::staged::{IO, S, kinds, stage_is, world};
use crate::simulation::world::SimEvent;
use benchmesh_model::mesh::{AgentId, RunState};
use benchmesh_plan::OnLoss;

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

/// The directories of an earlier end are being removed when the run is resumed: a directory that is opened again would
/// lose its data.
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
    // The removal is abandoned.
    world.run_until(|world| world.store.run.state == RunState::Running);
    assert!(!world.is_removing("/mnt/a"));
}

/// The agent attaches while another one still removes its directory: what it left is recorded only after that.
#[test]
fn an_agent_that_is_back_before_the_run_ends_removes_its_directory() {
    let mut world = world(IO, 2, OnLoss::Continue);
    world.agents[1].file_system = 1;
    world.run_until(|world| world.disks.len() == 2);
    world.faults.hangs_on = Some("/mnt/a");
    world.detach(1);
    world.stop();
    world.run_until(|world| stage_is(world, "Removing"));
    let until = world.now + 60 * S;
    world.at(until, SimEvent::RowsStored);
    world.run_until(|world| world.now >= until);
    assert!(stage_is(&world, "Removing"));
    world.faults.hangs_on = None;
    world.attach(1);
    world.run_to_end();
    assert_eq!(world.store.run.state, RunState::Stopped);
    let left: Vec<usize> = world.disks.keys().map(|(_, of)| *of).collect();
    assert_eq!(left, [0], "{:?}", kinds(&world, "directory-left"));
    assert_eq!(kinds(&world, "directory-removed").len(), 1);
}
