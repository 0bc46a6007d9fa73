//! The header of each UDP datagram.
//!
//! A stream's datagram and a request: key (8 bytes), sequence number (8), the sender's clock in nanoseconds (8). A
//! response: key, sequence number. All numbers are little endian. This module does not use sockets.

use std::hint::black_box;

/// Minimum payload of a stream's datagram and of a request.
pub(super) const MIN_REQUEST_BYTES: usize = 24;
/// Minimum payload of a response.
pub(super) const MIN_RESPONSE_BYTES: usize = 16;
/// Maximum payload of a datagram over IPv4.
pub(super) const MAX_BYTES: usize = 65_507;

/// Sequence number of a datagram that only probes the path.
pub(super) const PROBE: u64 = u64::MAX;

/// The secret of one stream. The sending end makes it and sends it over the authenticated connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamKey(pub [u8; 8]);

impl std::fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamKey(..)")
    }
}

/// A datagram of the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub sequence: u64,
    pub sent_ns: u64,
}

impl Header {
    /// Writes the header to a datagram of at least [`MIN_REQUEST_BYTES`].
    #[inline]
    pub(super) fn write(self, key: StreamKey, datagram: &mut [u8]) {
        if let Some(head) = datagram.first_chunk_mut::<MIN_REQUEST_BYTES>() {
            let (front, sent) = head.split_at_mut(16);
            let (own, sequence) = front.split_at_mut(8);
            own.copy_from_slice(&key.0);
            sequence.copy_from_slice(&self.sequence.to_le_bytes());
            sent.copy_from_slice(&self.sent_ns.to_le_bytes());
        }
    }

    /// `None` for a datagram without the key.
    #[inline]
    pub(super) fn read(key: StreamKey, datagram: &[u8]) -> Option<Header> {
        let (head, rest) = datagram.split_first_chunk::<16>()?;
        let sent = rest.first_chunk::<8>()?;
        Some(Header {
            sequence: sequence_of(key, head)?,
            sent_ns: u64::from_le_bytes(*sent),
        })
    }
}

/// Writes the header of a response.
#[inline]
pub(super) fn write_response(key: StreamKey, sequence: u64, datagram: &mut [u8]) {
    if let Some(head) = datagram.first_chunk_mut::<MIN_RESPONSE_BYTES>() {
        let (own, number) = head.split_at_mut(8);
        own.copy_from_slice(&key.0);
        number.copy_from_slice(&sequence.to_le_bytes());
    }
}

/// Sequence number of the answered request; `None` for a datagram without the key.
#[inline]
pub(super) fn read_response(key: StreamKey, datagram: &[u8]) -> Option<u64> {
    sequence_of(key, datagram.first_chunk::<16>()?)
}

/// Compares the key in constant time.
#[inline]
fn sequence_of(key: StreamKey, head: &[u8; 16]) -> Option<u64> {
    let (own, sequence) = head.split_first_chunk::<8>()?;
    let difference = u64::from_le_bytes(*own) ^ u64::from_le_bytes(key.0);
    let sequence = sequence.first_chunk::<8>()?;
    (black_box(difference) == 0).then(|| u64::from_le_bytes(*sequence))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_only_with_the_key(
            key in any::<[u8; 8]>(),
            other in any::<[u8; 8]>(),
            sequence in any::<u64>(),
            sent_ns in any::<u64>(),
            extra in 0_usize..64,
        ) {
            prop_assume!(key != other);
            let (key, other) = (StreamKey(key), StreamKey(other));
            let header = Header { sequence, sent_ns };
            let mut datagram = vec![0; MIN_REQUEST_BYTES + extra];
            header.write(key, &mut datagram);
            prop_assert_eq!(Header::read(key, &datagram), Some(header));
            prop_assert_eq!(Header::read(other, &datagram), None);
            prop_assert_eq!(Header::read(key, &datagram[..MIN_REQUEST_BYTES - 1]), None);
            write_response(key, sequence, &mut datagram);
            prop_assert_eq!(read_response(key, &datagram), Some(sequence));
            prop_assert_eq!(read_response(other, &datagram), None);
            prop_assert_eq!(read_response(key, &datagram[..MIN_RESPONSE_BYTES - 1]), None);
        }
    }
}
