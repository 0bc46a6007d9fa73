//! The findings of a series: sentence, size and SQL.

use super::{DriftScope, DriftSeries};
use crate::findings::beside::Events;
use crate::findings::{finite, quoted, span};
use benchmesh_analysis::shift::Shift;
use benchmesh_model::mesh::{FindingVerdict, Severity};
use benchmesh_results::{Finding, FindingKind};
use benchmesh_workloads::figures;

impl DriftSeries {
    fn subject(&self) -> String {
        match self.key.group.as_str() {
            "" => format!("{} of {}", self.key.op, self.step.label),
            group => format!("{} of {group} in {}", self.key.op, self.step.label),
        }
    }

    fn level(&self, value: f64) -> String {
        match self.facts.more_is_worse {
            true => figures::millis(value),
            false => figures::rate(value),
        }
    }

    fn removed(&self) -> String {
        self.cycle.as_ref().map_or_else(String::new, |cycle| {
            let percent = 100.0 * cycle.half_range().exp_m1();
            format!("; daily cycle of ±{percent:.0} % removed")
        })
    }

    fn over(&self) -> String {
        let length = span(self.end_us() - self.begin_us());
        match self.scope {
            DriftScope::Step => format!("over {length}"),
            DriftScope::Load => format!("from step to step of this load over {length}"),
        }
    }

    fn severity(&self, rises: bool) -> Severity {
        match rises == self.facts.more_is_worse {
            true => Severity::Warning,
            false => Severity::Info,
        }
    }

    pub(super) fn drift(
        &self,
        [low, size, high]: [f64; 3],
        p: f64,
        (first, last): (f64, f64),
    ) -> Finding {
        let rises = size > 0.0;
        let verb = if rises { "rises" } else { "falls" };
        let percent = |change: f64| figures::rate(100.0 * change);
        // The interval in the direction of the change.
        let interval = match rises {
            true => (low, high),
            false => (-high, -low),
        };
        let interval = match interval.0.is_finite() && interval.1.is_finite() && low < high {
            true => format!(
                "95 % interval {} to {} %",
                percent(interval.0),
                percent(interval.1)
            ),
            false => format!("{} steps", self.dots.len()),
        };
        let sentence = format!(
            "the {} of {} {verb} by {} % {} ({interval}{}): {} {} in the first tenth, {} in the last",
            self.facts.name,
            self.subject(),
            percent(size.abs()),
            self.over(),
            self.removed(),
            self.level(first),
            self.facts.unit,
            self.level(last),
        );
        Finding {
            from_us: Some(self.begin_us()),
            until_us: Some(self.end_us()),
            size: finite(100.0 * size),
            low: finite(100.0 * low),
            high: finite(100.0 * high),
            p: finite(p),
            ..self.finding(FindingKind::Drift, self.severity(rises), sentence)
        }
    }

    pub(super) fn change(&self, shift: &Shift, events: &Events) -> Finding {
        let size = (shift.after - shift.before).exp_m1();
        let rises = size > 0.0;
        let (at_us, before_us) = match self.dots.get(shift.at.saturating_sub(1)..) {
            Some([(before, _), (dot, _), ..]) => (dot.from_us, before.from_us),
            _ => (self.begin_us(), self.begin_us()),
        };
        let verb = if rises { "rose" } else { "fell" };
        let sentence = format!(
            "the {} of {} {verb} by {} % at {} (within {}{}): {} {} before, {} after{}",
            self.facts.name,
            self.subject(),
            figures::rate(100.0 * size.abs()),
            figures::instant(at_us),
            span(at_us - before_us),
            self.removed(),
            self.level(shift.before.exp()),
            self.facts.unit,
            self.level(shift.after.exp()),
            events.near(before_us, at_us),
        );
        Finding {
            from_us: Some(at_us),
            until_us: Some(self.end_us()),
            size: finite(100.0 * size),
            p: finite(shift.p),
            ..self.finding(FindingKind::Change, self.severity(rises), sentence)
        }
    }

    fn finding(&self, kind: FindingKind, severity: Severity, sentence: String) -> Finding {
        let (id, from, until) = (self.step.id, self.begin_us(), self.end_us());
        let length = (until - from).max(1);
        let (op, group) = (quoted(&self.key.op), quoted(&self.key.group));
        let sql = match self.scope {
            DriftScope::Step => format!(
                "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, sum(ops) * 1e6 / sum(span_us) AS ops_per_s, \
                 avg(p99_ns) / 1e6 AS p99_ms FROM step_intervals WHERE step_id = {id} AND op = {op} \
                 AND coalesce(group_name, '') = {group} AND ramp = 0 AND at_us >= {from} AND at_us < {until} \
                 GROUP BY (at_us - {from}) * 20 / {length}"
            ),
            DriftScope::Load => format!(
                "SELECT s.loop, s.repeat, datetime(s.start_us / 1000000, 'unixepoch') AS at, r.ops_per_s, \
                 r.p99_ns / 1e6 AS p99_ms FROM steps AS l JOIN steps AS s USING (run_id, phase, mode, workload, params) \
                 JOIN step_results AS r ON r.step_id = s.id WHERE l.id = {id} AND s.target IS l.target AND r.op = {op} \
                 AND coalesce(r.group_name, '') = {group} ORDER BY s.start_us"
            ),
        };
        Finding {
            figure: Some(self.facts.figure.to_owned()),
            step_id: Some(id),
            group_name: Some(self.key.group.clone()).filter(|group| !group.is_empty()),
            op: Some(self.key.op.clone()),
            unit: Some("%".to_owned()),
            sql: Some(sql),
            ..Finding::new(
                severity,
                kind,
                FindingVerdict::Found,
                &self.subject(),
                sentence,
            )
        }
    }
}
