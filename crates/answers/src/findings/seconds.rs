//! The seconds of a step, read once for all kinds that examine each of them.
//!
//! SQLite joins the rows of an hour to one text: returning a row for each of the 259,200 seconds of three days would
//! cost more than all computations on them.

use super::steps::Step;
use super::{FindingsError, reading};
use crate::rows::first_row;
use benchmesh_results::seconds::whole_seconds;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The newest seconds of a running step are incomplete.
const LAG_US: i64 = 3_000_000;
/// The time range that is read at once.
const PART_US: i64 = 3_600_000_000;

const SECONDS: &str = "
    SELECT group_concat(i.at_us || ' ' || i.span_us || ' ' || i.ops || ' ' || coalesce(i.p99_ns, '-') || ' ' ||
                        coalesce(i.max_ns, '-') || ' ' || i.op || ' ' || coalesce(i.group_name, ''), char(10))
    FROM step_intervals AS i WHERE i.step_id = ?1 AND i.at_us >= ?2 AND i.at_us < ?3 AND i.ramp = 0
        AND i.ops IS NOT NULL";

/// One row of a time line.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimelineSecond {
    pub at_us: i64,
    pub span_us: i64,
    pub ops: i64,
    pub p99_ns: Option<i64>,
    pub max_ns: Option<i64>,
}

/// One operation of a group, in order of time.
#[derive(Debug)]
pub(super) struct OpTimeline {
    pub group: String,
    pub op: String,
    pub seconds: Vec<TimelineSecond>,
}

/// The whole seconds in which all clients of a step were active.
pub(super) fn lines(
    connection: &Connection,
    step: &Step,
) -> Result<Vec<OpTimeline>, FindingsError> {
    let until_us = match step.has_ended {
        true => step.until_us,
        false => step.until_us - LAG_US,
    };
    let mut lines: Vec<OpTimeline> = Vec::new();
    let mut from_us = step.from_us;
    while from_us < until_us {
        let next_us = (from_us + PART_US).min(until_us);
        let parameters = [step.id.into(), from_us.into(), next_us.into()];
        let rows: Option<(Option<String>,)> =
            first_row(connection, SECONDS, &parameters).map_err(reading("step_intervals"))?;
        let rows = rows.and_then(|(text,)| text).unwrap_or_default();
        for row in rows.lines() {
            let Some((second, op, group)) = parsed(row) else {
                continue;
            };
            if whole_seconds(second.span_us) == 0 {
                continue;
            }
            match lines
                .iter_mut()
                .find(|line| line.op == op && line.group == group)
            {
                Some(line) => line.seconds.push(second),
                None => lines.push(OpTimeline {
                    group: group.to_owned(),
                    op: op.to_owned(),
                    seconds: vec![second],
                }),
            }
        }
        from_us = next_us;
    }
    for line in &mut lines {
        line.seconds.sort_by_key(|second| second.at_us);
    }
    lines.sort_by(|one, other| (&one.group, &one.op).cmp(&(&other.group, &other.op)));
    Ok(lines)
}

fn parsed(row: &str) -> Option<(TimelineSecond, &str, &str)> {
    let mut parts = row.splitn(7, ' ');
    let mut number = || parts.next()?.parse::<i64>().ok().map(Some).or(Some(None));
    let second = TimelineSecond {
        at_us: number()??,
        span_us: number()??,
        ops: number()??,
        p99_ns: number()?,
        max_ns: number()?,
    };
    Some((second, parts.next()?, parts.next()?))
}

/// All operations of each group together; the p99 is that of the slowest.
pub(super) fn totals(lines: &[OpTimeline]) -> Vec<OpTimeline> {
    let mut groups: Vec<OpTimeline> = Vec::new();
    for of_group in lines.chunk_by(|one, other| one.group == other.group) {
        let mut seconds: BTreeMap<i64, TimelineSecond> = BTreeMap::new();
        for second in of_group.iter().flat_map(|line| &line.seconds) {
            seconds
                .entry(second.at_us)
                .and_modify(|sum| {
                    sum.ops += second.ops;
                    sum.span_us = sum.span_us.max(second.span_us);
                    sum.p99_ns = sum.p99_ns.max(second.p99_ns);
                    sum.max_ns = sum.max_ns.max(second.max_ns);
                })
                .or_insert(*second);
        }
        groups.push(OpTimeline {
            group: of_group
                .first()
                .map(|line| line.group.clone())
                .unwrap_or_default(),
            op: String::new(),
            seconds: seconds.into_values().collect(),
        });
    }
    groups
}
