//! Hours of what agents send at 1 Hz, in a short time: the instants of the rows pass, not the time.
//!
//! `writes`: what the store writes to its disk for one hour, by seconds per commit. The kernel counts what this process
//! has made dirty, WAL and checkpoints together; a tmpfs counts nothing.
//!
//! `lapse`: days of a run that repeats its step once an hour. Four agents carry load, all sample. A line per hour has
//! the size of the file and the usage of the process. At the end, the memory of the hours is compared with the first
//! one's, and the reads that users make of the run are timed. Memory is measured as in the packaged service with
//! `GLIBC_TUNABLES=glibc.malloc.tcache_count=0` in the environment.

use crate::end_to_end::serve;
use crate::{attach, commit, directory, opened, option};
use benchmesh_answers::findings;
use benchmesh_answers::report::{self, Detail};
use benchmesh_collector::service::memory;
use benchmesh_collector::trust::Security;
use benchmesh_collector::web::HttpListen;
use benchmesh_model::figures::Figures;
use benchmesh_model::mesh::{
    AgentId, MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState,
};
use benchmesh_store::distribution::Distribution;
use benchmesh_store::ingest::batch::{
    Batch, ClockOffset, DaemonSample, DaemonSeen, DiskSample, HostSample, NetSample, OpInterval,
    Process, TaskEnd,
};
use benchmesh_store::prune::Pruned;
use benchmesh_store::retention::{KeepFor, MaxSize, Retainer, Retention};
use benchmesh_store::rows::{FinishedStep, NewRun, NewStep, NewTask, Row, RunChange, StepChange};
use benchmesh_store::{Publisher, Store};
use benchmesh_synthetic::T0_US;
use benchmesh_workloads::histogram::Histogram;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const HOUR: u64 = 3600;
const CLIENTS: usize = 4;
/// Batches that an agent sends ahead of their acknowledgement.
const WINDOW: u32 = 256;
/// Time limit for each of the reads at the end.
const BAR: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
struct Size {
    sessions: usize,
    daemons: usize,
    devices: i64,
    /// Seconds between two samples.
    every: u64,
}

impl Size {
    fn asked() -> Self {
        let size = Self {
            sessions: option("--sessions").unwrap_or(10),
            daemons: option("--daemons").unwrap_or(20),
            devices: option("--devices").unwrap_or(3),
            every: option("--every").unwrap_or(1),
        };
        println!(
            "{} agents with {} daemons, {} disks and {} interfaces each, a sample every {} s",
            size.sessions, size.daemons, size.devices, size.devices, size.every
        );
        size
    }

    /// What an agent sends at `second`.
    fn batch(self, second: u64) -> Batch {
        let (at, n) = (instant(second), second as i64);
        let process = |daemon: usize| Process {
            pid: 1000 + daemon as i32,
            start_ticks: 123_456,
        };
        let described = |daemon: usize| DaemonSeen {
            process: process(daemon),
            name: "ceph-osd".to_owned(),
            instance: format!("osd.{daemon}"),
            cmdline: format!("/usr/bin/ceph-osd -f --cluster ceph --id {daemon}"),
            version: String::new(),
            is_replaced: false,
            at,
            ended: false,
            born: None,
            is_parent: false,
        };
        let daemon = |daemon: usize| DaemonSample {
            process: process(daemon),
            at,
            figures: figures(n),
        };
        let disk = |disk: i64| DiskSample {
            at,
            disk: format!("sd{disk}"),
            stacked: false,
            figures: figures(n),
        };
        let interface = |interface: i64| NetSample {
            at,
            interface: format!("eth{interface}"),
            figures: figures(n),
        };
        let host = HostSample {
            at,
            figures: figures(n),
            busy_others: None,
        };
        let offset = ClockOffset {
            at,
            offset_us: n,
            error_us: 20,
            round_trip_us: 40,
        };
        let sequence = second / self.every;
        let new_daemons = if sequence == 1 { self.daemons } else { 0 };
        Batch {
            spool_id: "spool".to_owned(),
            first_sequence: sequence,
            sequence,
            daemons: (0..new_daemons).map(described).collect(),
            daemon_samples: (0..self.daemons).map(daemon).collect(),
            host_samples: vec![host],
            disk_samples: (0..self.devices).map(disk).collect(),
            net_samples: (0..self.devices).map(interface).collect(),
            clock_offsets: vec![offset],
            newest_us: at.0,
            ..Batch::default()
        }
    }
}

/// Counters of days that grow by a few thousand a second, and fewer.
fn figures<F: Figures>(second: i64) -> F {
    F::from_values((0..).map(|figure| (1_000_000_000 + second * 4000) >> (figure % 8)))
}

fn instant(second: u64) -> MeshMicros {
    MeshMicros(T0_US + second as i64 * 1_000_000)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// Bytes that this process has dirtied on its disks.
fn written() -> u64 {
    figure_of("/proc/self/io", "write_bytes:")
}

/// A figure of a file in /proc.
fn figure_of(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

fn file_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

pub fn writes() {
    let (size, directory) = (Size::asked(), directory());
    let runtime = Runtime::new().unwrap();
    println!("written in an hour, by seconds per commit:");
    let mut baseline = None;
    for gathered in [1, 5, 10, 20, 60, 120] {
        let path = directory.path().join(format!("{gathered}.db"));
        let before = written();
        runtime.block_on(async {
            let (store, publishers) = opened(&path, size.sessions).await;
            for first in (1..=HOUR).step_by(gathered) {
                let seconds = first..first + gathered as u64;
                let batch = seconds
                    .map(|second| size.batch(second))
                    .reduce(joined)
                    .unwrap();
                let batches = publishers
                    .iter()
                    .map(|publisher| (publisher, batch.clone()));
                commit(&store, batches.collect()).await;
            }
            // With all of the WAL in the file.
            store.close().await;
        });
        let bytes = mib(written() - before);
        let ratio = bytes / *baseline.get_or_insert(bytes);
        let data = mib(file_bytes(&path));
        println!(
            "  {gathered:>3} s: {bytes:>6.1} MiB, {ratio:.2} of 1 s; the database has {data:.1} MiB"
        );
    }
}

/// One batch of both.
fn joined(mut batch: Batch, next: Batch) -> Batch {
    batch.sequence = next.sequence;
    batch.newest_us = next.newest_us;
    batch.daemon_samples.extend(next.daemon_samples);
    batch.host_samples.extend(next.host_samples);
    batch.disk_samples.extend(next.disk_samples);
    batch.net_samples.extend(next.net_samples);
    batch.clock_offsets.extend(next.clock_offsets);
    batch
}

pub fn run() {
    let runtime = memory::runtime().unwrap();
    let directory = directory();
    let path = directory.path().join("mesh.db");
    let run = runtime.block_on(telemetry(&path, Size::asked()));
    read_at_the_end(&runtime, &path, run);
}

async fn telemetry(path: &Path, size: Size) -> RunId {
    let hours: u64 = option("--hours").unwrap_or(12);
    let keep = Duration::from_secs(option("--keep-hours").unwrap_or(6) * HOUR);
    println!("{hours} steps of an hour; rows of seconds are kept {keep:?}");
    println!(
        "{:>5} {:>11} {:>8} {:>8} {:>8} {:>8} {:>12} {:>9} {:>9} {:>7}",
        "hour",
        "rows",
        "file MB",
        "RSS MiB",
        "private",
        "malloc",
        "written MiB",
        "wait ms",
        "prune ms",
        "took s"
    );
    let store = Store::open(path).await.unwrap();
    store.open_readers().await;
    let retention = Retention {
        keep_seconds: KeepFor::Span(keep),
        keep_10s: KeepFor::Span(keep * 4),
        max_size: MaxSize::Unlimited,
        ..Retention::default()
    };
    let retainer = Retainer::new(store.clone(), retention);
    let mesh = Mesh::attach(&store, size).await;
    let (began, mut rows, mut private) = (written(), 0, Vec::new());
    let mut pass: Option<tokio::task::JoinHandle<Pruned>> = None;
    for hour in 0..hours {
        let (before, clock) = (written(), Instant::now());
        let (stored, wait) = mesh.step(hour).await;
        rows += stored;
        let pruned = match pass.take() {
            Some(pass) => finished(pass, &store).await,
            None => Pruned::default(),
        };
        // A collector does this once a minute.
        memory::give_back();
        let kib = |name: &str| figure_of("/proc/self/status", name) as f64 / 1024.0;
        private.push(kib("RssAnon:"));
        println!(
            "{:>5} {rows:>11} {:>8.0} {:>8.1} {:>8.1} {:>8.1} {:>12.1} {:>9.0} {:>9.1} {:>7.1}",
            hour + 1,
            file_bytes(path) as f64 / 1e6,
            kib("VmRSS:"),
            kib("RssAnon:"),
            allocated_mib(),
            mib(written() - before),
            wait.as_secs_f64() * 1e3,
            pruned.longest.as_secs_f64() * 1e3,
            clock.elapsed().as_secs_f64(),
        );
        let (retainer, now) = (retainer.clone(), instant((hour + 1) * HOUR));
        pass = Some(tokio::spawn(
            async move { retainer.pass(now).await.unwrap() },
        ));
    }
    if let Some(pass) = pass {
        finished(pass, &store).await;
    }
    mesh.change_run(RunState::Done, hours * HOUR).await;
    store.close().await;
    let (hourly, mb) = (
        mib(written() - began) / hours as f64,
        file_bytes(path) as f64 / 1e6,
    );
    let (per_agent, daily) = (hourly / size.sessions as f64, mb * 24.0 / hours as f64);
    println!(
        "written {hourly:.0} MiB an hour, {per_agent:.1} per agent; the file has {mb:.0} MB, {daily:.0} MB a day"
    );
    let (first, last) = (private[0], private[private.len() - 1]);
    private.sort_by(f64::total_cmp);
    let at = |percent: usize| private[(private.len() - 1) * percent / 100];
    println!(
        "private memory: {first:.1} MiB after the first hour, {last:.1} after the last, {:.2} of the first; \
         median {:.1}, 95 % of the hours at most {:.1}, at most {:.1}",
        last / first,
        at(50),
        at(95),
        at(100)
    );
    mesh.run
}

/// Waits for a pass. Its last writes would wait for rows of agents, and none come meanwhile, so the store is flushed.
async fn finished(mut pass: tokio::task::JoinHandle<Pruned>, store: &Store) -> Pruned {
    loop {
        tokio::select! {
            pruned = &mut pass => return pruned.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(100)) => store.flush().await,
        }
    }
}

/// Allocated memory, without freed memory that the allocator keeps; 0 if the allocator does not report it.
fn allocated_mib() -> f64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2 takes no pointers.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as f64 / 1_048_576.0
    }
    #[cfg(not(target_env = "gnu"))]
    0.0
}

/// The agents, and their run.
struct Mesh {
    store: Store,
    run: RunId,
    agents: Vec<(AgentId, Publisher)>,
    size: Size,
    service: Distribution,
}

impl Mesh {
    async fn attach(store: &Store, size: Size) -> Self {
        let agents = attach(store, size.sessions).await.into_iter();
        let run = NewRun {
            uid: "lapse".to_owned(),
            name: "lapse".to_owned(),
            plan_text: "name = \"lapse\"".to_owned(),
            agents_json: "[]".to_owned(),
            order_seed: None,
            created: instant(0),
            due: None,
            version: "0".to_owned(),
        };
        let (run, _) = store.create_run(run).await.unwrap();
        let mut histogram = Histogram::new();
        for operation in 0..1000 {
            histogram.record(500_000 + operation * 7919 % 1000 * 1000);
        }
        let mesh = Self {
            store: store.clone(),
            run,
            agents: agents
                .map(|(id, one)| (id, one.with_window(WINDOW)))
                .collect(),
            size,
            service: Distribution::from(&histogram),
        };
        mesh.change_run(RunState::Running, 0).await;
        mesh
    }

    async fn apply(&self, row: Row) -> Vec<i64> {
        self.store.apply(vec![row]).await.unwrap().remove(0)
    }

    async fn change_run(&self, state: RunState, second: u64) {
        let change = RunChange {
            state,
            partial: false,
            reason: None,
            at: instant(second),
        };
        let run = self.run;
        self.apply(Row::Run { run, change }).await;
    }

    /// A step of an hour, with what all agents send. Returns the number of rows, and the longest time for which sending
    /// was blocked.
    async fn step(&self, hour: u64) -> (u64, Duration) {
        let (step, tasks) = self.begin_step(hour).await;
        let (every, end) = (self.size.every, (hour + 1) * HOUR);
        let mut receipts = VecDeque::new();
        let (mut rows, mut longest) = (0, Duration::ZERO);
        for second in (hour * HOUR + every..=end).step_by(every as usize) {
            for (agent, (_, publisher)) in self.agents.iter().enumerate() {
                let mut batch = self.size.batch(second);
                if let Some(&task) = tasks.get(agent) {
                    batch.op_intervals = vec![self.interval(task, second)];
                    if second == end {
                        batch.task_ends = vec![task_end(task, hour)];
                    }
                }
                rows += batch.rows() as u64;
                let asked = Instant::now();
                receipts.push_back(publisher.submit(batch).await.unwrap());
                longest = longest.max(asked.elapsed());
            }
            let asked = Instant::now();
            while receipts.len() >= WINDOW as usize * self.agents.len() {
                receipts.pop_front().unwrap().await.unwrap();
            }
            longest = longest.max(asked.elapsed());
        }
        self.store.flush().await;
        for receipt in receipts {
            receipt.await.unwrap();
        }
        let finished = FinishedStep {
            state: StepState::Done,
            partial: false,
            ended: instant(end),
            reason: None,
        };
        self.store.finish_step(step, finished).await.unwrap();
        (rows, longest)
    }

    async fn begin_step(&self, hour: u64) -> (StepId, Vec<TaskId>) {
        let clients = &self.agents[..CLIENTS.min(self.agents.len())];
        let step = NewStep {
            ordinal: hour as u32 + 1,
            loop_number: hour as u32 + 1,
            repeat: 1,
            attempt: 1,
            phase: "soak".to_owned(),
            cell: "soak".to_owned(),
            target: "cephfs".to_owned(),
            system: "cephfs".to_owned(),
            workload: "io".to_owned(),
            mode: "write".to_owned(),
            params_json: "{}".to_owned(),
            clients: clients.len() as u32,
            cache: "asis".to_owned(),
            groups: Vec::new(),
        };
        let run = self.run;
        let step = StepId(
            self.apply(Row::Steps {
                run,
                steps: vec![step],
            })
            .await[0],
        );
        let task = |(index, client): (usize, &(AgentId, Publisher))| NewTask {
            agent: client.0,
            peer: None,
            task_index: index as u32,
            group: String::new(),
            workers: 4,
            link_bytes_per_s: None,
        };
        let tasks = clients.iter().enumerate().map(task).collect();
        let tasks = self.apply(Row::Tasks { step, tasks }).await;
        let change = StepChange {
            state: StepState::Running,
            at: instant(hour * HOUR),
            start: Some(instant(hour * HOUR)),
            ended: None,
            reason: None,
        };
        self.apply(Row::Step { step, change }).await;
        (step, tasks.into_iter().map(TaskId).collect())
    }

    fn interval(&self, task: TaskId, second: u64) -> OpInterval {
        OpInterval {
            task,
            run_uid: "lapse".to_owned(),
            at: instant(second - self.size.every),
            span_us: self.size.every as i64 * 1_000_000,
            op: "write".to_owned(),
            ramp: false,
            ops: 1000,
            bytes: 4_096_000,
            undated_bytes: 0,
            errors: 0,
            in_flight: 4,
            service: self.service.clone(),
            response: None,
        }
    }
}

fn task_end(task: TaskId, hour: u64) -> TaskEnd {
    TaskEnd {
        task,
        run_uid: "lapse".to_owned(),
        state: TaskState::Done,
        workers: 4,
        start: Some(instant(hour * HOUR)),
        skew_us: 20,
        skew_error_us: 10,
        first_done: Some(instant((hour + 1) * HOUR)),
        ended: Some(instant((hour + 1) * HOUR)),
        last_begun: None,
        cpu_user_us: Some(1),
        cpu_system_us: Some(1),
        wait_cpu_us: Some(0),
        harness_ns_per_op: 100,
        error: None,
        errors: Vec::new(),
    }
}

fn read_at_the_end(runtime: &Runtime, path: &Path, run: RunId) {
    let number = run.0.to_string();
    timed("findings", || {
        runtime.block_on(async {
            let store = Store::open(path).await.unwrap();
            let mut connection = store.reader().acquire().await.unwrap();
            let found = findings::of_run(&mut connection, run).await.unwrap();
            drop(connection);
            // As the collector does when the run ends.
            store.store_findings(run, found).await.unwrap();
            store.close().await;
        });
    });
    timed("report", || {
        let report = runtime.block_on(report::load_file(path, &number)).unwrap();
        assert!(report::tables_within(&report, Detail::Summary, Some(100)).len() > 2);
    });
    let page = HttpListen::At("127.0.0.1:0".parse().unwrap());
    let serving = serve(runtime, path, Security::Insecure, KeepFor::Forever, page);
    let url = serving.url.clone().unwrap();
    for api in ["/api/v1/overview", "/api/v1/runs/1/timeline"] {
        timed(&format!("page {api}"), || get(&url, api));
    }
    serving.end(runtime);
    for view in [
        "v_results",
        "v_timeline",
        "v_daemon_usage",
        "v_cost",
        "v_host_usage",
        "v_host_timeline",
        "v_links",
        "v_marks",
        "v_runs",
    ] {
        timed(view, || {
            let file = rusqlite::Connection::open(path).unwrap();
            let sql = format!("SELECT * FROM {view} WHERE run_id = {number}");
            let mut statement = file.prepare(&sql).unwrap();
            let mut rows = statement.raw_query();
            while rows.next().unwrap().is_some() {}
        });
    }
}

fn timed(name: &str, work: impl FnOnce()) {
    let began = Instant::now();
    work();
    let took = began.elapsed();
    let over = if took > BAR { " over" } else { "" };
    println!(
        "  {name:34} {:>8.0} ms, {:.2} of the bar{over}",
        took.as_secs_f64() * 1e3,
        took.div_duration_f64(BAR)
    );
}

/// Reads an answer of the collector with this page, whose URL ends in `=TOKEN`.
fn get(url: &str, api: &str) {
    let (page, token) = url.rsplit_once('=').unwrap();
    let host = page.split('/').nth(2).unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let head = format!("Host: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close");
    write!(stream, "GET {api} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{api}: {answer:.300}");
}
