//! The instance name of a daemon, from its command line: `osd.3`, a brick's path, a mount point, a port.
//!
//! Pure. Each kind of daemon has one function, which follows its manual and its start-up scripts. If a command line
//! names no instance, the instance is empty.

use benchmesh_model::systems::Naming;

use super::arguments::{Arguments, LongOption};

/// Options whose value is a separate word, so that the value is not taken for a mount point. Ceph spells them with `-`
/// or `_`.
const CEPH_VALUED: [&str; 23] = [
    "-c",
    "--conf",
    "-n",
    "--name",
    "-i",
    "--id",
    "-m",
    "-k",
    "--keyring",
    "--keyfile",
    "-r",
    "--client-mountpoint",
    "--client-fs",
    "--pid-file",
    "-o",
    "--cluster",
    "--log-file",
    "--admin-socket",
    "--setuser",
    "--setgroup",
    "--client-mds-namespace",
    "--mon-host",
    "--run-dir",
];
const GLUSTER_VALUED: [&str; 20] = [
    "-s",
    "--volfile-server",
    "--volfile-id",
    "--volfile-server-port",
    "--volfile-server-transport",
    "-p",
    "--pid-file",
    "-S",
    "--socket-file",
    "-l",
    "--log-file",
    "-L",
    "--log-level",
    "-f",
    "--volfile",
    "--xlator-option",
    "--process-name",
    "--volume-name",
    "--client-pid",
    "--subdir-mount",
];
const MFS_VALUED: [&str; 8] = ["-H", "-P", "-B", "-S", "-c", "-o", "-b", "-C"];
const RBD_NBD_VALUED: [&str; 12] = [
    "--device",
    "--id",
    "-n",
    "--name",
    "-c",
    "--conf",
    "-m",
    "-k",
    "--keyring",
    "--cluster",
    "--pool",
    "--timeout",
];

/// From `sheep --help`: short and long name, and whether a value follows.
const SHEEP_OPTIONS: [LongOption; 22] = [
    ('b', "bindaddr", true),
    ('c', "cluster", true),
    ('D', "directio", false),
    ('f', "foreground", false),
    ('g', "gateway", false),
    ('h', "help", false),
    ('i', "ioaddr", true),
    ('j', "journal", true),
    ('l', "log", true),
    ('n', "nosync", false),
    ('p', "port", true),
    ('P', "pidfile", true),
    ('r', "http", true),
    ('R', "recovery", true),
    ('u', "upgrade", false),
    ('v', "version", false),
    ('V', "vnodes", true),
    ('w', "cache", true),
    ('W', "wildcard-recovery", false),
    ('x', "vdi-max", true),
    ('y', "myaddr", true),
    ('z', "zone", true),
];

/// Empty if the command line names no instance, or is ambiguous.
pub(crate) fn of(naming: Naming, comm: &str, arguments: &Arguments) -> String {
    let instance = match naming {
        Naming::Ceph { kind } => ceph(kind, arguments),
        Naming::MountPoint => mount_point(arguments, &CEPH_VALUED),
        Naming::GlusterBrick => arguments
            .option(&["--brick-name"])
            .or(arguments.option(&["--volfile-id"]))
            .map(str::to_owned),
        Naming::GlusterFs => glusterfs(arguments),
        Naming::Option { names } => arguments.option(names).map(str::to_owned),
        Naming::MfsMount => mfsmount(arguments),
        Naming::RbdNbd => arguments
            .operands(&RBD_NBD_VALUED)
            .get(1)
            .map(|image| (*image).to_owned()),
        Naming::Sheep => sheep(arguments),
        Naming::Benchmesh => Some(benchmesh(arguments)),
        Naming::AfterDash => comm.split_once('-').map(|(_, rest)| rest.to_owned()),
        Naming::None => None,
    };
    instance.unwrap_or_default()
}

/// `-i 3` and `--id=a` give the id, `-n osd.3` and `--name` give type and id together.
fn ceph(kind: &str, arguments: &Arguments) -> Option<String> {
    let id = arguments
        .option(&["-i", "--id", "--user"])
        .map(|id| format!("{kind}.{id}"));
    id.or_else(|| arguments.option(&["-n", "--name"]).map(str::to_owned))
}

/// The first operand that is an absolute path, or else the last operand.
fn mount_point(arguments: &Arguments, valued: &[&str]) -> Option<String> {
    let operands = arguments.operands(valued);
    let absolute = operands.iter().find(|word| word.starts_with('/'));
    absolute.or(operands.last()).map(|path| (*path).to_owned())
}

fn glusterfs(arguments: &Arguments) -> Option<String> {
    if let Some(path) = mount_point(arguments, &GLUSTER_VALUED) {
        return Some(path);
    }
    let volume_file = arguments.option(&["--volfile-id"]).unwrap_or_default();
    let process = arguments.option(&["--process-name"]).unwrap_or_default();
    // `shd/VOLUME` since GlusterFS 7 and `gluster/glustershd` before.
    let role = match volume_file.strip_prefix("gluster/").unwrap_or(volume_file) {
        _ if process == "glustershd" => "shd",
        "glustershd" => "shd",
        shd if shd.starts_with("shd/") => "shd",
        "" => process,
        other => other,
    };
    Some(role.to_owned())
}

/// It writes `mfsmount (mounted on: DIR)` over its command line once it has mounted.
fn mfsmount(arguments: &Arguments) -> Option<String> {
    let joined = arguments.joined();
    let title = joined
        .split_once("(mounted on: ")
        .and_then(|(_, rest)| rest.rsplit_once(')'));
    title
        .map(|(path, _)| path.to_owned())
        .or_else(|| mount_point(arguments, &MFS_VALUED))
}

/// `7001`, or `10.0.0.1:7001` if it is bound to one address.
fn sheep(arguments: &Arguments) -> Option<String> {
    const PORT: &str = "7000";
    let given = arguments.getopt(&SHEEP_OPTIONS)?;
    let last = |short: char| {
        let mut values = given.iter().rev();
        values
            .find(|(option, _)| *option == short)
            .map(|(_, value)| *value)
    };
    let port = last('p').unwrap_or(PORT);
    port.parse::<u16>().ok()?;
    Some(match last('b') {
        Some(address) => format!("{address}:{port}"),
        None => port.to_owned(),
    })
}

fn benchmesh(arguments: &Arguments) -> String {
    let command = arguments
        .operands(&[])
        .first()
        .map_or("", |command| *command)
        .to_owned();
    match arguments.option(&["--name"]) {
        Some(name) if command == "agent" => format!("agent.{name}"),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Naming::*;
    use benchmesh_testing::hostile::{damaged, withstands};
    use benchmesh_testing::table;
    use proptest::prelude::*;

    const OSD: Naming = Ceph { kind: "osd" };

    /// Every process chooses its own command line, so it may contain anything.
    #[test]
    fn damaged_command_lines_are_shown_within_bounds_and_without_secrets() {
        let lines = [
            "/usr/bin/ceph-osd -f --cluster ceph --id 3 --setuser ceph --setgroup ceph",
            "ceph-fuse -m 10.0.0.1,10.0.0.2:/ /mnt/ceph -o rw,_netdev",
            "/usr/sbin/glusterfsd -s n1 --volfile-id v.n1.bricks-b1 --brick-name /bricks/b1",
            "mfsmount /mnt/mfs -H master -S /sub",
            "benchmesh agent --collector 10.0.0.1:4750 --name n1",
        ];
        let lines = lines.map(|line| line.replace(' ', "\0").into_bytes());
        withstands(damaged(lines.to_vec(), 32 << 10), 4 << 20, |line| {
            let arguments = Arguments::from_kernel(&line);
            for naming in [
                OSD,
                MountPoint,
                GlusterBrick,
                GlusterFs,
                MfsMount,
                RbdNbd,
                Sheep,
                Benchmesh,
                AfterDash,
            ] {
                let instance = of(naming, "kworker-x", &arguments);
                prop_assert!(instance.len() <= line.len() * 3 + 64, "{instance}");
            }
            let shown = arguments.shown();
            prop_assert!(
                shown.len() <= 16 << 10 && !shown.chars().any(char::is_control),
                "{shown:?}"
            );
            Ok(())
        });
    }

    fn naming(name: &str) -> Naming {
        match name {
            "osd" => OSD,
            "mon" => Ceph { kind: "mon" },
            "mds" => Ceph { kind: "mds" },
            "client" => Ceph { kind: "client" },
            "mount point" => MountPoint,
            "rbd-nbd" => RbdNbd,
            "brick" => GlusterBrick,
            "glusterfs" => GlusterFs,
            "sheep" => Sheep,
            "-c" => Naming::Option { names: &["-c"] },
            "mfsmount" => MfsMount,
            "benchmesh" => Benchmesh,
            name => panic!("{name}"),
        }
    }

    #[test]
    fn command_lines_name_the_instance() {
        for [name, line, expected] in table(
            r#"
            // Servers of Ceph.
            osd         | /usr/bin/ceph-osd -f --cluster ceph --id 3 --setuser ceph --setgroup ceph   | osd.3
            osd         | ceph-osd -c /tmp/ceph.conf -i 0                                             | osd.0
            osd         | /usr/bin/ceph-osd -n osd.12 -f --setuser ceph --default-log-to-file=false   | osd.12
            osd         | ceph-osd --foreground --id=7 --fsid=bf35-9e2c --keyring=/k                  | osd.7
            mon         | ceph-mon --fsid=1 --id=a --setuser=ceph --foreground                        | mon.a
            mds         | ceph-mds --name=mds.fs.host.xyz                                             | mds.fs.host.xyz
            client      | /usr/bin/radosgw -f --cluster ceph --name client.rgw.gw1                    | client.rgw.gw1
            client      | radosgw --id=rgw.gw1                                                        | client.rgw.gw1
            osd         | ceph-osd                                                                    |
            // Mounts and block devices of Ceph.
            mount point | ceph-fuse -c /l/ceph.conf -n client.admin --pid-file /l/run/c.pid /mnt/mycephfs
                | /mnt/mycephfs
            mount point | ceph-fuse --id admin -r /sub /mnt/a -o rw,noatime                           | /mnt/a
            mount point
                | ceph-fuse --id admin --log-file /var/log/c.log --admin-socket /run/c.asok --run-dir /run/c /mnt/b
                | /mnt/b
            mount point | ceph-fuse -n client.a --log_file /l/c.log --setuser ceph --client_mountpoint /sub /mnt/c
                | /mnt/c
            rbd-nbd     | rbd-nbd --device /dev/nbd0 map rbd/img1                                     | rbd/img1
            rbd-nbd     | rbd-nbd map pool/ns/img --id admin                                          | pool/ns/img
            // GlusterFS.
            brick
                | /usr/sbin/glusterfsd -s n1 --volfile-id gv0.n1.data-b1 -p /r/n1.pid -S /r/1.socket --brick-name /data/b1 -l /log/b1.log --xlator-option *-posix.glusterd-uuid=f2 --process-name brick --brick-port 49152
                | /data/b1
            brick       | glusterfsd -s localhost --volfile-id gv0.n1.data-b1                         | gv0.n1.data-b1
            glusterfs
                | /usr/sbin/glusterfs -s localhost --volfile-id shd/gv0 -p /r/shd.pid -l /log/shd.log -S /r/2.socket --xlator-option *replicate*.node-uuid=f2 --process-name glustershd --client-pid=-6
                | shd
            glusterfs   | glusterfs -s localhost --volfile-id gluster/glustershd -p /p -l /l          | shd
            glusterfs   | glusterfs -s localhost --volfile-id gluster/quotad -p /p -l /l              | quotad
            glusterfs   | glusterfs --process-name fuse --volfile-server=n1 --volfile-id=gv0 /mnt/gv0 | /mnt/gv0
            glusterfs   | glusterfs --volfile-server=n1 --volfile-id=/gv0 -l /var/log/m.log /mnt/gv0  | /mnt/gv0
            glusterfs   | glusterfs -s n1 --volfile-id rebalance/gv0 -l /l                            | rebalance/gv0
            // Others.
            sheep       | sheep -c local:/f -y 127.0.0.1 -p 7001 -z 1 -P /run/s.pid /data/s1          | 7001
            sheep       | sheep -c corosync -P /run/s.pid /data                                       | 7000
            sheep       | sheep --port=7002 /data                                                     | 7002
            sheep       | sheep -np 7104 /data                                                        | 7104
            sheep       | sheep -fp7104 -l level=debug /data                                          | 7104
            sheep       | sheep --por 7105 /data                                                      | 7105
            sheep       | sheep -b 10.0.0.2 /data                                                     | 10.0.0.2:7000
            sheep       | sheep --bind=10.0.0.2 -p 7001 /data                                         | 10.0.0.2:7001
            sheep       | sheep /data -p 7001                                                         | 7001
            // An ambiguous abbreviation of `pidfile` or `port`; not a number; cut off.
            sheep       | sheep --p 7105 /data                                                        |
            sheep       | sheep -p nonsense /data                                                     |
            sheep       | sheep -c local -p                                                           |
            -c          | mfschunkserver -c /n1/mfschunkserver.cfg start
                | /n1/mfschunkserver.cfg
            -c          | /usr/sbin/mfschunkserver -d start                                           |
            mfsmount    | mfsmount (mounted on: /mnt/mfs)                                             | /mnt/mfs
            mfsmount    | mfsmount /mnt/mfs -H mfsmaster -o mfsnice=0                                 | /mnt/mfs
            mfsmount    | mfsmount -H 10.0.0.1 /mnt/mfs                                               | /mnt/mfs
            benchmesh   | target/release/benchmesh agent --collector 127.0.0.1:4750 --name n1         | agent.n1
            benchmesh   | benchmesh collector --db x.db                                               | collector
            benchmesh   | benchmesh                                                                   |
            "#,
        ) {
            let arguments = Arguments::from_kernel(line.replace(' ', "\0").as_bytes());
            assert_eq!(of(naming(&name), "", &arguments), expected, "{line}");
        }
        assert_eq!(of(AfterDash, "o2hb-0F3A", &Arguments::default()), "0F3A");
        assert_eq!(of(Naming::None, "nfsd", &Arguments::default()), "");
    }
}
