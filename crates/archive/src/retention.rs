//! Which rows of seconds an archive keeps although its collector's database has merged or deleted them.
//!
//! | table | the archive's rows stay where |
//! | --- | --- |
//! | `op_intervals`, `step_intervals` | one of the two has fewer rows here than there: the one is made of the other |
//! | samples, clock offsets | the table itself has fewer rows here than there |
//! | the columns of `steps` in [`COLUMNS`] | the intervals stay |
//!
//! A run with a step that the archive lacks was resumed: it has seconds that the archive lacks, and nothing stays.

use crate::source::{RunRows, SourceError};
use crate::tables::Table;
use benchmesh_store::run_rows;
use rusqlite::types::ValueRef;
use std::collections::{BTreeMap, BTreeSet};

/// The columns of `steps` that say how its intervals are kept.
pub const COLUMNS: [&str; 5] = [
    "resolution_s",
    "merging",
    "late_batches",
    "merged_10s_until_us",
    "merged_60s_until_us",
];

/// Values of [`COLUMNS`], by the step's id.
pub type StepRetention = BTreeMap<i64, [Option<i64>; COLUMNS.len()]>;

/// Numbers of rows, by table.
pub type Counts = BTreeMap<String, u64>;

/// Whether changes of a table are noticed by the number of its rows: late data add some. A late part of a second that is
/// there already changes a row of intervals, which the results of its step tell.
pub fn is_counted(table: &Table) -> bool {
    table.is_of_seconds() || run_rows::is_limited_to_its_time(&table.name)
}

/// Whether a table has the intervals of a run's steps.
pub fn is_of_steps(table: &Table) -> bool {
    is_counted(table) && (table.has("task_id") || table.has("step_id"))
}

/// The tables whose rows stay as the archive has them. `there` has no table that the archive lacks.
pub fn kept<'t>(
    tables: &'t [Table],
    here: &Counts,
    there: &Counts,
    steps: impl IntoIterator<Item = i64>,
    known: &StepRetention,
) -> BTreeSet<&'t str> {
    if !steps.into_iter().all(|step| known.contains_key(&step)) {
        return BTreeSet::new();
    }
    let is_thinner = |table: &Table| {
        let rows = here.get(&table.name).copied().unwrap_or(0);
        there
            .get(&table.name)
            .is_some_and(|archived| rows < *archived)
    };
    let has_thinner_steps = tables
        .iter()
        .any(|table| is_of_steps(table) && is_thinner(table));
    tables
        .iter()
        .filter(|table| is_counted(table) && there.contains_key(&table.name))
        .filter(|table| match is_of_steps(table) {
            true => has_thinner_steps,
            false => is_thinner(table),
        })
        .map(|table| table.name.as_str())
        .collect()
}

/// How the database keeps the intervals of a run's steps.
pub fn of(rows: &RunRows<'_>, tables: &[Table]) -> Result<StepRetention, SourceError> {
    let mut found = StepRetention::new();
    for table in tables.iter().filter(|table| table.name == "steps") {
        rows.read(table, |values| {
            let Some(ValueRef::Integer(id)) = values.first() else {
                return Ok(());
            };
            let kept = found.entry(*id).or_default();
            for (column, value) in table.columns.iter().zip(values) {
                let at = COLUMNS.iter().position(|name| *name == column.name);
                if let (Some(kept), ValueRef::Integer(value)) =
                    (at.and_then(|at| kept.get_mut(at)), value)
                {
                    *kept = Some(*value);
                }
            }
            Ok::<_, SourceError>(())
        })?;
    }
    Ok(found)
}

/// The values of a step with those of `kept` in [`COLUMNS`]; `None` for rows of other tables and for other steps.
pub fn with_kept<'a>(
    table: &Table,
    values: &[ValueRef<'a>],
    kept: &StepRetention,
) -> Option<Vec<ValueRef<'a>>> {
    let Some(ValueRef::Integer(id)) = values.first() else {
        return None;
    };
    let kept = kept.get(id).filter(|_| table.name == "steps")?;
    let mut values = values.to_vec();
    for (column, value) in table.columns.iter().zip(&mut values) {
        let at = COLUMNS.iter().position(|name| *name == column.name);
        if let Some(archived) = at.and_then(|at| kept.get(at)) {
            *value = archived.map_or(ValueRef::Null, ValueRef::Integer);
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tables;

    #[test]
    fn the_columns_of_retention_are_columns_of_steps() {
        let known = tables::known().unwrap();
        let steps = known.iter().find(|one| one.name == "steps").unwrap();
        assert!(COLUMNS.iter().all(|column| steps.has(column)));
        assert_eq!(steps.columns.first().unwrap().name, "id");
    }

    #[test]
    fn a_table_with_fewer_rows_stays_and_the_others_do_not() {
        let tables = tables::known().unwrap();
        let of_steps = tables.iter().filter(|table| is_of_steps(table));
        let of_steps: Vec<&str> = of_steps.map(|table| table.name.as_str()).collect();
        assert_eq!(of_steps, ["op_intervals", "step_intervals"]);
        let counts = |rows: &[(&str, u64)]| -> Counts {
            rows.iter()
                .map(|(name, rows)| ((*name).to_owned(), *rows))
                .collect()
        };
        let there = counts(&[
            ("daemon_samples", 10),
            ("host_samples", 10),
            ("op_intervals", 10),
            ("step_intervals", 10),
        ]);
        let known = StepRetention::from([(1, Default::default()), (2, Default::default())]);
        let kept = |here: &[(&str, u64)], steps: &[i64]| {
            let mut all = there.clone();
            all.extend(counts(here));
            let kept = kept(&tables, &all, &there, steps.iter().copied(), &known);
            kept.into_iter().collect::<Vec<_>>()
        };
        let no = Vec::<&str>::new();
        assert_eq!(kept(&[], &[1, 2]), no);
        assert_eq!(kept(&[("op_intervals", 12)], &[1, 2]), no);
        // Merged samples do not hold back late intervals.
        assert_eq!(
            kept(&[("daemon_samples", 5), ("op_intervals", 12)], &[1, 2]),
            ["daemon_samples"]
        );
        assert_eq!(
            kept(&[("op_intervals", 5), ("host_samples", 12)], &[1, 2]),
            ["op_intervals", "step_intervals"]
        );
        assert_eq!(
            kept(&[("op_intervals", 12), ("step_intervals", 9)], &[1, 2]),
            ["op_intervals", "step_intervals"]
        );
        // Step 3 is one of a run that was resumed.
        assert_eq!(kept(&[("op_intervals", 5)], &[1, 2, 3]), no);
        // What the archive lacks cannot stay.
        let partial = counts(&[("op_intervals", 10)]);
        let kept = super::kept(
            &tables,
            &counts(&[("op_intervals", 5)]),
            &partial,
            [1],
            &known,
        );
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), ["op_intervals"]);
    }
}
