//! The facts that storage clusters reported about themselves, before and after the run.

use crate::report::row::Statement;
use crate::report::{Report, Table};
use benchmesh_model::systems::facts::summary;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One fact of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactReport {
    pub system: String,
    pub name: String,
    #[serde(default)]
    pub unit: Option<String>,
    /// The first value of the run.
    pub before: String,
    /// The last value; equal to `before` if it has not changed.
    pub after: String,
    /// The cluster was read after the end of the last step. Before that, nobody knows its state after the run.
    #[serde(default)]
    pub read_after: bool,
}

pub(in crate::report) const FACTS: Statement = Statement {
    what: "facts",
    sql: "SELECT DISTINCT system, name, unit, first_value(CAST(value AS TEXT)) OVER w AS before,
                 last_value(CAST(value AS TEXT)) OVER w AS after,
                 coalesce(max(at_us) OVER (PARTITION BY system) >=
                     (SELECT max(coalesce(s.last_done_us, s.ended_us)) FROM steps AS s WHERE s.run_id = f.run_id), 0)
                     AS read_after
          FROM facts AS f WHERE run_id = ?
          WINDOW w AS (PARTITION BY system, name ORDER BY at_us, id
                       ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
          ORDER BY system, name LIMIT 2000",
};

/// Facts of one system by their names.
type Texts = BTreeMap<String, String>;

/// A system with its facts before and after the run.
#[derive(Default)]
struct System {
    before: Texts,
    after: Texts,
    read_after: bool,
}

/// The state after a run that no reading has shown yet.
const NOT_KNOWN: &str = "not known yet";

/// A row per system; `None` if no agent reads facts.
pub(in crate::report) fn table(report: &Report) -> Option<Table> {
    let mut systems: BTreeMap<&str, System> = BTreeMap::new();
    for fact in &report.facts {
        let system = systems.entry(&fact.system).or_default();
        system.before.insert(fact.name.clone(), fact.before.clone());
        system.after.insert(fact.name.clone(), fact.after.clone());
        system.read_after |= fact.read_after;
    }
    let systems: Vec<(&str, System)> = systems.into_iter().collect();
    let unknown = systems.iter().any(|(_, system)| !system.read_after);
    let more = report.facts.len();
    Table::of("Cluster", &systems)
        .text("system", |(system, _)| (*system).to_owned())
        .text("before the run", |(_, system)| summary(&system.before))
        .text("after the run", |(_, system)| after(system))
        .text("used", |(_, system)| {
            used(&system.after).unwrap_or_default()
        })
        .if_any()
        .text("versions", |(_, system)| versions(&system.after))
        .if_any()
        .note_if(unknown, || {
            format!(
                "Not known yet: no reading since the last step has arrived. Agents read the cluster again within some \
                 seconds of the run's end; `benchmesh report {}` shows it then.",
                report.run.id
            )
        })
        .note_if(more > 0, || {
            format!(
                "All {more} facts: benchmesh query \"SELECT * FROM facts WHERE run_id = {}\"",
                report.run.id
            )
        })
        .done()
}

fn after(system: &System) -> String {
    let (before, after) = (summary(&system.before), summary(&system.after));
    match (system.read_after, after == before) {
        (true, true) => String::from("the same"),
        (true, false) => after,
        (false, true) => NOT_KNOWN.to_owned(),
        (false, false) => format!("{NOT_KNOWN}; last: {after}"),
    }
}

/// `12.3 of 96.0 GiB`
fn used(facts: &Texts) -> Option<String> {
    const GIB: f64 = 1_073_741_824.0;
    let gib = |name: &str| Some(facts.get(name)?.parse::<f64>().ok()? / GIB);
    Some(format!(
        "{:.1} of {:.1} GiB",
        gib("used_bytes")?,
        gib("total_bytes")?
    ))
}

/// `16.2.15`, or one version per kind of daemon if they differ.
fn versions(facts: &Texts) -> String {
    let known = facts.iter().filter(|(name, _)| name.starts_with("version"));
    let known: Vec<(&str, &String)> = known
        .map(|(name, version)| (name.trim_start_matches("version."), version))
        .collect();
    match known.as_slice() {
        [] => String::new(),
        [(_, first), others @ ..] if others.iter().all(|(_, version)| version == first) => {
            (*first).clone()
        }
        all => {
            let all = all
                .iter()
                .map(|(kind, version)| format!("{kind} {version}"));
            all.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_state_is_not_the_same() {
        let texts = |health: &str| Texts::from([("health".to_owned(), health.to_owned())]);
        let of = |health: &str, read_after: bool| {
            after(&System {
                before: texts("ok"),
                after: texts(health),
                read_after,
            })
        };
        assert_eq!(of("ok", true), "the same");
        assert_eq!(of("bad", true), "bad");
        assert_eq!(of("ok", false), "not known yet");
        assert_eq!(of("bad", false), "not known yet; last: bad");
    }
}
