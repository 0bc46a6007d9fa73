//! The other process: the requested number of agents, each with its two streams, sending as fast as it is acknowledged.
//!
//! Prints the acknowledged rows, the seconds from the first batch to the last acknowledgement, and CPU seconds.

use crate::load::Beats;
use crate::{Options, usage};
use benchmesh_proto::v1::agent_message::Body as AgentBody;
use benchmesh_proto::v1::collector_message::Body as FromCollector;
use benchmesh_proto::v1::mesh_client::MeshClient;
use benchmesh_proto::{MAX_MESSAGE_BYTES, SESSION_KEY, WIRE_VERSION, v1 as proto};
use benchmesh_trust::{
    Credentials, Evidence, NewKey, Role, Security, TcpConnection, credentials, enrol,
};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// Batches that a session sends ahead of their acknowledgement.
const AHEAD: u64 = 128;

pub fn run(options: &Options) {
    // One thread is enough for encoding, and leaves the other CPU to the collector.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (batches, seconds) = runtime.block_on(sessions(options));
    let rows = batches * options.rows_of_a_batch() as u64;
    println!("{rows} {seconds} {}", usage::cpu().as_secs_f64());
}

async fn sessions(options: &Options) -> (u64, f64) {
    let mut attached = Vec::new();
    for session in 0..options.sessions {
        attached.push(attach(options, session).await);
    }
    let began = Instant::now();
    let until = began + Duration::from_secs(options.seconds);
    let mut running = tokio::task::JoinSet::new();
    for (session, (client, token, control)) in attached.into_iter().enumerate() {
        let beats = Beats::new(format!("spool-{session}"), options.daemons, options.beats);
        running.spawn(publish(client, token, control, beats, until));
    }
    let mut batches = 0;
    while let Some(sent) = running.join_next().await {
        batches += sent.unwrap();
    }
    (batches, began.elapsed().as_secs_f64())
}

/// Keeps the control stream open, and discards its messages.
struct Control(
    #[expect(dead_code, reason = "dropping it ends the session")] mpsc::Sender<proto::AgentMessage>,
);

/// Connects as an agent of this name.
async fn dial(options: &Options, name: &str) -> Channel {
    let connection = async || TcpConnection::at(&options.address).await.unwrap();
    let Some(directory) = &options.credentials else {
        return connection().await.dial(Security::Plain).await.unwrap();
    };
    let file = credentials::file_for(directory, &options.address);
    let owner = Credentials::load(&file).unwrap().unwrap();
    let ca = owner.ca_fingerprint().unwrap();
    let channel = connection().await.dial(Security::of(&owner).unwrap()).await;
    let key = NewKey::make().unwrap();
    let evidence = Evidence::default();
    let own = enrol(channel.unwrap(), &key, Role::Agent, name, ca, evidence).await;
    let security = Security::of(&own.unwrap()).unwrap();
    connection().await.dial(security).await.unwrap()
}

async fn attach(options: &Options, session: usize) -> (MeshClient<Channel>, String, Control) {
    let channel = dial(options, &format!("agent-{session}")).await;
    let mut client = MeshClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let (said, messages) = mpsc::channel(4);
    let hello = proto::Hello {
        wire_version: WIRE_VERSION,
        version: "0".to_owned(),
        agent_uid: format!("uid-{session}"),
        name: format!("agent-{session}"),
        host: Some(proto::Host {
            boot_id: format!("boot-{session}"),
            pid_namespace: "pid:[1]".to_owned(),
            name: format!("host-{session}"),
            kernel: "Linux 6.18".to_owned(),
            cpus: 2,
            memory_bytes: 1 << 34,
        }),
        net_namespace: format!("net:[{session}]"),
        spool_ids: vec![format!("spool-{session}")],
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
    let Some(FromCollector::Welcome(welcome)) = down.message().await.unwrap().unwrap().body else {
        panic!("not welcome");
    };
    tokio::spawn(async move { while let Ok(Some(_)) = down.message().await {} });
    tokio::spawn(show_life(said.clone()));
    (client, welcome.session, Control(said))
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

/// Sends until `until`, then waits for every acknowledgement. Returns the number of batches.
async fn publish(
    mut client: MeshClient<Channel>,
    token: String,
    control: Control,
    mut beats: Beats,
    until: Instant,
) -> u64 {
    let (acknowledged, mut seen) = watch::channel(0_u64);
    let (batches, outgoing) = mpsc::channel(4);
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    request
        .metadata_mut()
        .insert(SESSION_KEY, token.parse().unwrap());
    let sender = tokio::spawn(async move {
        let mut sent = 0;
        while Instant::now() < until {
            seen.wait_for(|acknowledged| sent - acknowledged < AHEAD)
                .await
                .unwrap();
            batches.send(beats.next_batch()).await.unwrap();
            sent += 1;
        }
        sent
    });
    let mut acks = client.publish(request).await.unwrap().into_inner();
    while let Some(ack) = acks.next().await {
        let ack = ack.unwrap();
        acknowledged.send_modify(|last| *last = ack.sequence.max(*last));
    }
    let sent = sender.await.unwrap();
    assert_eq!(
        *acknowledged.borrow(),
        sent,
        "batches without an acknowledgement"
    );
    drop(control);
    sent
}
