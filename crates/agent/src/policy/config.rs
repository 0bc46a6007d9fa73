//! The keys of a policy in a user's configuration: their types, defaults and parsers.

use super::floors::Floor;
use super::networks::NetworkRule;
use super::percent::percent;
use crate::targets::TargetNames;
pub use benchmesh_workloads::params::PortRange;
pub use benchmesh_workloads::params::units::Bytes;
use benchmesh_workloads::registry;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A policy before it is opened. The default allows no load; its limits apply to the load that is allowed later.
#[derive(Clone, Debug)]
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
    /// Memory of all load together.
    pub memory: Memory,
    /// Threads of all load together; `None`: derived from the number of CPUs.
    pub threads: Option<u32>,
    /// Bytes per second of all load together; `None`: unlimited.
    pub rate: Option<Bytes>,
    /// Space that stays free on file systems under load.
    pub free_space: Floor,
    /// Inodes that stay free on file systems under load.
    pub free_inodes: Floor,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            targets: TargetNames::default(),
            allow_read: Vec::new(),
            allow_network: Vec::new(),
            link_ports: None,
            allow_drop_caches: false,
            workloads: WorkloadNames::default(),
            memory: Memory::default(),
            threads: None,
            rate: None,
            free_space: Floor::SPACE,
            free_inodes: Floor::INODES,
        }
    }
}

const THREADS_PER_CPU: u32 = 16;
const MIN_THREADS: u32 = 64;

/// Default number of threads: enough to keep a storage system busy without overloading the host.
pub(super) fn default_threads() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cpus)
        .unwrap_or(u32::MAX)
        .saturating_mul(THREADS_PER_CPU)
        .max(MIN_THREADS)
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

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Bytes(u64),
    /// Percent of the free memory at the agent's start.
    ShareOfFree(u8),
}

impl Default for Memory {
    fn default() -> Self {
        Self::ShareOfFree(50)
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(percent) = percent(text)? {
            return Ok(Self::ShareOfFree(percent));
        }
        match text.parse::<Bytes>() {
            Ok(Bytes(bytes)) if bytes > 0 => Ok(Self::Bytes(bytes)),
            Ok(_) => Err("a size of 0 allows no load; write a size such as 4g".to_owned()),
            Err(error) => Err(format!(
                "{error}, or a share of the free memory, such as 50%"
            )),
        }
    }
}

impl Memory {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::ShareOfFree(percent) => {
                let share = u128::from(free_memory_bytes()) * u128::from(percent) / 100;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
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

    #[test]
    fn values_parse_and_mistakes_say_what_to_write() {
        assert_eq!("4g".parse(), Ok(Memory::Bytes(4 << 30)));
        assert_eq!("25%".parse(), Ok(Memory::ShareOfFree(25)));
        for (text, part) in [("0", "4g"), ("101%", "1% to 100%"), ("much", "50%")] {
            let error = text.parse::<Memory>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
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
        let half = Memory::default().bytes();
        assert!(half > 0 && half < total.unwrap() / 2 + 1);
    }
}
