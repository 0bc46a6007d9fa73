//! Stops many working agents at the same time, and measures how long they continue, from the kernel's count and from
//! their own reports.

use super::clients::Workers;
use super::database::Row;
use super::mesh::Mesh;
use super::plan::{self, READS};
use super::wait::{until, until_true};
use std::time::{Duration, Instant};

/// No operation may begin this long after a stop.
pub const QUIET_AFTER: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(90);

/// A mesh of agents that load one target.
#[derive(Debug)]
pub struct Stops {
    mesh: Mesh,
    names: Vec<String>,
    target: tempfile::TempDir,
}

/// The result of one stop.
#[derive(Debug)]
pub struct Stopped {
    /// From before the command was typed to the last read call of any worker, rounded up to the next check.
    pub after_command: Duration,
    /// Time from the collector's receipt of the stop request to the begin of the last operation, by the agents'
    /// reports: microseconds, 0 if none began later.
    pub after_wish_us: i64,
    pub tasks: i64,
    pub tasks_untold: i64,
    pub severity: String,
}

impl Stops {
    pub fn with(agents: usize) -> Self {
        let target = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..agents).map(|index| format!("n{index:02}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let mesh = Mesh::of(&all, target.path());
        Self {
            mesh,
            names,
            target,
        }
    }

    pub fn mesh(&mut self) -> &mut Mesh {
        &mut self.mesh
    }

    /// The processes of the agents, ordered by name.
    pub fn pids(&self) -> Vec<u32> {
        let pids = self.names.iter().map(|name| self.mesh.agent(name).pid());
        pids.collect()
    }

    /// Paced, so that every agent has work and none waits for a CPU.
    pub fn plan(&self) -> String {
        plan::on(
            self.target.path(),
            "loss-after = \"2s\"",
            &format!("{READS}runtime = \"300s\"\nrate_iops = 20"),
        )
    }

    /// Waits until all of them run load, and ends the load by `end`.
    fn ended_by(&mut self, plan: &str, state: &str, end: impl FnOnce(&mut Mesh)) -> Stopped {
        let mut run = self.mesh.begin(plan);
        until_true("all have been armed", LIMIT, || {
            let sql = "SELECT count(*) FROM tasks WHERE state = 'running' AND step_id = (SELECT max(id) FROM steps)";
            self.mesh.db().one::<i64>(sql) == self.names.len() as i64
        });
        let workers = Workers::of(&self.pids());
        let (asked, clients) = workers.during(|| {
            let asked = Instant::now();
            end(&mut self.mesh);
            self.mesh.until_run_is(&[state], LIMIT);
            until_true("the load is over", LIMIT, || workers.are_gone());
            asked
        });
        run.exit_within(LIMIT).unwrap();
        let quiet = clients.quiet_from().unwrap();
        let told = until("the end of the load is told", LIMIT, || {
            self.told_of_the_last_run().pop()
        });
        let wished = told.integer("stopped_us");
        Stopped {
            after_command: quiet.saturating_duration_since(asked),
            after_wish_us: (told.integer("last_begun_us") - wished).max(0),
            tasks: told.integer("tasks"),
            tasks_untold: told.integer("untold"),
            severity: told.text("severity"),
        }
    }

    /// The request, the begin of the last operation from the rows of the tasks, and the event's value.
    fn told_of_the_last_run(&self) -> Vec<Row> {
        self.mesh.db().rows(
            "SELECT e.severity, e.detail ->> 'stopped_us' AS stopped_us, e.detail ->> 'tasks' AS tasks,
                    e.detail ->> 'tasks_untold' AS untold,
                    (SELECT max(t.last_begun_us) FROM tasks t WHERE t.step_id = e.step_id) AS last_begun_us
             FROM events e WHERE e.kind = 'load-stopped' AND e.run_id = (SELECT max(id) FROM runs)",
        )
    }

    /// One round: all agents working, then `benchmesh stop`.
    pub fn by_command(&mut self) -> Stopped {
        let plan = self.plan();
        self.ended_by(&plan, "stopped", |mesh| {
            let output = mesh.command(&["stop", "last"]);
            assert!(output.all().contains("stop"), "{}", output.all());
        })
    }

    /// All agents working; the loss of one ends the run by its policy.
    pub fn by_policy(&mut self) -> Stopped {
        let plan = format!("on-loss = \"abort\"\n{}", self.plan());
        let lost = self.names[0].clone();
        self.ended_by(&plan, "failed", |mesh| mesh.kill_agent(&lost))
    }
}
