//! Tables on a terminal: plain columns under one rule, figures to the right, no colours, nothing cut off.

use benchmesh_collector::report::{Align, Sheet};
use comfy_table::{
    CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none());

/// A sheet as text: its title, the table, and the notes wrapped beneath.
pub fn sheet(sheet: &Sheet) -> String {
    let mut out = String::new();
    if !sheet.title.is_empty() {
        out.push_str(&sheet.title);
        out.push_str("\n\n");
    }
    if !sheet.rows.is_empty() {
        out.push_str(&drawn(sheet, Some(width())));
    }
    for note in &sheet.notes {
        for (at, line) in wrapped(note, width().saturating_sub(4)).iter().enumerate() {
            out.push_str(if at == 0 { "  " } else { "    " });
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Only the table of a sheet, as wide as it is.
pub fn table(sheet: &Sheet) -> String {
    drawn(sheet, None)
}

/// Prose in the last column goes over several lines where it would not fit into `width` and has room to.
fn drawn(sheet: &Sheet, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| room_for_prose(sheet, width));
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(sheet.columns.iter().map(|column| clean(&column.title)));
    for row in &sheet.rows {
        let last = row.len().saturating_sub(1);
        table.add_row(row.iter().enumerate().map(|(at, cell)| match at == last {
            true => wrapped(cell, room).join("\n"),
            false => clean(cell),
        }));
    }
    for (at, column) in sheet.columns.iter().enumerate() {
        if let Some(shown) = table.column_mut(at) {
            shown.set_padding((0, 1));
            shown.set_cell_alignment(match column.align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
    }
    let mut out = String::new();
    for line in table.lines() {
        out.push_str("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// What the columns before the last leave of a line; without bound where that is too little, or it holds figures.
fn room_for_prose(sheet: &Sheet, width: usize) -> usize {
    const LEAST: usize = 40;
    let Some((last, others)) = sheet.columns.split_last() else {
        return usize::MAX;
    };
    let taken: usize = others
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = sheet.rows.iter().filter_map(|row| row.get(at));
            let widest = cells.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(column.title.chars().count()) + 2
        })
        .sum();
    let room = width.saturating_sub(taken + 2);
    match last.align {
        Align::Left if room >= LEAST => room,
        _ => usize::MAX,
    }
}

/// Text of others on one line of a terminal: control characters would move its cursor.
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// The width that prose is wrapped to.
fn width() -> usize {
    const WIDEST: usize = 120;
    let terminal =
        rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if terminal < 40 {
        WIDEST
    } else {
        terminal.min(WIDEST)
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
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
        let sheet = Sheet::titled("Things")
            .text("name", ["a", "bcd\u{1b}[2J"].map(str::to_owned))
            .figures("ops/s", ["1,234", "5"].map(str::to_owned))
            .text("flags", ["", "partial"].map(str::to_owned));
        assert_eq!(
            table(&sheet),
            "  name     ops/s  flags\n  -------- ------ --------\n  a        1,234\n  bcd\u{fffd}[2J      5  partial\n"
        );
    }

    #[test]
    fn prose_in_the_last_column_goes_over_several_lines() {
        let long = "the target has no space left: free some, or make the load smaller";
        let of = |text: &str| {
            Sheet::titled("")
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
        assert_eq!(table(&of(long)).lines().count(), 3, "as wide as it is");
    }

    #[test]
    fn prose_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
