//! fio's numbers, sizes and times, and how a plan writes them.

/// A number as fio writes it: `4k` is 4096, `4ki` is 4000 (fio's default has the prefixes this way round; `kb_base =
/// 1000` turns them). `None` for a range, a percentage, an expression or anything else.
pub(super) fn size(text: &str, kb_base: u64) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = (text.get(..end)?, text.get(end..)?);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim().strip_suffix('b').unwrap_or(unit.trim());
    let (prefix, other) = match unit.strip_suffix('i') {
        Some(prefix) if !prefix.is_empty() => (prefix, true),
        _ => (unit, false),
    };
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let base: u64 = match (kb_base == 1000, other) {
        (false, false) | (true, true) => 1024,
        (false, true) | (true, false) => 1000,
    };
    number.checked_mul(base.checked_pow(power)?)
}

/// The shortest way in which a plan writes a size.
pub(super) fn shown_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A time in microseconds: `30`, `10m`, `1h30m`, `1:00:00`; a bare number is seconds.
pub(super) fn micros(text: &str) -> Option<u64> {
    const SECOND: u64 = 1_000_000;
    let text = text.trim().to_ascii_lowercase();
    if text.contains(':') {
        // [[dd:]hh:]mm:ss
        let parts: Option<Vec<u64>> = text.split(':').map(|part| part.parse().ok()).collect();
        let units = [SECOND, 60 * SECOND, 3600 * SECOND, 86_400 * SECOND];
        let parts = parts.filter(|parts| parts.len() <= units.len())?;
        let terms = parts.iter().rev().zip(units);
        return terms
            .map(|(part, unit)| part.checked_mul(unit))
            .try_fold(0_u64, |sum, term| sum.checked_add(term?));
    }
    let mut rest = text.as_str();
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number: u64 = rest.get(..end)?.parse().ok()?;
        rest = rest.get(end..)?.trim_start();
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit = match rest.get(..end)?.trim() {
            "" | "s" | "sec" | "second" | "seconds" => SECOND,
            "us" | "usec" => 1,
            "ms" | "msec" => 1000,
            "m" | "min" | "minute" | "minutes" => 60 * SECOND,
            "h" | "hr" | "hour" | "hours" => 3600 * SECOND,
            "d" | "day" | "days" => 86_400 * SECOND,
            _ => return None,
        };
        rest = rest.get(end..)?;
        sum = sum.checked_add(number.checked_mul(unit)?)?;
    }
    (!text.is_empty()).then_some(sum)
}

/// The shortest way in which a plan writes a time.
pub(super) fn shown_time(micros: u64) -> String {
    match (micros % 1_000_000, micros % 1000) {
        (0, _) => format!("{}s", micros / 1_000_000),
        (_, 0) => format!("{}ms", micros / 1000),
        _ => format!("{micros}us"),
    }
}

/// A flag: set without a value, or by any number but 0.
pub(super) fn flag(text: &str) -> Option<bool> {
    match text.trim() {
        "" | "true" => Some(true),
        "false" => Some(false),
        text => text.parse::<i64>().ok().map(|number| number != 0),
    }
}

/// The bytes of a `buffer_pattern` that a plan can repeat: 1, 2, 4 or 8 of them, in hexadecimal.
pub(super) fn pattern(text: &str) -> Option<String> {
    let digits = text.trim().strip_prefix("0x")?;
    let is_hex = digits.chars().all(|c| c.is_ascii_hexdigit());
    (is_hex && [2, 4, 8, 16].contains(&digits.len())).then(|| format!("0x{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_fio_does() {
        for (text, base, expected) in [
            ("512", 1024, Some(512)),
            ("4k", 1024, Some(4096)),
            ("4K", 1024, Some(4096)),
            ("4kb", 1024, Some(4096)),
            ("4KiB", 1024, Some(4000)),
            ("4ki", 1000, Some(4096)),
            ("4k", 1000, Some(4000)),
            ("1g", 1024, Some(1 << 30)),
            ("0x10", 1024, Some(16)),
            ("50%", 1024, None),
            ("4k-8k", 1024, None),
            ("", 1024, None),
            ("99999p", 1024, None),
            ("i", 1024, None),
        ] {
            assert_eq!(size(text, base), expected, "{text}");
        }
        for (bytes, expected) in [(4096, "4k"), (1 << 30, "1g"), (1000, "1000"), (0, "0")] {
            assert_eq!(shown_size(bytes), expected);
        }
    }

    #[test]
    fn times_are_read_as_fio_does() {
        for (text, expected) in [
            ("30", Some("30s")),
            ("10m", Some("600s")),
            ("1h30m", Some("5400s")),
            ("500ms", Some("500ms")),
            ("20us", Some("20us")),
            ("1:00:00", Some("3600s")),
            ("", None),
            ("soon", None),
            ("9999999999999999d", None),
            // Each part fits, their sum does not.
            ("1:18446744073709", None),
        ] {
            assert_eq!(micros(text).map(shown_time).as_deref(), expected, "{text}");
        }
    }
}
