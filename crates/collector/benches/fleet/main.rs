//! One collector and hundreds of simulated agents: how soon a step starts, how long a command takes to reach all
//! agents, and its cost.
//!
//! `cargo bench -p benchmesh-collector --bench fleet [-- --agents N] [--steps N] [--seconds S] [--runs N]` (500, 20 and
//! one run; tasks of 0.2 s with one row, or of S seconds with a row per second). Several runs are equal, on one
//! collector: the cost of a run must not depend on those before it. The collector is in this process, the agents in
//! another on the same CPUs. They answer every command at once, so the collector is measured. "Started": from the end
//! of the step before (or the run's beginning) to the step's start instant. "To all": from the first agent that
//! received a command to the last one.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::indexing_slicing
)]

mod agents;
#[path = "../../tests/mesh/fake_agent.rs"]
#[allow(dead_code, reason = "the tests use the rest of it")]
mod fake_agent;
#[path = "../../tests/mesh/stage.rs"]
#[allow(dead_code, reason = "the tests use the rest of it")]
mod stage;
#[path = "../ingest/usage.rs"]
#[allow(dead_code, reason = "the bench of ingest uses the rest of it")]
mod usage;

use stage::Stage;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const AGENTS: usize = 500;
const STEPS: usize = 20;
/// The commands of each step, by their words in the agents' journals.
const COMMANDS: [&str; 3] = ["prepare", "arm", "forget"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: usize| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map_or(otherwise, |at| arguments[at + 1].parse().unwrap())
    };
    let agents = number("--agents", AGENTS);
    if let Some(at) = arguments.iter().position(|argument| argument == "attach") {
        agents::run(&arguments[at + 1], agents, number("--seconds", 0) as u64);
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure(
        agents,
        number("--steps", STEPS),
        number("--seconds", 0),
        number("--runs", 1),
    ));
}

async fn measure(agents: usize, steps: usize, seconds: usize, runs: usize) {
    let stage = Stage::new().await;
    let began = Instant::now();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["attach", &stage.address.to_string()])
        .args(["--agents", &agents.to_string()])
        .args(["--seconds", &seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut asked = process.stdin.take().unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "attached");
    println!(
        "{agents} agents attached in {:.2} s",
        began.elapsed().as_secs_f64()
    );

    for _ in 0..runs {
        run(&stage, &mut asked, &mut said, agents, steps).await;
    }
    drop(asked);
    process.wait().unwrap();
}

/// One run and its figures.
async fn run(
    stage: &Stage,
    asked: &mut ChildStdin,
    said: &mut impl Iterator<Item = std::io::Result<String>>,
    agents: usize,
    steps: usize,
) {
    let cpu = usage::cpu();
    let began = Instant::now();
    let plan = format!("repeat = {steps}\n[[phase]]\nworkload = \"null\"\n");
    let started = stage.start(&plan).await.unwrap();
    let mut memory: f64 = 0.0;
    let mut watching = std::pin::pin!(stage.watch(started.run_id));
    let updates = loop {
        tokio::select! {
            updates = &mut watching => break updates,
            () = tokio::time::sleep(Duration::from_millis(100)) => memory = memory.max(usage::rss_mib()),
        }
    };
    assert_eq!(updates.last().unwrap().state, "done");
    let wall = began.elapsed().as_secs_f64();
    let collector = (usage::cpu() - cpu).as_secs_f64();

    let sql = format!(
        "SELECT (s.start_us - coalesce((SELECT max(b.ended_us) FROM steps b WHERE b.run_id = s.run_id AND b.ordinal < \
         s.ordinal), r.started_us)) / 1e6 FROM steps s JOIN runs r ON r.id = s.run_id WHERE s.run_id = {}",
        started.run_id
    );
    let mut starts: Vec<f64> = stage
        .rows(&sql)
        .await
        .iter()
        .map(|row| row.parse().unwrap())
        .collect();
    assert_eq!(starts.len(), steps);
    let (median, most) = figures(&mut starts);
    println!(
        "a step is prepared, armed and started within {median:.2} s (most {most:.2}); the bar is 2"
    );
    for command in COMMANDS {
        // Includes all runs so far.
        let mut spreads = spreads(asked, said, command, agents);
        let (median, most) = figures(&mut spreads);
        println!(
            "`{command}` reaches all within {median:.0} ms (most {most:.0}, {} times); the bar is 500",
            spreads.len()
        );
    }
    println!(
        "{steps} steps in {wall:.1} s: collector {:.0} % of a CPU, {memory:.0} MiB resident at most; the bar is 300",
        collector / wall * 100.0
    );
    println!(
        "{:.2} s of CPU, {:.2} ms per agent and step; the bar for steps of 10 s is 10",
        collector,
        collector * 1e3 / (agents * steps) as f64
    );
}

/// For each command sent to every agent: milliseconds from the first to the last.
fn spreads(
    asked: &mut ChildStdin,
    said: &mut impl Iterator<Item = std::io::Result<String>>,
    command: &str,
    agents: usize,
) -> Vec<f64> {
    writeln!(asked, "{command}").unwrap();
    let line = said.next().unwrap().unwrap();
    let mut heard: Vec<i64> = line
        .split_whitespace()
        .map(|at| at.parse().unwrap())
        .collect();
    heard.sort_unstable();
    // A command goes to all agents before the next of its kind goes to any.
    heard
        .chunks_exact(agents)
        .map(|once| (once[once.len() - 1] - once[0]) as f64 / 1e3)
        .collect()
}

/// Median and maximum.
fn figures(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}
