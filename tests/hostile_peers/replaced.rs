//! Somebody who may write to a target puts a device node, a hard link or a pipe in the place of a data file between two
//! modes. Nothing is written to what they lead to, and the step that meets one is refused by name.

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

/// The data file of the only task, once it is there.
fn data_file(target: &Path) -> PathBuf {
    let mut found = None;
    until_true("the data file is there", LIMIT, || {
        let run = fs::read_dir(target).unwrap().flatten().find(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("benchmesh-") && !name.contains('.')
        });
        let cells = run.and_then(|run| fs::read_dir(run.path()).ok());
        found = cells.into_iter().flatten().flatten().find_map(|cell| {
            let file = cell.path().join("t0/w0.dat");
            file.exists().then_some(file)
        });
        found.is_some()
    });
    found.unwrap()
}

/// Writes a file and overwrites it in the next mode. While the first one goes on, which holds its file, `exchange` puts
/// something in the place of its name. What the database says of the run's end.
fn attacked(exchange: impl FnOnce(&Path)) -> String {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["victim"], target.path());
    let mut run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\nmodes = [\"write\", \"rewrite\"]\n\
         size = \"1m\"\nbs = \"64k\"\nrate = \"1m\"\n",
        target.path().display()
    ));
    let file = data_file(target.path());
    fs::rename(&file, file.with_extension("aside")).unwrap();
    exchange(&file);
    run.exit_within(LIMIT).unwrap();
    let reasons: Vec<String> = mesh.db().column(
        "SELECT message FROM events WHERE kind IN ('step-failed', 'run-failed') ORDER BY id",
    );
    reasons.join("\n")
}

#[test]
fn a_device_node_is_never_written_to() {
    needs!("root", "loop");
    let device = Bare::on_loop(BYTES);
    let number = fs::metadata(device.path()).unwrap().rdev();
    let reasons = attacked(|file| {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, file, FileType::BlockDevice, mode, number).unwrap();
    });
    assert!(reasons.contains("w0.dat` is a block device"), "{reasons}");
    let content = fs::read(device.image()).unwrap();
    assert!(
        content.iter().all(|byte| *byte == 0),
        "the disk was written to"
    );
}

#[test]
fn a_hard_link_is_never_written_to() {
    let home = tempfile::tempdir().unwrap();
    let precious = home.path().join("precious");
    fs::write(&precious, "gold").unwrap();
    let reasons = attacked(|file| {
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
    let reasons = attacked(|file| {
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
