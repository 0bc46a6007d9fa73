//! Rows of tasks, runs and steps that do not belong to the agent in this database: they are of a deleted run, another
//! database or another agent; and samples of daemons that were never described. They are left out and counted; the rest
//! of the batch is stored.
//!
//! A task, a run or a step is found by its id, which is unique only within one database. If the agent also sends the
//! run's uid, both must match, because a restored database can assign ids a second time. An event with only a uid
//! belongs to the run with this uid in this database; if there is none, it belongs to no run.

use super::batch::{AgentEvent, Batch, OpInterval, TaskEnd};
use super::cache::Caches;
use super::devices;
use super::source::BatchSource;
use super::statements::{execute, find, one};
use super::tables;
use crate::database::StoreError;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId};
use rusqlite::Connection;
use std::collections::BTreeMap;

const KIND: EventKind = EventKind::RowsLeftOut;
/// Maximum number of runs with an event per agent; the rows of further runs are counted in one more event.
const MAX_RUNS: i64 = 64;

/// Rows left out of a batch, by the uid of their run; the key is empty if the agent sent none.
#[derive(Debug, Default)]
pub(super) struct UnknownRows(BTreeMap<String, Counts>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Counts {
    intervals: i64,
    operations: i64,
    task_ends: i64,
    events: i64,
    #[serde(default)]
    daemon_samples: i64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.intervals = self.intervals.saturating_add(other.intervals);
        self.operations = self.operations.saturating_add(other.operations);
        self.task_ends = self.task_ends.saturating_add(other.task_ends);
        self.events = self.events.saturating_add(other.events);
        self.daemon_samples = self.daemon_samples.saturating_add(other.daemon_samples);
    }
}

/// The detail of an event.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Detail {
    run_uid: String,
    #[serde(flatten)]
    counts: Counts,
}

impl UnknownRows {
    fn of_run(&mut self, run_uid: &str) -> &mut Counts {
        self.0.entry(run_uid.to_owned()).or_default()
    }

    /// Removes the rows from `batch` that do not belong to its agent in this database. Rows removed earlier stay
    /// counted, because a transaction is attempted again with the rest of the batch.
    pub(super) fn take_out(
        &mut self,
        caches: &mut Caches,
        connection: &Connection,
        agent: AgentId,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        retain(&mut batch.op_intervals, |row: &OpInterval| {
            let own = is_own_interval(caches, connection, agent, row)?;
            if !own {
                let counts = self.of_run(&row.run_uid);
                counts.intervals += 1;
                counts.operations = counts.operations.saturating_add(row.ops);
            }
            Ok(own)
        })?;
        retain(&mut batch.task_ends, |row: &TaskEnd| {
            let own = is_own(caches, connection, agent, row.task, &row.run_uid)?;
            if !own {
                self.of_run(&row.run_uid).task_ends += 1;
            }
            Ok(own)
        })?;
        for event in &mut batch.events {
            if event.run.is_none() && event.step.is_none() && !event.run_uid.is_empty() {
                event.run = devices::run_of_uid(connection, &event.run_uid)?;
            }
        }
        retain(&mut batch.events, |row: &AgentEvent| {
            let known = is_known(connection, agent, row)?;
            if !known {
                self.of_run(&row.run_uid).events += 1;
            }
            Ok(known)
        })
    }

    /// Counts samples of daemons that are not in the table. They stay in the batch, so each attempt counts them anew.
    pub(super) fn set_daemon_samples(&mut self, samples: usize) {
        self.of_run("").daemon_samples = i64::try_from(samples).unwrap_or(i64::MAX);
        self.0.retain(|_, counts| *counts != Counts::default());
    }

    /// Adds the removed rows to the agent's event of each run.
    pub(super) fn record(
        &self,
        connection: &Connection,
        source: &BatchSource,
        at: MeshMicros,
    ) -> Result<(), StoreError> {
        for (run_uid, counts) in &self.0 {
            add_to_event(connection, source.agent, run_uid, *counts, at)?;
        }
        Ok(())
    }
}

/// Keeps the rows that satisfy `keep`.
fn retain<T>(
    rows: &mut Vec<T>,
    mut keep: impl FnMut(&T) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    rows.retain(|row| match keep(row) {
        Ok(keep) => keep,
        Err(error) => {
            outcome = Err(error);
            true
        }
    });
    outcome
}

/// A missing uid matches every run.
fn is_same(told: &str, stored: &str) -> bool {
    told.is_empty() || told == stored
}

/// Whether an interval belongs to a task of its agent, and its operation to the task's workload.
pub(super) fn is_own_interval(
    caches: &mut Caches,
    connection: &Connection,
    agent: AgentId,
    row: &OpInterval,
) -> Result<bool, StoreError> {
    let facts = devices::task(caches, connection, row.task)?;
    Ok(facts.is_some_and(|facts| {
        facts.agent == agent
            && is_same(&row.run_uid, &facts.run_uid)
            && (facts.workload).is_none_or(|workload| devices::records(workload, &row.op))
    }))
}

fn is_own(
    caches: &mut Caches,
    connection: &Connection,
    agent: AgentId,
    task: TaskId,
    run_uid: &str,
) -> Result<bool, StoreError> {
    let facts = devices::task(caches, connection, task)?;
    Ok(facts.is_some_and(|facts| facts.agent == agent && is_same(run_uid, &facts.run_uid)))
}

/// Whether the run and the step of an event exist in this database, and the agent takes part in them.
fn is_known(
    connection: &Connection,
    agent: AgentId,
    event: &AgentEvent,
) -> Result<bool, StoreError> {
    if let Some(run) = event.run {
        let stored = devices::run_uid(connection, run)?;
        let is_same = stored.is_some_and(|stored| is_same(&event.run_uid, &stored));
        if !is_same || !devices::takes_part(connection, agent, run)? {
            return Ok(false);
        }
    }
    if let Some(step) = event.step {
        let stored = devices::run_of_step(connection, step)?;
        let Some((run, _)) = stored.filter(|(_, uid)| is_same(&event.run_uid, uid)) else {
            return Ok(false);
        };
        return devices::takes_part(connection, agent, run);
    }
    Ok(true)
}

fn add_to_event(
    connection: &Connection,
    agent: AgentId,
    run_uid: &str,
    mut counts: Counts,
    at: MeshMicros,
) -> Result<(), StoreError> {
    let mut run_uid = run_uid;
    let mut there = recorded(connection, agent, run_uid)?;
    if there.is_none() {
        let runs: i64 = one(
            connection,
            "count the events of an agent",
            "SELECT count(*) FROM events WHERE agent_id = ? AND kind = ?",
            (agent.0, KIND.as_str()),
            |row| row.get(0),
        )?;
        if runs >= MAX_RUNS {
            run_uid = "";
            there = recorded(connection, agent, run_uid)?;
        }
    }
    if let Some((_, before)) = &there {
        counts.add(*before);
    }
    let name = devices::agent_name(connection, agent)?;
    let message = message(&name, run_uid, counts);
    let detail = Detail {
        run_uid: run_uid.to_owned(),
        counts,
    };
    let detail = serde_json::json!(detail).to_string();
    if let Some((id, _)) = there {
        return execute(
            connection,
            "count rows that are left out",
            "UPDATE events SET message = ?, detail = ? WHERE id = ?",
            (message, detail, id),
        )
        .map(drop);
    }
    tracing::warn!("{message}");
    let event = AgentEvent {
        detail_json: Some(detail),
        ..AgentEvent::about_batch(at, KIND, message)
    };
    tables::EVENTS
        .insert(connection, &[event], |event, row| {
            tables::event(agent, event, row);
        })
        .map(drop)
}

/// The agent's event about a run, with its counts.
fn recorded(
    connection: &Connection,
    agent: AgentId,
    run_uid: &str,
) -> Result<Option<(i64, Counts)>, StoreError> {
    let there: Option<(i64, String)> = find(
        connection,
        "look for an event about rows that are left out",
        "SELECT id, detail FROM events WHERE agent_id = ? AND kind = ? AND detail ->> 'run_uid' = ?",
        (agent.0, KIND.as_str(), run_uid),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(there.and_then(|(id, detail)| {
        let detail: Detail = serde_json::from_str(&detail).ok()?;
        Some((id, detail.counts))
    }))
}

fn message(agent: &str, run_uid: &str, counts: Counts) -> String {
    let of = match run_uid {
        "" => String::from("tasks, runs, steps or daemons that are not its own in this database"),
        uid => format!(
            "run {uid}, which this database does not have (it was deleted, or is another database's)"
        ),
    };
    format!(
        "agent `{agent}` sent rows of {of}: {} intervals with {} operations, {} ends of tasks, {} events and {} \
         samples of daemons are left out",
        counts.intervals, counts.operations, counts.task_ends, counts.events, counts.daemon_samples
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another agent of the host may describe a daemon between two attempts.
    #[test]
    fn samples_of_daemons_that_a_later_attempt_finds_are_not_counted() {
        let mut unknown = UnknownRows::default();
        unknown.set_daemon_samples(3);
        unknown.set_daemon_samples(0);
        assert!(unknown.0.is_empty(), "{unknown:?}");
        unknown.set_daemon_samples(3);
        unknown.of_run("").events = 1;
        unknown.set_daemon_samples(0);
        let counts = unknown.of_run("");
        assert_eq!((counts.events, counts.daemon_samples), (1, 0));
    }
}
