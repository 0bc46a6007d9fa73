//! A titled table of formatted text with notes beneath, the same for every medium for people.

use benchmesh_workloads::figures;

/// Alignment of a column's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The heading of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub title: String,
    pub align: Align,
    /// Common title of this and its neighbours of the same band, printed above their own titles.
    pub band: Option<String>,
}

/// A figure with the standard deviation of its repeats in percent: `121 ±0.4%`, `121 ±9%`.
pub(crate) fn with_spread_of(figure: String, percent: Option<f64>) -> String {
    match percent {
        None => figure,
        Some(percent) if percent < 0.95 => format!("{figure} ±{percent:.1}%"),
        Some(percent) => format!("{figure} ±{percent:.0}%"),
    }
}

/// One table with its notes. Every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
    /// Columns that may be dropped if the table is too wide, the least important first.
    pub spare: Vec<&'static str>,
    /// Columns that may be dropped after those if the table is too wide although its texts wrap.
    pub last_spare: Vec<&'static str>,
}

impl Table {
    /// An empty table with a title.
    pub fn titled(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// An empty table with a row per item; columns are functions of an item.
    pub fn of<'r, R>(title: &str, items: &'r [R]) -> TableOf<'r, R> {
        TableOf {
            table: Self::titled(title),
            items,
        }
    }

    /// Adds a column with one cell per row; all columns of a table have the same number of cells.
    pub fn column(
        mut self,
        title: &str,
        align: Align,
        cells: impl IntoIterator<Item = String>,
    ) -> Self {
        let column = Column {
            title: title.to_owned(),
            align,
            band: None,
        };
        self.push_column(column, cells.into_iter().collect());
        self
    }

    pub(super) fn push_column(&mut self, column: Column, cells: Vec<String>) {
        let first = self.columns.is_empty();
        self.columns.push(column);
        for (at, cell) in cells.into_iter().enumerate() {
            match self.rows.get_mut(at) {
                Some(row) => row.push(cell),
                None if first => self.rows.push(vec![cell]),
                None => {}
            }
        }
    }

    /// A column of text.
    pub fn text(self, title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        self.column(title, Align::Left, cells)
    }

    /// A column of figures.
    pub fn figures(self, title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        self.column(title, Align::Right, cells)
    }

    /// A column of text that is left out if every cell is empty.
    pub fn text_if_any(self, title: &str, cells: Vec<String>) -> Self {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.text(title, cells)
        } else {
            self
        }
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// Builds a table of items, one column at a time.
#[derive(Debug)]
pub struct TableOf<'r, R> {
    table: Table,
    items: &'r [R],
}

impl<'r, R> TableOf<'r, R> {
    fn column<T: ToString>(mut self, title: &str, align: Align, cell: impl Fn(&'r R) -> T) -> Self {
        let cells = self.items.iter().map(|item| cell(item).to_string());
        self.table = self.table.column(title, align, cells);
        self
    }

    /// A column of text.
    pub fn text<T: ToString>(self, title: &str, cell: impl Fn(&'r R) -> T) -> Self {
        self.column(title, Align::Left, cell)
    }

    /// A column of unformatted numbers, or of text aligned like a figure.
    pub fn figure<T: ToString>(self, title: &str, cell: impl Fn(&'r R) -> T) -> Self {
        self.column(title, Align::Right, cell)
    }

    /// A column of numbers with three digits.
    pub fn rate<F: Into<Option<f64>>>(self, title: &str, cell: impl Fn(&'r R) -> F) -> Self {
        self.figure(title, |item| figures::maybe_rate(cell(item).into()))
    }

    /// A column of milliseconds.
    pub fn millis<F: Into<Option<f64>>>(self, title: &str, cell: impl Fn(&'r R) -> F) -> Self {
        self.figure(title, |item| figures::maybe_millis(cell(item).into()))
    }

    /// A column of instants; an absent instant gives an empty cell.
    pub fn instant<F: Into<Option<i64>>>(self, title: &str, cell: impl Fn(&'r R) -> F) -> Self {
        self.text(title, |item| {
            cell(item).into().map(figures::instant).unwrap_or_default()
        })
    }

    /// Removes the last column unless `holds`.
    pub fn only_if(mut self, holds: bool) -> Self {
        if !holds {
            self.table.columns.pop();
            for row in &mut self.table.rows {
                row.pop();
            }
        }
        self
    }

    /// Removes the last column if all of its cells are empty.
    pub fn if_any(self) -> Self {
        let mut cells = self.table.rows.iter().filter_map(|row| row.last());
        let says_something = cells.any(|cell| !cell.is_empty() && cell != figures::NONE);
        self.only_if(says_something)
    }

    /// Places the last column under a band.
    pub fn band(mut self, band: &str) -> Self {
        if let Some(column) = self.table.columns.last_mut() {
            column.band = Some(band.to_owned());
        }
        self
    }

    /// Columns that may be dropped if the table is too wide, the least important first.
    pub fn spare(mut self, titles: &[&'static str]) -> Self {
        self.table.spare = titles.to_vec();
        self
    }

    /// Adds a line beneath the table if `holds`.
    pub fn note_if(self, holds: bool, note: impl FnOnce() -> String) -> Self {
        match holds {
            true => self.note(note()),
            false => self,
        }
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.table = self.table.note(note);
        self
    }

    /// The table; `None` if there are no items.
    pub fn done(self) -> Option<Table> {
        (!self.items.is_empty()).then_some(self.table)
    }
}
