//! The collector process: it listens, serves agents and commands, and shuts down in order.
//!
//! Start: port, database, mesh time, then services. Shutdown: the scheduler leaves its run as it is (agents continue
//! it), streams end, the server ends, the database is closed last. Only this folder, `sessions/wire` and
//! `ingest/batch/wire` name wire types.

mod audit;
mod clock;
mod cluster_readings;
mod config;
mod connection;
mod control;
mod credentials;
mod gate;
mod limits;
pub mod memory;
mod mesh;
mod peer;
mod places;
mod restored;
mod routes;
mod trust;
pub(crate) mod wire;

pub use config::{CollectorConfig, CollectorError, INSECURE};

use crate::{
    alarms::{AlarmCommand, Notifier, Runner, Watcher},
    archive::{ArchiveConfig, Archiver},
    overview::Overview,
    web::{HttpListen, Web},
};
use benchmesh_answers::findings;
use benchmesh_model::mesh::RunId;
use benchmesh_proto::{KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S};
use benchmesh_scheduler::{Scheduler, sessions::Fleet};
use benchmesh_store::{
    Store,
    clock::MeshClock,
    retention::{Retainer, Retention},
};
use credentials::Trusted;
use futures::future::{BoxFuture, LocalBoxFuture};
use gate::Gate;
use limits::ConnectionLimits;
use restored::Restored;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::{Server, server::TcpIncoming};
use tracing::{info, warn};

/// Time limit for streams to end at shutdown; then the rest continues without them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that wait to be accepted: a whole mesh may reconnect at once. The kernel's limit applies too.
const BACKLOG: u32 = 4096;

/// A bound collector; `serve` starts it.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    /// The configuration did not fix the port.
    is_port_chosen: bool,
    incoming: TcpIncoming,
    web: Option<Web>,
    store: Store,
    clock: Arc<MeshClock>,
    fleet: Fleet,
    trust: Option<Trusted>,
    gate: Arc<Gate>,
    limits: ConnectionLimits,
    retention: Retention,
    on_alarm: Option<AlarmCommand>,
    archive: Option<ArchiveConfig>,
    newest_event: i64,
    watched_runs: Vec<RunId>,
}

impl Collector {
    /// Opens the port and the database. Until `serve`, connections wait and nothing is served.
    ///
    /// Boxed, as `serve` is, so that the server is compiled only in this crate and not again in the binary's.
    #[inline(never)]
    pub fn bind(config: CollectorConfig) -> LocalBoxFuture<'static, Result<Self, CollectorError>> {
        Box::pin(Self::bound(config))
    }

    async fn bound(config: CollectorConfig) -> Result<Self, CollectorError> {
        let mut limits = ConnectionLimits::of_this_process();
        limits.newcomer_timeout = config.newcomer_timeout.unwrap_or(limits.newcomer_timeout);
        let listen = config.listen;
        config.retention.check()?;
        if let Some(command) = &config.on_alarm {
            command.check()?;
        }
        if let HttpListen::At(listen) = config.http.listen
            && !listen.ip().is_loopback()
            && !config.http.insecure
        {
            return Err(CollectorError::PageNotLoopback { listen });
        }
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AddrInUse => CollectorError::InUse { listen },
            _ => CollectorError::Listen { listen, source },
        };
        let socket = reserved(listen).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let web = Web::bind(&config.http).await?;
        let store = Store::open(&config.db)
            .await
            .map_err(|source| CollectorError::Store {
                db: config.db.clone(),
                source,
            })?;
        let opened = opened(&store, &config, address).await;
        let opened = opened.and_then(|opened| Ok((opened, incoming(socket).map_err(failed)?)));
        let ((trust, gate, restored), incoming) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                store.close().await;
                return Err(error);
            }
        };
        let clock = Arc::new(restored.clock);
        let fleet = Fleet::new(&store, Arc::clone(&clock));
        fleet.add_known(restored.known);
        fleet.add_samplers(restored.samplers);
        Ok(Self {
            address,
            is_port_chosen: listen.port() == 0,
            incoming,
            web,
            store,
            clock,
            fleet,
            trust,
            gate: Arc::new(gate),
            limits,
            retention: config.retention,
            on_alarm: config.on_alarm,
            archive: config.archive,
            newest_event: restored.newest_event,
            watched_runs: restored.watched_runs,
        })
    }

    /// The actual address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the page with its token; `None` if the page is turned off.
    pub fn page_url(&self) -> Option<String> {
        self.web.as_ref().map(Web::url)
    }

    /// Serves until `cancel`, then ends streams, stores all received data and closes the database. The current run
    /// keeps its state; the next start continues it.
    #[inline(never)]
    pub fn serve(
        self,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<(), CollectorError>> {
        Box::pin(self.served(cancel))
    }

    async fn served(self, cancel: CancellationToken) -> Result<(), CollectorError> {
        let Self {
            address,
            is_port_chosen,
            incoming,
            web,
            store,
            clock,
            fleet,
            trust,
            gate,
            limits,
            retention,
            on_alarm,
            archive,
            newest_event,
            watched_runs,
        } = self;
        if trust.is_none() {
            warn!("{INSECURE}");
        }
        info!(%address, db = %store.path().display(), "collector listens");
        // The first part that ends cancels the others.
        let closing = cancel.child_token();
        let tasks = TaskTracker::new();
        let scheduler = Scheduler::new(&store, Arc::clone(&clock), fleet.clone());
        let scheduling = tasks.spawn({
            let (scheduler, closing) = (scheduler.clone(), closing.clone());
            async move { scheduler.run(closing).await }
        });
        tasks.spawn({
            let (fleet, closing) = (fleet.clone(), closing.clone());
            async move { fleet.watch(closing).await }
        });
        clock::keep(&tasks, &store, &clock, &closing);
        tasks.spawn(memory::keep_low(closing.clone()));
        tasks.spawn(findings::background::compute_missing(
            store.clone(),
            closing.clone(),
        ));
        let notifier = match on_alarm {
            Some(command) => {
                let (notifier, runner) = Runner::new(command);
                tasks.spawn(runner.run(store.clone(), Arc::clone(&clock), closing.clone()));
                notifier
            }
            None => Notifier::default(),
        };
        let watcher = Watcher::new(
            scheduler.clone(),
            store.clone(),
            Arc::clone(&clock),
            notifier,
            newest_event,
            watched_runs,
        );
        tasks.spawn(watcher.watch(closing.clone()));
        tasks.spawn(cluster_readings::keep(
            scheduler.clone(),
            store.clone(),
            newest_event,
            closing.clone(),
        ));
        let retainer = Retainer::new(store.clone(), retention);
        tasks.spawn(retainer.clone().run(Arc::clone(&clock), closing.clone()));
        let mesh = mesh::MeshService::new(
            fleet.clone(),
            store.clone(),
            Arc::clone(&clock),
            tasks.clone(),
            closing.clone(),
            Arc::clone(&gate),
        );
        let archive = archive.map(|config| {
            let (archiver, status) = Archiver::new(config, store.clone(), Arc::clone(&clock));
            tasks.spawn(archiver.keep(closing.clone()));
            status
        });
        let overview = Overview::new(archive);
        tasks.spawn(overview.clone().run(
            scheduler.clone(),
            fleet.clone(),
            store.clone(),
            Arc::clone(&clock),
            trust.is_none().then_some(INSECURE),
            closing.clone(),
        ));
        if let Some(web) = web {
            info!(address = %web.address(), "page listens");
            let serving = web.serve(
                store.clone(),
                overview.clone(),
                gate.refusals(),
                closing.clone(),
            );
            tasks.spawn(serving);
        }
        let control = control::ControlService::new(
            scheduler,
            fleet.clone(),
            store.clone(),
            Arc::clone(&clock),
            overview,
            retainer,
            Arc::clone(&gate),
            closing.clone(),
        );
        let authority = trust.as_ref().map(|trust| Arc::clone(&trust.authority));
        let owner_file = trust.and_then(|trust| {
            let (directory, file) = trust.credentials.clone()?;
            let renewing = credentials::renew_owner(trust, directory, address, closing.clone());
            tasks.spawn(renewing);
            // A random port differs at the next start.
            is_port_chosen.then_some(file)
        });
        let trust =
            trust::TrustService::new(authority, Arc::clone(&gate), fleet, store.clone(), clock);
        let served = Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(KEEPALIVE_INTERVAL_S)))
            .http2_keepalive_timeout(Some(Duration::from_secs(KEEPALIVE_TIMEOUT_S)))
            .max_concurrent_streams(Some(limits::MAX_CALLS))
            .add_routes(routes::routes(mesh, control, trust, &gate))
            .serve_with_incoming_shutdown(
                connection::admitted(incoming, gate, limits),
                closing.clone().cancelled_owned(),
            );
        let mut served = std::pin::pin!(served);
        let served_error = |source| CollectorError::Serve { source };
        let result = tokio::select! {
            result = &mut served => result.map_err(served_error),
            () = store.writer_died() => Err(CollectorError::Writer),
            Err(_) = scheduling => Err(CollectorError::Scheduler),
            () = closing.cancelled() => match timeout(SHUTDOWN_TIMEOUT, served).await {
                Ok(result) => result.map_err(served_error),
                Err(_) => {
                    warn!("some connections did not end within {} s: cutting them", SHUTDOWN_TIMEOUT.as_secs());
                    Ok(())
                }
            },
        };
        closing.cancel();
        tasks.close();
        if timeout(SHUTDOWN_TIMEOUT, tasks.wait()).await.is_err() {
            warn!(
                "some streams did not end within {} s",
                SHUTDOWN_TIMEOUT.as_secs()
            );
        }
        if let Some(file) = owner_file
            && let Err(error) = benchmesh_trust::private_file::remove(&file)
        {
            warn!(%error, file = %file.display(), "cannot remove the credentials for this address");
        }
        store.close().await;
        result
    }
}

/// The port, to which nobody can connect yet: until this user's credentials are written, a command would find none.
fn reserved(listen: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match listen {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A restarted collector takes its port again while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    Ok(socket)
}

fn incoming(socket: TcpSocket) -> std::io::Result<TcpIncoming> {
    let incoming = TcpIncoming::from(socket.listen(BACKLOG)?);
    let keepalive = Duration::from_secs(KEEPALIVE_INTERVAL_S);
    Ok(incoming
        .with_nodelay(Some(true))
        .with_keepalive(Some(keepalive)))
}

/// The trust and the state that a collector starts with. Files are written before anything is served.
async fn opened(
    store: &Store,
    config: &CollectorConfig,
    address: SocketAddr,
) -> Result<(Option<Trusted>, Gate, Restored), CollectorError> {
    let (trust, gate) =
        credentials::open(config, address).map_err(|source| CollectorError::Trust { source })?;
    store.open_readers().await;
    let restored = restored::restore(store, config).await?;
    if let Some(trust) = &trust {
        credentials::reconcile(trust, store, &restored.clock, config).await?;
    }
    Ok((trust, gate, restored))
}
