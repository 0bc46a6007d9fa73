//! Histograms as an archive has them: HdrHistogram's V2 without its DEFLATE, which no SQL can undo.
//!
//! `store` keeps a cookie, a length and a zlib stream; an archive keeps what is in the stream. Both are the same counts.
//! All BLOBs of archived tables are histograms.
//! A blob that is not what we write stays as it is, in both directions, so that whatever was stored comes back. Memory is
//! bounded by the scale, whatever a blob claims.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::borrow::Cow;
use std::io::{Read, Write};

/// HdrHistogram's cookies of V2, plain and compressed.
const PLAIN: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
const COMPRESSED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
/// A header of 40 bytes and 4608 counts of at most 9 bytes.
const MAX_PLAIN_BYTES: usize = 40 + 9 * 4608;

/// The archive's form of a stored histogram.
pub fn to_archive(stored: &[u8]) -> Cow<'_, [u8]> {
    inflate(stored).map_or(Cow::Borrowed(stored), Cow::Owned)
}

/// The stored form of an archive's histogram.
pub fn to_store(archived: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = archived.starts_with(&PLAIN) && archived.len() <= MAX_PLAIN_BYTES;
    let stored = if is_plain { deflate(archived) } else { None };
    stored.map_or(Cow::Borrowed(archived), Cow::Owned)
}

/// `None` for anything that [`to_store`] would not give back.
fn inflate(stored: &[u8]) -> Option<Vec<u8>> {
    let (length, stream) = stored.strip_prefix(&COMPRESSED)?.split_first_chunk::<4>()?;
    if usize::try_from(u32::from_be_bytes(*length)).ok()? != stream.len() {
        return None;
    }
    let mut plain = Vec::new();
    let mut decoder = ZlibDecoder::new(stream).take(MAX_PLAIN_BYTES as u64 + 1);
    decoder.read_to_end(&mut plain).ok()?;
    (plain.starts_with(&PLAIN) && plain.len() <= MAX_PLAIN_BYTES).then_some(plain)
}

fn deflate(plain: &[u8]) -> Option<Vec<u8>> {
    let mut stored = Vec::with_capacity(plain.len() / 2 + 64);
    stored.extend(COMPRESSED);
    stored.extend([0; 4]);
    // The level of `store`, so that its own blobs come back byte by byte.
    let mut encoder = ZlibEncoder::new(stored, Compression::default());
    encoder.write_all(plain).ok()?;
    let mut stored = encoder.finish().ok()?;
    let length = u32::try_from(stored.len().checked_sub(8)?).ok()?;
    stored.get_mut(4..8)?.copy_from_slice(&length.to_be_bytes());
    Some(stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::tables::{self, ColumnType};
    use benchmesh_workloads::histogram::Histogram;

    fn of(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(value);
        }
        histogram.to_v2_deflate()
    }

    #[test]
    fn what_was_stored_comes_back_byte_by_byte() {
        let hour = 3_600_000_000_000;
        for stored in [
            of([]),
            of([0]),
            of([1, 2, 3, 70_000, hour, 2 * hour]),
            of((0..4_000_000).step_by(37)),
            of(std::iter::repeat_n(1_000, 100_000)),
            of((0..42).map(|bits| 1 << bits)),
        ] {
            let archived = to_archive(&stored);
            assert!(archived.starts_with(&PLAIN));
            assert_eq!(to_store(&archived), stored);
        }
    }

    /// The bytes of a histogram and everything that resembles one.
    #[test]
    fn a_blob_that_is_no_histogram_of_ours_stays_as_it_is() {
        let good = of([5, 6_000]);
        let mut long = good.clone();
        long.push(0);
        let mut damaged = good.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let other_scale = [&COMPRESSED[..], &[0, 0, 0, 1, 0]].concat();
        for blob in [
            Vec::new(),
            b"no histogram".to_vec(),
            COMPRESSED.to_vec(),
            good[..good.len() - 1].to_vec(),
            long,
            damaged,
            other_scale,
        ] {
            assert_eq!(to_archive(&blob), blob);
            assert_eq!(to_store(&blob), blob);
        }
    }

    #[test]
    fn a_stream_that_expands_without_end_is_left_compressed() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&PLAIN).unwrap();
        encoder.write_all(&vec![0; 64 << 20]).unwrap();
        let stream = encoder.finish().unwrap();
        let length = u32::try_from(stream.len()).unwrap().to_be_bytes();
        let bomb = [&COMPRESSED[..], &length, &stream].concat();
        assert_eq!(to_archive(&bomb), bomb);
    }

    #[test]
    fn all_blobs_of_an_archive_are_histograms() {
        let tables = tables::known().unwrap();
        let columns = tables.iter().flat_map(|table| &table.columns);
        let blobs: Vec<_> = columns
            .filter(|column| column.kind == ColumnType::Blob)
            .map(|column| column.name.as_str())
            .collect();
        assert!(blobs.len() > 3, "{blobs:?}");
        for column in blobs {
            assert!(column.contains("histogram"), "{column}");
        }
    }
}
