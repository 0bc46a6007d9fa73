//! Which daemons serve a target and count for its cost: by the system's table, the mounts beneath, and labels.

use super::{finished, step_of_four_seconds};
use crate::ingest::batch::{DaemonSample, DaemonSeen};
use crate::tests::{Mesh, S, T0, batch, new_agent, new_step, running, sample, seen, send};

/// Daemons with these names, each with a second of CPU time in the step.
fn daemons(names: &[&str]) -> (Vec<DaemonSeen>, Vec<DaemonSample>) {
    let all = (1..).zip(names);
    let samples = |(pid, _)| [sample(pid, T0, 0, 1), sample(pid, T0 + 4 * S, S, 1)];
    (
        all.clone()
            .map(|(pid, name)| seen(pid, name, T0 - S))
            .collect(),
        all.flat_map(samples).collect(),
    )
}

async fn serving(mesh: &Mesh) -> Vec<(String, Option<bool>)> {
    sqlx::query_as("SELECT name, serves_target FROM v_daemon_usage ORDER BY pid")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap()
}

#[tokio::test]
async fn only_daemons_that_serve_the_target_are_in_its_cost() {
    let (found, samples) = daemons(&["ceph-osd", "mfschunkserver", "shardd", "benchmesh"]);
    let done = finished(found, samples).await;
    let expected = [
        ("ceph-osd", Some(true)),
        ("mfschunkserver", Some(false)),
        ("shardd", None),
        ("benchmesh", Some(false)),
    ]
    .map(|(name, serves)| (name.to_owned(), serves));
    assert_eq!(serving(&done.mesh).await, expected);
    let cost: Vec<String> = sqlx::query_scalar("SELECT name FROM v_cost ORDER BY name")
        .fetch_all(done.mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(
        cost,
        ["ceph-osd"],
        "what no rule knows is charged to nobody"
    );
}

/// Whether Ceph's, Sheepdog's and an unknown daemon count for target `image` on an ext4, given what an agent found
/// beneath it and the label `serves` of the daemons' host.
async fn charged(beneath: &str, label: Option<&str>) -> Vec<Option<bool>> {
    let mesh = Mesh::new().await;
    let (publisher, agent, host) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store
        .set_run_state(run, running(T0 - S))
        .await
        .unwrap();
    let mut new = new_step(0, "files", "create");
    (new.target, new.system) = ("image".to_owned(), "ours".to_owned());
    let (step, _) = mesh.step(run, new, &[agent]).await;
    mesh.begun(step).await;
    let writer = rusqlite::Connection::open(mesh.path()).unwrap();
    writer
        .execute(
            "INSERT INTO run_targets (run_id, agent_id, target, system, path, mount_type, beneath)
             VALUES (?, ?, 'image', 'ours', '/mnt/image', 'ext4', ?)",
            (run.0, agent.0, beneath),
        )
        .unwrap();
    if let Some(serves) = label {
        writer
            .execute(
                "UPDATE agents SET labels = json_object('serves', ?) WHERE host_id = ?",
                (serves, host.0),
            )
            .unwrap();
    }
    let mut one = batch("s", 1);
    (one.daemons, one.daemon_samples) = daemons(&["ceph-osd", "sheep", "shardd"]);
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let all = serving(&mesh).await.into_iter();
    all.map(|(_, serves)| serves).collect()
}

#[tokio::test]
async fn a_file_system_on_a_network_block_device_is_served_by_its_daemons() {
    const RBD: &str = r#"["loop","fuse.rbd-fuse"]"#;
    const SHEEP: &str = r#"["loop","fuse.sheepfs"]"#;
    const DISK: &str = r#"["disk"]"#;
    let (yes, no) = (Some(true), Some(false));
    for (beneath, label, expected) in [
        (RBD, None, [yes, no, None]),
        (SHEEP, None, [no, yes, None]),
        (DISK, None, [no, no, no]),
        // A guest's disk; only the operator knows where its data are stored.
        (DISK, Some("image"), [yes, yes, yes]),
        (RBD, Some("image"), [yes, no, yes]),
        (RBD, Some("another"), [no, no, no]),
    ] {
        let found = charged(beneath, label).await;
        assert_eq!(found, expected, "{beneath} {label:?}");
    }
}

#[tokio::test]
async fn a_label_says_which_of_two_clusters_serves_a_target() {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    for (name, serves) in [("n1", "cephfs"), ("n2", "other")] {
        let mut agent = new_agent(name);
        agent.labels_json = format!("{{\"serves\":\"{serves}\"}}");
        let (agent, host) = mesh.store.attach_agent(agent).await.unwrap();
        let node = mesh.store.publisher(agent, host, "net:1".to_owned());
        let mut samples = batch("n", 1);
        samples.daemons = vec![seen(1, "ceph-osd", T0 - S)];
        samples.daemon_samples = vec![sample(1, T0, 0, 1), sample(1, T0 + 4 * S, S, 1)];
        send(&node, samples).await.unwrap();
    }
    one.daemons = vec![];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    let serves: Vec<(String, Option<bool>)> =
        sqlx::query_as("SELECT host, serves_target FROM v_daemon_usage ORDER BY host")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    let expected = [("host-n1", Some(true)), ("host-n2", Some(false))]
        .map(|(host, serves)| (host.to_owned(), serves));
    assert_eq!(serves, expected);
    assert_eq!(mesh.number("SELECT daemons FROM v_cost").await, 1);
}
