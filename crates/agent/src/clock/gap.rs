//! A jump between an agent's clock and mesh time: its likely cause, and the text of its event.
//!
//! CLOCK_MONOTONIC stops during a suspend and CLOCK_BOOTTIME does not, which identifies a suspend. Both stop while a
//! hypervisor pauses the agent's machine, and both run on while it pauses the collector's. Where the hypervisor keeps
//! the guest's clocks running there is no gap; the runner detects that pause instead (`client-frozen`).

use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::time::Duration;

/// A jump that neither errors nor slewing explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it was detected: the first instant dated by the new mapping.
    pub at: MonoNanos,
    /// How far mesh time jumped ahead of the agent's clock; negative if it fell behind.
    pub ahead_ns: i64,
    pub cause: Cause,
}

/// The likely cause, judged by the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The agent's machine was suspended.
    Suspended,
    /// All clocks of the agent's machine stopped, or mesh time jumped ahead.
    StoodStill,
    /// Mesh time stopped.
    MeshStoodStill,
}

impl Cause {
    /// Classifies a jump during which the agent's machine was suspended for `slept_ns`.
    pub(super) fn of(ahead_ns: i64, slept_ns: i64) -> Self {
        match ahead_ns {
            ..=0 => Self::MeshStoodStill,
            _ if slept_ns >= ahead_ns / 2 => Self::Suspended,
            _ => Self::StoodStill,
        }
    }

    /// The word used in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::StoodStill => "stood-still",
            Self::MeshStoodStill => "mesh-stood-still",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Suspended => "this machine was suspended",
            Self::StoodStill => {
                "the clocks of this machine stood still, as in a paused virtual machine, or mesh time went ahead, as \
                 after a reboot of the collector's machine"
            }
            Self::MeshStoodStill => {
                "mesh time stood still, as when the collector's virtual machine is paused"
            }
        }
    }
}

impl Gap {
    /// The event's message.
    #[must_use]
    pub fn message(&self, host: &str) -> String {
        let (which, than) = match self.ahead_ns {
            ..=0 => ("behind", "fell"),
            _ => ("ahead of", "jumped"),
        };
        format!(
            "mesh time {than} {:.3} s {which} the clock of host {host}: {}; later data use the new offset",
            Duration::from_nanos(self.ahead_ns.unsigned_abs()).as_secs_f64(),
            self.cause.meaning(),
        )
    }

    /// The event's figures as JSON.
    #[must_use]
    pub fn detail(&self) -> String {
        json!({ "ahead_us": self.ahead_ns / 1000, "cause": self.cause.as_str() }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_clocks_tell_a_suspend_from_a_pause() {
        for (ahead, slept, cause) in [
            (10 * SECOND, 10 * SECOND, Cause::Suspended),
            (10 * SECOND, 0, Cause::StoodStill),
            (10 * SECOND, SECOND, Cause::StoodStill),
            (-10 * SECOND, 0, Cause::MeshStoodStill),
            (-10 * SECOND, 10 * SECOND, Cause::MeshStoodStill),
        ] {
            assert_eq!(Cause::of(ahead, slept), cause, "{ahead} {slept}");
        }
    }

    #[test]
    fn a_person_reads_by_how_much_and_why() {
        let gap = |ahead_ns| Gap {
            at: MonoNanos(0),
            ahead_ns,
            cause: Cause::of(ahead_ns, 0),
        };
        let ahead = gap(10 * SECOND).message("node");
        assert!(ahead.starts_with("mesh time jumped 10.000 s ahead of the clock of host node"));
        let behind = gap(-SECOND / 2).message("node");
        assert!(behind.starts_with("mesh time fell 0.500 s behind the clock of host node"));
        assert_eq!(
            gap(10 * SECOND).detail(),
            r#"{"ahead_us":10000000,"cause":"stood-still"}"#
        );
    }
}
