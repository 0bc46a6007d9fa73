//! The agent's side of a session: dial, hello, attach, publish, repeated for the agent's lifetime.
//!
//! One connection carries both streams. When a session ends, the load continues (for its lease), the spool keeps the
//! telemetry, and the next session resumes at the collector's position. The receiving loop never waits for slow work:
//! commands go to the runner, telemetry is another stream.

mod attached;
mod backoff;
mod probes;

use crate::Status;
use crate::clock::Estimate;
use crate::identity::{Identity, IdentityError};
use crate::runner::{Contact, Runner};
use crate::spool::{Spool, SpoolError};
use crate::wire::connection::{Connection, ConnectionError, RejectCode};
use crate::wire::reply::Hello;
use attached::{Exchanges, SessionEnd, attach};
use backoff::Backoff;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A session that lasted this long resets the backoff.
const GOOD_AFTER: Duration = Duration::from_secs(5);
/// Delay after a refusal that needs an operator.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// A starting collector is ready within this time.
const COLLECTOR_STARTS_WITHIN: Duration = Duration::from_secs(5);

/// Why the agent gives up.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(
        "the collector at {collector} has an agent of this name or state directory already ({message}): stop the other \
         one, or start this one with another --name and --state-dir"
    )]
    AlreadyThere { collector: String, message: String },
    #[error("the collector at {collector} rejects this agent: {message}")]
    Refused { collector: String, message: String },
    #[error("the agent cannot authenticate itself to the collector at {collector}")]
    Identity {
        collector: String,
        #[source]
        source: Box<IdentityError>,
    },
    #[error("the spool")]
    Spool {
        #[source]
        source: SpoolError,
    },
}

/// Dependencies of a session on the rest of the agent.
#[derive(Debug)]
pub struct Session {
    pub collector: String,
    pub identity: Identity,
    /// Without spools and tasks, which change between sessions.
    pub hello: Hello,
    pub spool: Spool,
    pub runner: Runner,
    pub clock: watch::Sender<Option<Estimate>>,
    pub contact: Contact,
    pub status: watch::Sender<Status>,
}

impl Session {
    /// Keeps the agent attached until `leaving`.
    ///
    /// # Errors
    ///
    /// When the collector permanently refuses the agent's first session, or the spool fails. A later refusal may come
    /// from the agent's own earlier session, not yet noticed as lost by the collector, and is retried.
    pub async fn keep(self, leaving: CancellationToken) -> Result<(), SessionError> {
        if self.identity.insecure {
            tracing::warn!(
                collector = %self.collector,
                "connects without TLS (--insecure): anyone who takes over the collector's port can command this agent"
            );
            return self.keep_attached(leaving).await;
        }
        tokio::select! {
            ended = self.keep_attached(leaving) => ended,
            never = self.identity.keep_renewed() => match never {},
        }
    }

    async fn keep_attached(&self, leaving: CancellationToken) -> Result<(), SessionError> {
        let mut random = StdRng::from_os_rng();
        let mut backoff = Backoff::default();
        let mut logged = LoggedOnce::default();
        let mut was_attached = false;
        let mut exchanges = Exchanges::default();
        let mut refused_since = None;
        loop {
            let began = Instant::now();
            let end = match self.once(&mut was_attached, &mut exchanges, &leaving).await {
                // This peer has not sent any other message yet.
                SessionEnd::Lost(ConnectionError::Broken { message }) if !was_attached => {
                    let message =
                        format!("{message}; is it a benchmesh collector that listens there?");
                    SessionEnd::Lost(ConnectionError::Broken { message })
                }
                other => other,
            };
            self.spool.detach().await;
            let mut pause = None;
            match end {
                SessionEnd::Left => return Ok(()),
                SessionEnd::Again => {
                    logged.clear();
                    continue;
                }
                SessionEnd::Spool(source @ SpoolError::Closed) => {
                    return Err(SessionError::Spool { source });
                }
                SessionEnd::Spool(error) => logged.spool(&error),
                SessionEnd::Lost(ConnectionError::Refused { code, message }) if !was_attached => {
                    return Err(self.refused(code, message));
                }
                SessionEnd::Lost(ConnectionError::Identity(source))
                    if !was_attached
                        && source.is_final()
                        && !(source.may_be_starting()
                            && refused_since.get_or_insert(began).elapsed()
                                < COLLECTOR_STARTS_WITHIN) =>
                {
                    return Err(SessionError::Identity {
                        collector: self.collector.clone(),
                        source,
                    });
                }
                // The collector may be starting: no action is needed.
                SessionEnd::Lost(ConnectionError::Identity(error))
                    if error.needs_a_person() && (was_attached || !error.may_be_starting()) =>
                {
                    logged.distrust(&self.collector, &error);
                }
                SessionEnd::Lost(error) => {
                    if matches!(&error, ConnectionError::Refused { code, .. } if *code != RejectCode::AlreadyThere)
                    {
                        pause = Some(REFUSED_PAUSE);
                    }
                    logged.log_once(&self.collector, &error);
                }
                SessionEnd::Closed => logged.closed(&self.collector),
            }
            if began.elapsed() >= GOOD_AFTER {
                backoff.reset();
                logged.clear();
            }
            let pause = pause.unwrap_or_else(|| backoff.next(&mut random));
            tokio::select! {
                () = leaving.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn refused(&self, code: RejectCode, message: String) -> SessionError {
        let collector = self.collector.clone();
        match code {
            RejectCode::AlreadyThere => SessionError::AlreadyThere { collector, message },
            RejectCode::NotUnderstood | RejectCode::NotPermitted => {
                SessionError::Refused { collector, message }
            }
        }
    }

    /// Runs one session from dialing to its end.
    async fn once(
        &self,
        was_attached: &mut bool,
        exchanges: &mut Exchanges,
        leaving: &CancellationToken,
    ) -> SessionEnd {
        let hello = match self.spool.announce().await {
            Ok(spools) => Hello {
                spools,
                newest_run: exchanges.newest_run(),
                held_tasks: self.runner.held().await,
                ..self.hello.clone()
            },
            Err(error) => return SessionEnd::Spool(error),
        };
        let attached = async {
            let channel =
                self.identity.dial().await.map_err(|error| {
                    SessionEnd::Lost(ConnectionError::Identity(Box::new(error)))
                })?;
            attach(self, Connection::over(channel), hello, exchanges).await
        };
        let attached = tokio::select! {
            () = leaving.cancelled() => return SessionEnd::Left,
            attached = attached => attached,
        };
        match attached {
            Ok(mut attached) => {
                *was_attached = true;
                self.status.send_replace(Status::Attached);
                let end = attached.run(leaving).await;
                self.status.send_replace(Status::NotAttached);
                end
            }
            Err(end) => end,
        }
    }
}

/// The last logged message, so that a collector that is down for a day is logged once.
#[derive(Debug, Default)]
struct LoggedOnce(Option<String>);

impl LoggedOnce {
    fn log_once(&mut self, collector: &str, error: &ConnectionError) {
        let text = benchmesh_workloads::error_chain(error);
        if self.0.as_ref() != Some(&text) {
            tracing::info!(collector, error = %text, "not attached; retrying until it succeeds");
            self.0 = Some(text);
        }
    }

    fn distrust(&mut self, collector: &str, error: &IdentityError) {
        let text = benchmesh_workloads::error_chain(error);
        if self.0.as_ref() != Some(&text) {
            tracing::warn!(collector, error = %text, "not attached: the certificate needs attention, see docs/security.md; retrying until it succeeds");
            self.0 = Some(text);
        }
    }

    fn spool(&mut self, error: &SpoolError) {
        let text = benchmesh_workloads::error_chain(error);
        if self.0.as_ref() != Some(&text) {
            tracing::warn!(error = %text, "not attached, because the spool cannot be used; trying again");
            self.0 = Some(text);
        }
    }

    fn closed(&mut self, collector: &str) {
        tracing::info!(collector, "the collector has closed the session");
        self.0 = None;
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}
