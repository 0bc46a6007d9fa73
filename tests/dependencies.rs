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

/// The packages for the build platform: on a fresh machine, cargo has downloaded no others.
fn packages() -> Vec<Value> {
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
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
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
    let packages = packages();
    assert!(packages.iter().any(|package| package["name"] == "tokio"));
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            wrong.push(format!("{name}: the licence {licence}"));
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let needed = dependency["name"].as_str().unwrap();
            let is_built =
                dependency["optional"] == false && packages.iter().any(|one| one["name"] == needed);
            let is_banned = |(banned, wrappers): &(&str, Vec<&str>)| {
                *banned == needed && !wrappers.contains(&name)
            };
            if is_built && bans.iter().any(is_banned) {
                wrong.push(format!("{needed}: banned, and {name} depends on it"));
            }
        }
        let Some(source) = package["source"].as_str() else {
            continue;
        };
        let is_known = |registry: &&str| source == format!("registry+{registry}");
        if !registries.iter().any(is_known) {
            wrong.push(format!("{name}: from {source}"));
        }
    }
    assert!(wrong.is_empty(), "against deny.toml:\n{}", wrong.join("\n"));
}
