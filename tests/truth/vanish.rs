//! A target that goes away under the load: somebody removes the run's directory, or the file system's server is gone.
//!
//! Whatever the workload, the run ends, where names are needed with an error that names a place on the target, and the agent
//! goes on: the next plan runs.

use crate::needs;
use crate::support::fuse_fs::FuseFs;
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Loads that last until they are ended, each in the mode that runs.
const LOADS: &[(&str, &str)] = &[
    (
        "stat",
        "workload = \"files\"\nfiles = 50\nruntime = \"60s\"\nmodes = [\"stat\"]",
    ),
    (
        "randread",
        "workload = \"io\"\nsize = \"1m\"\nruntime = \"60s\"\nmodes = [\"randread\"]",
    ),
    (
        "randwrite",
        "workload = \"io\"\nsize = \"1m\"\niodepth = 8\nruntime = \"60s\"\nverify = true\nmodes = [\"randwrite\", \"read\"]",
    ),
    (
        "getc",
        "workload = \"bytes\"\nsize = \"400k\"\nruntime = \"60s\"\nmodes = [\"getc\"]",
    ),
    (
        "walk",
        "workload = \"tree\"\nfiles = 100\ndirectories = 9\nruntime = \"60s\"\nmodes = [\"walk\"]",
    ),
    (
        "hold",
        "workload = \"fill\"\namount = \"3m\"\nhold = \"60s\"\nmodes = [\"hold\"]",
    ),
    (
        "in",
        "workload = \"copy\"\nfiles = 40000\nsize = 1000\nway = \"read-write\"\nmodes = [\"in\"]",
    ),
    (
        "replay",
        "workload = \"replay\"\noperations = \"\"\"\n0 open a\n0 read a 0 100\n3 read a 0 100\n3 stat a\n60 stat a\n\"\"\"",
    ),
];

fn mesh_on(target: &Path) -> Mesh {
    let mut mesh = Mesh::start();
    let scratch = mesh.directory().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let agent = Agent::named("a").allow(target).argument("--scratch");
    mesh.add(agent.argument(scratch.to_str().unwrap()));
    mesh
}

/// Nobody needs a name of what is open; all others are missing then.
#[test]
fn a_directory_that_is_removed_under_the_load_ends_it_where_names_are_needed() {
    for (mode, load) in LOADS {
        let top = tempfile::Builder::new()
            .prefix("bm-gone-")
            .tempdir()
            .unwrap();
        let mesh = mesh_on(top.path());
        let keeps_open = matches!(*mode, "randread" | "randwrite" | "getc" | "hold");
        let load = match keeps_open {
            true => load.replace("60s", "3s"),
            false => (*load).to_owned(),
        };
        let mut run = mesh.begin(&format!(
            "[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\n{load}\non-error = \"stop\"\n",
            top.path().display()
        ));
        mesh.until_step_is(mode, "running", LIMIT);
        let mine: Vec<_> = std::fs::read_dir(top.path()).unwrap().collect();
        for entry in mine {
            // What is made meanwhile may be in the way.
            let path = entry.unwrap().path();
            until_true("it is removed", LIMIT, || {
                std::fs::remove_dir_all(&path).is_ok() || !path.exists()
            });
        }
        let ended = run
            .exit_within(LIMIT)
            .unwrap_or_else(|| panic!("{load}: the run hangs:\n{}", run.log()));
        let db = mesh.db();
        let errors = db.column::<String>("SELECT error FROM tasks WHERE error IS NOT NULL");
        if keeps_open && *mode != "randwrite" {
            assert!(
                ended.success() && errors.is_empty(),
                "{load}: {ended} {errors:?}: {}",
                run.log()
            );
        } else {
            let [error] = &errors[..] else {
                panic!("{load}: {errors:?}: {}", run.log())
            };
            assert!(
                error.contains(&*top.path().to_string_lossy()),
                "{load}: {error}"
            );
            assert!(!ended.success(), "{load}");
        }
        mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    }
}

#[test]
fn a_file_system_whose_server_is_gone_ends_the_run_and_not_the_agent() {
    needs!("fuse");
    // What holds or waits has nothing to do with the file system meanwhile.
    let busy = LOADS
        .iter()
        .filter(|(mode, _)| !matches!(*mode, "hold" | "replay"));
    for (mode, load) in busy {
        let fs = FuseFs::mount();
        let mesh = mesh_on(fs.path());
        let target = fs.path().to_string_lossy().into_owned();
        let mut run = mesh.begin(&format!(
            "[targets.t]\nsystem = \"fuse\"\npath = \"{target}\"\n[[phase]]\n{load}\non-error = \"stop\"\n"
        ));
        mesh.until_step_is(mode, "running", LIMIT);
        let seen = fs.log().len();
        until_true("calls arrive", LIMIT, || fs.log().len() > seen);
        fs.break_off();
        let ended = run
            .exit_within(LIMIT)
            .unwrap_or_else(|| panic!("{load}: the run hangs:\n{}", run.log()));
        assert!(!ended.success(), "{load}: {ended}: {}", run.log());
        let db = mesh.db();
        let errors = db.column::<String>("SELECT error FROM tasks WHERE error IS NOT NULL");
        let [error] = &errors[..] else {
            panic!("{load}: {errors:?}: {}", run.log())
        };
        assert!(
            error.contains(&target) || error.contains("w0.dat"),
            "{load}: {error}"
        );
        drop(fs);
        mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    }
}
