//! One attached session: receives messages and publishes telemetry until something ends it.

use super::Session;
use super::probes::Probes;
use crate::clock::Filter;
use crate::command::Refusal as CommandRefusal;
use crate::envelope::{Sequence, SpoolId};
use crate::runner::ReplyHandle;
use crate::spool::{Attached as SpoolAttached, SpoolError, WINDOW_BATCHES};
use crate::wire::command::{Incoming, Welcome};
use crate::wire::connection::{Connection, ConnectionError, IncomingStream, RejectCode};
use crate::wire::reply::{Hello, Outgoing};
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Capacity of the outgoing queue. Each command has one reply, and probes are rare; progress is dropped when the queue
/// is full.
const OUTGOING_CAPACITY: usize = 256;
/// A reachable collector answers a hello within this time.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// How a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The agent leaves.
    Left,
    /// The collector closed it regularly.
    Closed,
    /// The connection broke or was refused.
    Lost(ConnectionError),
    /// The spools have changed and must be announced again.
    Again,
    /// The spool has failed.
    Spool(SpoolError),
}

/// Outlives sessions: the time exchanges with the most recent mesh.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    mesh: String,
    /// Kept between sessions: a gap may fall between two of them.
    filter: Filter,
    newest_run: Option<i64>,
}

impl Exchanges {
    /// Resets the state for another mesh.
    fn with(&mut self, mesh: &str) -> &mut Self {
        if self.mesh != mesh {
            *self = Self::default();
            mesh.clone_into(&mut self.mesh);
        }
        self
    }

    /// The mesh, and the largest run id in it that a command referred to.
    pub(super) fn newest_run(&self) -> Option<(String, i64)> {
        Some((self.mesh.clone(), self.newest_run?))
    }
}

/// A session accepted by the collector.
pub(super) struct AttachedSession<'a> {
    session: &'a Session,
    outgoing: mpsc::Sender<Outgoing>,
    incoming: IncomingStream,
    publishing: BoxFuture<'a, SessionEnd>,
    probes: Probes,
    exchanges: &'a mut Exchanges,
    /// Whether an invalid message has been logged.
    complained: bool,
}

/// Sends the hello and waits for the welcome.
pub(super) async fn attach<'a>(
    session: &'a Session,
    mut connection: Connection,
    hello: Hello,
    exchanges: &'a mut Exchanges,
) -> Result<AttachedSession<'a>, SessionEnd> {
    let (outgoing, outgoing_out) = mpsc::channel(OUTGOING_CAPACITY);
    let first = outgoing.send(Outgoing::Hello(Box::new(hello))).await;
    debug_assert!(first.is_ok(), "the receiver is in this function");
    let (incoming, welcome) =
        tokio::time::timeout(WELCOME_TIMEOUT, welcome(&mut connection, outgoing_out))
            .await
            .unwrap_or_else(|_| {
                Err(ConnectionError::Broken {
                    message: format!("no welcome within {} s", WELCOME_TIMEOUT.as_secs()),
                })
            })
            .map_err(SessionEnd::Lost)?;
    session.contact.touch();
    // Notify the runner first: pending reports of its tasks must not enter another database's spool.
    session.runner.mesh(welcome.mesh_uid.clone()).await;
    let stored = positions(&welcome.spools);
    let restored = session
        .spool
        .is_ahead_of(welcome.mesh_uid.clone(), stored.clone())
        .await
        .map_err(SessionEnd::Spool)?;
    if let Some(stored) = restored {
        session.runner.database_restored(stored).await;
    }
    let (envelopes, envelopes_out) = mpsc::channel(WINDOW_BATCHES);
    let attached = session
        .spool
        .attach(welcome.mesh_uid.clone(), stored, envelopes)
        .await
        .map_err(SessionEnd::Spool)?;
    if attached == SpoolAttached::Again {
        return Err(SessionEnd::Again);
    }
    session.runner.appoint(welcome.sampling).await;
    tracing::info!(
        collector = %session.collector, mesh = %welcome.mesh_uid, agent = welcome.agent_id, "attached"
    );
    let exchanges = exchanges.with(&welcome.mesh_uid);
    let token = welcome.session;
    let publishing = Box::pin(async move {
        let Err(end) = publish(session, connection, &token, envelopes_out).await;
        end
    });
    Ok(AttachedSession {
        session,
        outgoing,
        incoming,
        publishing,
        probes: Probes::new(),
        exchanges,
        complained: false,
    })
}

async fn welcome(
    connection: &mut Connection,
    outgoing: mpsc::Receiver<Outgoing>,
) -> Result<(IncomingStream, Welcome), ConnectionError> {
    let mut incoming = connection.attach(outgoing).await?;
    let welcome = match incoming.next().await? {
        Some(Incoming::Welcome(welcome)) => *welcome,
        Some(_) => {
            return Err(ConnectionError::Broken {
                message: "it did not begin with a welcome".to_owned(),
            });
        }
        None => {
            return Err(ConnectionError::Broken {
                message: "closed before the welcome".to_owned(),
            });
        }
    };
    crate::wire::check_version(&welcome)?;
    Ok((incoming, welcome))
}

/// The collector's positions in our spools. Unknown spools are ignored.
fn positions(spools: &[(String, u64)]) -> HashMap<SpoolId, Sequence> {
    spools
        .iter()
        .filter_map(|(id, last)| Some((SpoolId(Uuid::parse_str(id).ok()?), Sequence(*last))))
        .collect()
}

/// Sends batches and takes acks until the stream ends.
async fn publish(
    session: &Session,
    mut connection: Connection,
    token: &str,
    envelopes: mpsc::Receiver<crate::envelope::Envelope>,
) -> Result<std::convert::Infallible, SessionEnd> {
    let lost = |error: ConnectionError| SessionEnd::Lost(error);
    let mut acks = match connection.publish(token, envelopes).await {
        Ok(acks) => acks,
        Err(error) => return Err(refusing(session, error).await),
    };
    loop {
        match acks.next().await {
            Ok(Some((spool, sequence))) => {
                session
                    .spool
                    .ack(spool, sequence)
                    .await
                    .map_err(SessionEnd::Spool)?;
            }
            Ok(None) => return Err(SessionEnd::Closed),
            Err(error @ ConnectionError::Refused { .. }) => {
                return Err(refusing(session, error).await);
            }
            Err(error) => return Err(lost(error)),
        }
    }
}

/// Handles a refused batch. The spool sets aside one that is refused repeatedly; the session restarts in any case.
async fn refusing(session: &Session, error: ConnectionError) -> SessionEnd {
    match error {
        ConnectionError::Refused {
            code: RejectCode::NotUnderstood,
            message,
        } => {
            session.spool.refused(message.clone()).await;
            SessionEnd::Lost(ConnectionError::Broken {
                message: format!("a batch was refused: {message}"),
            })
        }
        ConnectionError::Refused { message, .. } => SessionEnd::Lost(ConnectionError::Broken {
            message: format!("publishing was refused: {message}"),
        }),
        other => SessionEnd::Lost(other),
    }
}

impl AttachedSession<'_> {
    /// Handles messages until the session ends. An agent that is leaving ends it when the collector has everything.
    pub(super) async fn run(&mut self, leaving: &CancellationToken) -> SessionEnd {
        let mut is_leaving = false;
        let mut blocked = self.session.spool.blocked();
        // The spool may have been blocked before this session.
        blocked.mark_changed();
        loop {
            tokio::select! {
                () = leaving.cancelled(), if !is_leaving => {
                    is_leaving = true;
                    self.session.spool.finish().await;
                }
                incoming = self.incoming.next() => match incoming {
                    Ok(Some(incoming)) => self.on_message(incoming).await,
                    Ok(None) => return SessionEnd::Closed,
                    Err(ConnectionError::Message { source }) => self.complain(&source),
                    Err(error) => return SessionEnd::Lost(error),
                },
                () = self.probes.due() => {
                    let sent = self.probes.send();
                    // With a full queue, a probe would only measure the queue.
                    let _ = self.outgoing.try_send(Outgoing::Probe { sent });
                }
                Ok(()) = blocked.changed() => {
                    if let Some(since) = *blocked.borrow_and_update() {
                        // A full queue means that the session is about to end; the next one reports it again.
                        let _ = self.outgoing.try_send(Outgoing::SpoolBlocked { since });
                    }
                }
                end = &mut self.publishing => match is_leaving {
                    true => return SessionEnd::Left,
                    false => return end,
                },
            }
        }
    }

    async fn on_message(&mut self, incoming: Incoming) {
        self.session.contact.touch();
        match incoming {
            Incoming::Command(command) => {
                let newest_run = &mut self.exchanges.newest_run;
                *newest_run = (*newest_run).max(command.run.map(|run| run.0));
                self.session
                    .runner
                    .execute(*command, self.outgoing.clone())
                    .await
            }
            Incoming::BadCommand { id, error } => {
                let refusal = CommandRefusal::failed(format!("invalid command: {error}"));
                ReplyHandle::new(id, self.outgoing.clone()).reply(Err(refusal));
            }
            Incoming::Clock {
                sent,
                mesh_received_ns,
                mesh_sent_ns,
            } => {
                if !self.probes.answered(sent) {
                    tracing::debug!("an answer to no probe of this session");
                    return;
                }
                match self.exchanges.filter.add(Incoming::exchange(
                    sent,
                    mesh_received_ns,
                    mesh_sent_ns,
                )) {
                    Ok(estimate) => {
                        self.session.clock.send_replace(Some(estimate));
                        if let Some(gap) = estimate.gap {
                            self.session.runner.clock_gap(gap).await;
                        }
                    }
                    Err(error) => self.complain(&error),
                }
            }
            Incoming::Welcome(_) => tracing::debug!("welcome a second time"),
        }
    }

    /// Logs once per session: a misbehaving collector must not fill the log.
    fn complain(&mut self, error: &dyn std::error::Error) {
        if !self.complained {
            self.complained = true;
            tracing::warn!(error = %benchmesh_workloads::error_chain(error), "ignored an invalid message from the collector");
        }
    }
}
