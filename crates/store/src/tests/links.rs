//! The view of links, their run, and the stored throughput of a link.

use super::{Mesh, S, T0, batch, interval, new_step, new_task, send, task_end};
use crate::rows::{NewGroup, NewTask};
use benchmesh_model::mesh::TaskState;
use benchmesh_results::Flag;
use sqlx::Row;

#[tokio::test]
async fn a_link_has_its_throughput_its_round_trip_and_its_requests() {
    let mesh = Mesh::new().await;
    let (publisher, from, _) = mesh.publisher("a").await;
    let (of_peer, to, _) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    for (ordinal, mode, op, ops, ns) in [
        (0, "throughput", "send", 256, 5000),
        (1, "ping", "ping", 256, 65_000),
        // Three loads of a curve: the one with the most requests represents all of them, with its own times.
        (2, "request", "request", 64, 30_000),
        (3, "request", "request", 256, 90_000),
        (4, "request", "request", 128, 40_000),
    ] {
        let mut step = new_step(ordinal, "network", mode);
        if op != "send" {
            step.params_json = String::from("{\"wait\": \"busy\"}");
        }
        let step = mesh.store.create_steps(run, vec![step]).await.unwrap()[0];
        // Two tasks of one pair, whose throughputs add up, and one in the other direction.
        let tasks = (0..3).map(|task_index| NewTask {
            peer: Some(if task_index < 2 { to } else { from }),
            ..new_task(if task_index < 2 { from } else { to }, task_index)
        });
        let tasks = mesh.tasks(step, tasks.collect()).await;
        for (publisher, tasks) in [(&publisher, &tasks[..2]), (&of_peer, &tasks[2..])] {
            let mut one = batch("s", u64::from(ordinal) + 1);
            for &task in tasks {
                let seconds = (0..4).map(|second| interval(task, T0 + second * S, op, ops, ns));
                one.op_intervals.extend(seconds);
                one.task_ends.push(task_end(task, 0, T0 + 4 * S));
            }
            send(publisher, one).await.unwrap();
        }
        mesh.finish(step, T0 + 4 * S).await;
    }
    type Link = (String, String, i64, f64, f64, String, f64, f64);
    let links: Vec<Link> = sqlx::query_as(
        "SELECT from_agent, to_agent, links_at_once, mib_per_s, rtt_p50_us, wait, requests_per_s, request_p50_us
         FROM v_links ORDER BY from_agent",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    assert_eq!(links.len(), 2);
    for ((from, to, at_once, mib, rtt, wait, per_s, p50), (a, b, tasks)) in
        links.into_iter().zip([("a", "b", 2.0), ("b", "a", 1.0)])
    {
        assert_eq!((from.as_str(), to.as_str(), at_once), (a, b, 2));
        assert_eq!((mib, per_s), (tasks, tasks * 256.0));
        assert_eq!(wait, "busy");
        assert!((rtt - 65.0).abs() < 0.6, "{rtt}");
        assert!((p50 - 90.0).abs() < 0.8, "{p50}");
    }
}

#[tokio::test]
async fn a_link_of_datagrams_has_what_arrived_and_what_was_lost() {
    let mesh = Mesh::new().await;
    let (publisher, from, _) = mesh.publisher("a").await;
    let (_, to, _) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    let step = new_step(0, "network", "udp-stream");
    let step = mesh.store.create_steps(run, vec![step]).await.unwrap()[0];
    let task = NewTask {
        peer: Some(to),
        ..new_task(from, 0)
    };
    let task = mesh.tasks(step, vec![task]).await[0];
    let mut one = batch("s", 1);
    for second in 0..4 {
        for (op, ops) in [
            ("send", 400),
            ("receive", 300),
            ("lost", 100),
            ("jitter", 10),
        ] {
            one.op_intervals
                .push(interval(task, T0 + second * S, op, ops, 20_000));
        }
    }
    one.task_ends.push(task_end(task, 0, T0 + 4 * S));
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let (mib, lost, jitter, received): (f64, f64, f64, f64) = sqlx::query_as(
        "SELECT l.mib_per_s, l.lost_percent, l.jitter_us, r.bytes_per_s / 1048576.0
         FROM v_links AS l JOIN task_results AS r ON r.op = 'receive'",
    )
    .fetch_one(mesh.store.reader())
    .await
    .unwrap();
    assert_eq!((mib, lost), (received, 25.0));
    assert!((jitter - 20.0).abs() < 0.2, "{jitter}");
}

/// Every report reads the links of its run: its cost must not depend on the links of other runs.
#[tokio::test]
async fn the_links_of_a_run_are_found_by_the_run() {
    let mesh = Mesh::new().await;
    let plan = sqlx::query(
        "EXPLAIN QUERY PLAN SELECT from_agent, max(mib_per_s) FROM v_links WHERE run_id = ? GROUP BY from_agent",
    )
    .bind(1)
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let details: Vec<String> = plan.iter().map(|line| line.get("detail")).collect();
    let by_run = |detail: &&String| detail.starts_with("SEARCH s ") && detail.contains("run_id=?");
    assert_eq!(details.iter().filter(by_run).count(), 1, "{details:#?}");
    let stored = ["SCAN s", "SCAN t", "SCAN o"];
    let scans = |detail: &&String| stored.iter().any(|table| detail.starts_with(table));
    assert_eq!(details.iter().find(scans), None);
}

/// The highest throughput counts. Traffic within one host does not measure the network, and a limited load does not
/// measure the link.
#[tokio::test]
async fn the_throughput_of_a_link_is_kept() {
    let mesh = Mesh::new().await;
    let (publisher, from, _) = mesh.publisher("a").await;
    let (_, to, _) = mesh.publisher("b").await;
    let carried = async || mesh.store.most_received_per_s(to).await.unwrap();
    assert_eq!(carried().await, None);
    let run = mesh.run("u").await;
    let group = |name: &str, params: &str| NewGroup {
        name: name.into(),
        workload: "network".into(),
        mode: "throughput".into(),
        params_json: params.into(),
        clients: 1,
        tasks: 1,
    };
    let (whole, beside) = (
        vec![group("a", "{}")],
        vec![group("a", "{}"), group("b", "{}")],
    );
    let done = TaskState::Done;
    let paced = vec![group("a", r#"{"rate": "1m"}"#)];
    for (ordinal, sender, receiver, ops, params, groups, state, expected) in [
        (0, from, to, 16, r#"{"rate": "16m"}"#, vec![], done, None),
        (1, from, to, 17, r#"{"rate_iops": 17}"#, vec![], done, None),
        (2, from, to, 18, "{}", paced, done, None),
        (3, from, to, 19, "{}", beside, done, None),
        (4, from, to, 20, "{}", vec![], TaskState::Failed, None),
        (5, from, to, 128, "{}", whole, done, Some(128)),
        (6, from, to, 256, "{}", vec![], done, Some(256)),
        (7, from, to, 192, "{}", vec![], done, Some(256)),
        (8, from, from, 4096, "{}", vec![], done, Some(256)),
    ] {
        let mut new = new_step(ordinal, "network", "throughput");
        new.params_json = params.into();
        let name = groups.first().map(|group: &NewGroup| group.name.clone());
        new.groups = groups;
        let step = mesh.store.create_steps(run, vec![new]).await.unwrap()[0];
        let task = NewTask {
            group: name.unwrap_or_default(),
            peer: Some(receiver),
            ..new_task(sender, 0)
        };
        let task = mesh.tasks(step, vec![task]).await[0];
        let mut one = batch("s", u64::from(ordinal) + 1);
        one.op_intervals = (0..4)
            .map(|second| interval(task, T0 + second * S, "send", ops, 5000))
            .collect();
        let mut end = task_end(task, 0, T0 + 4 * S);
        end.state = state;
        one.task_ends = vec![end];
        send(&publisher, one).await.unwrap();
        mesh.finish(step, T0 + 4 * S).await;
        let most = expected.map(|per_s: i64| per_s * 4096);
        assert_eq!(carried().await, most, "after step {ordinal}");
    }
    assert_eq!(mesh.store.most_received_per_s(from).await.unwrap(), None);
}

/// Direct writes that are faster than the round trip known when they were made, and slower than a round trip measured
/// later.
#[tokio::test]
async fn a_ping_that_comes_later_changes_nothing_of_an_old_step() {
    let mesh = Mesh::new().await;
    let (publisher, from, _) = mesh.publisher("a").await;
    let (_, to, _) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    let mut writes = new_step(1, "io", "write");
    writes.params_json = String::from("{\"direct\": true}");
    let ping = |ordinal| new_step(ordinal, "network", "ping");
    let steps = vec![ping(0), writes, ping(2)];
    let steps = mesh.store.create_steps(run, steps).await.unwrap();
    for (index, op, ns) in [
        (0, "ping", 400_000),
        (1, "write", 100_000),
        (2, "ping", 20_000),
    ] {
        let task = NewTask {
            peer: (op == "ping").then_some(to),
            link_bytes_per_s: (op == "write").then_some(1 << 40),
            ..new_task(from, 0)
        };
        let task = mesh.tasks(steps[index], vec![task]).await[0];
        let mut one = batch("s", index as u64 + 1);
        let seconds = (0..4).map(|second| interval(task, T0 + second * S, op, 100, ns));
        one.op_intervals.extend(seconds);
        one.task_ends.push(task_end(task, 0, T0 + 4 * S));
        send(&publisher, one).await.unwrap();
        mesh.finish(steps[index], T0 + 4 * S).await;
        if index > 0 {
            let results = mesh.store.compute_results(steps[1]).await.unwrap();
            assert!(results.flags.contains(&Flag::AckSuspect), "{results:?}");
        }
    }
}

/// The receiving end of a link belongs to the listening agent, as the sending end to the sender.
#[tokio::test]
async fn both_ends_of_a_link_are_an_agents_own() {
    let mesh = Mesh::new().await;
    let (_, from, _) = mesh.publisher("a").await;
    let (_, to, _) = mesh.publisher("b").await;
    let (_, other, _) = mesh.publisher("c").await;
    let run = mesh.run("u").await;
    let step = new_step(0, "network", "ping");
    let step = mesh.store.create_steps(run, vec![step]).await.unwrap()[0];
    let link = NewTask {
        peer: Some(to),
        ..new_task(from, 0)
    };
    let tasks = mesh.tasks(step, vec![link, new_task(from, 1)]).await;
    let held: Vec<i64> = tasks.iter().map(|task| task.0).collect();
    for (agent, own) in [(from, &held[..]), (to, &held[..1]), (other, &held[..0])] {
        let left = mesh.store.without_tasks_of_others(agent, held.clone());
        assert_eq!(left.await.unwrap(), own, "{agent}");
    }
}
