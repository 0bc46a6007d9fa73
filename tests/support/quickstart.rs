//! A new user's directory for `benchmesh quickstart`: empty, without configuration, and examined afterwards.

use super::command::benchmesh;
use super::wait::until_true;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Time limit for a plan of about 30 s, on a machine that does other work.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A working directory, and one for temporary files, so that leftovers are detected.
pub struct Place {
    pub work: TempDir,
    pub temporary: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let directory = || tempfile::Builder::new().prefix("bm-qs-").tempdir().unwrap();
        Self {
            work: directory(),
            temporary: directory(),
        }
    }

    pub fn quickstart(&self) -> Command {
        let mut command = benchmesh();
        command
            .arg("quickstart")
            .current_dir(self.work.path())
            .env("TMPDIR", self.temporary.path());
        command
    }

    pub fn files(&self) -> Vec<String> {
        names(self.work.path())
    }

    /// Fails if anything but databases is left, or if a process that was started here still runs.
    pub fn assert_only_databases(&self, count: usize) {
        let files = self.files();
        let databases = files
            .iter()
            .filter(|name| name.starts_with("benchmesh-quickstart") && name.ends_with(".db"));
        assert_eq!(databases.count(), count, "{files:?}");
        assert_eq!(files.len(), count, "{files:?}");
        assert_eq!(names(self.temporary.path()), Vec::<String>::new());
        let temporary = self.temporary.path().to_string_lossy().into_owned();
        until_true("its processes are gone", Duration::from_secs(60), || {
            processes_that_mention(&temporary).is_empty()
        });
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Command lines of running processes with `text` in them or in their environment's working directory.
fn processes_that_mention(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(cmdline) = std::fs::read(entry.path().join("cmdline")) {
            let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
            if cmdline.contains(text) {
                found.push(cmdline);
            }
        }
    }
    found
}
