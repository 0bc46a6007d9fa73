//! Compares docs/database.md with the tables of figures.
//!
//! The lines of figures in it are generated from the tables. After a change of a figure, `BENCHMESH_BLESS=1 cargo test
//! -p benchmesh-model --lib figures::reference` rewrites them; a new figure is the last column of its table, as in the
//! database.

#![allow(clippy::unwrap_used)]

use super::{
    DaemonFigures, DiskFigures, Figure, Figures, HostFigures, NetFigures, TargetFigures, Unit,
};
use std::collections::BTreeMap;
use std::path::Path;

/// Columns with their lines, in order.
type Lines = Vec<(String, String)>;

fn line(name: &str, unit: &str, meaning: &str) -> (String, String) {
    let unit = match unit {
        "" => String::new(),
        unit => format!("{unit} "),
    };
    (name.to_owned(), format!("| `{name}` | {unit}| {meaning} |"))
}

fn of<F: Figures>() -> (&'static str, Lines) {
    let line = |figure: &Figure| line(figure.name, figure.unit.as_str(), figure.meaning);
    let lines = F::ALL.iter().map(line);
    (F::TABLE, lines.collect())
}

fn in_step() -> (&'static str, Lines) {
    let kept = DaemonFigures::ALL
        .iter()
        .filter(|figure| figure.in_step.is_some());
    let lines = kept.map(|figure| line(figure.name, figure.unit.as_str(), figure.meaning_in_step));
    ("step_daemons", lines.collect())
}

fn in_view() -> (&'static str, Lines) {
    let lines = DaemonFigures::ALL.iter().filter_map(|figure| {
        let (column, _) = figure.column_of_step()?;
        let unit = match figure.unit {
            Unit::Bytes => "MiB",
            Unit::Micros => "s",
            Unit::Count | Unit::Hundredths => "",
        };
        Some(line(&column, unit, figure.meaning_in_step))
    });
    ("v_daemon_usage", lines.collect())
}

/// The document with the lines generated from the tables.
fn expected(text: &str) -> String {
    let mut tables: BTreeMap<&str, Lines> = BTreeMap::from([
        of::<DaemonFigures>(),
        of::<HostFigures>(),
        of::<DiskFigures>(),
        of::<NetFigures>(),
        of::<TargetFigures>(),
        in_step(),
        in_view(),
    ]);
    let mut out = Vec::new();
    let mut table = "";
    let mut is_in_rows = false;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            table = heading.split('`').next().unwrap();
        }
        let column = line
            .strip_prefix("| `")
            .and_then(|row| row.split('`').next());
        if is_in_rows && column.is_none() {
            let new = tables.remove(table).into_iter().flatten();
            out.extend(new.map(|(_, line)| line));
        }
        is_in_rows = column.is_some();
        let of_table = tables.get_mut(table);
        let made = of_table.and_then(|lines| {
            let at = lines
                .iter()
                .position(|(name, _)| Some(name.as_str()) == column)?;
            Some(lines.remove(at).1)
        });
        out.push(made.unwrap_or_else(|| line.to_owned()));
    }
    assert!(tables.is_empty(), "no such table: {tables:?}");
    out.join("\n") + "\n"
}

#[test]
fn docs_say_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/database.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = expected(&text);
    if std::env::var_os("BENCHMESH_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        text == expected,
        "docs/database.md is behind the tables of figures; the head of this test says how to write it anew"
    );
}

#[test]
fn every_column_has_its_meaning() {
    for (table, lines) in [
        of::<DaemonFigures>(),
        of::<HostFigures>(),
        of::<DiskFigures>(),
        of::<NetFigures>(),
        of::<TargetFigures>(),
        in_step(),
        in_view(),
    ] {
        for (name, line) in lines {
            assert!(
                !line.ends_with("|  |") && !line.ends_with(". |"),
                "{table}.{name}"
            );
        }
    }
}
