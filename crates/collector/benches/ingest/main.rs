//! How fast samples of daemons reach the database, and what it costs. `--help` lists the parts and their options.
//!
//! Each part prints its baseline, measured in the same run, and the ratio. All of them write the shipped schema with
//! synchronous=FULL, and a row counts when it is committed. The instants of a batch are in the past, one sample per
//! millisecond, so that any rate of rows is possible.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing
)]

mod end_to_end;
mod lapse;

use benchmesh_model::figures::{DaemonFigures, Figures, columns};
use benchmesh_model::mesh::{AgentId, MeshMicros};
use benchmesh_proto::v1 as proto;
use benchmesh_store::ingest::Batch;
use benchmesh_store::retention::{KeepFor, MaxSize, Retainer, Retention};
use benchmesh_store::rows::{NewAgent, NewHost};
use benchmesh_store::{GROUP_ROWS, Publisher, Store};
use benchmesh_synthetic::{Shape, T0_US, generate};
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};

const HELP: &str = "\
cargo bench -p benchmesh-collector --bench ingest -- PART [OPTION]...
  --sessions N 10, --daemons N 20 per session, --dir DIR for the databases
writer: the store's writer against a bare loop of prepared inserts: same table, rows, transactions and settings
  --rounds N 7, --beats N samples of each daemon in a batch: 5
end-to-end: the real collector, and as many agents in another process on the same CPUs, over TLS
  --rounds N 1, --seconds N of a round: 60, --beats N 5
  --history-runs N, --history-seconds N 3600: meanwhile the collector merges rows of N runs of nine minutes and a soak
  --cut-every N: seconds after which each agent loses its connection, again and again
  with one of these, each round is followed by one without them, which is its baseline
prune: rows of the agents are stored before, beside and after merging a history in the same file
  --rate N rows per second: 0, as many as are stored; --seconds N before and after: 60; --history-... as above
writes: bytes written to the disk for an hour of samples at 1 Hz, by seconds per commit; needs a disk
  --devices N disks, and interfaces, of each agent: 3
lapse: days of telemetry of a run with steps of an hour, as fast as they are stored, with retention
  --hours N 12, --every N seconds between samples: 1, --devices N 3
  --keep-hours N of rows of seconds: 6; those of 10 s stay four times as long";

/// The daemon, the instant and the figures.
const COLUMNS: usize = 2 + DaemonFigures::ALL.len();

fn main() {
    for word in std::env::args().skip(1) {
        return match word.as_str() {
            "writer" => writer(),
            "end-to-end" => end_to_end::run(),
            "agents" => end_to_end::agents(),
            "prune" => prune(),
            "writes" => lapse::writes(),
            "lapse" => lapse::run(),
            _ => continue,
        };
    }
    // Also for `cargo test --benches`, which only needs it to link.
    println!("{HELP}");
}

fn option<T: FromStr>(name: &str) -> Option<T> {
    let value = std::env::args().skip_while(|word| word != name).nth(1)?;
    let parsed = value.parse();
    Some(parsed.unwrap_or_else(|_| panic!("{name}: {value} is not understood")))
}

/// A directory for databases.
fn directory() -> tempfile::TempDir {
    let parent: PathBuf = option("--dir").unwrap_or_else(std::env::temp_dir);
    tempfile::TempDir::new_in(parent).unwrap()
}

#[derive(Clone, Copy)]
struct Size {
    sessions: usize,
    daemons: usize,
    beats: usize,
}

impl Size {
    fn asked() -> Self {
        Self {
            sessions: option("--sessions").unwrap_or(10),
            daemons: option("--daemons").unwrap_or(20),
            beats: option("--beats").unwrap_or(5),
        }
    }

    fn rows_of_a_batch(self) -> usize {
        self.daemons * self.beats
    }
}

/// CPU time of this process in seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The median, and the least and the greatest value in brackets.
fn spread(figures: impl IntoIterator<Item = f64>, digits: usize) -> String {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let (median, last) = (figures[figures.len() / 2], figures[figures.len() - 1]);
    format!(
        "{median:.digits$} ({:.digits$} to {last:.digits$})",
        figures[0]
    )
}

/// One session's stream of batches, with figures typical of storage daemons.
#[derive(Clone)]
struct Beats {
    spool_id: String,
    size: Size,
    /// Of the last batch.
    sequence: u64,
    first_us: i64,
}

impl Beats {
    fn new(spool_id: String, size: Size) -> Self {
        let now = clock_gettime(ClockId::Realtime);
        Self {
            spool_id,
            size,
            sequence: 0,
            first_us: now.tv_sec * 1_000_000 + now.tv_nsec / 1000,
        }
    }

    fn next_batch(&mut self) -> proto::Batch {
        self.sequence += 1;
        let (daemons, beats) = (self.size.daemons as i64, self.size.beats as i64);
        let first = (self.sequence as i64 - 1) * beats + 1;
        let first_us = self.first_us;
        let samples: Vec<(i64, i64)> = (first..first + beats)
            .flat_map(|beat| (0..daemons).map(move |daemon| (beat, daemon)))
            .collect();
        let figures = |&(beat, daemon): &(i64, i64)| DaemonFigures {
            cpu_user_us: 3_000_000_000 + beat * 83_117 + daemon * 977,
            cpu_system_us: 900_000_000 + beat * 41_011 + daemon * 131,
            rss_bytes: 4_294_967_296 + (beat * 7919 + daemon * 104_729) % 1_000_000 * 4096,
            vsz_bytes: 8_589_934_592 + daemon * 4096,
            threads: 60 + daemon % 40,
            fds: 300 + (beat + daemon) % 50,
            read_bytes: 50_000_000_000 + beat * 1_048_576 + daemon,
            write_bytes: 70_000_000_000 + beat * 2_097_152 + daemon,
            vol_ctx: 40_000_000 + beat * 1200 + daemon,
            invol_ctx: 500_000 + beat * 13 + daemon,
            minor_faults: 9_000_000 + beat * 55 + daemon,
            major_faults: 120 + beat / 100 + daemon,
            ..DaemonFigures::UNREAD
        };
        let described = |daemon: i64| proto::DaemonSeen {
            pid: 1000 + daemon as i32,
            start_ticks: 123_456,
            name: "ceph-osd".to_owned(),
            instance: format!("osd.{daemon}"),
            cmdline: format!("/usr/bin/ceph-osd -f --cluster ceph --id {daemon}"),
            at_us: first_us,
            ..proto::DaemonSeen::default()
        };
        let new_daemons = if first == 1 { daemons } else { 0 };
        let rows: Vec<_> = samples.iter().map(figures).collect();
        proto::Batch {
            spool_id: self.spool_id.clone(),
            first_sequence: self.sequence,
            sequence: self.sequence,
            daemons: (0..new_daemons).map(described).collect(),
            daemon_samples: Some(proto::DaemonSamples {
                pid: samples
                    .iter()
                    .map(|sample| 1000 + sample.1 as i32)
                    .collect(),
                start_ticks: vec![123_456; samples.len()],
                // Readings of different daemons are some microseconds apart.
                at_us: samples
                    .iter()
                    .map(|(beat, daemon)| first_us + beat * 1000 + daemon * 7)
                    .collect(),
                figures: columns(rows.into_iter())
                    .into_iter()
                    .map(Into::into)
                    .collect(),
            }),
            ..proto::Batch::default()
        }
    }

    fn next_decoded(&mut self) -> Batch {
        Batch::try_from(self.next_batch()).unwrap()
    }
}

/// Attaches agents to a store.
async fn attach(store: &Store, sessions: usize) -> Vec<(AgentId, Publisher)> {
    let mut attached = Vec::new();
    for session in 0..sessions {
        let agent = NewAgent {
            uid: format!("uid-{session}"),
            name: format!("agent-{session}"),
            host: NewHost {
                boot_id: format!("boot-{session}"),
                pid_namespace: "pid".to_owned(),
                name: format!("host-{session}"),
                kernel: "Linux".to_owned(),
                cpus: 2,
                memory_bytes: 1 << 34,
            },
            labels_json: "{}".to_owned(),
            version: "0".to_owned(),
            may_rename: false,
            describes_host: true,
            at: MeshMicros(T0_US),
        };
        let (agent, host) = store.attach_agent(agent).await.unwrap();
        attached.push((agent, store.publisher(agent, host, String::new())));
    }
    attached
}

/// Stores batches and waits until all are committed.
async fn commit(store: &Store, batches: Vec<(&Publisher, Batch)>) {
    let mut receipts = Vec::with_capacity(batches.len());
    for (publisher, batch) in batches {
        receipts.push(publisher.submit(batch).await.unwrap());
    }
    // The last rows would wait for more of them.
    store.flush().await;
    for receipt in receipts {
        receipt.await.unwrap();
    }
}

/// Batches of each session in turn.
fn batches<'a>(
    publishers: &'a [Publisher],
    beats: &mut [Beats],
    count: usize,
) -> Vec<(&'a Publisher, Batch)> {
    let sessions = publishers.len();
    let session = (0..count).map(|index| index % sessions);
    session
        .map(|session| (&publishers[session], beats[session].next_decoded()))
        .collect()
}

fn streams(size: Size, spool: &str) -> Vec<Beats> {
    (0..size.sessions)
        .map(|session| Beats::new(format!("{spool}-{session}"), size))
        .collect()
}

/// Rows per second, and microseconds of CPU per row.
fn figure(rows: usize, work: impl FnOnce()) -> (f64, f64) {
    let (before, began) = (cpu(), Instant::now());
    work();
    let elapsed = began.elapsed().as_secs_f64();
    (rows as f64 / elapsed, (cpu() - before) * 1e6 / rows as f64)
}

fn writer() {
    /// Of one round on each side.
    const TRANSACTIONS: usize = 10;
    let (size, rounds) = (Size::asked(), option("--rounds").unwrap_or(7));
    let (directory, runtime) = (directory(), Runtime::new().unwrap());
    let file = |name: &str| directory.path().join(name);
    let (store, publishers) = runtime.block_on(opened(&file("writer.db"), size.sessions));
    let mut ours = streams(size, "spool");
    let mut bare = [(false, "arrival.db"), (true, "key.db")].map(|(sorts, name)| {
        runtime.block_on(async { opened(&file(name), size.sessions).await.0.close().await });
        Bare::open(&file(name), size, sorts)
    });
    let in_transaction = GROUP_ROWS.div_ceil(size.rows_of_a_batch());
    let count = in_transaction * TRANSACTIONS;
    let rows = count * size.rows_of_a_batch();
    println!("writer alone: {rounds} rounds of {rows} rows in {TRANSACTIONS} transactions");
    let mut measured = Vec::new();
    // The first round is a warm-up: files grow and caches fill.
    for round in 0..=rounds {
        let decoded = batches(&publishers, &mut ours, count);
        let writer = figure(rows, || runtime.block_on(commit(&store, decoded)));
        let [arrival, key] = bare.each_mut().map(|side| {
            let transactions = side.transactions(count, in_transaction);
            figure(rows, || side.insert(transactions))
        });
        if round > 0 {
            measured.push([writer, arrival, key]);
        }
    }
    for (side, name) in ["store", "bare loop, by arrival", "bare loop, by key"]
        .iter()
        .enumerate()
    {
        let of = |figure: fn((f64, f64)) -> f64| measured.iter().map(move |all| figure(all[side]));
        let (rate, cpu) = (spread(of(|one| one.0), 0), spread(of(|one| one.1), 2));
        let ratio = spread(measured.iter().map(|all| all[0].0 / all[side].0), 2);
        println!("  {name:25} {rate} rows/s, {cpu} us CPU per row; the writer is {ratio}");
    }
    println!("  the bar is 0.85");
    runtime.block_on(store.close());
}

/// A database with agents.
async fn opened(path: &Path, sessions: usize) -> (Store, Vec<Publisher>) {
    let store = Store::open(path).await.unwrap();
    let attached = attach(&store, sessions).await;
    (
        store,
        attached
            .into_iter()
            .map(|(_, publisher)| publisher)
            .collect(),
    )
}

/// The writer's baseline: one prepared insert in a file that the store has made.
struct Bare {
    connection: Connection,
    beats: Vec<Beats>,
    /// Each transaction sorted by key, as the writer does it; otherwise in the order of arrival.
    sorts: bool,
}

impl Bare {
    fn open(path: &Path, size: Size, sorts: bool) -> Self {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
                 PRAGMA cache_size = -16384; PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 16777216;",
            )
            .unwrap();
        for daemon in 0..size.sessions * size.daemons {
            let sql = "INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, \
                 last_seen_us) VALUES (?1, ?2, 'ceph-osd', ?1, ?1, 1, NULL, 0, 0)";
            let host = daemon / size.daemons + 1;
            connection
                .execute(sql, [daemon as i64 + 1, host as i64])
                .unwrap();
        }
        Self {
            connection,
            beats: streams(size, "spool"),
            sorts,
        }
    }

    fn transactions(&mut self, count: usize, in_each: usize) -> Vec<Vec<[i64; COLUMNS]>> {
        let mut transactions: Vec<Vec<[i64; COLUMNS]>> = Vec::new();
        for index in 0..count {
            if index % in_each == 0 {
                transactions.push(Vec::new());
            }
            let session = index % self.beats.len();
            let size = self.beats[session].size;
            let samples = self.beats[session].next_batch().daemon_samples.unwrap();
            let row = |row: usize| {
                std::array::from_fn(|column| match column {
                    0 => (session * size.daemons + row % size.daemons) as i64 + 1,
                    1 => samples.at_us[row],
                    _ => samples.figures[column - 2].values[row],
                })
            };
            transactions
                .last_mut()
                .unwrap()
                .extend((0..size.rows_of_a_batch()).map(row));
        }
        transactions
    }

    fn insert(&mut self, transactions: Vec<Vec<[i64; COLUMNS]>>) {
        let sql = format!(
            "INSERT INTO daemon_samples VALUES ({})",
            vec!["?"; COLUMNS].join(",")
        );
        for mut rows in transactions {
            if self.sorts {
                rows.sort_unstable_by_key(|row| (row[0], row[1]));
            }
            self.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            {
                let mut insert = self.connection.prepare_cached(&sql).unwrap();
                for row in &rows {
                    insert.execute(rusqlite::params_from_iter(row)).unwrap();
                }
            }
            self.connection.execute_batch("COMMIT").unwrap();
        }
    }
}

/// The history that is merged, of some runs and a soak.
fn history(runs: u32) -> Shape {
    Shape {
        runs,
        soak_seconds: option("--history-seconds").unwrap_or(3600),
        ..Shape::week()
    }
}

fn prune() {
    let (size, directory) = (Size::asked(), directory());
    let path = directory.path().join("history.db");
    let shape = history(option("--history-runs").unwrap_or(10));
    generate(&path, &shape).unwrap();
    let mb = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
    println!(
        "a history of {mb:.0} MB is generated; rows are stored before, beside and after its merging"
    );
    Runtime::new().unwrap().block_on(async {
        let (store, publishers) = opened(&path, size.sessions).await;
        let retention = Retention {
            keep_seconds: KeepFor::Span(Duration::from_secs(1)),
            keep_10s: KeepFor::Forever,
            max_size: MaxSize::Unlimited,
            min_rows: 0,
            ..Retention::default()
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let time = Some(Duration::from_secs(option("--seconds").unwrap_or(60)));
        let before = ingest(&store, &publishers, streams(size, "before"), time, &is_over).await;
        println!("before: {before}");
        let (merged, ended) = (store.clone(), Arc::clone(&is_over));
        let merging = tokio::spawn(async move {
            let began = Instant::now();
            let an_hour_later = T0_US + (i64::from(shape.seconds()) + 3600) * 1_000_000;
            let pass = Retainer::new(merged, retention)
                .pass(MeshMicros(an_hour_later))
                .await;
            ended.store(true, Ordering::Relaxed);
            (pass.unwrap(), began.elapsed().as_secs_f64())
        });
        let beside = ingest(&store, &publishers, streams(size, "beside"), None, &is_over).await;
        let (pruned, took) = merging.await.unwrap();
        let ratio = beside.rows_per_s / before.rows_per_s;
        println!("beside: {beside}; {ratio:.2} of before");
        let after = ingest(&store, &publishers, streams(size, "after"), time, &is_over).await;
        println!(
            "after:  {after}; {:.2} of before",
            after.rows_per_s / before.rows_per_s
        );
        let (steps, rows, longest) = (
            pruned.steps,
            pruned.rows,
            pruned.longest.as_secs_f64() * 1e3,
        );
        println!("{steps} steps, {rows} rows gone in {took:.0} s");
        println!("the longest transaction took {longest:.1} ms; the bar is 100");
        store.close().await;
    });
}

/// One side of `prune`.
struct Ingested {
    rows_per_s: f64,
    /// From the first batch of a group to the commit of all.
    waits_ms: Vec<f64>,
}

impl std::fmt::Display for Ingested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waits = spread(self.waits_ms.clone(), 1);
        let long = self.waits_ms.iter().filter(|wait| **wait > 100.0).count();
        let (rate, count) = (self.rows_per_s, self.waits_ms.len());
        write!(
            f,
            "{rate:.0} rows/s; groups committed within {waits} ms, {long} of {count} over 100 ms"
        )
    }
}

/// Sends groups of batches of all sessions, for a time or until merging is over. With a rate, ten groups per second.
async fn ingest(
    store: &Store,
    publishers: &[Publisher],
    mut beats: Vec<Beats>,
    lasting: Option<Duration>,
    is_over: &AtomicBool,
) -> Ingested {
    let rate: usize = option("--rate").unwrap_or(0);
    let rows_of_a_batch = beats[0].size.rows_of_a_batch();
    let group = match rate {
        // As many as an agent sends ahead.
        0 => 16 * beats.len(),
        rate => rate
            .div_ceil(10 * rows_of_a_batch)
            .next_multiple_of(beats.len()),
    };
    let (began, mut rows, mut waits_ms) = (Instant::now(), 0, Vec::new());
    while match lasting {
        Some(lasting) => began.elapsed() < lasting,
        None => !is_over.load(Ordering::Relaxed),
    } {
        let group = batches(publishers, &mut beats, group);
        rows += group.len() * rows_of_a_batch;
        let sent = Instant::now();
        commit(store, group).await;
        waits_ms.push(sent.elapsed().as_secs_f64() * 1e3);
        if rate > 0 {
            sleep_until(began + Duration::from_secs_f64(rows as f64 / rate as f64)).await;
        }
    }
    let rows_per_s = rows as f64 / began.elapsed().as_secs_f64();
    Ingested {
        rows_per_s,
        waits_ms,
    }
}
