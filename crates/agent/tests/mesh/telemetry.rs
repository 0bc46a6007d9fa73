//! Measurements arrive exactly once, whatever fails in between.

use crate::agent::{Agent, Home};
use crate::collector::{Collector, State};
use crate::commands::{arm, end, null_task};
use benchmesh_agent::sampler::DaemonRule;
use benchmesh_model::figures::{DaemonFigures, Figures};
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

#[test]
fn the_host_is_sampled_when_appointed_and_at_marks() {
    let (home, collector) = (Home::new(), Collector::start());
    let mut config = home.config(&collector);
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    config.daemon_rules = vec![DaemonRule {
        name: "this-test".to_owned(),
        comm: Some(format!("{}*", &comm.trim()[..4])),
        ..DaemonRule::default()
    }];
    let agent = Agent::start(config);
    collector.attached(1);
    collector.done(Body::Mark(v1::Mark { at_us: 0 }));
    collector.done(Body::Sampling(host_sampling()));
    let now = collector.now_us();
    collector.wait("samples of this very process", |state| {
        let me = i32::try_from(std::process::id()).unwrap();
        let mut known = false;
        for batch in &state.batches {
            known |= batch
                .daemons
                .iter()
                .any(|seen| seen.pid == me && seen.name == "this-test");
            if let Some(samples) = &batch.daemon_samples
                && let Some(place) = samples.pid.iter().position(|pid| *pid == me)
            {
                assert!(known, "it was described before it was sampled");
                let columns = &samples.figures;
                assert_eq!(columns.len(), DaemonFigures::ALL.len());
                assert!(
                    columns
                        .iter()
                        .all(|it| it.values.len() == samples.pid.len())
                );
                let figures = DaemonFigures::from_values(columns.iter().map(|it| it.values[place]));
                assert!(figures.rss_bytes > 0);
                assert!(samples.at_us[place].abs_diff(now) < 30_000_000, "mesh time");
                return Some(());
            }
        }
        None
    });
    collector.wait("host, interfaces and clock", |state| {
        let any = |has: fn(&v1::Batch) -> bool| state.batches.iter().any(has);
        (any(|batch| !batch.host_samples.is_empty())
            && any(|batch| !batch.net_samples.is_empty())
            && any(|batch| !batch.clock_offsets.is_empty()))
        .then_some(())
    });
    let before = |state: &State| {
        state
            .batches
            .iter()
            .flat_map(|batch| &batch.host_samples)
            .count()
    };
    collector.done(Body::Sampling(v1::Sampling {
        host_wide: true,
        interfaces: false,
        period_us: 0,
        ..v1::Sampling::default()
    }));
    let count = collector.with(|state| before(state));
    collector.done(Body::Mark(v1::Mark {
        at_us: collector.now_us() + 50_000,
    }));
    collector.wait("the mark's sample", |state| {
        (before(state) > count).then_some(())
    });
    agent.stop();
    collector.assert_no_violation();
}
