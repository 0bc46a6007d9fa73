//! Network capacity of the host, as its interfaces report it: an upper bound for every remote read.
//!
//! It is the sum over hardware interfaces that are up. If there are none, as in a container, it is the sum over
//! interfaces that have no lower interface. An interface that does not serve the target only makes the bound wider.

use std::fs;
use std::path::Path;

/// The kernel's directory of interfaces.
pub const INTERFACES: &str = "/sys/class/net";
const BYTES_PER_MBIT: i64 = 125_000;

/// Bytes per second; 0: the interfaces do not report a speed.
#[must_use]
pub fn bytes_per_s(interfaces: &Path) -> i64 {
    let Ok(entries) = fs::read_dir(interfaces) else {
        return 0;
    };
    let all: Vec<Interface> = entries
        .flatten()
        .filter(|entry| entry.file_name() != "lo")
        .filter_map(|entry| Interface::of(&entry.path()))
        .collect();
    let hardware = all.iter().any(|one| one.hardware);
    all.iter()
        .filter(|one| one.hardware || !hardware)
        .fold(0_i64, |sum, one| {
            sum.saturating_add(one.mbits.saturating_mul(BYTES_PER_MBIT))
        })
}

struct Interface {
    mbits: i64,
    hardware: bool,
}

impl Interface {
    /// `None` if it is down, has a lower interface, or does not report its speed.
    fn of(path: &Path) -> Option<Self> {
        let text = |name: &str| fs::read_to_string(path.join(name)).ok();
        let up = text("operstate").is_none_or(|state| state.trim() != "down");
        let stands_on_another = fs::read_dir(path)
            .ok()?
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("lower_"));
        let mbits = text("speed")?.trim().parse::<i64>().ok()?;
        // A bridge reports its own speed, but carries only the traffic of its members.
        let bridge = path.join("bridge").exists() || path.join("bonding").exists();
        (up && !stands_on_another && !bridge && mbits > 0).then(|| Self {
            mbits,
            hardware: path.join("device").exists(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_bound_is_the_sum_of_what_is_wired() {
        let home = tempfile::tempdir().unwrap();
        let interface = |name: &str, speed: &str, state: &str, more: &[&str]| {
            let path = home.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("speed"), speed).unwrap();
            fs::write(path.join("operstate"), state).unwrap();
            for name in more {
                fs::create_dir(path.join(name)).unwrap();
            }
        };
        let check = |mbits: i64| assert_eq!(bytes_per_s(home.path()), mbits * 125_000);
        check(0);
        interface("lo", "100000", "unknown", &[]);
        interface("tun0", "-1\n", "up", &[]);
        check(0);
        interface("veth1", "10000\n", "up\n", &[]);
        check(10_000);
        interface("docker0", "10000\n", "up\n", &["bridge"]);
        check(10_000);
        interface("eth0", "1000\n", "up\n", &["device"]);
        interface("eth1", "1000\n", "up\n", &["device"]);
        interface("eth2", "25000\n", "down\n", &["device"]);
        interface("bond0", "2000\n", "up\n", &["lower_eth0", "lower_eth1"]);
        check(2000);
        assert_eq!(bytes_per_s(&home.path().join("none")), 0);
    }
}
