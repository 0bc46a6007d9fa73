//! The agent's side of a session: dial, hello, attach, publish, and again for as long as the agent lives.
//!
//! One connection carries both streams. Whatever ends the session, the load goes on (for its lease), the spool keeps
//! what is measured, and the next session resumes where the collector is. The loop that listens never waits for
//! anything slow: commands go to the runner, telemetry is another stream.

mod attached;
mod backoff;
mod probes;

use crate::clock::Estimate;
use crate::runner::{Contact, Runner};
use crate::spool::{Spool, SpoolError};
use crate::wire::link::{Link, LinkError, Refusal};
use crate::wire::reply::Hello;
use attached::{Farewell, attach};
use backoff::Backoff;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A session that has lasted this long was a good one.
const GOOD_AFTER: Duration = Duration::from_secs(5);
/// The pause after a refusal that only a person can end.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Why the agent gives up.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(
        "the collector at {collector} has an agent of this name or state directory already ({message}): stop the other \
         one, or start this one with another --name and --state-dir"
    )]
    AlreadyThere { collector: String, message: String },
    #[error("the collector at {collector} does not take this agent: {message}")]
    Refused { collector: String, message: String },
    #[error("the collector's address cannot be dialled")]
    Address {
        #[source]
        source: LinkError,
    },
    #[error("the spool")]
    Spool {
        #[source]
        source: SpoolError,
    },
}

/// Everything that a session needs of the others.
#[derive(Debug)]
pub struct Session {
    pub collector: String,
    /// Without spools and tasks, which change.
    pub hello: Hello,
    pub spool: Spool,
    pub runner: Runner,
    pub clock: watch::Sender<Option<Estimate>>,
    pub contact: Contact,
}

impl Session {
    /// Keeps the agent attached until `leaving`.
    ///
    /// # Errors
    /// When the collector refuses the agent's first session for good, or the spool cannot be kept. A refusal after
    /// that may be the agent's own earlier session that the collector has not missed yet: it is tried again.
    pub async fn keep(self, leaving: CancellationToken) -> Result<(), SessionError> {
        let mut random = StdRng::from_os_rng();
        let mut backoff = Backoff::default();
        let mut told = Told::default();
        let mut was_attached = false;
        loop {
            let began = Instant::now();
            let farewell = tokio::select! {
                () = leaving.cancelled() => return Ok(()),
                farewell = self.once(&mut was_attached, &leaving) => farewell,
            };
            let farewell = match farewell {
                // No other words have come from there yet.
                Farewell::Lost(LinkError::Broken { message }) if !was_attached => {
                    let message =
                        format!("{message}; is it a benchmesh collector that listens there?");
                    Farewell::Lost(LinkError::Broken { message })
                }
                other => other,
            };
            self.spool.detach().await;
            let mut pause = None;
            match farewell {
                Farewell::Left => return Ok(()),
                Farewell::Again => {
                    told.clear();
                    continue;
                }
                Farewell::Spool(source @ SpoolError::Closed) => {
                    return Err(SessionError::Spool { source });
                }
                Farewell::Spool(error) => told.spool(&error),
                Farewell::Lost(LinkError::Refused { code, message }) if !was_attached => {
                    return Err(self.refused(code, message));
                }
                Farewell::Lost(source @ LinkError::Address { .. }) => {
                    return Err(SessionError::Address { source });
                }
                Farewell::Lost(error) => {
                    if matches!(&error, LinkError::Refused { code, .. } if *code != Refusal::AlreadyThere)
                    {
                        pause = Some(REFUSED_PAUSE);
                    }
                    told.tell(&self.collector, &error);
                }
                Farewell::Closed => told.closed(&self.collector),
            }
            if began.elapsed() >= GOOD_AFTER {
                backoff.reset();
                told.clear();
            }
            let pause = pause.unwrap_or_else(|| backoff.next(&mut random));
            tokio::select! {
                () = leaving.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn refused(&self, code: Refusal, message: String) -> SessionError {
        let collector = self.collector.clone();
        match code {
            Refusal::AlreadyThere => SessionError::AlreadyThere { collector, message },
            Refusal::NotUnderstood | Refusal::NotPermitted => {
                SessionError::Refused { collector, message }
            }
        }
    }

    /// One session from the dial to its end.
    async fn once(&self, was_attached: &mut bool, leaving: &CancellationToken) -> Farewell {
        let hello = match self.spool.ids().await {
            Ok(spools) => Hello {
                spools: spools.iter().map(ToString::to_string).collect(),
                held_tasks: self.runner.held().await,
                ..self.hello.clone()
            },
            Err(error) => return Farewell::Spool(error),
        };
        let link = match Link::dial(&self.collector).await {
            Ok(link) => link,
            Err(error) => return Farewell::Lost(error),
        };
        match attach(self, link, hello).await {
            Ok(mut attached) => {
                *was_attached = true;
                attached.run(leaving).await
            }
            Err(farewell) => farewell,
        }
    }
}

/// What has been logged already: a collector that is away for a day is told of once.
#[derive(Debug, Default)]
struct Told(Option<String>);

impl Told {
    fn tell(&mut self, collector: &str, error: &LinkError) {
        let text = crate::chain(error);
        if self.0.as_ref() != Some(&text) {
            tracing::info!(collector, error = %text, "not attached; trying again for as long as it takes");
            self.0 = Some(text);
        }
    }

    fn spool(&mut self, error: &SpoolError) {
        let text = crate::chain(error);
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
