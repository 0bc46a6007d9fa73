//! The targets that an agent's configuration allows, of every kind. Each kind has one file below this one and one entry
//! in [`OPENED_BY`].
//!
//! Every call may hang with the target, so callers use a separate thread.

mod device;
pub(crate) mod directory;
mod pool;

use crate::finding::Finding;
use benchmesh_model::targets::{DIRECTORY, KINDS, Locator, TargetKind};
use benchmesh_workloads::sandbox::{Make, SandboxError, Space};
use benchmesh_workloads::task::Place;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How one kind is opened and examined.
struct TargetOpener {
    about: &'static TargetKind,
    /// Opens the targets that the configuration names.
    allow: fn(Vec<PathBuf>) -> Result<AllowedOfKind, SandboxError>,
    /// Findings of `doctor` about one name.
    examine: fn(&Path) -> Vec<Finding>,
}

/// In the order of the table of kinds.
const OPENED_BY: &[TargetOpener] = &[directory::KIND, device::KIND, pool::KIND];

/// All that an agent allows of one kind.
trait AllowedTargets: fmt::Debug + Send + Sync {
    /// Finds a target by its name within the kind. `None` if no target of this kind is allowed.
    fn find(&self, name: &str) -> Option<Box<dyn RequestedTarget + '_>>;

    /// The names as they are sent to the collector.
    fn names(&self) -> Vec<PathBuf>;
}

type AllowedOfKind = Arc<dyn AllowedTargets>;

/// A requested target. Every call is refused if the agent does not allow it.
pub trait RequestedTarget {
    /// Opens the run's directory, or creates it. A kind without run directories reports it as found.
    fn open_run(&self, run: RunName<'_>, make: Make) -> Result<RunDirectoryFacts, SandboxError>;

    /// Removes the run's data and calls `progress` periodically with the number removed. Missing data is not an error.
    fn remove_run(
        &self,
        run: RunName<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError>;

    /// Removes the data of one task.
    fn remove_cell(
        &self,
        run: RunName<'_>,
        cell: &str,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError>;

    /// The place that a task works on. `None` if the run was not opened there, or is gone.
    fn place(
        &self,
        run: RunName<'_>,
        cell: &str,
        task_index: u32,
    ) -> Result<Option<Place>, SandboxError>;

    /// `None` if unknown or unlimited.
    fn free(&self) -> Option<Space>;

    /// Facts that are known before anything runs on the target. The caller adds the locator.
    fn survey(&self) -> PathFacts;
}

/// A run, by the names in its directory's path.
#[derive(Clone, Copy, Debug)]
pub struct RunName<'a> {
    pub mesh: &'a str,
    pub uid: &'a str,
}

/// One target or path. An empty `problem` means that it is usable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// The locator of a target.
    pub path: String,
    pub allowed: bool,
    pub exists: bool,
    pub problem: String,
    pub free_bytes: i64,
    /// -1: the file system has no limit.
    pub free_files: i64,
    pub file_system: String,
    pub device: String,
    /// Source of the mount: a device, `server:/export`, ...
    pub mount_source: String,
    pub mount_options: String,
    /// 0: unknown.
    pub size_bytes: i64,
    /// Bytes available to ordinary users. 0: unknown.
    pub usable_bytes: i64,
    /// Free bytes that the policy reserves there.
    pub floor_bytes: i64,
    pub floor_files: i64,
    /// The devices beneath the mount, from top to bottom.
    pub beneath: Vec<String>,
}

/// A run's directory on a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunDirectoryFacts {
    pub found: bool,
    pub made: bool,
    pub nonce: String,
    pub free_bytes: i64,
}

/// A target in the configuration that cannot be allowed.
#[derive(Debug, thiserror::Error)]
#[error("--{option}: the target cannot be allowed")]
pub struct NotAllowable {
    /// The option that names it.
    pub option: &'static str,
    #[source]
    pub source: SandboxError,
}

/// The targets that an agent allows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Targets(Vec<(&'static TargetKind, AllowedOfKind)>);

impl Targets {
    /// Opens the targets that the configuration names.
    ///
    /// # Errors
    /// When a name does not lead to a target of its kind.
    pub fn allow(names: &TargetNames) -> Result<Self, NotAllowable> {
        let allow = |kind: &TargetOpener| {
            let names = names.of(kind.about).map(Path::to_owned).collect();
            match (kind.allow)(names) {
                Ok(allowed) => Ok((kind.about, allowed)),
                Err(source) => Err(NotAllowable {
                    option: kind.about.option,
                    source,
                }),
            }
        };
        OPENED_BY
            .iter()
            .map(allow)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, allowed)| allowed.names().is_empty())
    }

    /// Opens a target by its locator.
    ///
    /// # Errors
    /// When no kind of its key allows it.
    pub fn open(&self, locator: &Locator) -> Result<Box<dyn RequestedTarget + '_>, SandboxError> {
        // The directory kind accepts every path, so it is tried last.
        let of_key = self.0.iter().rev();
        let mut of_key = of_key.filter(|(kind, _)| kind.key == locator.key);
        of_key
            .find_map(|(_, allowed)| allowed.find(&locator.value))
            .ok_or_else(|| SandboxError::TargetNotAllowed {
                target: locator.to_string(),
                option: locator.likely_kind().option,
            })
    }

    /// The canonical names of one kind.
    #[must_use]
    pub fn names_of(&self, kind: &TargetKind) -> Vec<PathBuf> {
        let mut kinds = self.0.iter();
        let found = kinds.find(|(of, _)| *of == kind);
        found.map_or_else(Vec::new, |(_, allowed)| allowed.names())
    }

    /// All of them as they are sent to the collector: paths, or locators of targets without a path.
    #[must_use]
    pub fn locators(&self) -> Vec<PathBuf> {
        let mut locators = Vec::new();
        for (kind, allowed) in &self.0 {
            locators.extend(
                allowed
                    .names()
                    .into_iter()
                    .map(|name| match kind.key.is_path {
                        true => name,
                        false => format!("{}:{}", kind.key.name, name.display()).into(),
                    }),
            );
        }
        locators
    }
}

/// Findings of `doctor` about one name of the configuration.
#[must_use]
pub fn examine(kind: &TargetKind, name: &Path) -> Vec<Finding> {
    let opened_by = OPENED_BY.iter().find(|it| it.about == kind);
    opened_by.map_or_else(Vec::new, |it| (it.examine)(name))
}

/// Targets of the configuration, by kind: paths, or other names of the kind's targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetNames(Vec<(&'static TargetKind, PathBuf)>);

impl TargetNames {
    pub fn add(&mut self, kind: &'static TargetKind, name: impl Into<PathBuf>) {
        self.0.push((kind, name.into()));
    }

    /// Targets of the directory kind only.
    #[must_use]
    pub fn directories<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        let mut names = Self::default();
        paths
            .into_iter()
            .for_each(|path| names.add(&DIRECTORY, path));
        names
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The targets of one kind.
    pub fn of(&self, kind: &'static TargetKind) -> impl Iterator<Item = &Path> {
        let names = self.0.iter().filter(move |(of, _)| *of == kind);
        names.map(|(_, name)| name.as_path())
    }

    /// All targets, kind by kind in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static TargetKind, &Path)> {
        let kinds = KINDS.iter().copied();
        kinds.flat_map(|kind| self.of(kind).map(move |name| (kind, name)))
    }

    /// Directories in which runs create their own.
    pub fn with_run_directories(&self) -> impl Iterator<Item = &Path> {
        let names = self.iter().filter(|(kind, _)| kind.has_run_directory);
        names.map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_table_is_opened() {
        let opened: Vec<&TargetKind> = OPENED_BY.iter().map(|kind| kind.about).collect();
        assert_eq!(opened, KINDS);
    }
}
