//! Reads and encodes one run on a thread of its own: SQLite blocks. It first tells the run's revision, then waits to be
//! told what of it is wanted.

use super::ArchiveError;
use super::date::Month;
use super::revision::{Revision, is_counted};
use super::value::RowEncoder;
use crate::source::{EndedRun, RunRows, Source};
use crate::tables::Table;
use rusqlite::types::ValueRef;
use std::collections::HashMap;
use std::path::PathBuf;
use tokio::sync::{mpsc, oneshot};

/// Encoded rows that are sent at once.
pub const SLICE_BYTES: usize = 1 << 20;
/// Slices that are read ahead of the network. With one being filled and one being sent, memory stays below 8 MiB unless
/// a single row is larger than a slice.
const SLICES_AHEAD: usize = 4;

/// The columns of `steps` that say how its rows of seconds are kept. They stay as the archive's rows of seconds are.
pub const RETENTION_COLUMNS: [&str; 5] = [
    "resolution_s",
    "merging",
    "late_batches",
    "merged_10s_until_us",
    "merged_60s_until_us",
];

/// Values of [`RETENTION_COLUMNS`], by the step's id.
pub type KeptRetention = HashMap<i64, [Option<i64>; 5]>;

#[derive(Debug)]
pub enum Message {
    Revision(Revision),
    Rows {
        /// Index in [`crate::tables::known`].
        table: usize,
        rows: u64,
        bytes: Vec<u8>,
    },
    End,
}

#[derive(Debug)]
pub enum Wanted {
    All,
    /// All but the rows of seconds, which the archive has in a finer resolution than the database.
    ButSeconds(KeptRetention),
}

/// A run that is being read.
#[derive(Debug)]
pub struct Reading {
    pub messages: mpsc::Receiver<Result<Message, ArchiveError>>,
    pub wanted: oneshot::Sender<Wanted>,
}

/// What to read, and under which key it is archived.
#[derive(Clone, Debug)]
pub struct Subject {
    pub db: PathBuf,
    pub run: EndedRun,
    pub site: String,
    pub month: Month,
}

/// Begins to read. The thread ends when the receiver is dropped.
pub fn read(subject: Subject) -> Result<Reading, ArchiveError> {
    let (sender, messages) = mpsc::channel(SLICES_AHEAD);
    let (wanted, decision) = oneshot::channel();
    std::thread::Builder::new()
        .name(String::from("archive-reader"))
        .spawn(move || {
            let out = Out {
                sender,
                subject: &subject,
            };
            if let Err(Stop::Failed(error)) = out.run(decision) {
                let _ = out.sender.blocking_send(Err(error));
            }
        })
        .map_err(|error| ArchiveError::Wrong(format!("cannot start a thread: {error}")))?;
    Ok(Reading { messages, wanted })
}

enum Stop {
    /// Nobody listens any longer.
    Unwanted,
    Failed(ArchiveError),
}

impl<E: Into<ArchiveError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Out<'a> {
    sender: mpsc::Sender<Result<Message, ArchiveError>>,
    subject: &'a Subject,
}

impl Out<'_> {
    fn run(&self, decision: oneshot::Receiver<Wanted>) -> Result<(), Stop> {
        let source = Source::open(&self.subject.db)?;
        let rows = source.begin(self.subject.run.clone())?;
        let revision = Revision::of(&rows, source.tables())?;
        self.send(Message::Revision(revision))?;
        let wanted = decision.blocking_recv().map_err(|_| Stop::Unwanted)?;
        for (at, table) in source.tables().iter().enumerate() {
            match &wanted {
                Wanted::ButSeconds(_) if is_counted(table) => {}
                Wanted::ButSeconds(kept) if table.name == "steps" => {
                    self.table(&rows, at, table, Some(kept))?;
                }
                _ => self.table(&rows, at, table, None)?,
            }
        }
        self.send(Message::End)
    }

    fn table(
        &self,
        rows: &RunRows<'_>,
        at: usize,
        table: &Table,
        kept: Option<&KeptRetention>,
    ) -> Result<(), Stop> {
        let encoder = RowEncoder::new(
            &self.subject.site,
            &self.subject.run.uid,
            self.subject.month,
        );
        let mut slice = Vec::with_capacity(SLICE_BYTES);
        let mut count = 0;
        let send = |slice: Vec<u8>, rows: u64| {
            self.send(Message::Rows {
                table: at,
                rows,
                bytes: slice,
            })
        };
        rows.read(table, |values| {
            let kept = kept.and_then(|kept| with_retention(table, values, kept));
            let values = kept.as_deref().unwrap_or(values);
            encoder.row(&mut slice, table, values).map_err(|why| {
                ArchiveError::Wrong(format!(
                    "{}: a row of table {} of run {} cannot be archived: {why}",
                    self.subject.db.display(),
                    table.name,
                    self.subject.run.id
                ))
            })?;
            count += 1;
            if slice.len() >= SLICE_BYTES {
                let full = std::mem::replace(&mut slice, Vec::with_capacity(SLICE_BYTES));
                send(full, std::mem::take(&mut count))?;
            }
            Ok::<_, Stop>(())
        })?;
        match slice.is_empty() {
            true => Ok(()),
            false => send(slice, count),
        }
    }

    fn send(&self, message: Message) -> Result<(), Stop> {
        self.sender
            .blocking_send(Ok(message))
            .map_err(|_| Stop::Unwanted)
    }
}

/// The values of a step, with the archive's own where they say how its seconds are kept.
fn with_retention<'a>(
    table: &Table,
    values: &[ValueRef<'a>],
    kept: &KeptRetention,
) -> Option<Vec<ValueRef<'a>>> {
    let Some(ValueRef::Integer(id)) = values.first() else {
        return None;
    };
    let kept = kept.get(id)?;
    let mut values = values.to_vec();
    for (column, value) in table.columns.iter().zip(&mut values) {
        let at = RETENTION_COLUMNS
            .iter()
            .position(|name| *name == column.name);
        if let Some(archived) = at.and_then(|at| kept.get(at)) {
            *value = archived.map_or(ValueRef::Null, ValueRef::Integer);
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tables;

    #[test]
    fn the_columns_of_retention_are_columns_of_steps() {
        let known = tables::known().unwrap();
        let steps = known.iter().find(|one| one.name == "steps").unwrap();
        assert!(RETENTION_COLUMNS.iter().all(|column| steps.has(column)));
        assert_eq!(steps.columns.first().unwrap().name, "id");
    }
}
