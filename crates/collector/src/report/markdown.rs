//! A report as Markdown: the sheets as tables, for an issue or a wiki page.

use super::{Align, Report, Sheet, heading, sheets};

/// The whole report as one Markdown document.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# {}\n", escaped(&report.run.name));
    for line in heading(report) {
        out.push_str(&format!("\n{}\n", escaped(&line)));
    }
    for sheet in sheets(report) {
        table(&mut out, &sheet);
    }
    out
}

fn table(out: &mut String, sheet: &Sheet) {
    out.push_str(&format!("\n## {}\n", escaped(&sheet.title)));
    if !sheet.rows.is_empty() {
        let heads: Vec<String> = sheet
            .columns
            .iter()
            .map(|column| escaped(&column.title))
            .collect();
        let rules: Vec<&str> = sheet
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
        for row in &sheet.rows {
            let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
            out.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
    }
    for note in &sheet.notes {
        out.push_str(&format!("\n{}\n", escaped(note)));
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => out.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}
