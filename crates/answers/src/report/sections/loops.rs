//! The results by loop: the tables of the phases with a row per loop.

use super::pivot::{self, Axes};
use crate::report::{Report, Table};
use std::collections::BTreeSet;

/// Maximum number of loops with a row. Of more, this number at even distances is shown, including the first and the
/// last.
const SHOWN: usize = 40;

/// One row per loop; empty if the run had one loop.
pub(in crate::report) fn tables(report: &Report, width: Option<usize>) -> Vec<Table> {
    let loops: BTreeSet<i64> = report.steps.iter().map(|step| step.loop_number).collect();
    if loops.len() < 2 {
        return Vec::new();
    }
    let shown: BTreeSet<i64> = evenly(&loops.iter().copied().collect::<Vec<_>>(), SHOWN);
    let mut of_loops = Report {
        steps: report
            .steps
            .iter()
            .filter(|step| shown.contains(&step.loop_number))
            .cloned()
            .collect(),
        ..report.clone()
    };
    let axes = Axes {
        rows: vec![String::from("loop")],
        columns: Vec::new(),
    };
    of_loops.phases = pivot::phases(&of_loops, &axes);
    let mut tables = pivot::tables(&of_loops, width);
    for table in &mut tables {
        table.title = format!("Loop by loop: {}", table.title);
        table.notes.clear();
    }
    if let Some(last) = tables.last_mut()
        && shown.len() < loops.len()
    {
        last.notes.push(format!(
            "{} of {} loops; v_results has all, with the column `loop`.",
            shown.len(),
            loops.len()
        ));
    }
    tables
}

/// At most `most` of the values, at even distances.
fn evenly(values: &[i64], most: usize) -> BTreeSet<i64> {
    let last = values.len().saturating_sub(1);
    match values.len() <= most {
        true => values.iter().copied().collect(),
        false => (0..most)
            .filter_map(|place| values.get(place * last / (most - 1)).copied())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_of_many_loops_are_shown() {
        let all: Vec<i64> = (1..=1000).collect();
        let shown = evenly(&all, 40);
        assert_eq!(shown.len(), 40);
        assert_eq!((shown.first(), shown.last()), (Some(&1), Some(&1000)));
        assert_eq!(evenly(&[1, 2, 3], 40).len(), 3);
    }
}
