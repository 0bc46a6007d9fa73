//! Number formats for people: three significant digits or whole units, thousands grouped, units in the column's
//! heading.
//!
//! Pure; no locale. An unknown value is a dash.

use crate::units::Bytes;
use std::time::{Duration, SystemTime};

/// Placeholder for a missing figure.
pub const NONE: &str = "-";

/// The last second that RFC 3339 can represent: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// A rate or a share: `12,346`, `823`, `41.2`, `4.12`, `0.412`, `0`.
pub fn rate(value: f64) -> String {
    figure(value, 3)
}

/// A time in milliseconds, down to its nanoseconds: `1,204`, `12.0`, `0.0412`, `0.000062`.
pub fn millis(value: f64) -> String {
    figure(value, 6)
}

/// `rate`, or a dash.
pub fn maybe_rate(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), rate)
}

/// `millis`, or a dash.
pub fn maybe_millis(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), millis)
}

/// A count with its thousands grouped: `1,234,567`.
pub fn count(value: i64) -> String {
    grouped(&value.to_string())
}

/// `1 agent`, `3 agents`.
pub fn plural(count: usize, word: &str) -> String {
    if count == 1 {
        format!("1 {word}")
    } else {
        format!("{count} {word}s")
    }
}

/// A size: `512 B`, `64.0 KiB`, `1.50 GiB`.
pub fn bytes(value: u64) -> String {
    Bytes(value).about()
}

/// A span: `340 ms`, `4.2 s`, `3m 07s`, `2h 05m`, `3d 04h`.
pub fn span(value: Duration) -> String {
    let seconds = value.as_secs();
    if seconds < 1 {
        format!("{} ms", value.as_millis())
    } else if seconds < 10 {
        format!("{:.1} s", value.as_secs_f64())
    } else if seconds < 60 {
        format!("{seconds} s")
    } else if seconds < 3600 {
        format!("{}m {:02}s", seconds / 60, seconds % 60)
    } else if seconds < 86_400 {
        format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60)
    } else {
        format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3600)
    }
}

/// The span between two instants of mesh time; `None` if it is negative.
pub fn between(from_us: i64, until_us: i64) -> Option<Duration> {
    u64::try_from(until_us.checked_sub(from_us)?)
        .ok()
        .map(Duration::from_micros)
}

/// An instant of mesh time in UTC: `2026-11-21T09:41:32Z`.
pub fn instant(at_us: i64) -> String {
    match u64::try_from(at_us) {
        Ok(at) if at / 1_000_000 <= LAST_SECOND => {
            humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_micros(at))
                .to_string()
        }
        _ => format!("{at_us} us"),
    }
}

/// A plan's value in the syntax of plans: text without quotes.
pub fn parameter(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Three significant digits, whole numbers from a hundred on, at most `decimals` decimals.
fn figure(value: f64, decimals: usize) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    let wanted = if size >= 99.95 {
        0
    } else if size >= 9.995 {
        1
    } else if size >= 0.9995 {
        2
    } else if size >= 0.099_95 {
        3
    } else if size >= 0.009_995 {
        4
    } else if size >= 0.000_999_5 {
        5
    } else {
        6
    };
    let text = format!("{value:.*}", wanted.min(decimals));
    match text.split_once('.') {
        Some(_) => text,
        None => grouped(&text),
    }
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let mut out = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(cases: &[(String, &str)]) {
        for (got, expected) in cases {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn figures_have_three_digits_that_matter() {
        check(&[
            (rate(0.0), "0"),
            (rate(0.412_4), "0.412"),
            (rate(4.123), "4.12"),
            (rate(9.996), "10.0"),
            (rate(41.23), "41.2"),
            (rate(99.96), "100"),
            (rate(823.4), "823"),
            (rate(12_345.6), "12,346"),
            (rate(1_234_567.0), "1,234,567"),
            (rate(f64::NAN), "-"),
            (rate(f64::INFINITY), "-"),
            (rate(0.000_1), "0.000"),
            (millis(0.000_062), "0.000062"),
            (millis(0.000_94), "0.000940"),
            (millis(0.007_5), "0.00750"),
            (millis(0.041_2), "0.0412"),
            (millis(1.0), "1.00"),
            (millis(1204.4), "1,204"),
            (maybe_millis(None), "-"),
            (count(0), "0"),
            (count(999), "999"),
            (count(-1234), "-1,234"),
            (count(i64::MAX), "9,223,372,036,854,775,807"),
        ]);
    }

    #[test]
    fn sizes_spans_and_instants() {
        check(&[
            (bytes(0), "0 B"),
            (bytes(1023), "1.00 KiB"),
            (bytes(65_536), "64.0 KiB"),
            (bytes(3 << 29), "1.50 GiB"),
            (bytes(u64::MAX), "16384 PiB"),
            (span(Duration::from_millis(340)), "340 ms"),
            (span(Duration::from_millis(4200)), "4.2 s"),
            (span(Duration::from_secs(59)), "59 s"),
            (span(Duration::from_secs(187)), "3m 07s"),
            (span(Duration::from_secs(7500)), "2h 05m"),
            (span(Duration::from_secs(273_600)), "3d 04h"),
            (instant(0), "1970-01-01T00:00:00Z"),
            (instant(1_795_254_092_999_999), "2026-11-21T09:41:32Z"),
            (instant(-1), "-1 us"),
            (instant(i64::MAX), "9223372036854775807 us"),
        ]);
        assert_eq!(between(5, 1), None);
        assert_eq!(between(1, 5), Some(Duration::from_micros(4)));
        assert_eq!(between(i64::MIN, i64::MAX), None);
    }
}
