//! A directory of one task's own in the agent's scratch, gone when the task is.
//!
//! It is marked like a run's directory on a target, so that it is never anything else that is removed, and locked for
//! as long as its task lives: what a killed agent left is not, and is removed at the next start. Making one and taking
//! stock of those that are there exclude each other by a lock on the scratch itself, so none is ever seen unlocked
//! while young.

use crate::engine::author::*;
use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whom their markers name.
const OWNER: &str = "scratch";
/// How names and uids of theirs begin.
const NAME_PREFIX: &str = "benchmesh-";
const UID_PREFIX: &str = "copy-";

/// Said of a directory that stays.
const REMEDY: &str =
    "`benchmesh agent clean --allow SCRATCH`, with the agent's own --scratch, removes it";

#[derive(Debug)]
pub(super) struct Scratch {
    /// Locked through its descriptor.
    directory: Option<RunDirectory>,
}

impl Scratch {
    pub(super) fn make(parent: &Path) -> Result<Self, TaskError> {
        make(parent)
            .map(|directory| Self { directory })
            .map_err(TaskError::Sandbox)
    }

    /// A directory in it.
    pub(super) fn dir(&self, name: &str) -> Result<Dir, TaskError> {
        match &self.directory {
            Some(directory) => directory.cell(name).map_err(TaskError::Sandbox),
            None => Err(TaskError::Unsupported {
                why: "the scratch directory of this task is gone".into(),
            }),
        }
    }

    pub(super) fn remove(&mut self) -> Result<(), TaskError> {
        match self.directory.take() {
            Some(directory) => directory.remove(&mut |_| {}).map_err(TaskError::Sandbox),
            None => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(error = %error_chain(&error), "a directory in the agent's scratch was not removed; \
                {REMEDY}");
        }
    }
}

fn make(parent: &Path) -> Result<Option<RunDirectory>, SandboxError> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let uid = format!(
        "{UID_PREFIX}{}-{}-{}",
        std::process::id(),
        MADE.fetch_add(1, Ordering::Relaxed),
        MonoNanos::now().0
    );
    let allowed = Allowed::new(vec![parent.to_owned()])?;
    let whole = open_canonical(&allowed.permits(parent)?)?;
    lock_where_it_can(&whole, FlockOperation::LockShared)?;
    let made = RunDirectory::open_or_make(&allowed, parent, OWNER, &uid, Make::IfMissing)?;
    let Some((directory, _)) = made else {
        return Ok(None);
    };
    lock_where_it_can(directory.dir(), FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(directory))
}

/// Removes what tasks of agents that are no more left in the scratch `parent`; how many directories. What cannot be
/// removed is said and left. Directories of tasks that live, of this agent or another, are not touched.
pub fn remove_abandoned(parent: &Path) -> Result<usize, SandboxError> {
    let allowed = Allowed::new(vec![parent.to_owned()])?;
    let mut removed = 0usize;
    for directory in claim(&allowed, parent)? {
        let path = directory.dir().path().to_owned();
        match directory.remove(&mut |_| {}) {
            Ok(()) => removed = removed.saturating_add(1),
            Err(error) => left(&path, &error),
        }
    }
    Ok(removed)
}

/// The directories that no agent holds, locked. Incomplete ones are removed at once.
fn claim(allowed: &Allowed, parent: &Path) -> Result<Vec<RunDirectory>, SandboxError> {
    let whole = open_canonical(&allowed.permits(parent)?)?;
    lock(&whole, FlockOperation::LockExclusive)
        .map_err(|errno| failed("lock", whole.path(), errno))?;
    let listing = |errno| failed("list", whole.path(), errno);
    let mut claimed = Vec::new();
    for entry in rustix::fs::Dir::read_from(whole.fd()).map_err(listing)? {
        let entry = entry.map_err(listing)?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let uid = name.strip_prefix(NAME_PREFIX);
        let Some(uid) = uid.filter(|uid| uid.starts_with(UID_PREFIX)) else {
            continue;
        };
        match claim_one(allowed, &whole, name, uid) {
            Ok(directory) => claimed.extend(directory),
            Err(error) => left(&whole.path().join(name), &error),
        }
    }
    Ok(claimed)
}

fn claim_one(
    allowed: &Allowed,
    whole: &Dir,
    name: &str,
    uid: &str,
) -> Result<Option<RunDirectory>, SandboxError> {
    // Its removal or its making was cut short at the last or the first step: there is nothing in it.
    if unlinkat(whole.fd(), name, AtFlags::REMOVEDIR).is_ok() {
        return Ok(None);
    }
    let opened = RunDirectory::open_or_make(allowed, whole.path(), OWNER, uid, Make::Never)?;
    let Some((directory, _)) = opened else {
        return Ok(None);
    };
    match lock(directory.dir(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(failed("lock", directory.dir().path(), errno)),
    }
}

fn left(path: &Path, error: &SandboxError) {
    tracing::warn!(path = %path.display(), error = %error, "what a former agent left in the scratch directory was not \
        removed; {REMEDY}");
}

/// A file system that knows no such locks (NFS has none for directories) serves as scratch all the same: what is left
/// there cannot be claimed either, which is said at the start.
fn lock_where_it_can(directory: &Dir, operation: FlockOperation) -> Result<(), SandboxError> {
    match lock(directory, operation) {
        Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        other => other.map_err(|errno| failed("lock", directory.path(), errno)),
    }
}

fn lock(directory: &Dir, operation: FlockOperation) -> Result<(), Errno> {
    loop {
        match flock(directory.fd(), operation) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn failed(doing: &'static str, path: &Path, errno: Errno) -> SandboxError {
    SandboxError::Io {
        doing,
        path: path.to_owned(),
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::target::sandbox::{Proof, Usage, find_leftovers, remove_leftover};
    use std::fs;

    fn names(parent: &Path) -> Vec<String> {
        let names = fs::read_dir(parent).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// What a killed process leaves: all but the lock.
    fn abandon(scratch: Scratch) {
        let directory = { std::mem::ManuallyDrop::new(scratch).directory.take() };
        drop(directory.unwrap());
    }

    #[test]
    fn only_what_nobody_holds_goes() {
        let top = tempfile::tempdir().unwrap();
        let living = Scratch::make(top.path()).unwrap();
        let alive = names(top.path());
        for _ in 0..2 {
            let dead = Scratch::make(top.path()).unwrap();
            let data = dead.dir("data").unwrap();
            fs::create_dir_all(data.path().join("a/b")).unwrap();
            fs::write(data.path().join("a/b/file"), "content").unwrap();
            abandon(dead);
        }
        // Cut short: emptied and not yet gone.
        fs::create_dir(top.path().join("benchmesh-copy-1-1-1")).unwrap();
        // Not ours, whatever they are called.
        fs::create_dir_all(top.path().join("benchmesh-copy-mine/data")).unwrap();
        fs::create_dir(top.path().join("benchmesh-run")).unwrap();
        fs::write(top.path().join("benchmesh-copy-file"), "kept").unwrap();
        std::os::unix::fs::symlink("/etc", top.path().join("benchmesh-copy-link")).unwrap();
        assert_eq!(names(top.path()).len(), 8);

        assert_eq!(remove_abandoned(top.path()).unwrap(), 2);
        let mut kept = alive;
        kept.extend(
            [
                "benchmesh-copy-file",
                "benchmesh-copy-link",
                "benchmesh-copy-mine",
                "benchmesh-run",
            ]
            .map(str::to_owned),
        );
        kept.sort();
        assert_eq!(names(top.path()), kept);
        living.dir("still-there").unwrap();
        drop(living);
        assert_eq!(names(top.path()).len(), 4);
    }

    #[test]
    fn agent_clean_finds_what_stays_and_leaves_what_is_in_use() {
        let top = tempfile::tempdir().unwrap();
        let living = Scratch::make(top.path()).unwrap();
        let alive = names(top.path());
        abandon(Scratch::make(top.path()).unwrap());
        let allowed = Allowed::new(vec![top.path().to_owned()]).unwrap();
        let found = find_leftovers(&allowed).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        for leftover in found {
            let name = leftover.path.file_name().unwrap().to_str().unwrap();
            let usage = match alive.iter().any(|one| one == name) {
                true => Usage::InUse,
                false => Usage::Unused,
            };
            assert_eq!(leftover.usage, usage, "{leftover:?}");
            if usage == Usage::Unused {
                remove_leftover(&allowed, &leftover, Proof::Lock, &mut |_| {}).unwrap();
            }
        }
        assert_eq!(names(top.path()), alive);
        drop(living);
    }
}
