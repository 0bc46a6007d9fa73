//! Join tokens: a secret (the collector stores only its hash) and the fingerprint of the CA to trust.

use crate::fingerprint::{Fingerprint, hex, unhex};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "bmjoin-";
const SECRET_BYTES: usize = 16;

/// Entitles its bearer to a certificate from one collector.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    secret: [u8; SECRET_BYTES],
    ca: Fingerprint,
}

/// Which holder the users of a token may replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    #[default]
    Nobody,
    /// The holder of the requested name.
    HolderOfName,
    /// The holder of this name; the requested name may differ.
    Named(String),
}

impl Replacement {
    /// The name of the holder that a token replaces, if it names one.
    #[must_use]
    pub fn named(&self) -> Option<&str> {
        match self {
            Self::Nobody | Self::HolderOfName => None,
            Self::Named(name) => Some(name),
        }
    }
}

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid join token: a token begins with {PREFIX}, and `benchmesh collector token` prints one"
)]
pub struct NotAToken;

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(..)")
    }
}

impl JoinToken {
    /// 128 random bits for the collector with this CA; `None` when the kernel has no randomness.
    #[must_use]
    pub fn new(ca: Fingerprint) -> Option<Self> {
        let mut secret = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut secret).ok()?;
        Some(Self { secret, ca })
    }

    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }

    #[must_use]
    pub fn ca(&self) -> Fingerprint {
        self.ca
    }

    /// The hash of its secret, whose first digits `benchmesh collector token list` shows.
    #[must_use]
    pub fn id(&self) -> String {
        Fingerprint::of(&self.secret).to_string()
    }

    /// The whole token, including the secret. There is no `Display`, so that it is not logged by accident.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{PREFIX}{}{}", hex(&self.secret), hex(self.ca.bytes()))
    }
}

impl FromStr for JoinToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let bytes = text
            .trim()
            .strip_prefix(PREFIX)
            .and_then(unhex)
            .ok_or(NotAToken)?;
        let (secret, ca) = bytes.split_at_checked(SECRET_BYTES).ok_or(NotAToken)?;
        Ok(Self {
            secret: secret.try_into().map_err(|_| NotAToken)?,
            ca: Fingerprint::from_bytes(ca.try_into().map_err(|_| NotAToken)?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_survives_its_text_and_nothing_else_is_one() {
        let token = JoinToken::new(Fingerprint::of(b"ca")).unwrap();
        let text = token.text();
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(format!("{text}\n").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&text[7..20]));
        let cut = &text[..text.len() - 2];
        for wrong in [
            "",
            "bmjoin-",
            "bmjoin-00",
            cut,
            &text[7..],
            &format!("{text}00"),
        ] {
            assert_eq!(wrong.parse::<JoinToken>(), Err(NotAToken), "{wrong}");
        }
    }
}
