//! The table of daemons: the process's name, the daemon's name in the database, the naming of its instances, and the
//! query of its version.

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
    /// `None` if the version is not queried.
    pub version: Option<VersionQuery>,
}

/// How a program reports its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionQuery {
    pub arguments: &'static [&'static str],
    /// The text directly before the version in the output. Another program that runs under the daemon's name, such as
    /// an interpreter, does not print it.
    pub before: &'static str,
}

/// Maximum size of a version; the rest is cut off.
const MAX_VERSION_BYTES: usize = 64;

impl VersionQuery {
    /// The version in an output.
    #[must_use]
    pub fn parse(self, output: &str) -> Option<&str> {
        let (_, rest) = output.split_once(self.before)?;
        let is_of_version = |c: char| c.is_ascii_alphanumeric() || ".-+_~:".contains(c);
        let end = rest.find(|c| !is_of_version(c)).unwrap_or(rest.len());
        let version = rest.get(..end.min(MAX_VERSION_BYTES))?;
        version
            .contains(|c: char| c.is_ascii_digit())
            .then_some(version)
    }
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
        version: None,
    }
}

impl Daemon {
    const fn says(self, version: VersionQuery) -> Self {
        Self {
            version: Some(version),
            ..self
        }
    }
}

const fn asked(arguments: &'static [&'static str], before: &'static str) -> VersionQuery {
    VersionQuery { arguments, before }
}

const CEPH: VersionQuery = asked(&["--version"], "ceph version ");
const GLUSTER: VersionQuery = asked(&["--version"], "glusterfs ");
/// MooseFS, LizardFS and SaunaFS.
const MFS: VersionQuery = asked(&["-v"], "version: ");
const MFSMOUNT: VersionQuery = asked(&["-V"], "MFS version: ");

const CONFIG: Naming = Naming::Option {
    names: &["-c", "--config"],
};

/// LizardFS uses MooseFS's process names.
pub(super) const DAEMONS: &[Daemon] = &[
    known("ceph-osd", Naming::Ceph { kind: "osd" }).says(CEPH),
    known("crimson-osd", Naming::Ceph { kind: "osd" }).says(CEPH),
    known("ceph-mon", Naming::Ceph { kind: "mon" }).says(CEPH),
    known("ceph-mds", Naming::Ceph { kind: "mds" }).says(CEPH),
    known("ceph-mgr", Naming::Ceph { kind: "mgr" }).says(CEPH),
    known("radosgw", Naming::Ceph { kind: "client" }).says(CEPH),
    known("rbd-mirror", Naming::Ceph { kind: "client" }).says(CEPH),
    known("ceph-fuse", Naming::MountPoint).says(CEPH),
    known("rbd-fuse", Naming::MountPoint).says(CEPH),
    known("rbd-nbd", Naming::RbdNbd).says(CEPH),
    known("tcmu-runner", Naming::None),
    known("glusterfsd", Naming::GlusterBrick).says(GLUSTER),
    known(
        "glusterd",
        Naming::Option {
            names: &["-f", "--volfile"],
        },
    )
    .says(GLUSTER),
    known("glusterfs", Naming::GlusterFs).says(GLUSTER),
    Daemon {
        comm: "sheep",
        name: "sheep",
        naming: Naming::Sheep,
        children: Children::Helpers,
        version: Some(asked(&["--version"], "Sheepdog daemon version ")),
    },
    known("sheepfs", Naming::MountPoint),
    known("shepherd", Naming::None),
    known("qemu-nbd", Naming::None).says(asked(&["--version"], "qemu-nbd ")),
    known("corosync", Naming::None).says(asked(&["-v"], "Corosync Cluster Engine, version '")),
    known("dlm_controld", Naming::None),
    known("mfsmaster", CONFIG).says(MFS),
    known("mfsmetalogger", CONFIG).says(MFS),
    known("mfschunkserver", CONFIG).says(MFS),
    known("mfsmount", Naming::MfsMount).says(MFSMOUNT),
    // The process title that it sets, truncated by the kernel.
    alias("mfsmount (mount", "mfsmount", Naming::MfsMount).says(MFSMOUNT),
    known("lizardfs-uraft", CONFIG),
    known("sfsmaster", CONFIG).says(MFS),
    known("sfsmetalogger", CONFIG).says(MFS),
    known("sfschunkserver", CONFIG).says(MFS),
    known("sfsmount", Naming::MfsMount),
    known("ganesha.nfsd", Naming::Option { names: &["-f"] })
        .says(asked(&["-v"], "NFS-Ganesha Release = V")),
    known("nfsd", Naming::None),
    known("rpc.mountd", Naming::None).says(asked(&["-v"], "rpc.mountd version ")),
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
    known("smbd", Naming::None).says(asked(&["--version"], "Version ")),
    known("ctdbd", Naming::None),
    known("beegfs-meta", Naming::None),
    known("beegfs-storage", Naming::None),
    known("beegfs-mgmtd", Naming::None),
    known("beegfs-helperd", Naming::None),
    known("pvfs2-server", Naming::None),
    known("pvfs2-client", Naming::None),
    known("pvfs2-client-core", Naming::None),
    known("minio", Naming::None).says(asked(&["--version"], "minio version ")),
    known("weed", Naming::None),
    known("juicefs", Naming::MountPoint).says(asked(&["--version"], "juicefs version ")),
    known(OWN, Naming::Benchmesh),
];
