//! A user with write access to a target replaces a data file with a device node, a hard link or a pipe between two
//! modes. Nothing is written to their destinations, and a step that meets one fails with an error that names it.

use super::LIMIT;
use crate::needs;
use crate::support::loop_device::Bare;
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const BYTES: u64 = 1 << 20;

/// A load that creates data files in its first mode and writes to them in its second, and the file to replace.
struct Load {
    phase: &'static str,
    /// Relative to the directory of the cell.
    file: &'static str,
}

const REWRITE: Load = Load {
    phase: "workload = \"io\"\nmodes = [\"write\", \"rewrite\"]\nsize = \"1m\"\nbs = \"64k\"\nrate = \"1m\"\n",
    file: "t0/w0.dat",
};

const APPEND: Load = Load {
    phase: "workload = \"files\"\nmodes = [\"create\", \"append\"]\nfiles = 4\nsize = \"256k\"\nrate = \"1m\"\n",
    file: "t0/w000000000/d000000000/c000000000",
};

/// The data file of the only task, once it exists.
fn data_file(target: &Path, name: &str) -> PathBuf {
    let mut found = None;
    until_true("the data file is there", LIMIT, || {
        let run = fs::read_dir(target).unwrap().flatten().find(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("benchmesh-") && !name.contains('.')
        });
        let cells = run.and_then(|run| fs::read_dir(run.path()).ok());
        found = cells.into_iter().flatten().flatten().find_map(|cell| {
            let file = cell.path().join(name);
            file.exists().then_some(file)
        });
        found.is_some()
    });
    found.unwrap()
}

/// Runs the load. During its first mode, `exchange` replaces a data file. Returns the reason of the run's end from the
/// database.
fn attacked(load: &Load, exchange: impl FnOnce(&Path)) -> String {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["victim"], target.path());
    let mut run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\n{}",
        target.path().display(),
        load.phase
    ));
    let file = data_file(target.path(), load.file);
    fs::rename(&file, file.with_extension("aside")).unwrap();
    exchange(&file);
    run.exit_within(LIMIT).unwrap();
    let reasons: Vec<String> = mesh.db().column(
        "SELECT message FROM events WHERE kind IN ('step-failed', 'run-failed')
         UNION ALL SELECT op || ' ' || errno || ' ' || first FROM task_errors",
    );
    reasons.join("\n")
}

/// Runs the load into a node of a block device; returns the reason of the run's end. The device must be unchanged.
fn meets_a_device(load: &Load) -> String {
    let device = Bare::on_loop(BYTES);
    let number = fs::metadata(device.path()).unwrap().rdev();
    let reasons = attacked(load, |file| {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, file, FileType::BlockDevice, mode, number).unwrap();
    });
    let content = fs::read(device.image()).unwrap();
    assert!(
        content.iter().all(|byte| *byte == 0),
        "the disk was written to"
    );
    reasons
}

#[test]
fn a_device_node_is_never_written_to() {
    needs!("root", "loop");
    let reasons = meets_a_device(&REWRITE);
    assert!(reasons.contains("w0.dat` is a block device"), "{reasons}");
}

#[test]
fn nothing_is_appended_to_a_device_node() {
    needs!("root", "loop");
    let reasons = meets_a_device(&APPEND);
    // EPERM, counted as an error of the operation.
    assert!(reasons.contains("append 1 "), "{reasons}");
}

#[test]
fn a_hard_link_is_never_written_to() {
    let home = tempfile::tempdir().unwrap();
    let precious = home.path().join("precious");
    fs::write(&precious, "gold").unwrap();
    let reasons = attacked(&REWRITE, |file| {
        fs::hard_link(&precious, file).unwrap();
    });
    assert!(
        reasons.contains("w0.dat` is a file with another name"),
        "{reasons}"
    );
    assert_eq!(fs::read(&precious).unwrap(), b"gold");
}

#[test]
fn a_pipe_holds_nobody_up() {
    let reasons = attacked(&REWRITE, |file| {
        mknodat(
            CWD,
            file,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            makedev(0, 0),
        )
        .unwrap();
    });
    assert!(reasons.contains("w0.dat` is a pipe"), "{reasons}");
}
