//! The real collector in this process and the generators in another, for the requested time.

use crate::{Options, spread, usage};
use benchmesh_collector::trust::{CERTIFICATE_LIFETIME, Security};
use benchmesh_collector::web::{HttpConfig, HttpListen};
use benchmesh_collector::{Collector, CollectorConfig, CollectorError};
use benchmesh_store::retention::{KeepFor, Retention};
use benchmesh_synthetic::{T0_US, generate};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Warm-up before memory is first read: caches and queues have filled by then.
const WARM: Duration = Duration::from_secs(5);

/// Rows of a history that are older than this are pruned.
const KEEP: Duration = Duration::from_secs(3600);
/// Time limit for the collector to compute the findings of a history, which it does before it prunes.
const FINDINGS_WITHIN: Duration = Duration::from_secs(600);

/// The transport between the generators and the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Tls,
    Plain,
}

/// A round's figures.
#[derive(Clone, Copy, Debug)]
struct Cost {
    rows_per_s: f64,
    collector_us_per_row: f64,
    generator_us_per_row: f64,
}

pub fn run(options: &Options) {
    let wires: &[Wire] = match options.against_plain {
        true => &[Wire::Tls, Wire::Plain],
        false => &[Wire::Tls],
    };
    let rounds = options.rounds.unwrap_or(1);
    let mut costs: Vec<(Wire, Cost)> = Vec::new();
    for _ in 0..rounds {
        for &wire in wires {
            costs.push((wire, round(options, wire)));
        }
    }
    if rounds == 1 && wires.len() == 1 {
        return;
    }
    for &wire in wires {
        let figure = |of: fn(&Cost) -> f64| {
            let own = costs.iter().filter(|(other, _)| *other == wire);
            spread(own.map(|(_, cost)| of(cost)).collect())
        };
        let (rate, least, most) = figure(|cost| cost.rows_per_s);
        let (collector, collector_least, collector_most) = figure(|cost| cost.collector_us_per_row);
        let (generator, ..) = figure(|cost| cost.generator_us_per_row);
        println!(
            "end to end, {wire:?}, {rounds} rounds: median {rate:.0} rows/s ({least:.0} to {most:.0}); the bar is 200000; \
             collector {collector:.2} us per row ({collector_least:.2} to {collector_most:.2}), generators {generator:.2}"
        );
    }
}

fn round(options: &Options, wire: Wire) -> Cost {
    let directory = tempfile::TempDir::new_in(&options.directory).unwrap();
    let path = directory.path().join("mesh.db");
    let runtime = Runtime::new().unwrap();
    let security = match wire {
        Wire::Plain => Security::Insecure,
        Wire::Tls => Security::Tls {
            directory: None,
            credentials: Some(directory.path().to_owned()),
            lifetime: CERTIFICATE_LIFETIME,
        },
    };
    // The end of the history; the generators send later rows.
    let mut old_until = T0_US;
    let history = options.history_runs.map(|runs| {
        let shape = options.history(runs);
        old_until += i64::from(shape.seconds()) * 1_000_000;
        generate(&path, &shape).unwrap();
        compute_findings(&runtime, &path);
        old_rows(&path, old_until)
    });
    let retention = Retention {
        keep_seconds: KeepFor::Span(KEEP),
        keep_10s: KeepFor::Forever,
        min_rows: 0,
        ..Retention::default()
    };
    let (address, serving, cancel) = serve(&runtime, &path, security, retention);
    let cpu = usage::cpu();
    let began = Instant::now();
    let mut generators = Command::new(std::env::current_exe().unwrap());
    if wire == Wire::Tls {
        generators.arg("--credentials").arg(directory.path());
    }
    let mut generators = generators
        .args(["generate", "--address", &address.to_string()])
        .args(["--seconds", &options.seconds.to_string()])
        .args(["--sessions", &options.sessions.to_string()])
        .args(["--daemons", &options.daemons.to_string()])
        .args(["--beats", &options.beats.to_string()])
        .args(["--cut-every", &options.cut_every.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut memory = Vec::new();
    let mut wal: f64 = 0.0;
    let status = loop {
        if let Some(status) = generators.try_wait().unwrap() {
            break status;
        }
        pass(Duration::from_secs(1));
        if began.elapsed() >= WARM {
            memory.push(usage::rss_mib());
        }
        wal = wal.max(size(&path.with_extension("db-wal")));
    };
    let wall = began.elapsed();
    assert!(status.success(), "the generators failed");
    let output = std::io::read_to_string(generators.stdout.take().unwrap()).unwrap();
    let words: Vec<f64> = output
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [rows, seconds, generator_cpu, cuts] = words[..] else {
        panic!("the generators said {output:?}");
    };
    let collector_cpu = (usage::cpu() - cpu).as_secs_f64();
    cancel.cancel();
    runtime.block_on(serving).unwrap().unwrap();
    let stored = number(
        &path,
        &format!("SELECT count(*) FROM daemon_samples WHERE at_us > {old_until}"),
    );
    assert_eq!(
        stored as f64, rows,
        "what was acknowledged is not what is stored"
    );
    let rate = rows / seconds;
    let size = size(&path);
    println!(
        "end to end, {wire:?}: {rate:.0} rows/s over {seconds:.1} s ({rows:.0} rows, all acknowledged after commit and found; \
         the bar is 200000)\n  {} sessions, batches of {} rows, {:.0} bytes of database per row\n  collector {:.0} % of a \
         CPU ({:.2} us per row), generators {:.0} % ({:.2} us per row)",
        options.sessions,
        options.rows_of_a_batch(),
        size / rows,
        collector_cpu * 100.0 / wall.as_secs_f64(),
        collector_cpu * 1e6 / rows,
        generator_cpu * 100.0 / wall.as_secs_f64(),
        generator_cpu * 1e6 / rows,
    );
    if let Some(before) = history {
        let gone = before - old_rows(&path, old_until);
        println!("  {gone} of {before} old rows were merged or deleted in that time");
        assert!(gone > 0, "retention was not at work");
    }
    if cuts > 0.0 {
        println!("  {cuts:.0} connections were cut");
    }
    if let (Some(first), Some(last)) = (memory.first(), memory.last()) {
        let most = memory.iter().copied().fold(0.0, f64::max);
        println!(
            "  collector's resident memory: {first:.1} MiB after {} s, {last:.1} MiB at the end, {most:.1} MiB at most; \
             WAL {:.0} MiB at most",
            WARM.as_secs(),
            wal / 1_048_576.0
        );
    }
    Cost {
        rows_per_s: rate,
        collector_us_per_row: collector_cpu * 1e6 / rows,
        generator_us_per_row: generator_cpu * 1e6 / rows,
    }
}

/// Starts a collector.
fn serve(
    runtime: &Runtime,
    path: &Path,
    security: Security,
    retention: Retention,
) -> (
    SocketAddr,
    JoinHandle<Result<(), CollectorError>>,
    CancellationToken,
) {
    let config = CollectorConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        db: path.to_owned(),
        security,
        retention,
        on_alarm: None,
        clock_ppm: 0,
        newcomer_timeout: None,
        http: HttpConfig {
            listen: HttpListen::Off,
            ..HttpConfig::default()
        },
    };
    let collector = runtime.block_on(Collector::bind(config)).unwrap();
    let address = collector.address();
    let cancel = CancellationToken::new();
    let serving = runtime.spawn(collector.serve(cancel.clone()));
    (address, serving, cancel)
}

/// Has a collector compute the findings of a history.
fn compute_findings(runtime: &Runtime, path: &Path) {
    let forever = Retention {
        keep_seconds: KeepFor::Forever,
        keep_10s: KeepFor::Forever,
        ..Retention::default()
    };
    let (_, serving, cancel) = serve(runtime, path, Security::Insecure, forever);
    let began = Instant::now();
    let missing = "SELECT count(*) FROM runs AS r WHERE NOT EXISTS (SELECT 1 FROM findings AS f WHERE f.run_id = r.id)";
    while number(path, missing) > 0 {
        assert!(began.elapsed() < FINDINGS_WITHIN, "runs without findings");
        pass(Duration::from_millis(200));
    }
    cancel.cancel();
    runtime.block_on(serving).unwrap().unwrap();
}

/// Number of rows of the history.
fn old_rows(path: &Path, until_us: i64) -> i64 {
    let tables = [
        "op_intervals",
        "step_intervals",
        "daemon_samples",
        "host_samples",
        "disk_samples",
        "net_samples",
        "target_samples",
    ];
    tables
        .iter()
        .map(|table| {
            number(
                path,
                &format!("SELECT count(*) FROM {table} WHERE at_us <= {until_us}"),
            )
        })
        .sum()
}

fn pass(time: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a look at the collector from time to time, beside the load"
    )]
    std::thread::sleep(time);
}

fn number(path: &Path, sql: &str) -> i64 {
    let file = rusqlite::Connection::open(path).unwrap();
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn size(path: &Path) -> f64 {
    std::fs::metadata(path).map_or(0.0, |file| file.len() as f64)
}
