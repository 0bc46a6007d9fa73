//! Which daemons serve which storage system, by their names.
//!
//! A target's system is the plan's word for it (`cephfs`, `glusterfs`, ...); the family of a mounted file system is used
//! where that word is the user's own. Pure.

/// A system's words (found anywhere in its name) and the daemons that serve it or stand in its clients' way.
struct Family {
    words: &'static [&'static str],
    daemons: &'static [&'static str],
}

const FAMILIES: &[Family] = &[
    Family {
        words: &["cephfs", "ceph-fuse"],
        daemons: &[
            "ceph-osd",
            "crimson-osd",
            "ceph-mon",
            "ceph-mds",
            "ceph-mgr",
            "ceph-fuse",
        ],
    },
    Family {
        words: &["rbd"],
        daemons: &[
            "ceph-osd",
            "crimson-osd",
            "ceph-mon",
            "ceph-mgr",
            "rbd-nbd",
            "rbd-fuse",
            "rbd-mirror",
            "tcmu-runner",
        ],
    },
    Family {
        words: &["rgw", "radosgw"],
        daemons: &["ceph-osd", "crimson-osd", "ceph-mon", "ceph-mgr", "radosgw"],
    },
    Family {
        words: &["ceph", "rados"],
        daemons: &[
            "ceph-osd",
            "crimson-osd",
            "ceph-mon",
            "ceph-mds",
            "ceph-mgr",
            "ceph-fuse",
            "radosgw",
            "rbd-nbd",
            "rbd-fuse",
        ],
    },
    Family {
        words: &["gluster"],
        daemons: &["glusterfsd", "glusterd", "glusterfs"],
    },
    Family {
        words: &["moosefs", "lizardfs", "saunafs", "mfs"],
        daemons: &[
            "mfsmaster",
            "mfschunkserver",
            "mfsmount",
            "mfsmetalogger",
            "lizardfs-uraft",
            "sfsmaster",
            "sfschunkserver",
            "sfsmount",
        ],
    },
    Family {
        words: &["sheepdog", "sheep"],
        daemons: &["sheep", "sheepfs"],
    },
    Family {
        words: &["ganesha"],
        daemons: &["ganesha.nfsd"],
    },
    Family {
        words: &["nfs"],
        daemons: &["nfsd", "ganesha.nfsd", "rpc.mountd", "rpc.nfsd"],
    },
    Family {
        words: &["ocfs2", "gfs2", "dlm"],
        daemons: &["o2hbmonitor", "ocfs2_controld", "dlm_controld", "corosync"],
    },
    Family {
        words: &["cifs", "smb", "samba"],
        daemons: &["smbd", "ctdbd"],
    },
    Family {
        words: &["beegfs"],
        daemons: &[
            "beegfs-meta",
            "beegfs-storage",
            "beegfs-mgmtd",
            "beegfs-helperd",
        ],
    },
    Family {
        words: &["orangefs", "pvfs2"],
        daemons: &["pvfs2-server", "pvfs2-client", "pvfs2-client-core"],
    },
    Family {
        words: &["minio"],
        daemons: &["minio"],
    },
    Family {
        words: &["seaweed"],
        daemons: &["weed"],
    },
    Family {
        words: &["juicefs"],
        daemons: &["juicefs", "redis-server", "minio"],
    },
    Family {
        words: &["drbd", "linstor"],
        daemons: &["linstor-satellite", "linstor-controller"],
    },
    Family {
        words: &["iscsi"],
        daemons: &["tgtd", "tcmu-runner"],
    },
];

/// File systems of one kernel: no daemon serves them.
const LOCAL: &[&str] = &[
    "tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "local",
    "bcachefs",
];

/// Our own processes serve nothing.
const OWN: &str = "benchmesh";

fn family(system: &str) -> Option<&'static Family> {
    let system = system.to_ascii_lowercase();
    FAMILIES
        .iter()
        .find(|family| family.words.iter().any(|word| system.contains(word)))
}

/// Whether a daemon of this name serves a target. `system` is the plan's word, `mount` the type of the file system that is
/// mounted there (`nfs4`, `fuse.glusterfs`), where it is known. `None`: no rule knows.
pub fn serves(system: &str, mount: Option<&str>, daemon: &str) -> Option<bool> {
    if daemon == OWN {
        return Some(false);
    }
    let names = family(system).or_else(|| family(mount?));
    if let Some(family) = names {
        let known = FAMILIES
            .iter()
            .any(|family| family.daemons.contains(&daemon));
        return match family.daemons.contains(&daemon) {
            true => Some(true),
            // A process that only the user's own rule knows may well serve it.
            false => known.then_some(false),
        };
    }
    let local = |name: &str| LOCAL.contains(&name.to_ascii_lowercase().as_str());
    if local(system) || mount.is_some_and(local) {
        return Some(false);
    }
    None
}

/// Whether a package of this name holds a part of the system: its name has one of the system's words in it.
pub fn package_of(system: &str, mount: Option<&str>, package: &str) -> bool {
    let Some(own) = family(system).or_else(|| family(mount?)) else {
        return false;
    };
    let ceph = own.daemons.contains(&"ceph-osd");
    own.words.iter().any(|word| package.contains(word))
        || (ceph
            && ["ceph", "rados", "rbd"]
                .iter()
                .any(|word| package.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_of_a_system_are_known_by_name() {
        for (system, mount, daemon, expected) in [
            ("cephfs", None, "ceph-osd", Some(true)),
            ("cephfs", None, "ceph-fuse", Some(true)),
            ("cephfs", None, "radosgw", Some(false)),
            ("cephfs", None, "mfschunkserver", Some(false)),
            ("ceph-rbd", None, "rbd-fuse", Some(true)),
            ("ceph-rbd", None, "ceph-fuse", Some(false)),
            ("glusterfs", None, "glusterfsd", Some(true)),
            ("GlusterFS 11", None, "ceph-osd", Some(false)),
            ("moosefs", None, "mfsmaster", Some(true)),
            ("lizardfs", None, "mfschunkserver", Some(true)),
            ("sheepdog", None, "sheep", Some(true)),
            ("nfs4", None, "nfsd", Some(true)),
            ("tmpfs", None, "ceph-fuse", Some(false)),
            ("sr33", Some("fuse.glusterfs"), "glusterfsd", Some(true)),
            ("sr33", Some("fuse.glusterfs"), "ceph-osd", Some(false)),
            ("disk", Some("ext4"), "ceph-osd", Some(false)),
            ("our-own", None, "shardd", None),
            ("cephfs", None, "shardd", None),
            ("our-own", None, "benchmesh", Some(false)),
        ] {
            assert_eq!(serves(system, mount, daemon), expected, "{system} {daemon}");
        }
        assert!(package_of("cephfs", None, "ceph-mds"));
        assert!(package_of("ceph-rbd", None, "librados2"));
        assert!(package_of(
            "sr33",
            Some("fuse.glusterfs"),
            "glusterfs-server"
        ));
        assert!(!package_of("cephfs", None, "glusterfs-server"));
        assert!(!package_of("none such", None, "ceph-osd"));
    }
}
