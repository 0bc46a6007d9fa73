//! The edge of the sessions: wire messages become the collector's types, and commands become wire messages.

use super::{
    Hello, Welcome,
    command::{
        AgentAnswer, CacheDrop, Command, CommandProgress, DaemonRule, End, Inventory, Make,
        RefusalKind, RunDirectory, Sampling, Survey,
    },
    hello::{AckedSpool, BadField},
    member::{Outgoing, Reply},
};
use crate::cut::{cut, cut_to};
use benchmesh_model::limits::{Limit, Limits, Scope, Setting};
use benchmesh_model::mesh::TaskState;
use benchmesh_model::text::is_hidden;
use benchmesh_plan::{AgentPolicy, KeptUse, PathFacts};
use benchmesh_proto::{WIRE_VERSION, v1};
use benchmesh_store::{clock::MeshClock, rows::SpoolPosition};
use std::path::PathBuf;

/// Limit of names: ids of spools, states, caches and units, versions of packages.
const MAX_NAME_BYTES: usize = 128;
/// Limit of the layers beneath a mount.
const MAX_LAYERS: usize = 32;
/// Limit of a nonce of a run directory. Agents generate them: a uuid, or the host, process and path of a device.
const MAX_NONCE_BYTES: usize = 4096 + 256;
/// Limit of a unit of progress.
const MAX_UNIT_CHARS: usize = 32;
/// Limit of the caches that an agent reports on; there are four.
const MAX_CACHE_DROPS: usize = 16;
/// Enough for hundreds of disks and interfaces.
const MAX_INVENTORY_BYTES: usize = 256 << 10;

/// A message of an agent as our own type.
#[derive(Debug)]
pub enum Incoming {
    Hello(Box<Hello>),
    Probe {
        agent_sent_ns: i64,
    },
    Reply {
        id: u64,
        reply: Reply,
    },
    Progress {
        id: u64,
        progress: CommandProgress,
    },
    /// The agent's disk has refused writes since this instant of the agent's clock, for this long.
    SpoolBlocked {
        since_ns: i64,
        for_ns: i64,
    },
}

fn bad<T>(field: &'static str, problem: impl Into<String>) -> Result<T, BadField> {
    Err(BadField {
        field,
        problem: problem.into(),
    })
}

impl TryFrom<v1::AgentMessage> for Incoming {
    type Error = BadField;

    fn try_from(message: v1::AgentMessage) -> Result<Self, BadField> {
        use v1::agent_message::Body;
        match message.body {
            None => bad("body", "is missing"),
            Some(Body::Hello(hello)) => Ok(Self::Hello(Box::new(hello.try_into()?))),
            Some(Body::ClockProbe(probe)) => Ok(Self::Probe {
                agent_sent_ns: probe.agent_sent_ns,
            }),
            Some(Body::SpoolBlocked(blocked)) => {
                match blocked.sent_ns.checked_sub(blocked.since_ns) {
                    Some(for_ns) if for_ns >= 0 => Ok(Self::SpoolBlocked {
                        since_ns: blocked.since_ns,
                        for_ns,
                    }),
                    _ => bad("spool_blocked.since_ns", "is after sent_ns"),
                }
            }
            Some(Body::Reply(reply)) => Ok(Self::Reply {
                id: reply.id,
                reply: decode_reply(reply)?,
            }),
            Some(Body::Progress(progress)) => Ok(Self::Progress {
                id: progress.command_id,
                progress: CommandProgress {
                    done: progress.done,
                    total: progress.total,
                    unit: cut_to(MAX_UNIT_CHARS, &progress.unit),
                },
            }),
        }
    }
}

impl TryFrom<v1::Hello> for Hello {
    type Error = BadField;

    fn try_from(hello: v1::Hello) -> Result<Self, BadField> {
        let Some(host) = hello.host else {
            return bad("host", "is missing");
        };
        let paths = |paths: Vec<String>| paths.into_iter().map(PathBuf::from).collect();
        Ok(Self {
            wire_version: hello.wire_version,
            version: hello.version,
            uid: hello.agent_uid,
            name: hello.name,
            labels: hello.labels.into_iter().collect(),
            boot_id: host.boot_id,
            pid_namespace: host.pid_namespace,
            host_name: host.name,
            kernel: host.kernel,
            cpus: host.cpus,
            memory_bytes: host.memory_bytes,
            net_namespace: hello.net_namespace,
            allowed: paths(hello.allowed_paths),
            readable: paths(hello.readable_paths),
            workloads: hello
                .workloads
                .into_iter()
                .map(|workload| (workload.name, workload.revision))
                .collect(),
            policy: hello.policy.map(policy).transpose()?,
            spool_ids: hello.spool_ids,
            advertised: hello.advertised_address,
            held_tasks: hello.held_tasks,
            pid: hello.pid,
            daemon_rules: hello.daemon_rules.into_iter().map(daemon_rule).collect(),
            sample_always: hello.sample_always,
            state_directory: hello.state_directory,
            started_ns: hello.started_ns,
            acked: (hello.acked.into_iter())
                .map(|spool| AckedSpool {
                    spool_id: spool.spool_id,
                    mesh_uid: spool.mesh_uid,
                    last_sequence: spool.last_sequence,
                })
                .collect(),
            newest_run: hello
                .newest_run
                .map(|newest| (newest.mesh_uid, newest.run_id)),
            window_batches: hello.window_batches,
        })
    }
}

fn policy(policy: v1::AgentPolicy) -> Result<AgentPolicy, BadField> {
    let mut limits = Limits::default();
    for (option, value) in policy.limits {
        // An agent of a later version may have others.
        if let Some(limit) = Limit::from_option(&option) {
            limits[limit] = Some(setting(limit, value)?);
        }
    }
    Ok(AgentPolicy {
        devices: policy.devices,
        workloads: policy.workloads,
        limits,
        networks: policy.networks,
        drop_caches: policy.drop_caches,
    })
}

fn setting(limit: Limit, value: v1::Limit) -> Result<Setting, BadField> {
    let amount = not_negative("policy.limits.amount", value.amount)?;
    match (u8::try_from(value.percent), limit.row().scope) {
        (Ok(0), _) => Ok(Setting::Amount(amount)),
        (Ok(percent @ 1..=100), Scope::EachTarget) => Ok(Setting::Share {
            percent,
            most: (amount > 0).then_some(amount),
        }),
        _ => bad(
            "policy.limits.percent",
            format!("is {} for {}", value.percent, limit.row().option),
        ),
    }
}

fn decode_reply(reply: v1::Reply) -> Result<Reply, BadField> {
    use v1::reply::Body;
    if !reply.error.is_empty() {
        return Ok(Err((
            RefusalKind::parse(&reply.error_kind),
            cut(&reply.error),
        )));
    }
    let answer = match reply.body {
        None => AgentAnswer::Done,
        Some(Body::Survey(survey)) => AgentAnswer::Survey(survey.try_into()?),
        Some(Body::RunDirectory(directory)) => AgentAnswer::RunDirectory(directory.try_into()?),
        Some(Body::Listen(listen)) => match u16::try_from(listen.port) {
            Ok(port) if port > 0 => AgentAnswer::Listening { port },
            _ => return bad("listen.port", format!("is {}, not a port", listen.port)),
        },
        Some(Body::Arm(arm)) => AgentAnswer::Armed {
            lead_us: arm.lead_us,
        },
        Some(Body::End(end)) => AgentAnswer::End(end.try_into()?),
        Some(Body::DropCaches(drops)) => AgentAnswer::Dropped(
            drops
                .drops
                .into_iter()
                .take(MAX_CACHE_DROPS)
                .map(|drop| CacheDrop {
                    what: cut_to(MAX_NAME_BYTES, &drop.what),
                    dropped: drop.dropped,
                    error: cut(&drop.error),
                })
                .collect(),
        ),
    };
    Ok(Ok(answer))
}

fn not_negative(field: &'static str, value: i64) -> Result<u64, BadField> {
    u64::try_from(value).or_else(|_| bad(field, "is negative"))
}

/// A name that is stored unchanged.
fn name(field: &'static str, value: String, most: usize) -> Result<String, BadField> {
    if value.is_empty() || value.len() > most || value.chars().any(is_hidden) {
        return bad(
            field,
            format!("is empty, longer than {most} bytes or has control characters"),
        );
    }
    Ok(value)
}

impl TryFrom<v1::RunDirectoryReply> for RunDirectory {
    type Error = BadField;

    fn try_from(directory: v1::RunDirectoryReply) -> Result<Self, BadField> {
        let nonce = match directory.found || directory.made {
            true => name("run_directory.nonce", directory.nonce, MAX_NONCE_BYTES)?,
            false => String::new(),
        };
        Ok(Self {
            found: directory.found,
            made: directory.made,
            nonce,
            free_bytes: not_negative("run_directory.free_bytes", directory.free_bytes)?,
        })
    }
}

impl TryFrom<v1::SurveyReply> for Survey {
    type Error = BadField;

    fn try_from(survey: v1::SurveyReply) -> Result<Self, BadField> {
        let all = |facts: Vec<v1::PathFacts>| {
            facts
                .into_iter()
                .map(|facts| Ok((facts.path.clone(), path_facts(facts)?)))
                .collect::<Result<Vec<_>, BadField>>()
        };
        Ok(Self {
            paths: all(survey.paths)?,
            sources: all(survey.sources)?,
            scratch_free_bytes: match survey.scratch_free_bytes {
                -1 => None,
                bytes => Some(not_negative("survey.scratch_free_bytes", bytes)?),
            },
            link_bytes_per_s: not_negative("survey.link_bytes_per_s", survey.link_bytes_per_s)?,
            inventory: inventory(&survey.inventory_json),
        })
    }
}

/// An inventory is informational: an unreadable one is left out, and does not fail the survey.
fn inventory(json: &str) -> Inventory {
    if json.len() > MAX_INVENTORY_BYTES {
        return Inventory::default();
    }
    let inventory: Inventory = serde_json::from_str(json).unwrap_or_default();
    let packages = inventory.packages.iter();
    Inventory {
        distribution: cut(&inventory.distribution),
        cpu_model: cut(&inventory.cpu_model),
        packages: packages
            .map(|(package, version)| {
                let short = |text| cut_to(MAX_NAME_BYTES, text);
                (short(package), short(version))
            })
            .collect(),
        ..inventory
    }
}

fn path_facts(facts: v1::PathFacts) -> Result<PathFacts, BadField> {
    let problem = if facts.problem.is_empty() && facts.allowed && !facts.exists {
        String::from("does not exist")
    } else {
        cut(&facts.problem)
    };
    Ok(PathFacts {
        allowed: facts.allowed,
        problem,
        free_bytes: not_negative("survey.free_bytes", facts.free_bytes)?,
        free_files: u64::try_from(facts.free_files).ok(),
        file_system: cut_to(MAX_NAME_BYTES, &facts.file_system),
        device: cut(&facts.device),
        mount_source: cut(&facts.mount_source),
        mount_options: cut(&facts.mount_options),
        size_bytes: not_negative("survey.size_bytes", facts.size_bytes)?,
        usable_bytes: not_negative("survey.usable_bytes", facts.usable_bytes)?,
        floor_bytes: not_negative("survey.floor_bytes", facts.floor_bytes)?,
        floor_files: not_negative("survey.floor_files", facts.floor_files)?,
        beneath: facts
            .beneath
            .iter()
            .take(MAX_LAYERS)
            .map(|layer| cut_to(MAX_NAME_BYTES, layer))
            .collect(),
    })
}

impl TryFrom<v1::EndReply> for End {
    type Error = BadField;

    fn try_from(end: v1::EndReply) -> Result<Self, BadField> {
        let state = TaskState::parse(&end.state).filter(|state| {
            matches!(
                state,
                TaskState::Done | TaskState::Failed | TaskState::Stopped
            )
        });
        let Some(state) = state else {
            return bad(
                "end.state",
                format!(
                    "is `{}`, not done, failed or stopped",
                    cut_to(MAX_NAME_BYTES, &end.state)
                ),
            );
        };
        let last_batch = match end.spool_id.is_empty() {
            true => None,
            false => Some(SpoolPosition {
                spool_id: name("end.spool_id", end.spool_id, MAX_NAME_BYTES)?,
                sequence: end.sequence,
            }),
        };
        Ok(Self {
            state,
            last_batch,
            stalled: end.stalled,
        })
    }
}

impl From<Welcome> for v1::CollectorMessage {
    fn from(welcome: Welcome) -> Self {
        let body = v1::collector_message::Body::Welcome(v1::Welcome {
            wire_version: WIRE_VERSION,
            collector_version: env!("CARGO_PKG_VERSION").to_owned(),
            mesh_uid: welcome.mesh_uid,
            agent_id: welcome.agent.0,
            session: welcome.session,
            spools: welcome
                .spools
                .into_iter()
                .map(|(spool_id, last_sequence)| v1::SpoolPosition {
                    spool_id,
                    last_sequence,
                })
                .collect(),
            sampling: Some(welcome.sampling.into()),
        });
        Self { body: Some(body) }
    }
}

impl From<Sampling> for v1::Sampling {
    fn from(sampling: Sampling) -> Self {
        Self {
            host_wide: sampling.host_wide,
            interfaces: sampling.interfaces,
            period_us: sampling.period_us,
            run_id: sampling.run.map_or(0, |run| run.0),
            mesh_pids: sampling.host.mesh_pids.iter().copied().collect(),
            daemon_rules: sampling
                .host
                .daemon_rules
                .iter()
                .cloned()
                .map(daemon_rule_message)
                .collect(),
        }
    }
}

fn daemon_rule(rule: v1::DaemonRule) -> DaemonRule {
    DaemonRule {
        name: rule.name,
        comm: rule.comm,
        cmdline: rule.cmdline,
        cgroup: rule.cgroup,
        unit: rule.unit,
        instance_option: rule.instance_option,
    }
}

fn daemon_rule_message(rule: DaemonRule) -> v1::DaemonRule {
    v1::DaemonRule {
        name: rule.name,
        comm: rule.comm,
        cmdline: rule.cmdline,
        cgroup: rule.cgroup,
        unit: rule.unit,
        instance_option: rule.instance_option,
    }
}

/// The message, stamped now.
pub fn outgoing(message: Outgoing, clock: &MeshClock) -> v1::CollectorMessage {
    use v1::collector_message::Body;
    let body = match message {
        Outgoing::Clock {
            agent_sent_ns,
            received_ns,
        } => Body::ClockReply(v1::ClockReply {
            agent_sent_ns,
            mesh_received_ns: received_ns,
            mesh_sent_ns: clock.now_ns(),
        }),
        Outgoing::Command { id, run, command } => Body::Command(v1::Command {
            run_id: run.map_or(0, |run| run.0),
            id,
            body: Some((*command).into()),
        }),
    };
    v1::CollectorMessage { body: Some(body) }
}

impl From<Command> for v1::command::Body {
    fn from(command: Command) -> Self {
        match command {
            Command::Sampling(sampling) => Self::Sampling(sampling.into()),
            Command::Survey { paths, sources } => Self::Survey(v1::Survey { paths, sources }),
            Command::OpenRunDirectory {
                run_uid,
                path,
                make,
            } => Self::OpenRunDirectory(v1::OpenRunDirectory {
                run_uid,
                path,
                make: make == Make::IfMissing,
            }),
            Command::RemoveRunDirectory { run_uid, path } => {
                Self::RemoveRunDirectory(v1::RemoveRunDirectory { run_uid, path })
            }
            Command::RemoveCell {
                run_uid,
                path,
                cell,
                task_index,
            } => Self::RemoveCell(v1::RemoveCell {
                run_uid,
                path,
                cell,
                task_index,
            }),
            Command::Listen(listen) => Self::Listen(v1::Listen {
                task_id: listen.task.0,
                workload: listen.workload,
                mode: listen.mode,
                params_json: listen.params_json,
                from_address: listen.from_address,
                address: listen.address,
                token: listen.token,
            }),
            Command::Prepare(prepare) => Self::Prepare(v1::Prepare {
                task_id: prepare.task.0,
                run_uid: prepare.run_uid,
                workload: prepare.workload,
                mode: prepare.mode,
                params_json: prepare.params_json,
                path: prepare.path,
                cell: prepare.cell,
                task_index: prepare.task_index,
                tasks: prepare.tasks,
                cache: prepare.cache,
                peer_address: prepare.peer_address,
                token: prepare.token,
                lease_us: prepare.lease_us,
                run_id: prepare.run.0,
                step_id: prepare.step.0,
                on_stall: prepare.on_stall.as_str().to_owned(),
                needs_existing_data: matches!(prepare.kept, Some((_, KeptUse::Use))),
                kept_data: prepare.kept.map(|(name, _)| name).unwrap_or_default(),
            }),
            Command::DropCaches { step } => Self::DropCaches(v1::DropCaches { step_id: step.0 }),
            Command::Arm { task, start, end } => Self::Arm(v1::Arm {
                task_id: task.0,
                start_us: start.0,
                end_us: end.map_or(0, |end| end.0),
            }),
            Command::AwaitEnd { task } => Self::AwaitEnd(v1::AwaitEnd { task_id: task.0 }),
            Command::StopTask { task, reason } => Self::StopTask(v1::StopTask {
                task_id: task.0,
                reason,
            }),
            Command::ShareRate {
                task,
                task_index,
                tasks,
                from,
            } => Self::ShareRate(v1::ShareRate {
                task_id: task.0,
                task_index,
                tasks,
                from_us: from.0,
            }),
            Command::ForgetTask { task } => Self::ForgetTask(v1::ForgetTask { task_id: task.0 }),
            Command::Mark { at } => Self::Mark(v1::Mark {
                at_us: at.map_or(0, |at| at.0),
            }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
