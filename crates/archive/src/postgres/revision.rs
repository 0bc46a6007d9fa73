//! Tells whether the archive's copy of a run is what its collector has: a digest that costs a fraction of a push.
//!
//! Rows of seconds are counted, since late data add some; what late data change in a row of intervals changes the results
//! too. All other rows of the run are hashed: results, events, tags, notes, findings. Rows that runs share are left out, because they change without the run: an
//! agent is seen again, a daemon ends.

use super::fnv::Fnv;
use crate::retention::{Counts, is_counted};
use crate::source::{RunRows, SHARED, SourceError};
use crate::tables::Table;
use rusqlite::types::ValueRef;
use std::fmt::Write;

/// The state of a run in its collector's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// What the archive stores; equal texts mean equal runs.
    pub text: String,
    /// The numbers of rows that are counted, by table.
    pub seconds: Counts,
    pub other_rows: u64,
    pub steps: Vec<i64>,
}

impl Revision {
    pub fn of(rows: &RunRows<'_>, tables: &[Table]) -> Result<Self, SourceError> {
        let mut hash = Fnv::default();
        let mut seconds = Counts::new();
        let (mut other_rows, mut steps) = (0, Vec::new());
        for table in tables {
            if is_counted(table) {
                seconds.insert(table.name.clone(), rows.count(table)?);
                continue;
            }
            if SHARED.contains(&table.name.as_str()) {
                other_rows += rows.count(table)?;
                continue;
            }
            hash.bytes(table.name.as_bytes());
            other_rows += rows.read(table, |values| {
                if let ("steps", Some(ValueRef::Integer(id))) =
                    (table.name.as_str(), values.first())
                {
                    steps.push(*id);
                }
                for value in values {
                    add(&mut hash, *value);
                }
                Ok::<_, SourceError>(())
            })?;
        }
        let mut text = hash.to_string();
        for (table, rows) in &seconds {
            let _ = write!(text, " {table}={rows}");
        }
        Ok(Self {
            text,
            seconds,
            other_rows,
            steps,
        })
    }

    pub fn all_rows(&self) -> u64 {
        self.other_rows + self.seconds.values().sum::<u64>()
    }
}

fn add(hash: &mut Fnv, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => hash.bytes(&[0]),
        ValueRef::Integer(value) => {
            hash.bytes(&[1]);
            hash.bytes(&value.to_le_bytes());
        }
        ValueRef::Real(value) => {
            hash.bytes(&[2]);
            hash.bytes(&value.to_bits().to_le_bytes());
        }
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            hash.bytes(&[3]);
            hash.bytes(&bytes.len().to_le_bytes());
            hash.bytes(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::source::Source;
    use crate::tables;
    use benchmesh_synthetic::{Shape, generate};
    use rusqlite::Connection;

    #[test]
    fn what_changes_a_run_changes_its_revision_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small.db");
        generate(&path, &Shape::small()).unwrap();
        let revision = || {
            let source = Source::open(&path).unwrap();
            let run = source.find("1").unwrap();
            Revision::of(&source.begin(run).unwrap(), source.tables()).unwrap()
        };
        let file = Connection::open(&path).unwrap();
        let first = revision();
        assert!(first.seconds.values().any(|rows| *rows > 0), "{first:?}");
        assert!(!first.steps.is_empty());
        for sql in [
            "UPDATE agents SET last_seen_us = last_seen_us + 1",
            "UPDATE daemons SET last_seen_us = last_seen_us + 1",
            "INSERT INTO run_tags VALUES (2, 'pool', 'ssd')",
            "DELETE FROM op_intervals WHERE task_id IN (SELECT t.id FROM tasks t JOIN steps s ON s.id = step_id
             WHERE run_id = 2)",
        ] {
            assert!(file.execute(sql, []).unwrap() > 0, "{sql}");
            assert_eq!(revision(), first, "{sql}");
        }
        let mut before = first.clone();
        for sql in [
            "INSERT INTO run_tags VALUES (1, 'pool', 'ssd')",
            "UPDATE run_tags SET value = 'hdd' WHERE run_id = 1",
            "INSERT INTO run_notes (run_id, at_us, text) VALUES (1, 5, 'after the update')",
            "UPDATE step_results SET ops = ops + 1 WHERE id = (SELECT min(id) FROM step_results)",
            "INSERT INTO findings (run_id, kind, verdict, severity, subject, sentence)
             VALUES (1, 'leak', 'found', 'warning', 'osd.1', 'It grows.')",
            "INSERT INTO op_intervals SELECT 1000000000, task_id, at_us + 1, span_us, op, ramp, ops, bytes,
             undated_bytes, errors, in_flight, service_count, service_sum_ns, service_sum_squares_ns2, service_min_ns,
             service_p50_ns, service_p99_ns, service_max_ns, service_saturated, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
             NULL, NULL FROM op_intervals WHERE id = 1",
            "DELETE FROM daemon_samples WHERE at_us = (SELECT started_us / 1000000 * 1000000 + 5000000 FROM runs
             WHERE id = 1)",
        ] {
            assert!(file.execute(sql, []).unwrap() > 0, "{sql}");
            let after = revision();
            assert_ne!(after.text, before.text, "{sql}");
            before = after;
        }
    }

    #[test]
    fn the_shared_tables_are_tables_with_an_id() {
        let known = tables::known().unwrap();
        for name in SHARED {
            let table = known.iter().find(|one| one.name == name).unwrap();
            assert_eq!(table.key, ["id"], "{name}");
        }
    }
}
