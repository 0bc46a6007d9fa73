//! What a collector is given, and why it does not start or has ended.

use crate::alarms::{AlarmCommand, AlarmCommandError};
use crate::archive::ArchiveConfig;
use crate::trust::{Security, TrustError};
use crate::web::{HttpConfig, WebError};
use benchmesh_store::StoreError;
use benchmesh_store::clock::ClockError;
use benchmesh_store::retention::{Retention, RetentionError};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Warning shown with results of such a collector.
pub const INSECURE: &str = "the collector serves without TLS (--insecure): anyone who reaches its port can start load, \
                            and anyone who takes over the port can command its agents";

/// The addresses and the database of a collector.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// Port 0 means any free port; see `Collector::address`.
    pub listen: SocketAddr,
    /// The SQLite file; created if it does not exist.
    pub db: PathBuf,
    pub security: Security,
    /// The page, JSON and metrics.
    pub http: HttpConfig,
    /// Which data are kept for how long.
    pub retention: Retention,
    /// The command that is run for alarms.
    pub on_alarm: Option<AlarmCommand>,
    /// Where ended runs are copied to.
    pub archive: Option<ArchiveConfig>,
    /// Millionths by which mesh time runs fast; nonzero only for tests of the agents' clocks.
    pub clock_ppm: i32,
    /// Maximum lifetime of a connection without a valid certificate; `None`: the default. For tests.
    pub newcomer_timeout: Option<Duration>,
}

/// The reason why a collector does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("port {} of {} is in use, perhaps by another collector: stop that one, or choose another port with --listen", listen.port(), listen.ip())]
    InUse { listen: SocketAddr },
    #[error("cannot listen on {listen}")]
    Listen {
        listen: SocketAddr,
        source: std::io::Error,
    },
    #[error(
        "refuse to serve the page on {listen}: the page has no TLS, so anyone on the network path could read the \
         token; listen on 127.0.0.1, or pass --http-insecure on a network that you trust"
    )]
    PageNotLoopback { listen: SocketAddr },
    #[error("invalid retention options")]
    Retention(#[from] RetentionError),
    #[error("cannot run the command of --on-alarm")]
    OnAlarm(#[from] AlarmCommandError),
    #[error("cannot serve the page")]
    Web(#[from] WebError),
    #[error("cannot establish trust")]
    Trust {
        #[source]
        source: TrustError,
    },
    #[error("cannot use the database {}", db.display())]
    Store { db: PathBuf, source: StoreError },
    #[error("cannot determine mesh time")]
    Clock { source: ClockError },
    #[error(
        "the database's writer failed, and the collector could not store any more data; read the log, and start the \
         collector again"
    )]
    Writer,
    #[error(
        "the scheduler failed; read the log, and start the collector again: it continues the run"
    )]
    Scheduler,
    #[error("the server failed")]
    Serve { source: tonic::transport::Error },
}
