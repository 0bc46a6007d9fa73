//! From a command's names to a task's specification, and the run's directories, all within what the agent allows.
//!
//! Everything here may block on the target, so it runs on a thread of its own.

use crate::command::{PlaceName, Prepare, Refusal, RefusalKind, RunDirectoryFacts};
use crate::policy::{Claim, Demand, Denial, FloorWatch, Policy};
use benchmesh_workloads::error_chain;
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::{Device, Make, RunDirectory, SandboxError};
use benchmesh_workloads::task::{CellDir, PeerEnd, Place, TaskError, TaskSpec};
use benchmesh_workloads::workload::{ModeInfo, Params};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What tasks may use: the policy, and the directories of the agent's own.
#[derive(Clone, Debug)]
pub struct Permissions {
    pub policy: Arc<Policy>,
    pub scratch: Option<PathBuf>,
}

/// Receiving ends take ports of the kernel's choice; below this are services that no link has business with.
const LEAST_PEER_PORT: u16 = 1024;

/// Tasks that were dropped end their threads within this, unless these hang.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

/// Holds a run's directory open for as long as its file system is watched.
struct RunFileSystem(Arc<RunDirectory>);

impl AsFd for RunFileSystem {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.dir().fd()
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::new(RefusalKind::NotAllowed, denial.to_string())
    }
}

impl Permissions {
    /// The run's directory on a target, opened or made.
    ///
    /// # Errors
    /// When the path is not allowed, or the directory cannot be made or is not the run's.
    pub fn open_run(
        &self,
        mesh: &str,
        run_uid: &str,
        path: &Path,
        make: Make,
    ) -> Result<RunDirectoryFacts, Refusal> {
        if let Some(device) = self.policy.devices.permits(path) {
            return Ok(device_facts(&device));
        }
        let opened = RunDirectory::open_or_make(&self.policy.targets, path, mesh, run_uid, make)
            .map_err(|error| sandbox(&error))?;
        let Some((directory, made)) = opened else {
            return Ok(RunDirectoryFacts::default());
        };
        let free_bytes = directory.free_bytes().map_err(|error| sandbox(&error))?;
        Ok(RunDirectoryFacts {
            found: true,
            made,
            nonce: directory.nonce().to_owned(),
            free_bytes: i64::try_from(free_bytes).unwrap_or(i64::MAX),
        })
    }

    /// Removes the run's directory; one that is not there is removed already.
    ///
    /// # Errors
    /// When it is not the run's, or something in it cannot be removed.
    pub fn remove_run(
        &self,
        mesh: &str,
        run_uid: &str,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Refusal> {
        if self.policy.devices.permits(path).is_some() {
            return Ok(());
        }
        match RunDirectory::open_or_make(&self.policy.targets, path, mesh, run_uid, Make::Never) {
            Ok(Some((directory, _))) => directory.remove(progress).map_err(|error| sandbox(&error)),
            Ok(None) => Ok(()),
            Err(error) => Err(sandbox(&error)),
        }
    }

    /// Removes what one task has laid out.
    ///
    /// # Errors
    /// As [`Permissions::remove_run`].
    pub fn remove_cell(
        &self,
        mesh: &str,
        place: &PlaceName,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Refusal> {
        let PlaceName {
            run_uid,
            path,
            cell,
        } = place;
        if self.policy.devices.permits(path).is_some() {
            return Ok(());
        }
        match RunDirectory::open_or_make(&self.policy.targets, path, mesh, run_uid, Make::Never) {
            Ok(Some((directory, _))) => directory
                .remove_cell(cell, task_index, progress)
                .map_err(|error| sandbox(&error)),
            Ok(None) => Ok(()),
            Err(error) => Err(sandbox(&error)),
        }
    }

    /// Everything that makes the task, and what it has claimed of the policy's budget.
    ///
    /// # Errors
    /// When the policy does not allow it or the run's directory is not there.
    pub fn spec(&self, mesh: &str, prepare: Prepare) -> Result<(TaskSpec, Claim), Refusal> {
        self.policy.check_workload(&prepare.workload)?;
        if let Some((address, _)) = &prepare.peer {
            self.policy.check_peer(address.ip())?;
            if address.port() < LEAST_PEER_PORT {
                return Err(Refusal::new(
                    RefusalKind::NotAllowed,
                    format!(
                        "{address} is no receiving end of a link: those have ports from {LEAST_PEER_PORT} on"
                    ),
                ));
            }
        }
        let claim = self.claim(
            &prepare.workload,
            &prepare.mode,
            &prepare.params,
            CLAIM_PATIENCE,
        )?;
        let place = match prepare.place {
            None => None,
            Some(name) => Some(match self.device(&name, prepare.task_index)? {
                Some(device) => Place::Device(Arc::new(device)),
                None => Place::Directory(self.cell_dir(mesh, name)?),
            }),
        };
        let spec = TaskSpec {
            workload: prepare.workload,
            mode: prepare.mode,
            params: prepare.params,
            place,
            task_index: prepare.task_index,
            tasks: prepare.tasks,
            peer: prepare
                .peer
                .map(|(address, token)| PeerEnd { address, token }),
            scratch: self.scratch.clone(),
            sources: self.policy.sources.clone(),
            cache: prepare.cache,
            limit: self.policy.rate.clone(),
        };
        let floors = self.policy.floors;
        if let Some(Place::Directory(cell)) = &spec.place
            && !makes_room(&spec)
        {
            floors.check(cell.run.dir().fd())?;
        }
        Ok((spec, claim))
    }

    /// Watches the file system that the task works on, if any; `breached` is called when too little is free. One that
    /// removes what is there may begin with less, and is watched only while it is prepared: it may have to lay out
    /// first.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub fn watch_floors(
        &self,
        spec: &TaskSpec,
        breached: impl FnOnce(Denial) + Send + 'static,
    ) -> Result<Option<FloorWatch>, Denial> {
        let Some(Place::Directory(cell)) = &spec.place else {
            return Ok(None);
        };
        let run = RunFileSystem(Arc::clone(&cell.run));
        let floors = match makes_room(spec) {
            true => self.policy.floors.at_most_free(&run),
            false => self.policy.floors,
        };
        floors.watch(run, breached).map(Some)
    }

    /// Whether the floors hold for the task's load too, and not for its preparation alone.
    #[must_use]
    pub fn floors_hold_for_load(&self, spec: &TaskSpec) -> bool {
        !mode_of(spec).is_some_and(ModeInfo::only_removes)
    }

    /// Claims what such a task takes. Parameters that cannot be are refused when the task is opened.
    ///
    /// # Errors
    /// When the budget has not enough left.
    pub fn claim(
        &self,
        workload: &str,
        mode: &str,
        params: &Params,
        patience: Duration,
    ) -> Result<Claim, Denial> {
        let footprint = registry::find(workload)
            .and_then(|workload| registry::check(workload, mode, params).ok())
            .unwrap_or_default();
        let demand = Demand {
            threads: footprint.workers,
            memory_bytes: footprint.memory_bytes,
        };
        self.policy.budget.claim(demand, patience)
    }

    /// The claimed device, where a target is an allowed one.
    fn device(&self, name: &PlaceName, task_index: u32) -> Result<Option<Device>, Refusal> {
        let path = name.path.display();
        let cell = format!("{}/{}/t{task_index}/{path}", name.run_uid, name.cell);
        Device::claim(&self.policy.devices, &name.path, cell).map_err(|error| sandbox(&error))
    }

    fn cell_dir(&self, mesh: &str, name: PlaceName) -> Result<CellDir, Refusal> {
        let PlaceName {
            run_uid,
            path,
            cell,
        } = name;
        let opened =
            RunDirectory::open_or_make(&self.policy.targets, &path, mesh, &run_uid, Make::Never)
                .map_err(|error| sandbox(&error))?;
        let Some((directory, _)) = opened else {
            // It was opened before anything was prepared.
            return Err(Refusal::new(
                RefusalKind::TargetLost,
                format!(
                    "the directory of run {run_uid} is not at {}: has it been removed, or is the target not mounted?",
                    path.display()
                ),
            ));
        };
        Ok(CellDir {
            run: Arc::new(directory),
            cell,
        })
    }
}

fn mode_of(spec: &TaskSpec) -> Option<&'static ModeInfo> {
    registry::find(&spec.workload)?.mode(&spec.mode).ok()
}

/// Whether it removes what is there already. What cannot be looked at is none.
fn makes_room(spec: &TaskSpec) -> bool {
    let has_data = |place: &Place| place.has_data(spec.task_index);
    mode_of(spec).is_some_and(ModeInfo::only_removes) && spec.place.as_ref().is_some_and(has_data)
}

/// A device has no directory to make, share or remove, and how much it holds is known when it is claimed.
fn device_facts(device: &Path) -> RunDirectoryFacts {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    RunDirectoryFacts {
        found: true,
        made: false,
        nonce: format!(
            "{}-{}-{}",
            boot.trim(),
            std::process::id(),
            device.display()
        ),
        free_bytes: i64::MAX,
    }
}

/// A sandbox's refusal, by what the scheduler can do about it.
fn sandbox(error: &SandboxError) -> Refusal {
    let kind = match error {
        SandboxError::NotAllowed { .. }
        | SandboxError::NotAbsolute { .. }
        | SandboxError::NotOurs { .. }
        | SandboxError::Replaced { .. }
        | SandboxError::NoDevice { .. }
        | SandboxError::OtherDevice { .. }
        | SandboxError::InUse { .. } => RefusalKind::NotAllowed,
        SandboxError::BadName { .. } | SandboxError::Io { .. } => kind_of(error.errno()),
    };
    Refusal::new(kind, error_chain(error))
}

/// A task's refusal, by what the scheduler can do about it.
#[must_use]
pub fn refusal(error: &TaskError) -> Refusal {
    match error {
        TaskError::Sandbox(cause) => sandbox(cause),
        TaskError::UnknownWorkload { .. }
        | TaskError::NoReceiver { .. }
        | TaskError::Unsupported { .. } => {
            Refusal::new(RefusalKind::Unsupported, error_chain(error))
        }
        TaskError::Io { source, .. } => {
            Refusal::new(kind_of(source.raw_os_error()), error_chain(error))
        }
        _ => Refusal::failed(error_chain(error)),
    }
}

fn kind_of(errno: Option<i32>) -> RefusalKind {
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => RefusalKind::NoSpace,
        // The file system has no such operation: extended attributes, symlinks, O_DIRECT.
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => RefusalKind::Unsupported,
        // A FUSE daemon that has ended, a client that the servers have shut out, a server that does not answer.
        Some(
            Errno::NOTCONN
            | Errno::SHUTDOWN
            | Errno::STALE
            | Errno::HOSTDOWN
            | Errno::TIMEDOUT
            | Errno::REMOTEIO
            | Errno::NODEV,
        ) => RefusalKind::TargetLost,
        _ => RefusalKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::Prepare;
    use crate::policy::PolicyConfig;
    use crate::targets::TargetNames;
    use crate::telemetry::{Scope, TaskId};
    use benchmesh_workloads::task::{Cache, OnStall};

    const MESH: &str = "mesh";
    const RUN: &str = "run-1";

    fn asked(path: &Path, mode: &str, cell: &str) -> Prepare {
        Prepare {
            task: TaskId(1),
            workload: "fill".to_owned(),
            mode: mode.to_owned(),
            params: serde_json::from_str(r#"{"amount": "1m", "floor": 0}"#).unwrap(),
            place: Some(PlaceName {
                run_uid: RUN.to_owned(),
                path: path.to_owned(),
                cell: cell.to_owned(),
            }),
            task_index: 0,
            tasks: 1,
            cache: Cache::AsIs,
            peer: None,
            lease: Duration::from_secs(60),
            scope: Scope::default(),
            on_stall: OnStall::Abort,
        }
    }

    /// Who commands the agent learns nothing of paths that it does not allow.
    #[test]
    fn what_is_not_allowed_has_one_answer_whether_it_exists_or_not() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("target");
        std::fs::create_dir(&target).unwrap();
        std::fs::write(home.path().join("there"), "x").unwrap();
        let config = PolicyConfig {
            targets: TargetNames::directories([&target]),
            ..PolicyConfig::default()
        };
        let permissions = Permissions {
            policy: Arc::new(Policy::open(&config).unwrap()),
            scratch: None,
        };
        for (there, missing) in [("there", "none"), ("target/../there", "target/../none")] {
            let answer = |name: &str| {
                let path = home.path().join(name);
                let opened = permissions.open_run(MESH, RUN, &path, Make::IfMissing);
                let removed = permissions.remove_run(MESH, RUN, &path, &mut |_| {});
                [opened.unwrap_err(), removed.unwrap_err()].map(|refusal| {
                    let place = path.display().to_string();
                    (refusal.kind, refusal.message.replace(&place, "PATH"))
                })
            };
            assert_eq!(answer(there), answer(missing));
            assert_eq!(answer(missing)[0].0, RefusalKind::NotAllowed);
        }
    }

    /// Below the floor nothing is laid out, and what is there is removed.
    #[test]
    fn removing_is_not_refused_for_space() {
        let target = tempfile::tempdir().unwrap();
        let config = PolicyConfig {
            targets: TargetNames::directories([target.path()]),
            free_space: crate::policy::Floor::Amount(u64::MAX),
            ..PolicyConfig::default()
        };
        let permissions = Permissions {
            policy: Arc::new(Policy::open(&config).unwrap()),
            scratch: None,
        };
        permissions
            .open_run(MESH, RUN, target.path(), Make::IfMissing)
            .unwrap();
        let ask = |mode, cell| permissions.spec(MESH, asked(target.path(), mode, cell));
        for mode in ["fill", "hold", "read", "remove"] {
            let refused = ask(mode, "empty").unwrap_err();
            assert!(refused.message.contains("`free-space`"), "{refused:?}");
        }
        let cell = permissions
            .cell_dir(MESH, asked(target.path(), "fill", "full").place.unwrap())
            .unwrap();
        cell.task_dir(0).unwrap().make_dir("w0").unwrap();
        for mode in ["fill", "hold", "read"] {
            ask(mode, "full").unwrap_err();
        }
        let (spec, _claim) = ask("remove", "full").unwrap();
        assert!(!permissions.floors_hold_for_load(&spec));
        let (breaches, breached) = std::sync::mpsc::sync_channel::<Denial>(1);
        let watch = permissions.watch_floors(&spec, move |denial| breaches.send(denial).unwrap());
        drop(watch.unwrap().unwrap());
        assert!(breached.recv().is_err());
    }
}
