//! Ceph's state, from the JSON output of its command-line tool.

use super::{FactCommand, Facts, HEALTH, NONE, NotReadable, WHOLE};
use serde_json::Value as Json;
use std::borrow::Borrow;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[FactCommand] = &[
    FactCommand {
        arguments: &["-s", "--format", "json"],
        each: None,
        parse: status,
    },
    FactCommand {
        arguments: &["osd", "tree", "--format", "json"],
        each: None,
        parse: osd_tree,
    },
    FactCommand {
        arguments: &["osd", "pool", "ls", "detail", "--format", "json"],
        each: None,
        parse: pools,
    },
    FactCommand {
        arguments: &["versions", "--format", "json"],
        each: None,
        parse: versions,
    },
];

/// Figures of `ceph -s`: the fact, its path, its unit. An absent figure does not exist in the cluster.
const FIGURES: &[(&str, &str, &str)] = &[
    ("mons", "/monmap/num_mons", ""),
    ("osds", "/osdmap/num_osds", ""),
    ("osds_up", "/osdmap/num_up_osds", ""),
    ("osds_in", "/osdmap/num_in_osds", ""),
    ("pgs", "/pgmap/num_pgs", ""),
    ("objects", "/pgmap/num_objects", ""),
    ("data_bytes", "/pgmap/data_bytes", "bytes"),
    ("used_bytes", "/pgmap/bytes_used", "bytes"),
    ("total_bytes", "/pgmap/bytes_total", "bytes"),
];
/// Figures that `ceph -s` omits if they are 0.
const FIGURES_IF_ANY: &[(&str, &str)] = &[
    ("objects_degraded", "/pgmap/degraded_objects"),
    ("objects_misplaced", "/pgmap/misplaced_objects"),
    ("objects_unfound", "/pgmap/unfound_objects"),
];

fn json(output: &str) -> Result<Json, NotReadable> {
    serde_json::from_str(output).map_err(|error| NotReadable(format!("invalid JSON: {error}")))
}

fn status(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let status = json(output)?;
    let health = status.pointer("/health/status").and_then(Json::as_str);
    let health = health.ok_or_else(|| NotReadable("it has no `health.status`".to_owned()))?;
    facts.add_text(HEALTH, health);
    let checks = status.pointer("/health/checks").and_then(Json::as_object);
    let checks: Vec<&str> = checks
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    facts.add_text("health_checks", &or_none(&checks));
    for (name, place, unit) in FIGURES {
        // Up to Nautilus the map was one level deeper.
        let older = place.replacen("/osdmap/", "/osdmap/osdmap/", 1);
        let found = status.pointer(place).or_else(|| status.pointer(&older));
        if let Some(number) = found.and_then(Json::as_f64) {
            facts.add_number(*name, number, unit);
        }
    }
    if status.get("pgmap").is_some() {
        for (name, place) in FIGURES_IF_ANY {
            let number = status.pointer(place).and_then(Json::as_f64);
            facts.add_number(*name, number.unwrap_or(0.0), "");
        }
    }
    let quorum = status.get("quorum").and_then(Json::as_array).map(Vec::len);
    if let Some(count) = quorum.and_then(|count| u32::try_from(count).ok()) {
        facts.add_number("mons_in_quorum", f64::from(count), "");
    }
    let states = status
        .pointer("/pgmap/pgs_by_state")
        .and_then(Json::as_array);
    let clean = states.into_iter().flatten().filter(|state| {
        let name = state.get("state_name").and_then(Json::as_str);
        name.is_some_and(|name| name.starts_with("active+clean"))
    });
    let clean: f64 = clean.filter_map(|state| state.get("count")?.as_f64()).sum();
    if states.is_some() {
        facts.add_number("pgs_clean", clean, "");
    }
    Ok(())
}

/// Empty lists are recorded too: a fact stays valid until a new value replaces it.
fn or_none(words: &[impl Borrow<str>]) -> String {
    match words.is_empty() {
        true => NONE.to_owned(),
        false => words.join(" "),
    }
}

fn osd_tree(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let tree = json(output)?;
    let nodes = tree.get("nodes").and_then(Json::as_array);
    let nodes = nodes.ok_or_else(|| NotReadable("it has no `nodes`".to_owned()))?;
    let text = |node: &Json, key: &str| node.get(key).and_then(Json::as_str).map(str::to_owned);
    let of_type = |wanted: &'static str| {
        nodes
            .iter()
            .filter(move |node| text(node, "type").as_deref() == Some(wanted))
    };
    let down = of_type("osd").filter(|node| text(node, "status").as_deref() == Some("down"));
    let down: Vec<String> = down.filter_map(|node| text(node, "name")).collect();
    facts.add_text("osds_down", &or_none(&down));
    let hosts = u32::try_from(of_type("host").count()).unwrap_or(u32::MAX);
    facts.add_number("hosts", f64::from(hosts), "");
    Ok(())
}

fn pools(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let pools = json(output)?;
    let pools = pools.as_array();
    let pools = pools.ok_or_else(|| NotReadable("it is not a list of pools".to_owned()))?;
    for pool in pools {
        let Some(name) = pool.get("pool_name").and_then(Json::as_str) else {
            continue;
        };
        for (fact, key) in [
            ("size", "size"),
            ("min_size", "min_size"),
            ("pgs", "pg_num"),
        ] {
            if let Some(number) = pool.get(key).and_then(Json::as_f64) {
                facts.add_number(format!("pool.{name}.{fact}"), number, "");
            }
        }
        let profile = pool.get("erasure_code_profile").and_then(Json::as_str);
        facts.add_text(format!("pool.{name}.erasure"), profile.unwrap_or_default());
    }
    Ok(())
}

/// `ceph version 16.2.15 (618f...) pacific (stable)` for each kind of running daemon.
fn versions(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let kinds: BTreeMap<String, Json> = serde_json::from_str(output)
        .map_err(|error| NotReadable(format!("not a JSON object: {error}")))?;
    for (kind, versions) in kinds.iter().filter(|(kind, _)| *kind != "overall") {
        let running = versions.as_object().into_iter().flatten();
        let short = running.filter_map(|(text, _)| text.split_whitespace().nth(2));
        let running: Vec<&str> = short.collect();
        facts.add_text(format!("version.{kind}"), &running.join(" and "));
    }
    Ok(())
}

/// Other warnings, such as a pool without an application, do not make a cluster degraded.
pub(super) fn conclude(facts: &mut Facts) {
    let Some(health) = facts.text(HEALTH) else {
        return;
    };
    let number = |name| facts.number(name);
    let lacks = |(part, all)| {
        number(part)
            .zip(number(all))
            .is_some_and(|(part, all)| part < all)
    };
    let is_short = [
        ("mons_in_quorum", "mons"),
        ("osds_up", "osds_in"),
        ("pgs_clean", "pgs"),
    ]
    .into_iter()
    .any(lacks);
    let is_moving = FIGURES_IF_ANY
        .iter()
        .any(|(name, _)| number(name).is_some_and(|number| number > 0.0));
    let is_whole = health != "HEALTH_ERR" && !is_short && !is_moving;
    facts.add_text(WHOLE, if is_whole { "yes" } else { "no" });
}
