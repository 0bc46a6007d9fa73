//! `network`: measures the throughput of a path between two agents, its round-trip time, and the response time of a
//! peer.
//!
//! The sending end is an ordinary task with one worker per stream; it times and records. The receiving end is a port
//! that its agent opens for the step and closes after it. This module does not know why two agents form a pair.
//! Invariant: bytes count once the peer's kernel has acknowledged them, so data in a buffer is never part of a result.

mod connection;
mod datagram;
mod hello;
mod keys;
mod receiver;
mod requester;
mod sender;
mod socket;
mod stream;
mod udp;

use crate::engine::author::Params as PlanParams;
use crate::engine::author::*;
use benchmesh_model::events::EventKind;
use connection::Connection;
use keys::{MODES, NAME, NetworkKeys, NetworkParams, Traffic};
use receiver::{Admission, OpenPort};
use requester::Requester;
use sender::Sender;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use udp::{UdpRequester, UdpSender};

/// The largest buffer that the kernel gives a socket, INT_MAX / 2: one byte less than the largest `socket-buffer`.
const MAX_SOCKET_BUFFER: u64 = (1 << 30) - 1;

/// The workload.
pub const NETWORK: &dyn Workload = workload::<NetworkParams>();

impl Definition for NetworkParams {
    const ABOUT: About = About {
        name: NAME,
        revision: 4,
        summary: "the path between two agents: throughput, round trips, requests and responses, over TCP and UDP",
        modes: MODES,
        needs: Needs::Peer,
        ..About::WITHOUT_TARGET
    };
    type Keys = NetworkKeys;

    fn new(mode: &'static ModeInfo, keys: NetworkKeys) -> Result<Self, ParamError> {
        NetworkParams::of(mode, &keys)
    }

    fn check_common(&self, params: &PlanParams) -> Result<(), ParamError> {
        match self.traffic {
            // A datagram that cannot be sent does not break the link.
            Traffic::Datagrams(_) | Traffic::Requests(_) => Ok(()),
            Traffic::Blocks(_) | Traffic::Exchanges(_) => keys::check_common(params),
        }
    }

    fn threads(&self) -> Threads {
        Threads {
            workers: self.streams,
            timing: self.timing,
        }
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            moved_bytes: self.moved_bytes(),
            ..Footprint::of(self.threads())
        }
    }

    fn as_stored(mode: &str, params: &PlanParams) -> PlanParams {
        keys::as_stored(mode, params)
    }

    fn buffer_bytes(&self) -> u64 {
        self.traffic.buffer_bytes()
    }

    fn load(self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let peer = spec.peer.clone().ok_or_else(|| TaskError::NoPeer {
            workload: spec.workload.clone(),
        })?;
        Ok(Box::new(NetworkLoad {
            params: self,
            peer,
            peer_buffer: AtomicU64::new(u64::MAX),
        }))
    }

    fn listen(self, spec: &ListenSpec) -> Result<Box<dyn Receiver>, TaskError> {
        let admission = Admission {
            peer: spec.peer,
            networks: spec.networks.clone(),
            token: spec.token.clone(),
            traffic: self.traffic,
            streams: self.streams,
        };
        let port = OpenPort::open(spec.bind, spec.ports, admission)?;
        Ok(Box::new(port))
    }
}

impl Receiver for OpenPort {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn close(mut self: Box<Self>) -> Result<Received, TaskError> {
        self.stop();
        Ok(self.received())
    }
}

struct NetworkLoad {
    params: NetworkParams,
    peer: PeerEnd,
    /// The smallest socket buffer of a UDP stream's receiving end, in bytes.
    peer_buffer: AtomicU64,
}

impl Load for NetworkLoad {
    fn issue(&self) -> Issue {
        Issue {
            depth: match self.params.traffic {
                Traffic::Requests(requests) => requests.depth,
                Traffic::Blocks(_) | Traffic::Exchanges(_) | Traffic::Datagrams(_) => 0,
            },
            ..Issue::default()
        }
    }

    fn notes(&self) -> Vec<Note> {
        let wanted = match self.params.traffic {
            Traffic::Datagrams(datagrams) => datagrams.buffer_bytes,
            Traffic::Requests(requests) => requests.buffer_bytes,
            Traffic::Blocks(_) | Traffic::Exchanges(_) => return Vec::new(),
        };
        let buffer = self.peer_buffer.load(Ordering::Relaxed);
        if buffer >= wanted.min(MAX_SOCKET_BUFFER) {
            return Vec::new();
        }
        vec![Note {
            kind: EventKind::SocketBuffer,
            message: format!(
                "the receiving end's socket buffer is {}, not {}: more datagrams are lost there when they come in bursts; \
                 raise net.core.rmem_max on {}",
                Bytes(buffer),
                Bytes(wanted),
                self.peer.address.ip()
            ),
        }]
    }

    fn path_of(&self, _worker: u32, _file: u64) -> Option<String> {
        Some(self.peer.address.to_string())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let connection = Connection::open(&self.peer, index)?;
        Ok(match self.params.traffic {
            Traffic::Blocks(bytes) => {
                Box::new(Sender::new(connection, bytes, index).ending_after(self.params.amount))
            }
            Traffic::Exchanges(exchange) => {
                let requester = Requester::new(connection, exchange, index);
                let requester =
                    requester.map_err(|error| TaskError::io("set up a stream", error))?;
                Box::new(requester.ending_after(self.params.amount))
            }
            Traffic::Datagrams(datagrams) => {
                let sender = UdpSender::open(connection, &datagrams, index)?;
                self.peer_buffer
                    .fetch_min(sender.peer_buffer(), Ordering::Relaxed);
                Box::new(sender.ending_after(self.params.amount))
            }
            Traffic::Requests(requests) => {
                let requester = UdpRequester::open(connection, &requests, index)?;
                self.peer_buffer
                    .fetch_min(requester.peer_buffer(), Ordering::Relaxed);
                Box::new(requester.ending_after(self.params.amount))
            }
        })
    }
}

#[cfg(test)]
mod tests;
