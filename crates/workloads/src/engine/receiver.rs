//! The receiving end of a workload that needs a peer.

use crate::engine::spec::TaskError;
use crate::params::{Cidr, Params, PortRange};
use std::net::{IpAddr, SocketAddr};

/// How a receiving end listens.
#[derive(Debug, Clone)]
pub struct ListenSpec {
    pub mode: String,
    pub params: Params,
    /// The address to listen on.
    pub bind: IpAddr,
    /// Range for all ports of the receiving end; `None`: the kernel chooses them.
    pub ports: Option<PortRange>,
    /// The only peer that is accepted, if its address is known.
    pub peer: Option<IpAddr>,
    /// Networks of accepted peers, if the peer's address is not known.
    pub networks: Vec<Cidr>,
    /// The token that the peer has to present.
    pub token: String,
}

/// The receiving end of a task; it runs in its own threads until it is closed.
pub trait Receiver: Send {
    fn address(&self) -> SocketAddr;
    /// Closes all connections and returns the totals received.
    fn close(self: Box<Self>) -> Result<Received, TaskError>;
}

/// Totals of a receiving end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    pub connections: u64,
    pub bytes: u64,
    /// Datagrams dropped because they lacked the key of their stream.
    pub strangers: u64,
}
