//! Mismatches: sectors that do not hold the data that was written.
//!
//! The unit is a sector of 4 KiB. It counts once, at its first wrong byte, however many of its bits are wrong.
//! Invariant: all wrong sectors are counted, even if only a few are kept.

use std::fmt;

/// Storage systems compress and deduplicate blocks of this size.
pub(crate) const SECTOR_BYTES: usize = 4096;

/// The first difference in a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset in the file.
    pub offset: u64,
    pub found: FoundData,
}

impl Mismatch {
    /// Compares the data read at `offset` with the expected data, over the length of the shorter one.
    fn first(expected: &[u8], found: &[u8], offset: u64) -> Option<Mismatch> {
        if expected == found {
            return None;
        }
        let mut pairs = (offset..).zip(expected.iter().zip(found));
        let differs = pairs.find(|(_, (expected, found))| expected != found);
        differs.map(|(offset, (expected, found))| Mismatch {
            offset,
            found: FoundData::Byte {
                expected: *expected,
                found: *found,
            },
        })
    }
}

/// All wrong sectors that one operation has read. Allocates nothing until the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mismatches {
    count: u64,
    first: Vec<Mismatch>,
    /// End of the last wrong sector found by [`Mismatches::compare`].
    compared: u64,
}

impl Mismatches {
    /// How many are kept in full.
    pub const MAX_KEPT: u64 = 3;

    /// Counts a wrong sector.
    #[cold]
    pub fn add(&mut self, mismatch: Mismatch) {
        if self.count < Self::MAX_KEPT {
            self.first.push(mismatch);
        }
        self.count = self.count.saturating_add(1);
    }

    /// How many sectors are wrong.
    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first few wrong sectors.
    pub fn first(&self) -> &[Mismatch] {
        &self.first
    }

    /// Compares the data read at `offset` with the expected data, sector by sector of the file. Call it with
    /// consecutive pieces; a sector that spans two pieces counts once.
    #[inline]
    pub(crate) fn compare(&mut self, expected: &[u8], found: &[u8], offset: u64) {
        if expected != found {
            self.differ(expected, found, offset);
        }
    }

    /// Compares with zeros.
    pub(crate) fn compare_zeros(&mut self, found: &[u8], offset: u64) {
        self.compare_repeated([0; 8], found, offset);
    }

    /// Compares with these bytes, repeated from the beginning of `found`.
    pub(crate) fn compare_repeated(&mut self, bytes: [u8; 8], mut found: &[u8], mut offset: u64) {
        let mut sector = [[0; 8]; SECTOR_BYTES / 8];
        sector.fill(bytes);
        let expected = sector.as_flattened();
        while !found.is_empty() {
            let (now, after) = found.split_at(found.len().min(expected.len()));
            self.compare(expected.get(..now.len()).unwrap_or_default(), now, offset);
            offset = offset.saturating_add(now.len() as u64);
            found = after;
        }
    }

    /// Compares data that is one sector or part of one, at any offset.
    pub(crate) fn compare_sector(&mut self, expected: &[u8], found: &[u8], offset: u64) {
        if let Some(mismatch) = Mismatch::first(expected, found, offset) {
            self.add(mismatch);
        }
    }

    #[cold]
    fn differ(&mut self, mut expected: &[u8], mut found: &[u8], mut offset: u64) {
        let sector = SECTOR_BYTES as u64;
        while !expected.is_empty() && !found.is_empty() {
            let left = sector - offset % sector;
            let count = usize::try_from(left).unwrap_or(usize::MAX);
            let (now, later) = expected.split_at(count.min(expected.len()));
            let (here, after) = found.split_at(count.min(found.len()));
            let until = offset.saturating_add(left);
            if self.compared < until
                && let Some(mismatch) = Mismatch::first(now, here, offset)
            {
                self.add(mismatch);
                self.compared = until;
            }
            (expected, found, offset) = (later, after, until);
        }
    }
}

/// What was read instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundData {
    /// Data written elsewhere or at another time.
    Other {
        file: u64,
        offset: u64,
        generation: u64,
    },
    /// Zeros, as in a hole or where a write was lost.
    Zeros,
    /// Data beyond the expected end of the file.
    More,
    /// Bytes that no generation of the content has.
    Byte { expected: u8, found: u8 },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found {
            FoundData::Other {
                file,
                offset,
                generation,
            } => write!(
                f,
                "found what was written to file {file} at offset {offset} as generation {generation}"
            ),
            FoundData::Zeros => f.write_str("found zeros"),
            FoundData::More => f.write_str("found more, where the file has to end"),
            FoundData::Byte { expected, found } => {
                write!(f, "expected {expected:#04x}, found {found:#04x}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Each wrong sector counts once, at its first difference, however the pieces are cut.
        #[test]
        fn wrong_sectors_are_counted_once_in_pieces_of_any_length(
            offset in 0_usize..9000,
            bytes in 1_usize..40_000,
            flips in proptest::collection::vec(any::<prop::sample::Index>(), 0..9),
            piece in 1_usize..20_000,
        ) {
            let expected = vec![7; bytes];
            let mut found = expected.clone();
            let mut wrong = BTreeMap::new();
            for flip in flips {
                let at = flip.index(bytes);
                found[at] = 9;
                let first = wrong.entry((offset + at) / SECTOR_BYTES).or_insert(offset + at);
                *first = (*first).min(offset + at);
            }
            let mut mismatches = Mismatches::default();
            let mut at = offset as u64;
            for (expected, found) in expected.chunks(piece).zip(found.chunks(piece)) {
                mismatches.compare(expected, found, at);
                at += expected.len() as u64;
            }
            prop_assert_eq!(mismatches.count(), wrong.len() as u64);
            prop_assert_eq!(mismatches.is_empty(), wrong.is_empty());
            let offsets: Vec<u64> = mismatches.first().iter().map(|it| it.offset).collect();
            let first: Vec<u64> = wrong.values().take(3).map(|at| *at as u64).collect();
            prop_assert_eq!(offsets, first);
        }
    }
}
