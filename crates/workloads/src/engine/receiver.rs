//! The receiving end of a workload that needs a peer.

use crate::engine::spec::TaskError;
use crate::params::{Cidr, Params, PortRange};
use std::net::{IpAddr, SocketAddr};

/// What a receiving end is to listen for.
#[derive(Debug, Clone)]
pub struct ListenSpec {
    pub mode: String,
    pub params: Params,
    /// The address to listen on.
    pub bind: IpAddr,
    /// Every port of the receiving end lies in it; `None`: the kernel chooses them.
    pub ports: Option<PortRange>,
    /// The only peer that is let in, where its address is known.
    pub peer: Option<IpAddr>,
    /// Networks that a peer whose address is not known has to be in.
    pub networks: Vec<Cidr>,
    /// What the peer has to present.
    pub token: String,
}

/// The receiving end of a task; it serves on threads of its own until it is closed.
pub trait Receiver: Send {
    fn address(&self) -> SocketAddr;
    /// Ends every connection and returns what arrived.
    fn close(self: Box<Self>) -> Result<Received, TaskError>;
}

/// What a receiving end saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    pub connections: u64,
    pub bytes: u64,
    /// Datagrams that were dropped because they did not bear the key of their stream.
    pub strangers: u64,
}
