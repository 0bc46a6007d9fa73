//! What can be said of paths before anything runs on them.
//!
//! Of a path that the agent does not allow, nothing is said, not even whether it exists. Every call here may hang on a
//! dead network file system, so it is made on a thread of its own.

use super::link_speed;
use crate::command::{PathFacts, Survey};
use crate::host::{Inventory, Layers, MountedOn};
use crate::policy::Policy;
use crate::sampler::without_secrets;
use benchmesh_workloads::sandbox::{Allowed, SandboxError};
use rustix::fs::{Access, AtFlags, CWD, StatxFlags};
use std::fs;
use std::path::Path;

/// Stands for the free space of a scratch that the agent was not given.
const NO_SCRATCH: i64 = -1;

/// What a path is looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Target,
    Source,
}

/// Looks at all of them.
#[must_use]
pub fn survey(
    policy: &Policy,
    scratch: Option<&Path>,
    paths: &[String],
    source_paths: &[String],
) -> Survey {
    Survey {
        paths: paths
            .iter()
            .map(|path| match policy.devices.permits(Path::new(path)) {
                Some(device) => device_facts(path, &device),
                None => target_facts(policy, path),
            })
            .collect(),
        sources: source_paths
            .iter()
            .map(|path| facts(&policy.sources, path, Use::Source))
            .collect(),
        scratch_free_bytes: scratch.map_or(NO_SCRATCH, |path| {
            space(path).map_or(0, |space| space.free_bytes)
        }),
        link_bytes_per_s: link_speed::bytes_per_s(Path::new(link_speed::INTERFACES)),
        inventory_json: Inventory::read(Path::new("/")).to_json(),
        closed: policy
            .check_hours()
            .err()
            .map_or_else(String::new, |denial| denial.to_string()),
    }
}

/// A device that is allowed is looked at only by its number: whether it is free is known when it is claimed.
fn device_facts(text: &str, device: &Path) -> PathFacts {
    let number = rustix::fs::stat(device)
        .map(|facts| facts.st_rdev)
        .unwrap_or(0);
    PathFacts {
        path: text.to_owned(),
        allowed: true,
        exists: true,
        problem: String::new(),
        free_bytes: i64::MAX,
        free_files: -1,
        file_system: "block device".to_owned(),
        device: format!(
            "{}:{}",
            rustix::fs::major(number),
            rustix::fs::minor(number)
        ),
        mount_source: text.to_owned(),
        mount_options: String::new(),
        size_bytes: 0,
        usable_bytes: 0,
        floor_bytes: 0,
        floor_files: 0,
        beneath: beneath(&MountedOn {
            kind: String::new(),
            device: format!(
                "{}:{}",
                rustix::fs::major(number),
                rustix::fs::minor(number)
            ),
            source: text.to_owned(),
        }),
    }
}

/// With what the policy keeps free on its file system.
fn target_facts(policy: &Policy, text: &str) -> PathFacts {
    let mut facts = facts(&policy.targets, text, Use::Target);
    if facts.exists
        && let Ok(space) = rustix::fs::statvfs(text)
        && space.f_blocks > 0
    {
        let size = space.f_blocks.saturating_mul(space.f_frsize);
        let (bytes, files) = policy.floors.of(size, space.f_files);
        facts.floor_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        facts.floor_files = i64::try_from(files).unwrap_or(i64::MAX);
    }
    facts
}

fn facts(allowed: &Allowed, text: &str, wanted: Use) -> PathFacts {
    let mut facts = PathFacts {
        path: text.to_owned(),
        free_files: -1,
        ..PathFacts::default()
    };
    let path = Path::new(text);
    let real = match allowed.permits(path) {
        Ok(real) => real,
        Err(SandboxError::Io { source, .. }) => {
            facts.allowed = true;
            facts.problem = match source.kind() {
                std::io::ErrorKind::NotFound => "does not exist".to_owned(),
                _ => format!("cannot be looked at: {source}"),
            };
            return facts;
        }
        Err(SandboxError::NotAbsolute { .. }) => {
            facts.problem = "is not an absolute path".to_owned();
            return facts;
        }
        Err(_) if allowed.names(path) => {
            facts.problem =
                "a symlink, there or on the way, leads out of what this agent allows".to_owned();
            return facts;
        }
        Err(_) => {
            let option = if wanted == Use::Target {
                "--allow"
            } else {
                "--allow-read"
            };
            facts.problem = format!("is not beneath a path that this agent allows ({option})");
            return facts;
        }
    };
    facts.allowed = true;
    facts.exists = true;
    facts.problem = problem(&real, wanted).unwrap_or_default();
    match space(&real) {
        Ok(space) => {
            facts.free_bytes = space.free_bytes;
            facts.free_files = space.free_files;
            facts.size_bytes = space.size_bytes;
            facts.usable_bytes = space.usable_bytes;
        }
        Err(error) if facts.problem.is_empty() => {
            facts.problem = format!("its free space cannot be asked for: {error}");
        }
        Err(_) => {}
    }
    if let Some(mount) = mount(&real) {
        facts.beneath = beneath(&MountedOn {
            kind: mount.kind.clone(),
            device: mount.device.clone(),
            source: mount.source.clone(),
        });
        facts.file_system = mount.kind;
        facts.device = mount.device;
        facts.mount_source = without_secrets(&mount.source);
        facts.mount_options = without_secrets(&mount.options);
    }
    facts
}

/// What stands in the way of using it.
fn problem(path: &Path, wanted: Use) -> Option<String> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Some(format!("cannot be looked at: {error}")),
    };
    let (rights, what) = match (wanted, metadata.is_dir()) {
        (Use::Target, false) => return Some("is not a directory".to_owned()),
        (Use::Target, true) => (Access::WRITE_OK | Access::EXEC_OK, "written"),
        (Use::Source, true) => (Access::READ_OK | Access::EXEC_OK, "read"),
        (Use::Source, false) => (Access::READ_OK, "read"),
    };
    match rustix::fs::accessat(CWD, path, rights, AtFlags::EACCESS) {
        Ok(()) => None,
        Err(rustix::io::Errno::ROFS) => {
            Some("is on a file system that is mounted read-only".to_owned())
        }
        Err(error) => {
            let uid = rustix::process::geteuid().as_raw();
            Some(format!(
                "cannot be {what} by this agent (user id {uid}): {error}"
            ))
        }
    }
}

/// Free bytes and files for an ordinary user; files are -1 where there is no limit. A file system of no blocks does not say
/// how large it is.
fn space(path: &Path) -> Result<Space, rustix::io::Errno> {
    let facts = rustix::fs::statvfs(path)?;
    let bytes = match facts.f_blocks {
        0 => u64::MAX,
        _ => facts.f_bavail.saturating_mul(facts.f_frsize),
    };
    let files = match facts.f_files {
        0 => -1,
        _ => i64::try_from(facts.f_favail).unwrap_or(i64::MAX),
    };
    let size = facts.f_blocks.saturating_mul(facts.f_frsize);
    let kept = facts.f_bfree.saturating_sub(facts.f_bavail);
    let usable = facts
        .f_blocks
        .saturating_sub(kept)
        .saturating_mul(facts.f_frsize);
    Ok(Space {
        free_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        free_files: files,
        size_bytes: i64::try_from(size).unwrap_or(i64::MAX),
        usable_bytes: i64::try_from(usable).unwrap_or(i64::MAX),
    })
}

#[derive(Debug, Clone, Copy)]
struct Space {
    free_bytes: i64,
    free_files: i64,
    size_bytes: i64,
    usable_bytes: i64,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    kind: String,
    device: String,
    source: String,
    options: String,
}

/// The devices beneath a mount.
fn beneath(mounted: &MountedOn) -> Vec<String> {
    let mount_of = |file: &Path| {
        let mount = mount(file)?;
        Some(MountedOn {
            kind: mount.kind,
            device: mount.device,
            source: mount.source,
        })
    };
    Layers {
        sys: Path::new("/sys"),
        proc: Path::new("/proc"),
        mount_of: &mount_of,
    }
    .beneath(mounted)
}

/// The mounted file system that a path is on, by the number of its mount.
fn mount(path: &Path) -> Option<Mount> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    Some(mount_of(&table, stat.stx_mnt_id).unwrap_or_else(|| unlisted(&table, device)))
}

/// A mount that is not in the table, as that of the root in a chroot: by another mount of its device, or its device alone.
fn unlisted(table: &str, device: String) -> Mount {
    let mut mounts = table.lines().filter_map(|line| Some(parsed(line)?.1));
    match mounts.find(|mount| mount.device == device) {
        Some(mount) => Mount {
            options: String::new(),
            ..mount
        },
        None => Mount {
            kind: String::new(),
            device,
            source: String::new(),
            options: String::new(),
        },
    }
}

fn mount_of(table: &str, id: u64) -> Option<Mount> {
    let mut mounts = table.lines().filter_map(parsed);
    mounts.find(|(number, _)| *number == id).map(|(_, it)| it)
}

/// A line of the table: mount id, parent, device, root, mount point, options, optional fields, `-`, type, source.
fn parsed(line: &str) -> Option<(u64, Mount)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let device = fields.nth(1)?.to_owned();
    let options = fields.nth(2)?;
    let mut fields = fields.skip_while(|field| *field != "-").skip(1);
    let kind = fields.next()?;
    let source = unescaped(fields.next().unwrap_or_default());
    let of_file_system = fields.next().unwrap_or_default();
    // MooseFS names itself only by its source.
    let kind = match source.strip_prefix("mfs#") {
        Some(_) if kind == "fuse" => "fuse.moosefs",
        _ => kind,
    };
    Some((
        id,
        Mount {
            kind: kind.to_owned(),
            device,
            source,
            options: unescaped(&joined(options, of_file_system)),
        },
    ))
}

/// The options of a mount and of its file system, each once.
fn joined(of_mount: &str, of_file_system: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for option in of_mount.split(',').chain(of_file_system.split(',')) {
        if !option.is_empty() && !all.contains(&option) {
            all.push(option);
        }
    }
    all.join(",")
}

/// Blanks, `#` and the like stand in the table as a backslash and three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(byte) => {
                out.push(byte);
                out.extend(part.bytes().skip(3));
            }
            None => {
                out.push(b'\\');
                out.extend(part.bytes());
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;
    use crate::policy::PolicyConfig;
    use crate::targets::TargetNames;

    #[test]
    fn paths_are_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        fs::create_dir(root.join("target")).unwrap();
        fs::write(root.join("target/file"), "x").unwrap();
        fs::create_dir(root.join("other")).unwrap();
        std::os::unix::fs::symlink(root.join("other"), root.join("target/out")).unwrap();
        let allowed = vec![root.join("target")];
        let policy = Policy::open(&PolicyConfig {
            targets: TargetNames::directories(&allowed),
            allow_read: allowed,
            ..PolicyConfig::default()
        })
        .unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let paths = [
            "target",
            "target/none",
            "target/file",
            "other",
            "target/out",
            "none",
            "target/../none",
            "target/../other",
            "target/out/none",
        ]
        .map(text);
        let survey = survey(&policy, None, &paths, &paths);
        let check = |facts: &PathFacts, allowed, exists, problem: &str| {
            assert_eq!(
                (facts.allowed, facts.exists),
                (allowed, exists),
                "{facts:?}"
            );
            assert_eq!(facts.problem.is_empty(), problem.is_empty(), "{facts:?}");
            assert!(facts.problem.contains(problem), "{facts:?}");
        };
        assert_eq!(survey.scratch_free_bytes, NO_SCRATCH);
        check(&survey.paths[0], true, true, "");
        check(&survey.paths[1], true, false, "does not exist");
        check(&survey.paths[2], true, true, "not a directory");
        check(&survey.paths[3], false, false, "--allow)");
        check(&survey.paths[4], false, false, "leads out");
        check(&survey.paths[5], false, false, "--allow)");
        // The same words whether it exists or not.
        check(&survey.paths[6], false, false, "--allow)");
        check(&survey.paths[7], false, false, "--allow)");
        check(&survey.paths[8], false, false, "leads out");
        check(&survey.sources[2], true, true, "");
        check(&survey.sources[3], false, false, "--allow-read");
        let target = &survey.paths[0];
        assert!(
            target.floor_bytes > 0 && target.floor_bytes <= 1 << 30 && target.floor_files <= 10_000
        );
        assert_eq!(
            (survey.sources[0].floor_bytes, survey.paths[3].floor_bytes),
            (0, 0)
        );
        assert!(target.free_bytes > 0 && target.device.contains(':'));
        // In a chroot the table of mounts lacks the root.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let has_root = table
            .lines()
            .any(|line| line.split(' ').nth(4) == Some("/"));
        assert!(!target.file_system.is_empty() || !has_root);
        assert_eq!(
            facts(&policy.targets, "target", Use::Target).problem,
            "is not an absolute path"
        );
    }

    #[test]
    fn a_mount_that_is_not_listed_is_known_by_its_device() {
        let table = "66 43 0:22 / /sys ro - sysfs sysfs rw\n70 43 254:0 /usr /usr ro - ext4 /dev/vda rw,discard";
        let known = unlisted(table, "254:0".to_owned());
        assert_eq!(
            (
                known.kind.as_str(),
                known.source.as_str(),
                known.options.as_str()
            ),
            ("ext4", "/dev/vda", "")
        );
        let unknown = unlisted(table, "8:1".to_owned());
        assert_eq!(
            (unknown.kind.as_str(), unknown.device.as_str()),
            ("", "8:1")
        );
    }

    #[test]
    fn mount_tables_are_read_by_id() {
        let table = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     9 22 0:42 /vol /mnt/my\\040ceph rw - ceph 10.0.0.1:/ rw\nnonsense\n31 22 0:5\n\
                     40 22 0:50 / /mnt/mfs rw,nosuid - fuse mfs\\04310.0.0.7:9421 rw,user_id=0";
        let moose = mount_of(table, 40).unwrap();
        assert_eq!(
            (
                moose.kind.as_str(),
                moose.source.as_str(),
                moose.options.as_str()
            ),
            ("fuse.moosefs", "mfs#10.0.0.7:9421", "rw,nosuid,user_id=0")
        );
        let mount = mount_of(table, 9).unwrap();
        assert_eq!(
            (mount.kind.as_str(), mount.device.as_str()),
            ("ceph", "0:42")
        );
        assert_eq!(mount_of(table, 22).unwrap().kind, "ext4");
        assert_eq!(mount_of(table, 31), None);
        assert_eq!(mount_of(table, 77), None);
    }
}
