//! Compares the highest rates that searches of two sides have found: one figure for each search that both made.

use super::{CompareError, reading};
use crate::compare::Side;
use crate::rows::all_rows;
use benchmesh_results::real;
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The properties in which two searches must agree to be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Searched {
    phase: String,
    mode: String,
    target: String,
    bound: String,
    params: String,
}

/// The found rates, of all runs and repeats.
type FoundRates = BTreeMap<Searched, Vec<f64>>;

const FOUND: &str = "
    SELECT s.phase, s.mode, coalesce(s.target, ''), e.detail ->> 'while',
           json_remove(s.params, '$.rate_iops', '$.\"rate-per\"'), CAST(e.detail ->> 'highest_per_s' AS REAL)
    FROM events AS e JOIN steps AS s ON s.id = e.step_id
    WHERE e.run_id = ? AND e.kind = 'search-found'
      AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
    ORDER BY s.ordinal";

/// A sentence for each search of both sides.
pub(super) fn sentences(
    connection: &Connection,
    a: &Side,
    b: &Side,
) -> Result<Vec<String>, CompareError> {
    let (mut of_a, mut of_b) = (found(connection, a)?, found(connection, b)?);
    // If each side has a single target, they are compared whatever their names.
    if [&of_a, &of_b].into_iter().all(has_one_target) {
        (of_a, of_b) = (without_target(of_a), without_target(of_b));
    }
    Ok(in_words(&of_a, &of_b, &a.label, &b.label))
}

fn found(connection: &Connection, side: &Side) -> Result<FoundRates, CompareError> {
    let mut all = FoundRates::new();
    for run in &side.runs {
        let rows: Vec<(String, String, String, String, String, f64)> =
            all_rows(connection, FOUND, &[run.id.0.into()]).map_err(reading("events"))?;
        for (phase, mode, target, bound, params, per_s) in rows {
            if side
                .target
                .as_ref()
                .is_some_and(|of_side| *of_side != target)
            {
                continue;
            }
            let searched = Searched {
                phase,
                mode,
                target,
                bound,
                params,
            };
            all.entry(searched).or_default().push(per_s);
        }
    }
    Ok(all)
}

fn has_one_target(found: &FoundRates) -> bool {
    let mut targets = found.keys().map(|key| &key.target);
    let first = targets.next();
    targets.all(|target| Some(target) == first)
}

fn without_target(found: FoundRates) -> FoundRates {
    let blank = |(key, rates): (Searched, Vec<f64>)| {
        let target = String::new();
        (Searched { target, ..key }, rates)
    };
    found.into_iter().map(blank).collect()
}

fn in_words(a: &FoundRates, b: &FoundRates, label_a: &str, label_b: &str) -> Vec<String> {
    let both = a
        .iter()
        .filter_map(|(key, of_a)| Some((key, mean(of_a), mean(b.get(key)?))));
    let sentence = |(key, of_a, of_b): (&Searched, f64, f64)| {
        let on = match key.target.as_str() {
            "" => String::new(),
            target => format!(" on {target}"),
        };
        let twins = a.keys().filter(|other| {
            (&other.phase, &other.mode, &other.target) == (&key.phase, &key.mode, &key.target)
        });
        let params = match twins.count() {
            ..=1 => String::new(),
            _ => format!(" ({})", key.params),
        };
        format!(
            "{} {}{on}{params}: the highest rate with {} is {} operations/s in {label_b} and {} in {label_a}, {:.2} times as \
             much.",
            key.phase,
            key.mode,
            key.bound,
            figures::rate(of_b),
            figures::rate(of_a),
            of_b / of_a
        )
    };
    both.filter(|(_, of_a, _)| *of_a > 0.0)
        .map(sentence)
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
    values.iter().sum::<f64>() / real(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_of_both_sides_are_paired() {
        let searched = |phase: &str, bound: &str| Searched {
            phase: phase.to_owned(),
            mode: "read".to_owned(),
            target: "t".to_owned(),
            bound: bound.to_owned(),
            params: "{}".to_owned(),
        };
        let a = FoundRates::from([
            (searched("p", "p99 < 10ms"), vec![100.0, 200.0]),
            (searched("q", "p99 < 10ms"), vec![100.0]),
        ]);
        let b = FoundRates::from([
            (searched("p", "p99 < 10ms"), vec![300.0]),
            (searched("q", "p99 < 20ms"), vec![100.0]),
        ]);
        assert_eq!(
            in_words(&a, &b, "one", "two"),
            [
                "p read on t: the highest rate with p99 < 10ms is 300 operations/s in two and 150 in one, 2.00 times as \
                 much."
            ]
        );
    }
}
