//! The real collector in this process and its agents in another one. Each agent has a certificate and two streams, and
//! sends as fast as it is acknowledged. What is acknowledged is then counted in the database.

use crate::{Beats, Size, cpu, directory, history, option, spread};
use benchmesh_collector::trust::{CERTIFICATE_LIFETIME, Security};
use benchmesh_collector::web::{HttpConfig, HttpListen};
use benchmesh_collector::{Collector, CollectorConfig};
use benchmesh_proto::v1::agent_message::Body as AgentBody;
use benchmesh_proto::v1::mesh_client::MeshClient;
use benchmesh_proto::v1::{self as proto, collector_message::Body as FromCollector};
use benchmesh_proto::{MAX_MESSAGE_BYTES, SESSION_KEY, WIRE_VERSION};
use benchmesh_store::retention::{KeepFor, Retention};
use benchmesh_synthetic::{T0_US, generate};
use benchmesh_trust::{self as trust, Credentials, Evidence, NewKey, Role, TcpConnection};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// Batches that an agent sends ahead of their acknowledgement.
const AHEAD: u64 = 128;
/// No connection is cut later than this before the end, because what was sent before a cut counts only afterwards.
const ATTACHES_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for the findings of a history, which a collector computes before it merges.
const FINDINGS_WITHIN: Duration = Duration::from_secs(600);
/// Rows of a history that are older than this are merged.
const KEEP: Duration = Duration::from_secs(3600);
const BAR_ROWS_PER_S: f64 = 200_000.0;
/// Tables whose old rows are merged.
const MERGED: [&str; 7] = [
    "op_intervals",
    "step_intervals",
    "daemon_samples",
    "host_samples",
    "disk_samples",
    "net_samples",
    "target_samples",
];

pub fn run() {
    let (directory, runtime) = (directory(), Runtime::new().unwrap());
    let with_history = directory.path().join("history.db");
    let shape = option("--history-runs").map(history);
    if let Some(shape) = &shape {
        println!("a history is generated, and its findings are computed");
        generate(&with_history, shape).unwrap();
        compute_findings(&runtime, &with_history);
    }
    // The agents send later rows.
    let old_until = T0_US + shape.map_or(0, |shape| i64::from(shape.seconds()) * 1_000_000);
    let cut_every: u64 = option("--cut-every").unwrap_or(0);
    let rounds: usize = option("--rounds").unwrap_or(1);
    let round = |calm: bool| {
        let place = tempfile::TempDir::new_in(directory.path()).unwrap();
        let path = place.path().join("mesh.db");
        let merges = !calm && shape.is_some();
        if merges {
            std::fs::copy(&with_history, &path).unwrap();
        }
        let cut_every = if calm { 0 } else { cut_every };
        print!("{}", if calm { "  without: " } else { "" });
        measure(&runtime, &path, cut_every, merges.then_some(old_until))
    };
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        rates.push(round(false));
        if shape.is_some() || cut_every > 0 {
            ratios.push(rates[rates.len() - 1] / round(true));
        }
    }
    let of_bar = spread(rates.iter().map(|rate| rate / BAR_ROWS_PER_S), 2);
    let rate = spread(rates, 0);
    println!("{rounds} rounds: {rate} rows/s, {of_bar} of the bar of {BAR_ROWS_PER_S}");
    if !ratios.is_empty() {
        let ratio = spread(ratios, 2);
        println!("  {ratio} of the rate without merging and cuts");
    }
}

/// Returns the stored rows per second.
fn measure(runtime: &Runtime, path: &Path, cut_every: u64, old_until: Option<i64>) -> f64 {
    let before = old_until.map(|until| old_rows(path, until));
    let credentials = path.with_file_name("credentials");
    std::fs::create_dir(&credentials).unwrap();
    let security = Security::Tls {
        directory: None,
        credentials: Some(credentials.clone()),
        lifetime: CERTIFICATE_LIFETIME,
    };
    let keep = KeepFor::Span(KEEP);
    let serving = serve(runtime, path, security, keep, HttpListen::Off);
    let (began, own_cpu) = (Instant::now(), cpu());
    // Of an option that is given twice, the first counts.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["agents", "--address", &serving.address.to_string()])
        .args(["--credentials".as_ref(), credentials.as_os_str()])
        .args(["--cut-every", &cut_every.to_string()])
        .args(std::env::args().skip(1))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the agents failed");
    let (wall, own_cpu) = (began.elapsed().as_secs_f64(), cpu() - own_cpu);
    serving.end(runtime);
    let output = String::from_utf8(output.stdout).unwrap();
    let words = output.split_whitespace().map(|word| word.parse().unwrap());
    let words: Vec<f64> = words.collect();
    let [rows, seconds, agents_cpu, cuts] = words[..] else {
        panic!("the agents printed {output:?}");
    };
    let new_rows = format!("daemon_samples WHERE at_us > {}", old_until.unwrap_or(0));
    let stored = count(path, &new_rows) as f64;
    assert_eq!(stored, rows, "not all that was acknowledged is stored");
    println!(
        "{:.0} rows/s over {seconds:.1} s; collector {:.2} us of CPU per row ({:.0} %), agents {:.2}; {cuts} cuts",
        rows / seconds,
        own_cpu * 1e6 / rows,
        own_cpu * 100.0 / wall,
        agents_cpu * 1e6 / rows,
    );
    if let Some((before, until)) = before.zip(old_until) {
        let gone = before - old_rows(path, until);
        println!("  {gone} of {before} old rows were merged in that time");
        assert!(gone > 0, "nothing was merged");
    }
    rows / seconds
}

/// A collector in this process.
pub struct Serving {
    address: SocketAddr,
    /// Of its page.
    pub url: Option<String>,
    served: tokio::task::JoinHandle<()>,
    cancel: tokio_util::sync::CancellationToken,
}

pub fn serve(
    runtime: &Runtime,
    path: &Path,
    security: Security,
    keep_seconds: KeepFor,
    page: HttpListen,
) -> Serving {
    let config = CollectorConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        db: path.to_owned(),
        security,
        retention: Retention {
            keep_seconds,
            keep_10s: KeepFor::Forever,
            min_rows: 0,
            ..Retention::default()
        },
        on_alarm: None,
        archive: None,
        clock_ppm: 0,
        newcomer_timeout: None,
        http: HttpConfig {
            listen: page,
            ..HttpConfig::default()
        },
    };
    let collector = runtime.block_on(Collector::bind(config)).unwrap();
    let (address, url) = (collector.address(), collector.page_url());
    let cancel = tokio_util::sync::CancellationToken::new();
    let until = cancel.clone();
    let served = runtime.spawn(async move { collector.serve(until).await.unwrap() });
    Serving {
        address,
        url,
        served,
        cancel,
    }
}

impl Serving {
    pub fn end(self, runtime: &Runtime) {
        self.cancel.cancel();
        runtime.block_on(self.served).unwrap();
    }
}

fn compute_findings(runtime: &Runtime, path: &Path) {
    let (security, keep) = (Security::Insecure, KeepFor::Forever);
    let serving = serve(runtime, path, security, keep, HttpListen::Off);
    let began = Instant::now();
    let missing = "runs AS r WHERE NOT EXISTS (SELECT 1 FROM findings AS f WHERE f.run_id = r.id)";
    while count(path, missing) > 0 {
        assert!(began.elapsed() < FINDINGS_WITHIN, "runs without findings");
        runtime.block_on(tokio::time::sleep(Duration::from_millis(200)));
    }
    serving.end(runtime);
}

/// Rows of the history.
fn old_rows(path: &Path, until_us: i64) -> i64 {
    let of = |table: &str| count(path, &format!("{table} WHERE at_us <= {until_us}"));
    MERGED.into_iter().map(of).sum()
}

fn count(path: &Path, rows: &str) -> i64 {
    let file = rusqlite::Connection::open(path).unwrap();
    let sql = format!("SELECT count(*) FROM {rows}");
    file.query_row(&sql, [], |row| row.get(0)).unwrap()
}

/// The other process. Prints the acknowledged rows, the seconds from the first batch to the last acknowledgement, CPU
/// seconds, and the number of cut connections.
pub fn agents() {
    // One thread is enough for encoding, and leaves the other CPU to the collector.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let size = Size::asked();
    let (batches, cuts, seconds) = runtime.block_on(async {
        let mut attached = Vec::new();
        for session in 0..size.sessions {
            let agent = Agent::enrolled(session).await;
            let link = agent.attach().await;
            attached.push((agent, link));
        }
        let began = Instant::now();
        let until = began + Duration::from_secs(option("--seconds").unwrap_or(60));
        let every = option("--cut-every")
            .filter(|every| *every > 0)
            .map(Duration::from_secs);
        let mut running = JoinSet::new();
        for (agent, link) in attached {
            // One session after the other.
            let first = every
                .map(|every| began + every * (agent.session as u32 + 1) / size.sessions as u32);
            running.spawn(agent.send(link, until, first.zip(every)));
        }
        let mut sums = (0, 0);
        for (batches, cuts) in running.join_all().await {
            sums = (sums.0 + batches, sums.1 + cuts);
        }
        (sums.0, sums.1, began.elapsed().as_secs_f64())
    });
    let rows = batches * size.rows_of_a_batch() as u64;
    println!("{rows} {seconds} {} {cuts}", cpu());
}

struct Agent {
    session: usize,
    address: String,
    security: trust::Security,
}

impl Agent {
    /// With its own certificate.
    async fn enrolled(session: usize) -> Self {
        let address: String = option("--address").unwrap();
        let directory: PathBuf = option("--credentials").unwrap();
        let file = trust::credentials::file_for(&directory, &address);
        let owner = Credentials::load(&file).unwrap().unwrap();
        let ca = owner.ca_fingerprint().unwrap();
        let channel = dial(&address, trust::Security::of(&owner).unwrap()).await;
        let (key, name) = (NewKey::make().unwrap(), format!("agent-{session}"));
        let own = trust::enrol(channel, &key, Role::Agent, &name, ca, Evidence::default()).await;
        let security = trust::Security::of(&own.unwrap()).unwrap();
        Self {
            session,
            address,
            security,
        }
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
        said.send(message(AgentBody::Hello(hello))).await.unwrap();
        let down = client.attach(ReceiverStream::new(messages)).await;
        let mut down = down.unwrap().into_inner();
        let welcome = down.message().await.unwrap().unwrap().body;
        let Some(FromCollector::Welcome(welcome)) = welcome else {
            panic!("not welcome");
        };
        let mut control = JoinSet::new();
        control.spawn(async move { while let Ok(Some(_)) = down.message().await {} });
        control.spawn(async move {
            // A silent agent would be lost.
            let mut beat = tokio::time::interval(Duration::from_secs(1));
            loop {
                beat.tick().await;
                let probe = proto::ClockProbe { agent_sent_ns: 1 };
                let probe = message(AgentBody::ClockProbe(probe));
                if said.send(probe).await.is_err() {
                    return;
                }
            }
        });
        let token = welcome.session;
        Link {
            client,
            token,
            control,
        }
    }

    /// Sends until `until`. At each cut, the connection is lost, and the agent attaches again and continues after the
    /// last acknowledged batch. Returns the acknowledged batches and the number of cuts.
    async fn send(
        self,
        mut link: Link,
        until: Instant,
        mut cuts: Option<(Instant, Duration)>,
    ) -> (u64, u64) {
        let mut beats = Beats::new(format!("spool-{}", self.session), Size::asked());
        let mut count = 0;
        loop {
            let next = cuts.map(|(next, _)| next);
            let cut = next.filter(|next| *next + ATTACHES_WITHIN < until);
            beats.sequence = link.publish(beats.clone(), until, cut).await;
            if cut.is_none() {
                return (beats.sequence, count);
            }
            count += 1;
            link = self.attach().await;
            cuts = cuts.map(|(next, every)| (next + every, every));
        }
    }
}

fn message(body: AgentBody) -> proto::AgentMessage {
    proto::AgentMessage { body: Some(body) }
}

async fn dial(address: &str, security: trust::Security) -> Channel {
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
    async fn publish(mut self, mut beats: Beats, until: Instant, cut: Option<Instant>) -> u64 {
        let (acknowledged, mut seen) = watch::channel(beats.sequence);
        let (batches, outgoing) = mpsc::channel(4);
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        request
            .metadata_mut()
            .insert(SESSION_KEY, self.token.parse().unwrap());
        let (over, mut sent) = watch::channel(None);
        self.control.spawn(async move {
            while Instant::now() < until {
                let ahead = beats.sequence;
                let room = seen.wait_for(|acknowledged| ahead - acknowledged < AHEAD);
                if room.await.is_err() || batches.send(beats.next_batch()).await.is_err() {
                    return;
                }
            }
            over.send_replace(Some(beats.sequence));
        });
        let client = &mut self.client;
        let publishing = async {
            let mut acks = client.publish(request).await.unwrap().into_inner();
            while let Some(ack) = acks.message().await.unwrap() {
                acknowledged.send_modify(|last| *last = ack.sequence.max(*last));
            }
        };
        match cut {
            None => {
                publishing.await;
                let sent = *sent.wait_for(Option::is_some).await.unwrap();
                let last = Some(*acknowledged.borrow());
                assert_eq!(sent, last, "batches without an acknowledgement");
            }
            Some(cut) => tokio::select! {
                () = publishing => panic!("the collector ended a stream"),
                () = sleep_until(cut) => {}
            },
        }
        *acknowledged.borrow()
    }
}
