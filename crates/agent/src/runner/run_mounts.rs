//! The file system on which each run's directory was opened.
//!
//! After `umount -l`, or before a mount is back, a target's path leads to the file system beneath it, where the run's
//! directory is missing although it still exists. Such a directory is out of reach, not removed. The memory ends with
//! the process.

use crate::command::{Refusal, RefusalKind};
use crate::host::mount;
use crate::targets::RunName;
use benchmesh_model::targets::Locator;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered directories; a run has one for each target.
const MAX_RUNS: usize = 4096;

/// Mesh, run and target.
type Key = (String, String, Locator);

/// Type and source of a mount, which stay the same when it is mounted again.
type MountName = (String, String);

/// Shared by all threads that execute commands.
#[derive(Clone, Debug, Default)]
pub struct RunMounts(Arc<Mutex<BTreeMap<Key, MountName>>>);

impl RunMounts {
    /// Remembers where the run's directory is.
    pub fn opened(&self, run: RunName<'_>, target: &Locator) {
        if let Some(mounted) = mounted_at(target) {
            let key = key(run, target);
            let mut known = self.lock();
            if known.len() >= MAX_RUNS && !known.contains_key(&key) {
                // Any other one makes room: most belong to runs that are over.
                known.pop_first();
            }
            known.insert(key, mounted);
        }
    }

    /// The run's directory is missing at its path.
    ///
    /// # Errors
    /// If the path is on another file system than when the directory was opened.
    pub fn check_missing(&self, run: RunName<'_>, target: &Locator) -> Result<(), Refusal> {
        let Some((kind, source)) = self.lock().get(&key(run, target)).cloned() else {
            return Ok(());
        };
        match mounted_at(target) {
            Some(now) if now != (kind.clone(), source.clone()) => Err(Refusal::new(
                RefusalKind::Failed,
                format!("{target} is no longer on {source} ({kind}), where the directory was made"),
            )),
            _ => Ok(()),
        }
    }

    pub fn removed(&self, run: RunName<'_>, target: &Locator) {
        self.lock().remove(&key(run, target));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, MountName>> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(run: RunName<'_>, target: &Locator) -> Key {
    (run.mesh.to_owned(), run.uid.to_owned(), target.clone())
}

/// `None` for targets that are not directories.
fn mounted_at(target: &Locator) -> Option<MountName> {
    let path = Path::new(&target.value);
    let mount = path.is_dir().then(|| mount(path)).flatten()?;
    Some((mount.kind, mount.source))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Permissions;
    use super::*;
    use crate::policy::{Policy, PolicyConfig};
    use crate::targets::TargetNames;
    use benchmesh_workloads::sandbox::Make;
    use std::process::Command;

    const RUN: RunName<'_> = RunName {
        mesh: "m",
        uid: "r",
    };

    fn done(program: &str, arguments: &[&str]) -> bool {
        let status = Command::new(program).args(arguments).status();
        status.is_ok_and(|status| status.success())
    }

    #[test]
    fn a_directory_on_a_detached_mount_is_not_removed_until_the_mount_is_back() {
        let home = tempfile::tempdir().unwrap();
        let [data, target] = ["data", "target"].map(|name| home.path().join(name));
        std::fs::create_dir(&data).unwrap();
        std::fs::create_dir(&target).unwrap();
        let [at, through] = [&data, &target].map(|path| path.to_str().unwrap());
        if !done("mount", &["-t", "tmpfs", "bm-run-mounts", at]) {
            return benchmesh_testing::skip("root", "mount is not permitted");
        }
        let bind = || assert!(done("mount", &["--bind", at, through]));
        let detach = |path| assert!(done("umount", &["-l", path]));
        bind();
        let config = PolicyConfig {
            targets: TargetNames::directories([&target]),
            ..PolicyConfig::default()
        };
        let permissions = Permissions {
            policy: Arc::new(Policy::open(&config).unwrap()),
            scratch: None,
            run_mounts: RunMounts::default(),
        };
        let locator = Locator::path(through);
        let made = permissions.open_run(RUN, &locator, Make::IfMissing);
        assert!(made.unwrap().made);
        let remove = || permissions.remove_run(RUN, &locator, &mut |_| {});

        detach(through);
        let refused = remove().unwrap_err();
        assert!(refused.message.contains("bm-run-mounts"), "{refused:?}");
        assert!(data.join("benchmesh-r").exists());

        bind();
        remove().unwrap();
        assert!(!data.join("benchmesh-r").exists());
        // Missing on the same file system: removed.
        remove().unwrap();
        detach(through);
        detach(at);
    }
}
