//! Measurements arrive exactly once, whatever fails in between.

use crate::agent::{Agent, Home};
use crate::collector::{Collector, State};
use crate::commands::{arm, end, null_task};
use benchmesh_proto::v1;
use benchmesh_proto::v1::command::Body;

pub fn host_sampling() -> v1::Sampling {
    v1::Sampling {
        host_wide: true,
        interfaces: true,
        period_us: 1_000_000,
        ..v1::Sampling::default()
    }
}

fn all_acked(state: &State, end: &v1::EndReply) -> Option<()> {
    (state.positions.get(&end.spool_id).copied().unwrap_or(0) >= end.sequence).then_some(())
}

#[test]
fn a_collector_killed_in_the_middle_misses_nothing() {
    let (home, mut collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    collector.attached(1);
    collector.wait("clock exchanges", |state| (state.probes >= 2).then_some(()));
    collector.done(Body::Prepare(null_task(
        1,
        r#"{"ops": 8000, "rate_iops": 4000, "rate-per": "step", "numjobs": 2}"#,
    )));
    arm(&collector, 1);
    let mut kills = 0;
    loop {
        let before = collector.with(|state| state.batches.len());
        let over = collector.wait("a batch", |state| {
            let over = state
                .batches
                .iter()
                .any(|batch| !batch.task_ends.is_empty());
            (over || state.batches.len() > before).then_some(over)
        });
        if over {
            break;
        }
        collector.kill();
        collector.restart();
        kills += 1;
        assert_eq!(collector.attached(kills + 1).held_tasks, [1]);
    }
    assert!(kills > 0, "the task has outlived the first collector");
    let ended = end(&collector, 1);
    assert_eq!(ended.state, "done");
    collector.wait("the rest", |state| all_acked(state, &ended));
    assert_eq!(collector.ops(1), 16_000);
    agent.stop();
    collector.assert_no_violation();
}

#[test]
fn what_was_stored_and_not_acked_comes_again_unchanged() {
    let (home, collector) = (Home::new(), Collector::start());
    collector.with(|state| {
        state.sampling = host_sampling();
        state.faults.withhold_acks = true;
    });
    let agent = Agent::start(home.config(&collector));
    collector.attached(1);
    collector.wait("batches", |state| (state.batches.len() >= 2).then_some(()));
    // The collector's database is restored from an earlier state, without these batches.
    collector.with(|state| {
        state.positions.values_mut().for_each(|last| *last = 1);
        state.batches.truncate(1);
        state.faults.break_after = Some(0);
    });
    collector.attached(2);
    collector.with(|state| state.faults.withhold_acks = false);
    collector.wait("the same again, and more", |state| {
        (state.batches.len() >= 4).then_some(())
    });
    agent.stop();
    collector.assert_no_violation();
}

#[test]
fn a_killed_agent_leaves_its_spool_to_the_next_start() {
    let (home, mut collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    collector.attached(1);
    collector.wait("clock exchanges", |state| (state.probes >= 2).then_some(()));
    collector.with(|state| state.faults.withhold_acks = true);
    collector.done(Body::Prepare(null_task(1, r#"{"ops": 1000}"#)));
    arm(&collector, 1);
    let ended = end(&collector, 1);
    agent.crash();
    collector.kill();
    collector.with(|state| {
        state.faults.withhold_acks = false;
        state.positions.clear();
        state.batches.clear();
    });
    collector.restart();
    let agent = Agent::start(home.config(&collector));
    let hello = collector.attached(2);
    assert_eq!(hello.spool_ids.len(), 2, "the old one first");
    assert_eq!(hello.spool_ids[0], ended.spool_id);
    collector.wait("the old spool", |state| all_acked(state, &ended));
    assert_eq!(collector.ops(1), 1000);
    agent.stop();
    assert_eq!(home.spool_files(), 0, "a drained spool is removed");
    collector.assert_no_violation();
}

#[test]
fn a_batch_that_is_refused_for_good_does_not_block_the_others() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    collector.attached(1);
    collector.wait("clock exchanges", |state| (state.probes >= 2).then_some(()));
    collector.with(|state| state.faults.refuse_task = Some(1));
    let run = |task| {
        collector.done(Body::Prepare(null_task(task, r#"{"ops": 1000}"#)));
        arm(&collector, task);
        assert_eq!(end(&collector, task).state, "done");
    };
    // Run one after the other, because the rows of both could share one batch.
    run(1);
    collector.wait("the word of the gap", |state| {
        let mut events = state.batches.iter().flat_map(|batch| &batch.events);
        events.find(|event| event.kind == "spool-gap").map(drop)
    });
    run(2);
    collector.wait("the other task's rows", |state| {
        let rows = state.batches.iter().flat_map(|batch| &batch.task_ends);
        rows.map(|row| row.task_id).find(|task| *task == 2)
    });
    agent.stop();
    assert_eq!(
        home.spool_files(),
        1,
        "what was refused is kept for a person to see"
    );
    collector.assert_no_violation();
}
