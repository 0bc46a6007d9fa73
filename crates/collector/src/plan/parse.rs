//! From the plan's text to a `Plan`, or to all of its mistakes at once.

use super::{
    Cache, Kind, OnLoss, Pairs, Phase, Plan, Target, cells, keys,
    read::{Section, as_count, kind, to_json, unknown_key},
    select::{Selected, Selector},
    source::{Mistakes, Source, Spot, listed},
};
use benchmesh_workloads::{
    params::nearest,
    workload::{self, Needs, Workload},
};
use serde_json::Map;
use std::{collections::BTreeMap, path::Path, time::Duration};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A plan is for people; what is longer is not one.
const MAX_TEXT_BYTES: usize = 1 << 20;
const DEFAULT_LOSS_AFTER: Duration = Duration::from_secs(30);
/// Below this a busy collector would call healthy agents lost.
const MIN_LOSS_AFTER: Duration = Duration::from_secs(1);

pub(super) fn parse(source: &Source, mistakes: &mut Mistakes<'_>) -> Option<Plan> {
    if source.text.len() > MAX_TEXT_BYTES {
        mistakes.whole(
            format!(
                "the plan has {} bytes; at most {MAX_TEXT_BYTES} are read",
                source.text.len()
            ),
            "",
        );
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    if !errors.is_empty() {
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let spot = Spot {
                span,
                key: String::new(),
            };
            mistakes.at(&spot, format!("not TOML: {}", error.message()), "");
        }
        return None;
    }
    let mut top = Section::new(document.get_ref(), Spot::default());
    let name = top.text("name", mistakes);
    let repeat = top
        .count("repeat", 1..=1000, mistakes)
        .map_or(1, |(n, _)| n);
    let on_loss = on_loss(&mut top, mistakes);
    let loss_after = match top.duration("loss-after", mistakes) {
        Some((given, spot)) if given < MIN_LOSS_AFTER => {
            mistakes.at(
                &spot,
                "shorter than 1s",
                "a healthy agent may be silent for so long; write 1s or more",
            );
            given
        }
        Some((given, _)) => given,
        None => DEFAULT_LOSS_AFTER,
    };
    let lease = top
        .duration("lease", mistakes)
        .map_or(DEFAULT_LOSS_AFTER, |(given, _)| given);
    let targets = targets(&mut top, mistakes);
    let clients = clients(&mut top, mistakes);
    let phases = phases(&mut top, &targets, mistakes);
    top.refuse_rest(&keys::names(&[keys::TOP]), mistakes);
    let name = match name {
        Some((name, spot)) if name.trim().is_empty() => {
            mistakes.at(
                &spot,
                "the name is empty",
                "leave it out, or say what the run is called",
            );
            name
        }
        Some((name, _)) => name,
        None => file_stem(&source.file),
    };
    Some(Plan {
        name,
        repeat,
        on_loss,
        loss_after,
        lease,
        targets,
        clients,
        phases,
        source: source.clone(),
    })
}

fn file_stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(
        || String::from("plan"),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

fn on_loss(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> OnLoss {
    const REMEDY: &str = "write \"continue\", \"abort\" or { at-least = 2 }";
    let Some((value, spot)) = top.take("on-loss") else {
        return OnLoss::Continue;
    };
    match value {
        DeValue::String(word) if word == "continue" => return OnLoss::Continue,
        DeValue::String(word) if word == "abort" => return OnLoss::Abort,
        DeValue::Table(table) => {
            let mut section = Section::new(table, spot.clone());
            let least = section.count("at-least", 1..=100_000, mistakes);
            section.refuse_rest(&["at-least"], mistakes);
            if let Some((least, _)) = least {
                return OnLoss::AtLeast(least);
            }
            if table.is_empty() {
                mistakes.at(&spot, "an empty policy", REMEDY);
            }
        }
        _ => mistakes.at(&spot, "no such policy", REMEDY),
    }
    OnLoss::Continue
}

fn targets(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Target> {
    let Some((value, spot)) = top.take("targets") else {
        return Vec::new();
    };
    let Some(table) = value.as_table() else {
        mistakes.at(
            &spot,
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
        let at = Spot {
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
    let spot = section.spot.clone();
    if name.trim().is_empty() {
        mistakes.at(&spot, "the target has no name", "");
    }
    let system = section.text("system", mistakes);
    let path = section.text("path", mistakes);
    if !section.table.contains_key("system") {
        mistakes.at(
            &spot,
            format!("target `{name}` has no `system`"),
            "say what storage it is, as results shall name it: system = \"cephfs\"",
        );
    }
    if !section.table.contains_key("path") {
        mistakes.at(
            &spot,
            format!("target `{name}` has no `path`"),
            "say where its clients have it mounted: path = \"/mnt/...\"",
        );
    }
    section.refuse_rest(&keys::names(&[keys::TARGET]), mistakes);
    if let Some((_, at)) = system.as_ref().filter(|(text, _)| text.trim().is_empty()) {
        mistakes.at(
            at,
            "the system is empty",
            "say what storage it is, as results shall name it",
        );
    }
    let at = path.as_ref().map_or(spot, |(_, at)| at.clone());
    let path = path.map_or_else(String::new, |(path, at)| checked_path(path, &at, mistakes));
    Target {
        name,
        system: system.map_or_else(String::new, |(text, _)| text),
        path,
        at,
    }
}

/// An absolute path in its shortest spelling.
fn checked_path(path: String, at: &Spot, mistakes: &mut Mistakes<'_>) -> String {
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

fn clients(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Option<Selected> {
    let (value, spot) = top.take("clients")?;
    let Some(table) = value.as_table() else {
        mistakes.at(
            &spot,
            format!("expected a table, found {}", kind(value)),
            "write [clients] with select = \"role=client\"; how many are taken is the phase's key `clients`",
        );
        return None;
    };
    let mut section = Section::new(
        table,
        Spot {
            span: spot.span,
            key: String::from("clients"),
        },
    );
    let select = selector(&mut section, "select", mistakes);
    let agents = selector(&mut section, "agents", mistakes);
    section.refuse_rest(&keys::names(&[keys::CLIENTS]), mistakes);
    if let (Some(_), Some(agents)) = (&select, &agents) {
        mistakes.at(
            &agents.spot,
            "both select and agents are given",
            "keep one of them",
        );
    }
    select.or(agents)
}

/// A label expression, or a list of names.
fn selector(
    section: &mut Section<'_, '_>,
    key: &str,
    mistakes: &mut Mistakes<'_>,
) -> Option<Selected> {
    let value = section.table.get(key)?.get_ref();
    if value.is_str() && key != "agents" {
        let (text, spot) = section.text(key, mistakes)?;
        return match Selector::parse_labels(&text) {
            Ok(selector) => Some(Selected {
                selector,
                spot,
                names_at: Vec::new(),
            }),
            Err(reason) => {
                mistakes.at(
                    &spot,
                    reason,
                    "write label=value, several with commas: \"role=client,rack=3\"",
                );
                None
            }
        };
    }
    if key == "select" {
        let (value, spot) = section.take(key)?;
        mistakes.at(
            &spot,
            format!("expected a label expression, found {}", kind(value)),
            "write select = \"role=client\"; names stand in agents = [...]",
        );
        return None;
    }
    let (words, spot) = section.words(key, mistakes)?;
    if words.is_empty() {
        mistakes.at(
            &spot,
            "the list is empty",
            "name the agents, or leave the key out",
        );
        return None;
    }
    let (names, names_at) = words.into_iter().unzip();
    Some(Selected {
        selector: Selector::Names(names),
        spot,
        names_at,
    })
}

fn phases(
    top: &mut Section<'_, '_>,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Phase> {
    let Some((value, spot)) = top.take("phase") else {
        mistakes.whole(
            "the plan has no phase",
            "add [[phase]] with a workload and its modes",
        );
        return Vec::new();
    };
    let Some(list) = value.as_array() else {
        mistakes.at(
            &spot,
            format!("expected tables, found {}", kind(value)),
            "write [[phase]], with two brackets",
        );
        return Vec::new();
    };
    if list.is_empty() {
        mistakes.at(
            &spot,
            "the plan has no phase",
            "add [[phase]] with a workload and its modes",
        );
    }
    let mut phases: Vec<Phase> = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let at = Spot {
            span: item.span(),
            key: format!("phase.{index}"),
        };
        let Some(table) = item.get_ref().as_table() else {
            mistakes.at(&at, "expected a table", "write [[phase]]");
            continue;
        };
        let Some(phase) = phase(table, at, targets, mistakes) else {
            continue;
        };
        if let Some(twin) = phases.iter().find(|known| known.name == phase.name) {
            mistakes.at(
                &phase.at,
                format!(
                    "two phases are called `{}`: this is also {}",
                    phase.name, twin.at.key
                ),
                "give each a name of its own, results are told apart by it",
            );
        }
        phases.push(phase);
    }
    phases
}

fn phase(
    table: &DeTable<'_>,
    at: Spot,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Option<Phase> {
    let mut section = Section::new(table, at.clone());
    let known: Vec<&str> = workload::registry().iter().map(|w| w.name()).collect();
    let Some((name, name_at)) = section.text("workload", mistakes) else {
        if !table.contains_key("workload") {
            mistakes.at(
                &at,
                "the phase has no `workload`",
                format!("one of {}", listed(known)),
            );
        }
        return None;
    };
    let Some(workload) = workload::find(&name) else {
        let remedy = match nearest(&name, known.iter().copied()) {
            Some(candidate) => format!("did you mean `{candidate}`?"),
            None => format!("there are {}", listed(known)),
        };
        mistakes.at(&name_at, format!("unknown workload `{name}`"), remedy);
        return None;
    };
    let phase_name = section.text("name", mistakes);
    if let Some((_, at)) = phase_name
        .as_ref()
        .filter(|(name, _)| name.trim().is_empty())
    {
        mistakes.at(
            at,
            "the name is empty",
            "leave it out, or say what results shall call the phase",
        );
    }
    let modes = modes(&mut section, workload, mistakes);
    let cache = cache(&mut section, mistakes);
    let clients = section.count("clients", 1..=100_000, mistakes);
    let tasks_per_agent = section.count("tasks-per-agent", 1..=1024, mistakes);
    let phase_targets = phase_targets(&mut section, workload, targets, mistakes);
    let settle = section
        .duration("settle", mistakes)
        .map_or(Duration::ZERO, |(given, _)| given);
    let (from, to, pairs) = if workload.needs() == Needs::Peer {
        let from = selector(&mut section, "from", mistakes);
        let to = selector(&mut section, "to", mistakes);
        (from, to, pairs(&mut section, mistakes))
    } else {
        (None, None, Pairs::Each)
    };
    let matrix = matrix(&mut section, workload, mistakes);
    let (params, params_at) = params(&section, workload, &matrix, mistakes);
    let base = cells::Base {
        params,
        params_at,
        clients: clients.map(|(n, _)| n),
        tasks_per_agent: tasks_per_agent.map_or(1, |(n, _)| n),
        at: at.clone(),
    };
    let cells = cells::checked(workload, &modes, &base, &matrix, mistakes);
    Some(Phase {
        name: phase_name.map_or(name, |(given, _)| given),
        workload: Kind(workload),
        modes,
        cache,
        targets: phase_targets,
        settle,
        from,
        to,
        pairs,
        cells,
        at,
    })
}

fn modes(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Vec<String> {
    let known: Vec<&str> = workload.modes().iter().map(|mode| mode.name).collect();
    if !section.table.contains_key("modes") {
        if let [only] = known.as_slice() {
            return vec![(*only).to_owned()];
        }
        mistakes.at(
            &section.spot,
            format!(
                "the phase has no `modes`, and {} has several",
                workload.name()
            ),
            format!("write modes = [...] with some of {}", listed(known)),
        );
        return Vec::new();
    }
    let Some((words, spot)) = section.words("modes", mistakes) else {
        return Vec::new();
    };
    if words.is_empty() {
        mistakes.at(
            &spot,
            "the list is empty",
            format!("name some of {}", listed(known.iter().copied())),
        );
    }
    let mut modes = Vec::new();
    for (word, at) in words {
        if known.contains(&word.as_str()) {
            modes.push(word);
            continue;
        }
        let remedy = match nearest(&word, known.iter().copied()) {
            Some(candidate) => format!("did you mean `{candidate}`?"),
            None => format!("there are {}", listed(known.iter().copied())),
        };
        mistakes.at(
            &at,
            format!("{} has no mode `{word}`", workload.name()),
            remedy,
        );
    }
    modes
}

fn cache(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Cache {
    let Some((word, spot)) = section.text("cache", mistakes) else {
        return Cache::AsIs;
    };
    Cache::parse(&word).unwrap_or_else(|| {
        mistakes.at(
            &spot,
            format!("no cache treatment `{word}`"),
            "there are asis, cold, warm and bypass",
        );
        Cache::AsIs
    })
}

fn pairs(section: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Pairs {
    match section.text("pairs", mistakes) {
        None => Pairs::Each,
        Some((word, _)) if word == "each" => Pairs::Each,
        Some((word, _)) if word == "all" => Pairs::All,
        Some((word, spot)) => {
            mistakes.at(
                &spot,
                format!("no order of pairs `{word}`"),
                "write \"each\" or \"all\"",
            );
            Pairs::Each
        }
    }
}

/// Indices into the plan's targets; empty for a workload that needs none.
fn phase_targets(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    targets: &[Target],
    mistakes: &mut Mistakes<'_>,
) -> Vec<usize> {
    if workload.needs() != Needs::Target {
        if let Some((_, spot)) = section.take("targets") {
            mistakes.at(
                &spot,
                format!("{} needs no target", workload.name()),
                "remove the key",
            );
        }
        return Vec::new();
    }
    if targets.is_empty() {
        mistakes.at(
            &section.spot,
            format!("{} needs a target, and the plan has none", workload.name()),
            "add [targets.NAME] with system and path",
        );
    }
    let Some((words, spot)) = section.words("targets", mistakes) else {
        return (0..targets.len()).collect();
    };
    if words.is_empty() {
        mistakes.at(
            &spot,
            "the list is empty",
            "leave the key out to measure all targets",
        );
    }
    let mut chosen = Vec::new();
    for (word, at) in words {
        match targets.iter().position(|target| target.name == word) {
            Some(index) if chosen.contains(&index) => {
                mistakes.at(&at, format!("target `{word}` stands here twice"), "");
            }
            Some(index) => chosen.push(index),
            None => {
                let known = targets.iter().map(|target| target.name.as_str());
                let remedy = match nearest(&word, known.clone()) {
                    Some(candidate) => format!("did you mean `{candidate}`?"),
                    None => format!("the plan's targets: {}", listed(known)),
                };
                mistakes.at(&at, format!("the plan has no target `{word}`"), remedy);
            }
        }
    }
    chosen
}

/// The parameters that stand outside `matrix`, for the workload to judge.
fn params(
    section: &Section<'_, '_>,
    workload: &dyn Workload,
    matrix: &[cells::Dimension],
    mistakes: &mut Mistakes<'_>,
) -> (Map<String, serde_json::Value>, BTreeMap<String, Spot>) {
    let known = known_keys(workload);
    let (mut params, mut at) = (Map::new(), BTreeMap::new());
    for (key, key_at, value, value_at) in section.rest() {
        if !workload.keys().iter().any(|info| info.name == key) {
            unknown_key(&key, &key_at, &known, mistakes);
            continue;
        }
        if matrix.iter().any(|dimension| dimension.key == key) {
            mistakes.at(
                &key_at,
                format!("`{key}` also stands in matrix"),
                "keep one of them",
            );
            continue;
        }
        if let Some(json) = to_json(value, &value_at, mistakes) {
            params.insert(key.clone(), json);
            at.insert(key, value_at);
        }
    }
    (params, at)
}

/// Every key that a phase of this workload may have.
pub(super) fn known_keys(workload: &dyn Workload) -> Vec<&'static str> {
    let mut known: Vec<&'static str> = workload.keys().iter().map(|info| info.name).collect();
    known.extend(keys::PHASE.iter().map(|key| key.name));
    if workload.needs() == Needs::Peer {
        known.extend(keys::PEERS.iter().map(|key| key.name));
    }
    known
}

fn matrix(
    section: &mut Section<'_, '_>,
    workload: &dyn Workload,
    mistakes: &mut Mistakes<'_>,
) -> Vec<cells::Dimension> {
    let Some((value, spot)) = section.take("matrix") else {
        return Vec::new();
    };
    let Some(table) = value.as_table() else {
        mistakes.at(
            &spot,
            format!("expected a table of lists, found {}", kind(value)),
            "write matrix = { size = [\"128m\", \"1g\"] }",
        );
        return Vec::new();
    };
    let mut known: Vec<&str> = workload.keys().iter().map(|info| info.name).collect();
    known.extend(["clients", "tasks-per-agent"]);
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut dimensions = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().to_string();
        let at = Spot {
            span: key.span(),
            key: format!("{}.{name}", spot.key),
        };
        if !known.contains(&name.as_str()) {
            unknown_key(&name, &at, &known, mistakes);
            continue;
        }
        if let Some(values) = values(&name, &at, value, mistakes) {
            dimensions.push(cells::Dimension { key: name, values });
        }
    }
    for counted in ["clients", "tasks-per-agent"] {
        if section.table.contains_key(counted)
            && let Some(dimension) = dimensions.iter().find(|dimension| dimension.key == counted)
            && let Some((_, at)) = dimension.values.first()
        {
            mistakes.at(
                at,
                format!("`{counted}` also stands outside matrix"),
                "keep one of them",
            );
        }
    }
    dimensions
}

fn values(
    name: &str,
    at: &Spot,
    value: &Spanned<DeValue<'_>>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(serde_json::Value, Spot)>> {
    let Some(list) = value.get_ref().as_array() else {
        mistakes.at(
            at,
            format!("expected a list, found {}", kind(value.get_ref())),
            format!("write {name} = [...]"),
        );
        return None;
    };
    if list.is_empty() {
        mistakes.at(
            at,
            "the list is empty: there would be no cell",
            "give it a value, or remove the key",
        );
        return None;
    }
    let mut values: Vec<(serde_json::Value, Spot)> = Vec::new();
    for item in list.iter() {
        let item_at = Spot {
            span: item.span(),
            key: at.key.clone(),
        };
        let limit = match name {
            "clients" => Some(1..=100_000),
            "tasks-per-agent" => Some(1..=1024),
            _ => None,
        };
        let json = match limit {
            Some(limit) => as_count(item.get_ref(), &limit, &item_at, mistakes)?.into(),
            None => to_json(item.get_ref(), &item_at, mistakes)?,
        };
        if values.iter().any(|(known, _)| *known == json) {
            mistakes.at(&item_at, "the value stands in the list twice", "");
        }
        values.push((json, item_at));
    }
    Some(values)
}
