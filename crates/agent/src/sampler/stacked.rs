//! Finds block devices that are stacked on others of the same host: their traffic is counted again by the lower ones.
//!
//! It reads only `/sys/block` and the mount table, and no other file system: a hung one must not stop the sampler.

use std::fs;
use std::path::{Path, PathBuf};

/// File systems whose files are on no disk of this host.
const DISKLESS: [&str; 18] = [
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "hugetlbfs",
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "9p",
    "virtiofs",
    "afs",
    "lustre",
    "beegfs",
    "gpfs",
    "orangefs",
    "pvfs2",
    "fuse",
];

#[derive(Debug)]
pub(crate) struct Stacking {
    block: PathBuf,
    mountinfo: PathBuf,
}

impl Stacking {
    pub(crate) fn new(proc_root: &Path, sys_root: &Path) -> Stacking {
        Stacking {
            block: sys_root.join("block"),
            mountinfo: proc_root.join("self/mountinfo"),
        }
    }

    /// Whether another device of this host is beneath: for dm, md and the like by their `slaves`, for a loop device by
    /// the file system of its backing file.
    pub(crate) fn is_stacked(&self, disk: &str) -> bool {
        // `/sys` writes a `/` in a name as `!`.
        let device = self.block.join(disk.replace('/', "!"));
        let has_slaves =
            fs::read_dir(device.join("slaves")).is_ok_and(|mut slaves| slaves.next().is_some());
        if has_slaves {
            return true;
        }
        let Ok(file) = fs::read_to_string(device.join("loop/backing_file")) else {
            return false;
        };
        let table = fs::read_to_string(&self.mountinfo).unwrap_or_default();
        // A file that is on no mount here is almost certainly on some disk.
        file_system(&table, file.trim_end_matches('\n')).is_none_or(|name| !is_diskless(name))
    }
}

fn is_diskless(file_system: &str) -> bool {
    // `fuseblk` is a file system on a disk.
    DISKLESS.contains(&file_system) || file_system.starts_with("fuse.")
}

/// The type of the file system that a path is on. Lines are `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT ... - TYPE SOURCE
/// OPTIONS`; the last one with the longest mount point above the path applies.
fn file_system<'t>(mountinfo: &'t str, path: &str) -> Option<&'t str> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (place, rest) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?;
        let is_above = point == "/"
            || path
                .strip_prefix(point)
                .is_some_and(|rest| rest.starts_with('/'));
        is_above.then_some((point.len(), rest.split(' ').next()?))
    });
    mounts
        .max_by_key(|(length, _)| *length)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /tmp rw,nosuid - tmpfs tmpfs rw
31 22 0:40 / /mnt/ceph rw - fuse.ceph-fuse ceph-fuse rw
32 22 0:41 / /mnt/moose rw - fuse mfs#10.0.0.1:9421 rw
33 22 8:17 / /mnt/disk rw - fuseblk /dev/sdb1 rw
34 30 0:44 / /tmp/over rw - tmpfs tmpfs rw
35 34 254:9 / /tmp/over rw - xfs /dev/vdb rw
";

    #[test]
    fn devices_on_other_disks_are_stacked() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", MOUNTS);
        write("sys/block/vda/size", "9");
        fs::create_dir_all(root.path().join("sys/block/vda/slaves")).unwrap();
        write("sys/block/dm-0/slaves/vda/size", "9");
        write("sys/block/cciss!c0d0/slaves/vda/size", "9");
        fs::create_dir_all(root.path().join("sys/block/loop9/slaves")).unwrap();
        let stacking = Stacking::new(&root.path().join("proc"), &root.path().join("sys"));
        let check =
            |disk: &str, expected| assert_eq!(stacking.is_stacked(disk), expected, "{disk}");
        check("vda", false);
        check("dm-0", true);
        check("cciss/c0d0", true);
        check("loop9", false);
        check("none-such", false);
        for (place, (file, expected)) in [
            ("/var/images/a.img", true),
            ("/tmp/a.img", false),
            ("/tmpfile", true),
            ("/tmp/over/a.img", true),
            ("/mnt/ceph/a.img", false),
            ("/mnt/moose/a.img", false),
            ("/mnt/disk/a.img", true),
            ("/tmp/gone.img (deleted)", false),
        ]
        .into_iter()
        .enumerate()
        {
            let disk = format!("loop{place}");
            write(
                &format!("sys/block/{disk}/loop/backing_file"),
                &format!("{file}\n"),
            );
            assert_eq!(stacking.is_stacked(&disk), expected, "{file}");
        }
    }
}
