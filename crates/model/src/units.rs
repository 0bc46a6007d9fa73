//! Sizes and durations as text: `4k`, `1GiB`, `30s`, `72h`.
//!
//! fio's rules: `k m g t p` alone and `KiB`, `MiB` are powers of two; `kB`, `MB` are powers of ten. A bare number is
//! bytes, or seconds. Case is ignored.

mod ram;
pub use ram::RamMultiple;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

/// Why a text is not a size or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{text}` is not a {what}: write a number and a unit, such as {example}")]
    Malformed {
        text: String,
        what: &'static str,
        example: &'static str,
    },
    #[error("`{text}`: unknown unit `{unit}`; known are {known}")]
    UnknownUnit {
        text: String,
        unit: String,
        known: &'static str,
    },
    #[error("`{text}` is larger than a {what} can be, which is at most {most}")]
    TooLarge {
        text: String,
        what: &'static str,
        most: &'static str,
    },
}

/// No load lasts longer; arithmetic with instants cannot overflow.
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);
const MAX_SPAN: &str = "3650d";
const MAX_SIZE: &str = "16383PiB";

const SIZE_UNITS: &str =
    "k, m, g, t, p and KiB, MiB, GiB, TiB, PiB (powers of two), kB, MB, GB, TB, PB (powers of ten)";
const SPAN_UNITS: &str = "ns, us, ms, s, m, h, d";

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        let (number, unit) = split(text, "size", "4k, 128m or 1GiB", MAX_SIZE)?;
        let unit = unit.to_ascii_lowercase();
        let (prefix, base) = match unit.as_bytes() {
            [] | [b'b'] => (b'-', 1),
            [prefix] | [prefix, b'i', b'b'] => (*prefix, 1024_u64),
            [prefix, b'b'] => (*prefix, 1000_u64),
            _ => (b'?', 1),
        };
        let power = match prefix {
            b'-' => 0,
            b'k' => 1,
            b'm' => 2,
            b'g' => 3,
            b't' => 4,
            b'p' => 5,
            _ => {
                return Err(UnitError::UnknownUnit {
                    text: text.to_owned(),
                    unit,
                    known: SIZE_UNITS,
                });
            }
        };
        scale(&number, base.pow(power).into())
            .map(Bytes)
            .ok_or_else(|| too_large(text, "size", MAX_SIZE))
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Span, UnitError> {
        let (number, unit) = split(text, "duration", "30s, 10m or 72h", MAX_SPAN)?;
        let nanos: u128 = match unit.to_ascii_lowercase().as_str() {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "" | "s" | "sec" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            other => {
                return Err(UnitError::UnknownUnit {
                    text: text.to_owned(),
                    unit: other.to_owned(),
                    known: SPAN_UNITS,
                });
            }
        };
        let span = scale(&number, nanos).map(Duration::from_nanos);
        span.and_then(Span::new)
            .ok_or_else(|| too_large(text, "duration", MAX_SPAN))
    }
}

impl Span {
    pub fn from_secs(seconds: u64) -> Result<Span, UnitError> {
        Span::new(Duration::from_secs(seconds))
            .ok_or_else(|| too_large(&seconds.to_string(), "duration", MAX_SPAN))
    }

    /// `None` if longer than the maximum.
    fn new(duration: Duration) -> Option<Span> {
        (duration <= LONGEST).then_some(Span(duration))
    }
}

/// A decimal number as an integer and a count of decimal places: `1.5` is 15 and 1.
struct Decimal {
    digits: u64,
    places: u32,
}

fn split<'a>(
    text: &'a str,
    what: &'static str,
    example: &'static str,
    most: &'static str,
) -> Result<(Decimal, &'a str), UnitError> {
    let malformed = || UnitError::Malformed {
        text: text.to_owned(),
        what,
        example,
    };
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at_checked(end).ok_or_else(malformed)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.contains('.') || fraction.len() > 9 {
        return Err(malformed());
    }
    let digits = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| too_large(text, what, most))?;
    let places = u32::try_from(fraction.len()).map_err(|_| malformed())?;
    Ok((Decimal { digits, places }, unit.trim_start()))
}

/// The number times the unit, rounded down; `None` on overflow of 64 bits.
fn scale(number: &Decimal, unit: u128) -> Option<u64> {
    let scaled = u128::from(number.digits).checked_mul(unit)? / 10_u128.pow(number.places);
    u64::try_from(scaled).ok()
}

fn too_large(text: &str, what: &'static str, most: &'static str) -> UnitError {
    UnitError::TooLarge {
        text: text.to_owned(),
        what,
        most,
    }
}

impl Bytes {
    /// For people: three digits of the largest unit that fits, such as `1.46 GiB`.
    pub fn about(self) -> String {
        const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let mut size = self.0 as f64;
        let mut unit = 0;
        // Values that would round to 1000 or more use the next unit.
        while size >= 999.5 && unit + 1 < UNITS.len() {
            size /= 1024.0;
            unit += 1;
        }
        let digits = match size {
            _ if unit == 0 => 0,
            ..9.995 => 2,
            ..99.95 => 1,
            _ => 0,
        };
        let name = UNITS.get(unit).unwrap_or(&"");
        format!("{size:.digits$} {name}")
    }
}

impl fmt::Display for Bytes {
    /// With the largest power-of-two unit that divides the size: `4KiB`, `1GiB`, `1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 5] = [
            (50, "PiB"),
            (40, "TiB"),
            (30, "GiB"),
            (20, "MiB"),
            (10, "KiB"),
        ];
        for (bits, name) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= bits {
                return write!(f, "{}{name}", self.0 >> bits);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Span {
    /// With the largest unit that divides the duration: `72h`, `90s`, `1500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u128, &str); 6] = [
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ];
        let nanos = self.0.as_nanos();
        for (unit, name) in UNITS {
            if nanos != 0 && nanos.is_multiple_of(unit) {
                return write!(f, "{}{name}", nanos / unit);
            }
        }
        f.write_str("0s")
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_any(Text {
            expecting: "a size such as \"4k\", \"1GiB\" or 4096",
            whole: |number| Ok(Bytes(number)),
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        deserializer.deserialize_any(Text {
            expecting: "a duration such as \"30s\", \"10m\" or 30 (seconds)",
            whole: Span::from_secs,
        })
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a unit from a text or from a whole number.
struct Text<F> {
    expecting: &'static str,
    whole: F,
}

impl<T, F> Visitor<'_> for Text<F>
where
    T: FromStr<Err = UnitError>,
    F: Fn(u64) -> Result<T, UnitError>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.whole)(number).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
mod tests;
