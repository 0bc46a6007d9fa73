//! The keys of a policy in a user's configuration: their types, defaults and parsers.

use super::networks::NetworkRule;
use crate::targets::TargetNames;
use benchmesh_model::limits::{Limits, Setting, ShareOf};
pub use benchmesh_workloads::params::PortRange;
pub use benchmesh_workloads::params::units::Bytes;
use benchmesh_workloads::registry;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A policy before it is opened. The default allows no load; its limits apply to the load that is allowed later.
#[derive(Clone, Debug, Default)]
pub struct PolicyConfig {
    /// Targets that tasks may work on, or beneath.
    pub targets: TargetNames,
    /// Sources that tasks may read.
    pub allow_read: Vec<PathBuf>,
    /// Networks in which links may have their peers; empty: no links.
    pub allow_network: Vec<NetworkRule>,
    /// Ports for receiving ends of links; `None`: the kernel chooses them.
    pub link_ports: Option<PortRange>,
    /// Whether the collector may have this host's caches dropped.
    pub allow_drop_caches: bool,
    pub workloads: WorkloadNames,
    /// `None`: the default.
    pub limits: Limits,
}

impl PolicyConfig {
    /// The limits with the defaults of this host, and shares of its memory as amounts. A share of a target stays one.
    #[must_use]
    pub fn resolved_limits(&self) -> Limits {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Limits::from_fn(|limit| {
            let setting = self.limits[limit].or_else(|| limit.default_on(cpus))?;
            Some(match (setting, limit.row().share) {
                (Setting::Share { .. }, Some(ShareOf::FreeMemory)) => {
                    Setting::Amount(setting.of(free_memory_bytes()))
                }
                _ => setting,
            })
        })
    }
}

/// Workloads by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadNames(Vec<String>);

impl WorkloadNames {
    /// Empty: all.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|known| known == name)
    }
}

impl FromStr for WorkloadNames {
    type Err = String;

    /// Parses `all`, or names separated by commas.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "all" {
            return Ok(Self::default());
        }
        let names: Vec<String> = text.split(',').map(|it| it.trim().to_owned()).collect();
        for name in &names {
            if registry::find(name).is_none() {
                let known: Vec<&str> = registry::all().iter().map(|it| it.name()).collect();
                return Err(format!(
                    "unknown workload `{name}`; the workloads are {}, and `all`",
                    known.join(", ")
                ));
            }
        }
        Ok(Self(names))
    }
}

impl fmt::Display for WorkloadNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("all"),
            false => f.write_str(&self.0.join(",")),
        }
    }
}

/// Memory that the kernel can provide without swapping, within the limit of this process's cgroup. `u64::MAX` if
/// neither is known.
fn free_memory_bytes() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let available = field_kib(&read("/proc/meminfo"), "MemAvailable:");
    let group = group_of(&read("/proc/self/cgroup")).and_then(|group| {
        let number = |file: &str| -> Option<u64> {
            let text = read(&format!("/sys/fs/cgroup{group}/{file}"));
            text.trim().parse().ok()
        };
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    });
    available.into_iter().chain(group).min().unwrap_or(u64::MAX)
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// The group's path in the unified hierarchy.
fn group_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_model::limits::Limit;

    #[test]
    fn values_parse_and_mistakes_say_what_to_write() {
        let names: WorkloadNames = "io, files".parse().unwrap();
        assert!(names.has("io") && names.has("files") && !names.has("fill"));
        assert!("all".parse::<WorkloadNames>().unwrap().has("fill"));
        let error = "io,fio".parse::<WorkloadNames>().unwrap_err();
        assert!(
            error.contains("`fio`") && error.contains("replay"),
            "{error}"
        );
    }

    #[test]
    fn free_memory_is_read_from_the_kernel() {
        let text = "MemTotal:  100 kB\nMemAvailable:      40 kB\n";
        assert_eq!(field_kib(text, "MemAvailable:"), Some(40 << 10));
        assert_eq!(field_kib(text, "Swap:"), None);
        assert_eq!(group_of("12:cpu:/a\n0::/user/b\n"), Some("/user/b"));
        let total = field_kib(
            &std::fs::read_to_string("/proc/meminfo").unwrap(),
            "MemTotal:",
        );
        let free = free_memory_bytes();
        assert!(free > 0 && free < total.unwrap());
        let limits = PolicyConfig::default().resolved_limits();
        let half = limits.amount(Limit::Memory).unwrap();
        assert!(half > 0 && half < total.unwrap() / 2 + 1);
    }
}
