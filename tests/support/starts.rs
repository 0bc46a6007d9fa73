//! The true starts of workers, independent of the reported ones: each agent writes the raw readings of its monotonic
//! clock to a file, and on one machine those clocks differ only by a known shift.

use super::database::Database;
use super::mesh::Agent;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Agents on this machine that log their starts.
#[derive(Debug)]
pub struct StartLogs {
    directory: PathBuf,
    /// How far each agent's clock is ahead of this process's.
    ahead: BTreeMap<String, Duration>,
    /// Parts per million by which the collector's clock runs fast.
    fast_ppm: i32,
}

/// One task's start.
#[derive(Debug, Clone, Copy)]
pub struct TaskStart {
    pub task: i64,
    pub step: i64,
    /// Start of the first and the last worker, in nanoseconds of this machine's clock.
    pub first_ns: i64,
    pub last_ns: i64,
    /// True delay of the last worker after the common instant.
    pub true_skew_us: f64,
    pub skew_us: i64,
    pub error_us: i64,
}

impl TaskStart {
    /// Error of the reported skew.
    pub fn off_us(&self) -> f64 {
        (self.true_skew_us - self.skew_us as f64).abs()
    }
}

impl StartLogs {
    pub fn new(directory: &Path, fast_ppm: i32) -> Self {
        Self {
            directory: directory.to_owned(),
            ahead: BTreeMap::new(),
            fast_ppm,
        }
    }

    /// An agent that logs its starts, with clocks that are `ahead` of all others.
    pub fn agent(&mut self, name: &str, ahead: Duration) -> Agent {
        self.ahead.insert(name.to_owned(), ahead);
        let agent = Agent::named(name)
            .argument("--start-log")
            .argument(self.file(name).to_str().unwrap());
        match ahead.as_secs() {
            0 => agent,
            _ => agent.clock_ahead(ahead),
        }
    }

    fn file(&self, agent: &str) -> PathBuf {
        self.directory.join(format!("starts-{agent}"))
    }

    /// Every started task of the database, by step.
    pub fn read(&self, db: &Database) -> BTreeMap<i64, Vec<TaskStart>> {
        let anchor =
            &db.rows("SELECT clock_boottime_ns AS boot, clock_mesh_us AS mesh FROM meta")[0];
        let (boot, mesh) = (anchor.integer("boot"), anchor.integer("mesh"));
        let shift = boottime_less_monotonic_ns();
        let rate = 1.0 + f64::from(self.fast_ppm) / 1e6;
        let to_mesh_us = |raw: i64| mesh as f64 + (raw + shift - boot) as f64 * rate / 1000.0;
        let mut steps: BTreeMap<i64, Vec<TaskStart>> = BTreeMap::new();
        for (agent, ahead) in &self.ahead {
            let raw = raw_starts(&self.file(agent), *ahead);
            let sql = format!(
                "SELECT t.id, t.step_id, t.start_us, t.skew_us, t.skew_error_us FROM tasks t
                 JOIN agents a ON a.id = t.agent_id WHERE a.name = '{agent}' AND t.state = 'done'"
            );
            for row in db.rows(&sql) {
                let task: i64 = row.integer("id");
                let (first_ns, last_ns) = raw[&task];
                let start: i64 = row.integer("start_us");
                steps
                    .entry(row.integer("step_id"))
                    .or_default()
                    .push(TaskStart {
                        task,
                        step: row.integer("step_id"),
                        first_ns,
                        last_ns,
                        true_skew_us: to_mesh_us(last_ns) - start as f64,
                        skew_us: row.integer("skew_us"),
                        error_us: row.integer("skew_error_us"),
                    });
            }
        }
        steps
    }
}

/// The time between the first and the last worker of a step.
pub fn spread_us(tasks: &[TaskStart]) -> f64 {
    let first = tasks.iter().map(|task| task.first_ns).min().unwrap();
    let last = tasks.iter().map(|task| task.last_ns).max().unwrap();
    (last - first) as f64 / 1000.0
}

/// For each task in the file: the start of its first and its last worker on this process's clock.
fn raw_starts(file: &Path, ahead: Duration) -> BTreeMap<i64, (i64, i64)> {
    let text = std::fs::read_to_string(file)
        .unwrap_or_else(|error| panic!("read {}: {error}", file.display()));
    let mut starts: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for line in text.lines() {
        let numbers: Vec<i64> = line
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let at = numbers[2] - ahead.as_nanos() as i64;
        let entry = starts.entry(numbers[0]).or_insert((at, at));
        *entry = (entry.0.min(at), entry.1.max(at));
    }
    starts
}

/// Zero unless the machine was suspended.
fn boottime_less_monotonic_ns() -> i64 {
    let read = |clock| {
        let now = rustix::time::clock_gettime(clock);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    let (monotonic, boottime) = (
        read(rustix::time::ClockId::Monotonic),
        read(rustix::time::ClockId::Boottime),
    );
    // Two readings are a moment apart; a suspension lasts longer.
    match boottime - monotonic {
        moment if moment < 1_000_000 => 0,
        slept => slept,
    }
}
