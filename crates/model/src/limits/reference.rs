//! Compares docs/security.md, docs/database.md and docs/openapi.json with the table of limits.
//!
//! The lines of limits in them are generated. After a change of a limit, `BENCHMESH_BLESS=1 cargo test -p
//! benchmesh-model --lib limits::reference` rewrites them.

#![allow(clippy::unwrap_used)]

use super::{Fallback, Limit, Scope};
use std::path::Path;

/// A document's text, from its present text.
type Expected = fn(&str) -> String;

/// The text with the part between two texts replaced.
fn with_part(text: &str, before: &str, part: &str, after: &str) -> String {
    let (head, rest) = text.split_once(before).unwrap();
    let end = rest.find(after).unwrap();
    format!("{head}{before}{part}{}", rest.get(end..).unwrap())
}

/// Rows of the table of options, which end it.
fn security(text: &str) -> String {
    let mut rows = String::new();
    for limit in Limit::ALL {
        let row = limit.row();
        let default = match row.default {
            Fallback::Setting(text) => format!("`{text}`"),
            Fallback::PerCpu { .. } => row.default.describe(),
            Fallback::Unlimited => "no limit".to_owned(),
        };
        let value = limit.value_name().replace('|', " or ");
        let (option, meaning) = (row.option, row.meaning);
        rows += &format!("| `--{option} {value}` | {default} | {meaning} |\n");
    }
    let (_, last) = text.split_once("| `--workloads NAMES` |").unwrap();
    let last = last.split_inclusive('\n').next().unwrap();
    with_part(text, last, rows.trim_end(), "\n\n")
}

/// The keys of `run_agents.policy`.
fn database(text: &str) -> String {
    let names = Limit::ALL.iter().map(|limit| {
        let row = limit.row();
        let unlimited = match (row.scope, row.default) {
            (Scope::AllLoad, Fallback::Unlimited) => " (0: no limit)",
            _ => "",
        };
        format!("`{}`{unlimited}, ", row.name)
    });
    let names: String = names.collect();
    with_part(text, "`workloads` (empty: all), ", &names, "`networks`")
}

/// The properties of the schema `Policy`.
fn openapi(text: &str) -> String {
    let (head, policy) = text.split_once("   \"Policy\": {\n").unwrap();
    let (mut required, mut properties) = (String::new(), String::new());
    for limit in Limit::ALL {
        let row = limit.row();
        let (kind, description) = match (row.scope, row.default) {
            (Scope::AllLoad, Fallback::Unlimited) => ("integer", Some("0: no limit")),
            (Scope::AllLoad, _) => ("integer", None),
            (Scope::EachTarget, _) => ("string", None),
        };
        required += &format!("     \"{}\",\n", row.name);
        let description = description.map(|text| format!(",\n      \"description\": \"{text}\""));
        properties += &format!(
            "     \"{}\": {{\n      \"type\": \"{kind}\"{}\n     }},\n",
            row.name,
            description.unwrap_or_default()
        );
    }
    let policy = with_part(
        policy,
        "     \"workloads\",\n",
        &required,
        "     \"networks\",\n",
    );
    let described = "      \"description\": \"empty: all\"\n     },\n";
    let policy = with_part(&policy, described, &properties, "     \"networks\": {\n");
    format!("{head}   \"Policy\": {{\n{policy}")
}

#[test]
fn the_documents_have_every_limit() {
    let files: [(&str, Expected); 3] = [
        ("security.md", security),
        ("database.md", database),
        ("openapi.json", openapi),
    ];
    for (file, expected) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs")
            .join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = expected(&text);
        if std::env::var_os("BENCHMESH_BLESS").is_some() {
            std::fs::write(&path, &expected).unwrap();
            continue;
        }
        assert!(
            text == expected,
            "docs/{file} is out of date: BENCHMESH_BLESS=1 cargo test -p benchmesh-model --lib limits::reference"
        );
    }
}
