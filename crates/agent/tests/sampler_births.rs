//! Real programs that start, restart, daemonize and end at once: each daemon is counted from its birth, once, and
//! classified correctly.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "sampler_support/children.rs"]
mod children;
#[path = "sampler_support/program.rs"]
mod program;

use benchmesh_testing::{measured, timing};
use std::process::Child;
use std::time::Duration;

use benchmesh_agent::sampler::{DaemonChange, DaemonSample, DaemonSeen, Sampled};
use benchmesh_testing::skip;
use benchmesh_workloads::clock::MonoNanos;
use children::{is_root, sample_of, seen_of};
use program::{PERIOD, Program, pid};

/// CPU time that a program may use between its last sample and its end.
const AROUND_US: i64 = 2_000;

/// Whether this host's kernel reports new programs to the sampler.
fn kernel_tells() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    if is_root() && namespace.as_os_str() == FIRST {
        return true;
    }
    skip(
        "proc-connector",
        "the kernel's events of processes are for root in the first PID namespace",
    );
    false
}

/// A parent that ends at once, and one that waits until its daemon is up, as ceph-osd and glusterfsd do.
#[test]
fn a_parent_that_puts_its_daemon_into_the_background_is_none() {
    for wait in ["", "read -t 0.4 -u 3"] {
        let program = Program::new("fork");
        let watched = program.watch(PERIOD);
        // The daemon is the child of an ended child. It runs until its input is closed.
        let script = format!("exec 3<&0; ( ( read -u 3 ) & ); {wait}");
        let mut parent = program.start(&script);
        let input = parent.stdin.take();
        let parent_pid = pid(&parent);
        let mut changes: Vec<DaemonSeen> = Vec::new();
        let mut note = |sampled: &Sampled| {
            let own = sampled.seen.iter().filter(|seen| program.is_own(seen));
            changes.extend(own.cloned());
            changes.clone()
        };
        // The daemon is known, and so is the parent's end, if the parent was ever seen.
        let lives = |changes: &[DaemonSeen], pid: i32| {
            let of = changes.iter().filter(|seen| seen.pid == pid);
            !of.clone().any(|seen| seen.ended) && of.count() > 0
        };
        parent.wait().unwrap();
        let daemon = watched.until(|sampled| {
            let changes = note(sampled);
            let daemon = changes
                .iter()
                .find(|seen| seen.pid != parent_pid && lives(&changes, seen.pid))?;
            let has_sample = sample_of(sampled, daemon.pid).is_some();
            (has_sample && !lives(&changes, parent_pid)).then(|| daemon.clone())
        });
        drop(input);
        let changes = watched.until(|sampled| {
            let changes = note(sampled);
            let is_over = |seen: &DaemonSeen| seen.pid == daemon.pid && seen.ended;
            changes.iter().any(is_over).then_some(changes)
        });
        let count =
            |change: DaemonChange| changes.iter().filter(|seen| seen.change == change).count();
        assert_eq!(count(DaemonChange::Born), 1, "{changes:#?}");
        assert_eq!(count(DaemonChange::Restarted), 0, "{changes:#?}");
        assert_eq!(count(DaemonChange::Ended), 1, "{changes:#?}");
        let of_parents = changes.iter().filter(|seen| seen.pid != daemon.pid);
        for seen in of_parents.filter(|seen| seen.ended) {
            assert_eq!(seen.change, DaemonChange::Parent, "{changes:#?}");
        }
    }
}

/// Even if the restart follows immediately: the kernel dates births in ticks of 10 ms.
#[test]
fn a_daemon_that_is_started_again_at_once_is_a_restart() {
    let program = Program::new("again");
    let watched = program.watch(PERIOD);
    let before = MonoNanos::now();
    let mut first = program.start("read");
    let after = MonoNanos::now();
    let first_pid = pid(&first);
    let born = watched.seen(first_pid);
    assert_eq!(born.change, DaemonChange::Born);
    let tick = Duration::from_millis(11);
    assert!(
        born.at.saturating_add(tick) >= before && after.saturating_add(tick) >= born.at,
        "{born:?}, born between {before:?} and {after:?}"
    );
    watched.daemon(first_pid);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = program.start("read");
    let mut ended = None;
    let seen = watched.until(|sampled| {
        let end = seen_of(sampled, first_pid).filter(|seen| seen.ended);
        ended = end.map(|seen| seen.change).or(ended);
        seen_of(sampled, pid(&second))
    });
    let ended = ended.unwrap_or_else(|| {
        watched.until(|sampled| {
            let end = seen_of(sampled, first_pid).filter(|seen| seen.ended);
            end.map(|seen| seen.change)
        })
    });
    assert_eq!(
        (ended, seen.change),
        (DaemonChange::Ended, DaemonChange::Restarted)
    );
    second.kill().unwrap();
    second.wait().unwrap();
}

/// The end of a young process waits for the next scan, because it may be a parent whose child is not found yet.
#[test]
fn the_end_of_a_young_daemon_is_told_when_sampling_stops() {
    let program = Program::new("young");
    let watched = program.watch(PERIOD);
    let mut child = program.start("read");
    let pid = pid(&child);
    watched.daemon(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    let samples: Vec<Sampled> = watched.stop();
    let own = samples.iter().flat_map(|sampled| &sampled.seen);
    let ends: Vec<&DaemonSeen> = own.filter(|seen| seen.pid == pid && seen.ended).collect();
    assert_eq!(ends.len(), 1, "{samples:#?}");
    let change = ends.first().map(|end| end.change);
    assert_eq!(change, Some(DaemonChange::Ended));
}

/// Monitoring tools ask programs of daemons for their version, and a daemon that fails at its start is none.
#[test]
fn programs_that_print_and_leave_are_nobodys_daemon() {
    let program = Program::new("leave");
    let watched = program.watch(PERIOD);
    let mut left = Vec::new();
    for _ in 0..5 {
        let mut child = program.start("read -t 0.2");
        left.push(pid(&child));
        child.wait().unwrap();
    }
    let mut slow = program.start_with(&["-c", "read", "--version"]);
    left.push(pid(&slow));
    let mut daemon = program.start("read");
    let mut rows = Vec::new();
    let seen = watched.until(|sampled| {
        rows.push(sampled.clone());
        seen_of(sampled, pid(&daemon))
    });
    assert_eq!(seen.change, DaemonChange::Born, "no restart");
    slow.kill().unwrap();
    slow.wait().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    rows.extend(watched.stop());
    for sampled in &rows {
        let known =
            |pid: &i32| seen_of(sampled, *pid).is_some() || sample_of(sampled, *pid).is_some();
        assert!(!left.iter().any(known), "{sampled:#?}");
    }
}

/// The daemons live between two scans, a little longer than the age from which on a process is a daemon.
#[test]
fn daemons_that_live_for_a_moment_are_counted_from_birth_to_end() {
    measured(|| {
        const WORK: &str = r"
        until=$((${EPOCHREALTIME/[.,]/} + 1250000))
        while ((${EPOCHREALTIME/[.,]/} < until)); do :; done";
        if !kernel_tells() {
            return Ok(());
        }
        let program = Program::new("brief");
        let watched = program.watch(Duration::from_secs(3600));
        for _ in 0..5 {
            let before = MonoNanos::now();
            let child = program.start(WORK);
            let pid = pid(&child);
            let mut changes = Vec::new();
            let mut last = None;
            let ended = watched.until(|sampled| {
                changes.extend(seen_of(sampled, pid));
                let own = |sample: &&DaemonSample| sample.pid == pid;
                last = sampled.daemons.iter().rfind(own).copied().or(last);
                let mut ends = sampled.seen.iter().filter(|seen| seen.pid == pid);
                ends.find(|seen| seen.ended).cloned()
            });
            let born = changes.first().unwrap();
            assert!(
                matches!(born.change, DaemonChange::Born | DaemonChange::Restarted),
                "{born:?}"
            );
            let tick = Duration::from_millis(11);
            assert!(born.at.saturating_add(tick) >= before, "{born:?}");
            assert_eq!(ended.change, DaemonChange::Ended);
            let last = last.unwrap();
            let (sampled, used) = (
                last.figures.cpu_user_us + last.figures.cpu_system_us,
                reap(child),
            );
            timing!(used >= 10_000, "it worked: {used} us");
            timing!(
                (sampled - used).abs() <= AROUND_US,
                "sampled {sampled} us, used {used} us"
            );
        }
        Ok(())
    });
}

/// Total CPU time of a child, from the kernel's accounting when it is reaped.
fn reap(child: Child) -> i64 {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing; the pid is a child of ours that is not reaped.
    let pid = unsafe { libc::wait4(pid(&child), std::ptr::null_mut(), 0, &raw mut usage) };
    assert_eq!(pid, self::pid(&child));
    let us = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    us(usage.ru_utime) + us(usage.ru_stime)
}
