//! The other process: the requested number of agents, each with its two streams, sending as fast as it is acknowledged.
//!
//! Prints the acknowledged rows, the seconds from the first batch to the last acknowledgement, CPU seconds, and the number
//! of cut connections.

use crate::load::Beats;
use crate::{Options, usage};
use benchmesh_proto::v1::agent_message::Body as AgentBody;
use benchmesh_proto::v1::collector_message::Body as FromCollector;
use benchmesh_proto::v1::mesh_client::MeshClient;
use benchmesh_proto::{MAX_MESSAGE_BYTES, SESSION_KEY, WIRE_VERSION, v1 as proto};
use benchmesh_trust::{
    Credentials, Evidence, NewKey, Role, Security, TcpConnection, credentials, enrol,
};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// Batches that a session sends ahead of their acknowledgement.
const AHEAD: u64 = 128;
/// No connection is cut later than this before the end, because what was sent before a cut counts only afterwards.
const ATTACHES_WITHIN: Duration = Duration::from_secs(3);

pub fn run(options: &Options) {
    // One thread is enough for encoding, and leaves the other CPU to the collector.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (sent, seconds) = runtime.block_on(sessions(options));
    let rows = sent.batches * options.rows_of_a_batch() as u64;
    let cpu = usage::cpu().as_secs_f64();
    println!("{rows} {seconds} {cpu} {}", sent.cuts);
}

/// What sessions sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Number of acknowledged batches.
    batches: u64,
    /// Number of cut connections.
    cuts: u64,
}

async fn sessions(options: &Options) -> (Sent, f64) {
    let mut attached = Vec::new();
    for session in 0..options.sessions {
        let agent = Agent::enrolled(options, session).await;
        let link = agent.attach().await;
        attached.push((agent, link));
    }
    let began = Instant::now();
    let until = began + Duration::from_secs(options.seconds);
    let mut running = JoinSet::new();
    for (session, (agent, link)) in attached.into_iter().enumerate() {
        let beats = Beats::new(agent.spool_id(), options.daemons, options.beats);
        let cut_every = (options.cut_every > 0).then(|| Duration::from_secs(options.cut_every));
        // One session after the other.
        let first =
            cut_every.map(|every| began + every * (session as u32 + 1) / options.sessions as u32);
        running.spawn(send(agent, link, beats, until, first.zip(cut_every)));
    }
    let mut sum = Sent::default();
    while let Some(sent) = running.join_next().await {
        let Sent { batches, cuts } = sent.unwrap();
        sum.batches += batches;
        sum.cuts += cuts;
    }
    (sum, began.elapsed().as_secs_f64())
}

/// Sends until `until`. At each cut, the connection is lost, and the agent attaches again and continues after the last
/// acknowledged batch.
async fn send(
    agent: Agent,
    mut link: Link,
    mut beats: Beats,
    until: Instant,
    mut cuts: Option<(Instant, Duration)>,
) -> Sent {
    let mut sent = Sent::default();
    loop {
        let cut = cuts
            .map(|(next, _)| next)
            .filter(|next| *next + ATTACHES_WITHIN < until);
        sent.batches = link.publish(beats.clone(), until, cut).await;
        if cut.is_none() {
            return sent;
        }
        sent.cuts += 1;
        link = agent.attach().await;
        beats = beats.after(sent.batches);
        cuts = cuts.map(|(next, every)| (next + every, every));
    }
}

/// An agent of this process, with its own certificate.
struct Agent {
    name: String,
    session: usize,
    address: String,
    security: Security,
}

impl Agent {
    async fn enrolled(options: &Options, session: usize) -> Self {
        let name = format!("agent-{session}");
        let address = options.address.clone();
        let security = match &options.credentials {
            None => Security::Plain,
            Some(directory) => {
                let file = credentials::file_for(directory, &address);
                let owner = Credentials::load(&file).unwrap().unwrap();
                let ca = owner.ca_fingerprint().unwrap();
                let channel = dial(&address, Security::of(&owner).unwrap()).await;
                let key = NewKey::make().unwrap();
                let own = enrol(channel, &key, Role::Agent, &name, ca, Evidence::default()).await;
                Security::of(&own.unwrap()).unwrap()
            }
        };
        Self {
            name,
            session,
            address,
            security,
        }
    }

    fn spool_id(&self) -> String {
        format!("spool-{}", self.session)
    }

    async fn attach(&self) -> Link {
        let channel = dial(&self.address, self.security.clone()).await;
        let mut client = MeshClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let session = self.session;
        let (said, messages) = mpsc::channel(4);
        let hello = proto::Hello {
            wire_version: WIRE_VERSION,
            version: "0".to_owned(),
            agent_uid: format!("uid-{session}"),
            name: self.name.clone(),
            host: Some(proto::Host {
                boot_id: format!("boot-{session}"),
                pid_namespace: "pid:[1]".to_owned(),
                name: format!("host-{session}"),
                kernel: "Linux 6.18".to_owned(),
                cpus: 2,
                memory_bytes: 1 << 34,
            }),
            net_namespace: format!("net:[{session}]"),
            spool_ids: vec![self.spool_id()],
            window_batches: AHEAD as u32,
            ..proto::Hello::default()
        };
        let hello = proto::AgentMessage {
            body: Some(AgentBody::Hello(hello)),
        };
        said.send(hello).await.unwrap();
        let mut down = client
            .attach(ReceiverStream::new(messages))
            .await
            .unwrap()
            .into_inner();
        let Some(FromCollector::Welcome(welcome)) = down.message().await.unwrap().unwrap().body
        else {
            panic!("not welcome");
        };
        let mut control = JoinSet::new();
        control.spawn(async move { while let Ok(Some(_)) = down.message().await {} });
        control.spawn(show_life(said));
        Link {
            client,
            token: welcome.session,
            control,
        }
    }
}

async fn dial(address: &str, security: Security) -> Channel {
    let connection = TcpConnection::at(address).await.unwrap();
    connection.dial(security).await.unwrap()
}

/// A session; dropping it closes its connection.
struct Link {
    client: MeshClient<Channel>,
    token: String,
    /// Keeps the control stream open, and discards its messages.
    control: JoinSet<()>,
}

impl Link {
    /// Sends until `until` and waits for every acknowledgement, or ends at the cut. Returns the last acknowledged
    /// sequence.
    async fn publish(self, mut beats: Beats, until: Instant, cut: Option<Instant>) -> u64 {
        let Self {
            mut client,
            token,
            mut control,
        } = self;
        let first = beats.sequence();
        let (acknowledged, mut seen) = watch::channel(first);
        let (batches, outgoing) = mpsc::channel(4);
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        request
            .metadata_mut()
            .insert(SESSION_KEY, token.parse().unwrap());
        let (over, mut sent) = watch::channel(None);
        control.spawn(async move {
            while Instant::now() < until {
                let ahead = beats.sequence();
                let room = seen.wait_for(|acknowledged| ahead - acknowledged < AHEAD);
                if room.await.is_err() || batches.send(beats.next_batch()).await.is_err() {
                    return;
                }
            }
            over.send_replace(Some(beats.sequence()));
        });
        let publishing = async {
            let mut acks = client.publish(request).await.unwrap().into_inner();
            while let Some(ack) = acks.next().await {
                let ack = ack.unwrap();
                acknowledged.send_modify(|last| *last = ack.sequence.max(*last));
            }
        };
        match cut {
            None => {
                publishing.await;
                let sent = *sent.wait_for(Option::is_some).await.unwrap();
                let all = Some(*acknowledged.borrow());
                assert_eq!(all, sent, "batches without an acknowledgement");
            }
            Some(cut) => tokio::select! {
                () = publishing => panic!("the collector ended a stream"),
                () = sleep_until(cut) => {}
            },
        }
        *acknowledged.borrow()
    }
}

/// Sends a clock probe every second, because a silent agent is considered lost.
async fn show_life(said: mpsc::Sender<proto::AgentMessage>) {
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    loop {
        beat.tick().await;
        let probe = proto::ClockProbe { agent_sent_ns: 1 };
        let probe = proto::AgentMessage {
            body: Some(AgentBody::ClockProbe(probe)),
        };
        if said.send(probe).await.is_err() {
            return;
        }
    }
}
