//! A collector that was away: how soon its agents are attached again, and how soon what they kept is stored.
//!
//! `cargo bench --bench catch_up [-- MINUTES]`, default 60: six agents carry a load of 50 operations per second each, and
//! the one of them that samples this host has as many daemons at 1 Hz as six hosts have. The collector is killed three times for some seconds, then once for MINUTES, and
//! started again. The bars: attached within 3 s of the collector's return, and an hour's backlog of six agents stored
//! within 60 s beside what they go on to send.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that measures, prints, and panics when it cannot"
)]

#[path = "../tests"]
mod shared {
    pub mod support;
}

use shared::support::daemons;
use shared::support::mesh::{Agent, Mesh};
use shared::support::meter::wall_us;
use shared::support::plan;
use shared::support::wait::{pass, until_true};
use std::time::{Duration, Instant};

const AGENTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Ten of each agent's host.
const DAEMONS: usize = 60;
const SHORT: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(10),
    Duration::from_secs(40),
];
const LIMIT: Duration = Duration::from_secs(600);
const MAX_ATTACH: Duration = Duration::from_secs(3);
const MAX_CATCH_UP: Duration = Duration::from_secs(60);

fn main() {
    // `cargo test --benches` only wants to know that it links.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let minutes = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .next_back()
        .unwrap_or(60);
    let directory = tempfile::tempdir().unwrap();
    let _daemons = daemons::awake(directory.path(), DAEMONS);
    let target = directory.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let mut mesh = Mesh::start();
    for name in AGENTS {
        mesh.launch(Agent::named(name).label("role=client").allow(&target));
    }
    mesh.until_attached(&AGENTS);
    let run = mesh.begin(&plan::endless_writes(&target));
    mesh.until_stored(
        "all agents send the figures of all daemons and of their load",
        &format!(
            "SELECT count(DISTINCT d.id) >= {DAEMONS} AND (SELECT count(DISTINCT task_id) FROM op_intervals) = {}
             FROM daemons AS d JOIN daemon_samples AS s ON s.daemon_id = d.id WHERE d.name = 'ceph-osd'",
            AGENTS.len()
        ),
    );
    for away in SHORT {
        let attached = without_collector(&mut mesh, away);
        print("attached", away, attached, MAX_ATTACH);
    }
    // What the short ones left is stored, so that the last one is measured alone.
    catch_up(&mesh);
    let rows = stored(&mesh);
    let away = Duration::from_secs(minutes * 60);
    let attached = without_collector(&mut mesh, away);
    print("attached", away, attached, MAX_ATTACH);
    let began = Instant::now();
    catch_up(&mesh);
    print("stored", away, attached + began.elapsed(), MAX_CATCH_UP);
    println!("{} rows came", stored(&mesh) - rows);
    drop(run);
}

/// Kills the collector, starts it again after some time, and returns how long its agents then took to attach.
fn without_collector(mesh: &mut Mesh, away: Duration) -> Duration {
    mesh.kill_collector();
    pass(away);
    mesh.restart_collector();
    let began = Instant::now();
    mesh.until_attached(&AGENTS);
    began.elapsed()
}

/// Until what each agent measured before this call is stored.
fn catch_up(mesh: &Mesh) {
    let sql = format!(
        "SELECT count(DISTINCT task_id) FROM op_intervals WHERE at_us + span_us >= {}",
        wall_us()
    );
    until_true("the agents catch up", LIMIT, || {
        // What the collector has gathered is stored before a query.
        let output = mesh.command(&["query", "--format", "csv", &sql]);
        output.out.lines().nth(1) == Some(&AGENTS.len().to_string())
    });
}

fn stored(mesh: &Mesh) -> i64 {
    mesh.db().one(
        "SELECT (SELECT count(*) FROM daemon_samples) + (SELECT count(*) FROM host_samples)
             + (SELECT count(*) FROM disk_samples) + (SELECT count(*) FROM net_samples)
             + (SELECT count(*) FROM op_intervals)",
    )
}

fn print(what: &str, away: Duration, took: Duration, bar: Duration) {
    println!(
        "away {:>5} s: {what} after {:.2} s; bar {} s: {}",
        away.as_secs(),
        took.as_secs_f64(),
        bar.as_secs(),
        if took <= bar { "met" } else { "MISSED" }
    );
}
