//! The daemon on a node: it dials the collector, runs its tasks, samples, spools and publishes.
//!
//! The entry point is [`run`]. The modules: `session` talks to the collector, `runner` turns commands into tasks,
//! `spool` keeps rows until the collector has committed them, `clock` estimates mesh time, `state` is the directory
//! that survives a restart, `wire` is the only module that names generated types, and `policy` holds the limits that
//! the host's operator has set. The agent does not know about plans, the order of steps or the database; a collector
//! cannot widen the limits of its configuration.

mod clock;
mod command;
pub mod config;
pub mod doctor;
mod envelope;
mod execute;
pub mod facts;
mod finding;
mod host;
mod identity;
pub mod leftovers;
pub mod memory;
pub mod policy;
pub mod privileges;
mod runner;
pub mod sampler;
mod session;
mod spool;
mod state;
pub mod targets;
mod telemetry;
mod wire;

pub use config::{AgentConfig, ConfigError};
pub use host::{HostError, Mount, mount};
pub use session::SessionError;
pub use spool::SpoolError;
pub use state::StateError;

use benchmesh_workloads::error_chain;
use benchmesh_workloads::workloads::copy::remove_abandoned;
use clock::{Dating, Estimate};
use futures::future::BoxFuture;
use host::HostFacts;
use identity::Identity;
use policy::Policy;
use runner::{
    ClusterConfig, ClusterWatch, Contact, Permissions, RunMounts, Runner, RunnerDeps,
    SamplerControl, SpaceWatch,
};
use session::Session;
use spool::{Samples, Spool};
use state::StateDir;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::reply::Hello;

/// Time limit for the tasks to end when the agent is stopped.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Poll interval of an agent that stops as soon as it has no task.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Poll interval for free space of an agent that starts on a full disk.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);
/// Time limit for the collector to take and commit the rest of the spool.
const DELIVER_WITHIN: Duration = Duration::from_secs(2);

/// Why an agent ended on its own or could not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration is invalid, independently of the mesh.
    #[error("invalid agent configuration")]
    Config {
        /// The first mistake.
        #[source]
        source: ConfigError,
    },
    /// A path that tasks may use does not exist.
    #[error("read the agent's policy")]
    Policy {
        /// Why.
        #[source]
        source: targets::NotAllowable,
    },
    /// The scratch directory cannot be used.
    #[error("make the scratch directory {}", path.display())]
    Scratch {
        /// The intended path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kernel does not report a fact about this host that the mesh needs.
    #[error("read facts about this host")]
    Host {
        /// The missing fact.
        #[source]
        source: HostError,
    },
    /// The state directory cannot be used.
    #[error("open the agent's state directory")]
    State {
        /// Why.
        #[source]
        source: StateError,
    },
    /// The spool cannot be created or written.
    #[error("keep the agent's spool")]
    Spool {
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// The collector does not accept this agent.
    #[error("attach to the collector")]
    Session {
        /// Why.
        #[source]
        source: SessionError,
    },
    /// A defect: a part of the agent panicked. The log contains the location.
    #[error("a part of the agent panicked; this is a defect, and the log shows where")]
    Died,
}

/// The handle by which the caller ends an agent and follows its status.
#[derive(Clone, Debug, Default)]
pub struct Supervision {
    /// Ends the agent.
    pub stop: CancellationToken,
    /// Ends the agent as soon as it holds no task.
    pub stop_when_idle: CancellationToken,
    /// The agent's status.
    pub status: watch::Sender<Status>,
}

impl From<CancellationToken> for Supervision {
    fn from(stop: CancellationToken) -> Self {
        Self {
            stop,
            ..Self::default()
        }
    }
}

/// Whether the agent is attached to its collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    NotAttached,
    Attached,
}

/// Checks whether an agent with this configuration could start: everything that it allows exists.
///
/// # Errors
/// The first mistake.
pub fn check(config: &AgentConfig) -> Result<(), AgentError> {
    config
        .check()
        .map_err(|source| AgentError::Config { source })?;
    permissions(config).map(drop)
}

/// Runs the agent until it is stopped.
///
/// It needs a tokio runtime with I/O and time; a `current_thread` one is sufficient and the lightest. The order of
/// shutdown: the sampler stops, the tasks stop (5 s), the remaining rows are spooled and sent (2 s), the session
/// closes, the spool and the state directory close.
///
/// # Errors
/// When the configuration is invalid, the state directory is not usable, or the collector refuses the agent for good.
#[inline(never)]
pub fn run(
    config: AgentConfig,
    supervision: impl Into<Supervision>,
) -> BoxFuture<'static, Result<(), AgentError>> {
    // Boxed, so that the agent's code is compiled only in this crate and not again in the binary's crate.
    Box::pin(agent(config, supervision.into()))
}

async fn agent(config: AgentConfig, supervision: Supervision) -> Result<(), AgentError> {
    config
        .check()
        .map_err(|source| AgentError::Config { source })?;
    let permissions = permissions(&config)?;
    if let Some(scratch) = permissions.scratch.clone() {
        sweep(scratch);
    }
    let host = HostFacts::read().map_err(|source| AgentError::Host { source })?;
    let (clock, clock_out) = watch::channel::<Option<Estimate>>(None);
    let dating = Dating::new(clock_out);
    let samples = Samples::new(dating.clone());
    let opened = open_state(&config, &samples, &dating);
    let (state, spool, spool_task) = tokio::select! {
        opened = opened => opened?,
        () = supervision.stop.cancelled() => return Ok(()),
    };
    let contact = Contact::default();
    contact.touch();
    let hello = hello(&config, &permissions.policy, host, &state);
    let cluster = ClusterConfig {
        sources: config.facts,
        period: config.facts_period,
        timeout: config.facts_timeout,
    };
    let (runner, runner_task) = Runner::start(RunnerDeps {
        permissions,
        watch: SamplerControl::new(config.daemon_rules, config.sample_period, samples),
        cluster: ClusterWatch::start(cluster, &dating, &spool.entries()),
        space: SpaceWatch::new(&dating, &spool.entries()),
        dating,
        entries: spool.entries(),
        acked: spool.acked(),
        contact: contact.clone(),
        start_log: config.start_log.map(Into::into),
    });
    let identity = Identity {
        collector: config.collector.clone(),
        name: config.name,
        uid: state.uid().to_string(),
        file: state.path().join(identity::FILE),
        user_directory: config.credentials_dir,
        join: config.join,
        insecure: config.insecure,
        new_key: std::sync::Mutex::default(),
    };
    let session = Session {
        collector: config.collector,
        identity,
        hello,
        spool: spool.clone(),
        runner: runner.clone(),
        clock,
        contact,
        status: supervision.status,
    };
    let leaving = CancellationToken::new();
    let mut session = tokio::spawn(session.keep(leaving.clone()));
    let over = tokio::select! {
        () = supervision.stop.cancelled() => None,
        () = idle(&runner, &supervision.stop_when_idle) => None,
        over = &mut session => Some(over),
    };
    // Tasks that miss the deadline end with the process.
    let _ = tokio::time::timeout(STOP_WITHIN, runner.stop_all()).await;
    leaving.cancel();
    let over = match over {
        Some(over) => over,
        None => match tokio::time::timeout(DELIVER_WITHIN, &mut session).await {
            Ok(over) => over,
            // The rest stays in the spool.
            Err(_) => {
                session.abort();
                Ok(Ok(()))
            }
        },
    };
    drop(runner);
    let closed = spool.close().await;
    // These threads end with their last handle. A thread that hangs on a target must not delay the shutdown.
    runner_task.abort();
    let _ = spool_task.await;
    match over {
        Ok(Ok(())) => closed.map_err(|source| AgentError::Spool { source }),
        Ok(Err(source)) => Err(AgentError::Session { source }),
        Err(_) => Err(AgentError::Died),
    }
}

/// Opens the state directory and creates a spool in it; waits while the disk is full.
async fn open_state(
    config: &AgentConfig,
    samples: &Samples,
    dating: &Dating,
) -> Result<(Arc<StateDir>, Spool, JoinHandle<()>), AgentError> {
    let mut full_since = None;
    let off_limits = config.policy.targets.with_run_directories();
    let off_limits: Vec<PathBuf> = off_limits.map(Path::to_owned).collect();
    loop {
        let error = match StateDir::open(&config.state_dir, &off_limits) {
            Ok(state) => {
                let (state, dating) = (Arc::new(state), dating.clone());
                let (limit, samples) = (config.spool_limit_bytes, samples.clone());
                match Spool::open(Arc::clone(&state), limit, samples, dating, full_since).await {
                    Ok((spool, task)) => return Ok((state, spool, task)),
                    Err(source) if source.is_no_space() => error_chain(&source),
                    Err(source) => return Err(AgentError::Spool { source }),
                }
            }
            Err(source) if source.is_no_space() => error_chain(&source),
            Err(source) => return Err(AgentError::State { source }),
        };
        if full_since.is_none() {
            full_since = Some(tokio::time::Instant::now());
            tracing::warn!(%error, "the state directory is full: the agent waits until it has free space");
        }
        tokio::time::sleep(FULL_DISK_PAUSE).await;
    }
}

/// Waits for the shutdown request, then until no task is held.
async fn idle(runner: &Runner, shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    while !runner.held().await.is_empty() {
        tokio::time::sleep(IDLE_POLL_INTERVAL).await;
    }
}

fn permissions(config: &AgentConfig) -> Result<Permissions, AgentError> {
    let policy = Policy::open(&config.policy).map_err(|source| AgentError::Policy { source })?;
    Ok(Permissions {
        policy: Arc::new(policy),
        scratch: config.scratch_dir.as_deref().map(scratch).transpose()?,
        run_mounts: RunMounts::default(),
    })
}

fn scratch(path: &Path) -> Result<PathBuf, AgentError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| path.canonicalize())
        .map_err(|source| AgentError::Scratch {
            path: path.to_owned(),
            source,
        })
}

/// Removes leftovers of a killed agent. This may take long, so it has its own thread and is not waited for.
fn sweep(scratch: PathBuf) {
    let work = move || match remove_abandoned(&scratch) {
        Ok(0) => {}
        Ok(directories) => tracing::info!(
            scratch = %scratch.display(), directories,
            "removed files that a killed agent left in the scratch directory"
        ),
        Err(error) => tracing::warn!(
            scratch = %scratch.display(), error = %error_chain(&error),
            "could not remove the leftovers of a killed agent in the scratch directory"
        ),
    };
    let thread = std::thread::Builder::new().name("bm-sweep".to_owned());
    if let Err(error) = thread.spawn(work) {
        tracing::warn!(%error, "could not clean up the scratch directory: no thread");
    }
}

fn hello(config: &AgentConfig, policy: &Policy, host: HostFacts, state: &StateDir) -> Hello {
    Hello {
        uid: state.uid().to_string(),
        name: config.name.clone(),
        labels: config.labels.clone(),
        host,
        allowed: policy.targets.locators(),
        readable: policy.sources.roots().to_vec(),
        // Planning a run then refuses load that the agent does not allow.
        workloads: policy.taken_workloads(),
        policy: policy.facts(),
        spools: Vec::new(),
        newest_run: None,
        advertised: config.advertise.clone().unwrap_or_default(),
        held_tasks: Vec::new(),
        pid: i32::try_from(std::process::id()).unwrap_or(0),
        daemon_rules: config.daemon_rules.clone(),
        sample_always: config.sample_always,
        state_directory: state.device_and_inode().to_owned(),
        started: state.locked_at(),
    }
}

#[cfg(test)]
benchmesh_testing::counts_memory!();
