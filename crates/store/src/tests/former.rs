//! Earlier descriptions of hosts and agents: with late samples, and in a merge with a file that has other
//! descriptions.

use super::{
    Mesh, S, T0, batch, host_sample, interval, new_agent, new_step, new_task, running, sample,
    seen, send, task_end,
};
use crate::Publisher;
use crate::ingest::batch::Batch;
use crate::maintain::{check, merge};
use crate::rows::{NewAgent, NewRunAgent, Row, StepChange};
use benchmesh_model::mesh::{AgentId, MeshMicros, RunId, RunState, StepState};
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// Host `host-a` with two CPUs, on which a step of four seconds ran, its agent, and a batch with a late sample of the
/// step.
async fn measured(mesh: &Mesh, labels: &str) -> (Publisher, Batch) {
    let mut serving = new_agent("a");
    serving.labels_json = labels.to_owned();
    serving.at = MeshMicros(T0 - 9 * S);
    let (agent, host) = mesh.store.attach_agent(serving).await.unwrap();
    let publisher = mesh.store.publisher(agent, host, "net:1".to_owned());
    let run = mesh.run("u").await;
    begin(mesh, run, &[agent]).await;
    mesh.store
        .set_run_state(run, running(T0 - S))
        .await
        .unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
        .collect();
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    one.daemons = vec![seen(1, "shardd", T0 - 9 * S)];
    one.daemon_samples = (-1..6)
        .map(|beat| sample(1, T0 + beat * S, 10 * S + beat * S / 2, 1))
        .collect();
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    // A late sample of the step's time makes the store compute its usage again.
    let late = Batch {
        daemon_samples: vec![sample(1, T0 + S / 2, 10 * S + S / 4, 1)],
        ..batch("s", 2)
    };
    (publisher, late)
}

/// Stores the environment of a run that begins now.
async fn begin(mesh: &Mesh, run: RunId, agents: &[AgentId]) {
    let agents = agents.iter().map(|agent| NewRunAgent {
        agent: *agent,
        distribution: String::new(),
        cpu_model: String::new(),
        interfaces_json: None,
        disks_json: None,
        packages_json: None,
        policy_json: None,
        targets: Vec::new(),
    });
    let agents = agents.collect();
    let begun = Row::Environment { run, agents };
    mesh.store.apply(vec![begun]).await.unwrap();
}

fn changed() -> NewAgent {
    let mut agent = new_agent("a");
    agent.name = "renamed".to_owned();
    agent.may_rename = true;
    agent.host.name = "renamed".to_owned();
    agent.host.cpus = 64;
    agent.labels_json = r#"{"serves":"another"}"#.to_owned();
    agent.at = MeshMicros(T0 + 60 * S);
    agent
}

async fn usage(mesh: &Mesh) -> (String, Option<bool>, i64) {
    sqlx::query_as("SELECT u.host, u.serves_target, d.samples FROM v_daemon_usage AS u JOIN step_daemons AS d USING (step_id, daemon_id)")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap()
}

/// Sends late samples and waits until the step's usage is computed from them too.
async fn usage_anew(mesh: &Mesh, publisher: &Publisher, late: Batch) {
    let samples = usage(mesh).await.2;
    send(publisher, late).await.unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while usage(mesh).await.2 == samples {
        assert!(Instant::now() < limit, "the usage is computed again");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn late_samples_do_not_bring_todays_labels_and_names_into_an_old_step() {
    let mesh = Mesh::new().await;
    let (publisher, late) = measured(&mesh, r#"{"serves":"cephfs"}"#).await;
    let (host, serves, samples) = usage(&mesh).await;
    assert_eq!((host.as_str(), serves, samples), ("host-a", Some(true), 5));
    mesh.store.attach_agent(changed()).await.unwrap();
    // Another agent that serves the target attached after the step.
    let mut other = new_agent("b");
    other.labels_json = r#"{"serves":"cephfs"}"#.to_owned();
    other.at = MeshMicros(T0 + 61 * S);
    mesh.store.attach_agent(other).await.unwrap();
    usage_anew(&mesh, &publisher, late).await;
    let (host, serves, samples) = usage(&mesh).await;
    assert_eq!((host.as_str(), serves, samples), ("host-a", Some(true), 6));
}

/// A label of the host's service, from an agent that was set up on it after the step.
#[tokio::test]
async fn labels_of_agents_that_came_after_a_step_do_not_count_in_it() {
    let mesh = Mesh::new().await;
    let (publisher, late) = measured(&mesh, "{}").await;
    let (_, serves, samples) = usage(&mesh).await;
    assert_eq!((serves, samples), (None, 5));
    let mut anew = new_agent("a");
    anew.uid = "uid-anew".to_owned();
    anew.labels_json = r#"{"serves":"cephfs"}"#.to_owned();
    anew.at = MeshMicros(T0 + 61 * S);
    mesh.store.attach_agent(anew).await.unwrap();
    usage_anew(&mesh, &publisher, late).await;
    let (_, serves, samples) = usage(&mesh).await;
    assert_eq!((serves, samples), (None, 6));
}

#[tokio::test]
async fn a_change_within_a_run_is_an_event_of_it() {
    let mesh = Mesh::new().await;
    let (agent, _) = mesh.agent("a").await;
    let run = mesh.run("u").await;
    begin(&mesh, run, &[agent]).await;
    let events = async |state, attaching: NewAgent| -> i64 {
        let mut change = running(T0);
        change.state = state;
        mesh.store.set_run_state(run, change).await.unwrap();
        mesh.store.attach_agent(attaching).await.unwrap();
        sqlx::query_scalar(
            "SELECT count(*) FROM events WHERE kind = 'agent-changed' AND run_id = ? AND agent_id = ?",
        )
        .bind(run.0)
        .bind(agent.0)
        .fetch_one(mesh.store.reader())
        .await
        .unwrap()
    };
    assert_eq!(events(RunState::Running, new_agent("a")).await, 0);
    assert_eq!(events(RunState::Running, changed()).await, 1);
    assert_eq!(events(RunState::Running, changed()).await, 1);
    let mut rebooted = changed();
    rebooted.host.boot_id = "another".to_owned();
    assert_eq!(events(RunState::Running, rebooted).await, 2);
    assert_eq!(events(RunState::Done, changed()).await, 2);
}

const DAY: i64 = 24 * 3600 * S;

/// Agent `a` of host `host-a`, as described in one file on one day.
#[derive(Clone, Copy)]
struct Known {
    day: i64,
    host: &'static str,
    cpus: u32,
    boot_id: &'static str,
    role: &'static str,
}

const fn known(
    day: i64,
    host: &'static str,
    cpus: u32,
    boot_id: &'static str,
    role: &'static str,
) -> Known {
    Known {
        day,
        host,
        cpus,
        boot_id,
        role,
    }
}

/// A file with one run per day. In each, a step ran for four seconds on the host of `a`, beside the server `b`.
async fn days(all: &[Known]) -> Mesh {
    let mesh = Mesh::new().await;
    for day in all {
        run_of_a_day(&mesh, *day).await;
    }
    mesh.store.close().await;
    mesh
}

async fn run_of_a_day(mesh: &Mesh, known: Known) {
    let start = T0 + known.day * DAY;
    let mut agents = [new_agent("a"), new_agent("b")];
    for agent in &mut agents {
        // The server is rebooted when the client is not, so that both kinds of change occur.
        agent.host.name = format!("{}-{}", known.host, agent.name);
        agent.host.cpus = known.cpus;
        agent.labels_json = format!(r#"{{"role":"{}"}}"#, known.role);
        agent.at = MeshMicros(start - 9 * S);
    }
    agents[0].host.boot_id = known.boot_id.to_owned();
    let mut publishers = Vec::new();
    for agent in agents {
        let (id, host) = mesh.store.attach_agent(agent).await.unwrap();
        publishers.push((mesh.store.publisher(id, host, "net:1".to_owned()), id));
    }
    let run = mesh.run(&format!("day {}", known.day)).await;
    let there: Vec<AgentId> = publishers.iter().map(|(_, agent)| *agent).collect();
    begin(mesh, run, &there).await;
    mesh.store
        .set_run_state(run, running(start - S))
        .await
        .unwrap();
    let step = new_step(0, "files", "create");
    let step = mesh.store.create_steps(run, vec![step]).await.unwrap()[0];
    let task = mesh.tasks(step, vec![new_task(publishers[0].1, 0)]).await[0];
    let change = StepChange {
        state: StepState::Running,
        at: MeshMicros(start),
        start: Some(MeshMicros(start)),
        ended: None,
        reason: None,
    };
    mesh.store.set_step_state(step, change).await.unwrap();
    for (index, (publisher, _)) in publishers.iter().enumerate() {
        let mut one = batch(&format!("day {}", known.day), 1);
        if index == 0 {
            one.op_intervals = (0..4)
                .map(|second| interval(task, start + second * S, "create", 100, 1000))
                .collect();
            let mut end = task_end(task, 0, start + 4 * S);
            end.start = Some(MeshMicros(start));
            one.task_ends = vec![end];
        }
        one.daemons = vec![seen(known.day as i32 + 1, "shardd", start - 9 * S)];
        one.daemon_samples = (-1..6)
            .map(|beat| {
                sample(
                    known.day as i32 + 1,
                    start + beat * S,
                    10 * S + beat * S / 2,
                    1,
                )
            })
            .collect();
        one.host_samples = (-1..6).map(|beat| host_sample(start + beat * S)).collect();
        send(publisher, one).await.unwrap();
    }
    mesh.finish(step, start + 4 * S).await;
    let mut ended = running(start + 5 * S);
    ended.state = RunState::Done;
    mesh.store.set_run_state(run, ended).await.unwrap();
}

/// The hosts, their daemons, their usage, and the agents' labels in each run, without ids.
fn as_it_was(mesh: &Mesh) -> Vec<String> {
    let connection = Connection::open(mesh.path()).unwrap();
    let mut rows = connection
        .prepare(
            "SELECT format('%s: daemon on %s', r.uid, u.host) FROM v_daemon_usage AS u JOIN runs AS r ON r.id = u.run_id
             UNION ALL SELECT format('%s: host %s, boot %s, %d CPUs, client %d', r.uid, u.host, h.boot_id, u.cpus, u.is_client)
             FROM v_host_usage AS u JOIN runs AS r ON r.id = u.run_id JOIN hosts AS h ON h.id = u.host_id
             UNION ALL SELECT format('%s: agent %s %s', r.uid, e.name, e.labels)
             FROM run_agents AS e JOIN runs AS r ON r.id = e.run_id
             ORDER BY 1",
        )
        .unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Agents and hosts that moved from the collector of one file to that of the other and back.
#[tokio::test]
async fn a_merge_changes_nothing_of_the_runs_of_either_file() {
    let rounds: [(&[Known], &[Known]); 4] = [
        // The other file's day lies between two of this one, which never saw a change.
        (
            &[
                known(1, "old", 2, "first", "client"),
                known(3, "old", 2, "first", "client"),
            ],
            &[known(2, "new", 64, "first", "storage")],
        ),
        // This file has seen a change that the other one had seen before.
        (
            &[
                known(1, "old", 2, "first", "client"),
                known(3, "new", 64, "second", "storage"),
            ],
            &[known(2, "new", 64, "second", "storage")],
        ),
        (
            &[
                known(1, "old", 2, "first", "client"),
                known(3, "newer", 4, "second", "storage"),
                known(5, "newest", 8, "third", "client"),
            ],
            &[
                known(2, "new", 64, "second", "storage"),
                known(4, "newer", 6, "second", "other"),
                known(6, "newest", 8, "fourth", "client"),
            ],
        ),
        (
            &[known(1, "old", 2, "first", "client")],
            &[known(2, "old", 2, "first", "client")],
        ),
    ];
    for (number, (one, other)) in rounds.iter().enumerate() {
        for (one, other) in [(one, other), (other, one)] {
            let (one, other) = (days(one).await, days(other).await);
            let mut expected = [as_it_was(&one), as_it_was(&other)].concat();
            expected.sort();
            assert!(expected.len() >= 2 * 6, "{expected:?}");
            merge(&one.path(), &other.path(), &mut |_, _| {})
                .await
                .unwrap();
            assert_eq!(as_it_was(&one), expected, "round {number}");
            assert_eq!(check(&one.path()).unwrap(), Vec::<String>::new());
        }
    }
}

/// Computing usage after a merge depends on when agents and daemons were first and last seen.
#[tokio::test]
async fn a_merged_file_knows_when_either_file_saw_an_agent_and_a_daemon() {
    let days_of = |day| known(day, "old", 2, "first", "client");
    let seen = "SELECT (SELECT min(first_seen_us) || ' ' || max(last_seen_us) FROM agents),
                       (SELECT first_seen_us || ' ' || last_seen_us || ' ' || ended_us FROM daemons AS d JOIN hosts AS h
                            ON h.id = d.host_id WHERE h.pid_namespace = 'pid-a' AND d.pid = 2)";
    let mut found = Vec::new();
    for earlier_first in [true, false] {
        let (earlier, later) = (days(&[days_of(1)]).await, days(&[days_of(2)]).await);
        // One daemon that ran on both days.
        Connection::open(later.path())
            .unwrap()
            .execute_batch(
                "UPDATE daemons SET pid = 2, start_ticks = 1002, ended_us = last_seen_us",
            )
            .unwrap();
        let (one, other) = match earlier_first {
            true => (earlier, later),
            false => (later, earlier),
        };
        merge(&one.path(), &other.path(), &mut |_, _| {})
            .await
            .unwrap();
        let file = Connection::open(one.path()).unwrap();
        let row = file.query_row(seen, [], |row| {
            Ok([row.get::<_, String>(0)?, row.get::<_, String>(1)?])
        });
        found.push(row.unwrap());
    }
    let (first, last) = (T0 + DAY - 9 * S, T0 + 2 * DAY - 9 * S);
    assert_eq!(
        found[0],
        [format!("{first} {last}"), format!("{first} {last} {last}")]
    );
    assert_eq!(found[0], found[1]);
}
