//! The table of daemons: the process's name, the daemon's name in the database, and the naming of its instances.

/// Our own processes. They serve no storage.
pub const OWN: &str = "benchmesh";

/// A process that serves storage or its clients.
#[derive(Debug)]
pub struct Daemon {
    /// The process's name in the kernel (`ps -o comm`); `*` matches any characters.
    pub comm: &'static str,
    /// Its name in the database.
    pub name: &'static str,
    pub naming: Naming,
    pub children: Children,
}

/// How the instances of a daemon are named, from its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Ceph's servers: the type and the id, `osd.3`.
    Ceph {
        kind: &'static str,
    },
    /// Clients whose command line ends with a mount point.
    MountPoint,
    GlusterBrick,
    /// `glusterfs` is a mount, the self-heal daemon and more, depending on its process name or volume file.
    GlusterFs,
    /// The value of an option; without the option there is no name.
    Option {
        names: &'static [&'static str],
    },
    MfsMount,
    /// The image of `rbd-nbd map IMAGE`.
    RbdNbd,
    /// The port, after the address if there is one.
    Sheep,
    Benchmesh,
    /// The text after the first dash of the process's name: kernel threads of one file system.
    AfterDash,
    None,
}

impl Naming {
    /// For users: an instance's name, or its origin.
    #[must_use]
    pub fn example(self) -> Option<String> {
        Some(match self {
            Self::Ceph { kind } => format!("{kind}.3"),
            Self::MountPoint | Self::MfsMount => "its mount point".to_owned(),
            Self::GlusterBrick => "its brick".to_owned(),
            Self::GlusterFs => "its mount point or role".to_owned(),
            Self::Option { names } => format!("the value of {}", names.join(" or ")),
            Self::RbdNbd => "its image".to_owned(),
            Self::Sheep => "its port".to_owned(),
            Self::Benchmesh => "its role and name".to_owned(),
            Self::AfterDash => "its volume".to_owned(),
            Self::None => return None,
        })
    }
}

/// The role of processes that a daemon forks without executing another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// They do the daemon's work, and count as daemons.
    Daemons,
    /// They write the daemon's log, and do not count as daemons.
    Helpers,
}

/// All known daemons.
#[must_use]
pub fn daemons() -> &'static [Daemon] {
    DAEMONS
}

const fn known(name: &'static str, naming: Naming) -> Daemon {
    alias(name, name, naming)
}

const fn alias(comm: &'static str, name: &'static str, naming: Naming) -> Daemon {
    Daemon {
        comm,
        name,
        naming,
        children: Children::Daemons,
    }
}

const CONFIG: Naming = Naming::Option {
    names: &["-c", "--config"],
};

/// LizardFS uses MooseFS's process names.
pub(super) const DAEMONS: &[Daemon] = &[
    known("ceph-osd", Naming::Ceph { kind: "osd" }),
    known("crimson-osd", Naming::Ceph { kind: "osd" }),
    known("ceph-mon", Naming::Ceph { kind: "mon" }),
    known("ceph-mds", Naming::Ceph { kind: "mds" }),
    known("ceph-mgr", Naming::Ceph { kind: "mgr" }),
    known("radosgw", Naming::Ceph { kind: "client" }),
    known("rbd-mirror", Naming::Ceph { kind: "client" }),
    known("ceph-fuse", Naming::MountPoint),
    known("rbd-fuse", Naming::MountPoint),
    known("rbd-nbd", Naming::RbdNbd),
    known("tcmu-runner", Naming::None),
    known("glusterfsd", Naming::GlusterBrick),
    known(
        "glusterd",
        Naming::Option {
            names: &["-f", "--volfile"],
        },
    ),
    known("glusterfs", Naming::GlusterFs),
    Daemon {
        comm: "sheep",
        name: "sheep",
        naming: Naming::Sheep,
        children: Children::Helpers,
    },
    known("sheepfs", Naming::MountPoint),
    known("shepherd", Naming::None),
    known("qemu-nbd", Naming::None),
    known("corosync", Naming::None),
    known("dlm_controld", Naming::None),
    known("mfsmaster", CONFIG),
    known("mfsmetalogger", CONFIG),
    known("mfschunkserver", CONFIG),
    known("mfsmount", Naming::MfsMount),
    // The process title that it sets, truncated by the kernel.
    alias("mfsmount (mount", "mfsmount", Naming::MfsMount),
    known("lizardfs-uraft", CONFIG),
    known("sfsmaster", CONFIG),
    known("sfsmetalogger", CONFIG),
    known("sfschunkserver", CONFIG),
    known("sfsmount", Naming::MfsMount),
    known("ganesha.nfsd", Naming::Option { names: &["-f"] }),
    known("nfsd", Naming::None),
    known("rpc.mountd", Naming::None),
    known("tgtd", Naming::None),
    // Kernel threads: the iSCSI target's, DRBD's, and those of OCFS2 and its heartbeat, one per volume.
    known("iscsi_trx", Naming::None),
    known("iscsi_ttx", Naming::None),
    alias("drbd_w_*", "drbd_w", Naming::None),
    alias("drbd_r_*", "drbd_r", Naming::None),
    alias("drbd_s_*", "drbd_s", Naming::None),
    alias("drbd_a_*", "drbd_a", Naming::None),
    known("o2net", Naming::None),
    known("o2hbmonitor", Naming::None),
    known("ocfs2_controld", Naming::None),
    alias("o2hb-*", "o2hb", Naming::AfterDash),
    alias("ocfs2dc-*", "ocfs2dc", Naming::AfterDash),
    alias("ocfs2cmt-*", "ocfs2cmt", Naming::AfterDash),
    // OCFS2's own lock manager, unlike that of dlm_controld.
    alias("dlm-*", "dlm", Naming::AfterDash),
    alias("dlm_reco-*", "dlm_reco", Naming::AfterDash),
    known("smbd", Naming::None),
    known("ctdbd", Naming::None),
    known("beegfs-meta", Naming::None),
    known("beegfs-storage", Naming::None),
    known("beegfs-mgmtd", Naming::None),
    known("beegfs-helperd", Naming::None),
    known("pvfs2-server", Naming::None),
    known("pvfs2-client", Naming::None),
    known("pvfs2-client-core", Naming::None),
    known("minio", Naming::None),
    known("weed", Naming::None),
    known("juicefs", Naming::MountPoint),
    known(OWN, Naming::Benchmesh),
];
