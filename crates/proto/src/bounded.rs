//! The codec of all calls. It counts what an agent's message holds before it decodes it.
//!
//! An empty row of a batch is two bytes on the wire and some 300 in memory, so that a message within its limit of bytes
//! could make the collector take a gigabyte. Counting allocates nothing and follows the messages' own fields alone
//! (`shapes.rs`, which the build writes).
//!
//! A message is decoded where its stream is read, on a thread of the runtime. While that takes a large one long,
//! another thread takes that place, so that clocks are answered meanwhile.

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::marker::PhantomData;
use tokio::runtime::{Handle, RuntimeFlavor};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Rows, messages within them and repeated texts of one message of an agent. What honest agents send stays far below: a
/// batch has at most 1 MiB, and its smallest rows take some 10 bytes.
pub const MAX_ENTRIES: usize = 1 << 17;

/// Messages from here on are decoded beside the runtime; to change places wakes a thread, which smaller ones are not
/// worth.
const LARGE_BYTES: usize = 128 << 10;

/// Fields of a message that are messages, or repeated texts (`None`).
#[derive(Debug)]
pub struct Shape(&'static [(u32, Option<&'static Shape>)]);

/// A message with an optional bound on its number of entries.
pub trait Bounded {
    /// `None` for messages from a trusted sender.
    const SHAPE: Option<&'static Shape>;
}

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// Whether a message holds at most `most` entries. What cannot be parsed ends the count: decoding fails there too.
pub fn holds_at_most(most: usize, shape: &Shape, bytes: &[u8]) -> bool {
    let mut left = most;
    count(shape, bytes, &mut left).is_some()
}

/// `None`: there are more than `left`.
fn count(shape: &Shape, mut bytes: &[u8], left: &mut usize) -> Option<()> {
    while bytes.has_remaining() {
        let Ok((number, wire_type)) = decode_key(&mut bytes) else {
            return Some(());
        };
        let length = match wire_type {
            WireType::Varint => {
                if decode_varint(&mut bytes).is_err() {
                    return Some(());
                }
                continue;
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            // The fields of a group count as the message's own, which is more than there are.
            WireType::StartGroup | WireType::EndGroup => 0,
            WireType::LengthDelimited => match decode_varint(&mut bytes) {
                Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
                Err(_) => return Some(()),
            },
        };
        let Some((value, rest)) = bytes.split_at_checked(length) else {
            return Some(());
        };
        bytes = rest;
        let field = shape.0.iter().find(|(known, _)| *known == number);
        if let (Some((_, nested)), WireType::LengthDelimited) = (field, wire_type) {
            *left = left.checked_sub(1)?;
            if let Some(nested) = nested {
                count(nested, value, left)?;
            }
        }
    }
    Some(())
}

/// Protobuf by prost, within [`MAX_ENTRIES`].
#[derive(Debug, Clone)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Bounded + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstDecoder::default())
    }
}

/// Refuses a message that holds too much, and decodes the others.
#[derive(Debug, Clone)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + Bounded> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message is in one piece here. The rest of a split one would not be counted, so it is refused.
        let is_whole = buffer.chunk().len() == buffer.remaining();
        let Some(shape) = U::SHAPE else {
            return self.0.decode(buffer);
        };
        beside_the_runtime(buffer.remaining(), || {
            if !(is_whole && holds_at_most(MAX_ENTRIES, shape, buffer.chunk())) {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    format!("the message holds more than {MAX_ENTRIES} rows"),
                ));
            }
            self.0.decode(buffer)
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Work on a message of that many bytes, while the runtime goes on if it has several threads.
fn beside_the_runtime<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let may_change_places = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    match bytes >= LARGE_BYTES && may_change_places {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::v1;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    fn fits<M: Message + Bounded>(most: usize, message: &M) -> bool {
        holds_at_most(most, M::SHAPE.unwrap(), &message.encode_to_vec())
    }

    #[test]
    fn rows_and_what_is_within_them_count() {
        let batch = v1::Batch {
            op_intervals: vec![v1::OpInterval::default(); 7],
            daemon_samples: Some(v1::DaemonSamples {
                pid: (0..1000).collect(),
                ..v1::DaemonSamples::default()
            }),
            task_ends: vec![v1::TaskEnd {
                errors: vec![v1::ErrorCount::default(); 5],
                ..v1::TaskEnd::default()
            }],
            ..v1::Batch::default()
        };
        assert!(fits(14, &batch) && !fits(13, &batch));
    }

    #[test]
    fn texts_of_a_hello_count() {
        let hello = v1::Hello {
            spool_ids: vec![String::new(); 20],
            labels: (0..10).map(|n| (n.to_string(), String::new())).collect(),
            ..v1::Hello::default()
        };
        let message = v1::AgentMessage {
            body: Some(v1::agent_message::Body::Hello(hello)),
        };
        assert!(fits(31, &message) && !fits(30, &message));
    }

    #[test]
    fn a_message_that_breaks_off_is_left_to_the_decoder() {
        let batch = v1::Batch {
            op_intervals: vec![v1::OpInterval::default(); 3],
            ..v1::Batch::default()
        };
        let mut bytes = batch.encode_to_vec();
        bytes.extend([0x22, 0xff, 0xff]);
        assert!(holds_at_most(3, v1::Batch::SHAPE.unwrap(), &bytes));
        assert!(v1::Batch::decode(bytes.as_slice()).is_err());
    }

    /// While a large message is decoded on the runtime's only worker, a heartbeat goes on.
    #[test]
    fn large_messages_leave_the_runtime_to_others() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let beats = Arc::new(AtomicU64::new(0));
        let heart = Arc::clone(&beats);
        runtime.spawn(async move {
            loop {
                heart.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let decoding = runtime.spawn(async move {
            let decode = || {
                let (before, until) = (
                    beats.load(Ordering::Relaxed),
                    Instant::now() + Duration::from_secs(60),
                );
                while beats.load(Ordering::Relaxed) == before {
                    assert!(Instant::now() < until, "nothing else runs meanwhile");
                    std::thread::yield_now();
                }
            };
            beside_the_runtime(LARGE_BYTES, decode);
        });
        runtime.block_on(decoding).unwrap();
        // On a runtime of one thread there is no other place.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async { beside_the_runtime(LARGE_BYTES, || ()) });
        beside_the_runtime(LARGE_BYTES, || ());
    }
}
