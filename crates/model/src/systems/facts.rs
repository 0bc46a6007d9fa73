//! The state of a storage cluster as its own tools report it: read-only commands, and pure parsers of their output.
//!
//! Each set belongs to a row of the table of systems. A parser handles untrusted output: it neither panics nor hangs,
//! and its facts are bounded in number and length. Facts missing from the output stay absent.

mod ceph;
mod gluster;
mod own;

pub use own::parse as parse_own;

use crate::text::is_hidden;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of facts per reading; the rest are dropped.
const MAX_FACTS: usize = 512;
const MAX_NAME_BYTES: usize = 128;
const MAX_TEXT_BYTES: usize = 256;

/// The health that a cluster reports. If no fact tells whether the cluster is degraded, the health decides.
pub const HEALTH: &str = "health";
/// `yes` or `no`; `no` if data lack copies, or are being moved.
const WHOLE: &str = "whole";
const NONE: &str = "none";
const HEALTHY: &[&str] = &["HEALTH_OK", "ok", "healthy", "green"];

/// The commands of one system.
#[derive(Debug)]
pub struct FactSet {
    /// Its name in the agent's configuration and in the database.
    pub system: &'static str,
    /// The program, looked up in the agent's PATH. Additional arguments from the configuration follow it.
    pub program: &'static str,
    pub commands: &'static [FactCommand],
    /// Derives facts from those of several commands.
    pub conclude: fn(&mut Facts),
}

/// One read-only command.
#[derive(Debug)]
pub struct FactCommand {
    pub arguments: &'static [&'static str],
    /// If set, the command runs once for each of these names, which replaces [`EACH`] in the arguments.
    pub each: Option<fn(&Facts) -> Vec<String>>,
    /// Parses the output; also receives the name.
    pub parse: fn(&str, &str, &mut Facts) -> Result<(), NotReadable>,
}

/// Placeholder for a name in the arguments of a command.
pub const EACH: &str = "{}";

/// The reason why an output could not be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct NotReadable(pub String);

impl fmt::Display for NotReadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotReadable {}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Number(f64),
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// One fact of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// `osds_up`; for a part of the cluster, `pool.rbd.size`.
    pub name: String,
    pub value: Value,
    /// Empty for a count or a text.
    pub unit: &'static str,
}

/// The facts of one reading, with distinct names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(Vec<Fact>);

impl Facts {
    /// All facts, in the order in which they were found.
    #[must_use]
    pub fn as_slice(&self) -> &[Fact] {
        &self.0
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.0.iter().find(|fact| fact.name == name);
        found.map(|fact| &fact.value)
    }

    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Number(_) => None,
            Value::Text(text) => Some(text),
        }
    }

    /// The facts as text, by name.
    #[must_use]
    pub fn texts(&self) -> BTreeMap<String, String> {
        let texts = self
            .0
            .iter()
            .map(|fact| (fact.name.clone(), fact.value.to_string()));
        texts.collect()
    }

    /// Whether the cluster reports itself as degraded; `None` if it reports neither.
    #[must_use]
    pub fn is_degraded(&self) -> Option<bool> {
        if let Some(whole) = self.text(WHOLE) {
            return Some(whole != "yes");
        }
        let health = self.text(HEALTH)?;
        let mut words = HEALTHY.iter();
        Some(!words.any(|word| health.eq_ignore_ascii_case(word)))
    }

    fn add_number(&mut self, name: impl Into<String>, number: f64, unit: &'static str) {
        if number.is_finite() {
            // An empty sum is -0.
            self.add(name.into(), Value::Number(number + 0.0), unit);
        }
    }

    fn add_text(&mut self, name: impl Into<String>, text: &str) {
        let text = clean(text, MAX_TEXT_BYTES);
        if !text.is_empty() {
            self.add(name.into(), Value::Text(text), "");
        }
    }

    fn add(&mut self, name: String, value: Value, unit: &'static str) {
        let name = clean(&name, MAX_NAME_BYTES);
        if self.0.len() < MAX_FACTS && !name.is_empty() && self.get(&name).is_none() {
            self.0.push(Fact { name, value, unit });
        }
    }
}

/// Returns a single line of bounded length.
fn clean(text: &str, most: usize) -> String {
    let shown = |c| if is_hidden(c) { ' ' } else { c };
    let mut text: String = text.trim().chars().take(most).map(shown).collect();
    text.truncate(text.floor_char_boundary(most));
    text.truncate(text.trim_end().len());
    text
}

pub(super) static CEPH: FactSet = FactSet {
    system: "ceph",
    program: "ceph",
    commands: ceph::COMMANDS,
    conclude: ceph::conclude,
};

pub(super) static GLUSTER: FactSet = FactSet {
    system: "gluster",
    program: "gluster",
    commands: gluster::COMMANDS,
    conclude: gluster::conclude,
};

/// Maximum number of pools or volumes named in a summary; the others are counted.
const PARTS_NAMED: usize = 3;

/// The state in one line, for users, from facts as text by name.
#[must_use]
pub fn summary(facts: &BTreeMap<String, String>) -> String {
    let get = |name: &str| facts.get(name).map(String::as_str);
    let checks = get("health_checks").filter(|checks| *checks != NONE);
    let health = get(HEALTH).map(|health| match checks {
        Some(checks) => format!("{health} ({checks})"),
        None => health.to_owned(),
    });
    let of =
        |part: &str, all: &str, what: &str| Some(format!("{} of {} {what}", get(part)?, get(all)?));
    let some = |name: &str, what: &str| {
        let count = get(name).filter(|count| *count != "0")?;
        Some(format!("{count} {what}"))
    };
    let figures = [
        health,
        of("osds_up", "osds", "OSDs up"),
        of("bricks_online", "bricks", "bricks online"),
        some("objects_degraded", "objects degraded"),
        some("objects_misplaced", "objects misplaced"),
        some("heals_pending", "heals pending"),
    ];
    let copies: Vec<String> = facts
        .iter()
        .filter_map(|(name, value)| copies(name, value))
        .collect();
    let more = copies.len().saturating_sub(PARTS_NAMED);
    let more = (more > 0).then(|| format!("{more} more"));
    let copies = copies.into_iter().take(PARTS_NAMED).chain(more);
    let parts: Vec<String> = figures.into_iter().flatten().chain(copies).collect();
    parts.join(", ")
}

/// `pool rbd size 3`, `volume gv0 replica 3`
fn copies(name: &str, value: &str) -> Option<String> {
    let (kind, part, fact) = match name.strip_prefix("pool.") {
        Some(rest) => ("pool", rest.strip_suffix(".size")?, "size"),
        None => {
            let rest = name.strip_prefix("volume.")?;
            ("volume", rest.strip_suffix(".replica")?, "replica")
        }
    };
    Some(format!("{kind} {part} {fact} {value}"))
}

/// Whether runs are comparable only if they agree in this fact: the structure of the cluster, and whether it is
/// degraded.
#[must_use]
pub fn is_condition(name: &str) -> bool {
    const WHOLE: &[&str] = &[
        "bricks", "hosts", "mons", "osds", "osds_in", "osds_up", HEALTH,
    ];
    const OF_PARTS: &[&str] = &[
        "arbiter",
        "bricks",
        "disperse",
        "erasure",
        "min_size",
        "pgs",
        "redundancy",
        "replica",
        "size",
        "type",
    ];
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_part = name.starts_with("pool.") || name.starts_with("volume.");
    WHOLE.contains(&name) || name.starts_with("version") || (is_part && OF_PARTS.contains(&last))
}

#[cfg(test)]
mod tests;
