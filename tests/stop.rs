//! The end of a load: no operation begins after a stop, operations stuck in the kernel are named, and nothing is left
//! behind. Also checks that caches are really dropped before a load, and that a limit of the tool is distinguished from
//! one of the storage.

use crate::needs;
use crate::support::command::must;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::process::Process;
use crate::support::stops::{QUIET_AFTER, Stopped, Stops};
use crate::support::wait::{until, until_true};
use benchmesh_testing::{TimingError, measured, timing};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// The paths left below a target.
fn left(top: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn check_quiet(stopped: &Stopped, agents: i64, untold: i64) -> Result<(), TimingError> {
    crate::support::gate::say(&format!("{stopped:?}"));
    let bar = i64::try_from(QUIET_AFTER.as_micros()).unwrap();
    assert_eq!(stopped.severity, "info", "{stopped:?}");
    let counts = (stopped.tasks, stopped.tasks_untold);
    assert_eq!(counts, (agents, untold), "{stopped:?}");
    timing!(stopped.after_wish_us <= bar, "{stopped:?}");
    Ok(())
}

/// After a command, by the kernel's count of each worker's calls from before the command is typed, and after the loss of
/// an agent under a policy that ends the run.
#[test]
fn no_agent_begins_an_operation_half_a_second_after_a_stop() {
    measured(|| {
        let mut stops = Stops::with(12);
        let stopped = stops.by_command();
        check_quiet(&stopped, 12, 0)?;
        timing!(stopped.after_command <= QUIET_AFTER, "{stopped:?}");
        let stopped = stops.by_policy();
        // The lost agent did not report when its last operation began.
        check_quiet(&stopped, 12, 1)?;
        let db = stops.mesh().db();
        let reason: String = db.one("SELECT reason FROM runs ORDER BY id DESC LIMIT 1");
        assert!(reason.contains("on-loss = \"abort\""), "{reason}");
        let state = "SELECT state FROM steps ORDER BY id DESC LIMIT 1";
        assert_eq!(db.one::<String>(state), "failed");
        Ok(())
    });
}

/// A client that waits for a run to stop ends even if the collector is gone.
#[test]
fn a_stop_that_nobody_hears_ends_the_command() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    let mut run = mesh.begin(
        "lease = \"10m\"\n[[phase]]\nworkload = \"null\"\nruntime = \"5m\"\nrate_iops = 10\n",
    );
    mesh.until_step_is("run", "running", LIMIT);
    mesh.kill_collector();
    run.signal(libc::SIGINT);
    let ended = run.exit_within(LIMIT);
    let ended = ended.unwrap_or_else(|| panic!("it waits: {}", run.log()));
    assert!(!ended.success(), "{}", run.log());
    assert!(run.log().contains("may not have received"), "{}", run.log());
    // Follow the message's advice.
    mesh.restart_collector();
    mesh.until_attached(&["a"]);
    let output = mesh.command(&["stop", "1"]);
    assert_eq!(output.code, 0, "{}", output.all());
    assert_eq!(mesh.until_run_is(&["stopped"], LIMIT), "stopped");
}

/// The threads of a process that work for a task or a command.
fn working_threads(pid: u32) -> Vec<String> {
    let ours = [
        "bm-w",
        "bm-task",
        "bm-prepare",
        "bm-command",
        "bm-close",
        "bm-discard",
        "bm-lay",
    ];
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| ours.iter().any(|ours| name.starts_with(ours)))
        .collect()
}

/// TCP ports of a process with their states: those on which it listens, and those of its connections.
fn ports(process: &Process) -> BTreeSet<(String, String)> {
    let (pid, sockets) = (process.pid(), process.sockets());
    let tables = ["tcp", "tcp6"].map(|table| {
        // A machine without IPv6 has only one of these tables.
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default()
    });
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<&str>>())
        .filter(|fields| sockets.contains(fields[9]))
        .map(|fields| (fields[1].to_owned(), fields[3].to_owned()))
        .collect()
}

#[test]
fn a_stop_leaves_no_file_no_port_and_no_thread() {
    let target = tempfile::tempdir().unwrap();
    let below = target.path().to_str().unwrap().to_owned();
    let mesh = Mesh::of(&["a", "b"], target.path());
    let agents = ["a", "b"].map(|name| mesh.agent(name));
    let held = || {
        agents.map(|agent| {
            let files = agent.open_files();
            let files = files.iter().filter(|file| file.starts_with(&below));
            (
                working_threads(agent.pid()).len(),
                ports(agent),
                files.count(),
            )
        })
    };
    let idle = held();
    // An idle agent has only its connection to the collector.
    for (threads, ports, files) in &idle {
        assert_eq!((*threads, ports.len(), *files), (0, 1, 0), "{idle:?}");
    }
    for (mode, phase) in [
        (
            "throughput",
            "workload = \"network\"\nmodes = [\"throughput\"]\nruntime = \"60s\"\n",
        ),
        (
            "read",
            "workload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]\nruntime = \"60s\"\nrate_iops = 500\n",
        ),
    ] {
        let mut run = mesh.begin(&format!(
            "[targets.t]\nsystem = \"s\"\npath = \"{below}\"\n[[phase]]\n{phase}"
        ));
        mesh.until_step_is(mode, "running", LIMIT);
        // Check that the test can see them while they exist.
        until_true("threads work", LIMIT, || {
            held().iter().any(|held| held.0 > 0)
        });
        match mode {
            "throughput" => until_true("ports are open", LIMIT, || {
                held().iter().all(|held| held.1.len() > 1)
            }),
            _ => until_true("files are open", LIMIT, || {
                held().iter().all(|held| held.2 > 0)
            }),
        }
        mesh.command(&["stop", "last"]);
        mesh.until_run_is(&["stopped"], LIMIT);
        // Nothing is left immediately afterwards.
        assert_eq!(left(target.path()), [] as [PathBuf; 0], "{mode}");
        assert_eq!(held(), idle, "{mode}");
        run.exit_within(LIMIT).unwrap();
    }
}

/// Threads that lay out data at the time of the stop have ended before the data are removed.
#[test]
fn a_stop_in_mid_preparation_leaves_nothing() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["a", "b"], target.path());
    let pids = ["a", "b"].map(|name| mesh.agent(name).pid());
    let below = target.path().to_str().unwrap().to_owned();
    for _ in 0..3 {
        let mut run = mesh.begin(&format!(
            "[targets.t]\nsystem = \"s\"\npath = \"{below}\"\n[[phase]]\nworkload = \"files\"\nfiles = 400000\nsize = \"100\"\nnumjobs = 4\nmodes = [\"read\"]\n"
        ));
        until_true("data are laid out", LIMIT, || {
            pids.map(working_threads)
                .iter()
                .all(|threads| threads.len() > 2)
        });
        mesh.command(&["stop", "last"]);
        mesh.until_run_is(&["stopped"], LIMIT);
        assert_eq!(left(target.path()), [] as [PathBuf; 0]);
        let busy = pids.map(working_threads).concat();
        assert_eq!(busy, [] as [String; 0]);
        run.exit_within(LIMIT).unwrap();
        let events = mesh
            .db()
            .column::<String>("SELECT message FROM events WHERE kind = 'directory-left'");
        assert_eq!(events, [] as [String; 0]);
    }
}

#[test]
fn an_operation_that_the_kernel_holds_is_named() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(fs.path()));
    fs.add_rule(Rule {
        path: "benchmesh-".to_owned(),
        after: 20,
        times: 1,
        ..Rule::every(Op::Unlink, Fault::Hang)
    });
    let run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"fuse\"\npath = \"{}\"\n[[phase]]\nworkload = \"files\"\nfiles = 200\nsize = \"100\"\nmodes = [\"delete\"]\n",
        fs.path().display()
    ));
    until_true("a call hangs", LIMIT, || fs.hanging() == 1);
    mesh.command(&["stop", "last"]);
    let message: String = until("the event is stored", LIMIT, || {
        let sql = "SELECT a.name || ': ' || e.message FROM events AS e JOIN agents AS a ON a.id = e.agent_id
                   JOIN steps AS s ON s.id = e.step_id WHERE e.kind = 'operation-stuck' AND s.mode = 'delete'";
        mesh.db().column::<String>(sql).pop()
    });
    assert!(message.starts_with("a: task "), "{message}");
    assert!(message.contains("worker 0: delete "), "{message}");
    fs.release();
    mesh.until_run_is(&["stopped"], LIMIT);
    until_true("nothing is left", LIMIT, || left(fs.path()).is_empty());
    drop(run);
}

/// The mount is detached under a load (`umount -l`), and is back before the next run.
#[test]
fn data_on_a_detached_mount_are_removed_at_the_end_of_the_next_run() {
    needs!("root");
    let home = tempfile::tempdir().unwrap();
    let [data, target] = ["data", "target"].map(|name| home.path().join(name));
    std::fs::create_dir(&data).unwrap();
    std::fs::create_dir(&target).unwrap();
    let [at, through] = [&data, &target].map(|path| path.to_str().unwrap());
    let bind = || must("mount", &["--bind", at, through]);
    must("mount", &["-t", "tmpfs", "bm-detached", at]);
    bind();
    let mesh = Mesh::of(&["a"], &target);
    let plan = |runtime: &str| {
        format!(
            "[targets.t]\nsystem = \"s\"\npath = \"{through}\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]\nruntime = \"{runtime}\"\nrate_iops = 100\n"
        )
    };
    let mut run = mesh.begin(&plan("60s"));
    mesh.until_step_is("read", "running", LIMIT);
    must("umount", &["-l", through]);
    mesh.command(&["stop", "last"]);
    mesh.until_run_is(&["stopped"], LIMIT);
    run.exit_within(LIMIT).unwrap();
    assert_eq!(left(&data).len(), 1);
    let told = "SELECT message FROM events WHERE kind = 'directory-left'";
    let told: String = mesh.db().one(told);
    assert!(told.contains("is no longer on bm-detached"), "{told}");
    bind();
    mesh.run(&plan("1s"));
    until_true("nothing is left", LIMIT, || left(&data).is_empty());
    drop(mesh);
    must("umount", &["-l", through]);
    must("umount", &["-l", at]);
}

/// Number of pages of a file in the page cache.
fn resident(path: &Path) -> usize {
    let file = File::open(path).unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let page = rustix::param::page_size();
    let mut pages = vec![0_u8; length.div_ceil(page)];
    // SAFETY: the mapping is of the file's length, private to this function and unmapped at its end; mincore writes one
    // byte per page into a buffer that has as many.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, length, pages.as_mut_ptr()), 0);
        libc::munmap(at, length);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

/// A cold step, and clients that read each other's data: those that an earlier repeat read are not in this repeat's
/// caches.
#[test]
fn a_step_really_drops_the_page_cache() {
    needs!("root");
    // On a disk file system: pages of a tmpfs cannot be dropped.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bystander = directory.path().join("bystander");
    std::fs::write(&bystander, vec![7; 4 << 20]).unwrap();
    File::open(&bystander).unwrap().sync_all().unwrap();
    let mesh = Mesh::of(&["a", "b"], directory.path());
    for cache in ["cold", "other-client"] {
        std::fs::read(&bystander).unwrap();
        assert_eq!(resident(&bystander), (4 << 20) / rustix::param::page_size());
        let run = mesh.run(&format!(
            "[targets.t]\nsystem = \"s\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]\ncache = \"{cache}\"\n",
            directory.path().display()
        ));
        assert_eq!(resident(&bystander), 0, "{cache}");
        // Two agents on one kernel: the caches are dropped once, and this is recorded.
        let drops = mesh.db().column::<String>(&format!(
            "SELECT d.what || d.dropped FROM cache_drops d JOIN steps s ON s.id = d.step_id
             WHERE s.run_id = {run} AND d.what IN ('page-cache', 'dentries-inodes') ORDER BY d.what"
        ));
        assert_eq!(drops, ["dentries-inodes1", "page-cache1"], "{cache}");
    }
}

#[test]
fn a_load_of_nothing_but_the_tool_is_flagged_so() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nnumjobs = 2\nruntime = \"4s\"\n");
    let flags: String = mesh.db().one("SELECT flags FROM steps");
    assert!(flags.contains("\"tool-bound\""), "{flags}");
}
