//! The receiving ends of other agents' tasks: open for the step, and only to the expected peer.

use super::Slots;
use super::threads::unpanicked;
use crate::command::{Answer, Listen, Refusal, RefusalKind};
use crate::policy::{Claim, Denial};
use crate::runner::{ReplyHandle, RunnerRequest, permissions};
use crate::telemetry::TaskId;
use benchmesh_workloads::task::TaskError;
use benchmesh_workloads::{
    registry,
    workload::{ListenSpec, Receiver},
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum number of open ports.
const MAX_OPEN: usize = 1024;
/// A receiving end without contact to the collector is closed after this time. Its sender's lease is not known here.
const LEASE: Duration = Duration::from_secs(3600);
/// Port of a socket address that only selects a route; no packet is sent to it.
const DISCARD_PORT: u16 = 9;

/// One open receiving end.
struct OpenReceiver {
    asked: Listen,
    receiver: Box<dyn Receiver>,
    /// The receiver's claim on the policy's budget.
    _claim: Claim,
}

/// Open receiving ends, and requests that wait for a port.
pub(super) struct Receivers {
    open: BTreeMap<TaskId, OpenReceiver>,
    /// Number of receivers being closed, whose ports are still in use.
    closing: usize,
    /// Requests that found too few free ports in the agent's range while others were being closed.
    waiting: Vec<(Listen, ReplyHandle)>,
    requests: mpsc::WeakSender<RunnerRequest>,
}

impl Receivers {
    pub(super) fn new(requests: mpsc::WeakSender<RunnerRequest>) -> Self {
        Self {
            open: BTreeMap::new(),
            closing: 0,
            waiting: Vec::new(),
            requests,
        }
    }

    /// Lease of the open receivers; `None` if there are none.
    pub(super) fn lease(&self) -> Option<Duration> {
        (!self.open.is_empty()).then_some(LEASE)
    }

    /// The tasks of the open receivers.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.open.keys().copied()
    }

    /// Closes a task's receiver. Returns whether it existed.
    pub(super) fn close(&mut self, task: TaskId) -> bool {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (ours, others): (Vec<_>, Vec<_>) = waiting.partition(|(listen, _)| listen.task == task);
        self.waiting = others;
        let is_known = !ours.is_empty();
        refuse_closed(ours);
        match self.open.remove(&task) {
            Some(open) => {
                self.close_one(open.receiver);
                true
            }
            None => is_known,
        }
    }

    /// Closes all receivers.
    pub(super) fn close_all(&mut self) {
        refuse_closed(std::mem::take(&mut self.waiting));
        for open in std::mem::take(&mut self.open).into_values() {
            self.close_one(open.receiver);
        }
    }

    /// Closes a receiver outside the runtime, because closing waits for the receiver's threads.
    fn close_one(&mut self, receiver: Box<dyn Receiver>) {
        let requests = self.requests.clone();
        let work = move || {
            if let Err(error) = receiver.close() {
                tracing::warn!(error = %benchmesh_workloads::error_chain(&error), "a receiving end was not closed cleanly");
            }
            if let Some(requests) = requests.upgrade() {
                // Fails only if the actor has ended.
                let _ = requests.blocking_send(RunnerRequest::ReceiverClosed);
            }
        };
        let spawned = std::thread::Builder::new()
            .name("bm-close".to_owned())
            .spawn(work);
        // If no thread could be started, the receiver was dropped here.
        if spawned.is_ok() {
            self.closing += 1;
        }
    }
}

fn refuse_closed(waiting: Vec<(Listen, ReplyHandle)>) {
    for (listen, reply_to) in waiting {
        reply_to.reply(Err(Refusal::failed(format!(
            "task {}: its receiving end was closed before a port was free",
            listen.task
        ))));
    }
}

/// Why a receiving end was not opened.
enum NotOpen {
    /// The agent's range has too few free ports.
    Ports(Refusal),
    Refused(Refusal),
}

impl From<Refusal> for NotOpen {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Denial> for NotOpen {
    fn from(denial: Denial) -> Self {
        Self::Refused(denial.into())
    }
}

impl Slots {
    /// Opens a receiving end. If it lacks free ports, it waits for those that are being closed.
    pub(super) fn listen(&mut self, listen: Listen, reply_to: ReplyHandle) {
        match self.open(&listen) {
            Ok(answer) => reply_to.reply(Ok(answer)),
            Err(NotOpen::Ports(_)) if self.receivers.closing > 0 => {
                self.receivers.waiting.push((listen, reply_to));
            }
            Err(NotOpen::Ports(refusal) | NotOpen::Refused(refusal)) => {
                reply_to.reply(Err(refusal));
            }
        }
    }

    /// Handles a closed receiver, whose ports are free now.
    pub(in crate::runner) fn receiver_closed(&mut self) {
        self.receivers.closing = self.receivers.closing.saturating_sub(1);
        for (listen, reply_to) in std::mem::take(&mut self.receivers.waiting) {
            self.listen(listen, reply_to);
        }
    }

    /// Opens a receiving end. A repeated identical request gets the port that is already open.
    fn open(&mut self, listen: &Listen) -> Result<Answer, NotOpen> {
        if let Some(open) = self.receivers.open.get(&listen.task) {
            return match open.asked == *listen {
                true => Ok(Answer::Listening {
                    port: open.receiver.address().port(),
                }),
                false => Err(Refusal::failed(format!(
                    "task {} has a receiving end with other parameters; forget it first",
                    listen.task
                ))
                .into()),
            };
        }
        let permissions = &self.deps.permissions;
        permissions.policy.check_workload(&listen.workload)?;
        if let Some(from) = listen.from {
            permissions.policy.check_peer(from)?;
        }
        if self.receivers.open.len() + self.receivers.waiting.len() >= MAX_OPEN {
            return Err(Refusal::failed(format!(
                "the agent has {MAX_OPEN} receiving ends open already"
            ))
            .into());
        }
        let workload = registry::find(&listen.workload).ok_or_else(|| {
            Refusal::new(
                RefusalKind::Unsupported,
                format!("this agent has no workload `{}`", listen.workload),
            )
        })?;
        let claim = permissions.claim(
            &listen.workload,
            &listen.mode,
            &listen.params,
            Duration::ZERO,
        )?;
        let spec = |bind| ListenSpec {
            mode: listen.mode.clone(),
            params: listen.params.clone(),
            bind,
            ports: permissions.policy.link_ports,
            peer: listen.from,
            networks: permissions.policy.networks(),
            token: listen.token.clone(),
        };
        let addresses = addresses(listen);
        let others = self.receivers.open.len();
        let open = || {
            for bind in addresses {
                match workload.listen(&spec(bind)) {
                    Err(TaskError::Io { source, .. })
                        if source.kind() == std::io::ErrorKind::AddrNotAvailable => {}
                    Err(error @ TaskError::Ports { .. }) => {
                        return Err(NotOpen::Ports(no_ports(listen.task, &error, others)));
                    }
                    opened => return opened.map_err(|error| permissions::refusal(&error).into()),
                }
            }
            Err(no_address(listen).into())
        };
        let receiver = unpanicked(open)?;
        let port = receiver.address().port();
        let open = OpenReceiver {
            asked: listen.clone(),
            receiver,
            _claim: claim,
        };
        self.receivers.open.insert(listen.task, open);
        Ok(Answer::Listening { port })
    }
}

/// Addresses on which a receiving end may listen, best first: the address that its sender dials. If no interface has
/// that address, as behind NAT: the address of the interface that faces the sender. Never all interfaces.
fn addresses(listen: &Listen) -> impl Iterator<Item = IpAddr> {
    let given = listen.address.into_iter();
    let all = given.chain(listen.from.and_then(facing));
    all.filter(|address| !address.is_unspecified())
}

/// This host's address on the route to `peer`. Sends no packet.
fn facing(peer: IpAddr) -> Option<IpAddr> {
    let any = match peer {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, DISCARD_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn no_ports(task: TaskId, error: &TaskError, others: usize) -> Refusal {
    Refusal::failed(format!(
        "task {task}: --link-ports of this agent has too few free ports for the link: {error}, with {others} other links \
         open on this agent; widen the range, also in the firewall, or measure fewer links or `streams` at once"
    ))
}

fn no_address(listen: &Listen) -> Refusal {
    let given = match listen.address {
        Some(address) => format!("no interface of this host has {address}"),
        None => "the address of this agent is unknown".to_owned(),
    };
    let remedy = match listen.from {
        Some(_) => {
            "no address of this host leads to its sender; start this agent with --advertise and an address of this host"
        }
        None => {
            "its sender's address is unknown; start the sender's agent with --advertise and its address"
        }
    };
    Refusal::failed(format!(
        "task {}: the receiving end has no address to listen at: {given}, and {remedy}",
        listen.task
    ))
}
