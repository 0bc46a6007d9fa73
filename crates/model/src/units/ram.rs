//! A size as a multiple of a host's memory: `2 x ram`, `0.5 x ram`.

use super::split;
use std::fmt;

/// Scale of a multiple, which has six decimals.
const ONE: u64 = 1_000_000;
const MAX: u64 = 100 * ONE;
const MIB: u128 = 1 << 20;

const EXAMPLE: &str = "write a number from 0.000001 to 100, `x` and `ram`, such as 2 x ram";

/// A multiple of a host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RamMultiple {
    millionths: u64,
}

impl RamMultiple {
    /// `None`: the text is not a multiple of memory.
    pub fn parse(text: &str) -> Option<Result<RamMultiple, String>> {
        let folded = text.trim().to_ascii_lowercase();
        let rest = folded.strip_suffix("ram")?;
        Some(factor(rest).ok_or_else(|| format!("`{text}` is not a size: {EXAMPLE}")))
    }

    /// The size for a host with `memory_bytes`, rounded up to whole MiB so that blocks fit.
    pub fn of(self, memory_bytes: u64) -> u64 {
        let bytes = u128::from(memory_bytes) * u128::from(self.millionths) / u128::from(ONE);
        u64::try_from(bytes.div_ceil(MIB).max(1) * MIB).unwrap_or(u64::MAX)
    }

    /// Multiplies it by `times`, up to the largest multiple.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "rounding is meant, and float to integer saturates"
    )]
    pub fn times(self, factor: f64) -> RamMultiple {
        let millionths = (self.millionths as f64 * factor).round() as u64;
        RamMultiple {
            millionths: millionths.clamp(1, MAX),
        }
    }
}

/// Parses the text before `ram`: a number and an `x`.
fn factor(text: &str) -> Option<RamMultiple> {
    let number = text.trim_end().strip_suffix('x')?.trim();
    let (decimal, unit) = split(number, "size", "2 x ram", "100 x ram").ok()?;
    if !unit.is_empty() {
        return None;
    }
    let millionths = u128::from(decimal.digits) * u128::from(ONE) / 10_u128.pow(decimal.places);
    let millionths = u64::try_from(millionths).ok()?;
    (1..=MAX)
        .contains(&millionths)
        .then_some(RamMultiple { millionths })
}

impl fmt::Display for RamMultiple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.millionths / ONE, self.millionths % ONE);
        let decimals = format!("{rest:06}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{whole} x ram"),
            decimals => write!(f, "{whole}.{decimals} x ram"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn multiples_are_read_shown_and_resolved() {
        const GIB: u64 = 1 << 30;
        for (text, shown, memory, bytes) in [
            ("2 x ram", "2 x ram", 16 * GIB, 32 * GIB),
            ("0.5xRAM", "0.5 x ram", 16 * GIB, 8 * GIB),
            (" 1.25 X ram ", "1.25 x ram", 4 * GIB, 5 * GIB),
            ("100 x ram", "100 x ram", GIB, 100 * GIB),
            ("0.000001 x ram", "0.000001 x ram", GIB, 1 << 20),
            // Whole MiB, rounded up.
            ("1 x ram", "1 x ram", (1 << 20) + 1, 2 << 20),
            ("100 x ram", "100 x ram", u64::MAX, u64::MAX),
        ] {
            let multiple = RamMultiple::parse(text).unwrap().unwrap();
            assert_eq!(multiple.to_string(), shown);
            assert_eq!(multiple.of(memory), bytes, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "x ram",
            "ram",
            "0 x ram",
            "-1 x ram",
            "2 ram",
            "101 x ram",
            "2k x ram",
            "2 x x ram",
            "0.0000001 x ram",
            "1e3 x ram",
            "99999999999999999999 x ram",
        ] {
            let message = RamMultiple::parse(text).unwrap().unwrap_err();
            assert!(message.contains("such as 2 x ram"), "{text}: {message}");
        }
        assert_eq!(RamMultiple::parse("2g"), None);
        assert_eq!(RamMultiple::parse("2 x rum"), None);
    }

    #[test]
    fn multiples_are_scaled() {
        let half = RamMultiple::parse("0.5 x ram").unwrap().unwrap();
        assert_eq!(half.times(0.1).to_string(), "0.05 x ram");
        assert_eq!(half.times(3.0).to_string(), "1.5 x ram");
        assert_eq!(half.times(0.000_000_1).to_string(), "0.000001 x ram");
        assert_eq!(half.times(1000.0).to_string(), "100 x ram");
    }
}
