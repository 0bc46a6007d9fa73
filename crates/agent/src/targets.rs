//! The targets that an agent's configuration allows, of whichever kind.

use benchmesh_model::targets::{DIRECTORY, KINDS, TargetKind};
use std::path::{Path, PathBuf};

/// What the configuration names, by kind: paths, or whatever else names a target of the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetNames(Vec<(&'static TargetKind, PathBuf)>);

impl TargetNames {
    pub fn add(&mut self, kind: &'static TargetKind, name: impl Into<PathBuf>) {
        self.0.push((kind, name.into()));
    }

    /// Only directories.
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

    /// Those of one kind.
    pub fn of(&self, kind: &'static TargetKind) -> impl Iterator<Item = &Path> {
        let names = self.0.iter().filter(move |(of, _)| *of == kind);
        names.map(|(_, name)| name.as_path())
    }

    /// All of them, kind by kind in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static TargetKind, &Path)> {
        let kinds = KINDS.iter().copied();
        kinds.flat_map(|kind| self.of(kind).map(move |name| (kind, name)))
    }

    /// Directories in which runs make theirs.
    pub fn with_run_directories(&self) -> impl Iterator<Item = &Path> {
        let names = self.iter().filter(|(kind, _)| kind.has_run_directory);
        names.map(|(_, name)| name)
    }
}
