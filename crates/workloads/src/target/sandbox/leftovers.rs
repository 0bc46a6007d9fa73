//! Directories of runs that nobody works in any more: what crashed agents and lost collectors left behind.
//!
//! A directory is only removed under an exclusive lock on its marker. Between two steps nobody holds one, so that what has
//! changed lately is left alone too.

use super::dir::Dir;
use super::lock::{Lock, lock};
use super::marker::Marker;
use super::run_directory::{PREFIX, RunDirectory};
use super::{Allowed, SandboxError, open_canonical};
use rustix::fs::FlockOperation;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run's directory that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub path: PathBuf,
    pub mesh: String,
    pub run: String,
    /// An agent works in it, on this host or another.
    pub is_held: bool,
    /// How long ago something was made or removed in it or its cells.
    pub unchanged_for: Duration,
}

/// The directories of runs directly in the allowed paths. Others, also such that only look alike, are left out.
pub fn find_leftovers(allowed: &Allowed) -> Result<Vec<Leftover>, SandboxError> {
    let mut found = Vec::new();
    for root in allowed.roots() {
        let parent = open_canonical(root)?;
        let mut names = parent.names()?;
        names.retain(|name| name.starts_with(PREFIX));
        names.sort();
        for name in names {
            found.extend(look(&parent, &name)?);
        }
    }
    Ok(found)
}

fn look(parent: &Dir, name: &str) -> Result<Option<Leftover>, SandboxError> {
    let Ok(Some(dir)) = parent.dir(name) else {
        return Ok(None);
    };
    let Ok(Some(marker)) = Marker::read(&dir) else {
        return Ok(None);
    };
    let unchanged_for = unchanged_for(&dir)?;
    Ok(Some(Leftover {
        path: dir.path().to_owned(),
        is_held: lock(&dir, FlockOperation::NonBlockingLockExclusive)? == Lock::HeldByOthers,
        mesh: marker.mesh,
        run: marker.run,
        unchanged_for,
    }))
}

/// Removes one, unless somebody works in it by now. `progress` is told now and then how many entries are gone.
pub fn remove_leftover(
    allowed: &Allowed,
    leftover: &Leftover,
    progress: &mut dyn FnMut(u64),
) -> Result<(), SandboxError> {
    let target = leftover.path.parent().unwrap_or(Path::new("/"));
    let opened = RunDirectory::open_unlocked(allowed, target, &leftover.mesh, &leftover.run)?;
    let Some(directory) = opened else {
        return Ok(());
    };
    match lock(directory.dir(), FlockOperation::NonBlockingLockExclusive)? {
        Lock::HeldByOthers => Err(SandboxError::NotOurs {
            path: leftover.path.clone(),
            why: "an agent works in it".to_owned(),
        }),
        // Held until everything is gone.
        _held => directory.remove(progress),
    }
}

/// Since the newest change of the directory and those directly in it.
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
        let listed: Vec<_> = found
            .iter()
            .map(|it| (it.run.as_str(), it.is_held))
            .collect();
        assert_eq!(listed, [("held", true), ("left", false)]);
        assert!(
            found
                .iter()
                .all(|it| it.unchanged_for < Duration::from_secs(600))
        );
        let mut gone = 0;
        remove_leftover(&allowed, &found[1], &mut |removed| gone = removed).unwrap();
        assert!(gone > 0 && !target.join("benchmesh-left").exists());
        // Twice is once.
        remove_leftover(&allowed, &found[1], &mut |_| {}).unwrap();
        let refused = remove_leftover(&allowed, &found[0], &mut |_| {}).unwrap_err();
        assert!(
            refused.to_string().contains("an agent works in it"),
            "{refused}"
        );
        drop(held);
        remove_leftover(&allowed, &found[0], &mut |_| {}).unwrap();
        assert!(find_leftovers(&allowed).unwrap().is_empty());
        assert!(target.join("benchmesh-not-ours").exists());
    }

    /// Whoever comes while it is being removed finds it locked, and does not begin.
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
}
