//! Every command, sent twice where that matters.

use crate::agent::{Agent, Home};
use crate::collector::Collector;
use benchmesh_agent::policy::{NetworkRule, PolicyConfig};
use benchmesh_proto::v1;
use benchmesh_proto::v1::command::Body;
use benchmesh_testing::{measured, timing};
use std::time::{Duration, Instant};

pub fn null_task(task_id: i64, params: &str) -> v1::Prepare {
    v1::Prepare {
        task_id,
        run_uid: "run-1".to_owned(),
        workload: "null".to_owned(),
        mode: "run".to_owned(),
        params_json: params.to_owned(),
        tasks: 1,
        ..v1::Prepare::default()
    }
}

/// Arms the task for a start in the near future and returns the start. If the start has passed on arrival, a later one
/// is used, as a scheduler does.
pub fn arm(collector: &Collector, task_id: i64) -> i64 {
    loop {
        let start_us = collector.now_us() + 200_000;
        let reply = collector.outcome(&Body::Arm(v1::Arm {
            task_id,
            start_us,
            end_us: 0,
        }));
        if reply.error_kind == "too-late" {
            continue;
        }
        let Some(v1::reply::Body::Arm(armed)) = reply.body else {
            panic!("{reply:?}")
        };
        // Two clocks with few exchanges may differ by some milliseconds.
        assert!((1..=300_000).contains(&armed.lead_us), "{armed:?}");
        return start_us;
    }
}

pub fn end(collector: &Collector, task_id: i64) -> v1::EndReply {
    let reply = collector.done(Body::AwaitEnd(v1::AwaitEnd { task_id }));
    let Some(v1::reply::Body::End(end)) = reply.body else {
        panic!("{reply:?}")
    };
    end
}

/// The last row of a task.
pub fn last_row(collector: &Collector, task_id: i64) -> v1::TaskEnd {
    collector.wait("the task's last row", |state| {
        let mut ends = state.batches.iter().flat_map(|batch| &batch.task_ends);
        ends.find(|end| end.task_id == task_id).cloned()
    })
}

/// Waits until the clock is known, as a mesh does before it arms.
pub fn ready(collector: &Collector) {
    collector.attached(1);
    collector.wait("clock exchanges", |state| (state.probes >= 2).then_some(()));
}

#[test]
fn a_task_from_prepare_to_forget_each_command_twice() {
    measured(|| {
        let (home, collector) = (Home::new(), Collector::start());
        let agent = Agent::start(home.config(&collector));
        ready(&collector);
        let prepare = null_task(7, r#"{"ops": 200000, "numjobs": 2}"#);
        collector.done(Body::Prepare(prepare.clone()));
        collector.done(Body::Prepare(prepare.clone()));
        let (kind, text) = collector.refused(Body::Prepare(null_task(7, r#"{"ops": 5}"#)));
        assert!(
            kind == "failed" && text.contains("other parameters"),
            "{kind} {text}"
        );
        let (_, text) = collector.refused(Body::AwaitEnd(v1::AwaitEnd { task_id: 7 }));
        assert!(text.contains("not been armed"), "{text}");

        let start_us = arm(&collector, 7);
        collector.done(Body::Arm(v1::Arm {
            task_id: 7,
            start_us,
            end_us: 0,
        }));
        let (_, text) = collector.refused(Body::Arm(v1::Arm {
            task_id: 7,
            start_us: start_us + 1,
            end_us: 0,
        }));
        assert!(text.contains("already"), "{text}");
        collector.done(Body::Prepare(prepare));

        let first = end(&collector, 7);
        assert_eq!(first.state, "done");
        assert_eq!(end(&collector, 7), first);
        let row = collector.wait("the task's last row", |state| {
            let batch = state.batches.iter().find(|batch| {
                batch.spool_id == first.spool_id && batch.sequence == first.sequence
            })?;
            batch.task_ends.first().cloned()
        });
        assert_eq!(
            (row.task_id, row.state.as_str(), row.workers),
            (7, "done", 2)
        );
        assert_eq!(row.start_us, start_us);
        timing!(row.skew_us >= 0 && row.skew_us < 100_000, "{row:?}");
        assert!(
            row.first_done_us >= start_us && row.ended_us >= row.first_done_us,
            "{row:?}"
        );
        assert_eq!(collector.ops(7), 400_000);

        collector.done(Body::ForgetTask(v1::ForgetTask { task_id: 7 }));
        collector.done(Body::ForgetTask(v1::ForgetTask { task_id: 7 }));
        let (kind, _) = collector.refused(Body::AwaitEnd(v1::AwaitEnd { task_id: 7 }));
        assert_eq!(kind, "unknown-task");
        agent.stop();
        collector.assert_no_violation();
        Ok(())
    });
}

#[test]
fn starts_that_cannot_be_are_refused_and_the_task_stays() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    collector.done(Body::Prepare(null_task(1, r#"{"ops": 10}"#)));
    let arm_at = |start_us| {
        collector
            .refused(Body::Arm(v1::Arm {
                task_id: 1,
                start_us,
                end_us: 0,
            }))
            .0
    };
    assert_eq!(arm_at(collector.now_us() - 100_000), "too-late");
    assert_eq!(arm_at(1), "too-late");
    assert_eq!(arm_at(i64::MAX), "failed");
    assert_eq!(arm_at(-5), "failed");
    let ahead = collector.now_us() + 7_200_000_000;
    assert_eq!(arm_at(ahead), "failed");
    arm(&collector, 1);
    assert_eq!(end(&collector, 1).state, "done");
    agent.stop();
}

#[test]
fn a_running_task_takes_another_share_and_no_other_task_does() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let share = |task_id, task_index| {
        Body::ShareRate(v1::ShareRate {
            task_id,
            task_index,
            tasks: 3,
            from_us: 1_750_000_000_000_000,
        })
    };
    assert_eq!(collector.refused(share(9, 0)).0, "unknown-task");
    let paced = r#"{"runtime": "1h", "rate_iops": 10, "rate-per": "step"}"#;
    collector.done(Body::Prepare(null_task(1, paced)));
    assert_eq!(collector.refused(share(1, 0)).0, "failed");
    assert_ne!(collector.refused(share(1, 3)).0, "");
    agent.stop();
}

#[test]
fn stopping_ends_a_task_wherever_it_is() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let stop = |task_id| v1::StopTask {
        task_id,
        reason: "a test wants it".to_owned(),
    };
    assert_eq!(collector.refused(Body::StopTask(stop(9))).0, "unknown-task");

    collector.done(Body::Prepare(null_task(1, r#"{"runtime": "1h"}"#)));
    collector.done(Body::StopTask(stop(1)));
    let never_began = end(&collector, 1);
    assert_eq!(
        (never_began.state.as_str(), never_began.sequence),
        ("stopped", 0)
    );

    collector.done(Body::Prepare(null_task(2, r#"{"runtime": "1h"}"#)));
    arm(&collector, 2);
    let (_, text) = collector.refused(Body::ForgetTask(v1::ForgetTask { task_id: 2 }));
    assert!(text.contains("still runs"), "{text}");
    collector.wait("operations", |state| {
        state
            .batches
            .iter()
            .any(|batch| !batch.op_intervals.is_empty())
            .then_some(())
    });
    collector.done(Body::StopTask(stop(2)));
    let ended = end(&collector, 2);
    let last = last_row(&collector, 2);
    assert_eq!(
        (last.state.as_str(), last.error.as_str()),
        ("stopped", "a test wants it")
    );
    assert!(ended.sequence > 0);
    agent.stop();
    collector.assert_no_violation();
}

#[test]
fn a_load_on_files_stays_in_its_runs_directory() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let path = home.target().to_str().unwrap().to_owned();
    let open = |make, path: &str| v1::OpenRunDirectory {
        run_uid: "run-1".to_owned(),
        path: path.to_owned(),
        make,
    };
    let facts = |reply: v1::Reply| match reply.body {
        Some(v1::reply::Body::RunDirectory(facts)) => facts,
        other => panic!("{other:?}"),
    };
    assert!(!facts(collector.done(Body::OpenRunDirectory(open(false, &path)))).found);
    let made = facts(collector.done(Body::OpenRunDirectory(open(true, &path))));
    assert!(
        made.found && made.made && made.free_bytes > 0 && !made.nonce.is_empty(),
        "{made:?}"
    );
    let again = facts(collector.done(Body::OpenRunDirectory(open(true, &path))));
    assert_eq!((again.made, again.nonce), (false, made.nonce));
    assert_eq!(
        collector
            .refused(Body::OpenRunDirectory(open(true, "/etc")))
            .0,
        "not-allowed"
    );

    let prepare = v1::Prepare {
        workload: "io".to_owned(),
        mode: "write".to_owned(),
        path: path.clone(),
        cell: "cell-1".to_owned(),
        ..null_task(3, r#"{"size": "1m", "bs": "64k"}"#)
    };
    collector.done(Body::Prepare(prepare.clone()));
    arm(&collector, 3);
    assert_eq!(end(&collector, 3).state, "done");
    collector.wait("its operations", |state| {
        let rows = state.batches.iter().flat_map(|batch| &batch.op_intervals);
        let bytes: u64 = rows
            .filter(|row| row.task_id == 3 && row.op == "write")
            .map(|row| row.bytes)
            .sum();
        (bytes == 1 << 20).then_some(())
    });
    let elsewhere = v1::Prepare {
        task_id: 4,
        path: "/tmp".to_owned(),
        ..prepare
    };
    assert_eq!(collector.refused(Body::Prepare(elsewhere)).0, "not-allowed");

    let cell = v1::RemoveCell {
        run_uid: "run-1".to_owned(),
        path: path.clone(),
        cell: "cell-1".to_owned(),
        task_index: 0,
    };
    collector.done(Body::RemoveCell(cell.clone()));
    collector.done(Body::RemoveCell(cell));
    let remove = v1::RemoveRunDirectory {
        run_uid: "run-1".to_owned(),
        path,
    };
    collector.done(Body::RemoveRunDirectory(remove.clone()));
    collector.done(Body::RemoveRunDirectory(remove));
    assert_eq!(std::fs::read_dir(home.target()).unwrap().count(), 0);
    agent.stop();
}

#[test]
fn without_contact_the_load_stops_after_its_lease() {
    let (home, mut collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    let task = |id, lease_us| v1::Prepare {
        lease_us,
        run_id: 31,
        step_id: 77,
        ..null_task(id, r#"{"runtime": "1h"}"#)
    };
    // The shorter lease is raised to the minimum of 3 s.
    collector.done(Body::Prepare(task(901, 1)));
    collector.done(Body::Prepare(task(902, 600_000_000)));
    arm(&collector, 901);
    arm(&collector, 902);
    until("both run", || runs(901) && runs(902));
    collector.kill();
    let killed = Instant::now();
    while runs(901) {
        assert!(
            killed.elapsed() < Duration::from_secs(60),
            "the load goes on"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(killed.elapsed() > Duration::from_secs(1), "not at once");
    assert!(runs(902), "a longer lease carries it over");
    collector.restart();
    assert_eq!(collector.attached(2).held_tasks, [901, 902]);
    assert_eq!(end(&collector, 901).state, "stopped");
    let ended = last_row(&collector, 901);
    assert!(ended.error.contains("lease"), "{ended:?}");
    let event = collector.event("lease-over");
    assert_eq!((event.run_id, event.step_id), (31, 77));
    assert!(event.message.contains("task 901"), "{event:?}");
    let stop = v1::StopTask {
        task_id: 902,
        reason: "enough".to_owned(),
    };
    collector.done(Body::StopTask(stop));
    assert_eq!(last_row(&collector, 902).error, "enough");
    agent.stop();
    collector.assert_no_violation();
}

/// Polls until the condition holds.
fn until(what: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "waited in vain: {what}"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Whether the task's own thread exists. Only this test uses these task ids.
fn runs(task: i64) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.flatten().any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim() == format!("bm-task-{task}"))
    })
}

/// Without options there is no load: a refusal names the option that would allow it.
#[test]
fn without_an_option_an_agent_only_samples() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(benchmesh_agent::AgentConfig {
        collector: collector.address.to_string(),
        insecure: true,
        ..benchmesh_agent::AgentConfig::new("agent-1", home.state())
    });
    ready(&collector);
    assert_eq!(collector.attached(1).workloads, []);
    let refused = |body: Body, option: &str| {
        let (kind, text) = collector.refused(body);
        assert!(
            kind == "not-allowed" && text.contains(option),
            "{kind} {text}"
        );
    };
    refused(
        Body::Prepare(null_task(1, r#"{"ops": 10}"#)),
        "--allow PATH",
    );
    let link = v1::Prepare {
        workload: "network".to_owned(),
        mode: "throughput".to_owned(),
        peer_address: "127.0.0.1:5000".to_owned(),
        token: "t".repeat(32),
        ..null_task(2, "{}")
    };
    refused(Body::Prepare(link.clone()), "--allow-network");
    let listen = v1::Listen {
        task_id: 3,
        workload: "network".to_owned(),
        mode: "throughput".to_owned(),
        params_json: "{}".to_owned(),
        token: "t".repeat(32),
        ..v1::Listen::default()
    };
    refused(Body::Listen(listen), "--allow-network");
    let reply = collector.done(Body::DropCaches(v1::DropCaches::default()));
    let Some(v1::reply::Body::DropCaches(reply)) = reply.body else {
        panic!("{reply:?}")
    };
    assert_eq!(reply.drops.len(), 2);
    for drop in reply.drops {
        assert!(
            !drop.dropped && drop.error.contains("--allow-drop-caches"),
            "{drop:?}"
        );
    }
    agent.stop();

    // Links only: no target, and no port of a service.
    let agent = Agent::start(benchmesh_agent::AgentConfig {
        collector: collector.address.to_string(),
        policy: PolicyConfig {
            allow_network: vec![NetworkRule::Local],
            ..PolicyConfig::default()
        },
        insecure: true,
        ..benchmesh_agent::AgentConfig::new("agent-1", home.state())
    });
    let hello = collector.attached(2);
    let offers = |name: &str| hello.workloads.iter().any(|one| one.name == name);
    assert!(offers("network") && offers("null"), "{:?}", hello.workloads);
    let service = v1::Prepare {
        peer_address: "127.0.0.1:22".to_owned(),
        ..link
    };
    refused(Body::Prepare(service), "not a receiving end");
    agent.stop();
    collector.assert_no_violation();
}
