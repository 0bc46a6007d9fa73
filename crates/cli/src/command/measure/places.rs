//! The directories to measure: whether they can be measured at all, on which file system they are, and their names.
//!
//! Every problem of every directory is found before anything is written.

use crate::failure::wrong_usage;
use benchmesh_agent::mount;
use benchmesh_answers::report::figures;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The share of the free space and of the free inodes that a measurement uses at most, as a divisor.
pub const MAX_SHARE: u64 = 10;

/// The least amount of data of one load that says anything.
pub const MIN_BYTES: u64 = 8 << 20;

/// A directory that can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name in results.
    pub name: String,
    pub path: PathBuf,
    /// The type of its file system, as in the mount table; `unknown` if it is not listed.
    pub file_system: String,
    /// Identifies the file system.
    device: u64,
    pub free_bytes: u64,
    /// `None` if the file system has no fixed number of files.
    pub free_files: Option<u64>,
}

impl Place {
    /// `new: /mnt/new (ext4, 20 GiB free)`.
    pub fn in_words(&self) -> String {
        format!(
            "{}: {} ({}, {} free)",
            self.name,
            self.path.display(),
            self.file_system,
            figures::bytes(self.free_bytes)
        )
    }
}

/// Examines the directories; an error lists every problem. May hang on a dead network file system.
pub fn inspect(directories: &[PathBuf], clients: u32) -> anyhow::Result<Vec<Place>> {
    let mut problems = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    for directory in directories {
        match inspect_one(directory, clients) {
            Err(problem) => problems.push(problem),
            Ok(place) => match places.iter().position(|other| other.path == place.path) {
                Some(_) => problems.push(format!(
                    "{} is named twice: name each directory once",
                    directory.display()
                )),
                None => places.push(place),
            },
        }
    }
    if !problems.is_empty() {
        return Err(wrong_usage(problems.join("\n")));
    }
    let paths: Vec<&Path> = places.iter().map(|place| place.path.as_path()).collect();
    let names = names(&paths);
    for (place, name) in places.iter_mut().zip(names) {
        place.name = name;
    }
    Ok(places)
}

/// Places for paths that exist on other hosts only.
pub fn remote(directories: &[PathBuf]) -> anyhow::Result<Vec<Place>> {
    let mut paths: Vec<&Path> = Vec::new();
    for directory in directories {
        if !directory.is_absolute() {
            return Err(wrong_usage(format!(
                "{} is relative: with --collector, name the path that the clients have, such as /mnt/data",
                directory.display()
            )));
        }
        if paths.contains(&directory.as_path()) {
            return Err(wrong_usage(format!(
                "{} is named twice: name each directory once",
                directory.display()
            )));
        }
        paths.push(directory);
    }
    let named = names(&paths).into_iter().zip(directories);
    Ok(named
        .map(|(name, path)| Place {
            name,
            path: path.clone(),
            file_system: String::from("unknown"),
            device: 0,
            free_bytes: u64::MAX,
            free_files: None,
        })
        .collect())
}

/// A sentence for each pair of directories on one file system: their difference is noise.
pub fn shared_file_systems(places: &[Place]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let mut earlier = places.iter().take(at);
        if let Some(other) = earlier.rfind(|other| other.device == place.device) {
            sentences.push(format!(
                "{} and {} are on the same file system: expect no difference",
                other.name, place.name
            ));
        }
    }
    sentences
}

fn inspect_one(directory: &Path, clients: u32) -> Result<Place, String> {
    let shown = directory.display();
    let path = directory.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            format!("{shown} does not exist: mount its file system, or make it with `mkdir -p {shown}`")
        }
        _ => format!("cannot open {shown}: {error}"),
    })?;
    let found = path
        .metadata()
        .map_err(|error| format!("cannot open {shown}: {error}"))?;
    if !found.is_dir() {
        return Err(format!(
            "{shown} is not a directory: name a directory on the storage to measure; for a block device write a plan \
             (docs/plan.md)"
        ));
    }
    if path.to_str().is_none() {
        return Err(format!(
            "the path of {shown} is not UTF-8, which a plan cannot contain: rename it, or mount it elsewhere"
        ));
    }
    if path.parent().is_none() {
        return Err(format!(
            "{shown} is the root of this system: make a directory for the measurement, and name it instead"
        ));
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let fstab = std::fs::read_to_string("/etc/fstab").unwrap_or_default();
    if let Some(missing) = missing_mount(&path, &fstab, &table) {
        return Err(format!(
            "{shown} is where /etc/fstab mounts {missing}, and nothing is mounted there: run `mount {missing}`; \
             otherwise the disk beneath it would be measured"
        ));
    }
    let file_system = mount(&path)
        .map(|mount| mount.kind)
        .filter(|kind| !kind.is_empty())
        .unwrap_or_else(|| String::from("unknown"));
    let space =
        statvfs(&path).map_err(|error| format!("cannot read the space of {shown}: {error}"))?;
    if space.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(format!(
            "{shown} is mounted read-only: mount it writable, or name another directory"
        ));
    }
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    if let Err(error) = accessat(CWD, &path, wanted, AtFlags::EACCESS) {
        return Err(format!(
            "cannot write to {shown}: {error}; run as a user that may, or change the permissions"
        ));
    }
    if space.f_blocks == 0 {
        return Err(format!(
            "{shown} is on {file_system}, which stores nothing: name a directory on the storage to measure"
        ));
    }
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = MIN_BYTES * MAX_SHARE * u64::from(clients);
    if free_bytes < needed {
        return Err(format!(
            "{shown} has {} free, and a measurement needs {} (it uses a tenth of that): free some space, or name \
             another directory",
            figures::bytes(free_bytes),
            figures::bytes(needed)
        ));
    }
    Ok(Place {
        name: String::new(),
        file_system,
        path,
        device: found.dev(),
        free_bytes,
        free_files: (space.f_files > 0).then_some(space.f_favail),
    })
}

/// The mount point in `fstab` that contains the path and is not in the mount table.
fn missing_mount(path: &Path, fstab: &str, mountinfo: &str) -> Option<String> {
    let mounted: BTreeSet<&Path> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(Path::new)
        .collect();
    let points = fstab.lines().filter(|line| !line.starts_with('#'));
    let points = points.filter_map(|line| line.split_whitespace().nth(1));
    // Paths are equal if their components are: fstab may have a slash at the end.
    points
        .filter(|point| point.starts_with('/') && Path::new(point).parent().is_some())
        .find(|point| path.starts_with(point) && !mounted.contains(Path::new(point)))
        .map(str::to_owned)
}

/// Short names that differ: the last parts of the paths, as many as needed, otherwise numbers.
fn names(paths: &[&Path]) -> Vec<String> {
    let longest = paths.iter().map(|path| parts(path).len()).max();
    for count in 1..=longest.unwrap_or(1) {
        let names: Vec<String> = paths.iter().map(|path| last_parts(path, count)).collect();
        let different: BTreeSet<&String> = names.iter().collect();
        if different.len() == names.len() && names.iter().all(|name| !name.is_empty()) {
            return names;
        }
    }
    (1..=paths.len()).map(|at| format!("dir{at}")).collect()
}

fn parts(path: &Path) -> Vec<String> {
    let normal = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    normal
        .map(|name| name.replace(|c: char| !is_plain(c), "-"))
        .collect()
}

fn last_parts(path: &Path, count: usize) -> String {
    let parts = parts(path);
    let from = parts.len().saturating_sub(count);
    parts.get(from..).unwrap_or_default().join("-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let check = |paths: &[&str], expected: &[&str]| {
            let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
            assert_eq!(names(&paths), expected);
        };
        check(&["/mnt/old"], &["old"]);
        check(&["/mnt/old", "/mnt/new"], &["old", "new"]);
        check(&["/mnt/a/data", "/mnt/b/data"], &["a-data", "b-data"]);
        check(&["/data", "/mnt/data"], &["data", "mnt-data"]);
        check(&["/mnt/my disk", "/mnt/my.disk"], &["dir1", "dir2"]);
        check(&["/srv/my.disk"], &["my-disk"]);
    }

    #[test]
    fn a_missing_mount_of_fstab_is_found() {
        let fstab = "# /dev/x /mnt/commented ext4\nUUID=1 / ext4\n/dev/sdb1 /mnt/data xfs defaults 0 2\nfs /mnt/up nfs\n\
                     fs /mnt/slash/ nfs\nfs /mnt/gone/ nfs\n";
        let mountinfo = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /mnt/up rw - nfs4 fs rw\n\
                         31 22 0:41 / /mnt/slash rw - nfs4 fs rw\n";
        let check = |path: &str, expected: Option<&str>| {
            let found = missing_mount(Path::new(path), fstab, mountinfo);
            assert_eq!(found.as_deref(), expected, "{path}");
        };
        check("/mnt/data", Some("/mnt/data"));
        check("/mnt/data/bench", Some("/mnt/data"));
        check("/mnt/database", None);
        check("/mnt/up/bench", None);
        check("/mnt/slash", None);
        check("/mnt/slash/bench", None);
        check("/mnt/gone", Some("/mnt/gone/"));
        check("/mnt/commented", None);
        check("/tmp", None);
    }

    #[test]
    fn unusable_directories_are_refused_together() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let missing = directory.path().join("missing");
        let wanted = [
            missing.clone(),
            file.clone(),
            PathBuf::from("/"),
            directory.path().to_owned(),
            directory.path().join("."),
        ];
        let problems = inspect(&wanted, 1).unwrap_err().to_string();
        let lines: Vec<&str> = problems.lines().collect();
        let begins = [
            format!("{} does not exist: ", missing.display()),
            format!("{} is not a directory: ", file.display()),
            String::from("/ is the root of this system: "),
            format!("{}/. is named twice: ", directory.path().display()),
        ];
        assert_eq!(lines.len(), begins.len(), "{problems}");
        for (line, begin) in lines.iter().zip(&begins) {
            assert!(line.starts_with(begin.as_str()), "{line}");
        }
        let places = inspect(&[directory.path().to_owned()], 1).unwrap();
        assert_eq!(places.len(), 1);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn directories_of_one_file_system_are_noted() {
        let directory = tempfile::tempdir().unwrap();
        let both = ["a", "b"].map(|name| directory.path().join(name));
        for one in &both {
            std::fs::create_dir(one).unwrap();
        }
        let places = inspect(&both, 1).unwrap();
        assert_eq!(
            shared_file_systems(&places),
            ["a and b are on the same file system: expect no difference"]
        );
    }
}
