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
}

pub(in crate::report) const FACTS: Statement = Statement {
    what: "facts",
    sql: "SELECT DISTINCT system, name, unit, first_value(CAST(value AS TEXT)) OVER w AS before,
                 last_value(CAST(value AS TEXT)) OVER w AS after
          FROM facts WHERE run_id = ?
          WINDOW w AS (PARTITION BY system, name ORDER BY at_us, id
                       ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
          ORDER BY system, name LIMIT 2000",
};

/// Facts of one system by their names.
type Texts = BTreeMap<String, String>;

/// A system with its facts before and after the run.
type System<'r> = (&'r str, (Texts, Texts));

/// A row per system; `None` if no agent reads facts.
pub(in crate::report) fn table(report: &Report) -> Option<Table> {
    let mut systems: BTreeMap<&str, (Texts, Texts)> = BTreeMap::new();
    for fact in &report.facts {
        let (before, after) = systems.entry(&fact.system).or_default();
        before.insert(fact.name.clone(), fact.before.clone());
        after.insert(fact.name.clone(), fact.after.clone());
    }
    let systems: Vec<System<'_>> = systems.into_iter().collect();
    let more = report.facts.len();
    Table::of("Cluster", &systems)
        .text("system", |(system, _)| (*system).to_owned())
        .text("before the run", |(_, (before, _))| summary(before))
        .text("after the run", |(_, (before, after))| {
            let after = summary(after);
            match after == summary(before) {
                true => String::from("the same"),
                false => after,
            }
        })
        .text("used", |(_, (_, after))| used(after).unwrap_or_default())
        .if_any()
        .text("versions", |(_, (_, after))| versions(after))
        .if_any()
        .note_where(more > 0, || {
            format!(
                "All {more} facts: benchmesh query \"SELECT * FROM facts WHERE run_id = {}\"",
                report.run.id
            )
        })
        .done()
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
