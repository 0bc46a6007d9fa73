//! The installed packages of storage systems: read from the files of dpkg, apk and pacman, asked of rpm, whose database
//! only it can read.
//!
//! No other program is executed, and none that a running process could choose.

use super::inventory::text;
use crate::execute::{self, Limits};
use benchmesh_model::systems;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const RPM: &str = "/usr/bin/rpm";
/// For one query of rpm, which may wait for an upgrade that holds its lock.
const RPM_LIMITS: Limits = Limits {
    time: Duration::from_secs(30),
    bytes: 64 << 10,
};

/// The storage systems' packages and their versions, from the files of dpkg, apk and pacman.
pub(super) fn installed(root: &Path) -> BTreeMap<String, String> {
    let mut found = dpkg(root);
    found.extend(apk(
        &text(&root.join("lib/apk/db/installed")).unwrap_or_default()
    ));
    for entry in all_names(&root.join("var/lib/pacman/local")) {
        // NAME-VERSION-RELEASE
        let mut parts = entry.rsplitn(3, '-');
        if let (Some(release), Some(version), Some(name)) =
            (parts.next(), parts.next(), parts.next())
            && systems::is_storage_package(name)
        {
            found.insert(name.to_owned(), format!("{version}-{release}"));
        }
    }
    found
}

/// The version of the storage system's package that contains a file, which is named by its absolute path without
/// symbolic links. Known for dpkg and rpm. Blocks.
pub fn version_of_file(root: &Path, file: &str, stop: &AtomicBool) -> Option<String> {
    of_dpkg(root, file).or_else(|| of_rpm(file, stop))
}

fn of_dpkg(root: &Path, file: &str) -> Option<String> {
    // Packages from before the merge of /usr still list `/sbin/NAME`.
    let before_merge = file.strip_prefix("/usr").unwrap_or(file);
    let contains = |package: &str| {
        let list = root.join(format!("var/lib/dpkg/info/{package}.list"));
        let list = text(&list).unwrap_or_default();
        list.lines()
            .any(|line| line == file || line == before_merge)
    };
    dpkg(root)
        .into_iter()
        .find_map(|(package, version)| contains(&package).then_some(version))
}

fn of_rpm(file: &str, stop: &AtomicBool) -> Option<String> {
    if !file.starts_with('/') || !Path::new(RPM).exists() {
        return None;
    }
    let mut command = Command::new(RPM);
    command.args([
        "-qf",
        "--queryformat",
        "%{NAME} %{VERSION}-%{RELEASE}\n",
        file,
    ]);
    let output = execute::output(command, stop, RPM_LIMITS).ok()?;
    storage_package(&output)
}

/// The version in lines of `NAME VERSION`.
fn storage_package(lines: &str) -> Option<String> {
    let packages = lines.lines().filter_map(|line| line.split_once(' '));
    let mut storage = packages.filter(|(name, _)| systems::is_storage_package(name));
    storage.next().map(|(_, version)| version.trim().to_owned())
}

fn all_names(directory: &Path) -> impl Iterator<Item = String> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn dpkg(root: &Path) -> BTreeMap<String, String> {
    let status = text(&root.join("var/lib/dpkg/status")).unwrap_or_default();
    let field = |stanza: &str, name: &str| {
        stanza
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .map(str::to_owned)
    };
    status
        .split("\n\n")
        .filter_map(|stanza| {
            let name = stanza.lines().next()?.strip_prefix("Package: ")?;
            let installed = systems::is_storage_package(name)
                && field(stanza, "Status").is_some_and(|status| status.ends_with(" installed"));
            Some((
                name.to_owned(),
                field(stanza, "Version").filter(|_| installed)?,
            ))
        })
        .collect()
}

fn apk(installed: &str) -> BTreeMap<String, String> {
    installed
        .split("\n\n")
        .filter_map(|stanza| {
            let name = stanza.lines().find_map(|line| line.strip_prefix("P:"))?;
            let version = stanza.lines().find_map(|line| line.strip_prefix("V:"))?;
            systems::is_storage_package(name).then(|| (name.to_owned(), version.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_has_the_version_of_the_storage_package_that_contains_it() {
        let root = tempfile::tempdir().unwrap();
        let info = root.path().join("var/lib/dpkg/info");
        fs::create_dir_all(&info).unwrap();
        let stanza = |name: &str, version: &str| {
            format!("Package: {name}\nStatus: install ok installed\nVersion: {version}\n\n")
        };
        let status = stanza("ceph-mon", "16.2.15-1")
            + &stanza("ceph-osd", "16.2.15-2")
            + &stanza("nfs-common", "2.6")
            + &stanza("python3", "3.11");
        fs::write(root.path().join("var/lib/dpkg/status"), status).unwrap();
        for (package, files) in [
            ("ceph-mon", "/.\n/usr/bin/ceph-mon\n"),
            (
                "ceph-osd",
                "/.\n/usr/bin/ceph-osd-extra\n/usr/bin/ceph-osd\n",
            ),
            ("nfs-common", "/sbin/mount.nfs\n"),
            ("python3", "/usr/bin/python3.11\n"),
        ] {
            fs::write(info.join(format!("{package}.list")), files).unwrap();
        }
        let of = |file: &str| of_dpkg(root.path(), file);
        assert_eq!(of("/usr/bin/ceph-osd").as_deref(), Some("16.2.15-2"));
        assert_eq!(of("/usr/bin/ceph-mon").as_deref(), Some("16.2.15-1"));
        assert_eq!(of("/usr/sbin/mount.nfs").as_deref(), Some("2.6"));
        // An interpreter that runs under a daemon's name.
        assert_eq!(of("/usr/bin/python3.11"), None);
        assert_eq!(of("/tmp/ceph-osd"), None);
    }

    #[test]
    fn rpm_may_name_several_packages() {
        let lines = "filesystem 3.16-2.el9\nglusterfs-server 11.1-1.el9\n";
        assert_eq!(storage_package(lines).as_deref(), Some("11.1-1.el9"));
        assert_eq!(
            storage_package("file /x is not owned by any package\n"),
            None
        );
    }
}
