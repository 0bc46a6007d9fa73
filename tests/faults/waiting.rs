//! Conditions under which an agent waits instead of ending: no space on its disk, and a target that does not respond.

use super::LIMIT;
use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use crate::support::wait::until_true;
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn an_agent_that_starts_on_a_full_disk_waits_for_room() {
    needs!("root", "tmpfs");
    let disk = Mounted::tmpfs(4 << 20);
    let ballast = disk.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let mut mesh = Mesh::start();
    mesh.launch(Agent::named("a").state_dir(&disk.path().join("state")));
    until_true("it says what it waits for", LIMIT, || {
        mesh.agent("a")
            .log()
            .contains("the state directory is full")
    });
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    mesh.until_attached(&["a"]);
    until_true("the collector is told", LIMIT, || {
        let sql = "SELECT count(*) FROM events WHERE kind = 'spool-writable'";
        mesh.db().one::<i64>(sql) == 1
    });
}

/// While the run's directory is created: an event of the run names the call, and no agent is lost.
#[test]
fn a_target_that_freezes_while_the_runs_directory_is_made_is_a_stall() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a"], fs.path());
    fs.add_rule(Rule {
        path: "benchmesh-".to_owned(),
        times: 1,
        ..Rule::every(Op::Mkdir, Fault::Hang)
    });
    let phase = "[[phase]]\nworkload = \"files\"\nfiles = 10\nsize = \"100\"\nmodes = [\"create\"]";
    let mut run = mesh.begin(&plan::on(fs.path(), "", phase));
    let began = Instant::now();
    let count = |kind: &str| {
        let sql = format!("SELECT count(*) FROM events WHERE kind = '{kind}' AND run_id = 1");
        mesh.db().one::<i64>(&sql)
    };
    until_true("the stall is told", LIMIT, || count("stall") == 1);
    assert!(began.elapsed() >= Duration::from_secs(10));
    let row = &mesh.db().rows(
        "SELECT message, json_extract(detail, '$.call') AS call, json_extract(detail, '$.op') AS op,
                json_extract(detail, '$.path') AS path
         FROM events WHERE kind = 'stall'",
    )[0];
    assert_eq!(row.text("op"), "open-run-directory", "{row:?}");
    assert!(row.text("call").starts_with("mkdir"), "{row:?}");
    assert!(
        row.text("path").contains("benchmesh-") || row.text("message").contains("mkdir"),
        "{row:?}"
    );
    fs.release();
    let ended = run
        .exit_within(LIMIT)
        .unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(ended.success(), "{}", run.log());
    assert_eq!((count("stall-over"), count("agent-lost")), (1, 0));
}
