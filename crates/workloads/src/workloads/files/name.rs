//! Names of files and directories: a letter and nine digits, built and incremented in place.
//!
//! Invariant: a name never needs memory beyond its buffer.

use rustix::fs::AtFlags;
use std::ffi::CStr;

/// The two names of a file: a rename changes one into the other and, the next time, back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Names {
    Created,
    Renamed,
}

impl Names {
    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Created => b'c',
            Self::Renamed => b'r',
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Created => Self::Renamed,
            Self::Renamed => Self::Created,
        }
    }
}

/// Entries other than files that lie beside files, under their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Symlink,
    Subdirectory,
}

impl NameKind {
    pub(super) const ALL: [Self; 2] = [Self::Symlink, Self::Subdirectory];

    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Symlink => b's',
            Self::Subdirectory => b'm',
        }
    }

    /// Flags for removing an entry.
    pub(super) fn removal(self) -> AtFlags {
        match self {
            Self::Symlink => AtFlags::empty(),
            Self::Subdirectory => AtFlags::REMOVEDIR,
        }
    }
}

/// Limit on the files of a share: their numbers must fit the digits.
pub(super) const MAX_FILES: u64 = 1_000_000_000;

const DIGITS: usize = 9;
const NAME_LEN: usize = 1 + DIGITS;

/// A letter, nine digits and the NUL that the kernel needs, in place. Incrementing usually writes one digit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    bytes: [u8; NAME_LEN + 1],
}

impl Name {
    pub(super) fn new(letter: u8, number: u64) -> Self {
        let mut name = Self {
            bytes: [b'0'; NAME_LEN + 1],
        };
        let [first, digits @ .., end] = &mut name.bytes;
        *first = letter;
        *end = 0;
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
        }
        name
    }

    pub(super) fn file(names: Names, number: u64) -> Self {
        Self::new(names.letter(), number)
    }

    pub(super) fn directory(number: u64) -> Self {
        Self::new(b'd', number)
    }

    pub(super) fn of(kind: NameKind, number: u64) -> Self {
        Self::new(kind.letter(), number)
    }

    pub(super) fn worker(number: u32) -> Self {
        Self::new(b'w', u64::from(number))
    }

    /// The next name in order.
    #[inline]
    pub(super) fn advance(&mut self) {
        let [_, digits @ .., _] = &mut self.bytes;
        for digit in digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }

    pub(super) fn letter(&self) -> u8 {
        let [letter, ..] = self.bytes;
        letter
    }

    /// Takes the number of another name and keeps this one's letter.
    #[inline]
    pub(super) fn take_number(&mut self, other: &Name) {
        let letter = self.letter();
        *self = *other;
        let [first, ..] = &mut self.bytes;
        *first = letter;
    }

    #[inline]
    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes).expect("only the last byte is NUL")
    }

    /// Number of a name with this letter; `None` for any other name.
    pub(super) fn number(letter: u8, name: &CStr) -> Option<u64> {
        let (&first, digits) = name.to_bytes().split_first()?;
        if first != letter || digits.len() != DIGITS || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.as_c_str().to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn advancing_a_name_counts(start in 0_u64..999_999_000, steps in 0_u64..1000) {
            let mut name = Name::file(Names::Created, start);
            for _ in 0..steps {
                name.advance();
            }
            let expected = format!("c{:09}", start + steps);
            prop_assert_eq!(name.as_c_str().to_str().unwrap(), expected.as_str());
            prop_assert_eq!(Name::number(b'c', name.as_c_str()), Some(start + steps));
            prop_assert_eq!(Name::number(b'r', name.as_c_str()), None);
        }
    }

    #[test]
    fn a_foreign_name_has_no_number() {
        for name in [c".", c"..", c"c1", c"c00000000x", c"c0000000001", c""] {
            assert_eq!(Name::number(b'c', name), None, "{name:?}");
        }
    }
}
