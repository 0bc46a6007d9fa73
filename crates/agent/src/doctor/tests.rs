#![allow(clippy::unwrap_used)]

use super::host::{caches, cpu_counter, locked_memory, namespace, open_files, proc_mount, rights};
use super::places::{floors, state};
use super::*;
use crate::targets::TargetNames;
use benchmesh_model::limits::Setting;
use benchmesh_model::targets::DIRECTORY;

fn config() -> AgentConfig {
    AgentConfig::new("node", "/var/lib/benchmesh/node")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn what_is_missing_is_named_with_a_remedy() {
    let all = rights("Name:\tx\nCapEff:\t000001ffffffffff\n");
    assert_eq!(all.verdict, DoctorVerdict::Ok);
    let none = rights("CapEff:\t0000000000000000\n");
    assert_eq!(none.verdict, DoctorVerdict::Warn);
    assert!(none.found.contains("CAP_SYS_PTRACE"), "{none:?}");
    let hidden = proc_mount("proc /proc proc rw,hidepid=invisible 0 0\n");
    let expected = if is_root() {
        DoctorVerdict::Ok
    } else {
        DoctorVerdict::Warn
    };
    assert_eq!(hidden.verdict, expected, "{hidden:?}");
    assert_eq!(
        proc_mount("proc /proc proc rw,relatime 0 0\n").found,
        "every process is visible"
    );
    assert_eq!(namespace(0xEFFF_FFFC).verdict, DoctorVerdict::Ok);
    assert!(namespace(7).remedy.unwrap().contains("--pid=host"));
    assert_eq!(cpu_counter("tsc\n").verdict, DoctorVerdict::Ok);
    assert_eq!(open_files(Some(1024)).verdict, DoctorVerdict::Warn);
    assert_eq!(open_files(None).verdict, DoctorVerdict::Ok);
    assert_eq!(locked_memory(None).verdict, DoctorVerdict::Ok);
}

#[test]
fn caches_are_as_the_agent_allows() {
    let home = tempfile::tempdir().unwrap();
    let control = home.path().join("drop_caches");
    let mut config = config();
    assert_eq!(caches(&config, &control).verdict, DoctorVerdict::Ok);
    config.policy.allow_drop_caches = true;
    assert_eq!(caches(&config, &control).verdict, DoctorVerdict::Fail);
    std::fs::write(&control, "").unwrap();
    assert_eq!(caches(&config, &control).verdict, DoctorVerdict::Ok);
    assert_eq!(std::fs::read_to_string(&control).unwrap(), "");
}

#[test]
fn the_keys_of_the_policy_are_named() {
    let mut config = config();
    let home = tempfile::tempdir().unwrap();
    config.policy.targets = TargetNames::directories([home.path()]);
    config.policy.limits[Limit::Rate] = Some(Setting::Amount(10 << 20));
    let limits = limits(&config).unwrap();
    for part in [
        "`memory` ",
        "`threads` ",
        "`rate` 10.0 MiB/s",
        "`free-space` 5%",
        "`free-inodes` 1%",
        "`workloads` all",
    ] {
        assert!(limits.found.contains(part), "{part}: {limits:?}");
    }
    assert_eq!(floors(&config, &DIRECTORY, home.path()), None);
    config.policy.limits[Limit::FreeSpace] = Some(Limit::FreeSpace.parse("100%").unwrap());
    let low = floors(&config, &DIRECTORY, home.path()).unwrap();
    assert_eq!(low.verdict, DoctorVerdict::Fail);
    assert!(low.found.contains("`free-space`"), "{low:?}");
    assert!(low.remedy.unwrap().contains("--free-space"));
}

#[test]
fn the_ports_of_links_are_tried() {
    let mut config = config();
    assert_eq!(ports::examine(&config), None);
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    config.policy.link_ports = Some(port.to_string().parse().unwrap());
    let finding = |config: &AgentConfig| ports::examine(config).unwrap();
    assert!(finding(&config).found.contains("no network is allowed"));
    config.policy.allow_network = vec!["local".parse().unwrap()];
    let used = finding(&config);
    assert_eq!(used.verdict, DoctorVerdict::Fail);
    assert!(used.found.contains("0 of 1 free over UDP"), "{used:?}");

    let range = "5201-5300".parse().unwrap();
    let free = [("TCP", 100), ("UDP", 99)];
    let shared = |kernels, reserved| ports::shared_with_connections(range, kernels, reserved);
    for (kernels, reserved, verdict) in [
        ("32768\t60999\n", "\n", DoctorVerdict::Ok),
        ("1024 65535", "", DoctorVerdict::Warn),
        ("5300 65535", "5201-5299", DoctorVerdict::Warn),
        (
            "1024 65535",
            "8080,5201-5250,5251-5300\n",
            DoctorVerdict::Ok,
        ),
    ] {
        let found = ports::verdict(range, free, shared(kernels, reserved));
        assert_eq!(found.verdict, verdict, "{kernels} {reserved}: {found:?}");
        assert!(found.found.contains("99 of 100 free over UDP"), "{found:?}");
    }
}

#[test]
fn the_state_lies_beside_the_targets() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config();
    config.state_dir = home.path().join("a/b");
    assert_ne!(state(&config).verdict, DoctorVerdict::Fail);
    config.policy.targets = TargetNames::directories([home.path()]);
    let found = state(&config);
    assert!(found.found.contains("lies under the target"), "{found:?}");
}

#[test]
fn a_host_has_a_line_for_everything() {
    let home = tempfile::tempdir().unwrap();
    let mut config = config();
    config.state_dir = home.path().join("state");
    let findings = examine_host(&config);
    for check in [
        "host", "rights", "proc", "clock", "io_uring", "caches", "state", "policy", "daemons",
    ] {
        assert!(
            findings.iter().any(|finding| finding.check == check),
            "{check}"
        );
    }
    for finding in &findings {
        assert!(
            finding.verdict == DoctorVerdict::Ok || finding.remedy.is_some(),
            "{finding:?}"
        );
    }
}
