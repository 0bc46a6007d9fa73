//! The messages of the agent.

use crate::command::{Answer, CacheDrop, CommandResult, PathFacts, ProgressReport};
use crate::envelope::{Announced, WINDOW_BATCHES};
use crate::host::HostFacts;
use crate::policy::PolicyFacts;
use crate::sampler::DaemonRule;
use crate::telemetry::clipped;
use benchmesh_model::limits::Setting;
use benchmesh_proto::v1;
use benchmesh_workloads::clock::MonoNanos;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The agent's first message when it attaches.
#[derive(Clone, Debug)]
pub struct Hello {
    pub uid: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub host: HostFacts,
    /// Canonical paths.
    pub allowed: Vec<PathBuf>,
    /// Canonical paths.
    pub readable: Vec<PathBuf>,
    pub workloads: Vec<(&'static str, u32)>,
    pub policy: PolicyFacts,
    /// Oldest first; the spool being written is last.
    pub spools: Vec<Announced>,
    /// The mesh, and the largest run id in a command from it.
    pub newest_run: Option<(String, i64)>,
    /// Empty: the collector uses the address that it sees.
    pub advertised: String,
    pub held_tasks: Vec<i64>,
    pub pid: i32,
    pub daemon_rules: Vec<DaemonRule>,
    pub sample_always: bool,
    /// Identifies its state directory on its host, independently of the path.
    pub state_directory: String,
    pub started: MonoNanos,
}

/// All messages of the agent, including the first one.
#[derive(Clone, Debug)]
pub enum Outgoing {
    Hello(Box<Hello>),
    Probe { sent: MonoNanos },
    SpoolBlocked { since: MonoNanos },
    Reply { id: u64, outcome: CommandResult },
    Progress { id: u64, progress: ProgressReport },
}

impl From<Outgoing> for v1::AgentMessage {
    fn from(outgoing: Outgoing) -> Self {
        use v1::agent_message::Body;
        let body = match outgoing {
            Outgoing::Hello(hello) => Body::Hello(hello_message(*hello)),
            Outgoing::Probe { sent } => Body::ClockProbe(v1::ClockProbe {
                agent_sent_ns: stamp(sent),
            }),
            Outgoing::SpoolBlocked { since } => Body::SpoolBlocked(v1::SpoolBlocked {
                since_ns: stamp(since),
                sent_ns: stamp(MonoNanos::now()),
            }),
            Outgoing::Reply { id, outcome } => Body::Reply(reply(id, outcome)),
            Outgoing::Progress { id, progress } => Body::Progress(v1::Progress {
                command_id: id,
                done: progress.done,
                total: progress.total,
                unit: progress.unit.to_owned(),
            }),
        };
        Self { body: Some(body) }
    }
}

fn stamp(at: MonoNanos) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

fn hello_message(hello: Hello) -> v1::Hello {
    let texts = |paths: Vec<PathBuf>| {
        paths
            .into_iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    };
    v1::Hello {
        wire_version: benchmesh_proto::WIRE_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        agent_uid: hello.uid,
        name: hello.name,
        labels: hello.labels.into_iter().collect(),
        net_namespace: hello.host.net_namespace,
        host: Some(v1::Host {
            boot_id: hello.host.boot_id,
            pid_namespace: hello.host.pid_namespace,
            name: hello.host.name,
            kernel: hello.host.kernel,
            cpus: hello.host.cpus,
            memory_bytes: hello.host.memory_bytes,
        }),
        allowed_paths: texts(hello.allowed),
        readable_paths: texts(hello.readable),
        workloads: hello
            .workloads
            .into_iter()
            .map(|(name, revision)| v1::WorkloadRevision {
                name: name.to_owned(),
                revision,
            })
            .collect(),
        policy: Some(policy(hello.policy)),
        acked: hello.spools.iter().filter_map(acked).collect(),
        spool_ids: (hello.spools.iter())
            .map(|spool| spool.id.to_string())
            .collect(),
        newest_run: hello
            .newest_run
            .map(|(mesh_uid, run_id)| v1::NewestRun { mesh_uid, run_id }),
        advertised_address: hello.advertised,
        held_tasks: hello.held_tasks,
        pid: hello.pid,
        daemon_rules: hello.daemon_rules.into_iter().map(daemon_rule).collect(),
        sample_always: hello.sample_always,
        window_batches: u32::try_from(WINDOW_BATCHES).unwrap_or(u32::MAX),
        state_directory: hello.state_directory,
        started_ns: stamp(hello.started),
    }
}

fn acked(spool: &Announced) -> Option<v1::AckedSpool> {
    Some(v1::AckedSpool {
        spool_id: spool.id.to_string(),
        mesh_uid: spool.mesh.clone()?,
        last_sequence: spool.acked.0,
    })
}

fn policy(facts: PolicyFacts) -> v1::AgentPolicy {
    v1::AgentPolicy {
        devices: facts.devices,
        workloads: facts.workloads,
        limits: (facts.limits.iter())
            .map(|(name, setting)| (name.row().option.to_owned(), limit(setting)))
            .collect(),
        networks: facts.networks,
        drop_caches: facts.drop_caches,
    }
}

fn limit(setting: Setting) -> v1::Limit {
    let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    match setting {
        Setting::Amount(of_all) => v1::Limit {
            amount: amount(of_all),
            percent: 0,
        },
        Setting::Share { percent, most } => v1::Limit {
            amount: most.map_or(0, amount),
            percent: percent.into(),
        },
    }
}

fn daemon_rule(rule: DaemonRule) -> v1::DaemonRule {
    v1::DaemonRule {
        name: rule.name,
        comm: rule.comm.unwrap_or_default(),
        cmdline: rule.cmdline.unwrap_or_default(),
        cgroup: rule.cgroup.unwrap_or_default(),
        unit: rule.unit.unwrap_or_default(),
        instance_option: rule.instance_option.unwrap_or_default(),
    }
}

fn reply(id: u64, outcome: CommandResult) -> v1::Reply {
    match outcome {
        Ok(answer) => v1::Reply {
            id,
            body: body(answer),
            ..v1::Reply::default()
        },
        Err(refusal) => v1::Reply {
            id,
            // An empty text would mean success.
            error: match refusal.message.is_empty() {
                true => "it failed".to_owned(),
                false => clipped(refusal.message),
            },
            error_kind: refusal.kind.as_str().to_owned(),
            body: None,
        },
    }
}

fn body(answer: Answer) -> Option<v1::reply::Body> {
    use v1::reply::Body;
    Some(match answer {
        Answer::Done => return None,
        Answer::Survey(survey) => Body::Survey(v1::SurveyReply {
            paths: survey.targets.into_iter().map(path_facts).collect(),
            sources: survey.sources.into_iter().map(path_facts).collect(),
            scratch_free_bytes: survey.scratch_free_bytes,
            link_bytes_per_s: survey.link_bytes_per_s,
            inventory_json: survey.inventory_json,
        }),
        Answer::RunDirectory(facts) => Body::RunDirectory(v1::RunDirectoryReply {
            found: facts.found,
            made: facts.made,
            nonce: facts.nonce,
            free_bytes: facts.free_bytes,
        }),
        Answer::Listening { port } => Body::Listen(v1::ListenReply {
            port: u32::from(port),
        }),
        Answer::Armed { lead_us } => Body::Arm(v1::ArmReply { lead_us }),
        Answer::Ended(ended) => Body::End(v1::EndReply {
            state: ended.state.as_str().to_owned(),
            spool_id: ended
                .last_row
                .map_or_else(String::new, |last| last.spool.to_string()),
            sequence: ended.last_row.map_or(0, |last| last.sequence.0),
            stalled: ended.stalled,
        }),
        Answer::Dropped(drops) => Body::DropCaches(v1::DropCachesReply {
            drops: drops.into_iter().map(cache_drop).collect(),
        }),
    })
}

fn path_facts(facts: PathFacts) -> v1::PathFacts {
    v1::PathFacts {
        path: facts.path,
        allowed: facts.allowed,
        exists: facts.exists,
        problem: facts.problem,
        free_bytes: facts.free_bytes,
        free_files: facts.free_files,
        file_system: facts.file_system,
        device: facts.device,
        mount_source: facts.mount_source,
        mount_options: facts.mount_options,
        size_bytes: facts.size_bytes,
        usable_bytes: facts.usable_bytes,
        floor_bytes: facts.floor_bytes,
        floor_files: facts.floor_files,
        beneath: facts.beneath,
    }
}

fn cache_drop(drop: CacheDrop) -> v1::CacheDrop {
    v1::CacheDrop {
        what: drop.what.to_owned(),
        dropped: drop.error.is_empty(),
        error: drop.error,
    }
}
