//! The devices behind a target, by its mount, and the part of a load that a cache must have served: bytes that were
//! read and never came, bytes that were written and never left, names that were asked for and never answered.
//!
//! If a host read more bytes than it received, or than its disks delivered, the difference came from a cache, whatever
//! the rate; and likewise for writes. If no counter covers the target's traffic, the result is a reason instead of a
//! judgement. Pure.

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
const KERNEL_BYPASSING: &[&str] = &["lustre", "beegfs", "gpfs", "weka", "wekafs"];
/// File systems on a block device that store data unchanged.
const ON_DISK: &[&str] = &["ext2", "ext3", "ext4", "xfs", "fuseblk", "ocfs2", "gfs2"];
/// The part of [`ON_DISK`] whose reads count as the reading process's own (`read_bytes` of `/proc/PID/io`).
const READ_BY_CALLER: &[&str] = &["ext2", "ext3", "ext4", "xfs"];
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs"];
/// Maximum cached share without a flag, as a divisor: inodes and the ends of files come from a cache, and the last
/// blocks are written after the load's end.
const CACHED_SHARE: i64 = 10;
/// If the host read this many times as much as the load, the reads of others may hide a cache.
const OTHERS_TIMES: i64 = 2;
/// Smaller or shorter writes are not judged: the caches of a disk or a client may hold them for good reason.
const MIN_WRITTEN_BYTES: i64 = 16 << 20;
const MIN_WRITING_US: i64 = 1_000_000;
/// The least that is received for the answer to a request over the network, with the headers of its packet.
const MIN_ANSWER_BYTES: i64 = 64;
/// Fewer requests are not judged.
const MIN_ASKED: i64 = 100;

/// The devices that must have carried the bytes of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Network,
    /// The host's disks.
    Disk,
    /// The host's disks; what a process reads from them counts as its own.
    ReadByCaller,
    /// A block device of this name, which may have a cache of its own, for this reason: what it did not carry came from
    /// a cache, and what it carried may have.
    Device(String, &'static str),
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
        return match KERNEL_BYPASSING.contains(&name) || has("rdma") {
            true => Origin::Unknown("RDMA may carry the data, which no interface counts"),
            false => Origin::Network,
        };
    }
    if IN_MEMORY.contains(&name) {
        return Origin::Unknown("the target is in memory");
    }
    if ON_DISK.contains(&name) || (name == "btrfs" && !has("compress")) {
        if let Some((device, why)) = with_cache(source) {
            return Origin::Device(device.to_owned(), why);
        }
        return match READ_BY_CALLER.contains(&name) {
            true => Origin::ReadByCaller,
            false => Origin::Disk,
        };
    }
    match file_system.starts_with("fuse") {
        true => Origin::Unknown("what is behind the target's FUSE file system is not known"),
        false => Origin::Unknown("what a file system of this type reads is not known"),
    }
}

/// The name of a block device that is served by a program or another file, without its partition, and why its bytes
/// prove little.
fn with_cache(source: &str) -> Option<(&str, &'static str)> {
    let device = source.strip_prefix("/dev/")?;
    let why = match ["nbd", "rbd", "drbd"]
        .iter()
        .any(|of| device.starts_with(of))
    {
        true => "the target is on a network block device, whose client has a cache of its own",
        false if device.starts_with("loop") => {
            "the target is on a loop device: what its file comes from is not known"
        }
        false => return None,
    };
    // A partition follows a number: `rbd0p2`, but `loop0`.
    let is_number = |text: &str| text.ends_with(|at: char| at.is_ascii_digit());
    let whole = match device.rsplit_once('p') {
        Some((disk, part)) if is_number(disk) && is_number(part) => disk,
        _ => device,
    };
    Some((whole, why))
}

/// What the load on a host did in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub read_bytes: i64,
    pub written_bytes: i64,
    /// Requests about names: `stat`, `list`.
    pub asked: i64,
    pub span_us: i64,
}

/// Upper bounds of the bytes that devices carried in the same time. `None` if no samples cover it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// From and to the network, including loopback.
    pub received_bytes: Option<i64>,
    pub sent_bytes: Option<i64>,
    pub disk_read_bytes: Option<i64>,
    pub disk_written_bytes: Option<i64>,
    /// By the device of [`Origin::Device`].
    pub device_read_bytes: Option<i64>,
    pub device_written_bytes: Option<i64>,
    /// From disks for benchmesh's own processes.
    pub own_read_bytes: Option<i64>,
}

const NO_INTERFACES: &str = "no samples of the client's interfaces cover the step";
const NO_DISKS: &str = "no samples of the client's disks cover the step";

/// Lower bound of the read bytes that came from a cache; `Ok(None)` if nothing was read.
///
/// # Errors
/// The reason why it cannot be judged.
pub fn cached(
    origin: &Origin,
    moved: Moved,
    carried: Carried,
) -> Result<Option<i64>, &'static str> {
    let read = moved.read_bytes;
    if read == 0 {
        return Ok(None);
    }
    let missing = |came: i64| read.saturating_sub(came).max(0);
    let (came, own) = match origin {
        Origin::Unknown(why) => return Err(why),
        Origin::Device(_, why) => {
            let cached = missing(carried.device_read_bytes.ok_or(*why)?);
            return match is_suspect(cached, read) {
                true => Ok(Some(cached)),
                false => Err(why),
            };
        }
        Origin::Network => (carried.received_bytes.ok_or(NO_INTERFACES)?, None),
        Origin::Disk => (carried.disk_read_bytes.ok_or(NO_DISKS)?, None),
        Origin::ReadByCaller => (
            carried.disk_read_bytes.ok_or(NO_DISKS)?,
            carried.own_read_bytes,
        ),
    };
    if own.is_none() && came > read.saturating_mul(OTHERS_TIMES) {
        return Err(
            "the client's host read far more than the load: the reads of others may hide a cache",
        );
    }
    Ok(Some(missing(own.map_or(came, |own| own.min(came)))))
}

/// Whether the cached part of a read is so large that its rate is not the storage's.
pub fn is_suspect(cached_bytes: i64, read_bytes: i64) -> bool {
    cached_bytes > read_bytes / CACHED_SHARE
}

/// Lower bound of the written bytes that only reached a cache of the client in the step. `None` if it is not judged:
/// the load is small or short, or no counter covers the target.
pub fn unwritten(origin: &Origin, moved: Moved, carried: Carried) -> Option<i64> {
    if moved.written_bytes < MIN_WRITTEN_BYTES || moved.span_us < MIN_WRITING_US {
        return None;
    }
    let left = match origin {
        Origin::Unknown(_) => None,
        Origin::Network => carried.sent_bytes,
        Origin::Disk | Origin::ReadByCaller => carried.disk_written_bytes,
        Origin::Device(..) => carried.device_written_bytes,
    };
    Some(moved.written_bytes.saturating_sub(left?).max(0))
}

/// Lower bound of the requests about names that a cache of the client answered, behind a network. `None` if it is not
/// judged.
pub fn answered_by_cache(origin: &Origin, moved: Moved, carried: Carried) -> Option<i64> {
    let is_judged = *origin == Origin::Network && moved.asked >= MIN_ASKED;
    let received = carried.received_bytes.filter(|_| is_judged)?;
    Some((moved.asked - received / MIN_ANSWER_BYTES).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_says_what_carries_a_read() {
        let check = |file_system, source, options, expected: Option<Origin>| {
            let found = origin(file_system, source, options);
            let judged = Some(found).filter(|found| !matches!(found, Origin::Unknown(_)));
            assert_eq!(judged, expected, "{file_system} {source}");
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
        check("ext4", "/dev/sda1", "rw", Some(Origin::ReadByCaller));
        check("fuseblk", "/dev/sda1", "rw", Some(Origin::Disk));
        check(
            "xfs",
            "/dev/mapper/vg-root",
            "rw",
            Some(Origin::ReadByCaller),
        );
        check("btrfs", "/dev/sda1", "rw,compress=zstd:3", None);
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
    fn a_device_that_may_have_a_cache_is_known_by_its_name() {
        for (source, expected) in [
            ("/dev/loop0", Some("loop0")),
            ("/dev/loop12p1", Some("loop12")),
            ("/dev/nbd3", Some("nbd3")),
            ("/dev/rbd0p2", Some("rbd0")),
            ("/dev/sda1", None),
            ("/dev/mapper/loop", None),
        ] {
            let found = match origin("ext4", source, "rw") {
                Origin::Device(name, _) => Some(name),
                _ => None,
            };
            assert_eq!(found.as_deref(), expected, "{source}");
        }
    }

    const READ: Moved = Moved {
        read_bytes: 1000,
        written_bytes: 0,
        asked: 0,
        span_us: 0,
    };

    #[test]
    fn what_never_came_was_cached() {
        let carried = |received_bytes, disk_read_bytes| Carried {
            received_bytes,
            disk_read_bytes,
            ..Carried::default()
        };
        let of = |origin: Origin, carried: Carried| cached(&origin, READ, carried);
        assert_eq!(of(Origin::Network, carried(Some(0), None)), Ok(Some(1000)));
        assert_eq!(of(Origin::Network, carried(Some(1100), None)), Ok(Some(0)));
        assert_eq!(of(Origin::Disk, carried(Some(9), Some(400))), Ok(Some(600)));
        assert!(of(Origin::Network, carried(None, Some(9))).is_err());
        assert!(of(Origin::Unknown("x"), carried(Some(0), Some(0))).is_err());
        let nothing = Moved::default();
        assert_eq!(
            cached(&Origin::Unknown("x"), nothing, Carried::default()),
            Ok(None)
        );
        assert!(is_suspect(101, 1000) && !is_suspect(100, 1000));
    }

    #[test]
    fn the_reads_of_others_hide_no_cache() {
        let carried = |all, own| Carried {
            received_bytes: Some(all),
            disk_read_bytes: Some(all),
            own_read_bytes: own,
            ..Carried::default()
        };
        // The load's own reads are known, whatever others read.
        let own = |all, own| cached(&Origin::ReadByCaller, READ, carried(all, Some(own)));
        assert_eq!(own(5000, 0), Ok(Some(1000)));
        assert_eq!(own(5000, 1000), Ok(Some(0)));
        // Without them, nothing is judged.
        for origin in [Origin::Network, Origin::Disk, Origin::ReadByCaller] {
            assert!(cached(&origin, READ, carried(5000, None)).is_err());
            assert_eq!(cached(&origin, READ, carried(1900, None)), Ok(Some(0)));
        }
    }

    #[test]
    fn a_loop_device_proves_a_cache_but_never_its_absence() {
        let of = |device_read_bytes| {
            let carried = Carried {
                device_read_bytes,
                ..Carried::default()
            };
            cached(&Origin::Device("loop0".to_owned(), "x"), READ, carried)
        };
        assert_eq!(of(Some(14)), Ok(Some(986)));
        assert_eq!(of(Some(1000)), Err("x"));
        assert_eq!(of(None), Err("x"));
    }

    #[test]
    fn writes_that_never_left_are_in_a_cache() {
        const MIB: i64 = 1 << 20;
        let check = |origin: Origin, written: i64, span_us, left: i64, expected: Option<i64>| {
            let moved = Moved {
                written_bytes: written * MIB,
                span_us,
                ..Moved::default()
            };
            let carried = Carried {
                sent_bytes: Some(left * MIB),
                disk_written_bytes: Some(left * MIB),
                device_written_bytes: Some(left * MIB),
                ..Carried::default()
            };
            let found = unwritten(&origin, moved, carried).map(|bytes| bytes / MIB);
            assert_eq!(found, expected, "{origin:?} {written} {left}");
        };
        const LONG: i64 = 5_000_000;
        for origin in [Origin::Network, Origin::Disk, Origin::ReadByCaller] {
            check(origin.clone(), 5000, LONG, 20, Some(4980));
            check(origin, 5000, LONG, 5100, Some(0));
        }
        check(
            Origin::Device("loop0".to_owned(), "x"),
            5000,
            LONG,
            0,
            Some(5000),
        );
        check(
            Origin::Unknown("the target is in memory"),
            5000,
            LONG,
            0,
            None,
        );
        check(Origin::Disk, 5000, 900_000, 0, None);
        check(Origin::Disk, 10, LONG, 0, None);
    }

    #[test]
    fn names_that_nobody_answered_are_in_a_cache() {
        let of = |origin: Origin, asked, received| {
            let moved = Moved {
                asked,
                ..Moved::default()
            };
            let carried = Carried {
                received_bytes: Some(received),
                ..Carried::default()
            };
            answered_by_cache(&origin, moved, carried)
        };
        // 4 bytes for each.
        assert_eq!(of(Origin::Network, 1_000_000, 4_000_000), Some(937_500));
        assert_eq!(of(Origin::Network, 1_000_000, 200_000_000), Some(0));
        assert_eq!(of(Origin::Network, 20, 0), None);
        assert_eq!(of(Origin::ReadByCaller, 1_000_000, 0), None);
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
