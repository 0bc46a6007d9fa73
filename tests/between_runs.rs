//! A mesh without a run: its samples, and the collector's memory after a request.

use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn with_agent(mut mesh: Mesh, arguments: &[&str]) -> Mesh {
    let mut agent = Agent::named("a").argument("--sample-period=200ms");
    for argument in arguments {
        agent = agent.argument(argument);
    }
    mesh.add(agent);
    mesh
}

fn samples(mesh: &Mesh) -> i64 {
    mesh.db().one("SELECT count(*) FROM host_samples")
}

/// Two meshes in parallel, so that one shows how long is long enough. Takes about 5 s, mostly waiting.
#[test]
fn a_host_is_sampled_between_runs_only_where_its_agent_wants_it() {
    let without = with_agent(Mesh::start(), &[]);
    let with = with_agent(Mesh::beside(&without), &["--sample-always"]);
    let between_runs = "SELECT max(at_us) - min(at_us) FROM host_samples HAVING count(*) > 0";
    until_true("three seconds are sampled", LIMIT, || {
        samples(&with) > 0 && with.db().one::<i64>(between_runs) >= 3_000_000
    });
    assert_eq!(with.db().one::<i64>("SELECT count(*) FROM runs"), 0);
    assert!(samples(&with) >= 10, "{}", samples(&with));
    assert_eq!(samples(&without), 0);
    with.assert_no_complaints();
    without.assert_no_complaints();
}

/// 50,000 steps. The collector once kept their memory. Takes about 4 s of CPU.
#[test]
#[cfg(target_env = "gnu")]
fn a_dry_run_of_many_steps_keeps_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["a", "b", "c"], directory.path());
    let plan = mesh.plan(&format!(
        r#"
        repeat = 100
        [targets.t]
        system = "local"
        path = "{}"
        [[phase]]
        workload = "files"
        modes = ["create", "list", "stat", "read", "delete"]
        matrix = {{ size = ["1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k"], files = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }}
        "#,
        directory.path().display()
    ));
    let before = anonymous_mib(&mesh);
    let shown = mesh.command(&["plan", "show", plan.to_str().unwrap()]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let lines = shown.out.lines().count();
    assert!(lines > 5_000, "{lines} lines: {}", shown.err);
    let kept = anonymous_mib(&mesh).saturating_sub(before);
    assert!(kept < 80, "{kept} MiB are kept");
}

/// With several arenas, each keeps the memory that was freed between its blocks in use. Takes about 2 s.
#[test]
#[cfg(target_env = "gnu")]
fn the_threads_of_a_collector_share_one_arena() {
    let mesh = with_agent(Mesh::start(), &["--sample-always"]);
    until_true("samples are stored", LIMIT, || samples(&mesh) >= 5);
    assert_eq!(arenas(mesh.collector().pid()), 0);
    let agent = mesh.agent("a").pid();
    until_true("an agent, which has two, uses the other", LIMIT, || {
        arenas(agent) > 0
    });
}

/// Number of glibc's arenas besides the main one. Each begins with a mapping of 64 MiB at a multiple of its size, of
/// which a part is accessible.
fn arenas(pid: u32) -> usize {
    const ARENA_BYTES: u64 = 64 << 20;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ranges: Vec<(u64, u64)> = maps
        .lines()
        .map(|line| {
            let range = line.split(' ').next().unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let parse = |address| u64::from_str_radix(address, 16).unwrap();
            (parse(start), parse(end))
        })
        .collect();
    let is_arena = |pair: &&[(u64, u64)]| {
        let [accessible, reserved] = pair else {
            return false;
        };
        accessible.0 % ARENA_BYTES == 0
            && accessible.1 == reserved.0
            && reserved.1 - accessible.0 == ARENA_BYTES
    };
    ranges.windows(2).filter(is_arena).count()
}

/// Anonymous memory of the collector.
fn anonymous_mib(mesh: &Mesh) -> u64 {
    let status = format!("/proc/{}/status", mesh.collector().pid());
    let status = std::fs::read_to_string(status).unwrap();
    let mut lines = status.lines();
    let kib = lines
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().unwrap();
    kib / 1024
}
