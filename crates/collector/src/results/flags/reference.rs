//! docs/flags.md against the table of flags.
//!
//! What stands between the markers is made from the table. After a change of a flag,
//! `BENCHMESH_BLESS=1 cargo test -p benchmesh-collector --lib -- flags::reference` writes it anew.

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

#[test]
fn docs_say_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/flags.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let from = text.find(BEGIN).unwrap() + BEGIN.len();
    let until = text.find(END).unwrap();
    let mut expected = text.clone();
    expected.replace_range(from..until, &sections());
    if std::env::var_os("BENCHMESH_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        text == expected,
        "docs/flags.md is behind the table; the head of this test says how to write it anew"
    );
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
