//! SHA-256 fingerprints, and hexadecimal text.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A SHA-256 digest, in text as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(sum)
    }

    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        unhex(&text)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or("a fingerprint is 64 hexadecimal digits")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_sha_256_and_survives_its_text() {
        let fingerprint = Fingerprint::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(Fingerprint::try_from(text.to_owned()), Ok(fingerprint));
        for wrong in ["", "ba", "zz", &text[1..], "é".repeat(32).as_str()] {
            assert!(Fingerprint::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
