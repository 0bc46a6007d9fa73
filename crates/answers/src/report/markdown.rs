//! Reports and comparisons as Markdown, for an issue or a wiki page.

use super::comparison::{comparison_sentences, comparison_tables};
use super::{Align, Detail, Report, Table, heading, sentences, tables};
use crate::compare::CompareAnswer;

/// The whole report as one Markdown document.
pub fn markdown(report: &Report, detail: Detail) -> String {
    let mut out = format!("# {}\n", escaped(&report.run.name));
    for line in heading(report) {
        out.push_str(&format!("\n{}\n", escaped(&line)));
    }
    let lines = sentences(report, detail);
    if !lines.is_empty() {
        out.push('\n');
    }
    for sentence in lines {
        out.push_str(&format!("- {}\n", escaped(&sentence)));
    }
    for table in tables(report, detail) {
        write_table(&mut out, &table);
    }
    if detail == Detail::All && !report.run.plan.is_empty() {
        write_plan(&mut out, &report.run.plan);
    }
    out
}

/// The answer of a comparison as one Markdown document.
pub fn comparison_markdown(answer: &CompareAnswer) -> String {
    let mut out = String::new();
    for sentence in comparison_sentences(answer) {
        out.push_str(&format!("- {}\n", escaped(&sentence)));
    }
    for table in comparison_tables(answer) {
        write_table(&mut out, &table);
    }
    out
}

fn write_table(out: &mut String, table: &Table) {
    out.push_str(&format!("\n## {}\n", escaped(&table.title)));
    if !table.rows.is_empty() {
        let heads: Vec<String> = table
            .columns
            .iter()
            .map(|column| match &column.band {
                Some(band) => escaped(&format!("{} ({band})", column.title)),
                None => escaped(&column.title),
            })
            .collect();
        let rules: Vec<&str> = table
            .columns
            .iter()
            .map(|column| match column.align {
                Align::Left => "---",
                Align::Right => "---:",
            })
            .collect();
        out.push_str(&format!(
            "\n| {} |\n| {} |\n",
            heads.join(" | "),
            rules.join(" | ")
        ));
        for row in &table.rows {
            let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
            out.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
    }
    for note in &table.notes {
        out.push_str(&format!("\n{}\n", escaped(note)));
    }
}

/// The plan as a block of code, in a fence that is longer than any in the plan.
fn write_plan(out: &mut String, plan: &str) {
    let mut longest = 0;
    let mut run = 0;
    for character in plan.chars() {
        run = if character == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    out.push_str(&format!("\n## Plan\n\n{fence}toml\n"));
    for line in plan.lines() {
        out.extend(line.chars().filter(|c| *c == '\t' || !c.is_control()));
        out.push('\n');
    }
    out.push_str(&format!("{fence}\n"));
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => out.push(' '),
            // Not every renderer of Markdown knows `\<`.
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.push('\u{fffd}'),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}
