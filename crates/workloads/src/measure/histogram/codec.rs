//! Encodes a histogram as a blob that every HDR tool reads: format V2, compressed with DEFLATE.
//!
//! Layout (HdrHistogram's public format, big endian): a cookie and the length of a zlib stream. The stream has a
//! cookie, the length of the counts, five fields that describe the scale, and the counts as zig-zag LEB128, where a
//! negative number skips that many empty slots. Blobs are untrusted input: memory stays bounded by our own scale,
//! whatever lengths a blob claims.

use super::{HIGHEST_NS, Histogram, SLOTS, slot_of};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};
use std::ops::Range;

const COOKIE: u32 = 0x1c84_9303 | 0x10;
const COMPRESSED_COOKIE: u32 = 0x1c84_9304 | 0x10;
const HEADER_BYTES: usize = 40;
/// A count takes at most 9 bytes.
const MAX_INNER_BYTES: usize = HEADER_BYTES + 9 * SLOTS;
const SIGNIFICANT_DIGITS: u32 = 2;

/// A histogram in transit: the blob, and the exact sums that the blob cannot carry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Blob {
    pub v2_deflate: Vec<u8>,
    pub count: u64,
    pub sum_ns: f64,
    pub sum_squares_ns2: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub saturated: u64,
}

/// Why a blob is not a valid histogram of this scale.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the histogram ends before its {what}")]
    Truncated { what: &'static str },
    #[error("not a compressed V2 histogram: it begins with {cookie:#010x}")]
    NotV2 { cookie: u32 },
    #[error("the histogram's compressed part is damaged: {cause}")]
    Damaged { cause: String },
    #[error("the histogram's scale is another one: {field} is {found}")]
    OtherScale { field: &'static str, found: String },
    #[error("the histogram is larger than its scale allows")]
    TooLarge,
    #[error("the histogram's {what} contradicts its counts: {stated} against {counted}")]
    Contradiction {
        what: &'static str,
        stated: String,
        counted: String,
    },
}

impl Histogram {
    /// The counts as V2 + DEFLATE.
    pub fn to_v2_deflate(&self) -> Vec<u8> {
        let inner = self.to_v2();
        let mut blob = Vec::with_capacity(inner.len() / 2 + 64);
        blob.extend(COMPRESSED_COOKIE.to_be_bytes());
        blob.extend(0_u32.to_be_bytes());
        let mut encoder = ZlibEncoder::new(blob, Compression::default());
        let mut blob = encoder
            .write_all(&inner)
            .and_then(|()| encoder.finish())
            .expect("a Vec takes every write");
        let length = u32::try_from(blob.len() - 8).expect("at most 42 kB go in");
        if let Some(field) = blob.get_mut(4..8) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        blob
    }

    /// Returns the blob and the exact sums.
    pub fn to_blob(&self) -> Blob {
        Blob {
            v2_deflate: self.to_v2_deflate(),
            count: self.count,
            sum_ns: self.sum_ns(),
            sum_squares_ns2: self.sum_squares_ns2(),
            min_ns: self.min_ns(),
            max_ns: self.max_ns(),
            saturated: self.saturated,
        }
    }

    /// Decodes a histogram. Checks all fields against each other and refuses an inconsistent blob.
    pub fn from_blob(blob: &Blob) -> Result<Histogram, DecodeError> {
        let mut histogram = Histogram::from_v2_deflate(&blob.v2_deflate)?;
        let contradiction = |what, stated: String, counted: String| {
            Err(DecodeError::Contradiction {
                what,
                stated,
                counted,
            })
        };
        if blob.count != histogram.count {
            return contradiction("count", blob.count.to_string(), histogram.count.to_string());
        }
        if histogram.count == 0 {
            if blob.sum_ns != 0.0 || blob.max_ns != 0 || blob.saturated != 0 {
                return contradiction("sums", "values".to_owned(), "none".to_owned());
            }
            return Ok(histogram);
        }
        let slot = |ns: u64| slot_of(ns.min(HIGHEST_NS));
        if blob.min_ns > blob.max_ns || slot(blob.min_ns) != slot(histogram.min) {
            return contradiction("min", blob.min_ns.to_string(), histogram.min.to_string());
        }
        if slot(blob.max_ns) != slot(histogram.max) {
            return contradiction("max", blob.max_ns.to_string(), histogram.max.to_string());
        }
        let last = histogram.counts.get(slot_of(HIGHEST_NS)).copied();
        if blob.saturated > last.unwrap_or(0) {
            return contradiction("saturated", blob.saturated.to_string(), format!("{last:?}"));
        }
        histogram.min = blob.min_ns;
        histogram.max = blob.max_ns;
        histogram.saturated = blob.saturated;
        let (count, min, max) = (blob.count as f64, blob.min_ns as f64, blob.max_ns as f64);
        histogram.sum = exact(blob.sum_ns, count * min..count * max, "sum")?;
        let squares = count * min * min..count * max * max;
        histogram.sum_squares = exact(blob.sum_squares_ns2, squares, "sum of squares")?;
        Ok(histogram)
    }

    /// Decodes the counts of a blob; sums, minimum and maximum are those of the slots' upper ends.
    pub fn from_v2_deflate(blob: &[u8]) -> Result<Histogram, DecodeError> {
        let mut outer = Fields(blob);
        let cookie = outer.u32("cookie")?;
        if cookie != COMPRESSED_COOKIE {
            return Err(DecodeError::NotV2 { cookie });
        }
        let length = usize::try_from(outer.u32("length")?).map_err(|_| DecodeError::TooLarge)?;
        let compressed = outer.0.get(..length).ok_or(DecodeError::Truncated {
            what: "compressed part",
        })?;
        let mut inner = Vec::new();
        ZlibDecoder::new(compressed)
            .take(MAX_INNER_BYTES as u64 + 1)
            .read_to_end(&mut inner)
            .map_err(|error| DecodeError::Damaged {
                cause: error.to_string(),
            })?;
        if inner.len() > MAX_INNER_BYTES {
            return Err(DecodeError::TooLarge);
        }
        Histogram::from_v2(&inner)
    }

    fn to_v2(&self) -> Vec<u8> {
        let mut counts = Vec::with_capacity(512);
        let used = if self.count == 0 {
            0
        } else {
            self.used_slots().end
        };
        let mut empty = 0_i64;
        for &count in self.counts.iter().take(used) {
            if count == 0 {
                empty += 1;
                continue;
            }
            if empty > 0 {
                put_varint(&mut counts, -empty);
                empty = 0;
            }
            put_varint(&mut counts, i64::try_from(count).unwrap_or(i64::MAX));
        }
        let length = u32::try_from(counts.len()).expect("at most 42 kB");
        let mut blob = Vec::with_capacity(HEADER_BYTES + counts.len());
        blob.extend(COOKIE.to_be_bytes());
        blob.extend(length.to_be_bytes());
        blob.extend(0_u32.to_be_bytes());
        blob.extend(SIGNIFICANT_DIGITS.to_be_bytes());
        blob.extend(1_u64.to_be_bytes());
        blob.extend(HIGHEST_NS.to_be_bytes());
        blob.extend(1_f64.to_be_bytes());
        blob.extend(counts);
        blob
    }

    fn from_v2(blob: &[u8]) -> Result<Histogram, DecodeError> {
        let mut fields = Fields(blob);
        let cookie = fields.u32("inner cookie")?;
        if cookie != COOKIE {
            return Err(DecodeError::NotV2 { cookie });
        }
        let length = usize::try_from(fields.u32("length")?).map_err(|_| DecodeError::TooLarge)?;
        let other = |field, found: String| Err(DecodeError::OtherScale { field, found });
        match fields.u32("offset")? {
            0 => {}
            found => return other("normalizing offset", found.to_string()),
        }
        match fields.u32("digits")? {
            SIGNIFICANT_DIGITS => {}
            found => return other("number of significant digits", found.to_string()),
        }
        match fields.u64("lowest value")? {
            1 => {}
            found => return other("lowest value", found.to_string()),
        }
        match fields.u64("highest value")? {
            HIGHEST_NS => {}
            found => return other("highest value", found.to_string()),
        }
        match f64::from_bits(fields.u64("ratio")?) {
            1.0 => {}
            found => return other("ratio", found.to_string()),
        }
        if fields.0.len() != length {
            return Err(DecodeError::Truncated { what: "counts" });
        }
        let mut histogram = Histogram::new();
        let mut slot = 0_usize;
        while !fields.0.is_empty() {
            let number = fields.varint()?;
            if number < 0 {
                let skipped = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
                slot = slot.saturating_add(skipped);
                continue;
            }
            if number > 0 {
                histogram.set_slot(slot, number.unsigned_abs())?;
            }
            slot = slot.saturating_add(1);
        }
        Ok(histogram)
    }

    fn set_slot(&mut self, slot: usize, count: u64) -> Result<(), DecodeError> {
        if slot > slot_of(HIGHEST_NS) {
            return Err(DecodeError::TooLarge);
        }
        let place = self.counts.get_mut(slot).ok_or(DecodeError::TooLarge)?;
        *place = count;
        self.count = self.count.checked_add(count).ok_or(DecodeError::TooLarge)?;
        let value = super::highest_of(slot);
        let sum = u128::from(value) * u128::from(count);
        self.sum = self.sum.saturating_add(sum);
        self.sum_squares = self
            .sum_squares
            .saturating_add(sum.saturating_mul(u128::from(value)));
        self.min = self.min.min(value);
        self.max = value;
        Ok(())
    }
}

/// Converts a double to a sum of whole numbers. The sum must lie between `count` times the least and the greatest
/// value.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be finite and not negative; a fraction cannot be in a sum of whole numbers"
)]
fn exact(sum: f64, possible: Range<f64>, what: &'static str) -> Result<u128, DecodeError> {
    /// Tolerance for accumulated rounding to doubles.
    const SLACK: f64 = 1e-9;
    let fits = sum >= possible.start * (1.0 - SLACK) && sum <= possible.end * (1.0 + SLACK);
    if fits && sum.is_finite() {
        return Ok(sum as u128);
    }
    Err(DecodeError::Contradiction {
        what,
        stated: sum.to_string(),
        counted: format!("{} to {}", possible.start, possible.end),
    })
}

/// The unread rest of a blob.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (field, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated { what })?;
        self.0 = rest;
        Ok(*field)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Reads a zig-zag LEB128 number of at most 9 bytes, the ninth of which carries 8 bits.
    fn varint(&mut self) -> Result<i64, DecodeError> {
        let mut bits = 0_u64;
        for position in 0..9 {
            let [byte] = self.array("last count")?;
            if position == 8 {
                bits |= u64::from(byte) << 56;
                break;
            }
            bits |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }
}

fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut bits = (number << 1).cast_unsigned() ^ (number >> 63).cast_unsigned();
    for _ in 0..8 {
        let [low, ..] = bits.to_le_bytes();
        if bits < 0x80 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
        bits >>= 7;
    }
    let [low, ..] = bits.to_le_bytes();
    out.push(low);
}
