//! The other end of a connection: its address and its certificate.

use crate::trust::Holder;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

/// The owner of a connection.
#[derive(Clone, Debug)]
pub(super) enum PeerIdentity {
    /// Unknown, with `--insecure`.
    Plain,
    /// No certificate.
    Stranger,
    Known {
        holder: Holder,
        revoked: Arc<CancellationToken>,
    },
    Revoked(Holder),
    /// The CA signed the certificate, but the registry does not have it.
    Forgotten,
}

impl PeerIdentity {
    /// The refusal of a client without a currently valid certificate.
    pub fn refusal(&self) -> Option<Status> {
        let message = match self {
            Self::Plain => return None,
            Self::Known { revoked, .. } if !revoked.is_cancelled() => return None,
            Self::Known { holder, .. } | Self::Revoked(holder) => format!(
                "the certificate of the {} `{}` is revoked: join again with a token from `benchmesh collector token`",
                holder.role, holder.name
            ),
            Self::Forgotten => {
                "this collector does not know the certificate, although its own CA signed it: join \
                again with a token from `benchmesh collector token`"
                    .to_owned()
            }
            Self::Stranger => {
                "no client certificate: join with a token (`benchmesh collector token`)".to_owned()
            }
        };
        Some(Status::unauthenticated(message))
    }
}

/// For the log.
impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("a client without TLS"),
            Self::Stranger | Self::Forgotten => f.write_str("an unauthenticated client"),
            Self::Known { holder, .. } | Self::Revoked(holder) => match holder.role.word() {
                // The mesh's owner has the name of its role.
                role if role == holder.name => f.write_str(role),
                role => write!(f, "{role} {}", holder.name),
            },
        }
    }
}

/// The other end of a connection, in the extensions of each request.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub address: Option<SocketAddr>,
    pub identity: PeerIdentity,
    calls: Arc<AtomicUsize>,
    /// The free calls of its owner, of those that take much memory.
    large_calls: Arc<Semaphore>,
}

/// A call that may be silent for a long time; its connection does not count as idle.
#[derive(Debug)]
pub(super) struct OpenCall(Arc<AtomicUsize>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    pub fn new(
        address: Option<SocketAddr>,
        identity: PeerIdentity,
        large_calls: Arc<Semaphore>,
    ) -> Self {
        Self {
            address,
            identity,
            calls: Arc::default(),
            large_calls,
        }
    }

    pub fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// The address of a request's sender.
    pub fn address<T>(request: &Request<T>) -> Option<IpAddr> {
        request.extensions().get::<Self>()?.ip()
    }

    /// The sender of a request.
    pub fn identity<T>(request: &Request<T>) -> PeerIdentity {
        let peer = request.extensions().get::<Self>();
        peer.map_or(PeerIdentity::Stranger, |peer| peer.identity.clone())
    }

    /// Keeps the connection of a request open until the result is dropped.
    pub fn begin_call<T>(request: &Request<T>) -> Option<OpenCall> {
        let peer = request.extensions().get::<Self>()?;
        peer.calls.fetch_add(1, Ordering::Relaxed);
        Some(OpenCall(Arc::clone(&peer.calls)))
    }

    /// Takes one of the calls that the owner of a connection may have at once, until the result is dropped. `None`: all
    /// are open.
    pub fn take_large_call<T>(request: &Request<T>) -> Option<OwnedSemaphorePermit> {
        let peer = request.extensions().get::<Self>()?;
        Arc::clone(&peer.large_calls).try_acquire_owned().ok()
    }

    /// Whether a call is open that may be silent for long.
    pub fn has_open_call(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_trust::Role;

    #[test]
    fn a_holder_named_like_its_role_is_named_once() {
        for (role, name, words) in [
            (Role::Owner, "owner", "owner"),
            (Role::Owner, "ann", "owner ann"),
            (Role::Operator, "ann", "operator ann"),
        ] {
            let name = name.to_owned();
            let identity = PeerIdentity::Revoked(Holder { role, name });
            assert_eq!(identity.to_string(), words);
        }
    }
}
