#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::BTreeSet;

fn place<'a>(system: &'a str, mount: Option<&'a str>, beneath: &'a [String]) -> Place<'a> {
    Place {
        system,
        mount,
        beneath,
    }
}

#[test]
fn every_daemon_of_a_system_is_sampled_and_every_sampled_daemon_serves_one() {
    let sampled: BTreeSet<&str> = daemons().iter().map(|daemon| daemon.name).collect();
    let serving: BTreeSet<&str> = SYSTEMS
        .iter()
        .flat_map(|system| system.daemons)
        .copied()
        .chain([OWN])
        .collect();
    assert_eq!(sampled, serving);
}

#[test]
fn each_word_finds_its_own_system() {
    for system in SYSTEMS {
        for word in system.words.iter().chain(system.mounts) {
            if word.ends_with("ceph") || GATEWAYS.contains(word) {
                continue;
            }
            let found = named(word).map(|found| found.words);
            assert_eq!(found, Some(system.words), "{word}");
        }
    }
}

#[test]
fn daemons_are_charged_by_system_mount_and_what_lies_beneath() {
    let rbd = ["loop", "fuse.rbd-fuse"].map(str::to_owned);
    let sheep = ["loop", "fuse.sheepfs"].map(str::to_owned);
    let iscsi = ["iscsi".to_owned()];
    let disk = ["disk".to_owned()];
    for (system, mount, beneath, daemon, expected) in [
        ("cephfs", None, &[][..], "ceph-osd", Some(true)),
        ("cephfs", None, &[], "ceph-fuse", Some(true)),
        ("cephfs", None, &[], "radosgw", Some(false)),
        ("cephfs", None, &[], "mfschunkserver", Some(false)),
        ("cephfs", None, &[], "o2hb", Some(false)),
        ("ceph-rbd", None, &[], "rbd-fuse", Some(true)),
        ("ceph-rbd", None, &[], "ceph-fuse", Some(false)),
        ("glusterfs", None, &[], "glusterfsd", Some(true)),
        ("GlusterFS 11", None, &[], "ceph-osd", Some(false)),
        ("moosefs", None, &[], "mfsmaster", Some(true)),
        ("lizardfs", None, &[], "mfschunkserver", Some(true)),
        ("saunafs", None, &[], "sfschunkserver", Some(true)),
        ("sheepdog", None, &[], "sheep", Some(true)),
        ("ocfs2", None, &[], "o2hb", Some(true)),
        ("nfs4", None, &[], "nfsd", Some(true)),
        ("tmpfs", None, &[], "ceph-fuse", Some(false)),
        (
            "sr33",
            Some("fuse.glusterfs"),
            &[],
            "glusterfsd",
            Some(true),
        ),
        ("sr33", Some("fuse.glusterfs"), &[], "ceph-osd", Some(false)),
        ("disk", Some("ext4"), &disk, "ceph-osd", Some(false)),
        ("image", Some("ext4"), &rbd, "ceph-osd", Some(true)),
        ("image", Some("ext4"), &rbd, "sheep", Some(false)),
        ("ext4", Some("ext4"), &sheep, "sheep", Some(true)),
        ("lun", Some("xfs"), &iscsi, "tgtd", Some(true)),
        ("our-own", None, &[], "shardd", None),
        ("cephfs", None, &[], "shardd", None),
        ("our-own", None, &[], "benchmesh", Some(false)),
    ] {
        let charged = place(system, mount, beneath).is_served_by(daemon);
        assert_eq!(charged, expected, "{system} {mount:?} {beneath:?} {daemon}");
    }
}

#[test]
fn packages_of_a_system() {
    for (system, mount, package, expected) in [
        ("cephfs", None, "ceph-mds", true),
        ("ceph-rbd", None, "librados2", true),
        ("sr33", Some("fuse.glusterfs"), "glusterfs-server", true),
        ("cephfs", None, "glusterfs-server", false),
        ("none such", None, "ceph-osd", false),
    ] {
        assert_eq!(
            place(system, mount, &[]).has_package(package),
            expected,
            "{system} {package}"
        );
    }
    assert!(is_storage_package("radosgw") && !is_storage_package("vim"));
}

#[test]
fn another_mount_than_the_plan_says_is_found() {
    for (system, mount, expected) in [
        ("cephfs", Some("tmpfs"), Some("tmpfs")),
        ("cephfs", Some("ceph"), None),
        ("cephfs", Some("fuse.ceph-fuse"), None),
        ("cephfs", Some("fuse.glusterfs"), Some("fuse.glusterfs")),
        // A Ganesha gateway, an unknown FUSE client, and an unknown mount.
        ("cephfs", Some("nfs4"), None),
        ("cephfs", Some("fuse.ours"), None),
        ("cephfs", None, None),
        ("glusterfs", Some("ext4"), Some("ext4")),
        ("moosefs", Some("fuse.moosefs"), None),
        ("ocfs2", Some("ocfs2"), None),
        // Block devices and user-defined system names.
        ("ceph-rbd", Some("ext4"), None),
        ("sheepdog", Some("xfs"), None),
        ("sr33", Some("tmpfs"), None),
        ("tmpfs", Some("ext4"), None),
    ] {
        assert_eq!(
            place(system, mount, &[]).mounted_instead(),
            expected,
            "{system} {mount:?}"
        );
    }
}
