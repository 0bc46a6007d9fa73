//! A directory of one task in the agent's scratch, removed with the task.
//!
//! It has a marker like a run's directory on a target, so that nothing else is ever removed. It is locked as long as
//! its task lives; the unlocked directories of a killed agent are removed at the next start. Creation and the scan for
//! abandoned directories exclude each other by a lock on the scratch itself, so a new directory is never seen unlocked.

use crate::engine::author::*;
use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Owner in the markers.
const OWNER: &str = "scratch";
/// Prefixes of the directories' names and uids.
const NAME_PREFIX: &str = "benchmesh-";
const UID_PREFIX: &str = "copy-";

/// Advice for a directory that could not be removed.
const REMEDY: &str =
    "`benchmesh agent clean --allow SCRATCH`, with the agent's own --scratch, removes it";

#[derive(Debug)]
pub(super) struct Scratch {
    /// Locked through its file descriptor.
    directory: Option<RunDirectory>,
}

impl Scratch {
    pub(super) fn make(parent: &Path) -> Result<Self, TaskError> {
        make(parent)
            .map(|directory| Self { directory })
            .map_err(TaskError::Sandbox)
    }

    /// Creates a subdirectory.
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

/// Removes the directories that tasks of ended agents left in the scratch `parent`; returns their number. Logs those
/// that cannot be removed. Directories of live tasks, of this agent or another, are not touched.
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

/// Locks and returns the directories that no agent holds. Incomplete ones are removed at once.
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
    // Remove an empty directory: its removal was interrupted at the last step, or its creation at the first.
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

/// Locks a directory if its file system supports such locks (NFS does not for directories). A scratch without locks
/// works too, but its abandoned directories cannot be claimed; the agent's start reports them.
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

    /// Simulates a killed process, which leaves everything except the lock.
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
        // Interrupted: emptied but not yet removed.
        fs::create_dir(top.path().join("benchmesh-copy-1-1-1")).unwrap();
        // Foreign entries with similar names.
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
