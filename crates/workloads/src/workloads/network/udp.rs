//! UDP between two agents: streams of datagrams, and requests with their responses.
//!
//! The TCP connection that presents the token stays open beside the datagrams. It carries the key that every datagram
//! must have, the receiving end's port and reports, and the end of the stream. Only a peer with the token learns the
//! key; a datagram without the key is counted and dropped, never answered. Invariant: for each stream, datagrams handed
//! to the kernel = received + lost.

mod arrivals;
mod channel;
mod requester;
mod requests_in_flight;
mod responder;
mod socket;
mod stream_receiver;
mod stream_sender;

pub(super) use requester::UdpRequester;
pub(super) use responder::respond;
pub(super) use stream_receiver::{Tally, receive};
pub(super) use stream_sender::UdpSender;

#[cfg(test)]
mod tests;
