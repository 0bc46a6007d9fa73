//! Directories: a run creates its own beneath an allowed path, with a directory per cell and task.
//!
//! For a path that the agent does not allow, answers reveal no facts, not even whether it exists.

mod examine;

use super::{AllowedTargets, PathFacts, RequestedTarget, RunDirectoryFacts, RunName, TargetOpener};
use crate::host::mount;
use benchmesh_model::targets::DIRECTORY;
use benchmesh_workloads::sandbox::{Allowed, Make, RunDirectory, SandboxError, Space};
use benchmesh_workloads::task::{CellDir, Place};
use rustix::fs::{Access, AtFlags, CWD};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const KIND: TargetOpener = TargetOpener {
    about: &DIRECTORY,
    allow: |paths| Ok(Arc::new(Allowed::new(paths)?)),
    examine: examine::examine,
};

impl AllowedTargets for Allowed {
    /// Accepts every path. A path that is not allowed is refused at its first request, whether it exists or not.
    fn find(&self, name: &str) -> Option<Box<dyn RequestedTarget + '_>> {
        Some(Box::new(DirectoryTarget {
            allowed: self,
            path: name.to_owned(),
        }))
    }

    fn names(&self) -> Vec<PathBuf> {
        self.roots().to_vec()
    }
}

struct DirectoryTarget<'a> {
    allowed: &'a Allowed,
    path: String,
}

impl DirectoryTarget<'_> {
    /// The run's directory, and whether it was created.
    fn open(
        &self,
        run: RunName<'_>,
        make: Make,
    ) -> Result<Option<(RunDirectory, bool)>, SandboxError> {
        let path = Path::new(&self.path);
        RunDirectory::open_or_make(self.allowed, path, run.mesh, run.uid, make)
    }
}

impl RequestedTarget for DirectoryTarget<'_> {
    fn open_run(&self, run: RunName<'_>, make: Make) -> Result<RunDirectoryFacts, SandboxError> {
        let Some((directory, made)) = self.open(run, make)? else {
            return Ok(RunDirectoryFacts::default());
        };
        Ok(RunDirectoryFacts {
            found: true,
            made,
            nonce: directory.nonce().to_owned(),
            free_bytes: clamped(directory.free_bytes()?),
        })
    }

    fn remove_run(
        &self,
        run: RunName<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        match self.open(run, Make::Never)? {
            Some((directory, _)) => directory.remove(progress),
            None => Ok(()),
        }
    }

    fn remove_cell(
        &self,
        run: RunName<'_>,
        cell: &str,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        match self.open(run, Make::Never)? {
            Some((directory, _)) => directory.remove_cell(cell, task_index, progress),
            None => Ok(()),
        }
    }

    fn place(
        &self,
        run: RunName<'_>,
        cell: &str,
        _task_index: u32,
    ) -> Result<Option<Place>, SandboxError> {
        let opened = self.open(run, Make::Never)?;
        Ok(opened.map(|(directory, _)| {
            Place::Directory(CellDir {
                run: Arc::new(directory),
                cell: cell.to_owned(),
            })
        }))
    }

    fn free(&self) -> Option<Space> {
        let path = self.allowed.permits(Path::new(&self.path)).ok()?;
        Space::at(&path).ok()
    }

    fn survey(&self) -> PathFacts {
        facts(self.allowed, &self.path, Use::Target)
    }
}

/// The intended use of a path that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Target,
    Source,
}

/// Facts about a path beneath the allowed ones.
pub fn facts(allowed: &Allowed, text: &str, wanted: Use) -> PathFacts {
    let mut facts = PathFacts {
        path: text.to_owned(),
        free_files: -1,
        ..PathFacts::default()
    };
    let path = Path::new(text);
    let real = match allowed.permits(path) {
        Ok(real) => real,
        Err(SandboxError::Io { source, .. }) => {
            facts.allowed = true;
            facts.problem = match source.kind() {
                std::io::ErrorKind::NotFound => "does not exist".to_owned(),
                _ => format!("cannot be examined: {source}"),
            };
            return facts;
        }
        Err(SandboxError::NotAbsolute { .. }) => {
            facts.problem = "is not an absolute path".to_owned();
            return facts;
        }
        Err(_) if allowed.names(path) => {
            facts.problem =
                "a symlink in the path leads out of the paths that this agent allows".to_owned();
            return facts;
        }
        Err(_) => {
            let option = match wanted {
                Use::Target => DIRECTORY.option,
                Use::Source => "allow-read",
            };
            facts.problem = format!("is not beneath a path that this agent allows (--{option})");
            return facts;
        }
    };
    facts.allowed = true;
    facts.exists = true;
    facts.problem = problem(&real, wanted).unwrap_or_default();
    match Space::at(&real) {
        Ok(space) => {
            facts.free_bytes = clamped(space.free_bytes);
            facts.free_files = match space.files {
                0 => -1,
                _ => clamped(space.free_files),
            };
            facts.size_bytes = clamped(space.size_bytes);
            facts.usable_bytes = clamped(space.usable_bytes);
        }
        Err(error) if facts.problem.is_empty() => {
            facts.problem = format!("its free space cannot be queried: {error}");
        }
        Err(_) => {}
    }
    if let Some(mount) = mount(&real) {
        facts.beneath = mount.beneath();
        facts.file_system = mount.kind;
        facts.device = mount.device;
        facts.mount_source = mount.source;
        facts.mount_options = mount.options;
    }
    facts
}

/// Why a path is not usable.
fn problem(path: &Path, wanted: Use) -> Option<String> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Some(format!("cannot be examined: {error}")),
    };
    let (rights, what) = match (wanted, metadata.is_dir()) {
        (Use::Target, false) => return Some("is not a directory".to_owned()),
        (Use::Target, true) => (Access::WRITE_OK | Access::EXEC_OK, "written"),
        (Use::Source, true) => (Access::READ_OK | Access::EXEC_OK, "read"),
        (Use::Source, false) => (Access::READ_OK, "read"),
    };
    match rustix::fs::accessat(CWD, path, rights, AtFlags::EACCESS) {
        Ok(()) => None,
        Err(rustix::io::Errno::ROFS) => {
            Some("is on a file system that is mounted read-only".to_owned())
        }
        Err(error) => {
            let uid = rustix::process::geteuid().as_raw();
            Some(format!(
                "cannot be {what} by this agent (user id {uid}): {error}"
            ))
        }
    }
}

fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
