//! What the sampler reports, held against what is known otherwise.
//!
//! Tolerances: CPU within 1 point over 10 s of a child that burns a known share by its own clock, and against pidstat
//! over 30 s; memory within 1 MiB of what a child touched.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "sampler_support/children.rs"]
mod children;

use std::process::Command;
use std::time::Duration;

use benchmesh_agent::sampler::DaemonSample;
use benchmesh_workloads::clock::MonoNanos;
use children::{Child, Life, Watched, sample_of, skip, unique};

const SECOND: Option<Duration> = Some(Duration::from_secs(1));
const POINT: f64 = 1.0;

fn cpu_us(sample: &DaemonSample) -> i64 {
    sample.cpu_user_us + sample.cpu_system_us
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

#[test]
fn a_known_share_of_a_cpu() {
    for share in [4u32, 37] {
        let sampled = (0..3).find_map(|_| sampled_share(share));
        let Some(sampled) = sampled else {
            return skip(
                "cpu",
                "this host is too busy to burn a known share of a CPU",
            );
        };
        let wanted = f64::from(share);
        assert!(
            (sampled - wanted).abs() <= POINT,
            "sampled {sampled:.2} % of a CPU, burnt {wanted} %"
        );
    }
}

/// None when the child got its CPU so late that nobody knows what it burnt in those 10 s.
fn sampled_share(share: u32) -> Option<f64> {
    let comm = unique("burn");
    let child = Child::start(
        &comm,
        Life::BurnFirst {
            percent: share.into(),
        },
    );
    let watched = Watched::comm(&comm, SECOND);
    let first = watched.daemon(child.pid);
    let last = after(&watched, &first, Duration::from_secs(10));
    (child.late() < Duration::from_millis(50)).then(|| percent(&first, &last))
}

/// What the process itself counts is what is sampled: user and system apart, each within two ticks.
#[test]
fn user_and_system_apart() {
    let comm = unique("apart");
    let child = Child::start(&comm, Life::BurnFirst { percent: 40 });
    let watched = Watched::comm(&comm, SECOND);
    let first = watched.daemon(child.pid);
    let last = after(&watched, &first, Duration::from_secs(5));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid)).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks: i64 = 1_000_000 / i64::try_from(rustix::param::clock_ticks_per_second()).unwrap();
    let (user_us, system_us) = (
        fields[11].parse::<i64>().unwrap() * ticks,
        fields[12].parse::<i64>().unwrap() * ticks,
    );
    // The child goes on burning between the two readings.
    let later = Duration::from_nanos(MonoNanos::now().0 - last.at.0);
    let slack = 2 * ticks + i64::try_from(later.as_micros()).unwrap();
    assert!(
        (user_us - last.cpu_user_us).abs() <= slack,
        "user {user_us} us, sampled {} us",
        last.cpu_user_us
    );
    assert!(
        (system_us - last.cpu_system_us).abs() <= slack,
        "system {system_us} us, sampled {} us",
        last.cpu_system_us
    );
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
    let grown = after.rss_bytes - before.rss_bytes;
    assert!(
        (grown - TOUCHED).abs() <= MIB,
        "sampled {grown} bytes more, touched {TOUCHED}"
    );
    assert!((after.vsz_bytes - before.vsz_bytes - TOUCHED).abs() <= MIB);
    assert!(after.minor_faults > before.minor_faults);
}

#[test]
fn as_pidstat_has_it() {
    const SPAN_S: u64 = 30;
    if Command::new("pidstat").arg("-V").output().is_err() {
        return skip("pidstat", "pidstat (package sysstat) is not installed");
    }
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
    // The heading counts from the right, because the time may be one or two words.
    let from_right = head.len() - head.iter().position(|name| *name == "%CPU").unwrap();
    let theirs: f64 = row[row.len() - from_right].parse().unwrap();
    let ours = percent(&first, &last);
    assert!(
        (ours - theirs).abs() <= POINT,
        "sampled {ours:.2} %, pidstat {theirs:.2} %\n{text}"
    );
}
