//! The program that each daemon runs: its version, and whether its file was replaced since.

use std::path::Path;

use benchmesh_model::systems::OWN;

use super::{Daemons, Rows};
use crate::sampler::binary::Binary;
use crate::sampler::daemon::{Daemon, Tree};
use crate::sampler::sampled::DaemonChange;
use crate::sampler::versions::Versions;

/// Result of checking a daemon's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    AsBefore,
    Changed,
}

impl Daemons {
    /// Checks the program of a daemon that is not watched yet. A recorded tree has no programs.
    pub(super) fn look_at_program(&mut self, daemon: &mut Daemon) {
        if self.context.tree == Tree::Live {
            look(daemon, &self.proc_root, &mut self.versions);
        }
    }

    /// Checks the program of a watched daemon again, and reports a change.
    pub(super) fn look_again(&mut self, place: usize, rows: &mut Rows) {
        if self.context.tree == Tree::Foreign {
            return;
        }
        let Some(daemon) = self.watched.get_mut(place) else {
            return;
        };
        if look(daemon, &self.proc_root, &mut self.versions) == Look::Changed {
            daemon.describe(DaemonChange::None, rows);
        }
    }

    /// Reports the versions that have become known since the last call.
    pub(super) fn take_versions(&mut self, rows: &mut Rows) {
        if !self.versions.has_new() {
            return;
        }
        for daemon in &mut self.watched {
            if ask(daemon, &mut self.versions) == Look::Changed {
                daemon.describe(DaemonChange::None, rows);
            }
        }
    }
}

fn look(daemon: &mut Daemon, proc_root: &Path, versions: &mut Versions) -> Look {
    let Some(binary) = Binary::of(&proc_root.join(daemon.pid.to_string())) else {
        return Look::AsBefore;
    };
    let before = daemon.binary.replace(binary);
    let is_another = before.is_some() && before != daemon.binary;
    match (ask(daemon, versions), is_another) {
        (Look::AsBefore, false) => Look::AsBefore,
        _ => Look::Changed,
    }
}

/// Sets the version of a daemon's program if it is known by now.
fn ask(daemon: &mut Daemon, versions: &mut Versions) -> Look {
    let Some(binary) = daemon.binary.as_ref() else {
        return Look::AsBefore;
    };
    if daemon.life.identity.name == OWN {
        return Look::AsBefore;
    }
    match versions.of(binary) {
        Some(version) if version != daemon.version => {
            daemon.version = version;
            Look::Changed
        }
        _ => Look::AsBefore,
    }
}
