//! A host that starts programs all the time. Separate from the other tests of births, because all samplers on the host
//! receive events of the programs that one test starts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "sampler_support/children.rs"]
mod children;
#[path = "sampler_support/program.rs"]
mod program;

use benchmesh_testing::{measured, timing};
use std::process::Command;
use std::time::Duration;

use benchmesh_agent::sampler::Mark;
use benchmesh_workloads::clock::MonoNanos;
use children::Watched;
use program::{PERIOD, Program, pid};

/// On a host that starts thousands of programs, the sampler's cost is limited to a second's checks. Meanwhile the scan
/// finds the daemons.
#[test]
fn a_storm_of_programs_is_not_followed() {
    measured(|| {
        const PROGRAMS: u32 = 3_000;
        /// 500 checks of 20 us in each second in which it listens, and the samples and scans of that time, with a
        /// margin for slow hosts.
        const MOST: Duration = Duration::from_millis(200);
        let program = Program::new("storm");
        let watched = program.watch(PERIOD);
        let cost = |watched: &Watched| {
            watched.sampler.mark(Mark::StepEnd(MonoNanos::now()));
            watched.until(|sampled| sampled.host.as_ref().map(|_| sampled.cost))
        };
        let before = cost(&watched);
        for _ in 0..PROGRAMS {
            assert!(Command::new("/bin/true").status().unwrap().success());
        }
        while watched.try_next().is_some() {}
        let after = cost(&watched);
        let used = Duration::from_nanos(after.cpu_ns - before.cpu_ns);
        let regular = Duration::from_micros(500)
            * u32::try_from(after.samples - before.samples + after.scans - before.scans).unwrap();
        timing!(
            used <= MOST + regular,
            "{used:?} of CPU for {PROGRAMS} programs and {} samples",
            after.samples - before.samples
        );
        let mut child = program.start("read");
        watched.daemon(pid(&child));
        child.kill().unwrap();
        child.wait().unwrap();
        Ok(())
    });
}
