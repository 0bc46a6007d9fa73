//! Skips a test that cannot run on this machine, or fails it if it must run.
//!
//! A test names its needs (`needs!("root", "fuse")`). Each need is tried once per process, by the user that runs the
//! tests, because an installed feature may not work. If one is not met the test is skipped, see `benchmesh_testing`.

use super::fuse_fs::FuseFs;
pub use benchmesh_testing::say;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Whether the test can run; if not, the skip has been reported. Panics if the missing need is required.
pub fn open(needs: &[&'static str]) -> bool {
    for need in needs {
        if let Err(missing) = tried(need) {
            benchmesh_testing::skip(need, &missing);
            return false;
        }
    }
    true
}

/// Returns from the test unless the machine has everything that it names.
#[macro_export]
macro_rules! needs {
    ($($need:literal),+ $(,)?) => {
        if !$crate::support::gate::open(&[$($need),+]) {
            return;
        }
    };
}

/// The cached result of trying it in this process.
fn tried(need: &'static str) -> Result<(), String> {
    static TRIED: Mutex<BTreeMap<&str, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let mut outcomes = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    outcomes
        .entry(need)
        .or_insert_with(|| attempt(need))
        .clone()
}

fn attempt(need: &str) -> Result<(), String> {
    match need {
        "root" | "tmpfs" => is_root().and_then(|()| script(TMPFS, need)),
        "fuse" => FuseFs::try_mount()
            .map(drop)
            .map_err(|error| format!("mount FUSE: {error}")),
        "loop" => script(LOOP, need),
        "ext4" | "xfs" | "btrfs" => script(DISK, need),
        "netns" => script(NETNS, need),
        "timens" => script("unshare --time --monotonic 1 true", need),
        "cgroup" => is_root().and_then(|()| super::cgroup::has_blkio_throttle()),
        "ceph" => script(
            "ceph-mon --version; ceph-mgr --version; ceph-osd --version; rados --version",
            need,
        ),
        "gluster" => script(
            "glusterd --version; gluster --version; glusterfs --version",
            need,
        ),
        "moosefs" => script(
            "command -v mfsmaster; command -v mfschunkserver; command -v mfsmount",
            need,
        ),
        "ganesha" => script("command -v ganesha.nfsd; command -v nfs-cat", need),
        "iperf3" | "sqlite3" | "python3" => script("$0 --version", need),
        other => panic!("the gate does not know {other:?}"),
    }
}

const TMPFS: &str = r#"d=$(mktemp -d); trap 'umount "$d" 2> /dev/null || :; rmdir "$d"' EXIT
mount -t tmpfs tmpfs "$d""#;

const LOOP: &str = r#"d=$(mktemp -d); l=
trap 'test -z "$l" || losetup -d "$l"; rm -r "$d"' EXIT
truncate -s 16M "$d/image"; l=$(losetup -f --show "$d/image")"#;

/// The size is the minimum for mkfs.xfs.
const DISK: &str = r#"d=$(mktemp -d); l=; mkdir "$d/fs"
trap 'umount "$d/fs" 2> /dev/null || :; test -z "$l" || losetup -d "$l"; rm -r "$d"' EXIT
truncate -s 512M "$d/image"; l=$(losetup -f --show "$d/image"); mkfs."$0" -q "$l"; mount -t "$0" "$l" "$d/fs""#;

const NETNS: &str = r#"n=bmtry$$; trap 'ip netns del "$n" 2> /dev/null || :' EXIT
ip netns add "$n"; ip -n "$n" link add eth0 type veth peer name eth1; ip -n "$n" link add br0 type bridge
ip netns exec "$n" tc qdisc add dev eth0 root tbf rate 1mbit burst 16k latency 10ms"#;

pub fn is_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("not root".to_owned())
    }
}

/// Runs a shell script that stops at the first failing command; `$0` is the need's name.
fn script(text: &str, need: &str) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("sh")
        .args(["-ec", text, need])
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("sh: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}
