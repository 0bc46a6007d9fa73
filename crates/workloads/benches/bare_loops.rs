//! Our load against loops without measuring, and against dd and fio: our figure, the baseline's, and the ratio.
//!
//! `cargo bench -p benchmesh-workloads --bench bare_loops [-- [--rounds N] PART OF A ROW'S NAME]...`
//!
//! A row is a function that returns a [`table::Row`]. Its contestants run in turns, round after round, so that
//! disturbances of the machine affect all of them. Figures are medians, ratios the median of each round's ratio. Disk
//! rows work in the target directory, memory rows in /dev/shm, ext4 rows on a loop device in /dev/shm (which needs
//! root), network rows on loopback, and pool rows on the cluster named by `BENCHMESH_BENCH_POOL`. With
//! `BENCHMESH_BENCH_DIR=DIR`, such as a mount of GlusterFS, the rows of the disk and of small files in tmpfs work
//! there.

#[path = "bare_loops/copies.rs"]
mod copies;
#[path = "bare_loops/depth.rs"]
mod depth;
#[path = "bare_loops/disk.rs"]
mod disk;
#[path = "bare_loops/ext4.rs"]
mod ext4;
#[path = "bare_loops/links.rs"]
mod links;
#[path = "bare_loops/matrix.rs"]
mod matrix;
#[path = "bare_loops/ours.rs"]
mod ours;
#[path = "bare_loops/peers.rs"]
mod peers;
#[path = "bare_loops/pool.rs"]
mod pool;
#[path = "bare_loops/rows.rs"]
mod rows;
#[path = "bare_loops/small_files.rs"]
mod small_files;
#[path = "bare_loops/table.rs"]
mod table;

use std::io::Write;
use std::process::ExitCode;

/// Rows, in the order of the table; those of small files and of pools follow them.
const ROWS: &[fn() -> table::Row] = &[
    rows::null,
    rows::tmpfs_rewrite,
    rows::tmpfs_read,
    rows::ext4_warm_read,
    disk::buffered_rewrite,
    disk::buffered_write,
    disk::buffered_read,
    disk::direct_rewrite,
    disk::direct_read,
    disk::direct_rewrite_small,
    disk::direct_read_small,
    disk::direct_randread,
    depth::randread_1,
    depth::randwrite_1,
    depth::randread_32,
    depth::randwrite_32,
    depth::randread_1_cpu,
    depth::randwrite_1_cpu,
    depth::randread_32_cpu,
    depth::randwrite_32_cpu,
    depth::randread_32_all_cpu,
    depth::randwrite_32_all_cpu,
    depth::randread_32_tmpfs,
    depth::randwrite_32_tmpfs,
    matrix::cell::<0, 4>,
    matrix::cell::<0, 16>,
    matrix::cell::<0, 64>,
    matrix::cell::<1, 4>,
    matrix::cell::<1, 16>,
    matrix::cell::<1, 64>,
    matrix::cell::<2, 4>,
    matrix::cell::<2, 16>,
    matrix::cell::<2, 64>,
    matrix::cell::<3, 4>,
    matrix::cell::<3, 16>,
    matrix::cell::<3, 64>,
    matrix::cell::<4, 4>,
    matrix::cell::<4, 16>,
    matrix::cell::<4, 64>,
    matrix::cell::<5, 4>,
    matrix::cell::<5, 16>,
    matrix::cell::<5, 64>,
    matrix::cell::<6, 4>,
    matrix::cell::<6, 16>,
    matrix::cell::<6, 64>,
    matrix::cell::<7, 4>,
    matrix::cell::<7, 16>,
    matrix::cell::<7, 64>,
    matrix::cell::<8, 4>,
    matrix::cell::<8, 16>,
    matrix::cell::<8, 64>,
    matrix::many_workers,
    links::one_stream_128k,
    links::one_stream_1m,
    links::one_stream_defaults,
    links::four_streams_128k,
    links::four_streams_1m,
    links::four_streams_defaults,
    links::ping,
    links::ping_median,
    links::ping_median_busy,
    links::udp_stream_1448,
    links::udp_stream_8k,
    links::udp_stream_8k_one_by_one,
    links::udp_stream_8k_paced,
    links::udp_request_median,
    links::udp_request_median_busy,
    copies::one_large,
];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` starts benches without `--bench`; nothing is measured then.
        return ExitCode::SUCCESS;
    }
    let mut rounds = table::ROUNDS;
    if let Some(at) = arguments.iter().position(|argument| argument == "--rounds") {
        let end = arguments.len().min(at + 2);
        let given = arguments.drain(at..end).nth(1);
        let Some(given) = given.and_then(|given| given.parse().ok()) else {
            let _ = writeln!(std::io::stderr(), "--rounds wants a number");
            return ExitCode::FAILURE;
        };
        rounds = given;
    }
    arguments.retain(|argument| !argument.starts_with("--"));
    let rows = [ROWS, small_files::ALL, pool::ALL].concat();
    match table::run(&rows, &arguments, rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
