//! What is told of a block that is not as it was written.

use std::fmt;

/// The first difference in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the file.
    pub offset: u64,
    pub found: Found,
}

impl Mismatch {
    /// Holds what was read at `offset` against what belongs there, as far as the shorter of the two goes.
    pub(crate) fn compare(expected: &[u8], found: &[u8], offset: u64) -> Result<(), Mismatch> {
        if expected == found {
            return Ok(());
        }
        let mut pairs = (offset..).zip(expected.iter().zip(found));
        match pairs.find(|(_, (expected, found))| expected != found) {
            None => Ok(()),
            Some((offset, (expected, found))) => Err(Mismatch {
                offset,
                found: Found::Byte {
                    expected: *expected,
                    found: *found,
                },
            }),
        }
    }
}

/// What stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// What was written elsewhere, or at another time.
    Other {
        file: u64,
        offset: u64,
        generation: u64,
    },
    /// Zeros, as in a hole or where a write was lost.
    Zeros,
    /// More of a file that has to end there.
    More,
    /// Bytes that nobody wrote.
    Byte { expected: u8, found: u8 },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found {
            Found::Other {
                file,
                offset,
                generation,
            } => write!(
                f,
                "found what was written to file {file} at offset {offset} as generation {generation}"
            ),
            Found::Zeros => f.write_str("found zeros"),
            Found::More => f.write_str("found more, where the file has to end"),
            Found::Byte { expected, found } => {
                write!(f, "expected {expected:#04x}, found {found:#04x}")
            }
        }
    }
}
