//! Whether a process's cgroup is frozen: `frozen 1` in its `cgroup.events` (cgroup v2). Its processes then do not run,
//! and their state in `stat` does not show the reason.
//!
//! Checked only for a process that has stopped using CPU time, so that a working process costs nothing.

use super::proc_file::Buffer;
use rustix::fs::{CWD, Mode, OFlags};
use std::path::{Path, PathBuf};

/// Mount points of the hierarchy, alone or beside those of v1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// The events file of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    /// Found by the process's `/proc/PID/cgroup`; `None`: it is in the root cgroup, or the hierarchy does not exist.
    pub(crate) fn of(directory: &Path) -> Option<Freezer> {
        let text = std::fs::read_to_string(directory.join("cgroup")).ok()?;
        let cgroup = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        if cgroup.is_empty() || cgroup.starts_with("..") {
            return None;
        }
        let events = |root: &str| Path::new(root).join(cgroup).join("cgroup.events");
        ROOTS
            .iter()
            .map(|root| events(root))
            .find(|path| path.exists())
            .map(Freezer)
    }

    pub(crate) fn is_frozen(&self, buffer: &mut Buffer) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(CWD, &self.0, flags, Mode::empty()) else {
            return false;
        };
        let text = buffer.fill_once(&file);
        text.is_ok_and(|text| {
            text.split(|byte| *byte == b'\n')
                .any(|line| line == b"frozen 1")
        })
    }
}
