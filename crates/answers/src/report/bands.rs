//! Splits tables with banded columns into as many tables as the line width requires.

use super::{Align, Column, Table};

/// A heading, and columns with their own headings and cells.
pub(super) type Band = (String, Vec<(String, Vec<String>)>);

/// Places bands of columns side by side within the width, and continues in further tables with the same labels.
pub(super) fn packed(
    title: &str,
    labels: &[(String, Vec<String>)],
    bands: Vec<Band>,
    width: Option<usize>,
) -> Vec<Table> {
    let chars = |text: &str| text.chars().count();
    let wide = |(head, cells): &(String, Vec<String>)| {
        let widest = cells.iter().map(|cell| chars(cell)).max().unwrap_or(0);
        widest.max(chars(head)) + 2
    };
    let label_width: usize = labels.iter().map(wide).sum::<usize>() + 2;
    let room = width.unwrap_or(usize::MAX).saturating_sub(label_width);
    let start = |title: String| {
        let table = Table::titled(&title);
        labels.iter().fold(table, |table, (head, cells)| {
            table.text(head, cells.iter().cloned())
        })
    };
    let mut tables = vec![start(title.to_owned())];
    let mut taken = 0;
    for (band, columns) in bands {
        let whole: usize = columns.iter().map(wide).sum();
        if taken > 0 && taken + whole > room {
            tables.push(start(format!("{title}, {band}")));
            taken = 0;
        }
        for column in columns {
            let own = wide(&column);
            if taken > 0 && taken + own > room {
                tables.push(start(format!("{title}, {band}")));
                taken = 0;
            }
            taken += own;
            let (label, cells) = column;
            if let Some(table) = tables.last_mut() {
                table.push_column(
                    Column {
                        title: label,
                        align: Align::Right,
                        band: Some(band.clone()).filter(|band| !band.is_empty()),
                    },
                    cells,
                );
            }
        }
    }
    tables
}
