//! Says when a test cannot run here, and makes that a failure where it must run.
//!
//! A test names what it needs from the machine. Where that is missing the test is skipped, and says so on the real
//! standard error (libtest hides what a passed test prints through the macros). `BENCHMESH_REQUIRE=root,fuse,...` names
//! what must not be missing: there a skip is a failure.

use super::command::{on_path, succeeds};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Whether the test may run; if not, the reason was said. Panics where the missing part is required.
pub fn open(test: &str, needs: &[&str]) -> bool {
    let required = std::env::var("BENCHMESH_REQUIRE").unwrap_or_default();
    let required: Vec<&str> = required.split(',').map(str::trim).collect();
    for need in needs {
        let Err(missing) = check(need) else { continue };
        assert!(
            !required.contains(need) && !required.contains(&"all"),
            "{test} needs {need}, which BENCHMESH_REQUIRE demands: {missing}"
        );
        say(&format!("SKIPPED {test}: needs {need}: {missing}"));
        return false;
    }
    true
}

/// Writes a line to the process's own standard error, past libtest's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Returns from the test unless the machine has everything it names.
#[macro_export]
macro_rules! needs {
    ($($need:literal),+ $(,)?) => {
        let thread = std::thread::current();
        if !$crate::support::gate::open(thread.name().unwrap_or("a test"), &[$($need),+]) {
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

fn is_root() -> Result<(), String> {
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
