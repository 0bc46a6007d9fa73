//! Text in rectangles: tables, lines with two ends, cut text. Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table, Widget};
use std::collections::VecDeque;

/// A name in a table has its own width, or this if it is longer, before other columns are left out.
const MAX_NAME: u16 = 20;

pub(super) struct TableRow {
    pub(super) cells: Vec<String>,
    pub(super) style: Style,
}

/// Rows with a name on the left, which takes the room that is left, and figures aligned right. `spare` are the columns
/// that are left out, in this order, if the name gets too narrow.
pub(super) fn table(shown: &[TableRow], spare: &[usize], area: Rect, buffer: &mut Buffer) {
    let columns = shown.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = shown.iter().filter_map(|row| row.cells.get(at));
        rows(cells.map(|cell| Span::raw(cell).width()).max().unwrap_or(0))
    };
    let mut kept: Vec<(usize, u16)> = (1..columns)
        .map(|at| (at, width(at)))
        .filter(|(_, width)| *width > 0)
        .collect();
    let name = width(0).min(MAX_NAME);
    for at in spare {
        let taken: u16 = kept.iter().map(|(_, width)| width.saturating_add(2)).sum();
        if taken.saturating_add(name) > area.width {
            kept.retain(|(kept, _)| kept != at);
        }
    }
    let widths = kept.iter().map(|(_, width)| Constraint::Length(*width));
    let widths = [Constraint::Fill(1)].into_iter().chain(widths);
    let rows = shown.iter().map(|row| {
        let cell = |at: usize| row.cells.get(at).cloned().unwrap_or_default();
        let figures = kept
            .iter()
            .map(|(at, _)| Line::raw(cell(*at)).right_aligned());
        let cells = [Line::raw(cell(0))].into_iter().chain(figures);
        Row::new(cells.collect::<Vec<_>>()).style(row.style)
    });
    Widget::render(Table::new(rows, widths).column_spacing(2), area, buffer);
}

/// The last items of a list.
pub(super) fn newest<T>(list: &VecDeque<T>, count: u16) -> impl Iterator<Item = &T> {
    list.iter()
        .skip(list.len().saturating_sub(usize::from(count)))
}

/// A line with one part on the left and one on the right, which is shown in full; the left one is cut.
pub(super) fn spread<'a>(left: Line<'a>, right: Line<'a>, width: u16) -> Line<'a> {
    let room = usize::from(width).saturating_sub(right.width() + 2);
    let mut spans = Vec::new();
    let mut taken = 0;
    for span in left.spans {
        let text: String = cut(&span.content, room.saturating_sub(taken));
        taken += Span::raw(text.as_str()).width();
        spans.push(Span::styled(text, span.style));
    }
    let gap = usize::from(width).saturating_sub(taken + right.width());
    spans.push(Span::raw(" ".repeat(gap)));
    spans.extend(right.spans);
    Line::from(spans)
}

/// The beginning of a text that fits into so many columns.
fn cut(text: &str, width: usize) -> String {
    let mut cut = String::new();
    let mut taken = 0;
    for c in text.chars() {
        taken += Span::raw(c.to_string()).width();
        if taken > width {
            break;
        }
        cut.push(c);
    }
    cut
}

pub(super) fn lines(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// The last of these lines that have room.
pub(super) fn last_lines(all: &[Line<'_>], area: Rect, buffer: &mut Buffer) {
    let hidden = all.len().saturating_sub(usize::from(area.height));
    lines(all.get(hidden..).unwrap_or_default(), area, buffer);
}

pub(super) fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
