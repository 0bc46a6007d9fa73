//! Load curves: series of loads with increasing rates, and the rate at which the response time leaves its floor.
//!
//! A series consists of the steps of a phase that differ only in their rate, from a load curve or a matrix. The floor
//! is the minimum of its response times (p99). The knee is the highest load with a response time near the floor: at
//! every higher load, the response time has left the floor.

use super::steps;
use crate::report::{Line, Report, StepReport, Table};
use benchmesh_results::{Flag, FlagRow};
use benchmesh_workloads::figures::NONE;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Minimum number of loads of a curve.
const MIN_LOADS: usize = 4;
/// A response time above this multiple of the floor has left it. Below a knee it varies by less; above it, a backlog
/// grows with every second.
const LEAVES: f64 = 3.0;
/// The keys of a rate.
const RATES: [&str; 2] = ["rate_iops", "rate"];

/// Loads with an increasing rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveReport {
    pub phase: String,
    #[serde(rename = "loop", default = "super::steps::first")]
    pub loop_number: i64,
    pub repeat: i64,
    /// Or the links.
    pub target: String,
    pub mode: String,
    pub op: String,
    pub clients: i64,
    /// Common parameters of the steps, without the rate.
    pub params: Map<String, Value>,
    /// The increasing parameter: `rate_iops` or `rate`.
    pub key: String,
    /// In increasing order.
    pub loads: Vec<LoadReport>,
    /// The response time (p99) at low load.
    pub floor_ms: f64,
    /// The index in `loads` of the highest load at the floor; `None` if there is none.
    pub knee: Option<usize>,
    /// The flags of the first load beyond the knee by which a client, not the storage, was its limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_limits: Vec<String>,
}

/// One load of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub ordinal: i64,
    /// The plan's value: per worker, task or step.
    pub rate: i64,
    pub ops_per_s: Option<f64>,
    pub response_p50_ms: Option<f64>,
    pub response_p99_ms: f64,
    /// Flags of its step.
    #[serde(default)]
    pub flags: Vec<String>,
}

impl CurveReport {
    /// The highest load at the floor.
    pub fn before(&self) -> Option<&LoadReport> {
        self.loads.get(self.knee?)
    }

    /// The lowest load from which on the response time stays above the floor; `None` if there is none.
    pub fn after(&self) -> Option<&LoadReport> {
        self.loads.get(self.knee.map_or(0, |knee| knee + 1))
    }
}

/// The curves of a run's steps, in the order of their first steps. `probes`: ordinals of steps whose rates a search
/// chose; they have their own tables.
pub(in crate::report) fn curves(steps: &[StepReport], probes: &BTreeSet<i64>) -> Vec<CurveReport> {
    let mut curves: Vec<CurveReport> = Vec::new();
    let caches: BTreeSet<&str> = steps.iter().map(|step| step.cache.as_str()).collect();
    let walked = steps.iter().filter(|step| !probes.contains(&step.ordinal));
    for line in walked.flat_map(StepReport::lines) {
        let Some((mut curve, load)) = one(&line) else {
            continue;
        };
        if caches.len() > 1 {
            let cache = Value::from(line.step.cache.as_str());
            curve.params.insert("cache".to_owned(), cache);
        }
        match curves.iter_mut().find(|known| is_same(known, &curve)) {
            Some(known) => known.loads.push(load),
            None => curves.push(CurveReport {
                loads: vec![load],
                ..curve
            }),
        }
    }
    curves.retain_mut(|curve| {
        curve.loads.sort_by_key(|load| load.rate);
        let rising = curve
            .loads
            .windows(2)
            .all(|two| matches!(two, [a, b] if a.rate < b.rate));
        rising && curve.loads.len() >= MIN_LOADS
    });
    for curve in &mut curves {
        let response: Vec<f64> = curve
            .loads
            .iter()
            .map(|load| load.response_p99_ms)
            .collect();
        curve.floor_ms = response.iter().copied().fold(f64::INFINITY, f64::min);
        curve.knee = response
            .iter()
            .rposition(|response| *response <= curve.floor_ms * LEAVES);
        let beyond = curve
            .after()
            .map_or(&[][..], |load| load.flags.as_slice())
            .iter();
        let is_limit = |flag: &&String| Flag::row_of(flag).is_some_and(FlagRow::is_client_limit);
        curve.client_limits = beyond.filter(is_limit).cloned().collect();
    }
    curves
}

fn is_same(a: &CurveReport, b: &CurveReport) -> bool {
    let place = |curve: &CurveReport| (curve.loop_number, curve.repeat, curve.clients);
    let names = |curve: &CurveReport| {
        let names = [
            &curve.phase,
            &curve.target,
            &curve.mode,
            &curve.op,
            &curve.key,
        ];
        names.map(String::clone)
    };
    place(a) == place(b) && names(a) == names(b) && a.params == b.params
}

/// A curve without loads, and this line's load for it. Tasks that did not run at the same time do not form a load of
/// that rate.
fn one(line: &Line<'_>) -> Option<(CurveReport, LoadReport)> {
    let op = line.op.filter(|op| op.headline != "none")?;
    let mut params = line.params().clone();
    let (key, rate) = RATES
        .iter()
        .find_map(|key| Some((*key, params.remove(*key)?)))?;
    // The rates of groups beside it may increase together with its own.
    let beside = line.all_params().skip(line.params().len());
    let is_rate = |key: &str| RATES.iter().any(|rate| key.ends_with(&format!(".{rate}")));
    let beside = beside.filter(|(key, _)| !is_rate(key.as_str()));
    params.extend(beside.map(|(key, value)| (key.clone(), value.clone())));
    let load = LoadReport {
        ordinal: line.step.ordinal,
        rate: rate.as_i64()?,
        ops_per_s: op.ops_per_s,
        response_p50_ms: op.response_p50_ms,
        response_p99_ms: op.response_p99_ms?,
        flags: line.step.flags.clone(),
    };
    let curve = CurveReport {
        phase: line.step.phase.clone(),
        loop_number: line.step.loop_number,
        repeat: line.step.repeat,
        target: line.step.place().to_owned(),
        mode: line.mode().to_owned(),
        op: op.op.clone(),
        clients: line.clients(),
        params,
        key: key.to_owned(),
        loads: Vec::new(),
        floor_ms: 0.0,
        knee: None,
        client_limits: Vec::new(),
    };
    Some((curve, load))
}

/// One row for each series, in words that suggest an action; `None` if there is none.
pub(in crate::report) fn table(report: &Report) -> Option<Table> {
    let curves = &report.curves;
    Table::of("Load curves: where response time leaves its floor", curves)
        .text("phase", |curve| &curve.phase)
        .text(steps::target_head(&report.steps), |curve| &curve.target)
        .if_any()
        .text("mode", |curve| &curve.mode)
        .figure("loop", |curve| curve.loop_number)
        .only_if(curves.iter().any(|curve| curve.loop_number > 1))
        .figure("repeat", |curve| curve.repeat)
        .only_if(curves.iter().any(|curve| curve.repeat > 1))
        .figure("clients", |curve| curve.clients)
        .text("knee at", knee)
        .rate("ops/s", |curve| curve.before()?.ops_per_s)
        .millis("response p99 ms", |curve| {
            Some(curve.before()?.response_p99_ms)
        })
        .text("beyond", |curve| rate(curve, curve.after()))
        .millis("p99 ms", |curve| Some(curve.after()?.response_p99_ms))
        .millis("floor ms", |curve| curve.floor_ms)
        .text("limited by", limited_by)
        .if_any()
        .text("flags", flags)
        .if_any()
        .note(
            "The knee is the highest rate whose response time (p99, from the instant when an operation was due) is \
             within 3 times the floor. The floor is the lowest response time of all rates.",
        )
        .note_if(
            curves.iter().any(|curve| !curve.client_limits.is_empty()),
            || {
                String::from(
                    "Limited by the client: beyond the knee a client lacked CPU or reached a limit of its own; the \
                     storage may do more.",
                )
            },
        )
        .done()
}

/// Flags of the two loads in the row.
fn flags(curve: &CurveReport) -> String {
    let shown = curve.before().into_iter().chain(curve.after());
    let flags: BTreeSet<&str> = shown
        .flat_map(|load| load.flags.iter().map(String::as_str))
        .collect();
    flags.into_iter().collect::<Vec<_>>().join(" ")
}

/// `the client (cpu-short)`; empty if no flag says so.
fn limited_by(curve: &CurveReport) -> String {
    let limits = &curve.client_limits;
    match limits.is_empty() {
        true => String::new(),
        false => format!("the client ({})", limits.join(", ")),
    }
}

fn knee(curve: &CurveReport) -> String {
    match (curve.before(), curve.after()) {
        (Some(before), None) => format!("above {}={}", curve.key, before.rate),
        (before, _) => rate(curve, before),
    }
}

fn rate(curve: &CurveReport, load: Option<&LoadReport>) -> String {
    load.map_or_else(
        || NONE.to_owned(),
        |load| format!("{}={}", curve.key, load.rate),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::report::tests::step;

    fn walked(response: &[f64]) -> Vec<CurveReport> {
        flagged(response, &[])
    }

    /// The load at which the response time is 9 ms has the flags.
    fn flagged(response: &[f64], flags: &[&str]) -> Vec<CurveReport> {
        let of_load = |(rate, p99): (i64, &f64)| {
            let mut step = step(rate, "curve", "read");
            step.params
                .insert("rate_iops".to_owned(), (rate * 100).into());
            step.ops[0].response_p99_ms = Some(*p99);
            if *p99 == 9.0 {
                step.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            }
            step
        };
        let mut steps: Vec<StepReport> = (1..).zip(response).map(of_load).collect();
        // The order of the steps must not matter.
        steps.reverse();
        curves(&steps, &BTreeSet::new())
    }

    fn check(response: &[f64], expected: Option<usize>) {
        let curves = walked(response);
        assert_eq!(curves.len(), 1, "{response:?}");
        assert_eq!(curves[0].knee, expected, "{response:?}");
    }

    #[test]
    fn the_knee_is_the_last_load_at_the_floor() {
        check(&[1.0, 1.1, 1.0, 1.2, 9.0, 800.0], Some(3));
        // A single slow step in between, or at the beginning, is not a knee.
        check(&[1.0, 1.1, 9.0, 1.2, 1.1, 800.0], Some(4));
        check(&[7.0, 1.1, 1.0, 1.2, 40.0, 800.0], Some(3));
        // Most loads are above the knee.
        check(
            &[1.0, 1.1, 50.0, 100.0, 200.0, 400.0, 800.0, 900.0],
            Some(1),
        );
        // The knee is never reached.
        check(&[1.0, 1.1, 1.3, 1.5], Some(3));
        let found = &walked(&[1.0, 1.1, 1.0, 1.2, 9.0, 800.0])[0];
        assert_eq!(found.before().unwrap().rate, 400);
        assert_eq!(found.after().unwrap().rate, 500);
        assert!(walked(&[1.0, 1.1, 1.3, 1.5])[0].after().is_none());
    }

    /// Beyond the knee the client had no CPU: that is no limit of the storage.
    #[test]
    fn a_knee_that_the_client_made_says_so() {
        let limit = |beyond: &[&str]| {
            let mut run = crate::report::tests::report(Vec::new());
            run.curves = flagged(&[1.0, 1.1, 1.0, 1.2, 9.0, 800.0], beyond);
            let table = table(&run).unwrap();
            let column = table.columns.iter();
            let at = column
                .clone()
                .position(|column| column.title == "limited by");
            let notes = table.notes.iter();
            let told = notes.filter(|note| note.starts_with("Limited by the client"));
            (at.map(|at| table.rows[0][at].clone()), told.count())
        };
        let by_client = limit(&["behind-schedule", "cpu-short"]);
        assert_eq!(by_client, (Some("the client (cpu-short)".to_owned()), 1));
        assert_eq!(limit(&["behind-schedule"]), (None, 0));
    }

    #[test]
    fn a_load_whose_tasks_did_not_run_at_once_is_none() {
        let mut steps: Vec<StepReport> = (1..=6_i64)
            .map(|rate| {
                let mut one = step(rate, "curve", "read");
                one.params.insert("rate_iops".to_owned(), rate.into());
                one.ops[0].response_p99_ms = Some(1.0);
                one
            })
            .collect();
        steps[5].ops[0].headline = "none".to_owned();
        steps[5].flags = vec!["no-overlap".to_owned()];
        steps[3].flags = vec!["tool-bound".to_owned()];
        let curve = &curves(&steps, &BTreeSet::new())[0];
        let rates: Vec<i64> = curve.loads.iter().map(|load| load.rate).collect();
        assert_eq!(rates, [1, 2, 3, 4, 5]);
        assert_eq!(curve.loads[3].flags, ["tool-bound"]);
    }

    #[test]
    fn each_link_has_its_curve() {
        let mut steps = Vec::new();
        for link in ["a -> b", "b -> a"] {
            for rate in 1..=4_i64 {
                let mut one = step(rate, "curve", "request");
                one.target.clear();
                one.links = link.to_owned();
                one.params.insert("rate_iops".to_owned(), rate.into());
                one.ops[0].response_p99_ms = Some(1.0);
                steps.push(one);
            }
        }
        let curves = curves(&steps, &BTreeSet::new());
        let links: Vec<&str> = curves.iter().map(|curve| curve.target.as_str()).collect();
        assert_eq!(links, ["a -> b", "b -> a"]);
    }

    #[test]
    fn what_differs_in_more_than_its_rate_is_no_curve() {
        assert!(walked(&[1.0, 2.0, 3.0]).is_empty());
        let mut steps = Vec::new();
        for rate in 1..=4_i64 {
            let mut one = step(rate, "curve", "read");
            one.params.insert("rate_iops".to_owned(), rate.into());
            one.params.insert("bs".to_owned(), (rate * 512).into());
            one.ops[0].response_p99_ms = Some(1.0);
            steps.push(one);
        }
        assert!(curves(&steps, &BTreeSet::new()).is_empty());
    }
}
