//! How the clusters of two sides differ: in the facts that they reported when their runs began, and in the versions
//! of the daemons that served them.

use super::{CompareError, reading};
use crate::compare::Side;
use crate::rows::all_rows;
use benchmesh_model::mesh::RunId;
use benchmesh_model::systems::facts::is_condition;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Maximum number of listed differences; the others are counted.
const MAX_NAMED: usize = 4;

/// Values by system and name.
type Conditions = BTreeMap<(String, String), String>;

/// A sentence about facts that both sides have and that differ. If a side has several runs, the newest counts.
pub(super) fn difference(
    connection: &Connection,
    a: &Side,
    b: &Side,
) -> Result<Option<String>, CompareError> {
    let (Some(run_a), Some(run_b)) = (a.runs.last(), b.runs.last()) else {
        return Ok(None);
    };
    // Two targets of one run may be served by the same cluster.
    if run_a.id == run_b.id {
        return Ok(None);
    }
    let (of_a, of_b) = (
        conditions(connection, run_a.id)?,
        conditions(connection, run_b.id)?,
    );
    Ok(sentence(&of_a, &of_b, &a.label, &b.label))
}

/// In descending order of time, so that the first value of each fact is inserted last.
const FACTS: &str = "
    SELECT system, name, CAST(value AS TEXT) FROM facts WHERE run_id = ? ORDER BY at_us DESC, id DESC";

/// The versions of the daemons that served the run's targets, by daemon name.
const VERSIONS: &str = "
    SELECT DISTINCT d.name, d.version
    FROM steps AS s CROSS JOIN step_daemons AS u ON u.step_id = s.id CROSS JOIN daemons AS d ON d.id = u.daemon_id
    WHERE s.run_id = ? AND u.serves_target IS NOT 0 AND d.version IS NOT NULL ORDER BY 1, 2";

fn conditions(connection: &Connection, run: RunId) -> Result<Conditions, CompareError> {
    let rows: Vec<(String, String, String)> =
        all_rows(connection, FACTS, &[run.0.into()]).map_err(reading("facts"))?;
    let known = rows.into_iter().filter(|(_, name, _)| is_condition(name));
    let mut conditions: Conditions = known
        .map(|(system, name, value)| ((system, name), value))
        .collect();
    let rows: Vec<(String, String)> =
        all_rows(connection, VERSIONS, &[run.0.into()]).map_err(reading("daemons"))?;
    for (daemon, version) in rows {
        let versions = conditions
            .entry((daemon, String::from("version")))
            .or_default();
        if !versions.is_empty() {
            versions.push_str(" and ");
        }
        versions.push_str(&version);
    }
    Ok(conditions)
}

fn sentence(a: &Conditions, b: &Conditions, label_a: &str, label_b: &str) -> Option<String> {
    let differing = a.iter().filter_map(|(key, of_a)| {
        let of_b = b.get(key).filter(|of_b| *of_b != of_a)?;
        let (system, name) = key;
        Some(format!("{system} {name} {of_a} against {of_b}"))
    });
    let mut named: Vec<String> = differing.collect();
    let more = named.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        named.truncate(MAX_NAMED);
        named.push(format!("{more} more"));
    }
    (!named.is_empty()).then(|| {
        format!(
            "Caveat: the clusters of {label_a} and {label_b} differ: {}.",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions_of(facts: &[(&str, &str)]) -> Conditions {
        let of = |(name, value): &(&str, &str)| {
            (("ceph".to_owned(), (*name).to_owned()), (*value).to_owned())
        };
        facts.iter().map(of).collect()
    }

    #[test]
    fn another_number_of_copies_is_a_caveat_by_itself() {
        let a = conditions_of(&[("osds", "3"), ("pool.rbd.size", "2"), ("hosts", "3")]);
        let b = conditions_of(&[("osds", "3"), ("pool.rbd.size", "3")]);
        assert_eq!(
            sentence(&a, &b, "run 1", "run 2").as_deref(),
            Some("Caveat: the clusters of run 1 and run 2 differ: ceph pool.rbd.size 2 against 3.")
        );
        assert_eq!(sentence(&a, &a, "run 1", "run 2"), None);
        assert_eq!(sentence(&a, &Conditions::new(), "run 1", "run 2"), None);
    }
}
