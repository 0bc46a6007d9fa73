//! Compares the tables of events in docs/ with the table of kinds.
//!
//! The text between the markers is generated. After a change of a kind, `BENCHMESH_BLESS=1 cargo test -p
//! benchmesh-model --lib events::reference` rewrites it.

#![allow(clippy::unwrap_used)]

use super::{EventKind, EventSource, Topic, WireKind};
use crate::mesh::Severity;
use std::collections::BTreeSet;
use std::path::Path;

/// Each topic with the page that explains its kinds.
const PAGES: [(Topic, &str); 6] = [
    (Topic::Agents, "troubleshooting.md"),
    (Topic::Loads, "troubleshooting.md"),
    (Topic::Steps, "troubleshooting.md"),
    (Topic::Daemons, "troubleshooting.md"),
    (Topic::Database, "troubleshooting.md"),
    (Topic::Trust, "security.md"),
];

/// The kinds of a topic: a table of their meanings and remedies.
fn explained(topic: Topic) -> String {
    let mut text = String::from(
        "\n| event | severity | what happened | what to do |\n| --- | --- | --- | --- |\n",
    );
    let rows = EventKind::ALL.iter().map(|kind| kind.row());
    for row in rows.filter(|row| row.topic == topic) {
        let (name, severity, meaning) = (row.name, row.severity, row.meaning);
        text += &format!("| `{name}` | {severity} | {meaning} | {} |\n", row.remedy);
    }
    text + "\n"
}

/// The figures of each kind that has some: items of a list, wrapped at 120 columns.
fn details() -> String {
    let mut text = String::new();
    let rows = EventKind::ALL.iter().map(|kind| kind.row());
    for row in rows.filter(|row| !row.detail.is_empty()) {
        let mut line = format!("\n- `{}`:", row.name);
        for word in row.detail.split(' ') {
            if line.len() + 1 + word.len() > 120 {
                text += &line;
                line = String::from("\n ");
            }
            line += &format!(" {word}");
        }
        text += &line;
    }
    text + "\n\n"
}

fn with_part(page: &str, name: &str, part: &str) -> String {
    let begin = format!("<!-- begin {name} -->\n");
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once("<!-- end").unwrap();
    format!("{before}{begin}{part}<!-- end{after}")
}

fn expected(page: &str, text: &str) -> String {
    if page == "database.md" {
        let names: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let words = format!(
            "{}; agents of another version may record others",
            names.join(", ")
        );
        let is_words = |line: &&str| line.starts_with("| `events.kind` |");
        let line = text.lines().find(is_words).unwrap();
        let text = text.replace(line, &format!("| `events.kind` | {words} |"));
        return with_part(&text, "details of events", &details());
    }
    let topics = PAGES.iter().filter(|(_, own)| *own == page);
    topics.fold(text.to_owned(), |text, (topic, _)| {
        let name = format!("{topic:?} events").to_lowercase();
        with_part(&text, &name, &explained(*topic))
    })
}

#[test]
fn docs_explain_each_kind() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in ["troubleshooting.md", "security.md", "database.md"] {
        let path = docs.join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = expected(page, &text);
        if std::env::var_os("BENCHMESH_BLESS").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        assert!(
            text == expected || std::env::var_os("BENCHMESH_BLESS").is_some(),
            "docs/{page} is behind the table of events; the head of this test says how to write it anew"
        );
    }
}

#[test]
fn texts_are_clauses_and_names_are_unique() {
    let mut names = BTreeSet::new();
    for kind in EventKind::ALL {
        let row = kind.row();
        assert!(names.insert(row.name), "{kind}");
        assert_eq!(EventKind::parse(row.name), Some(*kind));
        assert_eq!(row.kind, *kind);
        assert!(PAGES.iter().any(|(topic, _)| *topic == row.topic), "{kind}");
        for text in [row.meaning, row.remedy, row.detail] {
            let is_clause = !text.ends_with('.') && !text.contains("  ") && !text.contains('|');
            assert!(is_clause, "{kind}: {text}");
        }
        assert!(!row.meaning.is_empty() && !row.remedy.is_empty(), "{kind}");
    }
}

#[test]
fn a_kind_of_another_version_stays_as_it_is() {
    let unknown = WireKind::received(String::from("disk-on-fire"), "error");
    assert_eq!(unknown.as_str(), "disk-on-fire");
    assert_eq!(unknown.severity(), Severity::Error);
    assert_eq!(unknown.source(), EventSource::Agent);
    let without_severity = WireKind::received(String::from("disk-on-fire"), "grave");
    assert_eq!(without_severity.severity(), Severity::Warning);
    let known = WireKind::received(String::from("agent-lost"), "info");
    assert_eq!(known.severity(), Severity::Warning);
    assert_eq!(known.source(), EventSource::Collector);
}
