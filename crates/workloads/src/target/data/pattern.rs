//! Self-describing blocks: the header of each sector encodes file, offset and generation, and determines the payload.
//!
//! A block is cut into sectors of 4 KiB from its beginning; a remainder too short for a header belongs to the sector
//! before. A header has file, offset, generation and a tag over these and the seed; the payload is the sequence of
//! words generated from the tag. So every bit of a sector follows from its place, and any wrong bit is found.

use super::spec::random_bytes;
use super::{DataKind, SECTOR_BYTES};
use crate::measure::mismatch::{FoundData, Mismatch, Mismatches};
use crate::measure::random::{self, Random};
use std::ops::RangeInclusive;

const HEADER_BYTES: usize = 32;
/// How many generations are tried to find that of a damaged header.
const TRIED: u64 = 64;

/// How sectors are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    pub seed: u64,
    pub kind: DataKind,
}

/// A block as it was written; sectors count from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub file: u64,
    pub offset: u64,
    pub bytes: u64,
    pub generation: u64,
}

/// Where a sector belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SectorPlace {
    file: u64,
    offset: u64,
    generation: u64,
}

impl Pattern {
    /// Fills a block with the content of this place.
    pub(super) fn place(&self, block: &mut [u8], file: u64, offset: u64, generation: u64) {
        let (mut rest, mut offset) = (block, offset);
        while !rest.is_empty() {
            let (sector, after) = rest.split_at_mut(sector_bytes(rest.len()));
            let place = SectorPlace {
                file,
                offset,
                generation,
            };
            self.sector(sector, place);
            offset = offset.saturating_add(sector.len() as u64);
            rest = after;
        }
    }

    /// Checks that a block is that of this place, all of it in the same one of these generations: that of its first
    /// correct sector.
    pub(super) fn check(
        &self,
        block: &[u8],
        file: u64,
        offset: u64,
        allowed: &mut RangeInclusive<u64>,
        wrong: &mut Mismatches,
    ) {
        let (mut rest, mut offset) = (block, offset);
        while !rest.is_empty() {
            let (sector, after) = rest.split_at(sector_bytes(rest.len()));
            match self.check_sector(sector, file, offset, allowed) {
                Ok(generation) if sector.len() >= HEADER_BYTES => {
                    *allowed = generation..=generation;
                }
                Ok(_) => {}
                Err(mismatch) => wrong.add(mismatch),
            }
            offset = offset.saturating_add(sector.len() as u64);
            rest = after;
        }
    }

    /// Checks `part`, which was read at `offset` and lies within the block, against what was written.
    pub(super) fn check_part(
        &self,
        part: &[u8],
        offset: u64,
        written: &Written,
        wrong: &mut Mismatches,
    ) {
        let &Written {
            file, generation, ..
        } = written;
        let mut buffer = [0; SECTOR_BYTES + HEADER_BYTES];
        let (mut rest, mut offset) = (part, offset);
        while !rest.is_empty() {
            let (begin, length) = written.sector_at(offset);
            let before = usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX);
            let count = length.saturating_sub(before).min(rest.len());
            if count == 0 {
                // Beyond the block, where the content is unknown.
                return;
            }
            let (now, after) = rest.split_at(count);
            if count == length {
                self.check(now, file, begin, &mut (generation..=generation), wrong);
            } else {
                let sector = buffer.get_mut(..length).unwrap_or_default();
                self.place(sector, file, begin, generation);
                let expected = sector.get(before..).unwrap_or_default();
                wrong.compare_sector(expected, now, offset);
            }
            offset = offset.saturating_add(count as u64);
            rest = after;
        }
    }

    fn sector(&self, sector: &mut [u8], place: SectorPlace) {
        let tag = self.tag(place);
        let payload = match sector.split_first_chunk_mut::<HEADER_BYTES>() {
            Some((header, payload)) => {
                *header = place.header(tag);
                payload
            }
            None => {
                // Too short to contain a generation: any of them will do.
                let tag = self.tag(SectorPlace {
                    generation: 0,
                    ..place
                });
                return random::fill(sector, tag);
            }
        };
        let (random, zeros) = payload.split_at_mut(self.random_bytes(payload.len()));
        random::fill(random, tag);
        zeros.fill(0);
    }

    fn check_sector(
        &self,
        sector: &[u8],
        file: u64,
        offset: u64,
        allowed: &RangeInclusive<u64>,
    ) -> Result<u64, Mismatch> {
        let mut place = SectorPlace {
            file,
            offset,
            generation: 0,
        };
        let Some((header, payload)) = sector.split_first_chunk::<HEADER_BYTES>() else {
            return match random::first_difference(sector, self.tag(place)) {
                None => Ok(0),
                Some(at) => Err(self.difference(sector, place, at)),
            };
        };
        let [_, _, generation, tag] = words(header);
        place.generation = generation;
        let expected = self.tag(place);
        if !allowed.contains(&generation) || *header != place.header(expected) {
            return Err(self.wrong_header(sector, header, place, allowed));
        }
        let (random, zeros) = payload.split_at(self.random_bytes(payload.len()));
        let differs = random::first_difference(random, tag).or_else(|| {
            let first = zeros.iter().position(|byte| *byte != 0)?;
            Some(random.len() + first)
        });
        match differs {
            None => Ok(generation),
            Some(at) => Err(self.difference(sector, place, HEADER_BYTES + at)),
        }
    }

    /// Describes a header that does not belong here.
    #[cold]
    fn wrong_header(
        &self,
        sector: &[u8],
        header: &[u8; HEADER_BYTES],
        here: SectorPlace,
        allowed: &RangeInclusive<u64>,
    ) -> Mismatch {
        let [file, offset, generation, tag] = words(header);
        let found = SectorPlace {
            file,
            offset,
            generation,
        };
        if self.tag(found) == tag {
            return Mismatch {
                offset: here.offset,
                found: FoundData::Other {
                    file,
                    offset,
                    generation,
                },
            };
        }
        let with = |generation| SectorPlace { generation, ..here };
        let likeliest = allowed
            .clone()
            .take(usize::try_from(TRIED).unwrap_or(usize::MAX))
            .find(|generation| self.tag(with(*generation)) == tag)
            .or_else(|| allowed.contains(&generation).then_some(generation))
            .unwrap_or(*allowed.end());
        let place = with(likeliest);
        let expected = place.header(self.tag(place));
        let differs = header.iter().zip(expected).position(|(a, b)| *a != b);
        self.difference(sector, place, differs.unwrap_or(0))
    }

    /// Describes the difference at byte `at` of a sector that belongs here.
    #[cold]
    fn difference(&self, sector: &[u8], place: SectorPlace, at: usize) -> Mismatch {
        let offset = place.offset.saturating_add(at as u64);
        if at < HEADER_BYTES && sector.iter().all(|byte| *byte == 0) {
            return Mismatch {
                offset,
                found: FoundData::Zeros,
            };
        }
        let mut expected = vec![0; sector.len()];
        self.sector(&mut expected, place);
        let byte = |of: &[u8]| of.get(at).copied().unwrap_or(0);
        Mismatch {
            offset,
            found: FoundData::Byte {
                expected: byte(&expected),
                found: byte(sector),
            },
        }
    }

    fn tag(&self, place: SectorPlace) -> u64 {
        let SectorPlace {
            file,
            offset,
            generation,
        } = place;
        Random::of(&[self.seed, file, offset, generation]).next_u64()
    }

    /// How much of a payload is random; the rest is zeros, which can be compressed away.
    fn random_bytes(&self, payload: usize) -> usize {
        random_bytes(self.kind, payload + HEADER_BYTES).saturating_sub(HEADER_BYTES)
    }
}

impl Written {
    /// Begin and length of the sector that contains a byte of the block.
    fn sector_at(&self, offset: u64) -> (u64, usize) {
        let sector = SECTOR_BYTES as u64;
        let into = offset.saturating_sub(self.offset);
        let whole = into - into % sector;
        // A remainder too short for a header belongs to the sector before.
        let begin = match self.bytes.saturating_sub(whole) < HEADER_BYTES as u64 {
            true => whole.saturating_sub(sector),
            false => whole,
        };
        let left = usize::try_from(self.bytes.saturating_sub(begin)).unwrap_or(usize::MAX);
        (self.offset.saturating_add(begin), sector_bytes(left))
    }
}

impl SectorPlace {
    fn header(self, tag: u64) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let words = [self.file, self.offset, self.generation, tag];
        for (to, word) in header.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        header
    }
}

fn words(header: &[u8; HEADER_BYTES]) -> [u64; 4] {
    let mut words = [0; 4];
    for (to, from) in words.iter_mut().zip(header.as_chunks::<8>().0) {
        *to = u64::from_le_bytes(*from);
    }
    words
}

/// Length of the first sector of a block with `left` bytes left.
fn sector_bytes(left: usize) -> usize {
    match left < SECTOR_BYTES + HEADER_BYTES {
        true => left,
        false => SECTOR_BYTES,
    }
}
