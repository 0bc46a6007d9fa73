//! Reports and comparisons as Markdown, for an issue or a wiki page.

use super::card::{self, Card, CardLine, CardList};
use super::comparison::comparison_tables;
use super::{Align, Detail, Report, Table, tables};
use crate::compare::CompareAnswer;

/// The whole report as one Markdown document.
pub fn markdown(report: &Report, detail: Detail) -> String {
    let mut out = format!("# {}\n", escaped(&report.run.name));
    write_card(&mut out, &report.card);
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
    write_card(&mut out, &card::of_comparison(answer));
    for table in comparison_tables(answer) {
        write_table(&mut out, &table);
    }
    out
}

/// The card as lists. Without its next command, which a reader of the file cannot type: the database is elsewhere.
fn write_card(out: &mut String, card: &Card) {
    out.push_str(&format!("\n{}\n", escaped(&card.title)));
    if !card.objectives.is_empty() {
        out.push('\n');
    }
    for one in &card.objectives {
        write_line(out, one);
    }
    if !card.loads.is_empty() {
        out.push('\n');
    }
    for load in &card.loads {
        let (name, answer) = (escaped(&load.load), escaped(&load.answer()));
        out.push_str(&format!("- {name}: {answer}\n"));
    }
    if card.loads_left_out > 0 {
        out.push_str(&format!("- {} more loads\n", card.loads_left_out));
    }
    for (title, list) in card.lists() {
        write_list(out, title, list);
    }
}

fn write_list(out: &mut String, title: &str, list: &CardList) {
    if list.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}:\n\n"));
    for one in &list.lines {
        write_line(out, one);
    }
    if list.more > 0 {
        let command = escaped(&list.command);
        out.push_str(&format!("- {} more: {command}\n", list.more));
    }
}

fn write_line(out: &mut String, line: &CardLine) {
    out.push_str(&format!("- {}\n", escaped(&line.text)));
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
