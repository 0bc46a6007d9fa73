//! Unused directories of runs, left behind by crashed agents and lost collectors.
//!
//! A directory is removed only under an exclusive lock on its marker that all hosts respect, or if the user states that
//! its run has ended. Between two steps no agent holds a lock, so recently changed directories are left alone too.

use super::dir::Dir;
use super::lock::{Lock, lock, prove_unused};
use super::marker::{self, Marker};
use super::run_directory::{PREFIX, RunDirectory};
use super::{Allowed, SandboxError, check_name, open_canonical};
use rustix::fs::{AtFlags, FlockOperation};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub path: PathBuf,
    /// Empty if it has no marker.
    pub mesh: String,
    pub run: String,
    pub usage: Usage,
    /// Time since an entry was created or removed in it or its cells.
    pub unchanged_for: Duration,
    content: Content,
}

/// Whether an agent uses a directory, on this host or another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Unused,
    InUse,
    /// Locks on this file system cannot show it.
    Unknown,
}

/// The reason why a directory may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// An exclusive lock that all hosts respect.
    Lock,
    /// A person states that its run has ended.
    RunHasEnded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// It has the marker of a run.
    Marked,
    /// It has at most a marker: its creation or removal was interrupted.
    Empty,
}

/// The directories of runs directly in the allowed paths. Leaves out others, even if they look alike.
pub fn find_leftovers(allowed: &Allowed) -> Result<Vec<Leftover>, SandboxError> {
    let mut found = Vec::new();
    for root in allowed.roots() {
        let parent = open_canonical(root)?;
        let mut names = parent.names()?;
        names.retain(|name| name.starts_with(PREFIX));
        names.sort();
        for name in names {
            found.extend(inspect(&parent, &name)?);
        }
    }
    Ok(found)
}

fn inspect(parent: &Dir, name: &str) -> Result<Option<Leftover>, SandboxError> {
    let Ok(Some(dir)) = parent.dir(name) else {
        return Ok(None);
    };
    let leftover = |mesh, run, usage, content| {
        Ok(Some(Leftover {
            path: dir.path().to_owned(),
            mesh,
            run,
            usage,
            unchanged_for: unchanged_for(&dir)?,
            content,
        }))
    };
    match Marker::read(&dir) {
        Ok(Some(marker)) if name.strip_prefix(PREFIX) == Some(&marker.run) => {
            let usage = match prove_unused(&dir)? {
                Lock::Held { .. } => Usage::Unused,
                Lock::HeldByOthers => Usage::InUse,
                Lock::Unknown => Usage::Unknown,
            };
            leftover(marker.mesh, marker.run, usage, Content::Marked)
        }
        _ => match unfinished_run(name) {
            Some(run) if is_empty(&dir)? => {
                let run = run.to_owned();
                leftover(String::new(), run, Usage::Unused, Content::Empty)
            }
            _ => Ok(None),
        },
    }
}

/// The run of a directory whose marker is missing, from its name: `benchmesh-RUN.NONCE` until it is marked,
/// `benchmesh-RUN` for a moment before it is removed.
fn unfinished_run(name: &str) -> Option<&str> {
    let name = name.strip_prefix(PREFIX)?;
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.rsplit_once('.') {
        Some((run, nonce)) => (nonce.len() == 32 && is_hex(nonce)).then_some(run),
        None => {
            let digits = name.replace('-', "");
            (digits.len() == 32 && is_hex(&digits)).then_some(name)
        }
    }
}

fn is_empty(dir: &Dir) -> Result<bool, SandboxError> {
    Ok(dir.names()?.iter().all(|name| name == marker::NAME))
}

/// Removes a directory, unless it is in use by now. `progress` gets the number of removed entries now and then.
pub fn remove_leftover(
    allowed: &Allowed,
    leftover: &Leftover,
    proof: Proof,
    progress: &mut dyn FnMut(u64),
) -> Result<(), SandboxError> {
    let target = leftover.path.parent().unwrap_or(Path::new("/"));
    if leftover.content == Content::Empty {
        return remove_empty(allowed, target, leftover);
    }
    let opened = RunDirectory::open_unlocked(allowed, target, &leftover.mesh, &leftover.run)?;
    let Some(directory) = opened else {
        return Ok(());
    };
    let refused = |why: &str| {
        Err(SandboxError::NotOurs {
            path: leftover.path.clone(),
            why: why.to_owned(),
        })
    };
    let lock = match proof {
        Proof::Lock => prove_unused(directory.dir())?,
        Proof::RunHasEnded => lock(directory.dir(), FlockOperation::NonBlockingLockExclusive)?,
    };
    match (lock, proof) {
        (Lock::HeldByOthers, _) => refused("an agent works in it"),
        (Lock::Unknown, Proof::Lock) => {
            refused("locks on its file system do not tell whether an agent works in it")
        }
        // Held until all contents are removed.
        (held, _) => directory.locked_by(held).remove(progress),
    }
}

/// The kernel refuses to remove a directory that is no longer empty.
fn remove_empty(allowed: &Allowed, target: &Path, leftover: &Leftover) -> Result<(), SandboxError> {
    let name = leftover.path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    check_name("directory", name)?;
    let parent = open_canonical(&allowed.permits(target)?)?;
    let Some(dir) = parent.dir(name)? else {
        return Ok(());
    };
    if inspect(&parent, name)?.is_none_or(|now| now.content != Content::Empty) {
        return Err(SandboxError::NotOurs {
            path: leftover.path.clone(),
            why: "it is not empty any more".to_owned(),
        });
    }
    dir.remove_file(marker::NAME)?;
    match rustix::fs::unlinkat(parent.fd(), name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(parent.error("remove", name, errno)),
    }
}

/// Time since the newest change of the directory and of those directly in it.
fn unchanged_for(dir: &Dir) -> Result<Duration, SandboxError> {
    let changed = |dir: &Dir| {
        let facts = rustix::fs::fstat(dir.fd());
        facts
            .map(|facts| facts.st_mtime)
            .map_err(|errno| SandboxError::io("stat", dir.path(), errno))
    };
    let mut newest = changed(dir)?;
    for name in dir.names()? {
        if let Ok(Some(cell)) = dir.dir(&name) {
            newest = newest.max(changed(&cell)?);
        }
    }
    let seconds = clock_gettime(ClockId::Realtime)
        .tv_sec
        .saturating_sub(newest);
    Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::Make;
    use super::super::lock::KEEPS_LOCKS_TO_ITSELF;
    use super::*;

    #[test]
    fn only_marked_directories_that_nobody_holds_are_removed() {
        let target = tempfile::tempdir().unwrap();
        let target = target.path().canonicalize().unwrap();
        let allowed = Allowed::new(vec![target.clone()]).unwrap();
        let open = |run: &str| {
            let opened =
                RunDirectory::open_or_make(&allowed, &target, "mesh", run, Make::IfMissing);
            opened.unwrap().unwrap().0
        };
        let held = open("held");
        drop(open("left").cell("c1").unwrap());
        std::fs::create_dir(target.join("benchmesh-not-ours")).unwrap();
        std::fs::create_dir(target.join("other")).unwrap();

        let found = find_leftovers(&allowed).unwrap();
        let listed: Vec<_> = found.iter().map(|it| (it.run.as_str(), it.usage)).collect();
        assert_eq!(listed, [("held", Usage::InUse), ("left", Usage::Unused)]);
        assert!(
            found
                .iter()
                .all(|it| it.unchanged_for < Duration::from_secs(600))
        );
        let mut gone = 0;
        remove_leftover(&allowed, &found[1], Proof::Lock, &mut |removed| {
            gone = removed
        })
        .unwrap();
        assert!(gone > 0 && !target.join("benchmesh-left").exists());
        // A second removal is no error.
        remove_leftover(&allowed, &found[1], Proof::Lock, &mut |_| {}).unwrap();
        let refused = remove_leftover(&allowed, &found[0], Proof::Lock, &mut |_| {}).unwrap_err();
        assert!(
            refused.to_string().contains("an agent works in it"),
            "{refused}"
        );
        drop(held);
        remove_leftover(&allowed, &found[0], Proof::Lock, &mut |_| {}).unwrap();
        assert!(find_leftovers(&allowed).unwrap().is_empty());
        assert!(target.join("benchmesh-not-ours").exists());
    }

    /// An agent that comes during the removal finds the directory locked, and does not begin.
    #[test]
    fn nobody_begins_in_a_directory_that_is_being_removed() {
        let target = tempfile::tempdir().unwrap();
        let allowed = Allowed::new(vec![target.path().to_owned()]).unwrap();
        let open =
            || RunDirectory::open_or_make(&allowed, target.path(), "mesh", "r", Make::IfMissing);
        let (directory, _) = open().unwrap().unwrap();
        let dir = directory.dir().path().to_owned();
        drop(directory);
        let removing = RunDirectory::open_unlocked(&allowed, target.path(), "mesh", "r");
        let removing = removing.unwrap().unwrap();
        let _lock = lock(removing.dir(), FlockOperation::NonBlockingLockExclusive).unwrap();
        let refused = open().unwrap_err().to_string();
        assert!(
            refused.contains("is being removed"),
            "{}: {refused}",
            dir.display()
        );
    }

    /// As on a FUSE file system, where a lock holds on one host only.
    #[test]
    fn what_no_lock_proves_unused_stays_until_a_person_says_that_its_run_has_ended() {
        KEEPS_LOCKS_TO_ITSELF.set(true);
        let target = tempfile::tempdir().unwrap();
        let path = target.path().canonicalize().unwrap();
        let allowed = Allowed::new(vec![path.clone()]).unwrap();
        let made = RunDirectory::open_or_make(&allowed, &path, "mesh", "soak", Make::IfMissing);
        drop(made.unwrap());
        let found = find_leftovers(&allowed).unwrap();
        assert_eq!(found[0].usage, Usage::Unknown);
        let refused = remove_leftover(&allowed, &found[0], Proof::Lock, &mut |_| {}).unwrap_err();
        assert!(refused.to_string().contains("do not tell"), "{refused}");
        assert!(path.join("benchmesh-soak").exists());
        remove_leftover(&allowed, &found[0], Proof::RunHasEnded, &mut |_| {}).unwrap();
        assert!(!path.join("benchmesh-soak").exists());
    }

    #[test]
    fn an_empty_directory_that_was_never_marked_is_found_and_removed() {
        let target = tempfile::tempdir().unwrap();
        let target = target.path().canonicalize().unwrap();
        let allowed = Allowed::new(vec![target.clone()]).unwrap();
        let run = "0f7c2a4e-1111-4222-8333-944444444444";
        let unborn = format!("benchmesh-{run}.{}", "0123456789abcdef".repeat(2));
        let half = format!("benchmesh-{run}.{}", "f".repeat(32));
        let full = format!("benchmesh-{run}.{}", "e".repeat(32));
        let gone = format!("benchmesh-{run}");
        for name in [&unborn, &half, &full, &gone] {
            std::fs::create_dir(target.join(name)).unwrap();
        }
        std::fs::write(target.join(&half).join(marker::NAME), "{\"mesh").unwrap();
        std::fs::write(target.join(&full).join("data"), "of somebody").unwrap();
        let found = find_leftovers(&allowed).unwrap();
        let paths: Vec<_> = found.iter().map(|it| it.path.clone()).collect();
        assert_eq!(paths, [&gone, &unborn, &half].map(|name| target.join(name)));
        assert!(found.iter().all(|it| it.run == run));
        std::fs::write(target.join(&unborn).join("new"), "").unwrap();
        remove_leftover(&allowed, &found[1], Proof::Lock, &mut |_| {}).unwrap_err();
        remove_leftover(&allowed, &found[2], Proof::Lock, &mut |_| {}).unwrap();
        remove_leftover(&allowed, &found[0], Proof::Lock, &mut |_| {}).unwrap();
        assert!(target.join(&unborn).exists() && target.join(&full).exists());
        assert!(!target.join(&half).exists() && !target.join(&gone).exists());
    }
}
