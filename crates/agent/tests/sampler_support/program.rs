//! Programs with unique names, and a sampler that watches for them.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use benchmesh_agent::sampler::{DaemonSeen, SamplerConfig, Sampling};
use tempfile::TempDir;

use super::children::{Watched, rule, unique};

/// Period of the sampler's ticks.
pub const PERIOD: Duration = Duration::from_millis(100);

/// A program with a unique name.
pub struct Program {
    comm: String,
    directory: TempDir,
}

impl Program {
    pub fn new(part: &str) -> Self {
        let program = Self {
            comm: unique(part),
            directory: tempfile::tempdir().unwrap(),
        };
        symlink("/bin/bash", program.directory.path().join(&program.comm)).unwrap();
        program
    }

    /// Starts it; its standard input stays open until the value is dropped, or the process is killed.
    pub fn start(&self, script: &str) -> Child {
        self.start_with(&["-c", script])
    }

    pub fn start_with(&self, arguments: &[&str]) -> Child {
        Command::new(self.directory.path().join(&self.comm))
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Watches for the program: found by the scan at this interval, and by the kernel's events if available.
    pub fn watch(&self, scan_every: Duration) -> Watched {
        let watched = Watched::start(SamplerConfig {
            rules: vec![rule(&self.comm)],
            scan_every,
            sampling: Sampling {
                period: Some(PERIOD),
                ..Sampling::default()
            },
            ..SamplerConfig::default()
        });
        watched.next();
        watched
    }

    pub fn is_own(&self, seen: &DaemonSeen) -> bool {
        seen.name == self.comm
    }
}

pub fn pid(child: &Child) -> i32 {
    child.id().cast_signed()
}
