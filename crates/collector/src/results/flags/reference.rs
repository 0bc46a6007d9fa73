//! docs/flags.md and docs/database.md against the table of flags.
//!
//! What stands between the markers of the one, and the lines of flags in the other, are made from the table. After a
//! change of a flag, `BENCHMESH_BLESS=1 cargo test --workspace --lib -- flags::reference` writes them anew.

#![allow(clippy::unwrap_used)]

use super::{Flag, FlagRow};
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- begin flags -->\n";
const END: &str = "<!-- end flags -->";

/// A paragraph, wrapped at 120 columns. `indent` stands before each line but the first.
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

fn section(row: &FlagRow) -> String {
    let mut text = format!("### `{}`\n\n", row.name);
    let mut line = |head: &str, what: &str| {
        let item = wrapped(&format!("- **{head}:** {what}"), "  ");
        writeln!(text, "{item}").unwrap();
    };
    line("Meaning", &format!("{}.", row.meaning));
    line("Severity", &format!("{}.", row.severity.as_str()));
    line("Raised", row.raised);
    line("In a comparison", &format!("{}.", row.verdict.sentence()));
    line("What to do", row.remedy);
    text
}

fn sections() -> String {
    let sections: Vec<String> = Flag::ROWS.iter().map(section).collect();
    format!("\n{}\n", sections.join("\n"))
}

/// docs/flags.md.
fn with_sections(text: &str) -> String {
    let from = text.find(BEGIN).unwrap() + BEGIN.len();
    let until = text.find(END).unwrap();
    let mut expected = text.to_owned();
    expected.replace_range(from..until, &sections());
    expected
}

/// docs/database.md: a line for each column of `v_results`, and one with all words.
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
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, expected) in [
        ("flags.md", with_sections as fn(&str) -> String),
        ("database.md", with_lines),
    ] {
        let path = docs.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = expected(&text);
        if std::env::var_os("BENCHMESH_BLESS").is_some() {
            std::fs::write(&path, &expected).unwrap();
            continue;
        }
        assert!(
            text == expected,
            "docs/{name} is behind the table; the head of this test says how to write it anew"
        );
    }
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
