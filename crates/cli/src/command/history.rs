//! Generated databases, for tests of what commands print about runs.
#![allow(clippy::unwrap_used)]

use benchmesh_synthetic::soak::{Planted, Soak, soaks};
use benchmesh_synthetic::{Shape, generate};
use std::future::Future;
use std::path::PathBuf;
use tempfile::TempDir;

/// The width of what tests print, whatever the terminal.
pub const WIDTH: usize = 120;

/// Objectives, an event and annotations of the last run of [`History::of_targets`].
const EXTRA_ROWS: &str = "
    INSERT INTO step_objectives (step_id, holds, share, seconds, bad_seconds)
        SELECT id, 'p99 < 10ms for 99% of seconds', 0.99, 6, ordinal = 4 FROM steps WHERE run_id = 2;
    INSERT INTO step_objectives (step_id, holds, share, seconds, bad_seconds)
        SELECT id, 'rate > 100 for 90% of seconds', 0.9, 6, 0 FROM steps WHERE run_id = 2;
    INSERT INTO events (at_us, run_id, step_id, agent_id, severity, kind, message)
        SELECT start_us + 2000000, run_id, id, 2, 'warning', 'stall', 'no operation of worker 3 has ended for 2 s'
        FROM steps WHERE run_id = 2 AND ordinal = 2;
    INSERT INTO marks (run_id, at_us, text)
        SELECT run_id, start_us + 3000000, 'osd.7 out' FROM steps WHERE run_id = 2 AND ordinal = 3;";

/// A database in a directory of its own.
pub struct History(TempDir);

impl History {
    /// Two runs of the plan `nightly` on this number of targets, each with two repeats.
    pub fn of_targets(targets: u32) -> Self {
        let history = Self(TempDir::new().unwrap());
        let shape = Shape {
            hosts: 3,
            daemons_per_host: 7,
            targets,
            step_seconds: 6,
            soak_seconds: 0,
            ..Shape::small()
        };
        generate(&history.path(), &shape).unwrap();
        let file = rusqlite::Connection::open(history.path()).unwrap();
        file.execute_batch(EXTRA_ROWS).unwrap();
        history
    }

    /// A soak with a leak, a stall, and a daemon that is killed.
    pub fn of_soak() -> Self {
        let history = Self(TempDir::new().unwrap());
        let soak = Soak {
            seed: 1,
            seconds: 7200,
            loops: 1,
            sampled_every: 5,
            planted: vec![
                Planted::Leak {
                    daemon: 2,
                    per_hour: 0.2,
                },
                Planted::Stall {
                    at: 1000,
                    seconds: 3,
                },
                Planted::Killed {
                    daemon: 5,
                    at: 2500,
                    back_after: 30,
                },
            ],
        };
        soaks(&history.path(), &[soak]).unwrap();
        history
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("mesh.db")
    }
}

/// Waits for an answer.
pub fn wait<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(answer)
}
