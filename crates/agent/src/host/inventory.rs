//! Host facts that matter for a measurement: distribution, processor, interfaces, disks, and the versions of the
//! storage's packages.
//!
//! They are read again for each run, from files alone: no program is executed. Unreadable facts are left out.

use super::packages;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Maximum number of devices; the rest is left out.
const MAX_NAMES: usize = 512;
const SECTOR_BYTES: u64 = 512;

/// The inventory of one host. Empty and zero values are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub distribution: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_model: String,
    pub interfaces: Vec<Interface>,
    pub disks: Vec<Disk>,
    pub packages: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    /// `None`: the interface does not report its speed.
    pub mbits: Option<u64>,
    pub mtu: Option<u64>,
    pub hardware: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    pub name: String,
    pub model: Option<String>,
    pub size_bytes: u64,
    pub rotational: Option<bool>,
}

impl Inventory {
    /// Reads the inventory of the host with this root directory.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        Self {
            distribution: distribution(root),
            cpu_model: cpu_model(root),
            interfaces: interfaces(&root.join("sys/class/net")),
            disks: disks(&root.join("sys/block")),
            packages: packages::installed(root),
        }
    }

    /// The inventory as sent over the wire.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

pub(super) fn text(path: &Path) -> Option<String> {
    fs::read(path)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        .filter(|text| !text.is_empty())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

fn distribution(root: &Path) -> String {
    let release = text(&root.join("etc/os-release")).unwrap_or_default();
    release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned()
}

fn cpu_model(root: &Path) -> String {
    let cpus = text(&root.join("proc/cpuinfo")).unwrap_or_default();
    cpus.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(key.trim(), "model name" | "cpu model" | "Processor"))
        .map(|(_, model)| model.trim().to_owned())
        .unwrap_or_default()
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.truncate(MAX_NAMES);
    names
}

fn interfaces(directory: &Path) -> Vec<Interface> {
    names(directory)
        .into_iter()
        .filter(|name| name != "lo")
        .map(|name| {
            let path = directory.join(&name);
            Interface {
                mbits: number(&path.join("speed")).filter(|mbits| *mbits > 0),
                mtu: number(&path.join("mtu")),
                hardware: path.join("device").exists(),
                name,
            }
        })
        .collect()
}

fn disks(directory: &Path) -> Vec<Disk> {
    names(directory)
        .into_iter()
        .filter_map(|name| {
            let path = directory.join(&name);
            let size_bytes = number(&path.join("size"))?.saturating_mul(SECTOR_BYTES);
            (size_bytes > 0 && !name.starts_with("ram")).then(|| Disk {
                model: text(&path.join("device/model")),
                rotational: number(&path.join("queue/rotational")).map(|one| one == 1),
                size_bytes,
                name,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn a_host_is_read_from_its_files() {
        let root = tree(&[
            (
                "etc/os-release",
                "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n",
            ),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: EPYC 7763\n"),
            ("sys/class/net/lo/mtu", "65536"),
            ("sys/class/net/eth0/speed", "25000\n"),
            ("sys/class/net/eth0/mtu", "9000\n"),
            ("sys/class/net/eth0/device/vendor", "x"),
            ("sys/class/net/br0/speed", "-1\n"),
            ("sys/block/nvme0n1/size", "2048\n"),
            ("sys/block/nvme0n1/device/model", "P5800X  \n"),
            ("sys/block/nvme0n1/queue/rotational", "0\n"),
            ("sys/block/loop0/size", "0\n"),
            (
                "var/lib/dpkg/status",
                "Package: ceph-osd\nStatus: install ok installed\nVersion: 18.2.4-1\n\n\
                 Package: glusterfs-server\nStatus: deinstall ok config-files\nVersion: 10.3\n\n\
                 Package: vim\nStatus: install ok installed\nVersion: 9\n",
            ),
            (
                "lib/apk/db/installed",
                "P:nfs-utils\nV:2.6.4-r0\n\nP:musl\nV:1\n",
            ),
            ("var/lib/pacman/local/moosefs-ce-3.0.117-1/desc", ""),
        ]);
        let host = Inventory::read(root.path());
        assert_eq!(host.distribution, "Debian GNU/Linux 12");
        assert_eq!(host.cpu_model, "EPYC 7763");
        assert_eq!(host.interfaces.len(), 2, "{host:?}");
        assert_eq!(host.interfaces[0].mbits, None);
        assert_eq!(
            host.interfaces[1],
            Interface {
                name: "eth0".to_owned(),
                mbits: Some(25_000),
                mtu: Some(9000),
                hardware: true
            }
        );
        assert_eq!(
            host.disks,
            [Disk {
                name: "nvme0n1".to_owned(),
                model: Some("P5800X".to_owned()),
                size_bytes: 1 << 20,
                rotational: Some(false)
            }]
        );
        let packages: Vec<(&str, &str)> = host
            .packages
            .iter()
            .map(|(name, version)| (name.as_str(), version.as_str()))
            .collect();
        assert_eq!(
            packages,
            [
                ("ceph-osd", "18.2.4-1"),
                ("moosefs-ce", "3.0.117-1"),
                ("nfs-utils", "2.6.4-r0")
            ]
        );
    }

    #[test]
    fn a_host_that_says_nothing_is_no_error() {
        let root = tree(&[("var/lib/dpkg/status", "\u{0}\n\nPackage: ceph\n")]);
        assert_eq!(Inventory::read(root.path()), Inventory::default());
    }

    #[test]
    fn this_host_has_a_name_for_what_it_is() {
        let host = Inventory::read(Path::new("/"));
        assert!(
            !host.cpu_model.is_empty() || !host.distribution.is_empty(),
            "{host:?}"
        );
        assert!(host.to_json().starts_with('{'));
    }
}
