//! The plan of one workload, as `benchmesh run WORKLOAD` makes it: one phase, with defaults that give first results.
//!
//! The text is an ordinary plan, which is checked, shown and stored as any other. `--set` replaces its values.

use super::toml_text::{array, quoted};
use benchmesh_model::targets::{LOCATOR_KEYS, Locator};
use benchmesh_workloads::registry;
use benchmesh_workloads::workload::Needs;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The modes of a workload with several, and other keys without which it does nothing.
struct WorkloadDefaults {
    workload: &'static str,
    modes: &'static [&'static str],
    /// With their values as TOML.
    keys: &'static [(&'static str, &'static str)],
}

const fn defaults(
    workload: &'static str,
    modes: &'static [&'static str],
    keys: &'static [(&'static str, &'static str)],
) -> WorkloadDefaults {
    WorkloadDefaults {
        workload,
        modes,
        keys,
    }
}

const DEFAULTS: &[WorkloadDefaults] = &[
    defaults(
        "io",
        &["write", "read", "randwrite", "randread"],
        &[("size", "\"1g\"")],
    ),
    defaults("files", &["create", "list", "stat", "read", "delete"], &[]),
    defaults("copy", &["in", "out"], &[]),
    defaults("tree", &["unpack", "walk", "read", "remove"], &[]),
    defaults("fill", &["fill", "read", "remove"], &[("amount", "\"1g\"")]),
    defaults("objects", &["write", "seq", "rand"], &[("objects", "1000")]),
    defaults("network", &["throughput", "ping"], &[]),
];

/// The plan of `workload` on the targets, each with a name made of its own.
pub fn one_workload(workload: &str, targets: &[Locator]) -> String {
    let mut text = format!("name = {}\n", quoted(workload));
    let mut taken = BTreeSet::new();
    for target in targets {
        let name = free_name(&short_name(target), &mut taken);
        // Only a directory or a pool is known, not what serves it.
        let _ = write!(
            text,
            "\n[targets.{}]\nsystem = {}\n{} = {}\n",
            quoted(&name),
            quoted(&name),
            target.key.name,
            quoted(target.name()),
        );
        let parts = target.key.parts.iter();
        for (part, value) in parts.filter_map(|part| Some((part, target.part(part)?))) {
            let _ = writeln!(text, "{} = {}", part.name, quoted(value));
        }
    }
    let _ = write!(text, "\n[[phase]]\nworkload = {}\n", quoted(workload));
    let known = DEFAULTS.iter().find(|known| known.workload == workload);
    if let Some(known) = known {
        let _ = writeln!(text, "modes = {}", array(known.modes));
        for (key, value) in known.keys {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

/// Reads a target as a person writes it: an absolute path, or `pool=NAME`.
///
/// # Errors
/// What is wrong with it.
pub fn read_target(text: &str) -> Result<Locator, String> {
    let mut keys = LOCATOR_KEYS.iter();
    let keyed = text.split_once('=').filter(|_| !text.starts_with('/'));
    let (key, name) = match keyed {
        Some((name, value)) => (keys.find(|key| key.name == name), value),
        None => (keys.find(|key| key.is_path), text),
    };
    match key {
        Some(key) if !name.is_empty() && (!key.is_path || name.starts_with('/')) => Ok(Locator {
            key,
            value: name.to_owned(),
        }),
        _ => Err(format!(
            "`{text}` is neither an absolute path nor pool=NAME"
        )),
    }
}

/// Whether a workload of this name needs a target.
pub fn needs_target(workload: &str) -> bool {
    registry::find(workload).is_some_and(|workload| workload.needs() == Needs::Target)
}

/// The last part of its path, or the name of its pool, in letters that a target's name may have.
pub(crate) fn short_name(target: &Locator) -> String {
    let last = target.name().rsplit('/').find(|part| !part.is_empty());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = (last.unwrap_or("root").chars())
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    plain.to_lowercase()
}

/// The name, or the name with the first number that makes it unique.
pub(crate) fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_plan_of_each_workload_is_valid() {
        for workload in registry::all() {
            let target = match workload.name() {
                "objects" => "pool=bench",
                _ => "/mnt/My Files",
            };
            let targets: Vec<Locator> = needs_target(workload.name())
                .then(|| read_target(target).unwrap())
                .into_iter()
                .collect();
            let text = one_workload(workload.name(), &targets);
            let parsed = crate::parse(&text, "x");
            if ["replay", "null"].contains(&workload.name()) {
                // Nothing says what to repeat, or for how long.
                continue;
            }
            let plan = parsed.unwrap_or_else(|errors| panic!("{text}\n{errors}"));
            assert_eq!(plan.name, workload.name());
            assert_eq!(plan.targets.len(), targets.len());
        }
    }

    #[test]
    fn targets_get_names_of_their_own() {
        let targets = ["/mnt/a/data", "/mnt/b/data/", "pool=data"];
        let targets: Vec<Locator> = targets.iter().map(|it| read_target(it).unwrap()).collect();
        let text = one_workload("io", &targets);
        assert_eq!(
            text,
            "name = \"io\"\n\n\
             [targets.\"data\"]\nsystem = \"data\"\npath = \"/mnt/a/data\"\n\n\
             [targets.\"data-2\"]\nsystem = \"data-2\"\npath = \"/mnt/b/data/\"\n\n\
             [targets.\"data-3\"]\nsystem = \"data-3\"\npool = \"data\"\n\n\
             [[phase]]\nworkload = \"io\"\nmodes = [\"write\", \"read\", \"randwrite\", \"randread\"]\nsize = \"1g\"\n"
        );
        for wrong in ["mnt", "pool=", "path=mnt", "bucket=x", ""] {
            assert!(read_target(wrong).is_err(), "{wrong}");
        }
    }
}
