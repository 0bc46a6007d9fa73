//! The daemon on a node: it dials the collector, runs the tasks it is told to, samples, spools and publishes.
//!
//! [`run`] is the whole of it. The rooms: `session` speaks with the collector, `runner` turns commands into tasks,
//! `spool` keeps what was measured until the collector has it, `clock` knows mesh time, `state` is the directory that
//! survives a restart, `wire` is the only place that names generated types. It knows nothing of plans, steps' order or
//! the database; a collector cannot widen what its configuration allows.

mod clock;
pub mod config;
mod host;
mod runner;
pub mod sampler;
mod session;
mod spool;
mod state;
mod telemetry;
mod wire;

pub use config::{AgentConfig, ConfigError};
pub use host::HostError;
pub use session::SessionError;
pub use spool::SpoolError;
pub use state::StateError;

use benchmesh_workloads::copy::remove_abandoned;
use benchmesh_workloads::sandbox::{Allowed, AllowedDevices, SandboxError};
use benchmesh_workloads::workload;
use clock::Estimate;
use host::HostFacts;
use runner::{Contact, Grounds, Runner, Surroundings, Watch};
use session::Session;
use spool::{Samples, Spool};
use state::StateDir;
use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::reply::Hello;

/// How long the tasks may take to end when the agent is stopped.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// How long the collector is waited for to take the rest of the spool.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);

/// Why an agent ended before it was told to, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration cannot work, whatever the mesh does.
    #[error("the agent's configuration cannot work")]
    Config {
        /// The first mistake.
        #[source]
        source: ConfigError,
    },
    /// A path that tasks may use is not there.
    #[error("{option}: the path cannot be allowed")]
    Allow {
        /// The option that names it.
        option: &'static str,
        /// Why.
        #[source]
        source: SandboxError,
    },
    /// The scratch directory cannot be used.
    #[error("make the scratch directory {}", path.display())]
    Scratch {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kernel does not say what the mesh has to know of this host.
    #[error("look at this host")]
    Host {
        /// What is missing.
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
    /// The spool cannot be made or kept.
    #[error("keep the agent's spool")]
    Spool {
        /// Why.
        #[source]
        source: SpoolError,
    },
    /// The collector does not take this agent.
    #[error("attach to the collector")]
    Session {
        /// Why.
        #[source]
        source: SessionError,
    },
    /// A defect: a part of the agent has panicked, and the log says where.
    #[error("a part of the agent has died; this is a defect, and the log says where")]
    Died,
}

/// Runs the agent until `cancel` is cancelled.
///
/// It needs a tokio runtime with I/O and time; a `current_thread` one is enough and the lightest. The order at the end:
/// the sampler stops, the tasks stop (5 s), the rest is spooled and sent (2 s), the session closes, the spool and the
/// state directory close.
///
/// # Errors
/// When the configuration cannot work, the state directory is not usable, or the collector refuses the agent for good.
pub fn run(
    config: AgentConfig,
    cancel: CancellationToken,
) -> impl Future<Output = Result<(), AgentError>> + Send {
    agent(config, cancel)
}

async fn agent(config: AgentConfig, cancel: CancellationToken) -> Result<(), AgentError> {
    config
        .check()
        .map_err(|source| AgentError::Config { source })?;
    let grounds = grounds(&config)?;
    if let Some(scratch) = grounds.scratch.clone() {
        sweep(scratch);
    }
    let host = HostFacts::read().map_err(|source| AgentError::Host { source })?;
    let state = StateDir::open(&config.state_dir, &config.allow)
        .map_err(|source| AgentError::State { source })?;
    let state = Arc::new(state);
    let samples = Samples::default();
    let (clock, clock_out) = watch::channel::<Option<Estimate>>(None);
    let (spool, spool_task) = Spool::open(
        Arc::clone(&state),
        config.spool_limit_bytes,
        samples.clone(),
        clock_out.clone(),
    )
    .await
    .map_err(|source| AgentError::Spool { source })?;
    let contact = Contact::default();
    contact.heard();
    let hello = hello(&config, &grounds, host, &state);
    let (runner, runner_task) = Runner::start(Surroundings {
        grounds,
        watch: Watch::new(config.daemon_rules, config.sample_period, samples),
        clock: clock_out,
        entries: spool.entries(),
        contact: contact.clone(),
        start_log: config.start_log.map(Into::into),
    });
    let session = Session {
        collector: config.collector,
        hello,
        spool: spool.clone(),
        runner: runner.clone(),
        clock,
        contact,
    };
    let leaving = CancellationToken::new();
    let mut session = tokio::spawn(session.keep(leaving.clone()));
    let over = tokio::select! {
        () = cancel.cancelled() => None,
        over = &mut session => Some(over),
    };
    // What does not end in time is left to the end of the process.
    let _ = tokio::time::timeout(STOP_WITHIN, runner.stop_all()).await;
    let _ = tokio::time::timeout(DRAIN_WITHIN, spool.drain()).await;
    leaving.cancel();
    let over = match over {
        Some(over) => over,
        None => session.await,
    };
    drop(runner);
    let closed = spool.close().await;
    // They end with their last handle; a thread that hangs on a target must not hold up the end.
    runner_task.abort();
    let _ = spool_task.await;
    match over {
        Ok(Ok(())) => closed.map_err(|source| AgentError::Spool { source }),
        Ok(Err(source)) => Err(AgentError::Session { source }),
        Err(_) => Err(AgentError::Died),
    }
}

fn grounds(config: &AgentConfig) -> Result<Grounds, AgentError> {
    let allow = |option, paths: &[PathBuf]| {
        Allowed::new(paths.to_vec()).map_err(|source| AgentError::Allow { option, source })
    };
    Ok(Grounds {
        targets: allow("--allow", &config.allow)?,
        devices: AllowedDevices::new(config.allow_devices.clone()).map_err(|source| {
            AgentError::Allow {
                option: "--allow-device",
                source,
            }
        })?,
        sources: allow("--allow-read", &config.allow_read)?,
        scratch: config.scratch_dir.as_deref().map(scratch).transpose()?,
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

/// Removes what a killed agent left there, in a thread that nothing waits for: it may be much.
fn sweep(scratch: PathBuf) {
    let work = move || match remove_abandoned(&scratch) {
        Ok(0) => {}
        Ok(directories) => tracing::info!(
            scratch = %scratch.display(), directories,
            "removed what an agent that was killed had left in the scratch directory"
        ),
        Err(error) => tracing::warn!(
            scratch = %scratch.display(), error = %chain(&error),
            "what a killed agent may have left in the scratch directory was not removed"
        ),
    };
    let thread = std::thread::Builder::new().name("bm-sweep".to_owned());
    if let Err(error) = thread.spawn(work) {
        tracing::warn!(%error, "the scratch directory was not swept: no thread");
    }
}

fn hello(config: &AgentConfig, grounds: &Grounds, host: HostFacts, state: &StateDir) -> Hello {
    Hello {
        uid: state.uid().to_string(),
        name: config.name.clone(),
        labels: config.labels.clone(),
        host,
        allowed: [grounds.targets.roots(), grounds.devices.paths()].concat(),
        readable: grounds.sources.roots().to_vec(),
        workloads: workload::registry()
            .iter()
            .map(|it| (it.name(), it.revision()))
            .collect(),
        spools: Vec::new(),
        advertised: config.advertise.clone().unwrap_or_default(),
        held_tasks: Vec::new(),
    }
}

/// An error with its causes on one line, for a log or a reply.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some libraries repeat their cause in their own message.
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
