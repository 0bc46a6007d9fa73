//! Finds the users of a block device in this host's files, for the message that it is in use.
//!
//! For messages only; files that cannot be read are skipped.

use rustix::fs::{major, minor};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of open files to look at: more than a host has unless it is about to run out of descriptors.
const LINKS_MAX: usize = 200_000;
/// Maximum number of users in the message.
const NAMED: usize = 5;

/// Major and minor number.
type Number = (u32, u32);

/// The users as text, or empty if none are known: "mounted at /srv, held by dm-0 (vg-data)".
pub(super) fn users(device: &Path) -> String {
    let Some(number) = number_of(device) else {
        return String::new();
    };
    let parts = related(number);
    let mut found = mounts(
        &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
        &parts,
    );
    found.extend(swaps(
        &fs::read_to_string("/proc/swaps").unwrap_or_default(),
        &parts,
    ));
    found.extend(parts.iter().flat_map(|part| holders(&directory(*part))));
    if found.is_empty() {
        found = processes(&parts);
    }
    found.sort();
    found.dedup();
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found.join(", ")
}

fn number_of(device: &Path) -> Option<Number> {
    let facts = rustix::fs::stat(device).ok()?;
    Some((major(facts.st_rdev), minor(facts.st_rdev)))
}

fn directory((major, minor): Number) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// The device, its partitions, and its parent device.
fn related(device: Number) -> Vec<Number> {
    let own = directory(device);
    let number = |directory: &Path| {
        let text = fs::read_to_string(directory.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let mut found = vec![device];
    if own.join("partition").exists()
        && let Ok(own) = own.canonicalize()
    {
        found.extend(own.parent().and_then(number));
    }
    let entries = fs::read_dir(&own).into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    found.extend(partitions.filter_map(|entry| number(&entry.path())));
    found
}

/// Parses `/proc/self/mountinfo`: `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT ... - TYPE SOURCE OPTIONS`.
fn mounts(mountinfo: &str, parts: &[Number]) -> Vec<String> {
    let is_of = |line: &&str| {
        let numbers = line
            .split(' ')
            .nth(2)
            .and_then(|number| number.split_once(':'));
        let by_number = numbers.is_some_and(|(major, minor)| {
            let number = (major.parse().ok(), minor.parse().ok());
            parts
                .iter()
                .any(|part| number == (Some(part.0), Some(part.1)))
        });
        // A file system over several devices has its own device number.
        let source = line
            .split(" - ")
            .nth(1)
            .and_then(|rest| rest.split(' ').nth(1));
        by_number
            || source.is_some_and(|source| {
                source.starts_with("/dev/")
                    && number_of(Path::new(source)).is_some_and(|number| parts.contains(&number))
            })
    };
    let point = |line: &str| Some(format!("mounted at {}", unescaped(line.split(' ').nth(4)?)));
    mountinfo.lines().filter(is_of).filter_map(point).collect()
}

/// The kernel writes spaces as `\040`.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ")
}

/// Parses `/proc/swaps`, whose first line is a heading.
fn swaps(swaps: &str, parts: &[Number]) -> Vec<String> {
    let files = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    files
        .filter(|file| number_of(Path::new(file)).is_some_and(|number| parts.contains(&number)))
        .map(|file| format!("swapped on as {file}"))
        .collect()
}

/// Device mapper, md and the like, from the device's directory in sysfs.
fn holders(device: &Path) -> Vec<String> {
    let entries = fs::read_dir(device.join("holders"))
        .into_iter()
        .flatten()
        .flatten();
    let named = |entry: fs::DirEntry| {
        let device = entry.file_name().to_string_lossy().into_owned();
        match fs::read_to_string(entry.path().join("dm/name")) {
            Ok(name) => format!("held by {device} ({})", name.trim()),
            Err(_) => format!("held by {device}"),
        }
    };
    entries.map(named).collect()
}

/// Processes that have it open, as far as this process may inspect them.
fn processes(parts: &[Number]) -> Vec<String> {
    let mut links = 0_usize;
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let files = fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let has_it = |file: fs::DirEntry| {
            links = links.saturating_add(1);
            let target = fs::read_link(file.path()).ok()?;
            (target.starts_with("/dev") && parts.contains(&number_of(&target)?)).then_some(())
        };
        if files.take(LINKS_MAX).find_map(has_it).is_some() {
            found.push(match name == std::process::id().to_string() {
                true => "another task of this agent".to_owned(),
                false => {
                    let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                    format!("opened by {} (pid {name})", comm.trim())
                }
            });
        }
        if links > LINKS_MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Command, Stdio};

    const MOUNTINFO: &str = "\
22 1 0:21 / /proc rw - proc proc rw
31 1 254:0 / / rw,relatime - ext4 /dev/root rw
40 31 254:17 / /srv/my\\040data rw - ext4 /dev/vdb1 rw
41 31 8:1 / /boot rw - ext4 /dev/sda1 rw
";

    #[test]
    fn mounts_of_a_device_and_its_partitions_are_named() {
        let mounted = |parts: &[Number]| mounts(MOUNTINFO, parts).join(", ");
        assert_eq!(mounted(&[(254, 16), (254, 17)]), "mounted at /srv/my data");
        assert_eq!(mounted(&[(254, 0)]), "mounted at /");
        assert_eq!(mounted(&[(7, 0)]), "");
        for cut in 0..MOUNTINFO.len() {
            let cut = MOUNTINFO.get(..cut).unwrap_or_default();
            let _ = mounts(cut, &[(254, 17)]);
        }
    }

    /// Uses a device node that every user may open in place of the swap device.
    #[test]
    fn a_device_that_is_swapped_on_is_named() {
        let listed = "Filename\tType\tSize\tUsed\tPriority\n/dev/full partition 16380 0 -2\n/swapfile file 1024 0 -3\n";
        let swapped = |device: &str| swaps(listed, &[number_of(Path::new(device)).unwrap()]);
        assert_eq!(swapped("/dev/full"), ["swapped on as /dev/full"]);
        assert_eq!(swapped("/dev/null"), [] as [String; 0]);
    }

    #[test]
    fn holders_are_named_and_device_mapper_by_its_name() {
        let device = tempfile::tempdir().unwrap();
        assert_eq!(holders(device.path()), [] as [String; 0]);
        let holder = |name: &str| device.path().join("holders").join(name);
        fs::create_dir_all(holder("dm-3/dm")).unwrap();
        fs::write(holder("dm-3/dm/name"), "vg-data\n").unwrap();
        fs::create_dir_all(holder("md0")).unwrap();
        let mut found = holders(device.path());
        found.sort();
        assert_eq!(found, ["held by dm-3 (vg-data)", "held by md0"]);
    }

    #[test]
    fn processes_that_have_a_device_open_are_named() {
        let parts = [number_of(Path::new("/dev/full")).unwrap()];
        let opened = fs::File::open("/dev/full").unwrap();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stderr(fs::File::options().write(true).open("/dev/full").unwrap())
            .spawn()
            .unwrap();
        // From fork to exec it has the name of this program.
        let named = format!("opened by cat (pid {})", child.id());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut found = processes(&parts);
        while !found.contains(&named) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
            found = processes(&parts);
        }
        // Closes its input, so that it exits.
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(found.contains(&named), "{found:?}");
        let ours = "another task of this agent".to_owned();
        assert!(found.contains(&ours), "{found:?}");
        drop(opened);
        assert!(!processes(&parts).contains(&named));
    }

    #[test]
    fn what_is_no_device_has_no_users() {
        assert_eq!(users(Path::new("/nonexistent")), "");
    }

    /// Uses the root file system's device, if it has one.
    #[test]
    fn the_device_of_a_mounted_file_system_is_mounted() {
        let facts = rustix::fs::stat("/").unwrap_or_else(|errno| panic!("{errno}"));
        let number = (major(facts.st_dev), minor(facts.st_dev));
        if number.0 == 0 {
            let why = "the root file system is on no block device";
            return benchmesh_testing::skip("block-device", why);
        }
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut mount_points = mountinfo.lines().map(|line| line.split(' ').nth(4));
        if !mount_points.any(|point| point == Some("/")) {
            let why = "the root is no mount, as in a chroot";
            return benchmesh_testing::skip("block-device", why);
        }
        assert!(mounts(&mountinfo, &related(number)).contains(&"mounted at /".to_owned()));
    }
}
