//! Real processes: found, sampled, ended, replaced, and many at once.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "sampler_support/children.rs"]
mod children;

use std::time::Duration;

use benchmesh_agent::sampler::{
    DaemonChange, DaemonRule, DaemonSeen, LinkTrouble, Mark, Sampled, SamplerConfig, Sampling,
};
use benchmesh_testing::skip;
use benchmesh_workloads::clock::MonoNanos;
use children::{Child, Life, Watched, is_root, rule, sample_of, seen_of, unique};

const PERIOD: Option<Duration> = Some(Duration::from_millis(100));

#[test]
fn its_own_process_is_a_daemon() {
    let watched = Watched::comm(&unique("own"), PERIOD);
    let own = std::process::id().cast_signed();
    let seen = watched.seen(own);
    assert_eq!(seen.name, "benchmesh");
    let sample = watched.daemon(own);
    assert!(
        sample.figures.threads >= 2
            && sample.figures.fds > 3
            && sample.figures.rss_bytes > 1 << 20
            && sample.figures.vsz_bytes > sample.figures.rss_bytes
    );
    assert!(sample.figures.read_bytes >= 0 && sample.figures.minor_faults > 0);
}

#[test]
fn the_last_sample_has_all_of_its_cpu_time() {
    let comm = unique("last");
    let mut child = Child::start(&comm, Life::Burn { percent: 50 });
    let watched = Watched::comm(&comm, PERIOD);
    let before = watched.until(|sampled| {
        sample_of(sampled, child.pid)
            .filter(|sample| sample.figures.cpu_user_us + sample.figures.cpu_system_us > 100_000)
    });
    child.kill();
    // Its last sample is handed over at once, the kind of its end after the next scan.
    let mut last = None;
    let ended = watched.until(|sampled| {
        last = sample_of(sampled, child.pid).or(last);
        seen_of(sampled, child.pid).filter(|seen| seen.ended)
    });
    assert_eq!(ended.name, comm);
    // It is not reaped yet, so its counters were readable to the end.
    let last = last.unwrap();
    assert!(
        last.figures.cpu_user_us + last.figures.cpu_system_us
            >= before.figures.cpu_user_us + before.figures.cpu_system_us
    );
    assert_eq!(
        (last.figures.rss_bytes > 0, last.figures.threads),
        (true, 1),
        "what it had while it lived"
    );
    // Until it is reaped it stays in /proc, but it is not found again.
    let samples = (0..5).map(|_| watched.next());
    assert!(
        samples
            .into_iter()
            .all(|sampled| sample_of(&sampled, child.pid).is_none())
    );
    child.reap();
}

/// A cgroup created by the test, thawed and removed on drop.
struct FrozenGroup(std::path::PathBuf);

impl FrozenGroup {
    fn make(name: &str) -> Result<Self, String> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let root = roots
            .into_iter()
            .find(|root| std::path::Path::new(root).join("cgroup.procs").exists())
            .ok_or("no cgroup v2 is mounted")?;
        let group = Self(std::path::Path::new(root).join(name));
        std::fs::create_dir(&group.0).map_err(|error| format!("make a cgroup: {error}"))?;
        match group.0.join("cgroup.freeze").exists() {
            true => Ok(group),
            false => Err("this kernel's cgroups have no freezer".to_owned()),
        }
    }

    fn set(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.freeze"), "0");
        let gone = || std::fs::remove_dir(&self.0).is_ok();
        let deadline = std::time::Instant::now() + children::DEADLINE;
        while !gone() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_frozen_daemon_is_told_as_a_stopped_one_is() {
    for life in [Life::Burn { percent: 50 }, Life::Sleep] {
        let comm = unique("frozen");
        let group = match FrozenGroup::make(&comm) {
            Ok(group) => group,
            Err(why) => return skip("freezer", &why),
        };
        let child = Child::start(&comm, life);
        group.set("cgroup.procs", &child.pid.to_string());
        let watched = Watched::comm(&comm, PERIOD);
        watched.seen(child.pid);
        let until = |wanted: DaemonChange| {
            watched.until(|sampled| {
                let seen = sampled.seen.iter().find(|seen| seen.pid == child.pid)?;
                assert_ne!(seen.change, DaemonChange::Stopped);
                (seen.change == wanted).then_some(())
            });
        };
        group.set("cgroup.freeze", "1");
        until(DaemonChange::Frozen);
        group.set("cgroup.freeze", "0");
        until(DaemonChange::Continued);
        drop(child);
    }
}

/// A watched process is not among them.
#[test]
fn who_else_takes_cpu_time_is_named() {
    let (comm, known) = (unique("other"), unique("known"));
    let _other = Child::start(&comm, Life::Burn { percent: 100 });
    let _known = Child::start(&known, Life::Burn { percent: 50 });
    let watched = Watched::start(SamplerConfig {
        rules: vec![rule(&known)],
        scan_every: Duration::from_secs(1),
        ..SamplerConfig::default()
    });
    let (from, until, cpu_us) = watched.until(|sampled| {
        let busy = sampled.host.as_ref()?.others.as_ref()?;
        assert!(busy.processes.iter().all(|(name, _)| *name != known));
        let named = busy.processes.iter().find(|(name, _)| *name == comm)?;
        Some((busy.from, busy.until, named.1))
    });
    let span_us = i64::try_from(until.since(from).as_micros()).unwrap();
    assert!(cpu_us >= span_us / 100, "{cpu_us} of {span_us}");
    // It has one thread; the margin is for clocks that are read one after the other.
    assert!(cpu_us <= span_us + span_us / 5, "{cpu_us} of {span_us}");
}

#[test]
fn an_end_is_told_at_once_and_without_a_beat() {
    let comm = unique("atonce");
    let child = Child::start(&comm, Life::Sleep);
    let watched = Watched::comm(&comm, None);
    let (pid, asked) = (child.pid, MonoNanos::now());
    watched.sampler.mark(Mark::StepEnd(asked));
    // The scan at the start may find it before the mark; it is reported with the mark nevertheless.
    let sampled_at = watched.until(|sampled| seen_of(sampled, pid).map(|_| sampled.at));
    assert!(sampled_at >= asked);
    drop(child);
    let ended = watched.until(|sampled| seen_of(sampled, pid).filter(|seen| seen.ended));
    assert!(ended.at.since(asked) < children::DEADLINE);
}

#[test]
fn many_daemons() {
    const MANY: usize = 200;
    let comm = unique("many");
    let children: Vec<Child> = (0..MANY)
        .map(|_| Child::start(&comm, Life::Sleep))
        .collect();
    let watched = Watched::comm(&comm, PERIOD);
    let all = |sampled: &benchmesh_agent::sampler::Sampled| {
        let found = children
            .iter()
            .filter_map(|child| sample_of(sampled, child.pid))
            .count();
        (found == MANY).then_some(())
    };
    watched.until(all);
    let pids: Vec<i32> = children.iter().map(|child| child.pid).collect();
    drop(children);
    let mut ended = 0;
    watched.until(|sampled| {
        ended += sampled
            .seen
            .iter()
            .filter(|seen| seen.ended && pids.contains(&seen.pid))
            .count();
        (ended == MANY).then_some(())
    });
    let after = watched.until(|sampled| sampled.host.as_ref().map(|_| sampled.clone()));
    assert!(
        !after
            .daemons
            .iter()
            .any(|sample| pids.contains(&sample.pid))
    );
    assert_eq!(after.cost.daemons, after.daemons.len());
}

/// More awake daemons than whole readings per sample: every sample has CPU time and memory of all, and the other
/// figures in turn.
#[test]
fn many_that_are_awake_are_read_whole_in_turn_and_all_at_a_mark() {
    const MANY: usize = 80;
    let comm = unique("turns");
    let wakes_only = Life::Burn { percent: 0 };
    let children: Vec<Child> = (0..MANY).map(|_| Child::start(&comm, wakes_only)).collect();
    let watched = Watched::comm(&comm, PERIOD);
    let of_all = |sampled: &benchmesh_agent::sampler::Sampled| -> Option<Vec<_>> {
        let samples = children.iter().map(|child| sample_of(sampled, child.pid));
        samples.collect()
    };
    let is_brief = |sample: &benchmesh_agent::sampler::DaemonSample| sample.figures.threads == -1;
    let mut first = std::collections::BTreeMap::new();
    watched.until(|sampled| {
        for child in &children {
            if let Some(sample) = sample_of(sampled, child.pid) {
                first.entry(child.pid).or_insert(sample);
            }
        }
        (first.len() == MANY).then_some(())
    });
    assert!(!first.values().any(is_brief), "the first ones are whole");

    let mut whole_again = std::collections::BTreeSet::new();
    let mut were_brief = std::collections::BTreeSet::new();
    watched.until(|sampled| {
        for sample in of_all(sampled)? {
            assert!(
                sample.figures.rss_bytes > 0
                    && sample.figures.vsz_bytes >= sample.figures.rss_bytes
            );
            let others = [
                sample.figures.fds,
                sample.figures.read_bytes,
                sample.figures.write_bytes,
            ];
            let faults = [sample.figures.minor_faults, sample.figures.major_faults];
            if is_brief(&sample) {
                assert!(others.iter().chain(&faults).all(|figure| *figure == -1));
                were_brief.insert(sample.pid);
            } else {
                assert!(others.iter().chain(&faults).all(|figure| *figure >= 0));
                assert_eq!(sample.figures.threads, 1);
                if were_brief.contains(&sample.pid) {
                    whole_again.insert(sample.pid);
                }
            }
        }
        (whole_again.len() == MANY).then_some(())
    });

    let mark = MonoNanos(MonoNanos::now().0 + 1_234_567);
    watched.sampler.mark(Mark::StepEnd(mark));
    let marked = watched.until(|sampled| (sampled.at >= mark).then(|| of_all(sampled)).flatten());
    assert!(!marked.iter().any(is_brief), "{marked:?}");
}

#[test]
fn samples_at_ticks_and_marks() {
    let watched = Watched::comm(&unique("marks"), PERIOD);
    let period = 100_000_000;
    // The test's own process is a daemon once it has run for a second.
    watched.daemon(std::process::id().cast_signed());
    let mark = MonoNanos(MonoNanos::now().0 / period * period + 3 * period + 41_234_567);
    watched.sampler.mark(Mark::StepEnd(mark));
    let marked = watched.until(|sampled| (sampled.at == mark).then(|| sampled.clone()));
    assert!(marked.host.unwrap().at >= mark && !marked.daemons.is_empty());
    let next = watched.until(|sampled| sampled.host.as_ref().map(|_| sampled.at));
    assert_eq!(next.0 % period, 0, "ticks are whole periods: {next:?}");
    assert!(next > mark);
    // A mark in the past is answered at once.
    let past = MonoNanos(mark.0 + 1);
    watched.sampler.mark(Mark::StepEnd(past));
    watched.until(|sampled| (sampled.at == past).then_some(()));
}

#[test]
fn interfaces_are_those_of_the_namespace_it_is_started_in() {
    if !is_root() {
        return skip("root", "only root may make a network namespace");
    }
    let in_a_namespace = std::thread::spawn(|| {
        // SAFETY: unshare(2) takes a number and moves only this thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return skip("root", "this container may not make a network namespace");
        }
        let watched = Watched::comm(&unique("netns"), PERIOD);
        // A sample between two ticks has no interfaces.
        let nets =
            watched.until(|sampled| (!sampled.nets.is_empty()).then(|| sampled.nets.clone()));
        // Kernels with such modules give every namespace idle tunnels beside lo, but no wire.
        assert!(nets.iter().any(|net| net.interface.as_ref() == "lo"));
        assert!(
            nets.iter()
                .all(|net| net.figures.rx_bytes == 0 && net.figures.tx_bytes == 0),
            "{nets:?}"
        );
    });
    in_a_namespace.join().unwrap();
}

/// Two ends of a wire in one namespace, with datagrams to missing neighbours: each end receives what the other sends,
/// and there are no answers. Takes about 12 s, of which the silence is ten.
#[test]
fn an_interface_that_hears_nothing_in_a_step_is_told() {
    if !is_root() {
        return skip("root", "only root may make a network namespace");
    }
    let in_a_namespace = std::thread::spawn(|| {
        // SAFETY: unshare(2) takes a number and moves only this thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return skip("netns", "this container may not make a network namespace");
        }
        let ip = |command: &str| {
            let ran = std::process::Command::new("ip")
                .args(command.split(' '))
                .status();
            ran.is_ok_and(|status| status.success())
        };
        if !ip("link add bma type veth peer name bmb") {
            return skip("netns", "ip makes no veth here");
        }
        // IPv6, if available, sends packets on its own.
        for end in ["bma", "bmb"] {
            ip(&format!("link set {end} addrgenmode none"));
        }
        let commands = [
            "link set bma up",
            "link set bmb up",
            "addr add 10.123.1.1/24 dev bma",
            "addr add 10.123.2.1/24 dev bmb",
            "neigh add 10.123.1.9 lladdr 02:00:00:00:00:01 dev bma",
            "neigh add 10.123.2.9 lladdr 02:00:00:00:00:02 dev bmb",
        ];
        for command in commands {
            assert!(ip(command), "ip {command}");
        }
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let send = |to: &str| assert_eq!(socket.send_to(b"hello", to).unwrap(), 5);
        let (by_a, by_b) = ("10.123.1.9:9", "10.123.2.9:9");
        let watched = Watched::comm(&unique("silent"), PERIOD);
        let start = MonoNanos::now();
        watched.sampler.mark(Mark::StepStart(start));
        let received = |sampled: &Sampled| {
            let net = sampled
                .nets
                .iter()
                .find(|net| net.interface.as_ref() == "bma")?;
            Some(net.figures.rx_bytes)
        };
        // Both send until the first has received, as seen by two samples.
        let mut first = None;
        watched.until(|sampled| {
            send(by_a);
            send(by_b);
            let now = received(sampled)?;
            (*first.get_or_insert(now) < now).then_some(())
        });
        let of_a = |sampled: &Sampled| {
            let change = sampled
                .links
                .iter()
                .find(|it| it.interface.as_ref() == "bma")?;
            Some((change.at, change.trouble))
        };
        let (at, silent) = watched.until(|sampled| {
            send(by_a);
            of_a(sampled)
        });
        let LinkTrouble::Silent {
            since,
            sent_packets,
        } = silent
        else {
            panic!("{silent:?}");
        };
        assert!(at.since(since) >= Duration::from_secs(10) && since >= start);
        assert!(sent_packets > 0, "{sent_packets}");
        let (_, heard) = watched.until(|sampled| {
            send(by_b);
            of_a(sampled)
        });
        assert_eq!(heard, LinkTrouble::Heard { since });
    });
    in_a_namespace.join().unwrap();
}

#[test]
fn what_is_sampled_can_be_changed() {
    let comm = unique("set");
    let child = Child::start(&comm, Life::Sleep);
    let watched = Watched::comm(&comm, PERIOD);
    watched.daemon(child.pid);

    watched.sampler.set(Sampling {
        host_wide: false,
        interfaces: true,
        period: PERIOD,
    });
    // The end of another daemon on this host is reported in a sample without interfaces.
    let is_of_interfaces = |sampled: &Sampled| sampled.host.is_none() && !sampled.nets.is_empty();
    let quiet = watched.until(|sampled| is_of_interfaces(sampled).then(|| sampled.clone()));
    assert!(quiet.daemons.is_empty() && quiet.disks.is_empty());

    watched.sampler.set(Sampling {
        host_wide: true,
        interfaces: false,
        period: PERIOD,
    });
    let found = watched.until(|sampled| seen_of(sampled, child.pid).map(|_| sampled.clone()));
    // Daemons of other tests come and go meanwhile.
    let is_its_end = |seen: &DaemonSeen| seen.pid == child.pid && seen.ended;
    assert!(!found.seen.iter().any(is_its_end));
    assert!(watched.until(|sampled| sampled.host.as_ref().map(|_| sampled.nets.is_empty())));

    // Without ticks, only marks are answered; resuming describes all daemons again.
    watched.sampler.set(Sampling {
        host_wide: true,
        interfaces: false,
        period: None,
    });
    let mark = MonoNanos(MonoNanos::now().0 + 1_234_567);
    watched.sampler.mark(Mark::StepEnd(mark));
    let marked = watched.until(|sampled| (sampled.at == mark).then(|| sampled.clone()));
    assert!(sample_of(&marked, child.pid).is_some() && seen_of(&marked, child.pid).is_none());
    watched.sampler.set(Sampling {
        host_wide: true,
        interfaces: false,
        period: PERIOD,
    });
    assert_eq!(watched.seen(child.pid).name, comm);
    watched.sampler.stop();
}

/// Of benchmesh's own processes, only those of this mesh and the sampler's own are daemons.
#[test]
fn processes_of_another_mesh_are_no_daemons() {
    let (own, other) = (
        Child::start("benchmesh", Life::Sleep),
        Child::start("benchmesh", Life::Sleep),
    );
    let watched = Watched::start(SamplerConfig {
        scan_every: Duration::from_millis(100),
        sampling: Sampling {
            period: PERIOD,
            ..Sampling::default()
        },
        mesh_pids: Some([own.pid].into()),
        ..SamplerConfig::default()
    });
    watched.daemon(own.pid);
    let of_other =
        |watched: &Watched| (0..5).all(|_| sample_of(&watched.next(), other.pid).is_none());
    assert!(of_other(&watched));
    // The other process joins the mesh.
    let pids = [own.pid, other.pid].into();
    watched.sampler.watch(Vec::new(), pids).unwrap();
    watched.daemon(other.pid);
}

/// Rules added while the sampler runs.
#[test]
fn rules_can_be_added() {
    let comm = unique("added");
    let child = Child::start(&comm, Life::Sleep);
    let watched = Watched::comm("nothing-has-this", PERIOD);
    assert!((0..5).all(|_| sample_of(&watched.next(), child.pid).is_none()));
    watched.sampler.watch(vec![rule(&comm)], [].into()).unwrap();
    assert_eq!(
        watched.seen(child.pid).change,
        DaemonChange::None,
        "it was there before"
    );
    let everything = DaemonRule {
        name: "all".to_owned(),
        ..DaemonRule::default()
    };
    assert!(watched.sampler.watch(vec![everything], [].into()).is_err());
}

/// Like a sleeping daemon, a stopped one uses no CPU; only its state tells the difference.
#[test]
fn a_daemon_that_a_signal_stopped_is_reported() {
    use rustix::process::{Pid, Signal, kill_process};
    let comm = unique("stop");
    let child = Child::start(&comm, Life::Sleep);
    let watched = Watched::comm(&comm, PERIOD);
    watched.daemon(child.pid);
    let pid = Pid::from_raw(child.pid).unwrap();
    for (signal, change) in [
        (Signal::STOP, DaemonChange::Stopped),
        (Signal::CONT, DaemonChange::Continued),
    ] {
        kill_process(pid, signal).unwrap();
        watched.until(|sampled| {
            let of_child = sampled.seen.iter().find(|seen| seen.pid == child.pid);
            of_child.filter(|seen| seen.change == change).map(|_| ())
        });
    }
}
