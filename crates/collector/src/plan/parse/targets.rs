//! The storage under test, and the agents that carry the load.

use super::super::{
    Target,
    keys::{ClientsKeys, TargetKeys, names},
    read::{Section, kind},
    select::{Selected, Selector},
    source::{Mistakes, Position},
};
use benchmesh_workloads::params::Keys;
use std::path::Path;

pub(super) fn targets(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Target> {
    let Some((value, position)) = top.take("targets") else {
        return Vec::new();
    };
    let Some(table) = value.as_table() else {
        mistakes.at(
            &position,
            format!("expected tables, found {}", kind(value)),
            "write [targets.NAME] with system and path",
        );
        return Vec::new();
    };
    // In the order of the file: targets are measured in it.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut targets = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().to_string();
        let at = Position {
            span: key.span(),
            key: format!("targets.{name}"),
        };
        let Some(table) = value.get_ref().as_table() else {
            mistakes.at(
                &at,
                "expected a table",
                format!("write [targets.{name}] with system and path"),
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
    let (system, path) = keys.map_or_else(Default::default, |keys| (keys.system, keys.path));
    if section.table.contains_key("system") && system.trim().is_empty() {
        mistakes.at(
            &section.place_of("system"),
            "the system is empty",
            "say what storage it is, as results shall name it",
        );
    }
    let at = section.place_of("path");
    let path = match section.table.contains_key("path") {
        true => checked_path(path, &at, mistakes),
        false => path,
    };
    Target {
        name,
        system,
        path,
        at,
    }
}

/// An absolute path in its shortest spelling.
fn checked_path(path: String, at: &Position, mistakes: &mut Mistakes<'_>) -> String {
    if path.trim().is_empty() {
        mistakes.at(
            at,
            "the path is empty",
            "say where the clients have the target mounted",
        );
    } else if !path.starts_with('/') {
        mistakes.at(
            at,
            "the path is not absolute",
            "it is a path on the agents' hosts: begin it with /",
        );
    } else if Path::new(&path)
        .components()
        .any(|part| matches!(part, std::path::Component::ParentDir))
    {
        mistakes.at(at, "the path contains `..`", "write the path that is meant");
    } else {
        return Path::new(&path)
            .components()
            .collect::<std::path::PathBuf>()
            .to_string_lossy()
            .into_owned();
    }
    path
}

pub(super) fn clients(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Option<Selected> {
    let (value, position) = top.take("clients")?;
    let Some(table) = value.as_table() else {
        mistakes.at(
            &position,
            format!("expected a table, found {}", kind(value)),
            "write [clients] with select = \"role=client\"; how many are taken is the phase's key `clients`",
        );
        return None;
    };
    let mut section = Section::new(
        table,
        Position {
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
            "write select = \"role=client\"; names stand in agents = [...]",
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
