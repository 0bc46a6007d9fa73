//! `network`: how much a path between two agents carries, how long a round trip on it takes, and how fast a peer answers.
//!
//! The sending end is a task like any other, with one worker per stream; it times and records. The receiving end is a
//! port that its agent opens for the step and closes after it. Nothing is known here of why two agents are a pair.
//! Invariant: bytes count when the peer's kernel has acknowledged them, so nothing that waits in a buffer is a result.

mod asker;
mod hello;
mod keys;
mod link;
mod receiver;
mod sender;
mod socket;
mod stream;

use crate::params::effect::Effect;
use crate::params::{KeyInfo, ParamError};
use crate::task::{PeerEnd, PrepareControl, TaskError, TaskSpec};
use crate::workload::{
    Footprint, ListenSpec, Load, ModeInfo, Needs, Params as PlanParams, Received, Receiver, Timing,
    Worker, Workload,
};
use asker::Asker;
use keys::{EFFECTS, KEYS, MODES, NAME, Plan, Traffic};
use link::Link;
use receiver::{Door, OpenPort};
use sender::Sender;
use std::net::SocketAddr;

/// The workload.
#[derive(Debug)]
pub struct Network;

impl Network {
    fn parse(&self, mode: &str, params: &PlanParams) -> Result<Plan, ParamError> {
        Plan::of(self.mode(mode)?, params)
    }
}

impl Workload for Network {
    fn name(&self) -> &'static str {
        NAME
    }

    fn revision(&self) -> u32 {
        3
    }

    fn summary(&self) -> &'static str {
        "the path between two agents: throughput, round trips, requests and responses"
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

    fn effects(&self) -> &'static [Effect] {
        EFFECTS
    }

    #[cfg(test)]
    fn understood(&self, mode: &str, params: &PlanParams) -> Result<String, ParamError> {
        Ok(format!("{:?}", self.parse(mode, params)?))
    }

    fn check(&self, mode: &str, params: &PlanParams) -> Result<Footprint, ParamError> {
        let plan = self.parse(mode, params)?;
        Ok(Footprint {
            workers: plan.streams,
            moved_bytes: plan.moved_bytes(),
            runtime: plan.timing.total(),
            ..Footprint::default()
        })
    }

    fn as_stored(&self, mode: &str, params: &PlanParams) -> PlanParams {
        keys::as_stored(mode, params)
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
            traffic: plan.traffic,
            streams: plan.streams,
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
        Ok(match self.plan.traffic {
            Traffic::Blocks(bytes) => {
                Box::new(Sender::new(link, bytes, index).ending_after(self.plan.amount))
            }
            Traffic::Exchanges(exchange) => {
                let asker = Asker::new(link, exchange, index);
                let asker = asker.map_err(|error| TaskError::io("set up a stream", error))?;
                Box::new(asker.ending_after(self.plan.amount))
            }
        })
    }
}

#[cfg(test)]
mod tests;
