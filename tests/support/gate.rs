//! Says when a test cannot run here, and makes that a failure where it must run.
//!
//! A test names what it needs from the machine (`needs!("root", "fuse")`). Where that is missing it is skipped, see
//! `benchmesh_testing`.

use super::command::{on_path, succeeds};
pub use benchmesh_testing::say;
use std::fs::OpenOptions;
use std::path::Path;

/// Whether the test can run; if not, the skip has been reported. Panics where the missing part is required.
pub fn open(needs: &[&str]) -> bool {
    for need in needs {
        if let Err(missing) = check(need) {
            benchmesh_testing::skip(need, &missing);
            return false;
        }
    }
    true
}

/// Returns from the test unless the machine has everything it names.
#[macro_export]
macro_rules! needs {
    ($($need:literal),+ $(,)?) => {
        if !$crate::support::gate::open(&[$($need),+]) {
            return;
        }
    };
}

fn check(need: &str) -> Result<(), String> {
    match need {
        "root" => is_root(),
        "fuse" => OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map(drop)
            .map_err(|error| format!("/dev/fuse: {error}")),
        "loop" => is_root()
            .and_then(|()| exists("/dev/loop-control"))
            .and_then(|()| program("losetup")),
        "tmpfs" => is_root(),
        "ext4" | "xfs" | "btrfs" => {
            program(&format!("mkfs.{need}")).and_then(|()| file_system(need))
        }
        "netns" => is_root()
            .and_then(|()| program("ip"))
            .and_then(|()| program("tc")),
        "timens" => is_root()
            .and_then(|()| program("unshare"))
            .and_then(|()| time_namespace()),
        "cgroup" => is_root().and_then(|()| super::cgroup::has_blkio_throttle()),
        "nft" => is_root().and_then(|()| program("nft")),
        "gluster" => is_root()
            .and_then(|()| program("glusterd"))
            .and_then(|()| program("gluster"))
            .and_then(|()| program("glusterfs")),
        "fio" | "iperf3" | "pidstat" | "strace" | "sqlite3" => program(need),
        other => panic!("the gate does not know {other:?}"),
    }
}

pub fn is_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("not root".to_owned())
    }
}

fn exists(path: &str) -> Result<(), String> {
    if Path::new(path).exists() {
        Ok(())
    } else {
        Err(format!("no {path}"))
    }
}

fn program(name: &str) -> Result<(), String> {
    if on_path(name) {
        Ok(())
    } else {
        Err(format!("no {name} on the PATH"))
    }
}

fn file_system(name: &str) -> Result<(), String> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let known = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(name));
    if known || succeeds("modprobe", &["-q", name]) {
        Ok(())
    } else {
        Err(format!("the kernel has no {name}"))
    }
}

fn time_namespace() -> Result<(), String> {
    let made = succeeds("unshare", &["--time", "--monotonic", "1", "true"]);
    made.then_some(())
        .ok_or_else(|| "unshare --time: the kernel has no time namespaces".to_owned())
}
