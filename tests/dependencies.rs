//! Holds what is built in against deny.toml, with nothing but cargo: licences, bans, where the code comes from.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
    registries: Vec<String>,
}

impl Rules {
    fn read() -> Self {
        let text = include_str!("../deny.toml");
        let rules: toml::Table = text.parse().unwrap();
        let texts = |value: &toml::Value| -> Vec<String> {
            let list = value.as_array().unwrap().iter();
            list.map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let banned = rules["bans"]["deny"].as_array().unwrap().iter();
        Self {
            licences: texts(&rules["licenses"]["allow"]).into_iter().collect(),
            banned: banned
                .map(|ban| ban["crate"].as_str().unwrap().to_owned())
                .collect(),
            registries: texts(&rules["sources"]["allow-registry"]),
        }
    }

    /// Whether an SPDX expression can be met: `OR` (or the old `/`) offers, `AND` demands, parentheses bind.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ")
            .replace(" WITH ", "+with+");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let (met, rest) = self.any_of(&words);
        assert!(rest.is_empty(), "{expression}: {rest:?} is left");
        met
    }

    fn any_of<'w>(&self, words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
        let (mut met, mut rest) = self.all_of(words);
        while rest.first() == Some(&"OR") {
            let (other, left) = self.all_of(&rest[1..]);
            (met, rest) = (met || other, left);
        }
        (met, rest)
    }

    fn all_of<'w>(&self, words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
        let (mut met, mut rest) = self.one(words);
        while rest.first() == Some(&"AND") {
            let (other, left) = self.one(&rest[1..]);
            (met, rest) = (met && other, left);
        }
        (met, rest)
    }

    fn one<'w>(&self, words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
        if words[0] == "(" {
            let (met, rest) = self.any_of(&words[1..]);
            assert_eq!(rest[0], ")");
            return (met, &rest[1..]);
        }
        let licence = words[0].replace("+with+", " WITH ");
        (self.licences.contains(&licence), &words[1..])
    }
}

#[test]
fn expressions_are_read_as_they_are_meant() {
    let rules = Rules {
        licences: ["A", "B"].map(str::to_owned).into(),
        banned: BTreeSet::new(),
        registries: Vec::new(),
    };
    for (expression, allowed) in [
        ("A", true),
        ("X", false),
        ("A OR X", true),
        ("X/B", true),
        ("X / A", true),
        ("A AND X", false),
        ("A AND B", true),
        ("(X OR A) AND B", true),
        ("X AND (A OR B)", false),
        ("A WITH exception", false),
        ("A WITH exception OR B", true),
    ] {
        assert_eq!(rules.allows(expression), allowed, "{expression}");
    }
}

#[test]
fn everything_built_in_may_be() {
    let rules = Rules::read();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !rules.allows(licence) {
            wrong.push(format!("{name}: the licence {licence}"));
        }
        if rules.banned.contains(name) {
            wrong.push(format!("{name}: banned"));
        }
        let Some(source) = package["source"].as_str() else {
            continue;
        };
        if !rules
            .registries
            .iter()
            .any(|registry| source == format!("registry+{registry}"))
        {
            wrong.push(format!("{name}: from {source}"));
        }
    }
    assert!(wrong.is_empty(), "against deny.toml:\n{}", wrong.join("\n"));
}
