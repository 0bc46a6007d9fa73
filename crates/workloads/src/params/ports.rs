//! Port ranges: `5201-5300`, or one port.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// An inclusive range of ports; never contains port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// `None` for port 0, or if the last lies before the first.
    #[must_use]
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first > 0 && first <= last).then_some(Self { first, last })
    }

    /// From the first to the last.
    #[must_use]
    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    #[must_use]
    pub fn count(self) -> usize {
        self.ports().len()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// The text is not a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a range of ports such as 5201-5300, or one port; ports are 1 to 65535")]
pub struct NotAPortRange;

impl FromStr for PortRange {
    type Err = NotAPortRange;

    fn from_str(text: &str) -> Result<Self, NotAPortRange> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| NotAPortRange);
        Self::new(port(first)?, port(last)?).ok_or(NotAPortRange)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_parse_and_are_written_as_they_were_given() {
        for (text, first, count) in [
            ("5201-5300", 5201, 100),
            ("5201", 5201, 1),
            ("1-65535", 1, 65_535),
        ] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!((*range.ports().start(), range.count()), (first, count));
            assert_eq!(range.to_string(), text);
        }
        for text in [
            "",
            "-",
            "0",
            "0-5",
            "5300-5201",
            "1-65536",
            "5201-",
            "http",
            "1-2-3",
        ] {
            assert_eq!(text.parse::<PortRange>(), Err(NotAPortRange), "{text}");
        }
    }
}
