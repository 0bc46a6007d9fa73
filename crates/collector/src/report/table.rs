//! A titled table of ready text with notes beneath, the same for every medium that people read.

use crate::figures;

/// On which side the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub title: String,
    pub align: Align,
    /// What this and its neighbours of the same band have in common; stands above their titles.
    pub band: Option<String>,
}

/// One table with its notes. Every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
    /// Columns that may be left out where the table is too wide, the least important first.
    pub spare: Vec<&'static str>,
}

impl Table {
    /// An empty table with a title.
    pub fn titled(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a column with one cell per row; all columns of a table have equally many.
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

    /// A column of figures beneath a band.
    pub(super) fn banded(mut self, band: &str, title: &str, cells: Vec<String>) -> Self {
        let column = Column {
            title: title.to_owned(),
            align: Align::Right,
            band: Some(band.to_owned()),
        };
        self.push_column(column, cells);
        self
    }

    /// A column of text.
    pub fn text(self, title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        self.column(title, Align::Left, cells)
    }

    /// A column of figures.
    pub fn figures(self, title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        self.column(title, Align::Right, cells)
    }

    /// As [`Table::figures`], where any cell has one.
    pub fn figures_if_any(self, title: &str, cells: Vec<String>) -> Self {
        match cells.iter().any(|cell| cell != figures::NONE) {
            true => self.figures(title, cells),
            false => self,
        }
    }

    /// A column of text that is left out when no cell says anything.
    pub fn text_if_any(self, title: &str, cells: Vec<String>) -> Self {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.text(title, cells)
        } else {
            self
        }
    }

    /// Adds a line beneath the table where it holds.
    pub(super) fn note_where(self, holds: bool, note: &str) -> Self {
        match holds {
            true => self.note(note),
            false => self,
        }
    }

    /// Adds a line beneath the table.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}
