//! The first message of the sending end on each connection, and its check by the receiving end.
//!
//! `MAGIC`, the number of the stream, the length of the token, the token; answered by one byte. This module does not
//! depend on socket addresses or on the traffic that follows. Invariants: the time of a refusal reveals nothing, and an
//! unauthenticated peer can make the receiving end hold at most `MAX_BYTES`.

use std::hint::black_box;

const MAGIC: [u8; 8] = *b"BMESHN01";
const HEADER: usize = MAGIC.len() + 4 + 2;
/// Maximum length of a token.
pub(super) const MAX_TOKEN_BYTES: usize = 256;
/// Maximum length of a hello.
pub(super) const MAX_BYTES: usize = HEADER + MAX_TOKEN_BYTES;
/// Answer to a valid hello.
pub(super) const WELCOME: u8 = b'+';

/// Encodes a hello. `None` if the token is too long.
pub(super) fn encode(stream: u32, token: &str) -> Option<Vec<u8>> {
    let length = u16::try_from(token.len())
        .ok()
        .filter(|_| token.len() <= MAX_TOKEN_BYTES)?;
    let mut bytes = Vec::with_capacity(HEADER + token.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&stream.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(token.as_bytes());
    Some(bytes)
}

/// Result of checking the bytes received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloVerdict {
    /// Incomplete: read at most this many more bytes, so that no byte after the hello is consumed.
    More(usize),
    /// The token is right; this is the peer's stream.
    Stream(u32),
    /// Not a valid hello.
    Stranger,
}

pub(super) fn judge(bytes: &[u8], token: &str) -> HelloVerdict {
    let Some((header, presented)) = bytes.split_first_chunk::<HEADER>() else {
        return HelloVerdict::More(HEADER - bytes.len());
    };
    let [m0, m1, m2, m3, m4, m5, m6, m7, s0, s1, s2, s3, l0, l1] = *header;
    if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
        return HelloVerdict::Stranger;
    }
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    if length > MAX_TOKEN_BYTES || presented.len() > length {
        return HelloVerdict::Stranger;
    }
    if presented.len() < length {
        return HelloVerdict::More(length - presented.len());
    }
    if same(presented, token.as_bytes()) {
        HelloVerdict::Stream(u32::from_le_bytes([s0, s1, s2, s3]))
    } else {
        HelloVerdict::Stranger
    }
}

/// Compares in a time that depends only on the lengths.
fn same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let difference = left
        .iter()
        .zip(right)
        .fold(0_u8, |difference, (l, r)| black_box(difference | (l ^ r)));
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hello_is_believed_only_whole_and_with_the_token() {
        let hello = encode(7, "secret").unwrap();
        for cut in 0..hello.len() {
            let HelloVerdict::More(more) = judge(&hello[..cut], "secret") else {
                panic!("{cut} bytes were enough");
            };
            assert!(more > 0 && cut + more <= hello.len());
        }
        assert_eq!(judge(&hello, "secret"), HelloVerdict::Stream(7));
        for other in ["secreT", "secre", "secrets", ""] {
            assert_eq!(judge(&hello, other), HelloVerdict::Stranger, "{other:?}");
        }
        assert_eq!(encode(0, &"x".repeat(MAX_TOKEN_BYTES + 1)), None);
    }

    proptest! {
        #[test]
        fn noise_is_never_believed(bytes in proptest::collection::vec(any::<u8>(), 0..MAX_BYTES + 8)) {
            prop_assert!(!matches!(judge(&bytes, "secret"), HelloVerdict::Stream(_)));
        }
    }
}
