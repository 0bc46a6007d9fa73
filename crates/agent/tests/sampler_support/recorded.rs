//! Processes as recorded from `/proc`: real ones of a GlusterFS volume, and ones with the command lines used by the
//! other daemons' start-up scripts, containers and manuals.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

/// One process of a recorded tree.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub pid: i32,
    pub parent: i32,
    pub comm: &'static str,
    /// Arguments separated by `|`.
    pub cmdline: &'static str,
    pub state: char,
    pub threads: u32,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub start_ticks: u64,
    /// Pages: the whole address space and its resident part.
    pub statm: (u64, u64),
    pub fds: u32,
    /// Expected name and instance; `None` if it is not a daemon.
    pub called: Option<(&'static str, &'static str)>,
}

const fn running(
    pid: i32,
    comm: &'static str,
    cmdline: &'static str,
    name: &'static str,
    instance: &'static str,
) -> Recorded {
    Recorded {
        pid,
        parent: 1,
        comm,
        cmdline,
        state: 'S',
        threads: 17,
        user_ticks: 120,
        system_ticks: 45,
        start_ticks: 313_000,
        statm: (152_078, 4_718),
        fds: 9,
        called: Some((name, instance)),
    }
}

const fn stranger(pid: i32, comm: &'static str, cmdline: &'static str) -> Recorded {
    Recorded {
        called: None,
        ..running(pid, comm, cmdline, "", "")
    }
}

pub const PROCESSES: &[Recorded] = &[
    stranger(1, "systemd", "/sbin/init"),
    stranger(2, "kthreadd", ""),
    stranger(700, "bash", "bash|-c|ceph-osd -i 3"),
    stranger(701, "ceph", "/usr/bin/python3|/usr/bin/ceph|-w"),
    // As started by the packages' units.
    Recorded {
        threads: 57,
        user_ticks: 65_210,
        system_ticks: 31_975,
        start_ticks: 4_711,
        statm: (262_144, 110_592),
        fds: 61,
        ..running(
            812,
            "ceph-osd",
            "/usr/bin/ceph-osd|-f|--cluster|ceph|--id|3|--setuser|ceph|--setgroup|ceph",
            "ceph-osd",
            "osd.3",
        )
    },
    running(
        813,
        "ceph-mon",
        "/usr/bin/ceph-mon|-f|--cluster|ceph|--id|a|--setuser|ceph|--setgroup|ceph",
        "ceph-mon",
        "mon.a",
    ),
    // A daemon started by hand.
    running(
        814,
        "ceph-osd",
        "ceph-osd|-c|/srv/lab/ceph.conf|-i|0",
        "ceph-osd",
        "osd.0",
    ),
    // cephadm's container.
    running(
        815,
        "ceph-mgr",
        "/usr/bin/ceph-mgr|-n|mgr.node1.abcdef|-f|--setuser|ceph|--setgroup|ceph|--default-log-to-file=false|\
         --default-log-to-stderr=true|--default-log-stderr-prefix=debug ",
        "ceph-mgr",
        "mgr.node1.abcdef",
    ),
    // Rook's pod.
    running(
        816,
        "ceph-mds",
        "ceph-mds|--fsid=bf359e2c-a1df-4a80-9137-8134b41a5459|--keyring=/etc/ceph/keyring-store/keyring|\
         --default-log-to-file=false|--id=myfs-a|--setuser=ceph|--setgroup=ceph|--foreground",
        "ceph-mds",
        "mds.myfs-a",
    ),
    running(
        817,
        "radosgw",
        "/usr/bin/radosgw|-f|--cluster|ceph|--name|client.rgw.gw1|--setuser|ceph",
        "radosgw",
        "client.rgw.gw1",
    ),
    running(
        818,
        "ceph-fuse",
        "ceph-fuse|-c|/srv/lab/ceph.conf|-n|client.admin|--pid-file|/srv/lab/run/client.fuse.pid|/srv/lab/mnt",
        "ceph-fuse",
        "/srv/lab/mnt",
    ),
    // A GlusterFS 10 volume of three bricks.
    running(
        31_994,
        "glusterd",
        "glusterd|-f|/srv/lab/n1/glusterd.vol|-l|/srv/lab/n1/log/glusterd.log|-p|/srv/lab/n1/run/glusterd.pid",
        "glusterd",
        "/srv/lab/n1/glusterd.vol",
    ),
    running(
        31_995,
        "glusterd",
        "/usr/sbin/glusterd|-p|/var/run/glusterd.pid|--log-level|INFO",
        "glusterd",
        "",
    ),
    Recorded {
        threads: 18,
        fds: 272,
        ..running(
            32_141,
            "glusterfsd",
            "/usr/sbin/glusterfsd|-s|10.99.0.1|--volfile-id|gv0.10.99.0.1.srv-lab-n1-brick|-p|\
             /srv/lab/n1/run/vols/gv0/10.99.0.1-srv-lab-n1-brick.pid|-S|/var/run/gluster/17d46fbefd176c38.socket|\
             --brick-name|/srv/lab/n1/brick|-l|/srv/lab/n1/log/bricks/srv-lab-n1-brick.log|--xlator-option|\
             *-posix.glusterd-uuid=ca3a868f-1fe7-4d80-a1e1-3d0b26317919|--process-name|brick|--brick-port|56270|\
             --xlator-option|gv0-server.listen-port=56270|--xlator-option|transport.socket.bind-address=10.99.0.1",
            "glusterfsd",
            "/srv/lab/n1/brick",
        )
    },
    // A leftover of its start-up that is not reaped yet.
    Recorded {
        state: 'Z',
        threads: 1,
        statm: (0, 0),
        fds: 0,
        ..stranger(32_157, "glusterfs", "")
    },
    running(
        32_158,
        "glusterfs",
        "/usr/sbin/glusterfs|-s|10.99.0.1|--volfile-id|shd/gv0|-p|/srv/lab/n1/run/shd/gv0/gv0-shd.pid|-l|\
         /srv/lab/n1/log/glustershd.log|-S|/var/run/gluster/d0780fffa9ac99c4.socket|--xlator-option|\
         *replicate*.node-uuid=ca3a868f-1fe7-4d80-a1e1-3d0b26317919|--process-name|glustershd|--client-pid=-6",
        "glusterfs",
        "shd",
    ),
    running(
        32_247,
        "glusterfs",
        "glusterfs|--volfile-server=10.99.0.1|--volfile-server=10.99.0.2|--volfile-server=10.99.0.3|--volfile-id=/gv0|\
         --log-file=/srv/lab/client.log|--pid-file=/srv/lab/client.pid|/srv/lab/mnt",
        "glusterfs",
        "/srv/lab/mnt",
    ),
    // Sheepdog 1.0, two on one host, and one with all defaults.
    running(
        900,
        "sheep",
        "sheep|-c|local:/srv/lab/cluster|-b|127.0.0.1|-y|127.0.0.1|-p|7001|-z|1|-P|/srv/lab/s1.pid|/srv/lab/s1",
        "sheep",
        "127.0.0.1:7001",
    ),
    // The daemon's logger.
    Recorded {
        parent: 900,
        ..stranger(
            1_900,
            "sheep",
            "sheep|-c|local:/srv/lab/cluster|-b|127.0.0.1|-y|127.0.0.1|-p|7001|-z|1|-P|/srv/lab/s1.pid|/srv/lab/s1",
        )
    },
    running(
        901,
        "sheep",
        "sheep|--cluster|corosync|--port=7002|/srv/lab/s2",
        "sheep",
        "7002",
    ),
    running(
        902,
        "sheep",
        "/usr/sbin/sheep|-P|/var/run/sheep.pid|/var/lib/sheepdog",
        "sheep",
        "7000",
    ),
    // MooseFS, and LizardFS, which uses the same names.
    running(
        950,
        "mfsmaster",
        "mfsmaster|-c|/srv/lab/mfsmaster.cfg|start",
        "mfsmaster",
        "/srv/lab/mfsmaster.cfg",
    ),
    running(
        951,
        "mfschunkserver",
        "mfschunkserver|-c|/srv/lab/n1/mfschunkserver.cfg|start",
        "mfschunkserver",
        "/srv/lab/n1/mfschunkserver.cfg",
    ),
    running(
        952,
        "mfschunkserver",
        "/usr/sbin/mfschunkserver|-d|start",
        "mfschunkserver",
        "",
    ),
    running(
        953,
        "mfsmount",
        "mfsmount (mounted on: /srv/lab/mnt)||||",
        "mfsmount",
        "/srv/lab/mnt",
    ),
    running(
        960,
        "ganesha.nfsd",
        "ganesha.nfsd|-f|/srv/lab/ganesha.conf|-L|/srv/lab/ganesha.log|-p|/srv/lab/ganesha.pid|-N|NIV_EVENT",
        "ganesha.nfsd",
        "/srv/lab/ganesha.conf",
    ),
    // Kernel threads.
    running(970, "nfsd", "", "nfsd", ""),
    running(971, "o2hb-0C4F2B8A9D3E4F6A", "", "o2hb", "0C4F2B8A9D3E4F6A"),
    running(972, "dlm-0C4F2B8A9D3E4F6A", "", "dlm", "0C4F2B8A9D3E4F6A"),
    running(
        973,
        "dlm_reco-0C4F2B8A9D3E4F6A",
        "",
        "dlm_reco",
        "0C4F2B8A9D3E4F6A",
    ),
    running(
        980,
        "benchmesh",
        "/usr/local/bin/benchmesh|agent|--collector|10.0.0.1:4750|--name|n1|--token|abc",
        "benchmesh",
        "agent.n1",
    ),
    running(
        981,
        "benchmesh",
        "benchmesh|collector|--db|/srv/mesh.db",
        "benchmesh",
        "collector",
    ),
];

impl Recorded {
    pub fn stat(&self) -> String {
        let Recorded {
            pid,
            parent,
            comm,
            state,
            threads,
            user_ticks,
            system_ticks,
            start_ticks,
            ..
        } = self;
        // Kernel threads have no memory, and a flag.
        let flags = if self.statm.0 == 0 {
            2_129_984
        } else {
            4_194_624
        };
        format!(
            "{pid} ({comm}) {state} {parent} {pid} {pid} 0 -1 {flags} 2494 0 5 0 {user_ticks} {system_ticks} 7 3 20 0 \
             {threads} 0 {start_ticks} 622911488 4682 18446744073709551615 94818325159936 94818325215193 \
             140721860155392 0 0 0 33581569 4096 1274 0 0 0 17 0 0 0 0 0 0 94818325247744 94818325387424 \
             94819358879744 140721860163561 140721860164132 140721860164132 140721860165603 0\n"
        )
    }

    /// Writes its directory into the tree.
    pub fn write(&self, root: &Path) {
        let directory = root.join(self.pid.to_string());
        std::fs::create_dir_all(directory.join("fd")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        write("stat", &self.stat());
        write(
            "statm",
            &format!("{} {} 2255 14 0 34831 0\n", self.statm.0, self.statm.1),
        );
        write("comm", &format!("{}\n", self.comm));
        let ended = if self.cmdline.is_empty() { "" } else { "\0" };
        write("cmdline", &(self.cmdline.replace('|', "\0") + ended));
        write("cgroup", "0::/system.slice/storage.service\n");
        write(
            "io",
            "rchar: 69668\nwchar: 29576\nsyscr: 161\nsyscw: 262\nread_bytes: 32768\nwrite_bytes: 1191936\n\
             cancelled_write_bytes: 8192\n",
        );
        write(
            "status",
            &format!(
                "Name:\t{}\nThreads:\t{}\nvoluntary_ctxt_switches:\t4711\nnonvoluntary_ctxt_switches:\t815\n",
                self.comm, self.threads
            ),
        );
        for fd in 0..self.fds {
            write(&format!("fd/{fd}"), "");
        }
    }
}

/// A separate host with all of them.
pub fn tree() -> tempfile::TempDir {
    tree_of(PROCESSES)
}

/// A host with some of them.
pub fn tree_of<'processes>(
    processes: impl IntoIterator<Item = &'processes Recorded>,
) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for process in processes {
        process.write(root.path());
    }
    write_host(root.path());
    root
}

pub fn write_host(root: &Path) {
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    write(
        "stat",
        "cpu  32735 0 8182 306203 2505 0 118 39 0 0\ncpu0 15892 0 2556 155667 785 0 28 15 0 0\nintr 1 0\n",
    );
    write(
        "meminfo",
        "MemTotal:  24684084 kB\nMemFree:  22165928 kB\nMemAvailable:  24193476 kB\nCached:  7224 kB\n",
    );
    write("loadavg", "0.35 0.21 0.10 1/123 4567\n");
    write(
        "diskstats",
        "   8       0 sda 100 5 2000 40 200 6 4000 80 3 90 120 7 0 9 0 11 5\n",
    );
    std::fs::create_dir_all(root.join("net")).unwrap();
    let eth0 = "  eth0: 179173650 7093 0 0 0 0 0 0 365880 3518 0 0 0 0 0 0\n";
    write(
        "net/dev",
        &format!("Inter-| Receive | Transmit\n face |bytes packets|bytes\n{eth0}"),
    );
}
