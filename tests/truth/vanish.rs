//! A target that disappears under the load: a user removes the run's directory, or the file system's server is gone.
//!
//! With every workload the run ends; if names are needed, with an error that names a place on the target. The agent
//! continues: the next plan runs.

use crate::needs;
use crate::support::fuse_fs::FuseFs;
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Loads that run until they are ended, each in its running mode.
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
        "workload = \"io\"\nsize = \"400k\"\nruntime = \"60s\"\nmodes = [\"getc\"]",
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

/// Operations on open files need no name; all other names are missing then.
#[test]
fn a_directory_that_is_removed_under_the_load_ends_it_where_names_are_needed() {
    let top = tempfile::Builder::new()
        .prefix("bm-gone-")
        .tempdir()
        .unwrap();
    let mesh = mesh_on(top.path());
    for (mode, load) in LOADS {
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
            // Files created meanwhile may interfere.
            let path = entry.unwrap().path();
            until_true("it is removed", LIMIT, || {
                std::fs::remove_dir_all(&path).is_ok() || !path.exists()
            });
        }
        let ended = run
            .exit_within(LIMIT)
            .unwrap_or_else(|| panic!("{load}: the run hangs:\n{}", run.log()));
        let errors = mesh.db().column::<String>(
            "SELECT t.error FROM tasks t JOIN steps s ON s.id = t.step_id
             WHERE t.error IS NOT NULL AND s.run_id = (SELECT max(id) FROM runs)",
        );
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
    // Only root may detach a mount that is in use.
    needs!("root");
    // Loads that hold or wait do not access the file system meanwhile.
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

/// Two clients at one path, one of them on its own mount, which loses its server. Takes about 8 s, mostly waiting.
#[test]
fn a_mount_that_dies_on_one_client_leaves_the_other_to_go_on() {
    needs!("root", "fuse");
    let fs = FuseFs::mount();
    let target = tempfile::Builder::new()
        .prefix("bm-target-")
        .tempdir()
        .unwrap();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(target.path()));
    let other = Agent::named("b").allow(target.path());
    mesh.add(other.mounting(fs.path(), target.path()));
    let mut run = mesh.begin(&format!(
        "on-loss = \"continue\"\n[targets.t]\nsystem = \"local\"\npath = \"{}\"\n\
         [[phase]]\nname = \"before\"\nworkload = \"files\"\nfiles = 50\nruntime = \"5s\"\nmodes = [\"stat\"]\nerrors-limit = \"1s\"\n\
         [[phase]]\nname = \"after\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]\n",
        target.path().display()
    ));
    mesh.until_step_is("stat", "running", LIMIT);
    until_true("both have done something", LIMIT, || {
        let done = "SELECT count(DISTINCT task_id) FROM op_intervals WHERE ops > 0";
        mesh.db().one::<i64>(done) == 2
    });
    fs.break_off();
    let ended = run.exit_within(LIMIT).expect("the run ends");
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());
    let db = mesh.db();
    let rows = db.rows(
        "SELECT s.mode, s.state AS step, s.partial, a.name, t.state, coalesce(t.error, '') AS error,
             (SELECT coalesce(sum(errors), 0) FROM task_errors e WHERE e.task_id = t.id) AS errors,
             t.ended_us - t.start_us AS took_us
         FROM tasks t JOIN steps s ON s.id = t.step_id JOIN agents a ON a.id = t.agent_id ORDER BY s.ordinal, a.name",
    );
    let states: Vec<String> = rows
        .iter()
        .map(|row| {
            let partial = row.integer("partial");
            let [mode, step, name, state] =
                ["mode", "step", "name", "state"].map(|column| row.text(column));
            format!("{mode} {step} {partial} {name} {state}")
        })
        .collect();
    assert_eq!(
        states,
        [
            "stat done 1 a done",
            "stat done 1 b failed",
            "write done 1 a done",
            "write done 1 b lost",
            "read done 1 a done",
            "read done 1 b lost",
        ],
        "{rows:#?}"
    );
    assert!(rows[0].integer("took_us") >= 5_000_000, "{rows:#?}");
    let error = rows[1].text("error");
    assert!(
        error.contains("errors-limit: nothing has succeeded for 1 s"),
        "{error}"
    );
    assert!(error.contains("not connected"), "{error}");
    // A hundred of each kind as fast as they fail, then slower and slower: at most ten per second and worker.
    let errors = rows[1].integer("errors");
    assert!((10..2_000).contains(&errors), "{errors}");
    let kinds = db.rows(
        "SELECT kind, count(*) AS many FROM events WHERE kind IN ('errors-limit', 'target-lost', 'agent-lost') GROUP BY kind ORDER BY kind",
    );
    let kinds: Vec<(String, i64)> = kinds
        .iter()
        .map(|row| (row.text("kind"), row.integer("many")))
        .collect();
    assert_eq!(
        kinds,
        [
            ("errors-limit".to_owned(), 1),
            ("target-lost".to_owned(), 2)
        ]
    );
}
