//! A separate ext4 on a loop device in memory, removed on drop.
//!
//! The machine's own file system may lack a journal. Then ext4 skips inodes that were freed within the last seconds,
//! and the cost of a create depends on earlier deletes, not on the contestant.

use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Room for two trees of four workers, and an inode for each of their files.
const BYTES: u64 = 4 << 30;

pub struct Ext4 {
    /// In memory: the image and, beside it, the mount point.
    root: TempDir,
    directory: std::path::PathBuf,
    device: String,
}

impl Ext4 {
    /// `None` without root, loop devices or mkfs.ext4.
    pub fn new() -> Option<Ext4> {
        let root = tempfile::tempdir_in("/dev/shm").ok()?;
        let (image, directory) = (root.path().join("image"), root.path().join("fs"));
        std::fs::create_dir(&directory).ok()?;
        let file = std::fs::File::create(&image).ok()?;
        file.set_len(BYTES).ok()?;
        output_of("mkfs.ext4", &["-q".as_ref(), &image])?;
        let device = output_of("losetup", &["-f".as_ref(), "--show".as_ref(), &image])?;
        let ext4 = Ext4 {
            device: device.trim().to_owned(),
            directory,
            root,
        };
        let mount = [
            "-t".as_ref(),
            "ext4".as_ref(),
            ext4.device.as_ref(),
            ext4.path(),
        ];
        output_of("mount", &mount)?;
        Some(ext4)
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _absent = output_of("umount", &["-l".as_ref(), self.path()]);
        let _absent = output_of("losetup", &["-d".as_ref(), self.device.as_ref()]);
        let _keep = &self.root;
    }
}

/// Output of a program; `None` if it is not installed or fails.
fn output_of(program: &str, arguments: &[&Path]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}
