//! Days of telemetry of a mesh in a short time: through the real ingest and store as fast as they accept it, with
//! retention at work by the instants of the rows.
//!
//! One run repeats its step once an hour, or is one single step (`--one-step`). Four agents carry load, all sample at 1
//! Hz. A line per virtual hour reports the size of the file and the usage of the process. At the end, all reads that
//! users make of the run are timed.
//!
//! Memory is measured as in the packaged service with `GLIBC_TUNABLES=glibc.malloc.tcache_count=0` in the environment.

use crate::{Options, usage, writer, writes};
use benchmesh_answers::findings;
use benchmesh_answers::pictures;
use benchmesh_answers::report::{self, Detail};
use benchmesh_collector::service::memory;
use benchmesh_collector::trust::Security;
use benchmesh_collector::web::{HttpConfig, HttpListen};
use benchmesh_collector::{Collector, CollectorConfig};
use benchmesh_model::mesh::{MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState};
use benchmesh_store::distribution::Distribution;
use benchmesh_store::ingest::Receipt;
use benchmesh_store::ingest::batch::{OpInterval, TaskEnd};
use benchmesh_store::prune::Pruned;
use benchmesh_store::retention::{KeepFor, MaxSize, Retainer, Retention};
use benchmesh_store::rows::{FinishedStep, NewRun, NewStep, NewTask, Row, RunChange, StepChange};
use benchmesh_store::{Publisher, Store};
use benchmesh_workloads::histogram::Histogram;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const HOUR: u64 = 3600;
const HOUR_US: i64 = 3_600_000_000;
const T0_US: i64 = 1_750_000_000_000_000;
const CLIENTS: usize = 4;
/// Same length as in the collector.
const SLICE_US: i64 = 600_000_000;
/// Batches that an agent sends ahead of their acknowledgement.
const WINDOW: u32 = 256;
/// Time limit for each of the reads at the end.
const BAR: Duration = Duration::from_secs(2);
const VIEWS: [&str; 9] = [
    "v_results",
    "v_timeline",
    "v_daemon_usage",
    "v_cost",
    "v_host_usage",
    "v_host_timeline",
    "v_links",
    "v_marks",
    "v_runs",
];

pub fn run(options: &Options) {
    let runtime = memory::runtime().unwrap();
    let directory = tempfile::TempDir::new_in(&options.directory).unwrap();
    let path = match &options.db {
        Some(kept) if kept.exists() => {
            read_at_the_end(&runtime, kept, RunId(1));
            return;
        }
        Some(kept) => kept.clone(),
        None => directory.path().join("mesh.db"),
    };
    println!(
        "{} h of {} of {} agents with {} daemons, {} disks and {} interfaces each, a sample every {} s; rows of seconds are kept {} h; {}",
        options.hours,
        if options.one_step {
            "one step"
        } else {
            "steps of an hour"
        },
        options.sessions,
        options.daemons,
        options.devices,
        options.devices,
        options.every,
        options.keep_hours,
        match options.max_mb {
            0 => String::from("no limit of size"),
            limit => format!("the file may have {limit} MB"),
        }
    );
    println!(
        "{:>5} {:>11} {:>8} {:>7} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}",
        "hour",
        "rows",
        "file MB",
        "RSS MiB",
        "anon",
        "malloc",
        "SQLite",
        "written",
        "wait ms",
        "prune ms",
        "took s"
    );
    let run = runtime.block_on(telemetry(&path, options));
    read_at_the_end(&runtime, &path, run);
}

async fn telemetry(path: &Path, options: &Options) -> RunId {
    let store = Store::open(path).await.unwrap();
    store.open_readers().await;
    let retention = Retention {
        keep_seconds: KeepFor::Span(Duration::from_secs(options.keep_hours * HOUR)),
        keep_10s: KeepFor::Span(Duration::from_secs(options.keep_hours * 4 * HOUR)),
        max_size: match options.max_mb {
            0 => MaxSize::Unlimited,
            limit => MaxSize::Bytes(limit * 1_000_000),
        },
        ..Retention::default()
    };
    let retainer = Retainer::new(store.clone(), retention);
    let mut mesh = Mesh::attach(&store, options).await;
    let began = written();
    let mut rows = 0;
    let mut pass: Option<tokio::task::JoinHandle<Pruned>> = None;
    let mut under_way: Option<Step> = None;
    for hour in 0..options.hours {
        let (before, clock) = (written(), Instant::now());
        let step = match under_way.take() {
            Some(step) => step,
            None => mesh.begin_step(hour).await,
        };
        let is_last = !options.one_step || hour + 1 == options.hours;
        let (stored, wait) = mesh.hour(hour, &step, is_last).await;
        rows += stored;
        if is_last {
            let ending = Instant::now();
            mesh.end_step(hour, &step).await;
            if options.one_step {
                println!(
                    "the end of the step took {:.1} s",
                    ending.elapsed().as_secs_f64()
                );
            }
        } else {
            mesh.await_sums(&step, hour).await;
            under_way = Some(step);
        }
        let pruned = match pass.take() {
            Some(pass) => finished(pass, &store).await,
            None => Pruned::default(),
        };
        // A collector does this once a minute.
        memory::give_back();
        let row = Line {
            hour: hour + 1,
            rows,
            written: written() - before,
            wait,
            longest: pruned.longest,
            took: clock.elapsed(),
        };
        row.print(path);
        let (retainer, now) = (retainer.clone(), instant((hour + 1) * HOUR));
        pass = Some(tokio::spawn(
            async move { retainer.pass(now).await.unwrap() },
        ));
    }
    if let Some(pass) = pass {
        finished(pass, &store).await;
    }
    mesh.end_run(options.hours).await;
    store.close().await;
    let (bytes, days) = (written() - began, options.hours as f64 / 24.0);
    println!(
        "written {:.0} MiB an hour, {:.1} per agent; the file has {:.0} MB, {:.0} MB a day",
        mib(bytes) / options.hours as f64,
        mib(bytes) / options.hours as f64 / options.sessions as f64,
        megabytes(path),
        megabytes(path) / days
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

struct Line {
    hour: u64,
    rows: u64,
    written: u64,
    wait: Duration,
    longest: Duration,
    took: Duration,
}

impl Line {
    fn print(&self, path: &Path) {
        println!(
            "{:>5} {:>11} {:>8.0} {:>7.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>9.0} {:>9.1} {:>7.1}",
            self.hour,
            self.rows,
            megabytes(path),
            usage::rss_mib(),
            usage::anonymous_mib(),
            usage::malloc_mib(),
            usage::sqlite_mib(),
            mib(self.written),
            self.wait.as_secs_f64() * 1e3,
            self.longest.as_secs_f64() * 1e3,
            self.took.as_secs_f64(),
        );
        std::io::stdout().flush().unwrap();
    }
}

/// The agents, and their run.
struct Mesh {
    store: Store,
    run: RunId,
    agents: Vec<benchmesh_model::mesh::AgentId>,
    publishers: Vec<Publisher>,
    daemons: usize,
    devices: i64,
    every: u64,
    service: Distribution,
}

/// A step under way, with the task of each client.
struct Step {
    id: StepId,
    tasks: Vec<TaskId>,
    began_hour: u64,
}

impl Mesh {
    async fn attach(store: &Store, options: &Options) -> Self {
        let mut agents = Vec::new();
        let mut publishers = Vec::new();
        for session in 0..options.sessions {
            let (agent, host) = store.attach_agent(writer::agent(session)).await.unwrap();
            let publisher = store.publisher(agent, host, String::new());
            publishers.push(publisher.with_window(WINDOW));
            agents.push(agent);
        }
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
            agents,
            publishers,
            daemons: options.daemons,
            devices: options.devices,
            every: options.every,
            service: Distribution::from(&histogram),
        };
        mesh.change_run(RunState::Running, 0).await;
        mesh
    }

    async fn change_run(&self, state: RunState, second: u64) {
        let change = RunChange {
            state,
            partial: false,
            reason: None,
            at: instant(second),
        };
        let run = self.run;
        self.store
            .apply(vec![Row::Run { run, change }])
            .await
            .unwrap();
    }

    async fn end_run(&self, hours: u64) {
        self.change_run(RunState::Done, hours * HOUR).await;
    }

    async fn begin_step(&self, hour: u64) -> Step {
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
        let steps = vec![step];
        let made = self.store.apply(vec![Row::Steps { run, steps }]);
        let step = StepId(made.await.unwrap()[0][0]);
        let tasks = clients.iter().enumerate().map(|(index, &agent)| NewTask {
            agent,
            peer: None,
            task_index: index as u32,
            group: String::new(),
            workers: 4,
            link_bytes_per_s: None,
        });
        let tasks = tasks.collect();
        let made = self.store.apply(vec![Row::Tasks { step, tasks }]);
        let tasks = made.await.unwrap()[0].iter().copied().map(TaskId).collect();
        let change = StepChange {
            state: StepState::Running,
            at: instant(hour * HOUR),
            start: Some(instant(hour * HOUR)),
            ended: None,
            reason: None,
        };
        self.store
            .apply(vec![Row::Step { step, change }])
            .await
            .unwrap();
        Step {
            id: step,
            tasks,
            began_hour: hour,
        }
    }

    /// Waits until the hour is summed up, as it would be after a real hour.
    async fn await_sums(&self, step: &Step, hour: u64) {
        let until_us = instant((hour + 1) * HOUR).0 - 2 * SLICE_US;
        let file = rusqlite::Connection::open(self.store.path()).unwrap();
        let summed = "SELECT coalesce(max(until_us), 0) FROM step_sums WHERE step_id = ? AND sums IS NOT NULL";
        loop {
            let newest: i64 = file
                .query_row(summed, [step.id.0], |row| row.get(0))
                .unwrap();
            if newest >= until_us {
                return;
            }
            // The time line would wait for rows of agents, and none come meanwhile.
            self.store.flush().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends an hour of all agents. Returns the number of rows, and the longest time for which sending was blocked.
    async fn hour(&mut self, hour: u64, step: &Step, is_last: bool) -> (u64, Duration) {
        let mut receipts: VecDeque<Receipt> = VecDeque::new();
        let mut rows = 0;
        let mut longest = Duration::ZERO;
        for second in (hour * HOUR + self.every..=(hour + 1) * HOUR).step_by(self.every as usize) {
            for (agent, publisher) in self.publishers.iter().enumerate() {
                let mut batch = writes::batch(second, self.every, self.daemons, self.devices);
                if let Some(&task) = step.tasks.get(agent) {
                    batch.op_intervals = vec![self.interval(task, second)];
                    if is_last && second == (hour + 1) * HOUR {
                        batch.task_ends = vec![end(task, step.began_hour, hour)];
                    }
                }
                rows += batch.rows() as u64;
                let asked = Instant::now();
                receipts.push_back(publisher.submit(batch).await.unwrap());
                longest = longest.max(asked.elapsed());
            }
            let asked = Instant::now();
            while receipts.len() >= WINDOW as usize * self.publishers.len() {
                receipts.pop_front().unwrap().await.unwrap();
            }
            longest = longest.max(asked.elapsed());
        }
        self.store.flush().await;
        for receipt in receipts {
            receipt.await.unwrap();
        }
        (rows, longest)
    }

    fn interval(&self, task: TaskId, second: u64) -> OpInterval {
        OpInterval {
            task,
            run_uid: "lapse".to_owned(),
            at: instant(second - self.every),
            span_us: self.every as i64 * 1_000_000,
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

    async fn end_step(&self, hour: u64, step: &Step) {
        let finished = FinishedStep {
            state: StepState::Done,
            partial: false,
            ended: instant((hour + 1) * HOUR),
            reason: None,
        };
        self.store.finish_step(step.id, finished).await.unwrap();
    }
}

fn end(task: TaskId, began_hour: u64, hour: u64) -> TaskEnd {
    TaskEnd {
        task,
        run_uid: "lapse".to_owned(),
        state: TaskState::Done,
        workers: 4,
        start: Some(instant(began_hour * HOUR)),
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

fn instant(second: u64) -> MeshMicros {
    MeshMicros(T0_US + second as i64 * (HOUR_US / HOUR as i64))
}

fn read_at_the_end(runtime: &tokio::runtime::Runtime, path: &Path, run: RunId) {
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
    let mut read = None;
    timed("report", || {
        let report = runtime.block_on(report::load_file(path, &number)).unwrap();
        assert!(report::tables_within(&report, Detail::Summary, Some(100)).len() > 2);
        read = Some(report);
    });
    let report = Arc::new(read.unwrap());
    timed("report --format html", || {
        let drawn = runtime
            .block_on(pictures::load(path, Arc::clone(&report)))
            .unwrap();
        assert!(!pictures::html(&report, &drawn).is_empty());
    });
    runtime.block_on(page(path));
    for view in VIEWS {
        timed(view, || {
            let file = rusqlite::Connection::open(path).unwrap();
            let sql = format!("SELECT * FROM {view} WHERE run_id = {}", run.0);
            let mut statement = file.prepare(&sql).unwrap();
            let mut rows = statement.raw_query();
            while rows.next().unwrap().is_some() {}
        });
    }
}

fn timed(name: &str, work: impl FnOnce()) {
    let began = Instant::now();
    work();
    told(name, began.elapsed());
}

fn told(name: &str, took: Duration) {
    let over = if took > BAR { " over" } else { "" };
    println!("  {name:24} {:>8.0} ms{over}", took.as_secs_f64() * 1e3);
}

/// Computes the page's state in a collector that has just opened the file.
async fn page(path: &Path) {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = probe.local_addr().unwrap();
    drop(probe);
    let config = CollectorConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        db: path.to_owned(),
        security: Security::Insecure,
        retention: Retention::default(),
        on_alarm: None,
        clock_ppm: 0,
        newcomer_timeout: None,
        http: HttpConfig {
            listen: HttpListen::At(listen),
            ..HttpConfig::default()
        },
    };
    let collector = Collector::bind(config).await.unwrap();
    let url = collector.page_url().unwrap();
    let token = url.rsplit('=').next().unwrap().to_owned();
    let cancel = CancellationToken::new();
    let serving = tokio::spawn(collector.serve(cancel.clone()));
    for address in ["/api/v1/overview", "/api/v1/runs/1/timeline"] {
        let began = Instant::now();
        let token = token.clone();
        let answer = tokio::task::spawn_blocking(move || get(listen, address, &token));
        let answer = answer.await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{address}: {answer:.300}"
        );
        told(&format!("page {address}"), began.elapsed());
    }
    cancel.cancel();
    serving.await.unwrap().unwrap();
}

fn get(listen: std::net::SocketAddr, address: &str, token: &str) -> String {
    let mut stream = std::net::TcpStream::connect(listen).unwrap();
    write!(
        stream,
        "GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn written() -> u64 {
    usage::written_bytes()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn megabytes(path: &Path) -> f64 {
    std::fs::metadata(path).unwrap().len() as f64 / 1e6
}
