//! Builds a task's specification and the run's directories from a command's names, within the limits of the agent.
//!
//! Everything here may block on the target, so it runs on a thread of its own.

use super::run_mounts::RunMounts;
use crate::command::{DataOwner, PlaceName, Prepare, Refusal, RefusalKind, RunDirectoryFacts};
use crate::policy::{Claim, Demand, Denial, Floors, Policy};
use crate::targets::{RequestedTarget, RunName};
use benchmesh_model::kept_data;
use benchmesh_model::targets::Locator;
use benchmesh_workloads::error_chain;
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::{Make, SandboxError};
use benchmesh_workloads::task::{PeerEnd, Place, TaskError, TaskSpec};
use benchmesh_workloads::workload::{ModeInfo, Params};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The resources that tasks may use: the policy's, and the agent's own directories.
#[derive(Clone, Debug)]
pub struct Permissions {
    pub policy: Arc<Policy>,
    pub scratch: Option<PathBuf>,
    /// Where the directories of runs were opened.
    pub run_mounts: RunMounts,
}

/// Receiving ends use ports chosen by the kernel; lower ports belong to services, which no link should reach.
const MIN_PEER_PORT: u16 = 1024;

/// Tasks that were dropped end their threads within this time, unless the threads hang.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::new(RefusalKind::NotAllowed, denial.to_string())
    }
}

impl Permissions {
    /// Opens or creates the run's directory on a target.
    ///
    /// # Errors
    /// When the target is not allowed, or the directory cannot be created or is not the run's.
    pub fn open_run(
        &self,
        run: RunName<'_>,
        target: &Locator,
        make: Make,
    ) -> Result<RunDirectoryFacts, Refusal> {
        let opened = self.target(target)?.open_run(run, make);
        let facts = opened.map_err(|error| sandbox(&error))?;
        if facts.found {
            self.run_mounts.opened(run, target);
        }
        Ok(facts)
    }

    /// Removes the run's directory. A missing directory counts as removed.
    ///
    /// # Errors
    /// If the file system on which it was opened is not there, if it belongs to another run, or something in it cannot be removed.
    pub fn remove_run(
        &self,
        run: RunName<'_>,
        target: &Locator,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Refusal> {
        let opened = self.target(target)?;
        let facts = opened.open_run(run, Make::Never);
        if !facts.map_err(|error| sandbox(&error))?.found {
            self.run_mounts.check_missing(run, target)?;
        }
        let removed = opened.remove_run(run, progress);
        removed.map_err(|error| sandbox(&error))?;
        self.run_mounts.removed(run, target);
        Ok(())
    }

    /// Removes the data of one task.
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
        let run = RunName {
            mesh,
            uid: &place.run_uid,
        };
        let target = self.target(&place.target)?;
        let removed = target.remove_cell(run, &place.cell, task_index, progress);
        removed.map_err(|error| sandbox(&error))
    }

    fn target(&self, locator: &Locator) -> Result<Box<dyn RequestedTarget + '_>, Refusal> {
        let opened = self.policy.targets.open(locator);
        opened.map_err(|error| sandbox(&error))
    }

    /// Builds the complete specification of a task and its claim on the policy's budget.
    ///
    /// # Errors
    /// If the policy forbids it or the run's directory does not exist.
    pub fn spec(&self, mesh: &str, prepare: Prepare) -> Result<(TaskSpec, Claim), Refusal> {
        self.policy.check_workload(&prepare.workload)?;
        if let Some((address, _)) = &prepare.peer {
            self.policy.check_peer(address.ip())?;
            if address.port() < MIN_PEER_PORT {
                return Err(Refusal::new(
                    RefusalKind::NotAllowed,
                    format!(
                        "{address} is not a receiving end of a link: its port must be at least {MIN_PEER_PORT}"
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
            Some(name) => {
                let place = self.place(mesh, &name, &prepare.data, prepare.task_index)?;
                Some(place)
            }
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
        if let Some(place) = &spec.place
            && !makes_room(&spec)
        {
            self.policy.floors.check(place.free())?;
        }
        Ok((spec, claim))
    }

    /// The floors of the task's target.
    ///
    /// A task that only removes existing data may begin with less. It has floors only while it is prepared, because it
    /// may have to lay out data first.
    #[must_use]
    pub fn floors(&self, spec: &TaskSpec, place: &Place) -> Floors {
        match makes_room(spec) {
            true => self.policy.floors.at_most_free(place.free()),
            false => self.policy.floors,
        }
    }

    /// Whether the floors apply to the task's load too, and not only to its preparation.
    #[must_use]
    pub fn floors_hold_for_load(&self, spec: &TaskSpec) -> bool {
        !mode_of(spec).is_some_and(ModeInfo::only_removes)
    }

    /// Claims the resources of a task with these parameters. Invalid parameters are refused when the task is opened.
    ///
    /// # Errors
    /// When not enough of the budget is left.
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
        let demand = Demand::from_fn(|limit| footprint.claim_of(limit));
        self.policy.budget.claim(demand, patience)
    }

    /// The nonce of the run's directory on a target. `None` if the directory does not exist.
    #[must_use]
    pub fn run_nonce(&self, mesh: &str, place: &PlaceName) -> Option<String> {
        let run = RunName {
            mesh,
            uid: &place.run_uid,
        };
        let opened = self.open_run(run, &place.target, Make::Never).ok()?;
        opened.found.then_some(opened.nonce)
    }

    /// The place that a task works on.
    fn place(
        &self,
        mesh: &str,
        name: &PlaceName,
        data: &DataOwner,
        task_index: u32,
    ) -> Result<Place, Refusal> {
        if let Some(set) = data.kept_set() {
            return self.kept_place(mesh, &name.target, data, set, task_index);
        }
        let run = RunName {
            mesh,
            uid: &name.run_uid,
        };
        let target = self.target(&name.target)?;
        let place = target
            .place(run, &name.cell, task_index)
            .map_err(|error| sandbox(&error))?;
        // The run's directory was opened before any task was prepared.
        place.ok_or_else(|| {
            Refusal::new(
                RefusalKind::TargetLost,
                format!(
                    "the directory of run {} is not at {}: has it been removed, or is the target not mounted?",
                    name.run_uid, name.target
                ),
            )
        })
    }

    /// The place of a task that works on a kept set.
    fn kept_place(
        &self,
        mesh: &str,
        target: &Locator,
        data: &DataOwner,
        set: &str,
        task_index: u32,
    ) -> Result<Place, Refusal> {
        let unsupported = |why: String| Refusal::new(RefusalKind::Unsupported, why);
        let uid = kept_data::uid(set);
        let run = RunName { mesh, uid: &uid };
        let opened = self.target(target)?;
        if matches!(data, DataOwner::Kept(_)) {
            let made = opened.open_run(run, Make::IfMissing);
            made.map_err(|error| sandbox(&error))?;
        }
        let place = opened
            .place(run, kept_data::CELL, task_index)
            .map_err(|error| sandbox(&error))?;
        match place {
            Some(Place::Device(_)) => Err(unsupported(format!(
                "no data can be kept on {target}: a device does not record what data it holds"
            ))),
            Some(place) => Ok(place),
            None => Err(unsupported(format!(
                "the kept data `{set}` are not at {target}: lay them out by a phase with `keep`, and see \
                 `benchmesh data`"
            ))),
        }
    }
}

fn mode_of(spec: &TaskSpec) -> Option<&'static ModeInfo> {
    registry::find(&spec.workload)?.mode(&spec.mode).ok()
}

/// Whether the task removes existing data. A place that cannot be examined counts as empty.
fn makes_room(spec: &TaskSpec) -> bool {
    let has_data = |place: &Place| place.has_data(spec.task_index);
    mode_of(spec).is_some_and(ModeInfo::only_removes) && spec.place.as_ref().is_some_and(has_data)
}

/// Maps a refusal of the sandbox to one that the scheduler can act on.
fn sandbox(error: &SandboxError) -> Refusal {
    let kind = match error {
        SandboxError::NotAllowed { .. }
        | SandboxError::TargetNotAllowed { .. }
        | SandboxError::NotAbsolute { .. }
        | SandboxError::NotOurs { .. }
        | SandboxError::Replaced { .. }
        | SandboxError::NoDevice { .. }
        | SandboxError::OtherDevice { .. }
        | SandboxError::InUse { .. } => RefusalKind::NotAllowed,
        SandboxError::BadName { .. } | SandboxError::Pool(_) | SandboxError::Io { .. } => {
            kind_of(error.errno())
        }
    };
    Refusal::new(kind, error_chain(error))
}

/// Maps an error of a task to a refusal that the scheduler can act on.
#[must_use]
pub fn refusal(error: &TaskError) -> Refusal {
    match error {
        TaskError::Sandbox(cause) => sandbox(cause),
        TaskError::Pool(cause) => Refusal::new(kind_of(cause.errno()), error_chain(cause)),
        TaskError::UnknownWorkload { .. }
        | TaskError::NoReceiver { .. }
        | TaskError::NotLaidOut { .. }
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
        // The file system does not support the operation: extended attributes, symlinks, O_DIRECT.
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => RefusalKind::Unsupported,
        // A FUSE daemon has ended, the servers have evicted the client, or a server does not answer.
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
    use crate::telemetry::{RunScope, TaskId};
    use benchmesh_model::limits::{Limit, Limits, Setting};
    use benchmesh_workloads::task::{Cache, OnStall};
    use std::path::Path;

    const MESH: &str = "mesh";
    const RUN: RunName<'_> = RunName {
        mesh: MESH,
        uid: "run-1",
    };

    fn locator(path: &Path) -> Locator {
        Locator::path(path.to_str().unwrap())
    }

    fn asked(path: &Path, mode: &str, cell: &str) -> Prepare {
        Prepare {
            task: TaskId(1),
            workload: "fill".to_owned(),
            mode: mode.to_owned(),
            params: serde_json::from_str(r#"{"amount": "1m", "floor": 0}"#).unwrap(),
            place: Some(PlaceName {
                run_uid: RUN.uid.to_owned(),
                target: locator(path),
                cell: cell.to_owned(),
            }),
            data: DataOwner::Cell,
            task_index: 0,
            tasks: 1,
            cache: Cache::AsIs,
            peer: None,
            lease: Duration::from_secs(60),
            scope: RunScope::default(),
            on_stall: OnStall::Abort,
        }
    }

    /// A collector cannot find out whether a forbidden path exists.
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
            run_mounts: RunMounts::default(),
        };
        for (there, missing) in [("there", "none"), ("target/../there", "target/../none")] {
            let answer = |name: &str| {
                let path = home.path().join(name);
                let target = locator(&path);
                let opened = permissions.open_run(RUN, &target, Make::IfMissing);
                let removed = permissions.remove_run(RUN, &target, &mut |_| {});
                [opened.unwrap_err(), removed.unwrap_err()].map(|refusal| {
                    let place = path.display().to_string();
                    (refusal.kind, refusal.message.replace(&place, "PATH"))
                })
            };
            assert_eq!(answer(there), answer(missing));
            assert_eq!(answer(missing)[0].0, RefusalKind::NotAllowed);
        }
    }

    /// Below the floor, laying out is refused and removing is allowed.
    #[test]
    fn removing_is_not_refused_for_space() {
        let target = tempfile::tempdir().unwrap();
        let config = PolicyConfig {
            targets: TargetNames::directories([target.path()]),
            limits: Limits::default().with(Limit::FreeSpace, Setting::Amount(u64::MAX)),
            ..PolicyConfig::default()
        };
        let permissions = Permissions {
            policy: Arc::new(Policy::open(&config).unwrap()),
            scratch: None,
            run_mounts: RunMounts::default(),
        };
        permissions
            .open_run(RUN, &locator(target.path()), Make::IfMissing)
            .unwrap();
        let ask = |mode, cell| permissions.spec(MESH, asked(target.path(), mode, cell));
        for mode in ["fill", "hold", "read", "remove"] {
            let refused = ask(mode, "empty").unwrap_err();
            assert!(refused.message.contains("`free-space`"), "{refused:?}");
        }
        let name = asked(target.path(), "fill", "full").place.unwrap();
        let Place::Directory(cell) = permissions.place(MESH, &name, &DataOwner::Cell, 0).unwrap()
        else {
            panic!("a directory");
        };
        cell.task_dir(0).unwrap().make_dir("w0").unwrap();
        for mode in ["fill", "hold", "read"] {
            ask(mode, "full").unwrap_err();
        }
        let (spec, _claim) = ask("remove", "full").unwrap();
        assert!(!permissions.floors_hold_for_load(&spec));
        let place = spec.place.as_ref().unwrap();
        permissions
            .floors(&spec, place)
            .check(place.free())
            .unwrap();
    }
}
