//! File sizes from a table with the number of files in each of several ranges, as studies of real trees report them.
//!
//! The size of file `i` depends on the table, the seed and `i` only.

use crate::measure::random::Random;
use crate::params::units::Bytes;
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

const MAX_ROWS: usize = 16;

/// A number of files, each of a size between `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SizeRow {
    pub files: u64,
    #[serde(default = "none")]
    pub min: Bytes,
    pub max: Bytes,
}

fn none() -> Bytes {
    Bytes(0)
}

#[derive(Clone, PartialEq)]
pub(crate) struct Rows {
    parts: Arc<[Part]>,
}

#[derive(Clone, Copy, PartialEq)]
struct Part {
    min: u64,
    max: u64,
    files: u64,
    /// Random numbers below this (of 2^64) choose this row or an earlier one.
    until: u64,
}

impl Rows {
    pub(crate) fn new(list: &[SizeRow]) -> Result<Self, String> {
        let files = list
            .iter()
            .fold(0_u64, |sum, row| sum.saturating_add(row.files));
        if files == 0 {
            return Err("`rows` needs at least one row, and at least one file in all".into());
        }
        if list.len() > MAX_ROWS {
            return Err(format!("a table of sizes has at most {MAX_ROWS} rows"));
        }
        let mut parts = Vec::new();
        let mut so_far = 0_u64;
        for row in list {
            let (min, max) = (row.min.0, row.max.0);
            if min > max {
                return Err(format!("`min` ({min} bytes) is above `max` ({max} bytes)"));
            }
            so_far = so_far.saturating_add(row.files);
            let until = (u128::from(so_far) << 64) / u128::from(files);
            parts.push(Part {
                min,
                max,
                files: row.files,
                until: u64::try_from(until).unwrap_or(u64::MAX),
            });
        }
        Ok(Self {
            parts: parts.into(),
        })
    }

    pub(crate) fn of(&self, seed: u64, index: u64) -> u64 {
        let mut random = Random::of(&[seed, index]);
        let choice = random.next_u64();
        let parts = &self.parts;
        let row = parts
            .iter()
            .find(|part| choice < part.until)
            .or(parts.last());
        row.map_or(0, |row| {
            evenly_in_the_logarithm(row.min, row.max, &mut random)
        })
    }

    pub(crate) fn largest(&self) -> u64 {
        self.parts.iter().map(|part| part.max).max().unwrap_or(0)
    }
}

/// Log-uniform: small sizes are more frequent than large ones within a range too. A range from 0 counts from 1.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a random size: rounding is meant, and float to integer saturates"
)]
fn evenly_in_the_logarithm(min: u64, max: u64, random: &mut Random) -> u64 {
    const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
    let place = (random.next_u64() >> 11) as f64 * UNIT;
    let (low, high) = ((min.max(1) as f64).ln(), (max.max(1) as f64).ln());
    let size = (low + (high - low) * place).exp().round() as u64;
    size.clamp(min, max)
}

/// Data with the same text are the same data, so the text has to be complete.
impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows")?;
        for Part {
            min, max, files, ..
        } in self.parts.iter()
        {
            write!(f, " {files}x{min}..{max}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
