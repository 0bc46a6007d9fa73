//! Compares docs/findings.md with the table of kinds.
//!
//! The text between the markers is generated from it. After a change of a kind, `BENCHMESH_BLESS=1 cargo test -p
//! benchmesh-results --lib -- findings::reference` rewrites it.

#![allow(clippy::unwrap_used)]

use super::{FindingKind, FindingRow};
use crate::flags::reference::{between, check_docs, item};

fn section(row: &FindingRow) -> String {
    format!(
        "### `{}`\n\n{}{}{}",
        row.name,
        item("Meaning", &format!("{}.", row.meaning)),
        item("Judged", row.judged),
        item("What to do", row.remedy)
    )
}

#[test]
fn the_reference_says_what_the_table_says() {
    let sections: Vec<String> = FindingKind::ROWS.iter().map(section).collect();
    check_docs("findings.md", |text| {
        between(
            text,
            "<!-- begin kinds -->\n",
            "<!-- end kinds -->",
            &sections,
        )
    });
}
