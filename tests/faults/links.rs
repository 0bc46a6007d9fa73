//! One end of a link dies while several are in use: the others continue, nothing hangs, and no port stays open.

use super::LIMIT;
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use benchmesh_testing::{measured, timing};
use std::time::{Duration, Instant};

fn mesh() -> Mesh {
    let mut mesh = Mesh::start();
    for name in ["a", "b", "c"] {
        mesh.add(Agent::named(name));
    }
    mesh
}

fn many_to_c(mode: &str, keys: &str) -> String {
    format!(
        r#"
        on-loss = "continue"
        loss-after = "2s"
        [[phase]]
        workload = "network"
        modes = ["{mode}"]
        pairs = "many-to-one"
        to = ["c"]
        streams = 2
        runtime = "6s"
        {keys}
        [[phase]]
        workload = "null"
        ops = 1000
        "#
    )
}

#[test]
fn a_sender_dies_and_the_others_are_measured_to_the_end() {
    for (mode, keys) in [
        ("throughput", "rate_iops = 200\nbs = \"64k\""),
        ("request", "wait = \"busy\""),
    ] {
        let mut mesh = mesh();
        let before = mesh.agent("c").sockets().len();
        let mut run = mesh.begin(&many_to_c(mode, keys));
        mesh.until_step_is(mode, "running", LIMIT);
        until_true("both senders are connected", LIMIT, || {
            mesh.agent("c").sockets().len() >= before + 4
        });
        mesh.kill_agent("a");
        let ended = run.exit_within(LIMIT).expect("the run ends without it");
        assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());
        let db = mesh.db();
        let steps = db.rows("SELECT workload, state, partial FROM steps ORDER BY ordinal");
        let states: Vec<_> = steps
            .iter()
            .map(|step| (step.text("state"), step.integer("partial")))
            .collect();
        assert_eq!(states[0], ("done".to_owned(), 1), "{steps:?}");
        assert_eq!(states[1].0, "done", "{steps:?}");
        let tasks = db.rows(
            "SELECT a.name, t.state, t.ended_us - t.start_us AS took_us FROM tasks t JOIN agents a ON a.id = t.agent_id
             WHERE t.peer_agent_id IS NOT NULL ORDER BY a.name",
        );
        assert_eq!(tasks[0].text("state"), "lost", "{tasks:?}");
        assert_eq!(tasks[1].text("state"), "done", "{tasks:?}");
        assert!(tasks[1].integer("took_us") >= 5_900_000, "{tasks:?}");
        until_true("the receiver's ports are closed", LIMIT, || {
            mesh.agent("c").sockets().len() <= before
        });
    }
}

#[test]
fn a_receiver_dies_and_all_its_links_end_at_once() {
    measured(|| {
        for (mode, keys) in [("throughput", ""), ("request", "wait = \"blocking\"")] {
            let mut mesh = mesh();
            let before = ["a", "b"].map(|name| mesh.agent(name).sockets().len());
            let mut run = mesh.begin(&many_to_c(mode, keys));
            mesh.until_step_is(mode, "running", LIMIT);
            mesh.kill_agent("c");
            let killed = Instant::now();
            let ended = run.exit_within(LIMIT).expect("the run ends without it");
            // The links are lost, and `on-loss` lets the run continue.
            assert_eq!(ended.code(), Some(3), "{}", run.log());
            // Detected within `loss-after`, long before the runtime is over; then comes the next phase, which takes a
            // moment.
            timing!(killed.elapsed() < Duration::from_secs(9), "{}", run.log());
            let db = mesh.db();
            let steps = db.rows("SELECT state, partial FROM steps ORDER BY ordinal");
            assert_eq!(steps[0].text("state"), "failed", "{steps:?}");
            assert_eq!(steps[1].text("state"), "done", "{steps:?}");
            let output =
                db.rows("SELECT t.state, t.error FROM tasks t WHERE t.peer_agent_id IS NOT NULL");
            assert_eq!(output.len(), 2);
            for task in &output {
                assert_ne!(task.text("state"), "done", "{task:?}");
                let error = task.text("error");
                assert!(
                    error.contains("`c`") || error.contains("the link to"),
                    "{error}"
                );
            }
            for (name, before) in ["a", "b"].into_iter().zip(before) {
                until_true("the senders' connections are closed", LIMIT, || {
                    mesh.agent(name).sockets().len() <= before
                });
            }
        }
        Ok(())
    });
}

/// It keeps its connections but neither reads nor answers. Takes about 8 s, mostly waiting.
#[test]
fn a_receiver_that_stands_still_costs_its_links_and_not_the_run() {
    let mesh = mesh();
    let mut run = mesh.begin(
        r#"
        on-loss = "continue"
        loss-after = "3s"
        [[phase]]
        workload = "network"
        modes = ["throughput"]
        pairs = "one-to-many"
        from = ["a"]
        rate_iops = 200
        bs = "64k"
        runtime = "8s"
        [[phase]]
        workload = "null"
        ops = 1000
        "#,
    );
    mesh.until_step_is("throughput", "running", LIMIT);
    mesh.agent("c").signal(libc::SIGSTOP);
    let lost = "SELECT count(*) FROM events WHERE kind = 'agent-lost'";
    until_true("its loss is an event", LIMIT, || {
        mesh.db().one::<i64>(lost) == 1
    });
    // The other link continues meanwhile.
    mesh.until_step_is("throughput", "done", LIMIT);
    let links = mesh.db().rows(
        "SELECT t.state, t.ended_us - t.start_us AS took_us FROM tasks t JOIN agents a ON a.id = t.peer_agent_id
         ORDER BY a.name",
    );
    assert_eq!(links[0].text("state"), "done", "{links:?}");
    assert!(links[0].integer("took_us") >= 7_900_000, "{links:?}");
    assert_eq!(links[1].text("state"), "lost", "{links:?}");
    mesh.agent("c").signal(libc::SIGCONT);
    let ended = run.exit_within(LIMIT).expect("the run ends");
    assert_eq!(ended.code(), Some(3), "{}", run.log());
}

/// Agents that allow only as many threads as one phase needs: a link end that is not released makes the next step fail.
fn mesh_of_two_threads() -> Mesh {
    let mut mesh = Mesh::start();
    for name in ["a", "b", "c"] {
        mesh.add(Agent::named(name).argument("--threads").argument("2"));
    }
    mesh
}

const ALL_THREADS: &str = "[[phase]]\nworkload = \"null\"\nops = 1000\nnumjobs = 2\n";

fn one_link(mode: &str) -> String {
    format!(
        "on-loss = \"continue\"\nloss-after = \"3s\"\n[[phase]]\nworkload = \"network\"\nmodes = [\"{mode}\"]\n\
         pairs = \"one-to-many\"\nfrom = [\"a\"]\nto = [\"c\"]\nstreams = 2\nbs = \"1k\"\n\
         rate_iops = 200\nruntime = \"30s\"\n{ALL_THREADS}"
    )
}

#[test]
fn the_other_end_of_a_dead_agents_link_is_free_for_the_next_step() {
    measured(|| {
        for (mode, dies) in [
            ("throughput", "a"),
            ("throughput", "c"),
            ("udp-stream", "a"),
            ("udp-stream", "c"),
        ] {
            let mut mesh = mesh_of_two_threads();
            let mut run = mesh.begin(&one_link(mode));
            mesh.until_step_is(mode, "running", LIMIT);
            mesh.kill_agent(dies);
            let killed = Instant::now();
            let ended = run.exit_within(LIMIT).expect("the run ends without it");
            assert_eq!(ended.code(), Some(3), "{}", run.log());
            let tasks = mesh.db().rows(
                "SELECT a.name, t.state, t.error FROM tasks t JOIN agents a ON a.id = t.agent_id
                 JOIN steps s ON s.id = t.step_id WHERE s.workload = 'null'",
            );
            assert_eq!(tasks.len(), 3, "{tasks:?}");
            for task in tasks {
                let expected = if task.text("name") == dies {
                    "lost"
                } else {
                    "done"
                };
                assert_eq!(task.text("state"), expected, "{mode} {dies}: {task:?}");
            }
            // `loss-after`, and the next step.
            timing!(
                killed.elapsed() < Duration::from_secs(10),
                "{mode} {dies}: {:?}",
                killed.elapsed()
            );
        }
        Ok(())
    });
}

/// The agent is lost to its step, and returns with its end of the link.
#[test]
fn both_ends_of_a_frozen_agents_link_are_free_when_it_is_back() {
    measured(|| {
        for stands_still in ["a", "c"] {
            let mesh = mesh_of_two_threads();
            let mut run = mesh.begin(&one_link("throughput"));
            mesh.until_step_is("throughput", "running", LIMIT);
            mesh.agent(stands_still).signal(libc::SIGSTOP);
            let lost = "SELECT count(*) FROM events WHERE kind = 'agent-lost'";
            until_true("its loss is an event", LIMIT, || {
                mesh.db().one::<i64>(lost) == 1
            });
            let ended = run.exit_within(LIMIT).expect("the run ends without it");
            assert_eq!(ended.code(), Some(3), "{}", run.log());
            mesh.agent(stands_still).signal(libc::SIGCONT);
            mesh.until_attached(&["a", "b", "c"]);
            let back = Instant::now();
            mesh.run(ALL_THREADS);
            timing!(
                back.elapsed() < Duration::from_secs(10),
                "{stands_still}: {:?}",
                back.elapsed()
            );
            let partial = mesh
                .db()
                .column::<i64>("SELECT partial FROM runs ORDER BY id");
            assert_eq!(partial, [1, 0], "{stands_still}");
            let claims = "SELECT count(*) FROM events WHERE kind = 'tasks-of-others'";
            assert_eq!(mesh.db().one::<i64>(claims), 0);
        }
        Ok(())
    });
}
