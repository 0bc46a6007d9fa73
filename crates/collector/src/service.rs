//! The collector process: it listens, serves agents and commands, and shuts down in order.
//!
//! Start: port, database, mesh time, then services. Shutdown: the scheduler leaves its run as it is (agents continue
//! it), streams end, the server ends, the database is closed last. Only this folder, `sessions/wire` and
//! `ingest/batch/wire` name wire types.

mod audit;
mod connection;
mod control;
mod gate;
mod limits;
pub mod memory;
mod mesh;
mod newcomers;
mod peer;
mod quota;
mod trust;
pub(crate) mod wire;

use crate::{
    alarms::{AlarmCommand, AlarmCommandError, Notifier, Runner, Watcher},
    overview::Overview,
    trust::{Authority, Security, TrustError},
    web::{HttpConfig, HttpListen, Web, WebError},
};
use audit::ReconcileError;
use axum::middleware;
use benchmesh_answers::findings;
use benchmesh_model::mesh::Severity;
use benchmesh_proto::{
    KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S, MAX_MESSAGE_BYTES,
    v1::{control_server::ControlServer, mesh_server::MeshServer, trust_server::TrustServer},
};
use benchmesh_scheduler::{Scheduler, sessions::Fleet};
use benchmesh_store::{
    Store, StoreError,
    clock::{ClockError, KernelClocks, MeshClock, WallClockMonitor, choose_anchor},
    retention::{Retainer, Retention, RetentionError},
    rows::{AgentRow, NewEvent, SamplerRow},
};
use futures::future::{BoxFuture, LocalBoxFuture};
use gate::{Gate, Needed};
use limits::ConnectionLimits;
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    Request, Status,
    service::{Routes, interceptor::InterceptedService},
    transport::{Server, server::TcpIncoming},
};
use tracing::{error, info, warn};

/// How often the anchor of mesh time is persisted and the wall clock checked.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit for streams to end at shutdown; then the rest continues without them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Concurrent calls of a command. An agent has two ([`gate`] counts them over all its connections).
const MAX_STREAMS_PER_CONNECTION: u32 = 64;

/// Limit of a trust message: a request for a certificate or a token is small.
const MAX_TRUST_BYTES: usize = 64 << 10;

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
    /// The newest event at opening. Events that agents deliver about the time without a collector come after it.
    newest_event: i64,
}

/// The collector's authority, and the directory of its own user's credentials.
#[derive(Debug)]
struct Trusted {
    authority: Arc<Authority>,
    /// The directory, and the file in it.
    credentials: Option<(PathBuf, PathBuf)>,
    lifetime: Duration,
}

impl Collector {
    /// Opens the port and the database. Until `serve`, connections wait and nothing is served.
    ///
    /// Boxed, as `serve` is, so that the server is compiled only in this crate and not again in the binary's.
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
        let keepalive = Duration::from_secs(KEEPALIVE_INTERVAL_S);
        let incoming = TcpIncoming::bind(listen)
            .map_err(failed)?
            .with_nodelay(Some(true))
            .with_keepalive(Some(keepalive));
        let address = incoming.local_addr().map_err(failed)?;
        let web = Web::bind(&config.http).await?;
        let store = Store::open(&config.db)
            .await
            .map_err(|source| CollectorError::Store {
                db: config.db.clone(),
                source,
            })?;
        let restored = match trusted(&config, address) {
            Ok(trusted) => restore(&store, &config)
                .await
                .map(|restored| (restored, trusted)),
            Err(source) => Err(CollectorError::Trust { source }),
        };
        match restored {
            Ok((restored, (trust, gate))) => {
                let Restored {
                    clock,
                    known,
                    samplers,
                    newest_event,
                } = restored;
                let clock = Arc::new(clock);
                if let Err(error) = reconciled(&store, &clock, &trust, &config).await {
                    store.close().await;
                    return Err(error);
                }
                let fleet = Fleet::new(&store, Arc::clone(&clock));
                fleet.add_known(known);
                fleet.add_samplers(samplers);
                Ok(Self {
                    address,
                    is_port_chosen: listen.port() == 0,
                    incoming,
                    web,
                    fleet,
                    store,
                    clock,
                    trust,
                    gate: Arc::new(gate),
                    limits,
                    retention: config.retention,
                    on_alarm: config.on_alarm,
                    newest_event,
                })
            }
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
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
            newest_event,
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
        tasks.spawn(keep_anchor(
            store.clone(),
            Arc::clone(&clock),
            closing.clone(),
        ));
        tasks.spawn(watch_wall_clock(
            store.clone(),
            Arc::clone(&clock),
            closing.clone(),
        ));
        tasks.spawn(memory::keep_low(closing.clone()));
        tasks.spawn(findings::keep::keep(store.clone(), closing.clone()));
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
        );
        tasks.spawn(watcher.watch(closing.clone()));
        let retainer = Retainer::new(store.clone(), retention);
        tasks.spawn(retainer.clone().keep(Arc::clone(&clock), closing.clone()));
        let mesh = mesh::MeshService::new(
            fleet.clone(),
            store.clone(),
            Arc::clone(&clock),
            tasks.clone(),
            closing.clone(),
            Arc::clone(&gate),
        );
        let overview = Overview::new();
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
            tasks.spawn(renew_owner(trust, directory, address, closing.clone()));
            // A random port differs at the next start.
            is_port_chosen.then_some(file)
        });
        let trust =
            trust::TrustService::new(authority, Arc::clone(&gate), fleet, store.clone(), clock);
        let served = Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(KEEPALIVE_INTERVAL_S)))
            .http2_keepalive_timeout(Some(Duration::from_secs(KEEPALIVE_TIMEOUT_S)))
            .max_concurrent_streams(Some(MAX_STREAMS_PER_CONNECTION))
            .add_routes(routes(mesh, control, trust, &gate))
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

/// Routes for all calls. A client without a certificate gets the same answer to every call but one, whether the call
/// exists or not.
fn routes(
    mesh: mesh::MeshService,
    control: control::ControlService,
    trust: trust::TrustService,
    gate: &Arc<Gate>,
) -> Routes {
    let services = Routes::new(InterceptedService::new(
        MeshServer::new(mesh)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        needs(gate, Needed::Agent),
    ))
    .add_service(InterceptedService::new(
        ControlServer::new(control)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        needs(gate, Needed::Operator),
    ))
    .add_service(TrustServer::new(trust).max_decoding_message_size(MAX_TRUST_BYTES));
    let gate = Arc::clone(gate);
    let strangers = middleware::from_fn(
        move |request: axum::extract::Request, next: middleware::Next| {
            let refusal = gate.refuse_stranger(&request);
            async move {
                match refusal {
                    Some(status) => status.into_http(),
                    None => next.run(request).await,
                }
            }
        },
    );
    // As the fallback of a router without routes: a router's own answer differs slightly between existing and missing
    // routes.
    let services = axum::Router::new().fallback_service(services.into_axum_router());
    Routes::from(services.layer(strangers))
}

/// Admits calls with a certificate of the right role.
fn needs(
    gate: &Arc<Gate>,
    needed: Needed,
) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone + use<> {
    let gate = Arc::clone(gate);
    move |request| gate.check(&request, needed).map(|()| request)
}

async fn reconciled(
    store: &Store,
    clock: &MeshClock,
    trust: &Option<Trusted>,
    config: &CollectorConfig,
) -> Result<(), CollectorError> {
    let Some(trust) = trust else {
        return Ok(());
    };
    let compared = audit::reconcile(store, clock, Arc::clone(&trust.authority)).await;
    compared.map_err(|error| match error {
        ReconcileError::Trust(source) => CollectorError::Trust { source },
        ReconcileError::Store(source) => CollectorError::Store {
            db: config.db.clone(),
            source,
        },
    })
}

/// The authority, the credentials of this user, and the gate. Files are written before anything is served.
fn trusted(
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

/// Number of checks of the owner's credentials during their lifetime; they are renewed when a third of it is left.
const OWNER_CHECKS: u32 = 12;

/// Writes new credentials for this user before the old ones expire.
async fn renew_owner(
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

/// Mesh time and the known agents, from the database.
struct Restored {
    clock: MeshClock,
    known: Vec<AgentRow>,
    samplers: Vec<SamplerRow>,
    newest_event: i64,
}

async fn restore(store: &Store, config: &CollectorConfig) -> Result<Restored, CollectorError> {
    let failed = |source| CollectorError::Store {
        db: config.db.clone(),
        source,
    };
    let stored = store.clock_anchor().await.map_err(failed)?;
    let newest = store.newest_instant().await.map_err(failed)?;
    let clock = |source| CollectorError::Clock { source };
    let now = KernelClocks::take().map_err(clock)?;
    let anchor = choose_anchor(stored.as_ref(), newest, &now).map_err(clock)?;
    let clock = MeshClock::new(anchor).with_drift(config.clock_ppm);
    let anchor = clock.anchor_now();
    store
        .set_clock_anchor(move || anchor.clone())
        .await
        .map_err(failed)?;
    Ok(Restored {
        clock,
        known: store.agents().await.map_err(failed)?,
        samplers: store.samplers().await.map_err(failed)?,
        newest_event: store.newest_event().await.map_err(failed)?,
    })
}

/// Persists the anchor of mesh time, together with the gathered rows.
async fn keep_anchor(store: Store, clock: Arc<MeshClock>, closing: CancellationToken) {
    let mut ticks = tokio::time::interval(CLOCK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let keep = async {
        loop {
            ticks.tick().await;
            let clock = Arc::clone(&clock);
            let stored = store.set_clock_anchor(move || clock.anchor_now());
            if let Err(error) = stored.await {
                error!(%error, "cannot store the anchor of mesh time");
            }
        }
    };
    tokio::select! {
        () = closing.cancelled() => {}
        () = keep => {}
    }
}

/// Records steps of the wall clock.
async fn watch_wall_clock(store: Store, clock: Arc<MeshClock>, closing: CancellationToken) {
    let mut monitor = WallClockMonitor::new(clock.wall_ahead_us());
    let mut ticks = tokio::time::interval(CLOCK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(step_us) = monitor.check(clock.wall_ahead_us()) else {
            continue;
        };
        let message = format!(
            "this machine's clock was set {} by {:.3} s; mesh time goes on as before",
            if step_us < 0 { "back" } else { "forward" },
            Duration::from_micros(step_us.unsigned_abs()).as_secs_f64(),
        );
        warn!("{message}");
        let event = NewEvent {
            at: clock.now(),
            run: None,
            step: None,
            agent: None,
            severity: Severity::Warning,
            kind: String::from("wall-clock-step"),
            message,
            detail_json: Some(serde_json::json!({ "step_us": step_us }).to_string()),
        };
        if let Err(error) = store.add_event(event).await {
            error!(%error, "cannot store an event");
        }
    }
}
