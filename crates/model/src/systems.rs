//! Storage systems: their names, mounts, daemons and packages.
//!
//! The sampler finds daemons by this table, the collector attributes them to a target, and the inventory of a host
//! selects packages. A target's system is the plan's word for it (`cephfs`, `glusterfs`). If that is a word of the
//! user's own, the type of the mount at the target decides, and then the devices beneath the mount (an ext4 on an RBD
//! image).

use daemons::DAEMONS;
use facts::FactSet;
use table::SYSTEMS;

mod daemons;
pub mod facts;
mod table;

pub use daemons::{Children, Daemon, Naming, OWN, daemons};

/// File systems in the kernel that need no daemon.
const LOCAL: &[&str] = &[
    "tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "local",
    "bcachefs",
];

/// Mount types through which a gateway can serve any system.
const GATEWAYS: &[&str] = &["nfs", "nfs4", "cifs", "smb3"];

/// One storage system.
#[derive(Debug)]
pub struct System {
    /// Matched anywhere in the plan's word for the system, in the type of a mount, or in the devices beneath it.
    pub words: &'static [&'static str],
    /// Types of its mounts. Empty for a block device or an object store, on which anything may be mounted.
    pub mounts: &'static [&'static str],
    /// Daemons that serve it or are part of its clients' data path, by name.
    pub daemons: &'static [&'static str],
    /// Packages whose versions affect a result, by their prefix.
    pub packages: &'static [&'static str],
    /// The commands that report its state.
    pub facts: Option<&'static FactSet>,
}

/// The location of a target.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place<'facts> {
    /// The plan's word for the system.
    pub system: &'facts str,
    /// The type of the file system mounted there (`nfs4`, `fuse.glusterfs`), if known.
    pub mount: Option<&'facts str>,
    /// The devices beneath the mount, from top to bottom: `loop`, `fuse.rbd-fuse`, `iscsi`, `disk`.
    pub beneath: &'facts [String],
}

impl<'facts> Place<'facts> {
    fn system(&self) -> Option<&'static System> {
        let beneath = || self.beneath.iter().find_map(|layer| named(layer));
        named(self.system)
            .or_else(|| named(self.mount?))
            .or_else(beneath)
    }

    /// Whether its system is in the table.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.system().is_some()
    }

    /// Whether it is a file system of the host itself, which no daemon serves.
    #[must_use]
    pub fn is_local(&self) -> bool {
        is_local(self.system) || self.mount.is_some_and(is_local)
    }

    /// Whether a daemon of this name serves it. `None` if no rule applies.
    #[must_use]
    pub fn is_served_by(&self, daemon: &str) -> Option<bool> {
        if daemon == OWN {
            return Some(false);
        }
        if let Some(system) = self.system() {
            return match system.daemons.contains(&daemon) {
                true => Some(true),
                // A process that only a user's rule finds may serve it.
                false => is_known(daemon).then_some(false),
            };
        }
        self.is_local().then_some(false)
    }

    /// Whether a package of this name belongs to the system.
    #[must_use]
    pub fn has_package(&self, package: &str) -> bool {
        self.system().is_some_and(|system| {
            let starts = |part: &&str| package.starts_with(*part);
            system.packages.iter().any(starts)
        })
    }

    /// The mounted system, if it differs from the plan's; `None` if the plan may be right.
    #[must_use]
    pub fn mounted_instead(&self) -> Option<&'facts str> {
        let (expected, mount) = (named(self.system)?, self.mount?);
        if expected.mounts.is_empty() || GATEWAYS.contains(&mount) {
            return None;
        }
        let is_expected = expected.mounts.contains(&mount)
            || named(mount).is_some_and(|found| std::ptr::eq(found, expected));
        let is_judged = is_local(mount) || named(mount).is_some();
        (is_judged && !is_expected).then_some(mount)
    }
}

/// All known systems; a word matches the first one that contains it.
#[must_use]
pub fn systems() -> &'static [System] {
    SYSTEMS
}

/// The system that a word names: the first match in the table.
fn named(word: &str) -> Option<&'static System> {
    if is_local(word) {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let has = |system: &&System| system.words.iter().any(|part| word.contains(part));
    SYSTEMS.iter().find(has)
}

fn is_known(daemon: &str) -> bool {
    DAEMONS.iter().any(|known| known.name == daemon)
}

fn is_local(name: &str) -> bool {
    LOCAL.contains(&name.to_ascii_lowercase().as_str())
}

/// The systems that can report their state, each once.
#[must_use]
pub fn fact_sets() -> Vec<&'static FactSet> {
    let mut sets: Vec<&FactSet> = SYSTEMS.iter().filter_map(|system| system.facts).collect();
    sets.sort_by_key(|set| set.system);
    sets.dedup_by_key(|set| set.system);
    sets
}

/// Whether the package belongs to any system.
#[must_use]
pub fn is_storage_package(package: &str) -> bool {
    let mut parts = SYSTEMS.iter().flat_map(|system| system.packages);
    parts.any(|part| package.starts_with(part))
}

#[cfg(test)]
mod tests;
