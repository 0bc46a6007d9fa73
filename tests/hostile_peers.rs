//! Hostile peers at the collector's port: noise, other protocols, false messages. Each gets an answer or is
//! disconnected; the collector survives, no other session is disturbed, and none of their data are stored.

mod borrowed_uid;
mod campaign;
mod claimed_host;
mod flood;
mod half_open;
mod noise;
mod queries;
mod replaced;
mod rogue;
mod sessions;
mod swapped;

use crate::support::mesh::{Agent, Mesh};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Runs `attack` on a mesh under load: the run must succeed, and the mesh's processes must stay alive and sane.
fn while_a_run_goes_on(attack: impl FnOnce(&Mesh)) -> Mesh {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("honest"));
    let mut run = mesh.begin(
        r#"
        [[phase]]
        workload = "null"
        runtime = "6s"
        rate_iops = 1000
        "#,
    );
    mesh.until_step_is("run", "running", LIMIT);
    attack(&mesh);
    let ended = run.exit_within(LIMIT).expect("the honest run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    assert!(mesh.collector_mut().is_running(), "the collector lives");
    assert!(
        !mesh.collector().log().contains("panicked"),
        "{}",
        mesh.collector().log()
    );
    let db = mesh.db();
    db.assert_sound();
    let row = &db.rows("SELECT state, partial FROM runs ORDER BY id DESC LIMIT 1")[0];
    assert_eq!(
        (row.text("state"), row.integer("partial")),
        ("done".to_owned(), 0)
    );
    drop(db);
    mesh
}

/// Peak resident memory of a process, in KiB.
fn peak_rss_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

/// Current resident memory.
fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
