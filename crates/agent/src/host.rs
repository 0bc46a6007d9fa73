//! Facts about the agent's host, read once from the kernel at the start.
//!
//! A host is one kernel and one PID namespace, so its key is the boot id and that namespace. Interfaces belong to a
//! network namespace. A value that the kernel does not report is an error here, not a made-up value.

mod beneath;
mod inventory;
mod mounts;
mod packages;

pub use beneath::{Layers, MountedOn};
pub use inventory::Inventory;
pub use mounts::{Mount, beneath, mount};
pub use packages::version_of_file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One host, as stored by the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    pub boot_id: String,
    pub pid_namespace: String,
    pub net_namespace: String,
    pub name: String,
    pub kernel: String,
    pub cpus: u32,
    pub memory_bytes: i64,
}

/// A fact that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("read {path}: is /proc mounted?")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} does not contain {what}")]
    Missing { path: PathBuf, what: &'static str },
}

impl HostFacts {
    /// Reads the facts.
    ///
    /// # Errors
    ///
    /// When a file of `/proc` is unreadable or has unexpected content.
    pub fn read() -> Result<Self, HostError> {
        let names = rustix::system::uname();
        Ok(Self {
            boot_id: text("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            pid_namespace: namespace("/proc/self/ns/pid")?,
            net_namespace: namespace("/proc/self/ns/net")?,
            name: names.nodename().to_string_lossy().into_owned(),
            kernel: format!(
                "{} {}",
                names.sysname().to_string_lossy(),
                names.release().to_string_lossy()
            ),
            cpus: cpus(&text("/proc/stat")?)?,
            memory_bytes: memory(&text("/proc/meminfo")?)?,
        })
    }
}

fn text(path: &str) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|source| HostError::Read {
        path: path.into(),
        source,
    })
}

fn namespace(path: &str) -> Result<String, HostError> {
    let link = fs::read_link(Path::new(path)).map_err(|source| HostError::Read {
        path: path.into(),
        source,
    })?;
    Ok(link.to_string_lossy().into_owned())
}

/// Number of online CPUs, regardless of this process's affinity.
fn cpus(stat: &str) -> Result<u32, HostError> {
    let lines = stat.lines().filter(|line| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    match u32::try_from(lines.count()) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(HostError::Missing {
            path: "/proc/stat".into(),
            what: "the number of CPUs",
        }),
    }
}

fn memory(meminfo: &str) -> Result<i64, HostError> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<i64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
        .ok_or(HostError::Missing {
            path: "/proc/meminfo".into(),
            what: "the amount of memory",
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn this_host_is_known() {
        let facts = HostFacts::read().unwrap();
        assert_eq!(facts.boot_id.len(), 36);
        assert!(facts.pid_namespace.starts_with("pid:["));
        assert!(facts.net_namespace.starts_with("net:["));
        assert!(facts.kernel.starts_with("Linux "));
        assert!(facts.cpus > 0 && facts.memory_bytes > 0);
    }

    #[test]
    fn proc_files_are_not_trusted() {
        assert_eq!(
            cpus("cpu  1 2\ncpu0 1\ncpu11 2\nctxt 1\ncpufreq 3\n").unwrap(),
            2
        );
        assert!(cpus("ctxt 1\n").is_err());
        assert_eq!(memory("MemFree: 1 kB\nMemTotal:  2 kB\n").unwrap(), 2048);
        for bad in [
            "",
            "MemTotal:",
            "MemTotal: many kB",
            "MemTotal: 9223372036854775807 kB",
        ] {
            assert!(memory(bad).is_err(), "{bad}");
        }
    }
}
