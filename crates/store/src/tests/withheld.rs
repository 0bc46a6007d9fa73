//! Figures that are withheld are NULL everywhere: totals of tasks that did not overlap, and the cost per operation of
//! a step with several groups.

use super::{Mesh, S, T0, batch, interval, new_step, new_task, sample, seen, send, task_end};
use crate::rows::{NewGroup, NewTask};
use benchmesh_answers::report;
use benchmesh_model::mesh::StepId;
use benchmesh_results::Flag;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

async fn row(mesh: &Mesh, sql: &'static str) -> SqliteRow {
    sqlx::query(sql)
        .fetch_one(mesh.store.reader())
        .await
        .unwrap()
}

fn none(row: &SqliteRow, columns: &[&str]) {
    for column in columns {
        let found: Option<f64> = row.get(*column);
        assert_eq!(found, None, "{column}");
    }
}

/// Two tasks of a step in mode `mode`, the second after the end of the first, and a daemon that used 1 s of CPU.
async fn step_of_consecutive_tasks(mesh: &Mesh, workload: &str, mode: &str, op: &str) -> StepId {
    let (publisher, from, _) = mesh.publisher("a").await;
    let (_, to, _) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    let steps = vec![new_step(0, workload, mode)];
    let step = mesh.store.create_steps(run, steps).await.unwrap()[0];
    let tasks = (0..2).map(|task_index| NewTask {
        peer: (workload == "network").then_some(to),
        ..new_task(from, task_index)
    });
    let tasks = mesh.tasks(step, tasks.collect()).await;
    mesh.begun(step).await;
    let mut one = batch("s", 1);
    for (task, from) in [(tasks[0], 0), (tasks[1], 6)] {
        let seconds = (from..from + 4).map(|second| interval(task, T0 + second * S, op, 10, 1000));
        one.op_intervals.extend(seconds);
        one.task_ends
            .push(task_end(task, from * S, T0 + (from + 4) * S));
    }
    one.op_intervals.sort_by_key(|interval| interval.at.0);
    one.daemons = vec![seen(1, "ceph-osd", T0 - S)];
    one.daemon_samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 10 * S, S, 1)];
    send(&publisher, one).await.unwrap();
    let results = mesh.finish(step, T0 + 10 * S).await;
    assert!(results.flags.contains(&Flag::NoOverlap), "{results:?}");
    step
}

#[tokio::test]
async fn tasks_that_did_not_overlap_have_no_total() {
    let mesh = Mesh::new().await;
    step_of_consecutive_tasks(&mesh, "files", "create", "create").await;
    let results = row(&mesh, "SELECT * FROM v_results").await;
    assert_eq!(results.get::<i64, _>("ops"), 80, "what was done is a fact");
    assert_eq!(results.get::<String, _>("headline"), "none");
    assert_eq!(results.get::<String, _>("flags"), "[\"no-overlap\"]");
    none(&results, &["ops_per_s", "mib_per_s"]);
    let kept = row(&mesh, "SELECT * FROM step_results").await;
    none(
        &kept,
        &[
            "ops_per_s",
            "bytes_per_s",
            "last_done_ops_per_s",
            "last_done_bytes_per_s",
        ],
    );
    let cost = row(&mesh, "SELECT * FROM v_cost").await;
    assert_eq!(cost.get::<f64, _>("cpu_s"), 1.0);
    assert_eq!(cost.get::<String, _>("flags"), "[\"no-overlap\"]");
    none(&cost, &["cpu_us_per_op", "cpu_s_per_gib"]);

    let told = report::load(mesh.store.reader(), "last").await.unwrap();
    let csv = report::csv(&told);
    let mut lines = csv.lines().map(fields);
    let (head, figures) = (lines.next().unwrap(), lines.next().unwrap());
    let json = serde_json::to_value(&told).unwrap();
    for name in [
        "ops_per_s",
        "bytes_per_s",
        "last_done_ops_per_s",
        "last_done_bytes_per_s",
    ] {
        let at = head.iter().position(|column| *column == name).unwrap();
        assert_eq!(figures[at], "", "{name} in {csv}");
        assert!(json["steps"][0]["ops"][0][name].is_null(), "{name}");
    }
    assert!(json["costs"][0]["cpu_us_per_op"].is_null());
    assert!(csv.ends_with("no-overlap,1\n"), "{csv}");
    let tables = report::tables(&told, report::Detail::All);
    let steps = tables.iter().find(|table| table.title == "Steps").unwrap();
    let cell = |title: &str| {
        let columns = &steps.columns;
        let at = columns.iter().position(|column| column.title == title);
        steps.rows[0][at.unwrap()].clone()
    };
    assert_eq!(
        [cell("ops/s"), cell("MiB/s"), cell("flags")],
        ["-", "-", "no-overlap"]
    );
    let markdown = report::markdown(&told, report::Detail::All);
    assert!(
        markdown.contains("there is no rate of all of them"),
        "{markdown}"
    );
}

#[tokio::test]
async fn a_link_whose_tasks_did_not_send_at_once_has_no_throughput() {
    let mesh = Mesh::new().await;
    step_of_consecutive_tasks(&mesh, "network", "throughput", "send").await;
    let link = row(&mesh, "SELECT * FROM v_links").await;
    none(&link, &["mib_per_s"]);
    assert_eq!(link.get::<String, _>("flags"), "[\"no-overlap\"]");
    let told = report::load(mesh.store.reader(), "last").await.unwrap();
    assert_eq!(told.links[0].mib_per_s, None);
}

#[tokio::test]
async fn daemons_that_serve_several_groups_at_once_have_no_cost_of_an_operation() {
    for (groups, expected) in [
        (&["readers"][..], Some(1e6 / 80.0)),
        (&["readers", "writers"], None),
    ] {
        let mesh = Mesh::new().await;
        let (publisher, agent, _) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let mut of_groups = new_step(0, "files", "read");
        of_groups.groups = groups
            .iter()
            .map(|name| NewGroup {
                name: (*name).to_owned(),
                workload: "files".to_owned(),
                mode: "read".to_owned(),
                params_json: "{}".to_owned(),
                clients: 1,
                tasks: 1,
            })
            .collect();
        let step = mesh.store.create_steps(run, vec![of_groups]).await.unwrap()[0];
        let tasks = (0..).zip(groups.iter()).map(|(task_index, name)| NewTask {
            group: (*name).to_owned(),
            ..new_task(agent, task_index)
        });
        let tasks = mesh.tasks(step, tasks.collect()).await;
        mesh.begun(step).await;
        let mut one = batch("s", 1);
        for second in 0..4 {
            for task in &tasks {
                let ops = 20 / tasks.len() as u64;
                one.op_intervals
                    .push(interval(*task, T0 + second * S, "read", ops, 1000));
            }
        }
        one.task_ends = tasks
            .iter()
            .map(|task| task_end(*task, 0, T0 + 4 * S))
            .collect();
        one.daemons = vec![seen(1, "ceph-osd", T0 - S)];
        one.daemon_samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 4 * S, S, 1)];
        send(&publisher, one).await.unwrap();
        mesh.finish(step, T0 + 4 * S).await;
        let cost = row(&mesh, "SELECT * FROM v_cost").await;
        // The sums are still valid facts of the step.
        assert_eq!(
            (cost.get::<f64, _>("cpu_s"), cost.get::<i64, _>("ops")),
            (1.0, 80)
        );
        assert_eq!(cost.get::<i64, _>("load_groups"), groups.len() as i64);
        assert_eq!(cost.get::<Option<f64>, _>("cpu_us_per_op"), expected);
        let told = report::load(mesh.store.reader(), "last").await.unwrap();
        assert_eq!(told.costs[0].cpu_us_per_op, expected);
    }
}

/// The fields of a line of CSV; a quoted field may contain commas.
fn fields(line: &str) -> Vec<&str> {
    let mut quoted = false;
    line.split(|letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    })
    .collect()
}
