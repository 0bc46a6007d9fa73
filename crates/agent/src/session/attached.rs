//! One session: attached, listening, publishing, until something ends it.

use super::Session;
use super::probes::Probes;
use crate::clock::Filter;
use crate::runner::Voice;
use crate::runner::command::Refusal as CommandRefusal;
use crate::spool::{Attached as SpoolAttached, Sequence, SpoolError, SpoolId, WINDOW_BATCHES};
use crate::wire::command::{Heard, Welcome};
use crate::wire::link::{HeardStream, Link, LinkError, Refusal};
use crate::wire::reply::{Hello, Said};
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What may wait to be said: replies come one for each command, progress gives way, probes are few.
const SAID: usize = 256;
/// A collector that is there answers a hello within this.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// How a session ended.
#[derive(Debug)]
pub(super) enum Farewell {
    /// The agent is leaving.
    Left,
    /// The collector has closed it in order.
    Closed,
    /// It broke, or was refused.
    Lost(LinkError),
    /// The spools have changed and must be announced again.
    Again,
    /// The spool cannot be kept.
    Spool(SpoolError),
}

/// A session that has been taken in.
pub(super) struct AttachedSession<'a> {
    session: &'a Session,
    said: mpsc::Sender<Said>,
    heard: HeardStream,
    publishing: BoxFuture<'a, Farewell>,
    probes: Probes,
    filter: Filter,
    /// Whether a message that cannot be was logged.
    complained: bool,
}

/// Says hello, and waits to be taken in.
pub(super) async fn attach(
    session: &Session,
    mut link: Link,
    hello: Hello,
) -> Result<AttachedSession<'_>, Farewell> {
    let (said, said_out) = mpsc::channel(SAID);
    let first = said.send(Said::Hello(Box::new(hello))).await;
    debug_assert!(first.is_ok(), "the receiver is in this function");
    let (heard, welcome) = tokio::time::timeout(WELCOME_TIMEOUT, welcome(&mut link, said_out))
        .await
        .unwrap_or_else(|_| {
            Err(LinkError::Broken {
                message: format!("no welcome within {} s", WELCOME_TIMEOUT.as_secs()),
            })
        })
        .map_err(Farewell::Lost)?;
    session.contact.heard();
    // The runner first: what its tasks still say must not get into another mesh's spool.
    session.runner.mesh(welcome.mesh_uid.clone()).await;
    let (parcels, parcels_out) = mpsc::channel(WINDOW_BATCHES);
    let attached = session
        .spool
        .attach(
            welcome.mesh_uid.clone(),
            positions(&welcome.spools),
            parcels,
        )
        .await
        .map_err(Farewell::Spool)?;
    if attached == SpoolAttached::Again {
        return Err(Farewell::Again);
    }
    session.runner.appoint(welcome.sampling).await;
    tracing::info!(
        collector = %session.collector, mesh = %welcome.mesh_uid, agent = welcome.agent_id, "attached"
    );
    let token = welcome.session;
    let publishing = Box::pin(async move {
        let Err(farewell) = publish(session, link, &token, parcels_out).await;
        farewell
    });
    Ok(AttachedSession {
        session,
        said,
        heard,
        publishing,
        probes: Probes::new(),
        filter: Filter::default(),
        complained: false,
    })
}

async fn welcome(
    link: &mut Link,
    said: mpsc::Receiver<Said>,
) -> Result<(HeardStream, Welcome), LinkError> {
    let mut heard = link.attach(said).await?;
    let welcome = match heard.next().await? {
        Some(Heard::Welcome(welcome)) => *welcome,
        Some(_) => {
            return Err(LinkError::Broken {
                message: "it did not begin with a welcome".to_owned(),
            });
        }
        None => {
            return Err(LinkError::Broken {
                message: "closed before the welcome".to_owned(),
            });
        }
    };
    crate::wire::check_version(&welcome)?;
    Ok((heard, welcome))
}

/// What the collector has of our spools. A spool that is not one of ours does not concern us.
fn positions(spools: &[(String, u64)]) -> HashMap<SpoolId, Sequence> {
    spools
        .iter()
        .filter_map(|(id, last)| Some((SpoolId(Uuid::parse_str(id).ok()?), Sequence(*last))))
        .collect()
}

/// Sends batches and takes acks until that ends.
async fn publish(
    session: &Session,
    mut link: Link,
    token: &str,
    parcels: mpsc::Receiver<crate::spool::Parcel>,
) -> Result<std::convert::Infallible, Farewell> {
    let lost = |error: LinkError| Farewell::Lost(error);
    let mut acks = match link.publish(token, parcels).await {
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
                    .map_err(Farewell::Spool)?;
            }
            Ok(None) => return Err(Farewell::Closed),
            Err(error @ LinkError::Refused { .. }) => return Err(refusing(session, error).await),
            Err(error) => return Err(lost(error)),
        }
    }
}

/// A batch that is refused again and again is set aside by the spool; the session begins anew in any case.
async fn refusing(session: &Session, error: LinkError) -> Farewell {
    match error {
        LinkError::Refused {
            code: Refusal::NotUnderstood,
            message,
        } => {
            session.spool.refused(message.clone()).await;
            Farewell::Lost(LinkError::Broken {
                message: format!("a batch was refused: {message}"),
            })
        }
        LinkError::Refused { message, .. } => Farewell::Lost(LinkError::Broken {
            message: format!("publishing was refused: {message}"),
        }),
        other => Farewell::Lost(other),
    }
}

impl AttachedSession<'_> {
    /// Listens until the session ends.
    pub(super) async fn run(&mut self, leaving: &CancellationToken) -> Farewell {
        loop {
            tokio::select! {
                () = leaving.cancelled() => return Farewell::Left,
                heard = self.heard.next() => match heard {
                    Ok(Some(heard)) => self.hear(heard).await,
                    Ok(None) => return Farewell::Closed,
                    Err(LinkError::Message { source }) => self.complain(&source),
                    Err(error) => return Farewell::Lost(error),
                },
                () = self.probes.due() => {
                    let sent = self.probes.send();
                    // When so much waits to be said, a probe would only measure the queue.
                    let _ = self.said.try_send(Said::Probe { sent });
                }
                farewell = &mut self.publishing => return farewell,
            }
        }
    }

    async fn hear(&mut self, heard: Heard) {
        self.session.contact.heard();
        match heard {
            Heard::Command(command) => self.session.runner.order(*command, self.said.clone()).await,
            Heard::BadCommand { id, error } => {
                let refusal = CommandRefusal::failed(format!("the command cannot be: {error}"));
                Voice::new(id, self.said.clone()).reply(Err(refusal));
            }
            Heard::Clock {
                sent,
                mesh_received_ns,
                mesh_sent_ns,
            } => {
                if !self.probes.answered(sent) {
                    tracing::debug!("an answer to no probe of this session");
                    return;
                }
                match self
                    .filter
                    .add(Heard::exchange(sent, mesh_received_ns, mesh_sent_ns))
                {
                    Ok(estimate) => {
                        self.session.clock.send_replace(Some(estimate));
                    }
                    Err(error) => self.complain(&error),
                }
            }
            Heard::Welcome(_) => tracing::debug!("welcome a second time"),
        }
    }

    /// Once for each session: a collector that goes on like this must not fill the log.
    fn complain(&mut self, error: &dyn std::error::Error) {
        if !self.complained {
            self.complained = true;
            tracing::warn!(error = %crate::chain(error), "the collector says what cannot be; it is ignored");
        }
    }
}
