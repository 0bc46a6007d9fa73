//! The receiving ends of tasks of other agents: open for the step, and only for the peer that is expected.

use super::Slots;
use crate::runner::command::{Answer, Listen, Outcome, Refusal, RefusalKind};
use crate::runner::place;
use crate::telemetry::TaskId;
use benchmesh_workloads::workload::{self, ListenSpec, Receiver};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Ports that are open at once.
const MOST: usize = 1024;
/// A receiving end whose collector has vanished is closed after this; its sender's own lease is not known here.
const LEASE: Duration = Duration::from_secs(3600);

/// The open ones.
#[derive(Default)]
pub(super) struct Receivers {
    open: BTreeMap<TaskId, (Listen, Box<dyn Receiver>)>,
}

impl Receivers {
    /// How long they stay without contact, when there are any.
    pub(super) fn lease(&self) -> Option<Duration> {
        (!self.open.is_empty()).then_some(LEASE)
    }

    /// Closes one; whether there was one.
    pub(super) fn close(&mut self, task: TaskId) -> bool {
        match self.open.remove(&task) {
            Some((_, receiver)) => {
                close(receiver);
                true
            }
            None => false,
        }
    }

    /// Closes all.
    pub(super) fn close_all(&mut self) {
        for (_, receiver) in std::mem::take(&mut self.open).into_values() {
            close(receiver);
        }
    }
}

/// Closes it off the runtime: it waits for its threads.
fn close(receiver: Box<dyn Receiver>) {
    let work = move || {
        if let Err(error) = receiver.close() {
            tracing::warn!(error = %error.in_full(), "a receiving end was not closed cleanly");
        }
    };
    // Without a thread it is dropped here.
    let _ = std::thread::Builder::new()
        .name("bm-close".to_owned())
        .spawn(work);
}

impl Slots {
    /// Opens one. Asked again for the same, it answers with the port that is open.
    pub(super) fn listen(&mut self, listen: &Listen) -> Outcome {
        if let Some((held, receiver)) = self.receivers.open.get(&listen.task) {
            return match held == listen {
                true => Ok(Answer::Listening {
                    port: receiver.address().port(),
                }),
                false => Err(Refusal::failed(format!(
                    "task {} has a receiving end with other parameters; forget it first",
                    listen.task
                ))),
            };
        }
        if self.receivers.open.len() >= MOST {
            return Err(Refusal::failed(format!(
                "the agent has {MOST} receiving ends open already"
            )));
        }
        let workload = workload::find(&listen.workload).ok_or_else(|| {
            Refusal::new(
                RefusalKind::Unsupported,
                format!("this agent has no workload `{}`", listen.workload),
            )
        })?;
        let bind = match listen.from {
            Some(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            Some(IpAddr::V4(_)) | None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let spec = ListenSpec {
            mode: listen.mode.clone(),
            params: listen.params.clone(),
            bind,
            peer: listen.from,
            token: listen.token.clone(),
        };
        let receiver = workload
            .listen(&spec)
            .map_err(|error| place::refusal(&error))?;
        let port = receiver.address().port();
        self.receivers
            .open
            .insert(listen.task, (listen.clone(), receiver));
        Ok(Answer::Listening { port })
    }
}
