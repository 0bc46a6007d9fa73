//! The storage under test, and the agents that carry the load.

use super::super::{
    Target,
    keys::{ClientsKeys, TargetKeys, names},
    read::{Section, kind},
    select::{Selected, Selector},
    source::{Mistakes, ValuePosition},
};
use benchmesh_model::targets::{LOCATOR_KEYS, Locator};
use benchmesh_workloads::{
    params::Keys,
    workload::{Needs, Workload},
};
use std::path::Path;

pub(super) fn targets(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Target> {
    let Some((value, position)) = top.take("targets") else {
        return Vec::new();
    };
    let Some(table) = value.as_table() else {
        mistakes.at(
            &position,
            format!("expected tables, found {}", kind(value)),
            "write [targets.NAME] with path",
        );
        return Vec::new();
    };
    // Targets are measured in the order of the file.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut targets = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().to_string();
        let at = ValuePosition {
            span: key.span(),
            key: format!("targets.{name}"),
        };
        let Some(table) = value.get_ref().as_table() else {
            mistakes.at(
                &at,
                "expected a table",
                format!("write [targets.{name}] with path"),
            );
            continue;
        };
        targets.push(target(name, Section::new(table, at), mistakes));
    }
    targets
}

fn target(name: String, mut section: Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Target {
    if name.trim().is_empty() {
        mistakes.at(&section.position, "the target has no name", "");
    }
    let keys = section.keys::<TargetKeys>(mistakes);
    section.refuse_rest(&names(&[TargetKeys::all()]), mistakes);
    check_count(&section, mistakes);
    check_parts(&section, mistakes);
    let (system, locator) = match keys {
        Some(keys) => (keys.system, keys.locator.0),
        None => Default::default(),
    };
    let system = system.unwrap_or_else(|| name.clone());
    if section.table.contains_key("system") && system.trim().is_empty() {
        mistakes.at(
            &section.place_of("system"),
            "the system is empty",
            "name the storage system, as results should show it",
        );
    }
    let (at, locator) = match locator {
        Some(locator) => {
            let at = section.place_of(locator.key.name);
            let locator = checked(locator, &at, mistakes);
            (at, locator)
        }
        // A missing or unreadable value has already been reported.
        None => {
            let locator = Locator::path("");
            (section.place_of(locator.key.name), locator)
        }
    };
    Target {
        name,
        system,
        locator,
        at,
    }
}

/// Requires a single location per target. If only one key exists, it is required and reported like any other.
fn check_count(section: &Section<'_, '_>, mistakes: &mut Mistakes<'_>) {
    let keys: Vec<&str> = LOCATOR_KEYS.iter().map(|key| key.name).collect();
    let is_given = |key: &&&str| section.table.contains_key(**key);
    let given: Vec<&&str> = keys.iter().filter(is_given).collect();
    match given[..] {
        [] if keys.len() > 1 => mistakes.at(
            &section.position,
            "the location of the target is missing",
            format!("write one of {}", keys.join(", ")),
        ),
        [_, second, ..] => mistakes.at(
            &section.place_of(second),
            "the location of the target is given more than once",
            format!("keep one of {}", keys.join(", ")),
        ),
        [] | [_] => {}
    }
}

/// Requires that keys which describe how a target is reached come with the key that they belong to and are not empty.
fn check_parts(section: &Section<'_, '_>, mistakes: &mut Mistakes<'_>) {
    for key in LOCATOR_KEYS {
        for part in key.parts {
            let Some(value) = section.table.get(part.name) else {
                continue;
            };
            let at = section.place_of(part.name);
            if !section.table.contains_key(key.name) {
                let found = format!("`{}` describes how to reach a `{}`", part.name, key.name);
                mistakes.at(&at, found, format!("add `{}`, or drop it", key.name));
            } else if value
                .get_ref()
                .as_str()
                .is_some_and(|name| name.trim().is_empty())
            {
                mistakes.at(&at, format!("the {} is empty", part.name), "drop the key");
            }
        }
    }
}

/// Normalises a path.
fn checked(locator: Locator, at: &ValuePosition, mistakes: &mut Mistakes<'_>) -> Locator {
    if locator.name().trim().is_empty() {
        mistakes.at(
            at,
            format!("the {} is empty", locator.key.name),
            "name the location of the target on the clients",
        );
        return locator;
    }
    match locator.key.is_path {
        true => Locator::path(checked_path(locator.value, at, mistakes)),
        false => locator,
    }
}

/// Returns a normalised absolute path.
fn checked_path(path: String, at: &ValuePosition, mistakes: &mut Mistakes<'_>) -> String {
    if !path.starts_with('/') {
        mistakes.at(
            at,
            "the path is not absolute",
            "it is a path on the agents' hosts: begin it with /",
        );
    } else if Path::new(&path)
        .components()
        .any(|part| matches!(part, std::path::Component::ParentDir))
    {
        mistakes.at(at, "the path contains `..`", "write the path without `..`");
    } else {
        return Path::new(&path)
            .components()
            .collect::<std::path::PathBuf>()
            .to_string_lossy()
            .into_owned();
    }
    path
}

/// Refuses targets that a workload cannot work on, as far as their keys show. The kind of a path is only known when a
/// task is prepared.
pub(super) fn check_kinds<'t>(
    workload: &dyn Workload,
    targets: impl Iterator<Item = &'t Target>,
    at: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) {
    let about = workload.about();
    let is_other = |target: &&Target| {
        let mut kinds = about.targets.iter();
        about.needs == Needs::Target && !kinds.any(|kind| kind.key == target.locator.key)
    };
    for target in targets.filter(is_other) {
        mistakes.at(
            at,
            format!(
                "`{}` works in {}, and target `{}` is {}",
                about.name,
                about.target_nouns(),
                target.name,
                target.locator
            ),
            "name the other targets in the phase's `targets`",
        );
    }
}

pub(super) fn clients(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Option<Selected> {
    let (value, position) = top.take("clients")?;
    let Some(table) = value.as_table() else {
        mistakes.at(
            &position,
            format!("expected a table, found {}", kind(value)),
            "write [clients] with select = \"role=client\"; the phase's key `clients` sets their number",
        );
        return None;
    };
    let mut section = Section::new(
        table,
        ValuePosition {
            span: position.span,
            key: String::from("clients"),
        },
    );
    let select = selector(&mut section, "select", mistakes);
    let agents = selector(&mut section, "agents", mistakes);
    section.refuse_rest(&names(&[ClientsKeys::all()]), mistakes);
    if let (Some(_), Some(agents)) = (&select, &agents) {
        mistakes.at(
            &agents.position,
            "both select and agents are given",
            "keep one of them",
        );
    }
    select.or(agents)
}

/// A label expression, or a list of names.
pub(super) fn selector(
    section: &mut Section<'_, '_>,
    key: &str,
    mistakes: &mut Mistakes<'_>,
) -> Option<Selected> {
    let value = section.table.get(key)?.get_ref();
    if value.is_str() && key != "agents" {
        let (text, position) = section.text(key, mistakes)?;
        return match Selector::parse_labels(&text) {
            Ok(selector) => Some(Selected {
                selector,
                position,
                names_at: Vec::new(),
            }),
            Err(reason) => {
                mistakes.at(
                    &position,
                    reason,
                    "write label=value, several with commas: \"role=client,rack=3\"",
                );
                None
            }
        };
    }
    if key == "select" {
        let (value, position) = section.take(key)?;
        mistakes.at(
            &position,
            format!("expected a label expression, found {}", kind(value)),
            "write select = \"role=client\"; write names as agents = [...]",
        );
        return None;
    }
    let (words, position) = section.words(key, mistakes)?;
    if words.is_empty() {
        mistakes.at(
            &position,
            "the list is empty",
            "name the agents, or leave the key out",
        );
        return None;
    }
    let (names, names_at) = words.into_iter().unzip();
    Some(Selected {
        selector: Selector::Names(names),
        position,
        names_at,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::source::{Cancel, PlanSource};
    use benchmesh_model::targets::POOL_NAME;
    use benchmesh_workloads::registry;

    #[test]
    fn a_workload_refuses_targets_of_other_kinds() {
        let target = |locator| Target {
            name: "t".to_owned(),
            system: "s".to_owned(),
            locator,
            at: ValuePosition::default(),
        };
        let pool = target(Locator {
            key: &POOL_NAME,
            value: "bench".to_owned(),
        });
        let directory = target(Locator::path("/mnt/a"));
        let source = PlanSource {
            text: String::new(),
            file: "p.toml".to_owned(),
            cancel: Cancel::default(),
        };
        for (name, refused) in [("io", 0), ("fill", 1), ("objects", 1), ("null", 0)] {
            let mut mistakes = Mistakes::new(&source);
            let workload = registry::find(name).unwrap();
            let targets = [&pool, &directory].into_iter();
            check_kinds(workload, targets, &ValuePosition::default(), &mut mistakes);
            let errors = mistakes.into_errors();
            assert_eq!(errors.errors.len(), refused, "{errors}");
            let of = if name == "objects" {
                "`t` is /mnt/a"
            } else {
                "`t` is pool:bench"
            };
            assert!(refused == 0 || errors.to_string().contains(of), "{errors}");
        }
    }
}
