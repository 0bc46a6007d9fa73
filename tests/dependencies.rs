//! Checks the dependencies against deny.toml with cargo alone: licences, banned crates, registries.
//!
//! cargo-deny reads the same file. Building it takes longer than all of benchmesh's tests, so CI does not use it.

use crate::support::command::must;
use serde_json::Value;
use std::process::Command;

fn texts(value: &toml::Value) -> Vec<&str> {
    let list = value.as_array().unwrap();
    list.iter().map(|text| text.as_str().unwrap()).collect()
}

/// The packages and their graph for the build platform: on a fresh machine, cargo has downloaded no others.
fn metadata() -> Value {
    let rustc = must("rustc", &["--version", "--verbose"]);
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", host.unwrap()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_dependency_meets_deny_toml() {
    let rules: toml::Table = include_str!("../deny.toml").parse().unwrap();
    let licences = texts(&rules["licenses"]["allow"]);
    let registries = texts(&rules["sources"]["allow-registry"]);
    let bans = rules["bans"]["deny"].as_array().unwrap();
    // A banned crate, and those that may depend on it all the same.
    let bans: Vec<(&str, Vec<&str>)> = bans
        .iter()
        .map(|ban| {
            let wrappers = ban.get("wrappers").map_or_else(Vec::new, texts);
            (ban["crate"].as_str().unwrap(), wrappers)
        })
        .collect();
    let is_allowed = |licence: &str| {
        spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|required| licences.contains(&required.to_string().as_str()))
        })
    };
    assert!(!is_allowed("GPL-3.0-only") && !is_allowed("MIT AND GPL-3.0-only"));
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let name_of = |id: &Value| {
        let package = packages.iter().find(|package| package["id"] == *id);
        package.unwrap()["name"].as_str().unwrap()
    };
    assert!(packages.iter().any(|package| package["name"] == "tokio"));
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            wrong.push(format!("{name}: the licence {licence}"));
        }
        let Some(source) = package["source"].as_str() else {
            continue;
        };
        let is_known = |registry: &&str| source == format!("registry+{registry}");
        if !registries.iter().any(is_known) {
            wrong.push(format!("{name}: from {source}"));
        }
    }
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let name = name_of(&node["id"]);
        for needed in node["dependencies"].as_array().unwrap().iter().map(name_of) {
            let is_banned = |(banned, wrappers): &(&str, Vec<&str>)| {
                *banned == needed && !wrappers.contains(&name)
            };
            if bans.iter().any(is_banned) {
                wrong.push(format!("{needed}: banned, and {name} depends on it"));
            }
        }
    }
    assert!(wrong.is_empty(), "against deny.toml:\n{}", wrong.join("\n"));
}
