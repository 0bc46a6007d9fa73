//! The end of a load: what the kernel still holds after a stop is named, and nothing stays behind.
//! And what stands in the way of a load: caches that are really dropped before it, and a tool that is told from storage.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::fuse_fs::{Fate, FuseFs, Op, Rule};
use support::mesh::{Agent, Mesh};
use support::wait::{until, until_true};

const LIMIT: Duration = Duration::from_secs(90);

/// What stays beneath a target.
fn left(top: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
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
        ..Rule::every(Op::Unlink, Fate::Hang)
    });
    let run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"fuse\"\npath = \"{}\"\n[[phase]]\nworkload = \"files\"\nfiles = 200\nsize = \"100\"\nmodes = [\"delete\"]\n",
        fs.path().display()
    ));
    until_true("a call hangs", LIMIT, || fs.hanging() == 1);
    mesh.command(&["stop", "last"]);
    let told: String = until("the event is stored", LIMIT, || {
        let sql = "SELECT a.name || ': ' || e.message FROM events AS e JOIN agents AS a ON a.id = e.agent_id
                   JOIN steps AS s ON s.id = e.step_id WHERE e.kind = 'operation-stuck' AND s.mode = 'delete'";
        mesh.db().column::<String>(sql).pop()
    });
    assert!(told.starts_with("a: task "), "{told}");
    assert!(told.contains("worker 0: delete for "), "{told}");
    fs.let_go();
    mesh.until_run_is(&["stopped"], LIMIT);
    until_true("nothing is left", LIMIT, || left(fs.path()).is_empty());
    drop(run);
}

/// How many pages of a file are in the page cache.
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

#[test]
fn a_cold_step_really_drops_the_page_cache() {
    needs!("root");
    // On a disk's file system: pages of a tmpfs cannot be dropped.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bystander = directory.path().join("bystander");
    std::fs::write(&bystander, vec![7; 4 << 20]).unwrap();
    File::open(&bystander).unwrap().sync_all().unwrap();
    std::fs::read(&bystander).unwrap();
    assert_eq!(resident(&bystander), (4 << 20) / rustix::param::page_size());
    let mut mesh = Mesh::start();
    for name in ["a", "b"] {
        mesh.add(Agent::named(name).allow(directory.path()));
    }
    mesh.run(&format!(
        "[targets.t]\nsystem = \"s\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]\ncache = \"cold\"\n",
        directory.path().display()
    ));
    assert_eq!(resident(&bystander), 0);
    // Two agents, one kernel: dropped once, and said so.
    let drops = mesh
        .db()
        .column::<String>("SELECT what || dropped FROM cache_drops WHERE what IN ('page-cache', 'dentries-inodes') ORDER BY what");
    assert_eq!(drops, ["dentries-inodes1", "page-cache1"]);
}

#[test]
fn a_load_of_nothing_but_the_tool_is_flagged_so() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nnumjobs = 2\nruntime = \"4s\"\n");
    let flags: String = mesh.db().one("SELECT flags FROM steps");
    assert!(flags.contains("\"tool-bound\""), "{flags}");
}
