//! The directory of a run on a target: the appointed agent creates and removes it, all agents use it.
//!
//! It appears atomically: it is created under another name, marked, then renamed. So no agent ever sees it without its
//! marker.

use super::dir::Dir;
use super::lock::{Lock, lock};
use super::marker::{self, Marker};
use super::{Allowed, SandboxError, check_name, open_canonical};
use rustix::fs::{AtFlags, FlockOperation, Mode, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;

/// Whether to create a missing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    IfMissing,
    Never,
}

/// A run's own directory on a target, by its descriptor.
#[derive(Debug)]
pub struct RunDirectory {
    parent: Dir,
    dir: Dir,
    name: String,
    marker: Marker,
    /// Shows other processes that the directory is in use, or is being removed: see `lock`.
    lock: Lock,
}

/// Prefix of the names of runs' directories.
pub(super) const PREFIX: &str = "benchmesh-";

impl RunDirectory {
    /// Opens the directory of `run_uid` at `target`, or creates it; returns whether it was created. `None` if it does
    /// not exist and must not be created. Refuses a directory of that name without the marker of this mesh and run.
    pub fn open_or_make(
        allowed: &Allowed,
        target: &Path,
        mesh_uid: &str,
        run_uid: &str,
        make: Make,
    ) -> Result<Option<(RunDirectory, bool)>, SandboxError> {
        check_name("run", run_uid)?;
        let name = format!("{PREFIX}{run_uid}");
        let parent = open_canonical(&allowed.permits(target)?)?;
        let mut made = false;
        let dir = match parent.dir_not_mounted_on(OsStr::new(&name))? {
            Some(dir) => dir,
            None if make == Make::Never => return Ok(None),
            None => {
                made = make_marked(&parent, &name, mesh_uid, run_uid)?;
                let opened = parent.dir_not_mounted_on(OsStr::new(&name))?;
                opened.ok_or_else(|| parent.error("open", &name, Errno::NOENT))?
            }
        };
        check_holder(&dir)?;
        let marker = check_marker(&dir, mesh_uid, run_uid)?;
        let lock = lock(&dir, FlockOperation::NonBlockingLockShared)?;
        if lock == Lock::HeldByOthers {
            return Err(SandboxError::NotOurs {
                path: dir.path().to_owned(),
                why: "it is being removed, by `benchmesh agent clean`".to_owned(),
            });
        }
        let run = RunDirectory {
            parent,
            dir,
            name,
            marker,
            lock,
        };
        Ok(Some((run, made)))
    }

    /// Opens it for removal, without the lock that marks it as in use.
    pub(super) fn open_unlocked(
        allowed: &Allowed,
        target: &Path,
        mesh_uid: &str,
        run_uid: &str,
    ) -> Result<Option<RunDirectory>, SandboxError> {
        check_name("run", run_uid)?;
        let name = format!("{PREFIX}{run_uid}");
        let parent = open_canonical(&allowed.permits(target)?)?;
        let Some(dir) = parent.dir_not_mounted_on(OsStr::new(&name))? else {
            return Ok(None);
        };
        check_holder(&dir)?;
        let marker = check_marker(&dir, mesh_uid, run_uid)?;
        Ok(Some(RunDirectory {
            parent,
            dir,
            name,
            marker,
            lock: Lock::Unknown,
        }))
    }

    /// Keeps a lock that was taken after the open, until the directory is removed.
    pub(super) fn locked_by(mut self, lock: Lock) -> RunDirectory {
        self.lock = lock;
        self
    }

    /// Equal on two agents if and only if they see the same directory.
    pub fn nonce(&self) -> &str {
        &self.marker.nonce
    }

    /// The directory itself.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Bytes of its file system that an unprivileged user may still use.
    pub fn free_bytes(&self) -> Result<u64, SandboxError> {
        self.dir.free_bytes()
    }

    /// The directory of a cell; creates it if needed.
    pub fn cell(&self, name: &str) -> Result<Dir, SandboxError> {
        self.dir.make_dir(name)
    }

    /// Removes the data of one task in a cell, and the cell if nothing else is in it.
    pub fn remove_cell(
        &self,
        name: &str,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        check_name("cell", name)?;
        check_marker(&self.dir, &self.marker.mesh, &self.marker.run)?;
        let Some(cell) = self.dir.dir_not_mounted_on(OsStr::new(name))? else {
            return Ok(());
        };
        cell.remove_all(&task_dir_name(task_index), progress)?;
        match rustix::fs::unlinkat(self.dir.fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(()),
            Err(errno) => Err(self.dir.error("remove", name, errno)),
        }
    }

    /// Removes the directory and its contents; the marker last, so that the rest can still be recognised after an
    /// interruption. A directory that has vanished is no error.
    pub fn remove(mut self, progress: &mut dyn FnMut(u64)) -> Result<(), SandboxError> {
        match Marker::read(&self.dir)? {
            Some(marker) if marker == self.marker => {}
            Some(_) => return Err(self.not_ours("its marker has changed")),
            None if self.has_vanished()? => return Ok(()),
            None => return Err(self.not_ours("its marker is gone")),
        }
        check_holder(&self.dir)?;
        super::remove::remove_contents(&self.dir, marker::NAME, progress)?;
        self.unmark()?;
        if self.has_vanished()? {
            return Ok(());
        }
        match rustix::fs::unlinkat(self.parent.fd(), &*self.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.parent.error("remove", &self.name, errno)),
        }
    }

    /// Removes the marker and then releases its lock: over NFS a removed file stays in its directory, under another
    /// name, while it is open on this host.
    fn unmark(&mut self) -> Result<(), SandboxError> {
        self.dir.remove_file(marker::NAME)?;
        self.lock = Lock::Unknown;
        Ok(())
    }

    /// Whether the name no longer leads to this directory.
    fn has_vanished(&self) -> Result<bool, SandboxError> {
        let ours = rustix::fs::fstat(self.dir.fd())
            .map_err(|errno| self.parent.error("stat", &self.name, errno))?;
        match rustix::fs::statat(self.parent.fd(), &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino)),
            Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(self.parent.error("stat", &self.name, errno)),
        }
    }

    fn not_ours(&self, why: &str) -> SandboxError {
        SandboxError::NotOurs {
            path: self.dir.path().to_owned(),
            why: why.to_owned(),
        }
    }
}

/// The directory of one task within its cell.
pub(crate) fn task_dir_name(task_index: u32) -> String {
    format!("t{task_index}")
}

/// Creates the directory with its marker under another name and renames it. False if another agent was faster.
///
/// The owner of the target can replace the new directory with another one before it is opened. So only an empty one to
/// which no other user may write is marked, and existing data are never mistaken for the run's.
fn make_marked(
    parent: &Dir,
    name: &str,
    mesh_uid: &str,
    run_uid: &str,
) -> Result<bool, SandboxError> {
    let marker = Marker {
        mesh: mesh_uid.to_owned(),
        run: run_uid.to_owned(),
        nonce: marker::nonce()?,
    };
    let unborn = format!("{name}.{}", marker.nonce);
    rustix::fs::mkdirat(parent.fd(), &*unborn, Mode::RWXU)
        .map_err(|errno| parent.error("make", &unborn, errno))?;
    mark_new(parent, &unborn, name, &marker)
}

/// Marks a new directory and renames it to its final name.
pub(super) fn mark_new(
    parent: &Dir,
    unborn: &str,
    name: &str,
    marker: &Marker,
) -> Result<bool, SandboxError> {
    let dir = parent
        .dir_not_mounted_on(OsStr::new(unborn))?
        .ok_or_else(|| parent.error("open", unborn, Errno::NOENT))?;
    let checked = check_new(&dir);
    let is_ours = checked.is_ok();
    let born = checked.and_then(|()| marker.write(&dir)).and_then(|()| {
        match rustix::fs::renameat(parent.fd(), unborn, parent.fd(), name) {
            Ok(()) => Ok(true),
            // A rename never replaces a directory that is not empty.
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) => Err(parent.error("make", name, errno)),
        }
    });
    if !matches!(born, Ok(true)) {
        if is_ours {
            dir.remove_file(marker::NAME)?;
        }
        // The name may lead elsewhere by now, so only an empty directory is removed.
        match rustix::fs::unlinkat(parent.fd(), unborn, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(errno) => return Err(parent.error("remove", unborn, errno)),
        }
    }
    born
}

/// Refuses a directory that is not the new one.
fn check_new(dir: &Dir) -> Result<(), SandboxError> {
    check_holder(dir)?;
    match dir.names()?.is_empty() {
        true => Ok(()),
        false => Err(exchanged(dir, "it was made a moment ago and is not empty")),
    }
}

/// Refuses a directory that does not belong to the agent's user alone.
fn check_holder(dir: &Dir) -> Result<(), SandboxError> {
    let facts =
        rustix::fs::fstat(dir.fd()).map_err(|errno| SandboxError::io("stat", dir.path(), errno))?;
    let is_open =
        |facts: &Stat| Mode::from_raw_mode(facts.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    let agent = rustix::process::geteuid().as_raw();
    if facts.st_uid == agent && !is_open(&facts) {
        return Ok(());
    }
    let new = new_directory_in(dir)?;
    if facts.st_uid != agent && facts.st_uid != new.st_uid {
        return Err(exchanged(dir, "it belongs to another user"));
    }
    match is_open(&facts) && !is_open(&new) {
        true => Err(exchanged(dir, "others than its owner may write to it")),
        false => Ok(()),
    }
}

/// Owner and mode of a newly created directory. Servers may give directories created by root to another user
/// (root_squash), and some file systems keep no owners or modes.
fn new_directory_in(dir: &Dir) -> Result<Stat, SandboxError> {
    let name = format!("{}.{}", marker::NAME, marker::nonce()?);
    rustix::fs::mkdirat(dir.fd(), &*name, Mode::RWXU)
        .map_err(|errno| dir.error("make", &name, errno))?;
    let facts = rustix::fs::statat(dir.fd(), &*name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| dir.error("stat", &name, errno));
    rustix::fs::unlinkat(dir.fd(), &*name, AtFlags::REMOVEDIR)
        .map_err(|errno| dir.error("remove", &name, errno))?;
    facts
}

fn exchanged(dir: &Dir, why: &str) -> SandboxError {
    SandboxError::NotOurs {
        path: dir.path().to_owned(),
        why: format!("{why}: somebody may have exchanged it with another one"),
    }
}

fn check_marker(dir: &Dir, mesh_uid: &str, run_uid: &str) -> Result<Marker, SandboxError> {
    let not_ours = |why| SandboxError::NotOurs {
        path: dir.path().to_owned(),
        why,
    };
    let marker =
        Marker::read(dir)?.ok_or_else(|| not_ours(format!("it has no {} in it", marker::NAME)))?;
    if marker.mesh != mesh_uid {
        return Err(not_ours(format!("it belongs to mesh {}", marker.mesh)));
    }
    if marker.run != run_uid {
        return Err(not_ours(format!("it belongs to run {}", marker.run)));
    }
    Ok(marker)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Over NFS an open file would keep the directory from being empty.
    #[test]
    fn no_file_is_open_when_the_directory_itself_is_removed() {
        let target = tempfile::tempdir().unwrap();
        let path = target.path().canonicalize().unwrap();
        let allowed = Allowed::new(vec![path.clone()]).unwrap();
        let open = RunDirectory::open_or_make(&allowed, &path, "mesh", "r", Make::IfMissing);
        let (mut run, _) = open.unwrap().unwrap();
        let open_files = || {
            let links = std::fs::read_dir("/proc/self/fd").unwrap();
            let links = links.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            links
                .filter(|file| file.parent() == Some(&path.join("benchmesh-r")))
                .count()
        };
        assert_eq!(open_files(), 1);
        run.unmark().unwrap();
        assert_eq!(open_files(), 0);
    }
}
