//! What must hold after a round: each operation is in the database once, or its loss is reported, and nothing is left
//! behind.

use super::tally::{self, Tally};
use super::{AGENTS, Campaign, LIMIT};
use crate::support::database::{Database, Row};
use crate::support::intervals;
use crate::support::mesh::spool_files;
use crate::support::wait::until_true;
use std::collections::BTreeMap;

/// Maximum difference between the end of an operation as seen by the worker and by the file system.
const APART_US: i64 = 500_000;

/// Maximum time before its task's start at which an operation may seem to begin. Shorter than the time between two
/// steps.
const EARLY_US: i64 = 50_000;

/// Maximum number of operations of one task in flight.
const IN_FLIGHT: i64 = 2;

/// A task from the database.
#[derive(Debug)]
struct Task {
    id: i64,
    agent: String,
    #[expect(dead_code, reason = "shown when a check fails")]
    state: String,
    start_us: i64,
    /// Whether it is only in a replaced database. Its start may be after the restore, because agents know it in advance.
    has_vanished: bool,
    ops: BTreeMap<String, i64>,
    /// The end of its last interval.
    until_us: i64,
}

impl Campaign {
    /// Waits until the mesh has delivered everything, ends it, and compares the database with what the workers did.
    pub(super) fn check(mut self) {
        self.mesh
            .until_run_is(&["done", "failed", "stopped"], LIMIT);
        self.mesh.until_attached(&AGENTS);
        let own = AGENTS.len();
        until_true("the run's directories are gone", LIMIT, || {
            self.fs.names().len() <= own
        });
        for name in AGENTS {
            self.mesh.end_agent(name, LIMIT);
        }
        let mut wrong = self.spools_left();
        self.mesh.end_collector(LIMIT);
        let db = self.mesh.db();
        db.assert_sound();
        let state = db.column::<String>("SELECT state FROM runs");
        if state != ["done"] {
            wrong.push(format!("runs are {state:?}"));
        }
        let tally = tally::of(&self.fs);
        let tasks = self.tasks(&db);
        wrong.extend(self.differences(&db, &tasks, &tally));
        wrong.extend(holes_without_loss(&db));
        wrong.extend(self.panics());
        let done: usize = tally.values().map(Vec::len).sum();
        benchmesh_testing::say(&format!(
            "campaign: {done} operations in {} tasks",
            tasks.len()
        ));
        if !wrong.is_empty() {
            let events = db.rows(
                "SELECT e.at_us, a.name, e.kind, e.message, e.detail FROM events e LEFT JOIN agents a ON a.id = e.agent_id ORDER BY e.id",
            );
            for event in events {
                benchmesh_testing::say(&format!("{event:?}"));
            }
            for task in &tasks {
                benchmesh_testing::say(&format!("{task:?}"));
            }
            if let Ok(kept) = std::env::var("BENCHMESH_CAMPAIGN_KEEP") {
                std::fs::copy(self.mesh.db_path(), kept).unwrap();
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Spools that still hold data although everything was delivered. Damaged spools, and those of a replaced database,
    /// are kept and ignored.
    fn spools_left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (name, disk) in AGENTS.iter().zip(&self.disks) {
            let files = spool_files(&disk.path().join("state"));
            let damaged = self.damaged.iter().filter(|it| it == &name).count();
            if files.len() > 2 * damaged + self.restores.len() {
                left.push(format!("spools of {name} are left: {files:?}"));
            }
        }
        left
    }

    fn panics(&self) -> Vec<String> {
        let agents = AGENTS.map(|name| self.mesh.agent(name).log());
        let logs = agents.into_iter().chain([self.mesh.collector().log()]);
        logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| line.contains("panicked at"))
            .collect()
    }

    /// All started tasks, with their rows from all databases: a restored database lacks the rows after its copy.
    fn tasks(&self, db: &Database) -> Vec<Task> {
        let mut tasks: BTreeMap<i64, Task> = BTreeMap::new();
        let mut rows: BTreeMap<(i64, i64, String), Row> = BTreeMap::new();
        let replaced: Vec<Database> = self.replaced.iter().map(|it| Database::open(it)).collect();
        let replaced = replaced.iter().map(|db| (db, true));
        for (db, has_vanished) in replaced.chain([(db, false)]) {
            let found = db.rows(
                "SELECT t.id, a.name, t.state, coalesce(t.start_us, s.start_us) AS start_us FROM tasks t
                 JOIN agents a ON a.id = t.agent_id JOIN steps s ON s.id = t.step_id
                 WHERE coalesce(t.start_us, s.start_us) IS NOT NULL",
            );
            for row in found {
                let task = Task {
                    id: row.integer("id"),
                    agent: row.text("name"),
                    state: row.text("state"),
                    start_us: row.integer("start_us"),
                    has_vanished,
                    ops: BTreeMap::new(),
                    until_us: row.integer("start_us"),
                };
                tasks.insert(task.id, task);
            }
            for row in db.rows("SELECT task_id, at_us, span_us, op, ops, errors FROM op_intervals")
            {
                let key = (row.integer("task_id"), row.integer("at_us"), row.text("op"));
                rows.insert(key, row);
            }
        }
        for ((id, at_us, op), row) in rows {
            let task = tasks.get_mut(&id).expect("the task of a row");
            *task.ops.entry(op).or_default() += row.integer("ops");
            task.until_us = task.until_us.max(at_us + row.integer("span_us"));
        }
        let mut tasks: Vec<Task> = tasks.into_values().collect();
        tasks.sort_by_key(|task| task.start_us);
        tasks
    }

    /// Every difference between a task's rows and what its workers did.
    fn differences(&self, db: &Database, tasks: &[Task], tally: &Tally) -> Vec<String> {
        let mut wrong = Vec::new();
        for ((agent, op), calls) in tally {
            let own: Vec<&Task> = tasks.iter().filter(|task| task.agent == *agent).collect();
            let mut left = &calls[..];
            for (at, task) in own.iter().enumerate() {
                let until = own
                    .get(at + 1)
                    .map_or(i64::MAX, |next| next.start_us - EARLY_US);
                let before = left.partition_point(|(began, _)| *began < task.start_us - EARLY_US);
                if before > 0 {
                    wrong.push(format!("{before} {op} of {agent} before {task:?}"));
                }
                let stored = task.ops.get(*op).copied().unwrap_or(0);
                let mut end = left.partition_point(|(began, _)| *began < until);
                // An agent that was suspended ends its step late: its last operations fall into the time of the next
                // step.
                let late = stored - (end - before.min(end)) as i64;
                if (1..=IN_FLIGHT).contains(&late) {
                    end = left.len().min(end + late as usize);
                }
                let calls = &left[before.min(end)..end];
                left = &left[end..];
                if let Some(what) = self.difference(db, task, calls, stored, until) {
                    wrong.push(format!("{op} of {agent}: {what} {task:?}"));
                }
            }
            if !left.is_empty() {
                wrong.push(format!("{} {op} of {agent} without a task", left.len()));
            }
        }
        wrong
    }

    fn difference(
        &self,
        db: &Database,
        task: &Task,
        calls: &[(i64, i64)],
        stored: i64,
        until: i64,
    ) -> Option<String> {
        let did = calls.len() as i64;
        if stored == did {
            return None;
        }
        let within = |at: i64| (task.start_us..until).contains(&at);
        let is_killed = self
            .kills
            .iter()
            .any(|(name, at)| *name == task.agent && within(*at));
        let is_restored = self
            .restores
            .iter()
            .any(|at| within(*at) || task.has_vanished && *at < task.start_us);
        let is_unreadable = self.is_unreadable(db, task);
        // A killed agent may lose what it had not yet written: operations after its last row, in a second that has no
        // row. A spool that is too damaged to be opened loses all that was not sent.
        let is_cut = |ended: i64| {
            (is_killed || is_restored || is_unreadable) && ended > task.until_us - APART_US
        };
        let losses = self.losses(db, task);
        let is_told = |ended: i64| {
            losses
                .iter()
                .any(|(from, until)| (*from..*until).contains(&ended))
        };
        let may_lack = calls
            .iter()
            .filter(|(_, ended)| is_cut(*ended) || is_told(*ended))
            .count() as i64;
        if (did - may_lack..did).contains(&stored) {
            return None;
        }
        Some(format!(
            "{did} done, {stored} stored, {may_lack} may be missing; killed {is_killed}, restored {is_restored}, \
             unreadable {is_unreadable}"
        ))
    }

    /// Whether the agent reported after the task's start that a spool of it was damaged too much to be read.
    fn is_unreadable(&self, db: &Database, task: &Task) -> bool {
        if !self.damaged.iter().any(|name| *name == task.agent) {
            return false;
        }
        let reports = db.one::<i64>(&format!(
            "SELECT count(*) FROM events e JOIN agents a ON a.id = e.agent_id
             WHERE a.name = '{}' AND e.kind = 'spool-unreadable' AND e.at_us >= {}",
            task.agent, task.start_us
        ));
        reports > 0
    }

    /// The times of losses of an agent with a damaged spool, including the second of the rows in them.
    fn losses(&self, db: &Database, task: &Task) -> Vec<(i64, i64)> {
        if !self.damaged.iter().any(|name| *name == task.agent) {
            return Vec::new();
        }
        let rows = db.rows(&format!(
            "SELECT l.from_us - 1000000 AS from_us, l.until_us + 1000000 AS until_us
             FROM losses l JOIN agents a ON a.id = l.agent_id
             WHERE a.name = '{}' AND l.what IN ('batches', 'operations')",
            task.agent
        ));
        rows.iter()
            .map(|row| (row.integer("from_us"), row.integer("until_us")))
            .collect()
    }
}

/// Seconds that are missing without a loss that covers them, and duplicate seconds.
fn holes_without_loss(db: &Database) -> Vec<String> {
    let is_told = |hole: &intervals::Break| {
        let task = hole.task;
        db.one::<i64>(&format!(
            "SELECT count(*) FROM losses l JOIN tasks t ON t.agent_id = l.agent_id
             WHERE t.id = {task} AND l.what IN ('batches', 'operations') AND l.from_us < {} AND l.until_us > {}",
            hole.from_us + hole.apart_us, hole.from_us
        )) > 0
    };
    let breaks = intervals::breaks_of(db).into_iter();
    breaks
        .filter(|hole| hole.apart_us < 0 || !is_told(hole))
        .map(|hole| hole.to_string())
        .collect()
}
