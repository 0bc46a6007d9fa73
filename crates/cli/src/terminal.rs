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

/// The width where there is no terminal.
pub const USUAL_WIDTH: usize = 120;

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

/// A table as people read it: in the width of the terminal, and with a line per row where there is none, for `grep` and
/// the like. `format` is the one that shows the columns that do not fit.
pub fn shown(table: &Table, format: &str) -> String {
    match width_of_terminal() {
        Some(width) => fitting(table, width, format),
        None => unbroken(table),
    }
}

/// A table as text with a line per row: its title, the rows, and the notes below.
pub fn unbroken(table: &Table) -> String {
    let mut out = String::new();
    if !table.title.is_empty() {
        out.push_str(&table.title);
        out.push_str("\n\n");
    }
    if !table.rows.is_empty() {
        out.push_str(&plain(table));
    }
    for note in &table.notes {
        out.push_str("  ");
        out.push_str(&clean(note));
        out.push('\n');
    }
    out
}

/// The table, with as many optional columns removed as necessary to fit into `width`.
fn fitted(table: &Table, width: usize) -> (Table, Vec<String>) {
    let mut shown = table.clone();
    let mut left_out = Vec::new();
    let spare = table.spare.iter().map(|spare| (spare, usize::MAX));
    let last = table.last_spare.iter().map(|spare| (spare, width));
    for (spare, wrapped_at) in spare.chain(last) {
        let taken = limits(&shown, wrapped_at).into_iter().map(|one| one + 2);
        // The line below the titles is longer by one.
        if taken.sum::<usize>() < width {
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
    let lines = cells.flat_map(|cell| cell.split('\n'));
    let widest = lines.map(|line| line.chars().count()).max().unwrap_or(0);
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

/// Draws the table; text wraps if it does not fit into `width`.
fn drawn(table: &Table, width: Option<usize>) -> String {
    let table = &laid_out(table, width);
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(table.columns.iter().map(|column| clean(&column.title)));
    for row in &table.rows {
        drawn.add_row(row);
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

/// The table with each cell in the lines that it is drawn in, without control characters.
fn laid_out(table: &Table, width: Option<usize>) -> Table {
    let limits = width.map_or_else(Vec::new, |width| limits(table, width));
    let mut table = table.clone();
    for row in &mut table.rows {
        for (at, cell) in row.iter_mut().enumerate() {
            *cell = match limits.get(at) {
                Some(limit) => wrapped(cell, *limit).join("\n"),
                None => clean(cell),
            };
        }
    }
    table
}

/// The widths that the columns may have so that the table fits into `width`. The last text gives way first, then the
/// other texts from the widest to the narrowest; a text is not made narrower than its longest word.
fn limits(table: &Table, width: usize) -> Vec<usize> {
    const MIN_PROSE: usize = 40;
    const MIN_TEXT: usize = 12;
    const MIN_LAST: usize = 20;
    let mut limits: Vec<usize> = (0..table.columns.len())
        .map(|at| widest(table, at))
        .collect();
    let taken: usize = limits.iter().map(|one| one + 2).sum();
    // The line below the titles is longer by one.
    let mut excess = (taken + 1).saturating_sub(width);
    let mut texts: Vec<usize> = (0..table.columns.len())
        .filter(|at| {
            let column = table.columns.get(*at);
            column.is_some_and(|column| matches!(column.align, Align::Left))
        })
        .collect();
    let last = texts.pop();
    texts.sort_by_key(|at| std::cmp::Reverse(limits.get(*at).copied()));
    let others = texts.into_iter().map(|at| (at, MIN_TEXT));
    let steps = last.map(|at| (at, MIN_PROSE)).into_iter();
    let steps = steps.chain(others).chain(last.map(|at| (at, MIN_LAST)));
    for (at, least) in steps {
        let least = least.max(longest_word(table, at));
        if let Some(limit) = limits.get_mut(at) {
            let cut = limit.saturating_sub(least).min(excess);
            *limit -= cut;
            excess -= cut;
        }
    }
    limits
}

/// The longest word of a column, including its title.
fn longest_word(table: &Table, at: usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.get(at));
    let words = cells.flat_map(|cell| cell.split_whitespace());
    let longest = words.map(|word| word.chars().count()).max().unwrap_or(0);
    let title = table.columns.get(at);
    longest.max(title.map_or(0, |column| column.title.chars().count()))
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
    width_or(USUAL_WIDTH)
}

/// The width of the terminal, otherwise `COLUMNS`, otherwise `usual`.
pub fn width_or(usual: usize) -> usize {
    width_of_terminal().unwrap_or(usual)
}

/// The width of the terminal, otherwise `COLUMNS`; `None` without them, as in a pipe.
pub fn width_of_terminal() -> Option<usize> {
    const MAX_WIDTH: usize = 200;
    const MIN_WIDTH: usize = 40;
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = terminal.filter(|width| *width > 0).or_else(columns);
    let width = width.filter(|width| *width >= MIN_WIDTH)?;
    Some(width.min(MAX_WIDTH))
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
        let narrow = drawn(&of(long), Some(20));
        assert_eq!(narrow.lines().count(), 6, "no narrower than 20: {narrow}");
        assert_eq!(plain(&of(long)).lines().count(), 3, "as wide as it is");
    }

    #[test]
    fn texts_give_way_to_the_width_from_the_last_one_on() {
        let table = Table::titled("")
            .text("load", ["records randwrite write bs=64k".to_owned()])
            .figures("ops/s", ["x".repeat(20)])
            .text("verdict", ["cannot tell ".repeat(6)])
            .figures("n", ["2".to_owned()]);
        for (width, lines) in [(140, 1), (120, 2), (80, 3), (62, 4)] {
            let shown = drawn(&table, Some(width));
            let rows = shown.lines().skip(2);
            assert_eq!(rows.count(), lines, "{width}:\n{shown}");
            let widest = shown.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}:\n{shown}");
        }
        assert_eq!(unbroken(&table).lines().count(), 3);
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
