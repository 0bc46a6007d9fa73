//! Stores the last sequence that was appended to a spool, in a file beside it.
//!
//! SQLite silently drops the damaged tail of a write-ahead log. This mark is written separately after each append, so
//! that such a loss is detected and counted. It is only a hint: if it is missing or damaged, no loss is reported.

use crate::envelope::Sequence;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Appended to the spool's path.
pub(in crate::spool) const SUFFIX: &str = "-mark";
/// The sequence and its checksum, little-endian.
const BYTES: usize = 12;

#[derive(Debug)]
pub(super) struct AppendMark {
    path: PathBuf,
    /// Opened at the first append.
    file: Option<File>,
}

impl AppendMark {
    /// The mark of the spool at `spool`.
    pub(super) fn of(spool: &Path) -> Self {
        let mut path = spool.to_owned().into_os_string();
        path.push(SUFFIX);
        Self {
            path: path.into(),
            file: None,
        }
    }

    /// Writes the mark without waiting for the disk. After a kill the kernel still has it; after a power failure an
    /// older one understates the loss.
    pub(super) fn write(&mut self, last: Sequence) {
        let open = || {
            OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&self.path)
                .ok()
        };
        let file = self.file.take().or_else(open);
        // On a full disk the mark cannot be written, and a lost tail goes unnoticed.
        self.file = file.filter(|file| file.write_all_at(&encode(last), 0).is_ok());
    }

    /// Time since the mark was written; 0: unknown.
    pub(super) fn age_us(&self) -> i64 {
        let written = std::fs::metadata(&self.path).and_then(|file| file.modified());
        let age = written.ok().and_then(|at| at.elapsed().ok());
        age.map_or(0, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX))
    }

    /// `None` if it is missing or damaged.
    pub(super) fn read(&self) -> Option<Sequence> {
        decode(&std::fs::read(&self.path).ok()?)
    }
}

fn encode(last: Sequence) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (number, sum) = bytes.split_at_mut(8);
    number.copy_from_slice(&last.0.to_le_bytes());
    sum.copy_from_slice(&crc32fast::hash(&last.0.to_le_bytes()).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Sequence> {
    let (number, sum) = bytes.split_first_chunk::<8>()?;
    let sum: [u8; 4] = sum.try_into().ok()?;
    (crc32fast::hash(number) == u32::from_le_bytes(sum))
        .then(|| Sequence(u64::from_le_bytes(*number)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_damaged_mark_claims_nothing() {
        let home = tempfile::tempdir().unwrap();
        let mut mark = AppendMark::of(&home.path().join("spool.db"));
        assert_eq!(mark.read(), None);
        mark.write(Sequence(7));
        mark.write(Sequence(1 << 40));
        assert_eq!(mark.read(), Some(Sequence(1 << 40)));
        let mut bytes = std::fs::read(&mark.path).unwrap();
        for byte in 0..bytes.len() {
            bytes.get_mut(byte).map(|byte| *byte ^= 4).unwrap();
            assert_eq!(decode(&bytes), None, "byte {byte}");
            bytes.get_mut(byte).map(|byte| *byte ^= 4).unwrap();
            assert_eq!(decode(bytes.get(..byte).unwrap()), None);
        }
    }
}
