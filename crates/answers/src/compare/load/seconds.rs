//! The seconds of one operation of a step; at most [`MAX_SECONDS`] are read.

use super::{CompareError, reading};
use crate::rows::{all_rows, first_row};
use benchmesh_analysis::{Second, Series};
use benchmesh_results::PERIOD_US;
use benchmesh_store::widest_row_s;
use benchmesh_workloads::histogram::Histogram;
use rusqlite::Connection;
use rusqlite::types::Value;
use std::collections::BTreeMap;

/// Maximum number of seconds of one operation of a step that are read.
const MAX_SECONDS: i64 = 4096;
/// Maximum number of task intervals that are read per step.
const MAX_RESPONSES: i64 = 50_000;
/// Number of consecutive seconds that are read at a time from a longer step.
const STRETCH: i64 = 16;

/// The length of the longest rows of a step.
const PERIOD: &str = concat!(
    "SELECT ",
    widest_row_s!("steps"),
    " * ? FROM steps WHERE id = ?"
);

const SECONDS: &str = "
    SELECT span_us, ops, mean_ns, histogram FROM step_intervals
    WHERE step_id = ? AND at_us >= ? AND at_us <= ? AND ops IS NOT NULL
        AND op = ? AND ramp = 0 AND coalesce(group_name, '') = ? AND at_us + span_us <= ? ORDER BY at_us";

/// Span, operations, mean and histogram.
type StoredSecond = (i64, i64, Option<f64>, Option<Vec<u8>>);

/// The seconds of one operation of a step, from its all-active window if it has one.
pub(super) fn series(
    connection: &Connection,
    step: i64,
    (group, op): (&str, &str),
    window: Option<(i64, i64)>,
) -> Result<Option<Series>, CompareError> {
    let (from, until) = window.unwrap_or((i64::MIN, i64::MAX));
    let [op, group] = [op, group].map(|text| Value::from(text.to_owned()));
    let mut edges = Vec::with_capacity(2);
    for order in ["ASC", "DESC"] {
        // Reads through the index, from either end.
        let edge = format!(
            "SELECT at_us FROM step_intervals WHERE step_id = ? AND at_us >= ? AND at_us < ? AND op = ? AND ramp = 0
                 AND coalesce(group_name, '') = ? ORDER BY at_us {order} LIMIT 1"
        );
        let parameters = [
            step.into(),
            from.into(),
            until.into(),
            op.clone(),
            group.clone(),
        ];
        let at: Option<(i64,)> =
            first_row(connection, &edge, &parameters).map_err(reading("step_intervals"))?;
        edges.extend(at);
    }
    let [(first,), (last,)] = *edges.as_slice() else {
        return Ok(None);
    };
    let period_us: i64 = connection
        .query_row(PERIOD, [PERIOD_US, step], |row| row.get(0))
        .map_err(reading("steps"))?;
    let mut seconds = Vec::new();
    for (begin, end) in stretches(first, last, period_us) {
        let parameters = [
            step.into(),
            begin.into(),
            end.into(),
            op.clone(),
            group.clone(),
            until.into(),
        ];
        let rows: Vec<StoredSecond> =
            all_rows(connection, SECONDS, &parameters).map_err(reading("step_intervals"))?;
        for row in rows {
            seconds.push(second(row, step)?);
        }
    }
    Ok((!seconds.is_empty()).then(|| Series::new(&seconds)))
}

/// The intervals to read between two instants: all, or stretches spread over them.
fn stretches(first: i64, last: i64, period_us: i64) -> Vec<(i64, i64)> {
    if (last - first) / period_us < MAX_SECONDS {
        return vec![(first, last)];
    }
    let parts = MAX_SECONDS / STRETCH;
    (0..parts)
        .map(|part| {
            let begin = first + (last - first) / parts * part;
            (begin, begin + period_us * (STRETCH - 1))
        })
        .collect()
}

const RESPONSES: &str = "
    SELECT i.at_us, i.span_us, i.ops, i.response_sum_ns, i.response_histogram
    FROM tasks AS t CROSS JOIN op_intervals AS i ON i.task_id = t.id AND i.at_us >= ? AND i.at_us < ?
    WHERE t.step_id = ? AND i.op = ? AND i.ramp = 0 AND coalesce(t.group_name, '') = ? LIMIT ?";

/// Instant, span, operations, sum and histogram of a task's interval.
type StoredResponses = (i64, i64, i64, Option<f64>, Option<Vec<u8>>);

/// The same seconds with the response times; only the intervals of tasks have histograms. `None` if they have been
/// deleted by retention.
pub(super) fn response_series(
    connection: &Connection,
    step: i64,
    (group, op): (&str, &str),
    window: Option<(i64, i64)>,
) -> Result<Option<Series>, CompareError> {
    let (from, until) = window.unwrap_or((i64::MIN, i64::MAX));
    let parameters = [
        from.into(),
        until.into(),
        step.into(),
        op.to_owned().into(),
        group.to_owned().into(),
        MAX_RESPONSES.into(),
    ];
    let rows: Vec<StoredResponses> =
        all_rows(connection, RESPONSES, &parameters).map_err(reading("op_intervals"))?;
    let mut seconds: BTreeMap<i64, (Second, Histogram)> = BTreeMap::new();
    for (at, span, ops, sum, blob) in rows {
        let Some(blob) = blob else { continue };
        let own = Histogram::from_v2_deflate(&blob)
            .map_err(|source| CompareError::Histogram { step, source })?;
        let (second, all) = seconds.entry(at.div_euclid(PERIOD_US)).or_default();
        second.span_us = second.span_us.max(benchmesh_results::real(span));
        second.ops += benchmesh_results::real(ops);
        second.sum_ns += sum.unwrap_or(0.0);
        all.add(&own);
    }
    let seconds: Vec<Second> = seconds
        .into_values()
        .map(|(second, all)| Second {
            latencies: all.filled_slots().collect(),
            ..second
        })
        .collect();
    Ok((!seconds.is_empty()).then(|| Series::new(&seconds)))
}

fn second((span_us, ops, mean_ns, blob): StoredSecond, step: i64) -> Result<Second, CompareError> {
    let latencies = match blob {
        None => Vec::new(),
        Some(blob) => Histogram::from_v2_deflate(&blob)
            .map_err(|source| CompareError::Histogram { step, source })?
            .filled_slots()
            .collect(),
    };
    let ops = benchmesh_results::real(ops);
    Ok(Second {
        span_us: benchmesh_results::real(span_us),
        ops,
        sum_ns: mean_ns.unwrap_or(0.0) * ops,
        latencies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_is_read_in_stretches_spread_over_it() {
        let second = 1_000_000;
        assert_eq!(stretches(0, 599 * second, second), [(0, 599 * second)]);
        let week = 604_800;
        let parts = stretches(0, (week - 1) * second, second);
        assert_eq!(parts.len(), 256);
        let read: i64 = parts
            .iter()
            .map(|(from, until)| (until - from) / second)
            .sum();
        assert!((3800..=4096).contains(&read), "{read}");
        assert!(parts.is_sorted());
        assert!(
            parts
                .last()
                .is_some_and(|(from, _)| *from > 600_000 * second)
        );
    }
}
