//! The source of a target's bytes, by its mount, and the part of the read bytes that a cache must have supplied.
//!
//! If a host read more bytes than it received, or than its disks delivered, the difference came from a cache, whatever
//! the rate. If no counter covers the target's traffic, the result is a reason instead of a judgement. Pure.

/// Network file systems, by the type of the mount or of its FUSE client.
const NETWORKED: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "rados",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
    "orangefs",
    "pvfs2",
    "afs",
    "9p",
    "moosefs",
    "lizardfs",
    "saunafs",
    "weka",
    "wekafs",
    "quobyte",
    "juicefs",
    "curvefs",
];
/// File systems that commonly bypass the kernel's network stack: InfiniBand verbs, DPDK.
const PAST_THE_KERNEL: &[&str] = &["lustre", "beegfs", "gpfs", "weka", "wekafs"];
/// File systems on a block device that store data unchanged.
const ON_DISK: &[&str] = &["ext2", "ext3", "ext4", "xfs", "fuseblk", "ocfs2", "gfs2"];
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];
/// Maximum cached share of the read bytes without a flag, as a divisor: inodes and the ends of files come from a cache.
const CACHED_SHARE: i64 = 10;

/// The devices that must have carried the bytes read from a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Network,
    Disk,
    /// A source that is not sampled, with the reason.
    Unknown(&'static str),
}

/// Whether a file system of this type is behind the network.
pub fn is_networked(file_system: &str) -> bool {
    let name = file_system.strip_prefix("fuse.").unwrap_or(file_system);
    NETWORKED.contains(&name) || (name != file_system && name.starts_with("ceph"))
}

/// Derived from a mount's type, source and options, as the agent found them.
pub fn origin(file_system: &str, source: &str, options: &str) -> Origin {
    let name = file_system.strip_prefix("fuse.").unwrap_or(file_system);
    let has = |word: &str| options.contains(word);
    if file_system.is_empty() {
        return Origin::Unknown("how the target is mounted is not known");
    }
    if name == "9p" || name == "virtiofs" {
        return Origin::Unknown("the hypervisor serves the target, past all interfaces");
    }
    if is_networked(file_system) || source.starts_with("mfs#") {
        return match PAST_THE_KERNEL.contains(&name) || has("rdma") {
            true => Origin::Unknown("RDMA may carry the data, which no interface counts"),
            false => Origin::Network,
        };
    }
    if IN_MEMORY.contains(&name) {
        return Origin::Unknown("the target is in memory");
    }
    if ON_DISK.contains(&name) || (name == "btrfs" && !has("compress")) {
        if source.starts_with("/dev/loop") {
            return Origin::Unknown(
                "the target is on a loop device: what its file comes from is not known",
            );
        }
        if ["/dev/nbd", "/dev/rbd", "/dev/drbd"]
            .iter()
            .any(|device| source.starts_with(device))
        {
            return Origin::Unknown(
                "the target is on a network block device, whose client has a cache of its own",
            );
        }
        return Origin::Disk;
    }
    match file_system.starts_with("fuse") {
        true => Origin::Unknown("what is behind the target's FUSE file system is not known"),
        false => Origin::Unknown("what a file system of this type reads is not known"),
    }
}

/// The bytes that the tasks of a host read, and those that reached the host in the same time. `None` if no samples
/// cover the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub read_bytes: i64,
    /// Upper bound of the bytes from the network, including loopback.
    pub received_bytes: Option<i64>,
    pub disk_read_bytes: Option<i64>,
}

/// Lower bound of the read bytes that came from a cache; `Ok(None)` if nothing was read.
///
/// # Errors
/// The reason why it cannot be judged.
pub fn cached(origin: Origin, carried: Carried) -> Result<Option<i64>, &'static str> {
    if carried.read_bytes == 0 {
        return Ok(None);
    }
    let came = match origin {
        Origin::Unknown(why) => return Err(why),
        Origin::Network => carried
            .received_bytes
            .ok_or("no samples of the client's interfaces cover the step")?,
        Origin::Disk => carried
            .disk_read_bytes
            .ok_or("no samples of the client's disks cover the step")?,
    };
    Ok(Some(carried.read_bytes.saturating_sub(came).max(0)))
}

/// Whether the cached part of a read is so large that its rate is not the storage's.
pub fn is_suspect(cached_bytes: i64, read_bytes: i64) -> bool {
    cached_bytes > read_bytes / CACHED_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_says_what_carries_a_read() {
        let check = |file_system, source, options, expected: Option<Origin>| {
            let found = origin(file_system, source, options);
            let judged = Some(found).filter(|found| !matches!(found, Origin::Unknown(_)));
            assert_eq!(judged, expected, "{file_system} {source}: {found:?}");
        };
        check("fuse.ceph-fuse", "ceph-fuse", "rw", Some(Origin::Network));
        check("nfs4", "a:/x", "rw,proto=tcp", Some(Origin::Network));
        check("nfs4", "a:/x", "rw,proto=rdma", None);
        check("fuse", "mfs#10.0.0.1:9421", "rw", Some(Origin::Network));
        check(
            "fuse.moosefs",
            "mfs#10.0.0.1:9421",
            "rw",
            Some(Origin::Network),
        );
        check("ext4", "/dev/sda1", "rw", Some(Origin::Disk));
        check("xfs", "/dev/mapper/vg-root", "rw", Some(Origin::Disk));
        check("btrfs", "/dev/sda1", "rw,compress=zstd:3", None);
        check("ext4", "/dev/loop0", "rw", None);
        check("ext4", "/dev/nbd3", "rw", None);
        check("ext4", "/dev/rbd0", "rw", None);
        check("tmpfs", "tmpfs", "rw", None);
        check("overlay", "overlay", "rw", None);
        check("zfs", "tank/a", "rw", None);
        check("lustre", "mgs@o2ib:/x", "rw", None);
        check("9p", "share", "rw", None);
        check("fuse.sshfs-of-mine", "x", "rw", None);
        check("fuse", "something", "rw", None);
        check("", "", "", None);
    }

    #[test]
    fn what_never_came_was_cached() {
        let carried = |received_bytes, disk_read_bytes| Carried {
            read_bytes: 1000,
            received_bytes,
            disk_read_bytes,
        };
        assert_eq!(
            cached(Origin::Network, carried(Some(0), None)),
            Ok(Some(1000))
        );
        assert_eq!(
            cached(Origin::Network, carried(Some(1100), None)),
            Ok(Some(0))
        );
        assert_eq!(
            cached(Origin::Disk, carried(Some(9), Some(400))),
            Ok(Some(600))
        );
        assert!(cached(Origin::Network, carried(None, Some(9))).is_err());
        assert!(cached(Origin::Unknown("x"), carried(Some(0), Some(0))).is_err());
        assert_eq!(cached(Origin::Unknown("x"), Carried::default()), Ok(None));
        assert!(is_suspect(101, 1000) && !is_suspect(100, 1000));
    }

    #[test]
    fn network_file_systems_are_known_by_their_type() {
        for (file_system, networked) in [
            ("nfs4", true),
            ("fuse.glusterfs", true),
            ("fuse.ceph-fuse", true),
            ("ceph", true),
            ("ext4", false),
            ("fuse.sshfs-of-mine", false),
            ("fuse", false),
            ("", false),
        ] {
            assert_eq!(is_networked(file_system), networked, "{file_system}");
        }
    }
}
