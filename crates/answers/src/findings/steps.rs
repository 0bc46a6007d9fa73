//! The steps of a run that have begun, and the windows in which series are read.

use super::{FindingsError, MAX_POINT_US, reading};
use crate::rows::all_rows;
use benchmesh_model::mesh::RunId;
use benchmesh_store::widest_row_s;
use rusqlite::Connection;

/// The newest attempt of a step, and the time in which all its clients were active.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub id: i64,
    /// `records randread on cephfs`.
    pub label: String,
    pub workload: String,
    pub mode: String,
    /// Steps of one load are comparable: the plan gives them the same parameters.
    pub load: String,
    /// Whether it fills its target on purpose.
    pub is_fill: bool,
    /// Whether it may do nothing for a while by itself: it flushes much at once, or replays recorded times.
    pub pauses: bool,
    pub from_us: i64,
    pub until_us: i64,
    pub has_ended: bool,
    /// The width of a row of its time line.
    pub period_us: i64,
}

impl Step {
    pub fn length_us(&self) -> i64 {
        self.until_us - self.from_us
    }

    /// At most `count` windows over the step, each with at least a row of its time line.
    pub fn windows(&self, count: usize) -> Vec<Window> {
        let rows = usize::try_from(self.length_us() / self.period_us.max(1)).unwrap_or(usize::MAX);
        let count = count.min(rows);
        windows(self.from_us, self.until_us, count, self.period_us)
    }
}

/// A span of time that gives one point of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub from_us: i64,
    pub until_us: i64,
}

const STEPS: &str = concat!("
    SELECT s.id, s.phase, coalesce(s.target, ''), s.mode, s.workload, s.params,
           coalesce(s.all_active_from_us, s.measured_from_us, s.start_us),
           coalesce(s.all_active_until_us, s.last_done_us, s.ended_us,
                    (SELECT max(i.at_us) FROM step_intervals AS i WHERE i.step_id = s.id)),
           s.ended_us IS NOT NULL, ", widest_row_s!("s"), " * 1000000, s.cache,
           s.workload = 'fill' OR EXISTS (SELECT 1 FROM step_groups AS g WHERE g.step_id = s.id AND g.workload = 'fill'),
           s.workload = 'replay' OR coalesce(s.params ->> 'fsync', 0) > 1 OR coalesce(s.params ->> 'end_fsync', 0) > 0
             OR EXISTS (SELECT 1 FROM step_groups AS g WHERE g.step_id = s.id AND (g.workload = 'replay'
                 OR coalesce(g.params ->> 'fsync', 0) > 1 OR coalesce(g.params ->> 'end_fsync', 0) > 0))
    FROM steps AS s
    WHERE s.run_id = ?1 AND s.start_us IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal AND n.attempt > s.attempt)
    ORDER BY s.start_us");

type StepColumns = (
    i64,
    String,
    String,
    String,
    String,
    String,
    i64,
    Option<i64>,
    bool,
    i64,
    String,
    bool,
    bool,
);

pub(super) fn load(connection: &Connection, run: RunId) -> Result<Vec<Step>, FindingsError> {
    let rows: Vec<StepColumns> =
        all_rows(connection, STEPS, &[run.0.into()]).map_err(reading("steps"))?;
    let steps = rows.into_iter().filter_map(|row| {
        let (
            id,
            phase,
            target,
            mode,
            workload,
            params,
            from_us,
            until_us,
            has_ended,
            period_us,
            cache,
            is_fill,
            pauses,
        ) = row;
        let until_us = until_us.filter(|until| *until > from_us)?;
        let label = match target.as_str() {
            "" => format!("{phase} {mode}"),
            target => format!("{phase} {mode} on {target}"),
        };
        Some(Step {
            load: format!("{label} {workload} {params} {cache}"),
            id,
            label,
            workload,
            mode,
            is_fill,
            pauses,
            from_us,
            until_us,
            has_ended,
            period_us,
        })
    });
    Ok(steps.collect())
}

impl Window {
    pub fn length_us(&self) -> i64 {
        self.until_us - self.from_us
    }
}

/// `count` windows of equal length, spread over a span. In a long span each window covers only a part of its share, but
/// at least a row of `period_us`.
pub(super) fn windows(from_us: i64, until_us: i64, count: usize, period_us: i64) -> Vec<Window> {
    let count = i64::try_from(count).unwrap_or(1).max(1);
    let step = (until_us - from_us) / count;
    let width = step.min(MAX_POINT_US.max(period_us));
    (0..count)
        .map(|place| {
            let begin = from_us + step * place + (step - width) / 2;
            Window {
                from_us: begin,
                until_us: begin + width,
            }
        })
        .filter(|window| window.until_us > window.from_us)
        .collect()
}

/// The JSON that the statements take: an array of pairs.
pub(super) fn json(windows: &[Window]) -> String {
    let pairs: Vec<[i64; 2]> = windows
        .iter()
        .map(|window| [window.from_us, window.until_us])
        .collect();
    serde_json::Value::from_iter(pairs.iter().map(|pair| pair.to_vec())).to_string()
}
