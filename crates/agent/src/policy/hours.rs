//! Hours of the day, in the host's local time, in which load is allowed.

use std::fmt;
use std::str::FromStr;

const MINUTES_PER_DAY: u16 = 24 * 60;

/// Spans of the day, in minutes since midnight. A span that ends at or before its start crosses midnight. Empty:
/// always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours(Vec<(u16, u16)>);

impl Hours {
    /// Whether load is allowed in this minute of the day.
    #[must_use]
    pub(super) fn contain(&self, minute: u16) -> bool {
        let within = |(from, to): &(u16, u16)| match from < to {
            true => (*from..*to).contains(&minute),
            false => minute >= *from || minute < *to,
        };
        self.0.is_empty() || self.0.iter().any(within)
    }

    /// Whether load is always allowed.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Hours {
    type Err = String;

    /// Parses `22:00-06:00`, several such spans separated by commas, or `always`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "always" {
            return Ok(Self::default());
        }
        let span = |part: &str| {
            let (from, to) = part.trim().split_once('-')?;
            let (from, to) = (minute(from)?, minute(to)?);
            (from < MINUTES_PER_DAY && from != to).then_some((from, to))
        };
        text.split(',')
            .map(|part| {
                span(part).ok_or_else(|| {
                    format!("`{part}` is not a span of the day; write e.g. 22:00-06:00, or always")
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("always");
        }
        for (index, (from, to)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}-{}", clock(*from), clock(*to))?;
        }
        Ok(())
    }
}

/// Parses `HH:MM`, up to 24:00.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let two = |text: &str| (text.len() == 2).then(|| text.parse::<u16>().ok())?;
    let (hour, minute) = (two(hour)?, two(minute)?);
    let at = hour.checked_mul(60)?.checked_add(minute)?;
    (minute < 60 && at <= MINUTES_PER_DAY).then_some(at)
}

pub(super) fn clock(minute: u16) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

/// The minute of the day by this host's clock, in its time zone.
pub(super) fn minute_of_day() -> u16 {
    // SAFETY: with a null pointer, time(2) only returns the time.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: all fields of a tm are numbers or a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values of their types that live through the call.
    let filled = unsafe { libc::localtime_r(&raw const now, &raw mut local) };
    if filled.is_null() {
        // A year out of range: the hour is unknown.
        return 0;
    }
    u16::try_from(local.tm_hour * 60 + local.tm_min).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn spans_hold_their_first_minute_and_not_their_last() {
        let check = |text: &str, at: &str, expected: bool| {
            let hours: Hours = text.parse().unwrap();
            assert_eq!(hours.contain(minute(at).unwrap()), expected, "{text} {at}");
        };
        check("22:00-06:00", "22:00", true);
        check("22:00-06:00", "00:00", true);
        check("22:00-06:00", "05:59", true);
        check("22:00-06:00", "06:00", false);
        check("22:00-06:00", "13:00", false);
        check("12:00-13:00,20:00-24:00", "12:59", true);
        check("12:00-13:00,20:00-24:00", "13:00", false);
        check("12:00-13:00,20:00-24:00", "23:59", true);
        check("12:00-13:00,20:00-24:00", "00:00", false);
        check("always", "04:00", true);
    }

    #[test]
    fn texts_come_back_and_mistakes_are_refused() {
        for text in [
            "22:00-06:00",
            "00:00-24:00",
            "12:00-13:00,20:00-21:30",
            "always",
        ] {
            assert_eq!(text.parse::<Hours>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "22-6",
            "22:00",
            "25:00-06:00",
            "10:00-10:00",
            "24:00-01:00",
            "1:00-2:00",
            "10:60-11:00",
        ] {
            let error = text.parse::<Hours>().unwrap_err();
            assert!(error.contains("22:00-06:00"), "{text}: {error}");
        }
        assert!(minute_of_day() < MINUTES_PER_DAY);
    }
}
