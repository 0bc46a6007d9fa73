//! Recorded `/proc` trees: every daemon is found and named, and garbage loses only its own rows.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "sampler_support/children.rs"]
mod children;
#[path = "sampler_support/recorded.rs"]
mod recorded;

use std::time::Duration;

use benchmesh_agent::sampler::{DaemonSeen, Mark, Sampler, SamplerConfig, SamplerError, Sampling};
use benchmesh_workloads::clock::MonoNanos;
use children::{Watched, sample_of, seen_of};
use proptest::prelude::*;
use recorded::{PROCESSES, Recorded};

#[test]
fn every_daemon_is_found_and_named() {
    let root = recorded::tree();
    let watched = Watched::tree(root.path().to_owned());
    let sampled = watched.next();
    for process in PROCESSES {
        let seen = seen_of(&sampled, process.pid);
        let called = seen
            .as_ref()
            .map(|seen| (seen.name.as_str(), seen.instance.as_str()));
        assert_eq!(
            called, process.called,
            "{} {}",
            process.pid, process.cmdline
        );
        assert_eq!(
            sample_of(&sampled, process.pid).is_some(),
            process.called.is_some(),
            "{}",
            process.pid
        );
    }
    assert_eq!(sampled.cost.daemons, sampled.daemons.len());
    let agent = seen_of(&sampled, 980).unwrap();
    assert_eq!(
        agent.cmdline,
        "/usr/local/bin/benchmesh agent --collector 10.0.0.1:4750 --name n1 --token ***"
    );
    assert_eq!(seen_of(&sampled, 970).unwrap().cmdline, "[nfsd]");
}

#[test]
fn a_sample_says_what_the_files_say() {
    let root = recorded::tree();
    let watched = Watched::tree(root.path().to_owned());
    let sampled = watched.next();
    let osd = sample_of(&sampled, 812).unwrap();
    let page = i64::try_from(rustix::param::page_size()).unwrap();
    assert_eq!(osd.start_ticks, 4_711);
    // Its own, and 70 and 30 ms of children for which it waited.
    assert_eq!(
        (osd.figures.cpu_user_us, osd.figures.cpu_system_us),
        (652_170_000, 319_780_000)
    );
    assert_eq!(
        (osd.figures.vsz_bytes, osd.figures.rss_bytes),
        (262_144 * page, 110_592 * page)
    );
    assert_eq!((osd.figures.threads, osd.figures.fds), (57, 61));
    assert_eq!(
        (osd.figures.read_bytes, osd.figures.write_bytes),
        (32_768, 1_191_936)
    );
    assert_eq!(
        (osd.figures.minor_faults, osd.figures.major_faults),
        (2494, 5)
    );
    assert_eq!(
        (osd.figures.vol_ctx, osd.figures.invol_ctx),
        (-1, -1),
        "the main thread's switches are not the process's"
    );
    assert!(osd.at <= MonoNanos::now() && osd.at >= sampled.at);

    assert_eq!(
        sampled.host.unwrap().figures.memory_total_bytes,
        24_684_084 * 1024
    );
    assert_eq!(sampled.disks[0].disk.as_ref(), "sda");
    assert_eq!(sampled.nets[0].interface.as_ref(), "eth0");
}

/// An ending process loses its memory before it is a zombie, and the remaining zeros are not figures.
#[test]
fn a_daemon_that_is_ending_keeps_its_memory() {
    let root = recorded::tree();
    let watched = Watched::tree(root.path().to_owned());
    let before = watched.daemon(812);
    assert!(before.figures.rss_bytes > 0);
    std::fs::write(root.path().join("812/statm"), "0 0 0 0 0 0 0\n").unwrap();
    std::fs::write(
        root.path().join("812/io"),
        "read_bytes: 99999\nwrite_bytes: 9999999\n",
    )
    .unwrap();
    let after = watched.until(|sampled| {
        sample_of(sampled, 812).filter(|sample| sample.figures.write_bytes == 9_999_999)
    });
    let memory = |sample: &benchmesh_agent::sampler::DaemonSample| {
        (sample.figures.rss_bytes, sample.figures.vsz_bytes)
    };
    assert_eq!(memory(&after), memory(&before));
    // A process first seen in this state has no figures at all.
    let root = recorded::tree();
    std::fs::write(root.path().join("812/statm"), "0 0 0 0 0 0 0\n").unwrap();
    let watched = Watched::tree(root.path().to_owned());
    watched.daemon(900);
    assert_eq!(sample_of(&watched.next(), 812), None);
}

#[test]
fn the_switches_of_a_single_thread_are_the_process() {
    let root = recorded::tree();
    Recorded {
        threads: 1,
        ..PROCESSES[4].clone()
    }
    .write(root.path());
    let osd = Watched::tree(root.path().to_owned()).daemon(812);
    assert_eq!((osd.figures.vol_ctx, osd.figures.invol_ctx), (4711, 815));
}

#[test]
fn what_cannot_be_read_is_not_zero() {
    let root = recorded::tree();
    std::fs::remove_file(root.path().join("812/io")).unwrap();
    std::fs::remove_dir_all(root.path().join("812/fd")).unwrap();
    let osd = Watched::tree(root.path().to_owned()).daemon(812);
    assert_eq!(
        (
            osd.figures.read_bytes,
            osd.figures.write_bytes,
            osd.figures.fds
        ),
        (-1, -1, -1)
    );
    assert_eq!(osd.figures.threads, 57);
}

#[test]
fn a_pid_used_again_is_another_daemon() {
    let root = recorded::tree();
    let watched = Watched::tree(root.path().to_owned());
    assert_eq!(watched.seen(812).start_ticks, 4_711);
    let next = Recorded {
        cmdline: "ceph-osd|-i|9",
        start_ticks: 99_999,
        ..PROCESSES[4].clone()
    };
    // A process has all of its files as soon as it is listed.
    let aside = tempfile::tempdir_in(root.path()).unwrap();
    next.write(aside.path());
    std::fs::rename(root.path().join("812"), root.path().join("gone")).unwrap();
    std::fs::rename(aside.path().join("812"), root.path().join("812")).unwrap();

    let mut seen = Vec::new();
    watched.until(|sampled| {
        seen.extend(sampled.seen.iter().filter(|seen| seen.pid == 812).cloned());
        sample_of(sampled, 812).filter(|sample| sample.start_ticks == 99_999)
    });
    let story: Vec<(u64, &str, bool)> = seen
        .iter()
        .map(|seen: &DaemonSeen| (seen.start_ticks, seen.instance.as_str(), seen.ended))
        .collect();
    assert_eq!(story, [(4_711, "osd.3", true), (99_999, "osd.9", false)]);
}

#[test]
fn a_daemon_that_is_gone_has_ended() {
    let root = recorded::tree();
    let watched = Watched::tree(root.path().to_owned());
    watched.daemon(900);
    std::fs::rename(root.path().join("900"), root.path().join("gone")).unwrap();
    let ended = watched.until(|sampled| seen_of(sampled, 900).filter(|seen| seen.ended));
    assert_eq!(
        (ended.name.as_str(), ended.instance.as_str()),
        ("sheep", "127.0.0.1:7001")
    );
    assert_eq!(sample_of(&watched.next(), 900), None);
}

#[test]
fn names_that_come_late() {
    let root = recorded::tree();
    let write = |name: &str, text: &[u8]| std::fs::write(root.path().join(name), text).unwrap();
    write("950/comm", b"starting\n");
    write("953/cmdline", b"mfsmount\0/mnt/early\0-H\0mfsmaster\0");
    // The interval leaves time to write before the last check of a young process.
    let watched = Watched::start(SamplerConfig {
        proc_root: root.path().to_owned(),
        scan_every: Duration::from_millis(500),
        ..SamplerConfig::default()
    });
    let early = watched.seen(953);
    assert_eq!(early.instance, "/mnt/early");
    write("950/comm", b"mfsmaster\n");
    write("953/cmdline", b"mfsmount (mounted on: /mnt/late)\0");

    let (mut master, mut mount) = (None, None);
    watched.until(|sampled| {
        master = master.take().or_else(|| seen_of(sampled, 950));
        mount = mount.take().or_else(|| seen_of(sampled, 953));
        (master.is_some() && mount.is_some()).then_some(())
    });
    assert_eq!(master.unwrap().name, "mfsmaster");
    assert_eq!(mount.unwrap().instance, "/mnt/late");
}

#[test]
fn counters_that_fall_stand_still() {
    let root = recorded::tree();
    let watched = Watched::tree(root.path().to_owned());
    let before = watched.daemon(812);
    let write =
        |name: &str, text: &str| std::fs::write(root.path().join("812").join(name), text).unwrap();
    write("io", "read_bytes: 5\nwrite_bytes: 0\n");
    write(
        "stat",
        &Recorded {
            user_ticks: 3,
            system_ticks: 0,
            ..PROCESSES[4].clone()
        }
        .stat(),
    );
    // Written last, so that a sample with it also has the others.
    write("statm", "9 1 0 0 0 0 0\n");
    let page = i64::try_from(rustix::param::page_size()).unwrap();
    let after = watched
        .until(|sampled| sample_of(sampled, 812).filter(|sample| sample.figures.rss_bytes == page));
    let after =
        watched.until(|sampled| sample_of(sampled, 812).filter(|sample| sample.at > after.at));
    assert_eq!(
        (after.figures.read_bytes, after.figures.write_bytes),
        (before.figures.read_bytes, before.figures.write_bytes)
    );
    assert_eq!(
        (after.figures.cpu_user_us, after.figures.cpu_system_us),
        (before.figures.cpu_user_us, before.figures.cpu_system_us)
    );
}

#[test]
fn wrong_rules_and_a_missing_proc_are_refused() {
    let rules = vec![benchmesh_agent::sampler::DaemonRule {
        name: "all".to_owned(),
        ..Default::default()
    }];
    let error = Sampler::start(
        SamplerConfig {
            rules,
            ..SamplerConfig::default()
        },
        |_| {},
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"daemon rule "all" of the agent's configuration"#
    );
    let config = SamplerConfig {
        proc_root: "/nowhere".into(),
        ..SamplerConfig::default()
    };
    assert!(matches!(
        Sampler::start(config, |_| {}),
        Err(SamplerError::Setup {
            what: "list of processes",
            ..
        })
    ));
}

/// Every file of a daemon's directory and of the host.
const FILES: [&str; 13] = [
    "812/stat",
    "812/statm",
    "812/io",
    "812/status",
    "812/comm",
    "812/cmdline",
    "812/cgroup",
    "stat",
    "meminfo",
    "loadavg",
    "diskstats",
    "net/dev",
    "813/stat",
];

/// Damage to one of the files.
#[derive(Debug, Clone)]
enum Damage {
    /// Overwrites the true text at that place with these bytes.
    Over(usize, Vec<u8>),
    /// Replaces the whole text.
    Noise(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![
        (0usize..400, bytes(12)).prop_map(|(at, bytes)| Damage::Over(at, bytes)),
        bytes(300).prop_map(Damage::Noise),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn garbage_anywhere_costs_rows_only(damages in prop::collection::vec((0..FILES.len(), damage()), 1..6)) {
        let root = recorded::tree_of(PROCESSES.iter().filter(|process| [812, 813, 900].contains(&process.pid)));
        let do_damage = || {
            for (file, damage) in &damages {
                let path = root.path().join(FILES[*file]);
                let mut text = std::fs::read(&path).unwrap();
                match damage {
                    Damage::Over(at, bytes) => {
                        let at = (*at).min(text.len());
                        let end = (at + bytes.len()).min(text.len());
                        text.splice(at..end, bytes.iter().copied());
                    }
                    Damage::Noise(noise) => text.clone_from(noise),
                }
                std::fs::write(&path, text).unwrap();
            }
        };
        let config = SamplerConfig {
            proc_root: root.path().to_owned(),
            sampling: Sampling { period: None, ..Sampling::default() },
            scan_every: Duration::ZERO,
            ..SamplerConfig::default()
        };
        // Once under a running sampler, once at the start of one.
        let watched = Watched::start(config.clone());
        watched.sampler.mark(Mark::StepEnd(MonoNanos::now()));
        let healthy = watched.next();
        prop_assert!(sample_of(&healthy, 812).is_some());
        do_damage();
        for watched in [watched, Watched::start(config)] {
            watched.sampler.mark(Mark::StepEnd(MonoNanos::now()));
            let sampled = watched.next();
            prop_assert!(sample_of(&sampled, 900).is_some(), "the others go on");
            for sample in &sampled.daemons {
                prop_assert!(sample.figures.cpu_user_us >= 0 && sample.figures.rss_bytes >= 0 && sample.figures.read_bytes >= -1);
            }
            watched.sampler.stop();
        }
    }
}
