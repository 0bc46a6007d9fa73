//! Refusals by an agent's policy, as shown to the user who starts a run: with the agent, the key and the line, before
//! anything runs, and without loss to a concurrent step.

use crate::needs;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::process::Process;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A plan with one phase, on line 4; its keys follow.
fn plan(path: &str, phase: &str) -> String {
    format!("[targets.t]\nsystem = \"local\"\npath = \"{path}\"\n[[phase]]\n{phase}\n")
}

/// A dry run refuses the plan as wrong, with all of these texts.
fn assert_refused(mesh: &Mesh, plan: &str, parts: &[&str]) {
    let file = mesh.plan(plan);
    let output = mesh.command(&["run", file.to_str().unwrap(), "--dry-run", "--new-agents"]);
    assert_eq!(output.code, 2, "{}", output.all());
    for part in parts {
        assert!(output.err.contains(part), "{part}: {}", output.all());
    }
}

#[test]
fn a_load_that_a_policy_holds_back_says_so() {
    let target = tempfile::tempdir().unwrap();
    let mut mesh = Mesh::start();
    let held_back = Agent::named("held-back")
        .allow(target.path())
        .argument("--rate=4m");
    mesh.add(held_back);
    mesh.run(&plan(
        target.path().to_str().unwrap(),
        "workload = \"io\"\nsize = \"4m\"\nbs = \"64k\"\nmodes = [\"write\"]\nruntime = \"4s\"",
    ));
    let flagged: i64 = mesh
        .db()
        .one("SELECT count(*) FROM steps, json_each(flags) WHERE value = 'policy-bound'");
    assert_eq!(flagged, 1);
    let report = mesh.command(&["report"]);
    assert!(
        report.out.contains("its own --rate allows"),
        "{}",
        report.all()
    );
}

/// Takes about 10 s, mostly for the concurrent step.
#[test]
fn a_plan_that_asks_for_more_than_a_policy_is_refused_and_a_step_loses_nothing() {
    let target = tempfile::tempdir().unwrap();
    let path = target.path().to_str().unwrap();
    let mut mesh = Mesh::start();
    let bounded = Agent::named("bounded")
        .allow(target.path())
        .argument("--threads=4")
        .argument("--memory=64m")
        .argument("--workloads=null,io,network");
    mesh.add(bounded);
    let beyond = Agent::named("beyond")
        .only_samples()
        .argument("--allow-network=192.0.2.0/24");
    mesh.add(beyond);
    let mut run = mesh.begin(
        "[clients]\nagents = [\"bounded\"]\n[[phase]]\nworkload = \"null\"\nops = 600\nrate_iops = 100\n",
    );
    mesh.until_step_is("run", "running", LIMIT);

    let refused = |plan: &str, parts: &[&str]| assert_refused(&mesh, plan, parts);
    let io = |keys: &str| {
        plan(
            path,
            &format!("workload = \"io\"\nmodes = [\"write\"]\n{keys}"),
        )
    };
    refused(
        &io("size = \"1m\"\nnumjobs = 5"),
        &[":4:", "agent `bounded`", "`threads` is 4", "--threads"],
    );
    refused(
        &io("size = \"64m\"\nbs = \"64m\""),
        &[":4:", "agent `bounded`", "`memory` is 64", "--memory"],
    );
    refused(
        &plan(
            path,
            "workload = \"files\"\nfiles = 1\nsize = \"4k\"\nmodes = [\"create\"]",
        ),
        &[":4:", "agent `bounded`", "`workloads` is null,io,network"],
    );
    refused(
        "[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\n",
        &[":1:", "agent `beyond`", "`allow-network` is 192.0.2.0/24"],
    );
    refused(
        &plan(
            "/dev/null",
            "workload = \"io\"\nmodes = [\"write\"]\nsize = \"1m\"",
        ),
        &["/dev/null", "--allow-device"],
    );

    let listed = mesh.command(&["agents"]);
    let listed = listed.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "memory=64.0MiB threads=4",
        "workloads=null, io, network",
        "allow-network=192.0.2.0/24",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let listed = mesh.command(&["agents", "--format", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let agents = listed["agents"].as_array().unwrap();
    let bounded = agents.iter().find(|it| it["name"] == "bounded").unwrap();
    assert_eq!(bounded["policy"]["threads"], 4);
    assert_eq!(bounded["policy"]["memory_bytes"], 64 << 20);

    let ended = run.exit_within(LIMIT);
    assert!(ended.unwrap().success(), "{}", run.log());
    let db = mesh.db();
    assert_eq!(db.one::<i64>("SELECT count(*) FROM runs"), 1);
    assert_eq!(db.one::<i64>("SELECT ops FROM step_results"), 600);
    let stored = "SELECT policy ->> 'threads' || ' ' || (policy ->> 'workloads') || ' '
                  || (policy -> 'allowed_paths' ->> 0)
                  FROM run_agents WHERE name = 'bounded'";
    assert_eq!(
        db.one::<String>(stored),
        format!("4 [\"null\",\"io\",\"network\"] {path}")
    );
    mesh.assert_no_complaints();
}

/// An agent that dropped unused privileges measures as before.
#[test]
fn an_agent_without_unused_privileges_takes_load() {
    needs!("root");
    let target = tempfile::tempdir().unwrap();
    let mut mesh = Mesh::start();
    let agent = Agent::named("a").allow(target.path());
    mesh.add(agent.argument("--drop-privileges"));
    let status = format!("/proc/{}/status", mesh.agent("a").pid());
    let status = std::fs::read_to_string(status).unwrap();
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    // DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_ADMIN, IPC_LOCK, SYS_PTRACE, SYS_NICE.
    let used = [1, 2, 3, 12, 14, 19, 23]
        .into_iter()
        .fold(0, |set, bit| set | 1 << bit);
    for name in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(set(name) & !used, 0, "{name} {status}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let path = target.path().to_str().unwrap();
    mesh.run(&plan(
        path,
        "workload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]",
    ));
    mesh.assert_no_complaints();
}

/// Leftovers of a killed agent, from a run without its collector.
#[test]
fn what_crashed_runs_leave_is_listed_and_removed_on_demand() {
    let target = tempfile::tempdir().unwrap();
    let path = target.path().to_str().unwrap();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(target.path()));
    let io =
        "workload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\nruntime = \"10m\"\nrate_iops = 10";
    let _run = mesh.begin(&plan(path, io));
    mesh.until_step_is("write", "running", LIMIT);
    let clean = |more: &[&str]| {
        let arguments = [&["agent", "clean", "--allow", path], more].concat();
        mesh.command(&arguments)
    };
    let held = clean(&["--yes"]);
    assert_eq!(held.code, 0, "{}", held.all());
    assert!(held.out.contains("in use by an agent"), "{}", held.all());
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 1);

    mesh.kill_agent("a");
    mesh.kill_collector();
    let clean = |more: &[&str]| {
        let arguments = [&["agent", "clean", "--allow", path], more].concat();
        mesh.command(&arguments)
    };
    let lately = clean(&["--yes"]);
    assert!(lately.out.contains("changed recently"), "{}", lately.all());
    let aged = Command::new("find")
        .args([path, "-exec", "touch", "-d", "2 hours ago", "{}", "+"])
        .status();
    assert!(aged.unwrap().success());
    // There is no terminal for the question.
    let asked = clean(&[]);
    assert_eq!(asked.code, 2, "{}", asked.all());
    assert!(asked.err.contains("--yes"), "{}", asked.all());
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 1);
    let removed = clean(&["--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.all());
    assert!(removed.out.contains("left over"), "{}", removed.all());
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    let none = clean(&[]);
    assert!(
        none.err.contains("no leftovers of runs found"),
        "{}",
        none.all()
    );
}

/// Writes for ten minutes unless it is stopped.
const LONG_WRITE: &str = "workload = \"io\"\nsize = \"1m\"\nbs = \"64k\"\nmodes = [\"write\"]\nruntime = \"10m\"\nrate_iops = 20";

/// The reason for the newest task's end, once its run is over.
fn how_it_ended(mesh: &Mesh, run: &mut Process) -> String {
    assert!(run.exit_within(LIMIT).is_some(), "{}", run.log());
    mesh.db()
        .one("SELECT error FROM tasks ORDER BY id DESC LIMIT 1")
}

/// A plan that needs more space than its agents' minimum of free space leaves is refused before it runs. A task is
/// stopped, with the key, if its target falls below the minimum, for whatever reason; its space is freed.
#[test]
fn a_floor_of_free_space_refuses_plans_and_ends_tasks() {
    needs!("root");
    let fs = Mounted::tmpfs(64 << 20);
    let target = fs.path();
    let path = target.to_str().unwrap();
    let mut mesh = Mesh::start();
    mesh.add(
        Agent::named("a")
            .allow(&target)
            .argument("--free-space=40%"),
    );
    let too_much = plan(
        path,
        "workload = \"io\"\nsize = \"50m\"\nmodes = [\"write\"]",
    );
    assert_refused(
        &mesh,
        &too_much,
        &[":4:", "takes 50", "25.6 MiB must stay free", "`free-space`"],
    );
    let filled = |share: u32| {
        let keys = "floor = 0\nmodes = [\"fill\", \"remove\"]";
        plan(
            path,
            &format!("workload = \"fill\"\nshare = {share}\n{keys}"),
        )
    };
    assert_refused(
        &mesh,
        &filled(90),
        &[":4:", "keeps 25.6 MiB free there", "`share` to at most 60"],
    );
    mesh.run(&filled(60));
    let mut run = mesh.begin(&plan(path, LONG_WRITE));
    mesh.until_step_is("write", "running", LIMIT);
    let other = target.join("of somebody else");
    std::fs::write(&other, vec![1; 40 << 20]).unwrap();
    let error = how_it_ended(&mesh, &mut run);
    assert!(
        error.contains("`free-space` is 25.6 MiB") && error.contains("of 64.0 MiB are free"),
        "{error}"
    );
    std::fs::remove_file(other).unwrap();
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "{}", run.log());
}

/// The same for inodes, on a file system that has a thousand.
#[test]
fn a_floor_of_free_inodes_refuses_plans_and_ends_tasks() {
    needs!("root");
    let fs = Mounted::with_few_inodes(64 << 20, 1000);
    let target = fs.path();
    let path = target.to_str().unwrap();
    let mut mesh = Mesh::start();
    mesh.add(
        Agent::named("a")
            .allow(&target)
            .argument("--free-inodes=500"),
    );
    let too_much = plan(
        path,
        "workload = \"files\"\nfiles = 600\nsize = \"1k\"\nmodes = [\"create\"]",
    );
    assert_refused(
        &mesh,
        &too_much,
        &[":4:", "500 must stay free", "`free-inodes`"],
    );
    let mut run = mesh.begin(&plan(path, LONG_WRITE));
    mesh.until_step_is("write", "running", LIMIT);
    let others = target.join("of somebody else");
    std::fs::create_dir(&others).unwrap();
    for name in 0..600 {
        std::fs::write(others.join(name.to_string()), "").unwrap();
    }
    let error = how_it_ended(&mesh, &mut run);
    assert!(error.contains("`free-inodes` is 500"), "{error}");
    std::fs::remove_dir_all(others).unwrap();
    assert!(fs.names().is_empty(), "{:?}: {}", fs.names(), run.log());
}
