//! Processes that look like storage daemons to the sampler.

use super::process::Process;
use std::path::Path;
use std::process::Command;

/// Starts processes named `ceph-osd` that wake up ten times per second; their ids count from 0. Adds files to the
/// directory.
pub fn awake(directory: &Path, count: usize) -> Vec<Process> {
    let program = directory.join("ceph-osd");
    std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
    let start = |id: usize| {
        let mut command = Command::new(&program);
        let script = "exec 3<> <(:); while :; do read -t 0.1 -u 3; done";
        command.args(["-c", script, "ceph-osd", "--id", &id.to_string()]);
        Process::start("daemon", command, &directory.join("log"))
    };
    (0..count).map(start).collect()
}
