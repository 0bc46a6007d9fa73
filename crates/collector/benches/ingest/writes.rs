//! What the store writes to its disk for an hour of `--sessions` agents with `--daemons` each at 1 Hz, by how many
//! seconds are gathered for one commit. It takes some seconds: the hour is only in the instants.
//!
//! The kernel counts what this process has made dirty (`write_bytes` of /proc/self/io), WAL and checkpoints together.
//! The directory must not be on a tmpfs, which counts nothing.

use crate::{Options, usage, writer};
use benchmesh_model::figures::Figures;
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::ingest::Batch;
use benchmesh_store::ingest::batch::{
    ClockOffset, DaemonSample, DaemonSeen, DiskSample, HostSample, NetSample, Process,
};
use benchmesh_store::{Publisher, Store};

/// Seconds of one commit.
const GATHERED: [u64; 6] = [1, 5, 10, 20, 60, 120];
const HOUR: u64 = 3600;

pub fn run(options: &Options) {
    let directory = tempfile::TempDir::new_in(&options.directory).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!(
        "written for an hour of {} agents with {} daemons, {} disks and {} interfaces at 1 Hz:",
        options.sessions, options.daemons, options.devices, options.devices
    );
    for gathered in GATHERED {
        let path = directory.path().join(format!("{gathered}.db"));
        let before = usage::written_bytes();
        runtime.block_on(hour(options, &path, gathered));
        println!(
            "  {gathered:>3} s a commit: {:>6.1} MiB; the database has {:.1} MiB",
            mib(usage::written_bytes() - before),
            mib(std::fs::metadata(&path).unwrap().len())
        );
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

async fn hour(options: &Options, path: &std::path::Path, gathered: u64) {
    let store = Store::open(path).await.unwrap();
    let mut publishers: Vec<Publisher> = Vec::new();
    for session in 0..options.sessions {
        let (agent, host) = store.attach_agent(writer::agent(session)).await.unwrap();
        publishers.push(store.publisher(agent, host, String::new()));
    }
    for first in (1..=HOUR).step_by(gathered as usize) {
        let mut receipts = Vec::new();
        for publisher in &publishers {
            let mut batch = batch(first, 1, options.daemons, options.devices);
            for second in first + 1..first + gathered {
                add(
                    &mut batch,
                    self::batch(second, 1, options.daemons, options.devices),
                );
            }
            receipts.push(publisher.submit(batch).await.unwrap());
        }
        store.flush().await;
        for receipt in receipts {
            receipt.await.unwrap();
        }
    }
    // With all of the WAL in the file.
    store.close().await;
}

/// The rows of the next second.
fn add(batch: &mut Batch, next: Batch) {
    batch.sequence = next.sequence;
    batch.newest_us = next.newest_us;
    batch.daemon_samples.extend(next.daemon_samples);
    batch.host_samples.extend(next.host_samples);
    batch.disk_samples.extend(next.disk_samples);
    batch.net_samples.extend(next.net_samples);
    batch.clock_offsets.extend(next.clock_offsets);
}

/// What an agent sends at `second`, if it samples each `every` seconds.
pub fn batch(second: u64, every: u64, daemons: usize, devices: i64) -> Batch {
    let n = second as i64;
    let at = MeshMicros(1_750_000_000_000_000 + n * 1_000_000);
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
    let host = HostSample {
        at,
        figures: figures(n),
        busy_others: None,
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
    Batch {
        spool_id: "spool".to_owned(),
        first_sequence: second / every,
        sequence: second / every,
        daemons: match second / every {
            1 => (0..daemons).map(described).collect(),
            _ => Vec::new(),
        },
        daemon_samples: (0..daemons).map(daemon).collect(),
        host_samples: vec![host],
        disk_samples: (0..devices).map(disk).collect(),
        net_samples: (0..devices).map(interface).collect(),
        clock_offsets: vec![ClockOffset {
            at,
            offset_us: n,
            error_us: 20,
            round_trip_us: 40,
        }],
        newest_us: at.0,
        ..Batch::default()
    }
}

/// Counters of days that grow by a few thousand a second, and fewer.
fn figures<F: Figures>(second: i64) -> F {
    F::from_values((0..).map(|figure| (1_000_000_000 + second * 4000) >> (figure % 8)))
}
