//! The authority of the process, and the credentials of the collector's own user: written before anything is served,
//! renewed while it serves.

use super::audit::{self, ReconcileError};
use super::config::{CollectorConfig, CollectorError};
use super::gate::Gate;
use crate::trust::{Authority, Security, TrustError};
use benchmesh_store::Store;
use benchmesh_store::clock::MeshClock;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// Number of checks of the owner's credentials during their lifetime; they are renewed when a third of it is left.
const OWNER_CHECKS: u32 = 12;

/// The collector's authority, and the directory of its own user's credentials.
#[derive(Debug)]
pub(super) struct Trusted {
    pub authority: Arc<Authority>,
    /// The directory, and the file in it.
    pub credentials: Option<(PathBuf, PathBuf)>,
    lifetime: Duration,
}

/// The authority, the credentials of this user, and the gate. Files are written before anything is served.
pub(super) fn open(
    config: &CollectorConfig,
    address: SocketAddr,
) -> Result<(Option<Trusted>, Gate), TrustError> {
    let Security::Tls {
        directory,
        credentials,
        lifetime,
    } = &config.security
    else {
        return Ok((None, Gate::new(None)?));
    };
    let directory = directory.clone().unwrap_or_else(|| {
        let mut beside = config.db.as_os_str().to_owned();
        beside.push(".tls");
        PathBuf::from(beside)
    });
    let authority = Arc::new(Authority::open(directory, *lifetime)?);
    let credentials = match credentials {
        Some(directory) => {
            let file = authority.write_owner(directory, address)?;
            Some((directory.clone(), file))
        }
        None => None,
    };
    let gate = Gate::new(Some(Arc::clone(&authority)))?;
    let trusted = Trusted {
        authority,
        credentials,
        lifetime: *lifetime,
    };
    Ok((Some(trusted), gate))
}

/// Exchanges withdrawals between the registry and the events of the database.
pub(super) async fn reconcile(
    trust: &Trusted,
    store: &Store,
    clock: &MeshClock,
    config: &CollectorConfig,
) -> Result<(), CollectorError> {
    let compared = audit::reconcile(store, clock, Arc::clone(&trust.authority)).await;
    compared.map_err(|error| match error {
        ReconcileError::Trust(source) => CollectorError::Trust { source },
        ReconcileError::Store(source) => CollectorError::Store {
            db: config.db.clone(),
            source,
        },
    })
}

/// Writes new credentials for this user before the old ones expire.
pub(super) async fn renew_owner(
    trust: Trusted,
    directory: PathBuf,
    address: SocketAddr,
    closing: CancellationToken,
) {
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(trust.lifetime / OWNER_CHECKS) => {}
        }
        let (authority, directory) = (Arc::clone(&trust.authority), directory.clone());
        let written =
            tokio::task::spawn_blocking(move || authority.write_owner(&directory, address)).await;
        if let Ok(Err(error)) = written {
            error!(error = %crate::error_chain(&error), "cannot renew the credentials of this user");
        }
    }
}
