//! Data kept on a target: laid out by one run, used by the next, refused if they differ, removed by hand.

use crate::support::mesh::Mesh;
use crate::support::plan;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

const LAY_OUT: &str = r#"
[[phase]]
name = "lay out"
workload = "files"
files = 40
size = "3k"
modes = ["create"]
keep = "small"
"#;

const READ: &str = r#"
[[phase]]
name = "read"
workload = "files"
files = 40
size = "3k"
modes = ["stat", "read"]
use = "small"
"#;

/// The direct entries of the target.
fn entries(target: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(target).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Each file below, with its inode and its change time.
fn files(directory: &Path) -> Vec<(PathBuf, u64, i64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let facts = entry.metadata().unwrap();
        match facts.is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path(), facts.ino(), facts.mtime_nsec())),
        }
    }
    found.sort();
    found
}

fn run(mesh: &Mesh, target: &Path, phases: &str) -> crate::support::command::CommandOutput {
    let plan = mesh.plan(&plan::on(target, "", phases));
    mesh.command(&["run", plan.to_str().unwrap()])
}

/// Takes about 6 s.
#[test]
fn data_that_a_run_keeps_are_used_by_another_and_removed_by_hand() {
    let target = tempfile::tempdir().unwrap();
    let target = target.path();
    let mesh = Mesh::of(&["a", "b"], target);

    let missing = run(&mesh, target, READ);
    assert_eq!(missing.code, 2, "{}", missing.all());
    assert!(
        missing.err.contains("no data are kept as `small`"),
        "{}",
        missing.err
    );

    mesh.run(&plan::on(target, "", LAY_OUT));
    assert_eq!(entries(target), ["benchmesh-data-small"]);
    let data = target.join("benchmesh-data-small/data");
    let laid = files(&data);
    assert_eq!(laid.len(), 82, "80 files and two states: {laid:?}");

    mesh.run(&plan::on(target, "", READ));
    assert_eq!(files(&data), laid, "nothing was laid out again");
    let measured: Vec<String> = mesh.db().column(
        "SELECT op || ' ' || ops FROM step_results JOIN steps AS s ON s.id = step_id WHERE s.phase = 'read' ORDER BY s.id",
    );
    assert_eq!(measured, ["stat 80", "read 80"]);
    let sampled: Vec<String> = mesh
        .db()
        .column("SELECT DISTINCT run_id || '' FROM targets ORDER BY run_id");
    assert_eq!(
        sampled,
        ["1", "2"],
        "each run has its own samples of free space"
    );

    let other = run(&mesh, target, &READ.replace("size", "seed = 7\nsize"));
    assert_eq!(other.code, 2, "{}", other.all());
    assert!(
        other.err.contains("`seed` is 1 there and 7 here"),
        "{}",
        other.err
    );

    let listed = mesh.command(&["data", "--format", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let set = &listed["data"][0];
    assert_eq!(
        (&set["name"], &set["is_whole"], &set["files"], &set["tasks"]),
        (&"small".into(), &true.into(), &80.into(), &2.into())
    );
    assert_eq!(set["agents"], serde_json::json!(["a", "b"]));
    let table = mesh.command(&["data"]);
    assert!(
        table.out.contains("small") && table.out.contains("whole"),
        "{}",
        table.out
    );

    let allow = target.to_str().unwrap();
    let cleaned = mesh.command(&[
        "agent",
        "clean",
        "--allow",
        allow,
        "--unchanged-for",
        "1ms",
        "--yes",
    ]);
    assert!(cleaned.all().contains("kept data"), "{}", cleaned.all());
    assert_eq!(files(&data), laid);

    let removed = mesh.command(&["data", "remove", "small", "--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.all());
    assert!(entries(target).is_empty(), "{:?}", entries(target));
    assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM v_kept_data"), 0);
    let again = mesh.command(&["data", "remove", "small", "--yes"]);
    assert_eq!(again.code, 2, "{}", again.all());
    assert!(
        again.err.contains("no data are kept as `small`"),
        "{}",
        again.err
    );
    mesh.assert_no_complaints();
}

/// Takes about 8 s.
#[test]
fn data_that_an_unfinished_run_needs_are_not_removed() {
    let target = tempfile::tempdir().unwrap();
    let target = target.path();
    let mesh = Mesh::of(&["a"], target);
    mesh.run(&plan::on(target, "", LAY_OUT));
    let remove = || mesh.command(&["data", "remove", "small", "--yes"]);
    let refused = |run: &str| {
        let refused = remove();
        assert_eq!(refused.code, 1, "{}", refused.all());
        assert!(refused.err.contains(run), "{}", refused.err);
        assert_eq!(entries(target), ["benchmesh-data-small"]);
    };
    let end = |run: &str| {
        let stopped = mesh.command(&["stop", run]);
        assert_eq!(stopped.code, 0, "{}", stopped.all());
        mesh.until_run_is(&["stopped"], LIMIT);
    };
    let reading = mesh.plan(&plan::on(target, "", READ));
    let run_at =
        |at: &str| mesh.command(&["run", reading.to_str().unwrap(), "--at", at, "--detach"]);
    let much_later = run_at("2999-01-01T00:00Z");
    assert_eq!(much_later.code, 2, "{}", much_later.all());
    assert!(
        much_later.err.contains("in more than a year"),
        "{}",
        much_later.err
    );
    let tomorrow = Command::new("date")
        .args(["-u", "-d", "tomorrow", "+%FT%RZ"])
        .output();
    let queued = run_at(String::from_utf8(tomorrow.unwrap().stdout).unwrap().trim());
    assert_eq!(queued.code, 0, "{}", queued.all());
    refused("run 2, which is queued, needs the data `small`");
    end("2");

    const BEFORE: &str = "[[phase]]\nworkload = \"null\"\nmodes = [\"run\"]\nruntime = \"600s\"\n";
    let begun = mesh.begin(&plan::on(target, "", &format!("{BEFORE}{READ}")));
    mesh.until_step_is("run", "running", LIMIT);
    refused("run 3, which is running, uses the data `small`");
    end("3");
    drop(begun);

    let removed = remove();
    assert_eq!(removed.code, 0, "{}", removed.all());
    let said: String = mesh
        .db()
        .one("SELECT message FROM events WHERE kind = 'data-removed'");
    assert!(
        said.starts_with("1 of 1 part of the data kept as `small` removed, requested by owner"),
        "{said}"
    );
}

/// Truncated blocks, and a set that a stop left incomplete. Takes about 8 s.
#[test]
fn data_that_are_not_whole_are_laid_out_by_keep_alone() {
    let target = tempfile::tempdir().unwrap();
    let target = target.path();
    let mesh = Mesh::of(&["a"], target);
    let io = |modes: &str, owner: &str, more: &str| {
        format!(
            "[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [{modes}]\n{owner} = \"blocks\"\n{more}\n"
        )
    };
    let slow = io("\"write\"", "keep", "rate_iops = 20");
    let begun = mesh.begin(&plan::on(target, "", &slow));
    mesh.until_step_is("write", "running", LIMIT);
    let stopped = mesh.command(&["stop", "1"]);
    assert_eq!(stopped.code, 0, "{}", stopped.all());
    mesh.until_run_is(&["stopped"], LIMIT);
    drop(begun);
    assert_eq!(entries(target), ["benchmesh-data-blocks"]);
    assert_eq!(mesh.db().one::<i64>("SELECT is_whole FROM v_kept_data"), 0);
    let refused = run(&mesh, target, &io("\"read\"", "use", ""));
    assert_eq!(refused.code, 2, "{}", refused.all());
    assert!(refused.err.contains("are not whole"), "{}", refused.err);

    mesh.run(&plan::on(
        target,
        "",
        &io("\"write\", \"read\"", "keep", ""),
    ));
    assert_eq!(mesh.db().one::<i64>("SELECT is_whole FROM v_kept_data"), 1);
    let file = target.join("benchmesh-data-blocks/data/t0/w0.dat");
    let cut = std::fs::File::options().write(true).open(&file).unwrap();
    cut.set_len(1 << 19).unwrap();
    let failed = run(&mesh, target, &io("\"read\"", "use", ""));
    assert!(
        failed.all().contains("is not there whole"),
        "{}",
        failed.all()
    );
    assert_eq!(
        std::fs::metadata(&file).unwrap().len(),
        1 << 19,
        "nothing was laid out"
    );
    mesh.run(&plan::on(target, "", &io("\"read\"", "keep", "")));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 1 << 20);
    mesh.run(&plan::on(target, "", &io("\"randread\"", "use", "")));
}
