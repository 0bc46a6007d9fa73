//! The collector as a whole: it listens, serves agents and commands, and shuts down in order.
//!
//! Start: port, database, mesh time, then services. Shutdown: the scheduler lets go of its run as it is (agents carry it
//! on), streams end, the server ends, the database is closed last. This room and the conversions beside it are the only
//! ones that name the types of the wire.

mod control;
mod mesh;
pub(crate) mod wire;

use crate::{
    clock::{ClockError, MeshClock, Reading, WallWatch, anchored},
    model::Severity,
    scheduler::Scheduler,
    sessions::Fleet,
    store::{
        Store, StoreError,
        rows::{AgentRow, NewEvent},
    },
};
use benchmesh_proto::{
    KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S, MAX_MESSAGE_BYTES,
    v1::{control_server::ControlServer, mesh_server::MeshServer},
};
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::{Server, server::TcpIncoming};
use tracing::{error, info, warn};

/// How often the anchor of mesh time is persisted and the wall clock looked at.
const CLOCK_EVERY: Duration = Duration::from_secs(10);
/// How long streams may take to end at shutdown before the rest goes on without them.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Where a collector listens and what it writes to.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// Port 0 takes any free one; `Collector::address` tells which.
    pub listen: SocketAddr,
    /// The SQLite file; made if it is not there.
    pub db: PathBuf,
    /// Serve other machines without TLS. Without it only loopback is accepted.
    pub insecure: bool,
    /// Millionths by which mesh time runs fast; 0 but for trying the agents' clocks.
    pub clock_ppm: i32,
}

/// Why a collector does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error(
        "refuse to listen on {listen}: without TLS only loopback is safe, anyone who reaches this port could start load; listen on 127.0.0.1, or pass --insecure on a network that you trust"
    )]
    NotLoopback { listen: SocketAddr },
    #[error("port {} of {} is in use, perhaps by another collector: stop that one, or choose another port with --listen", listen.port(), listen.ip())]
    InUse { listen: SocketAddr },
    #[error("cannot listen on {listen}")]
    Listen {
        listen: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot use the database {}", db.display())]
    Store { db: PathBuf, source: StoreError },
    #[error("cannot tell mesh time")]
    Clock { source: ClockError },
    #[error(
        "the database's writer died, and nothing more could be stored; look at the log, and start the collector again"
    )]
    Writer,
    #[error(
        "the scheduler died; look at the log, and start the collector again: it goes on with the run"
    )]
    Scheduler,
    #[error("the server ended")]
    Serve { source: tonic::transport::Error },
}

/// A collector that listens, and serves once `serve` is called.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    incoming: TcpIncoming,
    store: Store,
    clock: Arc<MeshClock>,
    fleet: Fleet,
}

impl Collector {
    /// Opens the port and the database. Connections wait, and nothing is served, before `serve`.
    pub async fn bind(config: CollectorConfig) -> Result<Self, CollectorError> {
        let listen = config.listen;
        if !listen.ip().is_loopback() && !config.insecure {
            return Err(CollectorError::NotLoopback { listen });
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
        let store = Store::open(&config.db)
            .await
            .map_err(|source| CollectorError::Store {
                db: config.db.clone(),
                source,
            })?;
        match taken_up(&store, &config).await {
            Ok((clock, known)) => {
                let clock = Arc::new(clock);
                let fleet = Fleet::new(store.clone(), Arc::clone(&clock));
                fleet.remember(known);
                Ok(Self {
                    address,
                    incoming,
                    fleet,
                    store,
                    clock,
                })
            }
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }

    /// The address that it really listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `cancel`, then ends streams, stores what has been received and closes the database. A run that is
    /// under way stays as it is, for the next start to go on with.
    pub async fn serve(self, cancel: CancellationToken) -> Result<(), CollectorError> {
        let Self {
            address,
            incoming,
            store,
            clock,
            fleet,
        } = self;
        info!(%address, db = %store.path().display(), "collector listens");
        // Whatever ends first takes the rest along.
        let closing = cancel.child_token();
        let tasks = TaskTracker::new();
        let scheduler = Scheduler::new(store.clone(), Arc::clone(&clock), fleet.clone());
        let scheduling = tasks.spawn({
            let (scheduler, closing) = (scheduler.clone(), closing.clone());
            async move { scheduler.run(closing).await }
        });
        tasks.spawn({
            let (fleet, closing) = (fleet.clone(), closing.clone());
            async move { fleet.watch(closing).await }
        });
        tasks.spawn(keep_time(
            store.clone(),
            Arc::clone(&clock),
            closing.clone(),
        ));
        let mesh = mesh::MeshService::new(
            fleet.clone(),
            store.clone(),
            Arc::clone(&clock),
            tasks.clone(),
            closing.clone(),
        );
        let control =
            control::ControlService::new(scheduler, fleet, store.clone(), clock, closing.clone());
        let served = Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(KEEPALIVE_INTERVAL_S)))
            .http2_keepalive_timeout(Some(Duration::from_secs(KEEPALIVE_TIMEOUT_S)))
            .add_service(
                MeshServer::new(mesh)
                    .max_decoding_message_size(MAX_MESSAGE_BYTES)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .add_service(
                ControlServer::new(control)
                    .max_decoding_message_size(MAX_MESSAGE_BYTES)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES),
            )
            .serve_with_incoming_shutdown(incoming, closing.clone().cancelled_owned());
        let mut served = std::pin::pin!(served);
        let served_error = |source| CollectorError::Serve { source };
        let result = tokio::select! {
            result = &mut served => result.map_err(served_error),
            () = store.writer_died() => Err(CollectorError::Writer),
            Err(_) = scheduling => Err(CollectorError::Scheduler),
            () = closing.cancelled() => match timeout(CLOSE_WITHIN, served).await {
                Ok(result) => result.map_err(served_error),
                Err(_) => {
                    warn!("some connections did not end within {} s and are cut", CLOSE_WITHIN.as_secs());
                    Ok(())
                }
            },
        };
        closing.cancel();
        tasks.close();
        if timeout(CLOSE_WITHIN, tasks.wait()).await.is_err() {
            warn!(
                "some streams did not end within {} s",
                CLOSE_WITHIN.as_secs()
            );
        }
        store.close().await;
        result
    }
}

/// Mesh time and the agents of earlier times, from the database.
async fn taken_up(
    store: &Store,
    config: &CollectorConfig,
) -> Result<(MeshClock, Vec<AgentRow>), CollectorError> {
    let failed = |source| CollectorError::Store {
        db: config.db.clone(),
        source,
    };
    let stored = store.clock_anchor().await.map_err(failed)?;
    let newest = store.newest_instant().await.map_err(failed)?;
    let clock = |source| CollectorError::Clock { source };
    let now = Reading::take().map_err(clock)?;
    let anchor = anchored(stored.as_ref(), newest, &now).map_err(clock)?;
    let clock = MeshClock::new(anchor).fast_by(config.clock_ppm);
    store
        .set_clock_anchor(clock.anchor_now())
        .await
        .map_err(failed)?;
    let known = store.agents().await.map_err(failed)?;
    Ok((clock, known))
}

/// Persists the anchor, and records steps of the wall clock.
async fn keep_time(store: Store, clock: Arc<MeshClock>, closing: CancellationToken) {
    let mut watch = WallWatch::new(clock.wall_ahead_us());
    let mut beat = tokio::time::interval(CLOCK_EVERY);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = beat.tick() => {}
        }
        if let Err(error) = store.set_clock_anchor(clock.anchor_now()).await {
            error!(%error, "cannot store the anchor of mesh time");
        }
        let Some(step_us) = watch.look(clock.wall_ahead_us()) else {
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
