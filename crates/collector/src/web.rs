//! The collector over HTTP: the live page, JSON, metrics, reports as files.
//!
//! Everything is read-only. Each request needs the token, on loopback too ([`access`]). Live data come from the one
//! [`Overview`] shared by all viewers ([`stream`]). Queries have the bounds of `benchmesh query`. Connections, viewers,
//! queries and reports are bounded, and a client that neither reads nor writes is cut off ([`listener`]). A page loads
//! nothing from another origin, and has no inline script.

mod access;
mod api;
mod assets;
mod compare;
mod error;
mod listener;
mod metrics;
mod query;
mod stream;

pub use access::{Token, TokenError};
pub use metrics::exposition;

use crate::{overview::Overview, refusals::Refusals};
use access::Access;
use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post},
};
use benchmesh_store::Store;
use listener::{Client, Connections};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

/// Default port of the page.
pub const DEFAULT_PORT: u16 = 4751;
/// Maximum size of a request; the largest is the text of a query.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Maximum number of open pages and other listeners to the event stream.
const MAX_VIEWERS: usize = 256;
/// Maximum number of queries, in addition to those of `Control`. Each has a thread and a snapshot of the database.
const MAX_QUERIES: usize = 4;
/// Maximum number of reports. Each holds a whole report in memory.
const MAX_REPORTS: usize = 2;

/// Whether and where the page is served.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum HttpListen {
    /// On loopback: port 4751, or any free one if that is taken.
    #[default]
    Default,
    At(SocketAddr),
    Off,
}

/// How the page is served.
#[derive(Clone, Debug, Default)]
pub struct HttpConfig {
    pub listen: HttpListen,
    /// File that stores the token; without it each start creates a new one.
    pub token_file: Option<PathBuf>,
    /// Host names that browsers may use, besides addresses and `localhost`.
    pub names: Vec<String>,
    /// Serve other machines, although the page has no TLS.
    pub insecure: bool,
}

/// Why the page is not served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    #[error("port {} of {} is in use: choose another with --http ADDR:PORT, or turn the page off with --http off", listen.port(), listen.ip())]
    InUse { listen: SocketAddr },
    #[error("cannot listen on {listen} for the page")]
    Listen {
        listen: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// A bound listener; [`Web::serve`] serves the page.
#[derive(Debug)]
pub struct Web {
    listener: TcpListener,
    address: SocketAddr,
    access: Arc<Access>,
}

/// Shared state of the request handlers.
#[derive(Clone, Debug)]
pub(crate) struct App {
    store: Store,
    overview: Overview,
    access: Arc<Access>,
    refusals: Arc<Refusals>,
    viewers: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    reports: Arc<Semaphore>,
    closing: CancellationToken,
}

impl Web {
    /// `None` if the page is turned off.
    pub async fn bind(config: &HttpConfig) -> Result<Option<Self>, WebError> {
        let listener = match config.listen {
            HttpListen::Off => return Ok(None),
            HttpListen::At(listen) => bind(listen).await?,
            HttpListen::Default => {
                let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let bound = match bind(loopback(DEFAULT_PORT)).await {
                    Err(WebError::InUse { .. }) => bind(loopback(0)).await,
                    bound => bound,
                };
                match bound {
                    Ok(listener) => listener,
                    // A network namespace may have no loopback. The page was not requested explicitly, so this is no
                    // error.
                    Err(error) => {
                        tracing::info!(error = crate::error_chain(&error), "no page is served");
                        return Ok(None);
                    }
                }
            }
        };
        let address = listener.local_addr().map_err(|source| WebError::Listen {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            source,
        })?;
        let token = match &config.token_file {
            Some(file) => Token::kept_in(file)?,
            None => Token::new(),
        };
        Ok(Some(Self {
            listener,
            address,
            access: Arc::new(Access::new(token, address.port(), config.names.clone())),
        }))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address with the token, for a browser on this machine.
    pub fn url(&self) -> String {
        let host = match self.address {
            at if !at.ip().is_unspecified() => at,
            at => SocketAddr::from((Ipv4Addr::LOCALHOST, at.port())),
        };
        format!("http://{host}/?token={}", self.access.token().text())
    }

    /// Serves until `closing`.
    pub(crate) async fn serve(
        self,
        store: Store,
        overview: Overview,
        refusals: Arc<Refusals>,
        closing: CancellationToken,
    ) {
        let app = App {
            store,
            overview,
            access: self.access,
            refusals,
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
            reports: Arc::new(Semaphore::new(MAX_REPORTS)),
            closing: closing.clone(),
        };
        let service = router(app).into_make_service_with_connect_info::<Client>();
        let served = axum::serve(Connections::new(self.listener), service)
            .with_graceful_shutdown(closing.cancelled_owned());
        // The server never ends with an error of its own.
        if let Err(error) = served.await {
            tracing::error!(%error, "the page is no longer served");
        }
    }
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, WebError> {
    TcpListener::bind(listen)
        .await
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => WebError::InUse { listen },
            _ => WebError::Listen { listen, source },
        })
}

/// Every route below `/api/v1`, for the router and for the test that compares `docs/openapi.json`.
fn api_routes() -> Vec<(&'static str, axum::routing::MethodRouter<App>)> {
    vec![
        ("/api/v1/overview", get(api::overview)),
        ("/api/v1/agents", get(api::agents)),
        ("/api/v1/daemons", get(api::daemons)),
        ("/api/v1/hosts", get(api::hosts)),
        ("/api/v1/events", get(api::events)),
        ("/api/v1/stream", get(stream::stream)),
        ("/api/v1/runs", get(api::runs)),
        ("/api/v1/runs/{run}", get(api::run)),
        ("/api/v1/runs/{run}/timeline", get(api::timeline)),
        ("/api/v1/runs/{run}/card", get(api::card)),
        ("/api/v1/runs/{run}/report", get(api::report)),
        ("/api/v1/runs/{run}/report.html", get(api::report_file)),
        ("/api/v1/runs/{run}/pictures", get(api::pictures)),
        ("/api/v1/baselines", get(api::baselines)),
        ("/api/v1/compare", get(compare::answer)),
        ("/api/v1/compare/pictures", get(compare::pictures)),
        ("/api/v1/compare.html", get(compare::file)),
        ("/api/v1/questions", get(api::questions)),
        ("/api/v1/query", post(query::query)),
    ]
}

fn router(app: App) -> Router {
    let api = api_routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| {
            router.route(path, methods)
        });
    api.route("/", get(assets::page))
        .route("/login", get(access::login_page).post(access::login))
        .route("/assets/{name}", get(assets::asset))
        .route("/favicon.ico", get(assets::icon))
        .route("/metrics", get(metrics::metrics))
        .route("/api/openapi.json", get(assets::openapi))
        .fallback(error::not_found)
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .layer(middleware::from_fn(error::as_document))
        .layer(middleware::from_fn_with_state(app.clone(), access::guard))
        .with_state(app)
}

#[cfg(test)]
mod tests;
