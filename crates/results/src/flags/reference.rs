//! Compares docs/flags.md and docs/database.md with the table of flags.
//!
//! The text between the markers of docs/flags.md, and the lines of flags in docs/database.md, are generated from the
//! table. After a change of a flag, `BENCHMESH_BLESS=1 cargo test --workspace --lib -- flags::reference` rewrites them.

#![allow(clippy::unwrap_used)]

use super::{Flag, FlagRow};
use std::path::Path;

const BEGIN: &str = "<!-- begin flags -->\n";
const END: &str = "<!-- end flags -->";

/// A paragraph, wrapped at 120 columns. Each line after the first begins with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if line.len() + 1 + word.len() > 120 {
            lines.push(format!("{indent}{word}"));
        } else {
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(space);
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// A list item: subject and text.
pub(crate) fn item(head: &str, what: &str) -> String {
    wrapped(&format!("- **{head}:** {what}"), "  ") + "\n"
}

/// The text with the sections between its markers.
pub(crate) fn between(text: &str, begin: &str, end: &str, sections: &[String]) -> String {
    let from = text.find(begin).unwrap() + begin.len();
    let until = text.find(end).unwrap();
    let mut expected = text.to_owned();
    expected.replace_range(from..until, &format!("\n{}\n", sections.join("\n")));
    expected
}

/// Compares a file of docs with its expected content, or rewrites it.
pub(crate) fn check_docs(name: &str, expected: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = expected(&text);
    if std::env::var_os("BENCHMESH_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        text == expected,
        "docs/{name} is behind the table; the head of this test says how to write it anew"
    );
}

fn section(row: &FlagRow) -> String {
    let items = [
        ("Meaning", format!("{}.", row.meaning)),
        ("Severity", format!("{}.", row.severity.as_str())),
        ("Raised", row.raised.to_owned()),
        ("In a comparison", format!("{}.", row.verdict.sentence())),
        ("What to do", row.remedy.to_owned()),
    ];
    let items: String = items.iter().map(|(head, what)| item(head, what)).collect();
    format!("### `{}`\n\n{items}", row.name)
}

/// docs/flags.md.
fn with_sections(text: &str) -> String {
    let sections: Vec<String> = Flag::ROWS.iter().map(section).collect();
    between(text, BEGIN, END, &sections)
}

/// docs/database.md: a line for each column of `v_results`, and one with the names of all flags.
fn with_lines(text: &str) -> String {
    let columns = Flag::ROWS.iter().map(|row| {
        let (column, name) = (row.column(), row.name);
        format!("| `{column}` | 0, 1 | whether `{name}` is among them |")
    });
    let words: Vec<String> = Flag::ROWS
        .iter()
        .map(|row| format!("`{}`", row.name))
        .collect();
    let mut lines = Vec::new();
    let mut columns = Some(columns);
    for line in text.lines() {
        if line.starts_with("| `flag_") {
            lines.extend(columns.take().into_iter().flatten());
        } else if line.starts_with("| `steps.flags` |") {
            lines.push(format!("| `steps.flags` | {} |", words.join(", ")));
        } else {
            lines.push(line.to_owned());
        }
    }
    assert!(columns.is_none(), "no column of a flag");
    lines.join("\n") + "\n"
}

#[test]
fn docs_say_what_the_table_says() {
    check_docs("flags.md", with_sections);
    check_docs("database.md", with_lines);
}

#[test]
fn a_meaning_is_a_clause_and_the_rest_are_sentences() {
    for row in Flag::ROWS {
        let name = row.name;
        assert!(!row.meaning.ends_with('.'), "{name}");
        for text in [row.meaning, row.raised, row.remedy, row.about] {
            assert!(!text.is_empty() && !text.contains("  "), "{name}: {text}");
        }
        for text in [row.raised, row.remedy] {
            assert!(text.ends_with('.'), "{name}: {text}");
        }
        assert_eq!(Flag::row_of(name).unwrap().flag, row.flag);
        assert_eq!(row.flag.as_str(), name);
    }
}
