//! Commands of the collector, checked field by field.
//!
//! An invalid command is still answered, because the error keeps its number.

use super::WireError;
use crate::clock::{self, Exchange};
use crate::command::{
    Command, CommandRequest, DataOwner, Listen, MakeDirectory, PlaceName, Prepare, Sampling,
};
use crate::sampler::DaemonRule;
use crate::telemetry::{MeshMicros, RunId, TaskId};
use benchmesh_model::targets::Locator;
use benchmesh_proto::v1;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::{Cache, OnStall};
use benchmesh_workloads::workload::Params;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Lease of a task if the plan does not set one: without contact for this long, the agent stops its load.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The collector sends a message every second; a shorter lease would end a load whose contact is good.
const MIN_LEASE: Duration = Duration::from_secs(3);
/// Longer than a collector's usual outage, during which the load continues and cannot be stopped.
const LONGEST_LEASE_US: i64 = 7 * 86_400 * 1_000_000;
const LONGEST_PERIOD_US: i64 = 366 * 86_400 * 1_000_000;
const MAX_SEQUENCE: u64 = 1 << 62;
const MAX_TASKS: u32 = 1 << 20;
const MAX_NAME_BYTES: usize = 256;
const MAX_PATH_BYTES: usize = 4096;
const MAX_PARAMS_BYTES: usize = 1 << 20;
const MAX_PATHS: usize = 1024;
const MAX_MESH_PIDS: usize = 65_536;
const MAX_RULES: usize = 1024;

/// Messages of the collector.
#[derive(Debug)]
pub enum Incoming {
    Welcome(Box<Welcome>),
    Clock {
        sent: MonoNanos,
        mesh_received_ns: i64,
        mesh_sent_ns: i64,
    },
    Command(Box<Command>),
    /// A message that is not a valid command.
    BadCommand {
        id: u64,
        error: WireError,
    },
}

/// The collector accepts the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    pub wire_version: u32,
    pub collector_version: String,
    pub mesh_uid: String,
    pub agent_id: i64,
    pub session: String,
    pub spools: Vec<(String, u64)>,
    pub sampling: Sampling,
}

impl Incoming {
    /// Builds the exchange that an answer completes.
    #[must_use]
    pub fn exchange(sent: MonoNanos, mesh_received_ns: i64, mesh_sent_ns: i64) -> Exchange {
        Exchange {
            sent,
            mesh_received_ns,
            mesh_sent_ns,
            received: MonoNanos::now(),
            slept_ns: clock::slept_ns(),
        }
    }
}

impl TryFrom<v1::CollectorMessage> for Incoming {
    type Error = WireError;

    fn try_from(message: v1::CollectorMessage) -> Result<Self, WireError> {
        use v1::collector_message::Body;
        match message.body {
            None => missing("body"),
            Some(Body::Welcome(welcome)) => Ok(Self::Welcome(Box::new(welcome.try_into()?))),
            Some(Body::ClockReply(reply)) => Ok(Self::Clock {
                sent: MonoNanos(unsigned("clock_reply.agent_sent_ns", reply.agent_sent_ns)?),
                mesh_received_ns: reply.mesh_received_ns,
                mesh_sent_ns: reply.mesh_sent_ns,
            }),
            Some(Body::Command(command)) => {
                let id = command.id;
                let run = (command.run_id > 0).then_some(RunId(command.run_id));
                Ok(match request(command) {
                    Ok(request) => Self::Command(Box::new(Command { id, run, request })),
                    Err(error) => Self::BadCommand { id, error },
                })
            }
        }
    }
}

impl TryFrom<v1::Welcome> for Welcome {
    type Error = WireError;

    fn try_from(wire: v1::Welcome) -> Result<Self, WireError> {
        Ok(Self {
            wire_version: wire.wire_version,
            collector_version: optional("welcome.collector_version", wire.collector_version)?
                .unwrap_or_default(),
            mesh_uid: name("welcome.mesh_uid", wire.mesh_uid)?,
            agent_id: wire.agent_id,
            session: name("welcome.session", wire.session)?,
            spools: wire
                .spools
                .into_iter()
                .map(position)
                .collect::<Result<_, _>>()?,
            sampling: sampling(wire.sampling.unwrap_or_default())?,
        })
    }
}

fn position(wire: v1::SpoolPosition) -> Result<(String, u64), WireError> {
    if wire.last_sequence > MAX_SEQUENCE {
        let found = wire.last_sequence.to_string();
        return bad(
            "welcome.spools.last_sequence",
            found,
            "which no spool reaches",
        );
    }
    let spool_id = name("welcome.spools.spool_id", wire.spool_id)?;
    Ok((spool_id, wire.last_sequence))
}

fn request(command: v1::Command) -> Result<CommandRequest, WireError> {
    use v1::command::Body;
    let Some(body) = command.body else {
        return missing("command.body");
    };
    Ok(match body {
        Body::Sampling(wire) => CommandRequest::Sampling(sampling(wire)?),
        Body::Survey(wire) => CommandRequest::Survey {
            targets: paths("survey.paths", wire.paths)?
                .iter()
                .map(|text| Locator::parse(text))
                .collect(),
            sources: paths("survey.sources", wire.sources)?,
        },
        Body::OpenRunDirectory(wire) => CommandRequest::OpenRunDirectory {
            run_uid: name("open_run_directory.run_uid", wire.run_uid)?,
            target: target("open_run_directory.path", wire.path)?,
            make: if wire.make {
                MakeDirectory::IfMissing
            } else {
                MakeDirectory::Never
            },
        },
        Body::RemoveRunDirectory(wire) => CommandRequest::RemoveRunDirectory {
            run_uid: name("remove_run_directory.run_uid", wire.run_uid)?,
            target: target("remove_run_directory.path", wire.path)?,
        },
        Body::RemoveCell(wire) => CommandRequest::RemoveCell {
            run_uid: name("remove_cell.run_uid", wire.run_uid)?,
            target: target("remove_cell.path", wire.path)?,
            cell: name("remove_cell.cell", wire.cell)?,
            task_index: wire.task_index,
        },
        Body::Listen(wire) => CommandRequest::Listen(listen(wire)?),
        Body::Prepare(wire) => CommandRequest::Prepare(prepare(wire)?),
        Body::DropCaches(_) => CommandRequest::DropCaches,
        Body::Arm(wire) => CommandRequest::Arm {
            task: task("arm.task_id", wire.task_id)?,
            start: MeshMicros(ranged("arm.start_us", wire.start_us, 1, i64::MAX)?),
            end: match ranged("arm.end_us", wire.end_us, 0, i64::MAX)? {
                0 => None,
                end => Some(MeshMicros(end)),
            },
        },
        Body::AwaitEnd(wire) => CommandRequest::AwaitEnd {
            task: task("await_end.task_id", wire.task_id)?,
        },
        Body::StopTask(wire) => CommandRequest::StopTask {
            task: task("stop_task.task_id", wire.task_id)?,
            reason: crate::telemetry::clipped(wire.reason),
        },
        Body::ShareRate(wire) => CommandRequest::ShareRate {
            task: task("share_rate.task_id", wire.task_id)?,
            task_index: within("share_rate.task_index", wire.task_index, wire.tasks)?,
            tasks: wire.tasks,
            from: MeshMicros(ranged("share_rate.from_us", wire.from_us, 1, i64::MAX)?),
        },
        Body::ForgetTask(wire) => CommandRequest::ForgetTask {
            task: task("forget_task.task_id", wire.task_id)?,
        },
        Body::Mark(wire) => CommandRequest::Mark {
            at: (wire.at_us > 0).then_some(MeshMicros(wire.at_us)),
        },
    })
}

fn sampling(wire: v1::Sampling) -> Result<Sampling, WireError> {
    let period_us = ranged("sampling.period_us", wire.period_us, 0, LONGEST_PERIOD_US)?;
    let period = Duration::from_micros(unsigned("sampling.period_us", period_us)?);
    Ok(Sampling {
        host_wide: wire.host_wide,
        interfaces: wire.interfaces,
        period: (!period.is_zero()).then_some(period),
        run: (wire.run_id > 0).then_some(RunId(wire.run_id)),
        mesh_pids: wire.mesh_pids.into_iter().take(MAX_MESH_PIDS).collect(),
        daemon_rules: wire
            .daemon_rules
            .into_iter()
            .take(MAX_RULES)
            .map(daemon_rule)
            .collect::<Result<_, _>>()?,
    })
}

fn daemon_rule(wire: v1::DaemonRule) -> Result<DaemonRule, WireError> {
    let given = |text| optional("sampling.daemon_rules", text);
    let name = name("sampling.daemon_rules.name", wire.name)?;
    let rule = DaemonRule {
        name: name.clone(),
        comm: given(wire.comm)?,
        cmdline: given(wire.cmdline)?,
        cgroup: given(wire.cgroup)?,
        unit: given(wire.unit)?,
        instance_option: given(wire.instance_option)?,
    };
    match rule.check() {
        Ok(()) => Ok(rule),
        Err(_) => bad(
            "sampling.daemon_rules",
            name,
            "which has no condition or one that matches everything",
        ),
    }
}

fn listen(wire: v1::Listen) -> Result<Listen, WireError> {
    let from = match wire.from_address.as_str() {
        "" => None,
        text => Some(address("listen.from_address", text)?),
    };
    Ok(Listen {
        task: task("listen.task_id", wire.task_id)?,
        workload: name("listen.workload", wire.workload)?,
        mode: name("listen.mode", wire.mode)?,
        params: params("listen.params_json", &wire.params_json)?,
        from,
        // An older agent may advertise a host name instead of an address.
        address: address("listen.address", &wire.address).ok(),
        token: name("listen.token", wire.token)?,
    })
}

fn prepare(wire: v1::Prepare) -> Result<Prepare, WireError> {
    let place = match wire.path.is_empty() {
        true => None,
        false => Some(PlaceName {
            run_uid: name("prepare.run_uid", wire.run_uid.clone())?,
            target: target("prepare.path", wire.path)?,
            cell: name("prepare.cell", wire.cell)?,
        }),
    };
    let data = match (wire.kept_data.is_empty(), wire.needs_existing_data) {
        (true, _) => DataOwner::Cell,
        (false, false) => DataOwner::Kept(name("prepare.kept_data", wire.kept_data)?),
        (false, true) => DataOwner::Existing(name("prepare.kept_data", wire.kept_data)?),
    };
    if wire.tasks == 0 || wire.tasks > MAX_TASKS || wire.task_index >= wire.tasks {
        return bad(
            "prepare.task_index",
            format!("{} of {}", wire.task_index, wire.tasks),
            "not the number of one of the step's tasks",
        );
    }
    let peer = match wire.peer_address.as_str() {
        "" => None,
        text => {
            let Ok(address) = text.parse::<SocketAddr>() else {
                return bad(
                    "prepare.peer_address",
                    format!("{text:?}"),
                    "not an address and a port",
                );
            };
            Some((address, name("prepare.token", wire.token)?))
        }
    };
    let lease = match ranged("prepare.lease_us", wire.lease_us, 0, LONGEST_LEASE_US)? {
        0 => DEFAULT_LEASE,
        us => Duration::from_micros(unsigned("prepare.lease_us", us)?).max(MIN_LEASE),
    };
    Ok(Prepare {
        task: task("prepare.task_id", wire.task_id)?,
        workload: name("prepare.workload", wire.workload)?,
        mode: name("prepare.mode", wire.mode)?,
        params: params("prepare.params_json", &wire.params_json)?,
        place,
        data,
        task_index: wire.task_index,
        tasks: wire.tasks,
        cache: cache(&wire.cache)?,
        peer,
        lease,
        scope: super::batch::scope(
            run_uid(wire.run_uid)?,
            ranged("prepare.run_id", wire.run_id, 0, i64::MAX)?,
            ranged("prepare.step_id", wire.step_id, 0, i64::MAX)?,
        ),
        on_stall: on_stall(&wire.on_stall)?,
    })
}

/// May be empty.
fn run_uid(found: String) -> Result<String, WireError> {
    match found.is_empty() {
        true => Ok(found),
        false => name("prepare.run_uid", found),
    }
}

fn on_stall(word: &str) -> Result<OnStall, WireError> {
    Ok(match word {
        "" | "continue" => OnStall::Continue,
        "abort" => OnStall::Abort,
        other => {
            return bad(
                "prepare.on_stall",
                format!("{other:?}"),
                "not continue or abort",
            );
        }
    })
}

fn cache(word: &str) -> Result<Cache, WireError> {
    Ok(match word {
        "" | "asis" => Cache::AsIs,
        "warm" => Cache::Warm,
        "cold" => Cache::Cold,
        "bypass" => Cache::Bypass,
        other => {
            return bad(
                "prepare.cache",
                format!("{other:?}"),
                "not asis, warm, cold or bypass",
            );
        }
    })
}

fn params(field: &'static str, text: &str) -> Result<Params, WireError> {
    if text.len() > MAX_PARAMS_BYTES {
        return bad(
            field,
            format!("{} bytes long", text.len()),
            "more than 1 MiB",
        );
    }
    if text.is_empty() {
        return Ok(Params::new());
    }
    serde_json::from_str(text)
        .or_else(|error| bad(field, error.to_string(), "so it is not a JSON object"))
}

/// Parses an address, bare or with the port at which the collector saw it.
fn address(field: &'static str, text: &str) -> Result<IpAddr, WireError> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    match (bare.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
        (Ok(address), _) => Ok(address),
        (_, Ok(address)) => Ok(address.ip()),
        _ => bad(field, format!("{text:?}"), "not an address"),
    }
}

fn within(field: &'static str, index: u32, count: u32) -> Result<u32, WireError> {
    match index < count {
        true => Ok(index),
        false => bad(field, format!("{index} of {count}"), "not one of them"),
    }
}

fn task(field: &'static str, id: i64) -> Result<TaskId, WireError> {
    ranged(field, id, 1, i64::MAX).map(TaskId)
}

fn name(field: &'static str, text: String) -> Result<String, WireError> {
    if text.is_empty() {
        return missing(field);
    }
    if text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return bad(field, format!("{} bytes of text", text.len()), "not a name");
    }
    Ok(text)
}

/// `None` if the text is empty.
fn optional(field: &'static str, text: String) -> Result<Option<String>, WireError> {
    if text.len() > MAX_PATH_BYTES || text.chars().any(char::is_control) {
        return bad(field, format!("{} bytes of text", text.len()), "not a line");
    }
    Ok((!text.is_empty()).then_some(text))
}

fn target(field: &'static str, text: String) -> Result<Locator, WireError> {
    path(field, &text).map(|()| Locator::parse(&text))
}

/// Checks that the text can be a path or another locator.
fn path(field: &'static str, text: &str) -> Result<(), WireError> {
    if text.is_empty() {
        return missing(field);
    }
    if text.len() > MAX_PATH_BYTES || text.contains('\0') {
        return bad(field, format!("{} bytes of text", text.len()), "not a path");
    }
    Ok(())
}

fn paths(field: &'static str, texts: Vec<String>) -> Result<Vec<String>, WireError> {
    if texts.len() > MAX_PATHS {
        return bad(
            field,
            format!("{} long", texts.len()),
            "more than 1024 paths",
        );
    }
    for text in &texts {
        path(field, text)?;
    }
    Ok(texts)
}

fn ranged(field: &'static str, found: i64, least: i64, most: i64) -> Result<i64, WireError> {
    if (least..=most).contains(&found) {
        return Ok(found);
    }
    bad(field, found.to_string(), "which cannot be")
}

fn unsigned(field: &'static str, found: i64) -> Result<u64, WireError> {
    u64::try_from(found).or_else(|_| bad(field, found.to_string(), "which is negative"))
}

fn missing<T>(field: &'static str) -> Result<T, WireError> {
    Err(WireError::Missing { field })
}

fn bad<T>(field: &'static str, found: String, problem: &'static str) -> Result<T, WireError> {
    Err(WireError::Bad {
        field,
        found: crate::telemetry::clipped(found),
        problem,
    })
}
