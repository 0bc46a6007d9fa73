//! Loads that were walked up: at which rate the response time leaves its floor.
//!
//! Pure. A series are the steps of a phase that differ in their rate alone, whether a load curve or a matrix made them.
//! The floor is the least of its response times (p99), the knee the highest load whose response time is near it: at every
//! load above the knee it has left the floor.

use super::{CurveReport, Line, LoadReport, StepReport};

/// Fewer loads than this are no curve.
const LEAST_LOADS: usize = 4;
/// A response time so many times the floor has left it. Below a knee it varies by less, past one a backlog grows with
/// every second.
const LEAVES: f64 = 3.0;
/// The keys of a rate.
const RATES: [&str; 2] = ["rate_iops", "rate"];

/// The curves among the steps of a run, in the order of their first steps.
pub fn curves(steps: &[StepReport]) -> Vec<CurveReport> {
    let mut curves: Vec<CurveReport> = Vec::new();
    for line in steps.iter().flat_map(StepReport::lines) {
        let Some((curve, load)) = one(&line) else {
            continue;
        };
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
        rising && curve.loads.len() >= LEAST_LOADS
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
    }
    curves
}

fn is_same(a: &CurveReport, b: &CurveReport) -> bool {
    let place = |curve: &CurveReport| (curve.repeat, curve.clients);
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

/// A curve with no loads yet, and the load that this line is of it. Tasks that did not run at the same time were no load
/// of that rate.
fn one(line: &Line<'_>) -> Option<(CurveReport, LoadReport)> {
    let op = line.op.filter(|op| op.headline != "none")?;
    let mut params = line.params().clone();
    let (key, rate) = RATES
        .iter()
        .find_map(|key| Some((*key, params.remove(*key)?)))?;
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
        repeat: line.step.repeat,
        target: line.step.target.clone(),
        mode: line.mode().to_owned(),
        op: op.op.clone(),
        clients: line.clients(),
        params,
        key: key.to_owned(),
        loads: Vec::new(),
        floor_ms: 0.0,
        knee: None,
    };
    Some((curve, load))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::super::tests::step;
    use super::*;

    fn walked(response: &[f64]) -> Vec<CurveReport> {
        let of_load = |(rate, p99): (i64, &f64)| {
            let mut step = step(rate, "curve", "read");
            step.params
                .insert("rate_iops".to_owned(), (rate * 100).into());
            step.ops[0].response_p99_ms = Some(*p99);
            step
        };
        let mut steps: Vec<StepReport> = (1..).zip(response).map(of_load).collect();
        // In whatever order they ran.
        steps.reverse();
        curves(&steps)
    }

    fn check(response: &[f64], expected: Option<usize>) {
        let curves = walked(response);
        assert_eq!(curves.len(), 1, "{response:?}");
        assert_eq!(curves[0].knee, expected, "{response:?}");
    }

    #[test]
    fn the_knee_is_the_last_load_at_the_floor() {
        check(&[1.0, 1.1, 1.0, 1.2, 9.0, 800.0], Some(3));
        // A slow step on the way is no knee, and neither is a slow first one.
        check(&[1.0, 1.1, 9.0, 1.2, 1.1, 800.0], Some(4));
        check(&[7.0, 1.1, 1.0, 1.2, 40.0, 800.0], Some(3));
        // Most loads are past it.
        check(
            &[1.0, 1.1, 50.0, 100.0, 200.0, 400.0, 800.0, 900.0],
            Some(1),
        );
        // Never reached.
        check(&[1.0, 1.1, 1.3, 1.5], Some(3));
        let found = &walked(&[1.0, 1.1, 1.0, 1.2, 9.0, 800.0])[0];
        assert_eq!(found.before().unwrap().rate, 400);
        assert_eq!(found.after().unwrap().rate, 500);
        assert!(walked(&[1.0, 1.1, 1.3, 1.5])[0].after().is_none());
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
        let curve = &curves(&steps)[0];
        let rates: Vec<i64> = curve.loads.iter().map(|load| load.rate).collect();
        assert_eq!(rates, [1, 2, 3, 4, 5]);
        assert_eq!(curve.loads[3].flags, ["tool-bound"]);
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
        assert!(curves(&steps).is_empty());
    }
}
