//! A simulated agent: it answers every command at once, "runs" a task by waiting, and publishes one interval and the
//! task's end. What it holds outlives its connections, as a real agent's tasks do.

use benchmesh_proto::{SESSION_KEY, WIRE_VERSION, v1};
use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::sleep,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming, transport::Channel};
use v1::{
    agent_message::Body as Said, command::Body as Asked, mesh_client::MeshClient,
    reply::Body as Answer,
};

/// What an agent does differently from a perfect one.
#[derive(Clone)]
pub struct Script {
    pub labels: Vec<(String, String)>,
    /// How long its tasks run.
    pub runs_for: Duration,
    /// Which file system its target is on; agents with equal names share it.
    pub file_system: String,
    pub free_bytes: i64,
    pub host: String,
    /// Refuses so many arms as too late.
    pub late_arms: u32,
    /// Answers this when it is to prepare a task.
    pub prepare_error: Option<(String, String)>,
    /// Ends its tasks with this error.
    pub task_error: String,
    pub starts: Starts,
    /// May not drop caches.
    pub no_root: bool,
    /// The type of its target's file system.
    pub file_system_type: String,
    /// Files that it removes per cell; told one by one.
    pub removes: u64,
}

/// How it keeps to its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Starts {
    #[default]
    Punctually,
    /// Confirms, and nothing ever comes of it.
    Never,
    /// Begins so many microseconds before the instant.
    Early(i64),
    /// Confirms, and starts as if it had been armed for an instant so many microseconds before.
    Old(i64),
    /// Answers each arming under the number of another question.
    Astray,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            labels: Vec::new(),
            runs_for: Duration::from_millis(300),
            file_system: String::from("shared"),
            free_bytes: 1 << 40,
            host: String::from("boot"),
            late_arms: 0,
            prepare_error: None,
            task_error: String::new(),
            starts: Starts::default(),
            no_root: false,
            file_system_type: String::from("ext4"),
            removes: 0,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Task {
    start_us: Option<i64>,
    /// Armed, and nothing comes of it.
    silent: bool,
    ended: Option<v1::EndReply>,
}

/// Run directories by file system and run.
type Disks = Arc<Mutex<HashMap<(String, String), String>>>;

/// Shared by all agents of the test process; keys carry the run's uid.
static DISKS: std::sync::LazyLock<Disks> = std::sync::LazyLock::new(Disks::default);

pub struct FakeAgent {
    inner: Arc<Inner>,
    connection: Mutex<Option<JoinHandle<()>>>,
}

pub struct Inner {
    pub name: String,
    uid: String,
    pub script: Mutex<Script>,
    tasks: Mutex<BTreeMap<i64, Task>>,
    /// Grows with each change of a task.
    changes: watch::Sender<u64>,
    /// Everything it was asked, in words.
    journal: watch::Sender<Vec<String>>,
    /// When each entry of the journal was made.
    times: Mutex<Vec<i64>>,
    sequence: Mutex<u64>,
    /// Batches that are not acked yet.
    spool: Mutex<Vec<v1::Batch>>,
    spooled: watch::Sender<u64>,
    pub sampling: Mutex<v1::Sampling>,
}

/// The wall clock, which a new database's mesh time begins at.
pub fn now_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

impl FakeAgent {
    pub fn new(name: &str, script: Script) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                script: Mutex::new(script),
                tasks: Mutex::default(),
                changes: watch::Sender::new(0),
                journal: watch::Sender::new(Vec::new()),
                times: Mutex::default(),
                sequence: Mutex::new(0),
                spool: Mutex::default(),
                spooled: watch::Sender::new(0),
                sampling: Mutex::default(),
            }),
            connection: Mutex::new(None),
        }
    }

    /// The same with another identity.
    pub fn with_uid(mut self, uid: &str) -> Self {
        Arc::get_mut(&mut self.inner).unwrap().uid = uid.to_owned();
        self
    }

    pub fn hello(&self) -> v1::Hello {
        self.inner.hello()
    }

    /// Dials, says Hello, and answers from then on. The error is what the collector says.
    pub async fn attach(&self, address: SocketAddr) -> Result<v1::Welcome, Status> {
        self.attach_with(address, self.inner.hello()).await
    }

    pub async fn attach_with(
        &self,
        address: SocketAddr,
        hello: v1::Hello,
    ) -> Result<v1::Welcome, Status> {
        let channel = Channel::from_shared(format!("http://{address}"))
            .unwrap()
            .connect()
            .await
            .unwrap();
        let (said, receiver) = mpsc::channel(64);
        said.send(message(Said::Hello(hello))).await.unwrap();
        let mut client = MeshClient::new(channel.clone());
        let mut heard = client
            .attach(ReceiverStream::new(receiver))
            .await?
            .into_inner();
        let Some(v1::collector_message::Body::Welcome(welcome)) =
            heard.message().await?.and_then(|m| m.body)
        else {
            panic!("the first message is no welcome");
        };
        *self.inner.sampling.lock().unwrap() = welcome.sampling.unwrap();
        let inner = Arc::clone(&self.inner);
        let publishing = tokio::spawn(publish(
            Arc::clone(&inner),
            channel,
            welcome.session.clone(),
        ));
        let connection = tokio::spawn(async move {
            // Dropping it ends the publishing too.
            let _publishing = AbortOnDrop(publishing);
            serve(inner, &mut heard, said).await;
        });
        *self.connection.lock().unwrap() = Some(connection);
        Ok(welcome)
    }

    /// Loses its connection; its tasks run on.
    pub fn cut(&self) {
        if let Some(connection) = self.connection.lock().unwrap().take() {
            connection.abort();
        }
    }

    /// Forgets all tasks, as an agent does that is started again.
    pub fn forget_everything(&self) {
        self.inner.tasks.lock().unwrap().clear();
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// Publishes what a sampler would: one reading of its host, a daemon and a disk. The counters are cumulative.
    pub fn sample(&self, daemon_cpu_us: i64, disk_busy_us: i64) {
        let at_us = now_us();
        let mut sequence = self.inner.sequence.lock().unwrap();
        *sequence += 1;
        self.inner.spool.lock().unwrap().push(v1::Batch {
            spool_id: format!("spool-{}", self.inner.name),
            first_sequence: *sequence,
            sequence: *sequence,
            daemons: vec![v1::DaemonSeen {
                pid: 7,
                start_ticks: 9,
                name: String::from("ceph-osd"),
                instance: String::from("osd.3"),
                cmdline: String::from("ceph-osd -i 3"),
                at_us,
                ended: false,
            }],
            daemon_samples: Some(v1::DaemonSamples {
                pid: vec![7],
                start_ticks: vec![9],
                at_us: vec![at_us],
                cpu_user_us: vec![daemon_cpu_us],
                cpu_system_us: vec![0],
                rss_bytes: vec![1],
                vsz_bytes: vec![1],
                threads: vec![1],
                fds: vec![1],
                read_bytes: vec![0],
                write_bytes: vec![0],
                vol_ctx: vec![0],
                invol_ctx: vec![0],
                minor_faults: vec![0],
                major_faults: vec![0],
            }),
            host_samples: vec![v1::HostSample {
                at_us,
                ..v1::HostSample::default()
            }],
            disk_samples: vec![v1::DiskSample {
                at_us,
                disk: String::from("sda"),
                busy_us: disk_busy_us,
                ..v1::DiskSample::default()
            }],
            ..v1::Batch::default()
        });
        drop(sequence);
        self.inner.spooled.send_modify(|count| *count += 1);
    }

    /// What it was asked so far.
    pub fn journal(&self) -> Vec<String> {
        self.inner.journal.borrow().clone()
    }

    /// When it was asked what begins with `what`, in microseconds of the wall clock.
    #[allow(dead_code, reason = "for the fleet bench, which shares this file")]
    pub fn heard(&self, what: &str) -> Vec<i64> {
        let times = self.inner.times.lock().unwrap();
        let journal = self.inner.journal.borrow();
        let asked = journal.iter().zip(times.iter());
        asked
            .filter(|(entry, _)| entry.starts_with(what))
            .map(|(_, at)| *at)
            .collect()
    }

    /// Waits until it was asked something that begins with `what`.
    pub async fn until_asked(&self, what: &str) {
        let mut journal = self.inner.journal.subscribe();
        tokio::time::timeout(
            super::stage::LIMIT,
            journal.wait_for(|entries| entries.iter().any(|entry| entry.starts_with(what))),
        )
        .await
        .expect("it is asked")
        .unwrap();
    }

    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.inner.script.lock().unwrap());
    }

    pub fn sampling(&self) -> v1::Sampling {
        *self.inner.sampling.lock().unwrap()
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.cut();
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn message(body: Said) -> v1::AgentMessage {
    v1::AgentMessage { body: Some(body) }
}

impl Inner {
    fn hello(&self) -> v1::Hello {
        let script = self.script.lock().unwrap();
        v1::Hello {
            wire_version: WIRE_VERSION,
            version: String::from("0.1.0"),
            agent_uid: self.uid.clone(),
            name: self.name.clone(),
            labels: script.labels.iter().cloned().collect(),
            host: Some(v1::Host {
                boot_id: script.host.clone(),
                pid_namespace: String::from("pid:[1]"),
                name: script.host.clone(),
                kernel: String::from("6.1"),
                cpus: 2,
                memory_bytes: 1 << 30,
            }),
            net_namespace: String::from("net:[1]"),
            allowed_paths: vec![String::from("/mnt")],
            workloads: benchmesh_workloads::workload::registry()
                .iter()
                .map(|workload| v1::WorkloadRevision {
                    name: workload.name().to_owned(),
                    revision: workload.revision(),
                })
                .collect(),
            spool_ids: vec![format!("spool-{}", self.name)],
            held_tasks: self.tasks.lock().unwrap().keys().copied().collect(),
            ..v1::Hello::default()
        }
    }

    fn note(&self, entry: String) {
        self.times.lock().unwrap().push(now_us());
        self.journal.send_modify(|journal| journal.push(entry));
    }

    /// Ends a task: its rows go to the spool first.
    fn end(&self, id: i64, state: &str, error: &str) {
        let mut tasks = self.tasks.lock().unwrap();
        let Some(task) = tasks.get_mut(&id) else {
            return;
        };
        let (Some(start_us), None) = (task.start_us, &task.ended) else {
            return;
        };
        if now_us() < start_us {
            // It never began, and has no row.
            task.ended = Some(v1::EndReply {
                state: state.to_owned(),
                error: error.to_owned(),
                ..v1::EndReply::default()
            });
            drop(tasks);
            self.changes.send_modify(|count| *count += 1);
            return;
        }
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        let spool_id = format!("spool-{}", self.name);
        self.spool.lock().unwrap().push(v1::Batch {
            spool_id: spool_id.clone(),
            first_sequence: *sequence,
            sequence: *sequence,
            op_intervals: vec![interval(id, start_us)],
            task_ends: vec![v1::TaskEnd {
                task_id: id,
                state: state.to_owned(),
                workers: 1,
                start_us,
                skew_us: match self.script.lock().unwrap().starts {
                    Starts::Early(us) => -us,
                    _ => 10,
                },
                skew_error_us: 5,
                first_done_us: start_us + 900_000,
                ended_us: start_us + 1_000_000,
                error: error.to_owned(),
                ..v1::TaskEnd::default()
            }],
            ..v1::Batch::default()
        });
        task.ended = Some(v1::EndReply {
            state: state.to_owned(),
            error: error.to_owned(),
            spool_id,
            sequence: *sequence,
            stalled: false,
        });
        drop(tasks);
        self.spooled.send_modify(|count| *count += 1);
        self.changes.send_modify(|count| *count += 1);
    }
}

/// 100 operations of 1 us each.
fn interval(task_id: i64, at_us: i64) -> v1::OpInterval {
    let mut histogram = benchmesh_workloads::histogram::Histogram::new();
    for _ in 0..100 {
        histogram.record(1000);
    }
    let blob = histogram.to_blob();
    v1::OpInterval {
        task_id,
        at_us,
        span_us: 1_000_000,
        op: String::from("null"),
        ops: 100,
        service: Some(v1::Distribution {
            histogram: blob.v2_deflate,
            count: blob.count,
            sum_ns: blob.sum_ns,
            sum_squares_ns2: blob.sum_squares_ns2,
            min_ns: blob.min_ns,
            max_ns: blob.max_ns,
            saturated: blob.saturated,
        }),
        ..v1::OpInterval::default()
    }
}

async fn publish(agent: Arc<Inner>, channel: Channel, session: String) {
    let (batches, receiver) = mpsc::channel(16);
    let mut request = Request::new(ReceiverStream::new(receiver));
    request
        .metadata_mut()
        .insert(SESSION_KEY, session.parse().unwrap());
    let mut acks = MeshClient::new(channel)
        .publish(request)
        .await
        .unwrap()
        .into_inner();
    let acked = {
        let agent = Arc::clone(&agent);
        async move {
            while let Ok(Some(ack)) = acks.message().await {
                agent
                    .spool
                    .lock()
                    .unwrap()
                    .retain(|batch| batch.sequence > ack.sequence);
            }
        }
    };
    let sent = async {
        let mut spooled = agent.spooled.subscribe();
        let mut last = 0;
        loop {
            let waiting: Vec<v1::Batch> = agent.spool.lock().unwrap().clone();
            for batch in waiting {
                if batch.sequence > last {
                    last = batch.sequence;
                    batches.send(batch).await.unwrap();
                }
            }
            spooled.changed().await.unwrap();
        }
    };
    tokio::select! {
        () = acked => {}
        () = sent => {}
    }
}

async fn serve(
    agent: Arc<Inner>,
    heard: &mut Streaming<v1::CollectorMessage>,
    said: mpsc::Sender<v1::AgentMessage>,
) {
    // They end with the connection.
    let mut waits = tokio::task::JoinSet::new();
    while let Ok(Some(message_heard)) = heard.message().await {
        let Some(v1::collector_message::Body::Command(command)) = message_heard.body else {
            continue;
        };
        let (agent, said) = (Arc::clone(&agent), said.clone());
        let id = command.id;
        let Some(body) = command.body else { continue };
        // Answers that wait have tasks of their own; all others come in the order of the questions.
        if let Asked::AwaitEnd(asked) = body {
            waits.spawn(async move {
                let reply = await_end(&agent, asked.task_id).await;
                let _ = said.send(message(Said::Reply(with_id(id, reply)))).await;
            });
            continue;
        }
        let script = agent.script.lock().unwrap().clone();
        let removing = matches!(body, Asked::RemoveCell(_) | Asked::RemoveRunDirectory(_));
        let astray = matches!(body, Asked::Arm(_)) && script.starts == Starts::Astray;
        let reply = answer(&agent, body);
        for done in (1..=script.removes).filter(|_| removing) {
            let progress = v1::Progress {
                command_id: id,
                done,
                total: 0,
                unit: String::from("files"),
            };
            let _ = said.send(message(Said::Progress(progress))).await;
            sleep(Duration::from_millis(300)).await;
        }
        let id = if astray { id + 1_000_000 } else { id };
        let _ = said.send(message(Said::Reply(with_id(id, reply)))).await;
    }
}

type Outcome = Result<Option<Answer>, (String, String)>;

fn with_id(id: u64, outcome: Outcome) -> v1::Reply {
    match outcome {
        Ok(body) => v1::Reply {
            id,
            body,
            ..v1::Reply::default()
        },
        Err((error_kind, error)) => v1::Reply {
            id,
            error,
            error_kind,
            body: None,
        },
    }
}

async fn await_end(agent: &Inner, id: i64) -> Outcome {
    let mut changes = agent.changes.subscribe();
    loop {
        match agent.tasks.lock().unwrap().get(&id) {
            None => {
                return Err((
                    String::from("unknown-task"),
                    format!("task {id} is not known"),
                ));
            }
            Some(task) if task.silent => {}
            Some(task) if task.start_us.is_none() => {
                return Err((String::from("failed"), String::from("not armed")));
            }
            Some(task) => {
                if let Some(ended) = &task.ended {
                    return Ok(Some(Answer::End(ended.clone())));
                }
            }
        }
        changes.changed().await.unwrap();
    }
}

fn answer(agent: &Arc<Inner>, asked: Asked) -> Outcome {
    let script = agent.script.lock().unwrap().clone();
    match asked {
        Asked::Sampling(sampling) => {
            *agent.sampling.lock().unwrap() = sampling;
            agent.note(format!("sampling {}", sampling.period_us));
            Ok(None)
        }
        Asked::Survey(survey) => {
            let paths = survey.paths.into_iter().map(|path| v1::PathFacts {
                allowed: path.starts_with("/mnt"),
                exists: true,
                path,
                free_bytes: script.free_bytes,
                free_files: -1,
                file_system: script.file_system_type.clone(),
                device: script.file_system.clone(),
                ..v1::PathFacts::default()
            });
            Ok(Some(Answer::Survey(v1::SurveyReply {
                paths: paths.collect(),
                ..v1::SurveyReply::default()
            })))
        }
        Asked::OpenRunDirectory(open) => {
            agent.note(format!("open {} make={}", open.path, open.make));
            let mut disks = DISKS.lock().unwrap();
            let key = (
                script.file_system.clone(),
                format!("{}{}", open.run_uid, open.path),
            );
            let there = disks.get(&key).cloned();
            let made = there.is_none() && open.make;
            let nonce = there
                .clone()
                .unwrap_or_else(|| format!("nonce-{}", agent.name));
            if made {
                disks.insert(key, nonce.clone());
            }
            Ok(Some(Answer::RunDirectory(v1::RunDirectoryReply {
                found: there.is_some() || made,
                made,
                nonce,
                free_bytes: script.free_bytes,
            })))
        }
        Asked::RemoveRunDirectory(remove) => {
            agent.note(format!("remove {}", remove.path));
            let key = (
                script.file_system.clone(),
                format!("{}{}", remove.run_uid, remove.path),
            );
            DISKS.lock().unwrap().remove(&key);
            Ok(None)
        }
        Asked::RemoveCell(remove) => {
            agent.note(format!("clean {} {}", remove.cell, remove.task_index));
            Ok(None)
        }
        Asked::Listen(listen) => {
            agent.note(format!("listen from {}", listen.from_address));
            Ok(Some(Answer::Listen(v1::ListenReply { port: 4242 })))
        }
        Asked::Prepare(prepare) => {
            agent.note(format!(
                "prepare {} {} {}/{} {}",
                prepare.cell, prepare.mode, prepare.task_index, prepare.tasks, prepare.peer_address
            ));
            if let Some(error) = script.prepare_error {
                return Err(error);
            }
            agent
                .tasks
                .lock()
                .unwrap()
                .entry(prepare.task_id)
                .or_default();
            Ok(None)
        }
        Asked::DropCaches(_) => {
            agent.note(String::from("drop"));
            if script.no_root {
                return Ok(Some(Answer::DropCaches(v1::DropCachesReply {
                    drops: vec![v1::CacheDrop {
                        what: String::from("page-cache"),
                        dropped: false,
                        error: String::from("run it as root"),
                    }],
                })));
            }
            let drop = |what: &str, dropped: bool| v1::CacheDrop {
                what: what.to_owned(),
                dropped,
                error: if dropped {
                    String::new()
                } else {
                    String::from("not permitted")
                },
            };
            Ok(Some(Answer::DropCaches(v1::DropCachesReply {
                drops: vec![drop("page-cache", true), drop("dentries-inodes", false)],
            })))
        }
        Asked::Arm(arm) => {
            agent.note(String::from("arm"));
            if script.late_arms > 0 {
                agent.script.lock().unwrap().late_arms -= 1;
                return Err((
                    String::from("too-late"),
                    String::from("the start has passed"),
                ));
            }
            arm_task(agent, &script, &arm)
        }
        Asked::StopTask(stop) => {
            agent.note(format!("stop {}", stop.reason));
            agent.end(stop.task_id, "stopped", "");
            Ok(None)
        }
        Asked::ForgetTask(forget) => {
            agent.note(String::from("forget"));
            agent.tasks.lock().unwrap().remove(&forget.task_id);
            Ok(None)
        }
        Asked::ShareRate(share) => {
            agent.note(format!("share {} of {}", share.task_index, share.tasks));
            Ok(None)
        }
        Asked::Mark(_) => {
            agent.note(String::from("mark"));
            Ok(None)
        }
        Asked::AwaitEnd(_) => Ok(None),
    }
}

fn arm_task(agent: &Arc<Inner>, script: &Script, arm: &v1::Arm) -> Outcome {
    let lead_us = arm.start_us - now_us();
    let mut tasks = agent.tasks.lock().unwrap();
    let Some(task) = tasks.get_mut(&arm.task_id) else {
        return Err((String::from("unknown-task"), String::from("not known")));
    };
    if lead_us < 0 {
        return Err((
            String::from("too-late"),
            String::from("the start has passed"),
        ));
    }
    if script.starts == Starts::Never {
        task.silent = true;
        return Ok(Some(Answer::Arm(v1::ArmReply { lead_us })));
    }
    task.start_us = Some(match script.starts {
        Starts::Old(us) => arm.start_us - us,
        _ => arm.start_us,
    });
    let until = Duration::from_micros(lead_us.unsigned_abs()) + script.runs_for;
    let (agent, id, error) = (Arc::clone(agent), arm.task_id, script.task_error.clone());
    tokio::spawn(async move {
        sleep(until).await;
        agent.end(id, if error.is_empty() { "done" } else { "failed" }, &error);
    });
    Ok(Some(Answer::Arm(v1::ArmReply { lead_us })))
}
