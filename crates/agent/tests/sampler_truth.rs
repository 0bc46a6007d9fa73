//! Compares the sampler's figures with independent ones.
//!
//! Tolerances: CPU within 2 ms of the time that a child has burnt by its own clock (0.5 % of it), however busy the host
//! is, and within 1 point against pidstat over 10 s; memory within 1 MiB of what a child touched.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "sampler_support/children.rs"]
mod children;

use benchmesh_testing::{measured, timing};
use std::process::Command;
use std::time::Duration;

use benchmesh_agent::sampler::{DaemonSample, Mark};
use benchmesh_testing::skip;
use benchmesh_workloads::clock::MonoNanos;
use children::{Child, Life, Watched, sample_of, unique};

const SECOND: Option<Duration> = Some(Duration::from_secs(1));
const POINT: f64 = 1.0;
/// CPU time that a child may use to start, to end and to wait for its turn.
const AROUND: Duration = Duration::from_millis(2);

fn cpu_us(sample: &DaemonSample) -> i64 {
    sample.figures.cpu_user_us + sample.figures.cpu_system_us
}

/// Percent of one CPU between two samples.
#[allow(clippy::cast_precision_loss, reason = "microseconds of a test")]
fn percent(from: &DaemonSample, until: &DaemonSample) -> f64 {
    let span_us = until.at.since(from.at).as_micros() as f64;
    (cpu_us(until) - cpu_us(from)) as f64 / span_us * 100.0
}

/// The first sample at least that long after `from`.
fn after(watched: &Watched, from: &DaemonSample, span: Duration) -> DaemonSample {
    watched.until(|sampled| {
        sample_of(sampled, from.pid).filter(|sample| sample.at.since(from.at) >= span)
    })
}

/// A child burns a known time by its own CPU clock, however long it waits for a CPU on a busy host. The difference of a
/// sample before and one after must be exactly that time.
#[test]
fn a_known_time_on_a_cpu() {
    measured(|| {
        const BURNT: Duration = Duration::from_millis(370);
        let comm = unique("burn");
        let ns = u64::try_from(BURNT.as_nanos()).unwrap();
        let child = Child::start(&comm, Life::BurnWhenTold { ns });
        let watched = Watched::comm(&comm, Some(Duration::from_millis(100)));
        watched.daemon(child.pid);
        for _ in 0..3 {
            let before = sampled_from_now_on(&watched, &child);
            child.go();
            let after = sampled_from_now_on(&watched, &child);
            let sampled = cpu(&after).checked_sub(cpu(&before)).unwrap();
            let off = sampled.abs_diff(BURNT);
            timing!(off <= AROUND, "sampled {sampled:?}, burnt {BURNT:?}");
            // The totals agree too: no time from before the first sample is missing.
            let (all, own) = (cpu(&after), child.burnt());
            timing!(all.abs_diff(own) <= AROUND, "sampled {all:?}, used {own:?}");
        }
        Ok(())
    });
}

/// The same with more awake daemons than whole readings per sample: the total is equally exact.
#[test]
fn a_known_time_on_a_cpu_among_many() {
    measured(|| {
        const BURNT: Duration = Duration::from_millis(30);
        let comm = unique("among");
        let _many: Vec<Child> = (0..110)
            .map(|_| Child::start(&comm, Life::Burn { percent: 0 }))
            .collect();
        let ns = u64::try_from(BURNT.as_nanos()).unwrap();
        let child = Child::start(&comm, Life::BurnWhenTold { ns });
        let watched = Watched::comm(&comm, Some(Duration::from_millis(100)));
        let began = MonoNanos::now();
        let mut latest = watched.daemon(child.pid);
        let mut brief = 0;
        while brief < 3 {
            assert!(
                MonoNanos::now().since(began) < children::DEADLINE,
                "it had its turn every time"
            );
            let before = sampled_from_now_on(&watched, &child);
            child.go();
            let after = sampled_from_now_on(&watched, &child);
            let sampled = cpu(&after).checked_sub(cpu(&before)).unwrap();
            timing!(
                sampled.abs_diff(BURNT) <= AROUND,
                "sampled {sampled:?}, burnt {BURNT:?}: {after:?}"
            );
            for sample in [before, after] {
                assert!(sample.figures.cpu_user_us >= latest.figures.cpu_user_us);
                assert!(sample.figures.cpu_system_us >= latest.figures.cpu_system_us);
                latest = sample;
            }
            brief += i32::from(after.figures.minor_faults == -1);
        }
        Ok(())
    });
}

fn cpu(sample: &DaemonSample) -> Duration {
    Duration::from_micros(u64::try_from(cpu_us(sample)).unwrap())
}

/// Memory that a process touched and freed between two samples is in the kernel's peak, which is read at marks.
#[test]
fn memory_that_was_given_back_between_two_samples() {
    const TOUCHED: i64 = 96 << 20;
    const MIB: i64 = 1 << 20;
    let comm = unique("peak");
    let child = Child::start(
        &comm,
        Life::TouchAndFree {
            bytes: usize::try_from(TOUCHED).unwrap(),
        },
    );
    let watched = Watched::comm(&comm, None);
    let marked = |mark: fn(MonoNanos) -> Mark| {
        let now = MonoNanos::now();
        watched.sampler.mark(mark(now));
        watched.until(|sampled| sample_of(sampled, child.pid).filter(|sample| sample.at >= now))
    };
    let before = marked(Mark::StepStart);
    child.go();
    let after = marked(Mark::StepEnd);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid)).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: i64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert_eq!(after.figures.rss_peak_bytes, peak * 1024);
    assert!(
        after.figures.rss_bytes < before.figures.rss_bytes + MIB,
        "it was given back"
    );
    let risen = after.figures.rss_peak_bytes - before.figures.rss_peak_bytes;
    assert!((risen - TOUCHED).abs() <= MIB, "{risen} bytes");
}

/// The first sample that is requested after this call.
fn sampled_from_now_on(watched: &Watched, child: &Child) -> DaemonSample {
    let now = MonoNanos::now();
    watched.until(|sampled| sample_of(sampled, child.pid).filter(|sample| sample.at > now))
}

/// Compares samples with the CPU time that the kernel reports for a process that sleeps again: user and system
/// separately, each within two ticks.
#[test]
fn user_and_system_apart() {
    measured(|| {
        let comm = unique("apart");
        let child = Child::start(&comm, Life::BurnWhenTold { ns: 1_500_000_000 });
        let watched = Watched::comm(&comm, SECOND);
        watched.daemon(child.pid);
        child.go();
        let last = sampled_from_now_on(&watched, &child);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid)).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks: i64 =
            1_000_000 / i64::try_from(rustix::param::clock_ticks_per_second()).unwrap();
        let (user_us, system_us) = (
            fields[11].parse::<i64>().unwrap() * ticks,
            fields[12].parse::<i64>().unwrap() * ticks,
        );
        assert!(user_us + system_us >= 1_400_000, "{stat}");
        timing!(
            (user_us - last.figures.cpu_user_us).abs() <= 2 * ticks,
            "user {user_us} us, sampled {} us",
            last.figures.cpu_user_us
        );
        timing!(
            (system_us - last.figures.cpu_system_us).abs() <= 2 * ticks,
            "system {system_us} us, sampled {} us",
            last.figures.cpu_system_us
        );
        Ok(())
    });
}

#[test]
fn memory_that_was_touched() {
    const TOUCHED: i64 = 96 << 20;
    const MIB: i64 = 1 << 20;
    let comm = unique("touch");
    let child = Child::start(
        &comm,
        Life::Touch {
            bytes: usize::try_from(TOUCHED).unwrap(),
        },
    );
    let watched = Watched::comm(&comm, Some(Duration::from_millis(100)));
    let before = watched.daemon(child.pid);
    child.go();
    let now = MonoNanos::now();
    let after =
        watched.until(|sampled| sample_of(sampled, child.pid).filter(|sample| sample.at > now));
    let grown = after.figures.rss_bytes - before.figures.rss_bytes;
    assert!(
        (grown - TOUCHED).abs() <= MIB,
        "sampled {grown} bytes more, touched {TOUCHED}"
    );
    assert!((after.figures.vsz_bytes - before.figures.vsz_bytes - TOUCHED).abs() <= MIB);
    assert!(after.figures.minor_faults > before.figures.minor_faults);
}

#[test]
fn as_pidstat_has_it() {
    if Command::new("pidstat").arg("-V").output().is_err() {
        return skip("pidstat", "pidstat (package sysstat) is not installed");
    }
    measured(|| {
        const SPAN_S: u64 = 10;
        let comm = unique("peer");
        let child = Child::start(&comm, Life::BurnFirst { percent: 23 });
        let watched = Watched::comm(&comm, SECOND);
        let first = watched.daemon(child.pid);
        let (pid, span) = (child.pid.to_string(), SPAN_S.to_string());
        let output = Command::new("pidstat")
            .env("LC_ALL", "C")
            .args(["-u", "-h", "-p", &pid, &span, "1"])
            .output()
            .unwrap();
        let last = after(&watched, &first, Duration::from_secs(SPAN_S));

        let text = String::from_utf8(output.stdout).unwrap();
        let head: Vec<&str> = text
            .lines()
            .find(|line| line.starts_with('#'))
            .unwrap()
            .split_whitespace()
            .skip(1)
            .collect();
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        // The column is counted from the right, because the time may be one or two words.
        let from_right = head.len() - head.iter().position(|name| *name == "%CPU").unwrap();
        let theirs: f64 = row[row.len() - from_right].parse().unwrap();
        let ours = percent(&first, &last);
        timing!(
            (ours - theirs).abs() <= POINT,
            "sampled {ours:.2} %, pidstat {theirs:.2} %\n{text}"
        );
        Ok(())
    });
}

/// Ten children of 20 ms live and end between two samples.
#[test]
fn children_that_live_for_a_moment_count_with_their_parent() {
    let comm = unique("forks");
    let child = Child::start(
        &comm,
        Life::Fork {
            children: 10,
            ns: 20_000_000,
        },
    );
    let watched = Watched::comm(&comm, Some(Duration::from_secs(1)));
    watched.daemon(child.pid);
    for _ in 0..3 {
        child.go();
        let truth = child.burnt();
        assert!(truth >= Duration::from_millis(200));
        let sample = sampled_from_now_on(&watched, &child);
        // The kernel shows the time of children in ticks of 10 ms, in user and in system mode.
        let off = cpu(&sample).abs_diff(truth);
        assert!(
            off <= Duration::from_millis(21),
            "{:?} for {truth:?}",
            cpu(&sample)
        );
    }
}

/// The child has the daemon's name, and so it is watched itself.
#[test]
fn the_time_of_a_child_that_was_watched_counts_once() {
    let comm = unique("forkone");
    let ns = 300_000_000;
    let child = Child::start(&comm, Life::ForkOne { ns });
    let watched = Watched::comm(&comm, Some(Duration::from_millis(100)));
    watched.daemon(child.pid);
    child.go();
    let of_child = watched.until(|sampled| {
        let others = sampled.daemons.iter().filter(|one| one.pid != child.pid);
        let of_comm = |pid: i32| {
            let comm_of = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            comm_of.is_ok_and(|name| name.trim() == comm)
        };
        let used = Duration::from_nanos(ns);
        let mut others = others.filter(|one| of_comm(one.pid) && cpu(one) >= used);
        others.next().copied()
    });
    child.go();
    let truth = child.burnt();
    let sample = sampled_from_now_on(&watched, &child);
    let all = cpu(&sample) + cpu(&of_child);
    assert!(
        all.abs_diff(truth) <= Duration::from_millis(21),
        "{:?} and {:?} for {truth:?}",
        cpu(&sample),
        cpu(&of_child)
    );
}
