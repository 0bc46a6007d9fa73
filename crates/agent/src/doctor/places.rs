//! Directories and devices that the agent works in, and where it keeps its state.

use super::Finding;
use crate::config::AgentConfig;
use crate::policy::{Bytes, Floors};
use benchmesh_model::targets::{DEVICE, DIRECTORY};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Less free than this is little for a load.
const LITTLE_BYTES: u64 = 1 << 30;
const LITTLE_FILES: u64 = 10_000;

/// Large enough for the logical blocks of any disk.
const BLOCK: usize = 4096;

pub fn examine(config: &AgentConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in config.policy.targets.of(&DIRECTORY) {
        findings.push(target(path));
        findings.extend(floors(config, path));
        findings.extend(device_nodes(path));
        if path.is_dir() {
            findings.push(direct(path));
        }
    }
    findings.extend(config.policy.targets.of(&DEVICE).map(device));
    findings.extend(config.policy.allow_read.iter().map(|path| source(path)));
    findings.push(state(config));
    findings
}

/// A directory that load may lie in: there, writable, with room.
pub(super) fn target(path: &Path) -> Finding {
    let shown = path.display();
    if let Err(error) = std::fs::read_dir(path) {
        return Finding::fail(
            "path",
            format!("{shown}: {error}"),
            "mount the target, or correct --allow",
        );
    }
    if let Err(error) =
        rustix::fs::accessat(CWD, path, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS)
    {
        return Finding::fail(
            "path",
            format!("{shown} cannot be written by this user: {error}"),
            "run the agent as root, or give its user the directory",
        );
    }
    let Ok(facts) = rustix::fs::statvfs(path) else {
        return Finding::fail(
            "path",
            format!("{shown}: its file system does not answer"),
            "look at the mount",
        );
    };
    let kind = file_system(path);
    let bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
    let is_sized = facts.f_blocks > 0;
    if is_sized && bytes < LITTLE_BYTES {
        return Finding::warn(
            "path",
            format!("{shown} ({kind}): {} free", Bytes(bytes).about()),
            "make room: load needs at least what its plan lays out",
        );
    }
    if facts.f_files > 0 && facts.f_favail < LITTLE_FILES {
        return Finding::warn(
            "path",
            format!("{shown} ({kind}): {} inodes free", facts.f_favail),
            "make room: each file of a load needs one",
        );
    }
    let room = if is_sized {
        Bytes(bytes).about()
    } else {
        "an unknown number of bytes".to_owned()
    };
    Finding::ok("path", format!("{shown} ({kind}): {room} free"))
}

/// What the policy says of a target that has less free than has to stay free.
pub(super) fn floors(config: &AgentConfig, path: &Path) -> Option<Finding> {
    let floors = Floors {
        space: config.policy.free_space,
        inodes: config.policy.free_inodes,
    };
    let directory = std::fs::File::open(path).ok()?;
    let denial = floors.check(directory).err()?;
    let shown = path.display();
    Some(Finding::fail(
        "path",
        format!("{shown} takes no load: {denial}"),
        format!(
            "make room, or start the agent with a smaller --{}",
            denial.key
        ),
    ))
}

/// A target of its own does not need device nodes: who may make one there could lead the agent to a disk.
pub(super) fn device_nodes(path: &Path) -> Option<Finding> {
    let of = |path: &Path| rustix::fs::stat(path).map(|facts| facts.st_dev).ok();
    let flags = rustix::fs::statvfs(path).ok()?.f_flag;
    if of(path)? == of(Path::new("/"))? || flags.contains(StatVfsMountFlags::NODEV) {
        return None;
    }
    Some(Finding::warn(
        "path",
        format!("{} is mounted without nodev", path.display()),
        "mount it with nodev: agents refuse device nodes in the place of their files, and the kernel then does so too",
    ))
}

/// Whether a file there takes direct I/O: by writing a block into one that has no name.
pub(super) fn direct(path: &Path) -> Finding {
    let shown = path.display();
    match direct_write(path) {
        Ok(()) => Finding::ok("direct-io", format!("{shown}: works")),
        Err(Errno::INVAL | Errno::NOTSUP) => Finding::warn(
            "direct-io",
            format!("{shown}: its file system refuses O_DIRECT"),
            "leave `direct` and cache = \"bypass\" out of plans for it",
        ),
        Err(error) => Finding::warn(
            "direct-io",
            format!("{shown}: not tried: {error}"),
            "let the agent write there",
        ),
    }
}

fn direct_write(path: &Path) -> Result<(), Errno> {
    let file = unnamed(path, OFlags::WRONLY | OFlags::DIRECT)?;
    let block = vec![0_u8; 2 * BLOCK];
    let from = block.as_ptr().align_offset(BLOCK);
    let aligned = block.get(from..from + BLOCK).ok_or(Errno::NOMEM)?;
    rustix::io::pwrite(&file, aligned, 0).map(drop)
}

/// A file without a name; with one for a moment where the file system knows no others.
fn unnamed(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(
        CWD,
        directory,
        flags | OFlags::TMPFILE | OFlags::CLOEXEC,
        mode,
    ) {
        Err(Errno::NOTSUP | Errno::ISDIR | Errno::NOENT) => {}
        opened => return opened,
    }
    let name = format!(".benchmesh-doctor-{}", std::process::id());
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let directory = rustix::fs::openat(
        CWD,
        directory,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, name.as_c_str(), flags | create, mode);
    // Some file systems make the file and then refuse to open it directly.
    let removed = rustix::fs::unlinkat(&directory, name.as_c_str(), AtFlags::empty());
    let file = file?;
    removed?;
    Ok(file)
}

fn device(path: &Path) -> Finding {
    let shown = path.display();
    let remedy = "correct --allow-device";
    match rustix::fs::stat(path) {
        Err(error) => Finding::fail("device", format!("{shown}: {error}"), remedy),
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::BlockDevice => {
            Finding::fail("device", format!("{shown} is no block device"), remedy)
        }
        Ok(_) => {
            match rustix::fs::accessat(CWD, path, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS) {
                Ok(()) => Finding::ok(
                    "device",
                    format!("{shown}: can be opened; a plan overwrites it"),
                ),
                Err(error) => Finding::fail(
                    "device",
                    format!("{shown}: {error}"),
                    "run the agent as root, with DeviceAllow= for it in the unit",
                ),
            }
        }
    }
}

fn source(path: &Path) -> Finding {
    match std::fs::read_dir(path) {
        Ok(_) => Finding::ok("source", format!("{}: can be read", path.display())),
        Err(error) => Finding::fail(
            "source",
            format!("{}: {error}", path.display()),
            "correct --allow-read",
        ),
    }
}

/// The state directory, or the nearest directory above it that is there.
pub(super) fn state(config: &AgentConfig) -> Finding {
    let path = &config.state_dir;
    let shown = path.display();
    if let Some(target) = config
        .policy
        .targets
        .with_run_directories()
        .find(|target| path.starts_with(target))
    {
        return Finding::fail(
            "state",
            format!("{shown} lies under the target {}", target.display()),
            "choose another --state-dir: what the agent writes would be measured",
        );
    }
    let Some(there) = nearest(path) else {
        return Finding::fail(
            "state",
            format!("{shown}: nothing above it is there"),
            "choose another --state-dir",
        );
    };
    if let Err(error) =
        rustix::fs::accessat(CWD, &there, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS)
    {
        return Finding::fail(
            "state",
            format!(
                "{} cannot be written by this user: {error}",
                there.display()
            ),
            "run this as the agent's user, or choose another --state-dir",
        );
    }
    let bytes = rustix::fs::statvfs(&there)
        .map(|facts| facts.f_bavail.saturating_mul(facts.f_frsize))
        .unwrap_or_default();
    if bytes < config.spool_limit_bytes {
        return Finding::warn(
            "state",
            format!(
                "{shown}: {} free, and the spool may take {}",
                Bytes(bytes).about(),
                Bytes(config.spool_limit_bytes).about()
            ),
            "make room: a full spool merges seconds while the collector is away",
        );
    }
    Finding::ok("state", format!("{shown}: {} free", Bytes(bytes).about()))
}

fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find(|path| path.is_dir())
        .map(Path::to_owned)
}

/// The type of the file system that a path lies on, by the last mount above it.
fn file_system(path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split_whitespace().skip(1);
        let (Some(point), Some(kind)) = (fields.next(), fields.next()) else {
            continue;
        };
        let length = Path::new(point).components().count();
        if real.starts_with(point) && best.is_none_or(|(longest, _)| length >= longest) {
            best = Some((length, kind));
        }
    }
    best.map_or_else(
        || "unknown file system".to_owned(),
        |(_, kind)| kind.to_owned(),
    )
}
