//! Compares docs/systems.md with the table of systems.
//!
//! After a change of the table, `BENCHMESH_BLESS=1 cargo test --workspace --lib -- tests::systems` rewrites the
//! document.

use crate::flags::reference::{between, check_docs};
use benchmesh_model::systems::{System, daemons, systems};

const BEGIN: &str = "<!-- begin systems -->\n";
const END: &str = "<!-- end systems -->";

fn code(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.is_empty() {
        true => "any".to_owned(),
        false => words.join(", "),
    }
}

/// The daemons of a system, each with the naming of its instances.
fn named(system: &System) -> String {
    let known = |name: &&str| daemons().iter().find(|known| known.name == *name);
    let cells: Vec<String> = (system.daemons.iter())
        .filter_map(known)
        .map(|daemon| match daemon.naming.example() {
            Some(example) => format!("`{}` ({example})", daemon.name),
            None => format!("`{}`", daemon.name),
        })
        .collect();
    match cells.is_empty() {
        true => "none: it runs in the kernel".to_owned(),
        false => cells.join(", "),
    }
}

fn row(system: &System) -> String {
    let facts = system.facts.map_or(String::from("-"), |facts| {
        format!("`--facts {}`", facts.system)
    });
    format!(
        "| {} | {} | {} | {facts} |",
        code(system.words),
        code(system.mounts),
        named(system)
    )
}

#[test]
fn docs_say_what_the_table_says() {
    let head = "| `system` has | mounted as | daemons, and names of their instances | cluster state |\n\
                | --- | --- | --- | --- |";
    let lines = std::iter::once(head.to_owned()).chain(systems().iter().map(row));
    let lines: Vec<String> = lines.collect();
    check_docs("systems.md", |text| between(text, BEGIN, END, &lines));
}
