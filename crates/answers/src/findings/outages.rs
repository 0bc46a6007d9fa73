//! Outages: seconds at or near zero in a step, over all operations of a group.

use super::beside::Events;
use super::mesh::Mesh;
use super::seconds::{OpTimeline, TimelineSecond};
use super::steps::Step;
use super::{FindingsError, finite, reading, some_of};
use crate::rows::all_rows;
use benchmesh_analysis::gaps::{Gap, MIN_RATE, NEAR_ZERO, gaps, is_outage, working_rate};
use benchmesh_model::mesh::{FindingVerdict, Severity};
use benchmesh_results::outage::{Outage, outage};
use benchmesh_results::{self as results, Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;

/// Time after the longest gap for the load to recover.
const RECOVERY_US: i64 = 30_000_000;
/// A gap of this length is an error, as is a step that stood still for most of its time.
const LONG_US: i64 = 10_000_000;

/// The clients of a group, and whether any of their operations ended in a gap.
const CLIENTS: &str = "
    SELECT a.name, max(EXISTS (SELECT 1 FROM op_intervals AS i
                               WHERE i.task_id = t.id AND i.at_us >= ?3 AND i.at_us < ?4 AND i.ops > 0))
    FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id
    WHERE t.step_id = ?1 AND coalesce(t.group_name, '') = ?2
    GROUP BY coalesce(t.client_index, t.task_index) ORDER BY a.name";

/// The outages of one step; `totals` are its groups. With `mesh`, includes the activity of daemons and disks
/// meanwhile.
pub(super) fn find(
    connection: &Connection,
    step: &Step,
    totals: &[OpTimeline],
    mesh: Option<&Mesh>,
    events: &Events,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = Vec::new();
    for line in totals {
        let rate = usual_rate(step, line);
        if rate < MIN_RATE {
            continue;
        }
        let low = line.seconds.iter().filter(|one| is_low(one, rate));
        let low: Vec<Gap> = low
            .map(|one| Gap {
                from_us: one.at_us,
                until_us: one.at_us + one.span_us,
            })
            .collect();
        let mut gaps = gaps(low.iter().copied());
        if step.pauses {
            gaps.retain(|gap| !is_last_flush(line, *gap));
        }
        let Some(longest) = gaps.iter().copied().max_by_key(|gap| gap.length_us()) else {
            continue;
        };
        if !is_outage(low.len(), longest.length_us()) {
            continue;
        }
        let silent_us = |gap: &Gap| silent_us(line, *gap, step.period_us);
        let around: Vec<results::outage::LoadSecond> = line
            .seconds
            .iter()
            .filter(|one| (longest.from_us..longest.until_us + RECOVERY_US).contains(&one.at_us))
            .map(|one| results::outage::LoadSecond {
                at_us: one.at_us,
                until_us: one.at_us + one.span_us,
                ops: one.ops,
                slowest_ns: one.max_ns,
                response_ns: None,
            })
            .collect();
        let clients: Vec<(String, bool)> = all_rows(
            connection,
            CLIENTS,
            &[
                step.id.into(),
                line.group.clone().into(),
                longest.from_us.into(),
                longest.until_us.into(),
            ],
        )
        .map_err(reading("tasks"))?;
        let meanwhile = match mesh {
            Some(mesh) => mesh.meanwhile(connection, longest)?,
            None => String::new(),
        };
        let gone = GroupOutages {
            group: &line.group,
            rate,
            gaps: &gaps,
            longest,
            longest_us: silent_us(&longest),
            gone_us: gaps.iter().map(silent_us).sum(),
            around: outage(longest.from_us, rate, &around),
            clients: &clients,
            beside: meanwhile + &events.near(longest.from_us, longest.until_us),
        };
        found.push(gone.finding(step));
    }
    Ok(found)
}

/// The rate of the load while it worked; 0 for a load that pauses by itself more than half of the time.
fn usual_rate(step: &Step, line: &OpTimeline) -> f64 {
    let seconds = line.seconds.iter();
    let rate = working_rate(seconds.map(|one| (real(one.ops), real(one.span_us))));
    let low = line.seconds.iter().filter(|one| is_low(one, rate)).count();
    match step.pauses && 2 * low > line.seconds.len() {
        true => 0.0,
        false => rate,
    }
}

fn is_low(second: &TimelineSecond, rate: f64) -> bool {
    real(second.ops) * 1e6 < NEAR_ZERO * rate * real(second.span_us)
}

/// Whether a gap is the flush at the end of the load: no second with work follows, and its last operation took most of
/// the gap.
fn is_last_flush(line: &OpTimeline, gap: Gap) -> bool {
    let after = line
        .seconds
        .partition_point(|second| second.at_us < gap.until_us);
    let last = line.seconds.last().and_then(|second| second.max_ns);
    after >= line.seconds.len() && last.is_some_and(|ns| ns / 1000 >= gap.length_us() / 2)
}

/// How long nothing was done. A gap consists of whole seconds; the operation that ended it may have begun in the second
/// before, and its duration is known.
fn silent_us(line: &OpTimeline, gap: Gap, period_us: i64) -> i64 {
    let ended = line
        .seconds
        .iter()
        .filter(|second| (gap.from_us..=gap.until_us).contains(&second.at_us));
    let lasted_us = ended.filter_map(|second| second.max_ns).max().unwrap_or(0) / 1000;
    let length_us = gap.length_us();
    match (length_us..=length_us + 2 * period_us).contains(&lasted_us) {
        true => lasted_us,
        false => length_us,
    }
}

/// The outages of a group.
struct GroupOutages<'g> {
    group: &'g str,
    rate: f64,
    gaps: &'g [Gap],
    longest: Gap,
    /// How long nothing was done in the longest gap, and in all gaps.
    longest_us: i64,
    gone_us: i64,
    around: Option<Outage>,
    clients: &'g [(String, bool)],
    /// The activity of daemons and disks, and events.
    beside: String,
}

impl GroupOutages<'_> {
    fn finding(&self, step: &Step) -> Finding {
        let Self { longest, gaps, .. } = self;
        let length_s = real(self.longest_us) / 1e6;
        let subject = match self.group {
            "" => step.label.clone(),
            group => format!("{group} in {}", step.label),
        };
        let gone_s = real(self.gone_us) / 1e6;
        let mostly = 2 * self.gone_us > step.length_us();
        let mut sentence = format!(
            "{subject} did next to nothing in {} s{} ({}), usually {} ops/s; the longest gap took {} s from {}, {}",
            figures::rate(gone_s),
            match mostly {
                true => format!(
                    " of its {}, so its figures are those of an outage",
                    figures::rate(real(step.length_us()) / 1e6)
                ),
                false => String::new(),
            },
            figures::plural(gaps.len(), "gap"),
            figures::rate(self.rate),
            figures::rate(length_s),
            figures::instant(longest.from_us),
            self.who(),
        );
        if let Some(outage) = &self.around {
            match outage.recovered_s {
                Some(seconds) => {
                    let seconds = figures::rate(seconds.max(length_s));
                    sentence.push_str(&format!("; back after {seconds} s"));
                }
                None => sentence.push_str("; not back half a minute later, or at the end"),
            }
        }
        sentence.push_str(&self.beside);
        let severity = match mostly || self.longest_us >= LONG_US {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let (from, until) = (longest.from_us - 10_000_000, longest.until_us + RECOVERY_US);
        Finding {
            figure: Some("ops_per_s".to_owned()),
            step_id: Some(step.id),
            group_name: Some(self.group.to_owned()).filter(|group| !group.is_empty()),
            from_us: gaps.first().map(|gap| gap.from_us),
            until_us: gaps.last().map(|gap| gap.until_us),
            size: finite(gone_s),
            unit: Some("s".to_owned()),
            sql: Some(format!(
                "SELECT at, op, ops, tasks, max_ms FROM v_timeline WHERE step_id = {} AND ramp = 0 \
                 AND at_us BETWEEN {from} AND {until} ORDER BY at_us",
                step.id
            )),
            ..Finding::new(
                severity,
                FindingKind::Outage,
                FindingVerdict::Found,
                &subject,
                sentence,
            )
        }
    }

    fn who(&self) -> String {
        let idle: Vec<String> = self
            .clients
            .iter()
            .filter(|(_, has_done)| !has_done)
            .map(|(name, _)| name.clone())
            .collect();
        let all = figures::plural(self.clients.len(), "client");
        match (idle.len(), self.clients.len()) {
            (0, 1) => "in which its client did a few operations".to_owned(),
            (0, _) => format!("in which each of {all} did a few operations"),
            (1, 1) => "on its only client".to_owned(),
            (idle, clients) if idle == clients => format!("on all of {all}"),
            _ => format!("without an operation of {} of {all}", some_of(&idle)),
        }
    }
}
