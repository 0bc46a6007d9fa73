//! Findings of `doctor` about a directory that is a target.

use crate::finding::Finding;
use crate::host::mount;
use benchmesh_workloads::sandbox::Space;
use benchmesh_workloads::units::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Less free space than this is too little for most loads.
const LITTLE_BYTES: u64 = 1 << 30;
const LITTLE_FILES: u64 = 10_000;

/// Large enough for the logical blocks of any disk.
const BLOCK: usize = 4096;

pub(super) fn examine(path: &Path) -> Vec<Finding> {
    let mut findings = vec![target(path)];
    findings.extend(device_nodes(path));
    if path.is_dir() {
        findings.push(direct(path));
    }
    findings
}

/// Checks that it exists, is writable and has free space.
fn target(path: &Path) -> Finding {
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
            format!("this user cannot write to {shown}: {error}"),
            "run the agent as root, or give its user write permission",
        );
    }
    let Ok(space) = Space::at(path) else {
        return Finding::fail(
            "path",
            format!("{shown}: its file system does not answer"),
            "check the mount",
        );
    };
    let kind = mount(path).map_or_else(|| "unknown file system".to_owned(), |mount| mount.kind);
    let free = Bytes(space.free_bytes).about();
    let is_sized = space.size_bytes > 0;
    if is_sized && space.free_bytes < LITTLE_BYTES {
        return Finding::warn(
            "path",
            format!("{shown} ({kind}): {free} free"),
            "make room: a load needs at least the data that its plan lays out",
        );
    }
    if space.files > 0 && space.free_files < LITTLE_FILES {
        return Finding::warn(
            "path",
            format!("{shown} ({kind}): {} inodes free", space.free_files),
            "make room: each file of a load needs one",
        );
    }
    let room = match is_sized {
        true => free,
        false => "an unknown number of bytes".to_owned(),
    };
    Finding::ok("path", format!("{shown} ({kind}): {room} free"))
}

/// A dedicated target does not need device nodes: a user who can create one there could direct the agent to a disk.
fn device_nodes(path: &Path) -> Option<Finding> {
    let of = |path: &Path| rustix::fs::stat(path).map(|facts| facts.st_dev).ok();
    let flags = rustix::fs::statvfs(path).ok()?.f_flag;
    if of(path)? == of(Path::new("/"))? || flags.contains(StatVfsMountFlags::NODEV) {
        return None;
    }
    Some(Finding::warn(
        "path",
        format!("{} is mounted without nodev", path.display()),
        "mount it with nodev: agents refuse device nodes in place of their files, and the kernel then refuses them too",
    ))
}

/// Whether a file there accepts direct I/O: writes a block into an unnamed one.
fn direct(path: &Path) -> Finding {
    let shown = path.display();
    match direct_write(path) {
        Ok(()) => Finding::ok("direct-io", format!("{shown}: works")),
        Err(Errno::INVAL | Errno::NOTSUP) => Finding::warn(
            "direct-io",
            format!("{shown}: its file system refuses O_DIRECT"),
            "do not use `direct` or cache = \"bypass\" in plans for it",
        ),
        Err(error) => Finding::warn(
            "direct-io",
            format!("{shown}: not tested: {error}"),
            "give the agent write permission there",
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

/// An unnamed file; one with a temporary name if the file system does not support unnamed ones.
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
    // Some file systems create the file and then refuse to open it directly.
    let removed = rustix::fs::unlinkat(&directory, name.as_c_str(), AtFlags::empty());
    let file = file?;
    removed?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::finding::DoctorVerdict;

    #[test]
    fn directories_are_tried_and_nothing_stays() {
        let home = tempfile::tempdir().unwrap();
        let found = target(home.path());
        assert_ne!(found.verdict, DoctorVerdict::Fail, "{found:?}");
        assert_ne!(direct(home.path()).verdict, DoctorVerdict::Fail);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        assert_eq!(target(Path::new("/nowhere")).verdict, DoctorVerdict::Fail);
    }
}
