//! An attacker with the agent's permissions replaces a target's directories with symlinks while loads work there.
//! Nothing outside the target is created, changed or removed, no load loses an operation, and the step that meets a
//! link is refused.

use super::LIMIT;
use crate::support::mesh::{Agent, Mesh};
use crate::support::process::Process;
use crate::support::wait::until_true;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const FILES: usize = 2400;
const PER_S: usize = 400;

/// Name, type, times and content of every entry of a directory.
fn inventory(path: &Path) -> Vec<(PathBuf, u32, u64, i64, i64, Vec<u8>)> {
    let mut entries: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            let content = match facts.is_file() {
                true => fs::read(&path).unwrap(),
                false => Vec::new(),
            };
            let changed = (facts.mtime_nsec(), facts.ctime_nsec());
            (
                path,
                facts.mode(),
                facts.ino(),
                changed.0,
                changed.1,
                content,
            )
        })
        .collect();
    entries.sort();
    entries
}

/// A file under every name that a worker of `files` or `io` could open, so that a followed link would find it.
fn treasury() -> TempDir {
    let outside = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        for letter in ["c", "r"] {
            let name = format!("{letter}{number:09}");
            fs::write(outside.path().join(name), "gold").unwrap();
        }
    }
    outside
}

/// The directories below `path`, at any depth, without following links.
fn directories(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(directories(&entry.path()));
            found.push(entry.path());
        }
    }
    found
}

/// Replaces a directory with a link to `outside`.
fn swap(directory: &Path, outside: &Path) {
    let mut aside = directory.as_os_str().to_owned();
    aside.push("-aside");
    fs::rename(directory, &aside).unwrap();
    symlink(outside, directory).unwrap();
}

/// Waits until the step of this ordinal is in this state; fails if the run ends before.
fn until_step(mesh: &Mesh, run: &Process, ordinal: u32, wanted: &str) {
    let sql = format!("SELECT state FROM steps WHERE ordinal = {ordinal}");
    until_true(&format!("step {ordinal} is {wanted}"), LIMIT, || {
        let state = mesh.db().column::<String>(&sql);
        let is_over = state == ["failed"] || state == ["done"];
        assert!(state == [wanted] || !is_over, "{state:?}: {}", run.log());
        state == [wanted]
    });
}

#[test]
fn a_link_that_takes_a_directorys_place_leads_nowhere() {
    swap_everything();
}

fn swap_everything() {
    let (allowed, outside) = (tempfile::tempdir().unwrap(), treasury());
    let before = inventory(outside.path());
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("calm"));
    mesh.add(Agent::named("files").allow(allowed.path()));
    mesh.add(Agent::named("io").allow(allowed.path()));
    let seconds = FILES / PER_S;
    let mut run = mesh.begin(&format!(
        r#"
        [targets.t]
        system = "local"
        path = "{path}"
        [[phase]]
        [[phase.group]]
        name = "calm"
        agents = ["calm"]
        workload = "null"
        ops = {calm}
        rate_iops = 1000
        [[phase.group]]
        name = "files"
        agents = ["files"]
        workload = "files"
        modes = ["create", "delete"]
        files = {FILES}
        dirs = 40
        size = "1k"
        rate_iops = {PER_S}
        [[phase.group]]
        name = "io"
        agents = ["io"]
        workload = "io"
        modes = ["write"]
        size = "1m"
        bs = "4k"
        runtime = "{seconds}s"
        rate_iops = 100
        "#,
        path = allowed.path().display(),
        calm = seconds * 1000,
    ));
    until_step(&mesh, &run, 1, "running");
    // Bottom-up: directories of files, of workers and of tasks, of each group; the run's own directory stays.
    let all = directories(allowed.path());
    let deepest = all.iter().map(|path| path.components().count()).max();
    let runs_own = allowed.path().components().count() + 1;
    let swapped: Vec<_> = all
        .iter()
        .filter(|path| path.components().count() > runs_own)
        .collect();
    assert!(
        swapped.len() > FILES / 40 && deepest > Some(runs_own + 2),
        "{all:?}"
    );
    for directory in &swapped {
        swap(directory, outside.path());
    }
    let ended = run.exit_within(LIMIT).expect("the run ends");
    assert!(
        !ended.success(),
        "a step went on behind a link: {}",
        run.log()
    );
    assert_eq!(inventory(outside.path()), before);

    // Loads keep their files open: no operation was lost.
    let db = mesh.db();
    db.assert_sound();
    let rows = db.rows(
        "SELECT group_name, ops, errors FROM v_results v JOIN steps s ON s.id = v.step_id
         WHERE s.ordinal = 1 AND group_name IN ('calm', 'files') ORDER BY group_name",
    );
    let counted: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.text("group_name"),
                row.integer("ops"),
                row.integer("errors"),
            )
        })
        .collect();
    let expected = [("calm", seconds * 1000), ("files", FILES)];
    let expected = expected.map(|(group, ops)| (group.to_owned(), ops as i64, 0));
    assert_eq!(counted, expected, "{}", run.log());
    // The next step opens them again, meets a link, and is refused.
    let refused = db.column::<String>(
        "SELECT t.error FROM tasks t JOIN steps s ON s.id = t.step_id
         WHERE s.ordinal = 2 AND t.group_name = 'files'",
    );
    assert!(refused[0].contains("Not a directory"), "{refused:?}");
    // Each refusal has one event: for each agent that cannot prepare, and for the removal of each cell.
    let events = db.rows(
        "SELECT kind, substr(message, instr(message, 'agent `'), 12) AS agent FROM events
         WHERE message LIKE '%Not a directory%' AND kind <> 'run-failed' ORDER BY kind, agent",
    );
    let events: Vec<_> = events
        .iter()
        .map(|event| (event.text("kind"), event.text("agent")))
        .collect();
    let removals = ["agent `files", "agent `io`: "].map(|agent| ("cell-left", agent));
    for removal in removals {
        let is_it = |event: &&(String, String)| (&*event.0, &*event.1) == removal;
        assert_eq!(events.iter().filter(is_it).count(), 1, "{events:?}");
    }
    let others = events.iter().filter(|event| event.0 != "cell-left");
    let others: Vec<_> = others.cloned().collect();
    let files = ("prepare-failed".to_owned(), "agent `files".to_owned());
    assert!(
        others.contains(&files) && others.iter().all(|event| event.0 == "prepare-failed"),
        "{events:?}"
    );
}
