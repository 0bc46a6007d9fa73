//! `network`: how much a path between two agents carries, and how long a round trip on it takes.
//!
//! The sending end is a task like any other, with one worker per stream; it times and records. The receiving end is a
//! port that its agent opens for the step and closes after it. Nothing is known here of why two agents are a pair.
//! Invariant: bytes count when the peer's kernel has acknowledged them, so nothing that waits in a buffer is a result.

mod hello;
mod link;
mod pinger;
mod receiver;
mod sender;
mod socket;

use crate::common;
use crate::files::check_unit;
use crate::op::Op;
use crate::params::{self, KeyInfo, ParamError};
use crate::task::{PeerEnd, PrepareControl, TaskError, TaskSpec};
use crate::units::{Bytes, Span};
use crate::workload::{
    Data, Footprint, ListenSpec, Load, ModeInfo, Needs, Params as PlanParams, Received, Receiver,
    Timing, Worker, Workload,
};
use link::Link;
use pinger::Pinger;
use receiver::{Door, OpenPort};
use sender::Sender;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

const NAME: &str = "network";
/// Each stream is a thread and a socket at both ends.
const MOST_STREAMS: u32 = 256;
const DEFAULT_RUNTIME: Duration = Duration::from_secs(10);
const DEFAULT_THROUGHPUT_BYTES: Bytes = Bytes(1 << 20);
const DEFAULT_PING_BYTES: Bytes = Bytes(64);

const MODES: &[ModeInfo] = &[
    ModeInfo {
        name: "throughput",
        meaning: "blocks one after the other on each stream; bytes count when the peer's kernel has acknowledged them, \
                  and at the end the receiving end has to have them all",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Send],
    },
    ModeInfo {
        name: "ping",
        meaning: "round trips, one at a time on each stream: both ends wait blocking (no spinning) with TCP_NODELAY, so \
                  a halted CPU's wake-up is a part of it",
        needs: Data::Nothing,
        leaves: Data::Nothing,
        ops: &[Op::Ping],
    },
];

const KEYS: &[KeyInfo] =
    &params::join::<{ OWN_KEYS.len() + common::KEYS.len() }>(&[OWN_KEYS, common::KEYS]);

const OWN_KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "streams",
        kind: "count",
        default: "1",
        meaning: "connections, each with a worker of its own",
    },
    KeyInfo {
        name: "bs",
        kind: "size",
        default: "1m; ping: 64",
        meaning: "bytes per block; ping: bytes of the message",
    },
    KeyInfo {
        name: "runtime",
        kind: "duration",
        default: "10s",
        meaning: "how long it runs",
    },
    KeyInfo {
        name: "ramp_time",
        kind: "duration",
        default: "none",
        meaning: "how long it runs before the results count, on top of `runtime`",
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Throughput,
    Ping,
}

#[derive(Debug, Deserialize)]
struct NetworkParams {
    #[serde(default = "one")]
    streams: u32,
    bs: Option<Bytes>,
    runtime: Option<Span>,
    ramp_time: Option<Span>,
}

fn one() -> u32 {
    1
}

/// The parameters, checked.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: Mode,
    streams: u32,
    block_bytes: usize,
    timing: Timing,
}

/// The workload.
#[derive(Debug)]
pub struct Network;

impl Network {
    fn parse(&self, mode: &str, params: &PlanParams) -> Result<Plan, ParamError> {
        let (mode, default_bytes) = match self.mode(mode)?.name {
            "ping" => (Mode::Ping, DEFAULT_PING_BYTES),
            _ => (Mode::Throughput, DEFAULT_THROUGHPUT_BYTES),
        };
        let params: NetworkParams = params::parse(NAME, KEYS, params)?;
        match params.streams {
            0 => return Err(ParamError::of("streams", "must be at least 1")),
            1..=MOST_STREAMS => {}
            more => {
                let message =
                    format!("{more} is more than the {MOST_STREAMS} streams that a link can have");
                return Err(ParamError::of("streams", message));
            }
        }
        let runtime = params.runtime.unwrap_or(Span(DEFAULT_RUNTIME));
        Ok(Plan {
            mode,
            streams: params.streams,
            block_bytes: check_unit(params.bs.unwrap_or(default_bytes))?,
            timing: Timing::of(params.ramp_time, Some(runtime))?,
        })
    }
}

impl Workload for Network {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        1
    }

    fn summary(&self) -> &'static str {
        "the path between two agents: throughput and round trips"
    }

    fn needs(&self) -> Needs {
        Needs::Peer
    }

    fn modes(&self) -> &'static [ModeInfo] {
        MODES
    }

    fn keys(&self) -> &'static [KeyInfo] {
        KEYS
    }

    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = self.parse(mode, params)?;
        Ok(Footprint {
            workers: plan.streams,
            runtime: plan.timing.total(),
            ..Footprint::default()
        })
    }

    fn load(&self, spec: &TaskSpec) -> Result<Box<dyn Load>, TaskError> {
        let plan = self
            .parse(&spec.mode, &spec.params)
            .map_err(TaskError::Params)?;
        let peer = spec.peer.clone().ok_or_else(|| TaskError::NoPeer {
            workload: NAME.to_owned(),
        })?;
        Ok(Box::new(NetworkLoad { plan, peer }))
    }

    fn listen(&self, spec: &ListenSpec) -> Result<Box<dyn Receiver>, TaskError> {
        let plan = self
            .parse(&spec.mode, &spec.params)
            .map_err(TaskError::Params)?;
        let door = Door {
            peer: spec.peer,
            token: spec.token.clone(),
            mode: plan.mode,
            streams: plan.streams,
            block_bytes: plan.block_bytes,
        };
        let port = OpenPort::open(spec.bind, door)
            .map_err(|error| TaskError::io(format!("listen for a peer on {}", spec.bind), error))?;
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
    plan: Plan,
    peer: PeerEnd,
}

impl Load for NetworkLoad {
    fn workers(&self) -> u32 {
        self.plan.streams
    }

    fn timing(&self) -> Timing {
        self.plan.timing
    }

    fn prepare(&self, _control: &PrepareControl) -> Result<(), TaskError> {
        Ok(())
    }

    fn path_of(&self, _worker: u32, _file: u64) -> Option<String> {
        Some(self.peer.address.to_string())
    }

    fn worker(&self, index: u32) -> Result<Box<dyn Worker>, TaskError> {
        let link = Link::open(&self.peer, index)?;
        Ok(match self.plan.mode {
            Mode::Throughput => Box::new(Sender::new(link, self.plan.block_bytes, index)),
            Mode::Ping => Box::new(Pinger::new(link, self.plan.block_bytes)),
        })
    }
}

#[cfg(test)]
mod tests;
