//! A list of operations, from its text to the actions of a worker.
//!
//! One line is one operation: its due time in seconds since the start, or `-`; its name; a path; and further arguments.
//! Everything that follows from the list alone is computed here: which files are open when, what must exist before, how
//! large a buffer is needed. This module does not depend on clocks, workers or existing directories.

mod reading;

use crate::engine::author::*;
use reading::ListParser;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longer lists must be split; a worker keeps the whole list in memory.
pub(super) const MAX_LIST_BYTES: u64 = 256 << 20;

/// A mistake, with its line counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(super) struct ListError {
    pub line: usize,
    pub what: String,
}

/// One operation. Open files have a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplayAction {
    Create {
        file: usize,
    },
    Open {
        file: usize,
    },
    Close {
        file: usize,
    },
    Read {
        file: usize,
        offset: u64,
        bytes: u64,
    },
    Write {
        file: usize,
        offset: u64,
        bytes: u64,
    },
    Fsync {
        file: usize,
    },
    Truncate {
        file: usize,
        bytes: u64,
    },
    Stat,
    List,
    Rename {
        to: Vec<u8>,
    },
    Symlink {
        target: Vec<u8>,
    },
    Delete,
    Mkdir,
    Rmdir,
}

impl ReplayAction {
    pub(super) fn op(&self) -> Op {
        match self {
            Self::Create { .. } | Self::Open { .. } => Op::Open,
            Self::Close { .. } => Op::Close,
            Self::Read { .. } => Op::Read,
            Self::Write { .. } => Op::Write,
            Self::Fsync { .. } => Op::Fsync,
            Self::Truncate { .. } => Op::Truncate,
            Self::Stat => Op::Stat,
            Self::List => Op::List,
            Self::Rename { .. } => Op::Rename,
            Self::Symlink { .. } => Op::Symlink,
            Self::Delete => Op::Delete,
            Self::Mkdir => Op::Mkdir,
            Self::Rmdir => Op::Rmdir,
        }
    }

    /// Offset in the file, if the operation has one.
    pub(super) fn offset(&self) -> Option<u64> {
        match self {
            Self::Read { offset, .. } | Self::Write { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Read { bytes, .. } | Self::Write { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListLine {
    /// Due time since the start; `None`: at once.
    pub due: Option<Duration>,
    pub path: Vec<u8>,
    pub action: ReplayAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    pub lines: Vec<ListLine>,
    /// Directories, and files with their sizes, that must exist before the start.
    pub expected: BTreeMap<Vec<u8>, Option<u64>>,
    /// Number of open files in the list.
    pub files: usize,
    /// Bytes of the largest read or write.
    pub largest: usize,
    /// Bytes read and written.
    pub moved: u64,
    /// Maximum number of names at any time.
    pub names: u64,
    /// Maximum size of each file.
    sizes: Vec<u64>,
}

impl List {
    pub(super) fn parse(text: &str) -> Result<List, ListError> {
        if u64::try_from(text.len()).is_ok_and(|bytes| bytes > MAX_LIST_BYTES) {
            return Err(ListError {
                line: 1,
                what: "the list is longer than 256 MiB; cut it up".to_owned(),
            });
        }
        let mut reading = ListParser::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                reading
                    .line(text)
                    .map_err(|what| ListError { line, what })?;
            }
        }
        match reading.lines.is_empty() {
            true => Err(ListError {
                line: 1,
                what: "there is no operation".to_owned(),
            }),
            false => Ok(reading.end()),
        }
    }

    /// Bytes that all files may take, each rounded up to a multiple of `unit`.
    pub(super) fn space(&self, unit: u64) -> u64 {
        let rounded = |bytes: &u64| bytes.div_ceil(unit.max(1)).saturating_mul(unit.max(1));
        self.sizes
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(rounded(bytes)))
    }
}
