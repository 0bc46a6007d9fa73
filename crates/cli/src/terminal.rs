//! Tables on a terminal: plain columns under one rule, figures aligned right, no colours, no truncation.

use benchmesh_answers::report::card::{self, Card};
use benchmesh_answers::report::{Align, Table};
use benchmesh_model::text::is_hidden;
use comfy_table::{CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, TableStyle};
use std::path::Path;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none());

/// Maximum width of a card's lines: longer ones are hard to read.
const CARD_WIDTH: usize = 100;

/// The option that names a database, for a shell.
pub fn database_option(path: &Path) -> String {
    format!(" --db {}", quoted(&path.display().to_string()))
}

/// Quotes the text for a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+,@%=:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// An answer card as text in `width` columns.
pub fn card(card: &Card, width: usize) -> String {
    let mut out = String::new();
    for line in card::lines(card, width.min(CARD_WIDTH)) {
        out.push_str(clean(&line.text).trim_end());
        out.push('\n');
    }
    out
}

/// A table as text in `width` columns: its title, the rows, and the wrapped notes below. `format` is the one that shows
/// the columns that do not fit.
pub fn fitting(table: &Table, width: usize, format: &str) -> String {
    let mut out = String::new();
    if !table.title.is_empty() {
        out.push_str(&table.title);
        out.push_str("\n\n");
    }
    let (shown, left_out) = fitted(table, width);
    if !shown.rows.is_empty() {
        out.push_str(&drawn(&shown, Some(width)));
    }
    let left_out = (!left_out.is_empty()).then(|| {
        format!(
            "Columns left out to fit the width: {} (shown by --format {format}).",
            left_out.join(", ")
        )
    });
    for note in table.notes.iter().chain(&left_out) {
        for (at, line) in wrapped(note, width.saturating_sub(4)).iter().enumerate() {
            out.push_str(if at == 0 { "  " } else { "    " });
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The table, with as many optional columns removed as necessary to fit into `width`.
fn fitted(table: &Table, width: usize) -> (Table, Vec<String>) {
    let mut shown = table.clone();
    let mut left_out = Vec::new();
    for spare in &table.spare {
        // A prose column at the end wraps; numeric columns have a fixed width.
        let widest: usize = (0..shown.columns.len())
            .map(|at| widest(&shown, at) + 2)
            .sum();
        // The line below the titles is longer by one.
        if widest < width {
            break;
        }
        while let Some(at) = shown.columns.iter().position(|one| one.title == *spare) {
            shown.columns.remove(at);
            for row in &mut shown.rows {
                row.remove(at);
            }
            left_out.push((*spare).to_owned());
        }
    }
    (shown, left_out)
}

/// The widest cell of a column, including its title.
fn widest(table: &Table, at: usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.get(at));
    let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
    let title = table
        .columns
        .get(at)
        .map_or(0, |column| column.title.chars().count());
    widest.max(title)
}

/// The table alone, at its natural width.
pub fn plain(table: &Table) -> String {
    drawn(table, None)
}

/// Draws the table; prose in the last column wraps if it does not fit into `width`.
fn drawn(table: &Table, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| room_for_prose(table, width));
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(table.columns.iter().map(|column| clean(&column.title)));
    for row in &table.rows {
        let last = row.len().saturating_sub(1);
        drawn.add_row(row.iter().enumerate().map(|(at, cell)| match at == last {
            true => wrapped(cell, room).join("\n"),
            false => clean(cell),
        }));
    }
    for (at, column) in table.columns.iter().enumerate() {
        if let Some(shown) = drawn.column_mut(at) {
            shown.set_padding((0, 1));
            shown.set_cell_alignment(match column.align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
    }
    let mut out = String::new();
    if let Some(bands) = bands(table) {
        out.push_str("  ");
        out.push_str(bands.trim_end());
        out.push('\n');
    }
    for line in drawn.lines() {
        out.push_str("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The line above the titles: each band at its first column, filled with dots to its last.
fn bands(table: &Table) -> Option<String> {
    table.columns.iter().find(|column| column.band.is_some())?;
    let mut line = String::new();
    let mut at = 0;
    while let Some(column) = table.columns.get(at) {
        let own = table.columns.iter().skip(at);
        let columns = match column.band {
            Some(_) => own.take_while(|other| other.band == column.band).count(),
            None => 1,
        };
        let room: usize = (at..at + columns)
            .map(|at| widest(table, at) + 2)
            .sum::<usize>()
            - 2;
        let name = clean(column.band.as_deref().unwrap_or_default());
        let taken = name.chars().count();
        line.push_str(&name);
        let dots = column.band.is_some() && taken + 2 < room;
        line.push_str(if dots { " " } else { "" });
        let fill = room.saturating_sub(taken + usize::from(dots));
        line.push_str(&if dots { "." } else { " " }.repeat(fill));
        line.push_str("  ");
        at += columns;
    }
    Some(line)
}

/// The width left for the last column; unbounded if that is too little, or if the column is numeric.
fn room_for_prose(table: &Table, width: usize) -> usize {
    const MIN_WIDTH: usize = 40;
    let Some((last, others)) = table.columns.split_last() else {
        return usize::MAX;
    };
    let taken: usize = others
        .iter()
        .enumerate()
        .map(|(at, _)| widest(table, at) + 2)
        .sum();
    let room = width.saturating_sub(taken + 2);
    match last.align {
        Align::Left if room >= MIN_WIDTH => room,
        _ => usize::MAX,
    }
}

/// Text from others on one line of a terminal, without control characters that would move its cursor.
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if is_hidden(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// As [`clean`], preserving line breaks.
pub fn clean_lines(text: &str) -> String {
    let shown = |c| match c {
        '\n' | '\t' => c,
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The width of the terminal, otherwise `COLUMNS`.
pub fn width() -> usize {
    const USUAL: usize = 120;
    width_or(USUAL)
}

/// The width of the terminal, otherwise `COLUMNS`, otherwise `usual`.
pub fn width_or(usual: usize) -> usize {
    const WIDEST: usize = 200;
    const MIN_WIDTH: usize = 40;
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    match terminal.filter(|width| *width > 0).or_else(columns) {
        Some(width) if width >= MIN_WIDTH => width.min(WIDEST),
        _ => usual,
    }
}

/// Text in lines of at most `width` characters, broken between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in clean(text).split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_has_no_trailing_blanks() {
        let table = Table::titled("Things")
            .text("name", ["a", "bcd\u{1b}[2J"].map(str::to_owned))
            .figures("ops/s", ["1,234", "5"].map(str::to_owned))
            .text("flags", ["", "partial"].map(str::to_owned));
        assert_eq!(
            plain(&table),
            "  name     ops/s  flags\n  -------- ------ --------\n  a        1,234\n  bcd\u{fffd}[2J      5  partial\n"
        );
    }

    #[test]
    fn a_name_cannot_turn_or_hide_what_follows() {
        assert_eq!(
            clean("a\u{202e}b\u{200b}c\u{1b}[2Jd\ne"),
            "a\u{fffd}b\u{fffd}c\u{fffd}[2Jd e"
        );
    }

    #[test]
    fn columns_that_can_be_spared_give_way_to_the_width() {
        let table = Table {
            spare: vec!["long", "longer"],
            ..Table::titled("t")
                .text("name", vec!["n".to_owned()])
                .figures("longer", vec!["x".repeat(30)])
                .figures("long", vec!["y".repeat(30)])
        };
        let titles = |width| {
            let (shown, left_out) = fitted(&table, width);
            assert!(
                shown
                    .rows
                    .iter()
                    .all(|row| row.len() == shown.columns.len())
            );
            let titles: Vec<String> = shown.columns.into_iter().map(|one| one.title).collect();
            (titles.join(" "), left_out.join(" "))
        };
        let check = |width, shown: &str, left_out: &str| {
            assert_eq!(titles(width), (shown.to_owned(), left_out.to_owned()));
        };
        check(100, "name longer long", "");
        check(60, "name longer", "long");
        check(20, "name", "long longer");
    }

    #[test]
    fn prose_in_the_last_column_goes_over_several_lines() {
        let long = "the target has no space left: free some, or make the load smaller";
        let of = |text: &str| {
            Table::titled("")
                .text("event", ["step-failed".to_owned()])
                .text("message", [text.to_owned()])
        };
        let shown = drawn(&of(long), Some(60));
        let lines: Vec<&str> = shown.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "  step-failed  the target has no space left: free some, or",
                "               make the load smaller"
            ]
        );
        assert_eq!(drawn(&of(long), Some(50)).lines().count(), 3, "no room");
        assert_eq!(plain(&of(long)).lines().count(), 3, "as wide as it is");
    }

    #[test]
    fn names_are_quoted_where_a_shell_needs_it() {
        for (name, expected) in [
            ("a/b-2.db", "a/b-2.db"),
            ("my mesh.db", "'my mesh.db'"),
            ("it's", "'it'\\''s'"),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }

    #[test]
    fn prose_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
