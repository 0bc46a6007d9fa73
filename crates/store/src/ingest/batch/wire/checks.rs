//! Limits of single values (ranges, names, texts, instants), and the errors for values outside of them.

use benchmesh_model::mesh::MeshMicros;
use benchmesh_model::text::is_hidden;

/// Maximum length of names, ids and kinds, in bytes.
pub(super) const NAME_BYTES: usize = 256;
/// Maximum length of messages and command lines, in bytes; longer ones are truncated.
pub(super) const TEXT_BYTES: usize = 4 << 10;
/// Maximum size of one packed histogram: far above the largest with two digits over an hour.
pub(super) const PACKED_BYTES: usize = 32 << 10;
/// The year 2000. An agent's clock is mapped to mesh time, so no instant can be older.
pub(super) const EARLIEST_US: i64 = 946_684_800_000_000;
/// The year 2200: sums of instants stay far from the end of 64 bits.
pub(super) const LATEST_US: i64 = 7_258_118_400_000_000;
/// A year: the longest accepted span or interval.
pub(super) const LONGEST_US: i64 = 366 * 86_400 * 1_000_000;
/// The largest accepted cumulative counter: a difference of two always fits 64 bits.
pub(super) const LARGEST: i64 = 1 << 62;
/// Sum of squares of 10^12 durations of an hour, in nanoseconds.
pub(super) const LARGEST_SUM: f64 = 1e37;
/// Maximum operations or bytes of one interval: sums over thousands of intervals still fit 64 bits.
pub(super) const LARGEST_COUNT: i64 = 1 << 50;

/// Maximum number of disks, interfaces or targets of one host; real hosts have fewer.
pub(super) const MAX_DEVICES: usize = 4096;
/// Maximum number of processes that are found or end within one batch.
pub(super) const MAX_DAEMONS: usize = 65_536;
/// Maximum number of events of one batch.
pub(super) const MAX_EVENTS: usize = 10_000;

/// Why a batch is invalid.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BatchError {
    #[error("{field} of the batch is missing")]
    Missing { field: &'static str },
    #[error("{field} of the batch is {found}, which is not between {least} and {most}")]
    Range {
        field: &'static str,
        found: i128,
        least: i64,
        most: i64,
    },
    #[error("{field} of the batch is {found:?}, which is not a valid value")]
    Word { field: &'static str, found: String },
    #[error(
        "{field} of the batch is empty, longer than {NAME_BYTES} bytes or has control characters"
    )]
    Name { field: &'static str },
    #[error("events.kind of the batch is `{kind}`, which only the collector may record")]
    Reserved { kind: String },
    #[error("{field} of the batch has {found} values where pid has {expected}")]
    Columns {
        field: &'static str,
        found: usize,
        expected: usize,
    },
    #[error("{field} of the batch has {found} different values, more than the limit of {most}")]
    TooMany {
        field: &'static str,
        found: usize,
        most: usize,
    },
    #[error("{field} of the batch is not valid: {why}")]
    Invalid { field: &'static str, why: String },
}

pub(super) fn range(
    field: &'static str,
    found: i64,
    least: i64,
    most: i64,
) -> Result<i64, BatchError> {
    if (least..=most).contains(&found) {
        return Ok(found);
    }
    Err(BatchError::Range {
        field,
        found: i128::from(found),
        least,
        most,
    })
}

pub(super) fn unsigned(
    field: &'static str,
    found: u64,
    least: i64,
    most: i64,
) -> Result<i64, BatchError> {
    let refused = BatchError::Range {
        field,
        found: i128::from(found),
        least,
        most,
    };
    match i64::try_from(found) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(refused),
    }
}

pub(super) fn sequence(field: &'static str, found: u64) -> Result<u64, BatchError> {
    unsigned(field, found, 1, i64::MAX)?;
    Ok(found)
}

pub(super) fn count(field: &'static str, found: u64) -> Result<i64, BatchError> {
    unsigned(field, found, 0, LARGEST_COUNT)
}

pub(super) fn counter(field: &'static str, found: i64) -> Result<i64, BatchError> {
    range(field, found, 0, LARGEST)
}

/// Absent means unknown.
pub(super) fn known_counter(
    field: &'static str,
    found: Option<i64>,
) -> Result<Option<i64>, BatchError> {
    found.map(|found| counter(field, found)).transpose()
}

pub(super) fn instant(field: &'static str, found: i64) -> Result<MeshMicros, BatchError> {
    range(field, found, EARLIEST_US, LATEST_US).map(MeshMicros)
}

/// 0 means that the event of this instant did not happen.
pub(super) fn known_instant(
    field: &'static str,
    found: i64,
) -> Result<Option<MeshMicros>, BatchError> {
    match found {
        0 => Ok(None),
        at => instant(field, at).map(Some),
    }
}

pub(super) fn row_id(field: &'static str, found: i64) -> Result<i64, BatchError> {
    range(field, found, 1, i64::MAX)
}

pub(super) fn name(field: &'static str, found: String) -> Result<String, BatchError> {
    if found.is_empty() || found.len() > NAME_BYTES || found.chars().any(is_hidden) {
        return Err(BatchError::Name { field });
    }
    Ok(found)
}

/// Free text: truncated to its limit at a character boundary. NUL bytes, which end a text for many readers, are
/// replaced by blanks.
pub(super) fn text(found: String) -> String {
    cut_to(TEXT_BYTES, found)
}

/// Like [`text`], with another limit in bytes.
pub(super) fn cut_to(most: usize, mut found: String) -> String {
    found.truncate(found.floor_char_boundary(most));
    if found.contains('\0') {
        return found.replace('\0', " ");
    }
    found
}

pub(super) fn filled(found: String) -> Option<String> {
    Some(text(found)).filter(|text| !text.is_empty())
}
