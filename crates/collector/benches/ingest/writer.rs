//! The writer alone, compared with a bare loop of prepared inserts: same table, rows and transactions, interleaved.

use crate::load::Beats;
use crate::{Options, spread, usage};
use benchmesh_model::figures::{DaemonFigures, Figures};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::Publisher;
use benchmesh_store::ingest::Batch;
use benchmesh_store::rows::{NewAgent, NewHost};
use benchmesh_store::{GROUP_ROWS, Store};
use rusqlite::Connection;
use std::path::Path;
use std::time::Instant;

/// The daemon, the instant and the figures.
const COLUMNS: usize = 2 + DaemonFigures::ALL.len();

/// Transactions of one round on each side.
const TRANSACTIONS: usize = 10;
const ROUNDS: usize = 7;

/// Order of the rows in the bare loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As the batches arrive: one sample of all daemons of one host after the other.
    Arrival,
    /// Each transaction sorted by key, as the writer does it.
    Key,
}

pub fn run(options: &Options) {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let directory = tempfile::TempDir::new_in(&options.directory).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut side = runtime.block_on(WriterSide::open(
        &directory.path().join("writer.db"),
        options,
    ));
    let mut arrival = BareSide::open(
        &runtime,
        &directory.path().join("arrival.db"),
        options,
        Order::Arrival,
    );
    let mut key = BareSide::open(
        &runtime,
        &directory.path().join("key.db"),
        options,
        Order::Key,
    );
    let batches_per_transaction = GROUP_ROWS.div_ceil(options.rows_of_a_batch());
    let rows = batches_per_transaction * TRANSACTIONS * options.rows_of_a_batch();
    println!(
        "writer alone: {rounds} rounds of {rows} rows, {} daemons, {} rows a transaction",
        options.sessions * options.daemons,
        batches_per_transaction * options.rows_of_a_batch()
    );
    let mut figures = [const { Vec::new() }; 3];
    let mut against = [const { Vec::new() }; 2];
    // The first round is a warm-up: files grow and caches fill.
    for round in 0..=rounds {
        let count = batches_per_transaction * TRANSACTIONS;
        let ours = side.round(&runtime, count);
        let in_arrival = arrival.round(count, batches_per_transaction);
        let by_key = key.round(count, batches_per_transaction);
        if round == 0 {
            continue;
        }
        for (figure, one) in figures.iter_mut().zip([ours, in_arrival, by_key]) {
            figure.push(one);
        }
        against[0].push(ours.rate / in_arrival.rate);
        against[1].push(ours.rate / by_key.rate);
    }
    for (name, figures) in [
        "the store's writer",
        "bare loop, arrival order",
        "bare loop, key order",
    ]
    .into_iter()
    .zip(figures)
    {
        let (rate, least, most) = spread(figures.iter().map(|one: &Figure| one.rate).collect());
        let (cpu, ..) = spread(figures.iter().map(|one: &Figure| one.cpu_us).collect());
        println!(
            "  {name:26} {rate:>9.0} rows/s ({least:.0} to {most:.0}), {cpu:.2} us CPU per row"
        );
    }
    for (name, ratios) in ["arrival order", "key order"].into_iter().zip(against) {
        let (ratio, least, most) = spread(ratios);
        println!("  against {name}: {ratio:.2} ({least:.2} to {most:.2}); the bar is 0.85");
    }
    runtime.block_on(side.store.close());
}

#[derive(Clone, Copy)]
struct Figure {
    rate: f64,
    cpu_us: f64,
}

fn figure(rows: usize, work: impl FnOnce()) -> Figure {
    let cpu = usage::cpu();
    let began = Instant::now();
    work();
    let elapsed = began.elapsed().as_secs_f64();
    Figure {
        rate: rows as f64 / elapsed,
        cpu_us: (usage::cpu() - cpu).as_secs_f64() * 1e6 / rows as f64,
    }
}

pub fn agent(session: usize) -> NewAgent {
    NewAgent {
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
        at: MeshMicros(1_750_000_000_000_000),
    }
}

struct WriterSide {
    store: Store,
    publishers: Vec<Publisher>,
    beats: Vec<Beats>,
    rows: usize,
}

impl WriterSide {
    async fn open(path: &Path, options: &Options) -> Self {
        let store = Store::open(path).await.unwrap();
        let mut publishers = Vec::new();
        for session in 0..options.sessions {
            let (agent, host) = store.attach_agent(agent(session)).await.unwrap();
            publishers.push(store.publisher(agent, host, String::new()));
        }
        Self {
            store,
            publishers,
            beats: (0..options.sessions)
                .map(|session| {
                    Beats::new(format!("spool-{session}"), options.daemons, options.beats)
                })
                .collect(),
            rows: options.rows_of_a_batch(),
        }
    }

    /// Writes `count` batches, decoded beforehand, one second of each session in turn, until the last is committed.
    fn round(&mut self, runtime: &tokio::runtime::Runtime, count: usize) -> Figure {
        let sessions = self.publishers.len();
        let batches: Vec<(Publisher, Batch)> = (0..count)
            .map(|index| {
                let session = index % sessions;
                let batch = Batch::try_from(self.beats[session].next_batch()).unwrap();
                (self.publishers[session].clone(), batch)
            })
            .collect();
        figure(count * self.rows, || {
            runtime.block_on(async {
                let mut receipts = Vec::with_capacity(batches.len());
                for (publisher, batch) in batches {
                    receipts.push(publisher.submit(batch).await.unwrap());
                }
                // The last rows would wait for more of them.
                self.store.flush().await;
                for receipt in receipts {
                    receipt.await.unwrap();
                }
            });
        })
    }
}

/// The baseline: the shipped schema and settings, rows of the same batches, one prepared insert.
struct BareSide {
    connection: Connection,
    beats: Vec<Beats>,
    daemons: usize,
    rows: usize,
    order: Order,
}

impl BareSide {
    fn open(
        runtime: &tokio::runtime::Runtime,
        path: &Path,
        options: &Options,
        order: Order,
    ) -> Self {
        let beats: Vec<Beats> = (0..options.sessions)
            .map(|session| Beats::new(format!("spool-{session}"), options.daemons, options.beats))
            .collect();
        // The store creates the file, so that schema and page settings are the shipped ones.
        runtime.block_on(async {
            let side = WriterSide::open(path, options).await;
            side.store.close().await;
        });
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
                 PRAGMA cache_size = -16384; PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 16777216;",
            )
            .unwrap();
        for daemon in 0..options.sessions * options.daemons {
            connection
                .execute(
                    "INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us,
                         last_seen_us) VALUES (?1, ?2, 'ceph-osd', ?1, ?1, 1, NULL, 0, 0)",
                    [daemon as i64 + 1, (daemon / options.daemons) as i64 + 1],
                )
                .unwrap();
        }
        Self {
            connection,
            beats,
            daemons: options.daemons,
            rows: options.rows_of_a_batch(),
            order,
        }
    }

    fn round(&mut self, count: usize, batches_per_transaction: usize) -> Figure {
        let sessions = self.beats.len();
        let mut transactions: Vec<Vec<[i64; COLUMNS]>> = Vec::new();
        for index in 0..count {
            if index % batches_per_transaction == 0 {
                transactions.push(Vec::new());
            }
            let session = index % sessions;
            let samples = self.beats[session].next_batch().daemon_samples.unwrap();
            let first = (session * self.daemons) as i64 + 1;
            let rows = (0..self.rows).map(|row| {
                std::array::from_fn(|column| match column {
                    0 => first + (row % self.daemons) as i64,
                    1 => samples.at_us[row],
                    _ => samples.figures[column - 2].values[row],
                })
            });
            transactions.last_mut().unwrap().extend(rows);
        }
        let (connection, order) = (&mut self.connection, self.order);
        figure(count * self.rows, || {
            for rows in &mut transactions {
                if order == Order::Key {
                    rows.sort_unstable_by_key(|row| (row[0], row[1]));
                }
                let transaction = connection
                    .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                    .unwrap();
                {
                    let mut insert = transaction
                        .prepare_cached(&format!(
                            "INSERT INTO daemon_samples VALUES ({})",
                            vec!["?"; COLUMNS].join(",")
                        ))
                        .unwrap();
                    for row in rows.iter() {
                        insert.execute(rusqlite::params_from_iter(row)).unwrap();
                    }
                }
                transaction.commit().unwrap();
            }
        })
    }
}
