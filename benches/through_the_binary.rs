//! The figures that a user gets, compared with other tools: each figure is measured through collector, agents and
//! database, interleaved with its counterpart on the same machine in the same run.
//!
//! `cargo bench --bench through_the_binary [-- ROUNDS] [-- network|io|null]`. Prints the medians, the spread and the
//! ratio. With one disk and two cores, the spread decides whether a ratio is meaningful.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures, prints, and panics when it cannot"
)]

#[path = "../tests"]
mod shared {
    pub mod support;
}

use shared::support::command::must;
use shared::support::mesh::{Agent, Mesh};
use shared::support::wait::until_true;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SECONDS: u32 = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments
        .iter()
        .find_map(|text| text.parse().ok())
        .unwrap_or(5);
    let wanted = |name: &str| {
        let named = arguments
            .iter()
            .any(|text| ["network", "io", "null"].contains(&text.as_str()));
        !named || arguments.iter().any(|text| text == name)
    };
    if wanted("null") {
        null(rounds);
    }
    if wanted("network") {
        network(rounds, 1, "128k", Some("128k"));
        network(rounds, 1, "default", None);
        network(rounds, 4, "128k", Some("128k"));
    }
    if wanted("io") {
        for (mode, direct) in [
            ("read", false),
            ("rewrite", false),
            ("read", true),
            ("rewrite", true),
        ] {
            io(rounds, mode, direct);
        }
    }
}

/// An operation that does nothing, with full histograms, compared with fio's null engine.
fn null(rounds: usize) {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    let plan = format!("[[phase]]\nworkload = \"null\"\nruntime = \"{SECONDS}s\"\n");
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let run = mesh.run(&plan);
        let ours: f64 = mesh.db().one(&format!(
            "SELECT 1e9 / ops_per_s FROM v_results WHERE run_id = {run}"
        ));
        let arguments = [
            "--ioengine=null",
            "--rw=read",
            "--bs=4k",
            "--size=1t",
            "--time_based",
        ];
        let theirs = 1e9 / fio(&arguments, "iops");
        pairs.push((ours, theirs));
    }
    report(
        "null, ns per operation (fio null engine)",
        &pairs,
        Better::Less,
    );
}

fn network(rounds: usize, streams: u32, what: &str, block: Option<&str>) {
    let mut mesh = Mesh::start();
    for name in ["a", "b"] {
        mesh.add(Agent::named(name));
    }
    let bs = block
        .map(|block| format!("bs = \"{block}\"\n"))
        .unwrap_or_default();
    let plan = format!(
        "[[phase]]\nworkload = \"network\"\nmodes = [\"throughput\"]\nstreams = {streams}\n{bs}runtime = \"{SECONDS}s\"\nfrom = [\"a\"]\nto = [\"b\"]\n"
    );
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let run = mesh.run(&plan);
        let ours: f64 = mesh.db().one(&format!(
            "SELECT mib_per_s FROM v_results WHERE run_id = {run}"
        ));
        pairs.push((ours, iperf3(streams, block)));
    }
    report(
        &format!("network, {streams} streams, {what} blocks, MiB/s (iperf3)"),
        &pairs,
        Better::More,
    );
}

fn iperf3(streams: u32, block: Option<&str>) -> f64 {
    let port = "47999";
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "-p", port])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until_true("iperf3 listens", Duration::from_secs(10), || {
        let listening = std::fs::read_to_string("/proc/net/tcp6").unwrap();
        let listening = listening + &std::fs::read_to_string("/proc/net/tcp").unwrap();
        listening.contains(":BB7F 00000000")
    });
    let (seconds, streams) = (SECONDS.to_string(), streams.to_string());
    let mut arguments = vec![
        "-c",
        "127.0.0.1",
        "-p",
        port,
        "-J",
        "-t",
        &seconds,
        "-P",
        &streams,
    ];
    if let Some(block) = block {
        arguments.extend(["-l", block]);
    }
    let said: serde_json::Value = serde_json::from_str(&must("iperf3", &arguments)).unwrap();
    end(&mut server);
    said["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap()
        / 8.0
        / 1_048_576.0
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn io(rounds: usize, mode: &str, direct: bool) {
    let target = tempfile::Builder::new().prefix("bm-io-").tempdir().unwrap();
    let file = target.path().join("fio");
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(target.path()));
    let plan = format!(
        "[targets.t]\nsystem = \"disk\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\nmodes = [\"{mode}\"]\nsize = \"512m\"\nbs = \"1m\"\ndirect = {direct}\nruntime = \"{SECONDS}s\"\n",
        target.path().display()
    );
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let run = mesh.run(&plan);
        let ours: f64 = mesh.db().one(&format!(
            "SELECT mib_per_s FROM v_results WHERE run_id = {run}"
        ));
        pairs.push((ours, fio_file(&file, mode, direct)));
    }
    let how = if direct { "direct" } else { "page cache" };
    report(
        &format!("io {mode}, 1 MiB, {how}, MiB/s (fio psync)"),
        &pairs,
        Better::More,
    );
}

fn fio_file(file: &Path, mode: &str, direct: bool) -> f64 {
    let rw = if mode == "read" { "read" } else { "write" };
    let arguments = [
        format!("--filename={}", file.display()),
        format!("--rw={rw}"),
        format!("--direct={}", u8::from(direct)),
        "--ioengine=psync".to_owned(),
        "--bs=1m".to_owned(),
        "--size=512m".to_owned(),
        "--time_based".to_owned(),
        "--invalidate=0".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    fio(&arguments, "bw_bytes") / 1_048_576.0
}

/// One figure of the only direction in which fio did something.
fn fio(arguments: &[&str], figure: &str) -> f64 {
    let runtime = format!("--runtime={SECONDS}");
    let common = ["--name=x", "--output-format=json", &runtime];
    let said = must("fio", &[&common[..], arguments].concat());
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let job = &said["jobs"][0];
    let of = |direction: &str| job[direction][figure].as_f64().unwrap();
    of("read").max(of("write"))
}

#[derive(Clone, Copy)]
enum Better {
    More,
    Less,
}

fn report(what: &str, pairs: &[(f64, f64)], better: Better) {
    let ours = sorted(pairs.iter().map(|pair| pair.0));
    let theirs = sorted(pairs.iter().map(|pair| pair.1));
    let ratios = sorted(pairs.iter().map(|pair| match better {
        Better::More => pair.0 / pair.1,
        Better::Less => pair.1 / pair.0,
    }));
    let show = |values: &[f64]| {
        format!(
            "{:.1} ({:.1} to {:.1})",
            median(values),
            values.first().unwrap(),
            values.last().unwrap()
        )
    };
    println!("{what}");
    println!("  ours   {}", show(&ours));
    println!("  theirs {}", show(&theirs));
    println!(
        "  ratio  {:.3} ({:.3} to {:.3}), more is better",
        median(&ratios),
        ratios.first().unwrap(),
        ratios.last().unwrap()
    );
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}
