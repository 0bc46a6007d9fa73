//! Reads and encodes one run on a thread of its own: SQLite blocks. It first tells the run's revision, then waits to be
//! told what of it is wanted.

use super::ArchiveError;
use super::date::Month;
use super::revision::Revision;
use super::value::RowEncoder;
use crate::retention::{StepRetention, with_kept};
use crate::source::{EndedRun, RunRows, Source};
use crate::tables::Table;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tokio::sync::{mpsc, oneshot};

/// Encoded rows that are sent at once.
pub const SLICE_BYTES: usize = 1 << 20;
/// Slices that are read ahead of the network. With one being filled and one being sent, memory stays below 8 MiB unless
/// a single row is larger than a slice.
const SLICES_AHEAD: usize = 4;

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

/// All rows but those that the archive keeps.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Tables of which the archive has more rows than the database.
    pub kept: BTreeSet<String>,
    /// How the archive's intervals are kept, if it keeps them.
    pub retention: StepRetention,
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
            if !wanted.kept.contains(&table.name) {
                self.table(&rows, at, table, &wanted.retention)?;
            }
        }
        self.send(Message::End)
    }

    fn table(
        &self,
        rows: &RunRows<'_>,
        at: usize,
        table: &Table,
        retention: &StepRetention,
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
            let kept = with_kept(table, values, retention);
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
