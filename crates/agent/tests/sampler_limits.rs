//! With too few file descriptors, every daemon is still sampled. A single test, because the limit applies to the whole
//! process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "sampler_support/children.rs"]
mod children;

use benchmesh_testing::{measured, timing};
use std::time::Duration;

use children::{Child, Life, Watched, sample_of, seen_of, unique};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn more_daemons_than_files_may_be_open() {
    measured(|| {
        const MANY: usize = 40;
        let limit = Rlimit {
            current: Some(100),
            maximum: Some(200),
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let comm = unique("files");
        let mut children: Vec<Child> = (0..MANY)
            .map(|_| Child::start(&comm, Life::Burn { percent: 1 }))
            .collect();
        let watched = Watched::comm(&comm, Some(Duration::from_millis(100)));
        assert_eq!(
            getrlimit(Resource::Nofile).current,
            Some(200),
            "it raises the limit to what is allowed"
        );

        let all = |sampled: &benchmesh_agent::sampler::Sampled| {
            children.iter().all(|child| {
                sample_of(sampled, child.pid).is_some_and(|sample| sample.figures.rss_bytes > 0)
            })
        };
        let first = watched.until(|sampled| all(sampled).then(|| sampled.clone()));
        let later = watched.until(|sampled| {
            (sampled.at.since(first.at) >= Duration::from_secs(1)).then(|| sampled.clone())
        });
        let cpu_us = |sampled, pid| {
            sample_of(sampled, pid)
                .map(|sample| sample.figures.cpu_user_us + sample.figures.cpu_system_us)
        };
        for child in &children {
            timing!(
                cpu_us(&later, child.pid) > cpu_us(&first, child.pid),
                "{} goes on",
                child.pid
            );
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(
            open < 150,
            "{open} files are open: there is room for others"
        );

        // The end of a daemon whose files are not kept open is found too.
        let last = children.pop().unwrap();
        let pid = last.pid;
        drop(last);
        watched.until(|sampled| seen_of(sampled, pid).filter(|seen| seen.ended));
        Ok(())
    });
}
