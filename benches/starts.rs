//! How closely the workers of a step start together, compared with their true starts.
//!
//! `cargo bench --bench starts [-- ROW...] [--starts N] [--agents N]`. Rows:
//!
//! - `cores`: as many agents as CPUs.
//! - `clocks`: the same with clocks that are seconds to hours apart and a mesh time that runs 100 ppm fast.
//! - `many`: 64 agents (or `--agents`), alternating with as many plain processes that wait for an absolute timer.
//! - `tls`: as many agents as CPUs, alternating with and without TLS, five meshes of each.
//! - `short`: 1000 steps with almost no load on three agents: the wall time of a step beyond its load, and how many
//!   steps started late.
//!
//! Everything runs on one machine, so that the true starts are known: every agent writes the raw readings of its clock
//! to a file. "Spread" is the time from the first worker's start to the last one's. "Off" is the difference between the
//! reported and the true skew; its bound is the reported `skew_error_us`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program that measures, prints, and panics when it cannot"
)]

mod arguments;
#[path = "../tests"]
mod shared {
    pub mod support;
}

use arguments::value;
use benchmesh_workloads::clock::{MonoNanos, sleep_until, spin_until};
use shared::support::mesh::{Agent, Mesh};
use shared::support::starts::{StartLogs, TaskStart, spread_us};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const STARTS: usize = 100;
const MANY: usize = 64;
const ROUNDS: usize = 5;
const SHORT_STEPS: usize = 1000;
/// Maximum time of a short step beyond its load.
const SHORT_BAR_MS: f64 = 50.0;
const HOUR: u64 = 3600;
/// Minimum time for which a started worker keeps its CPU: an operation or two.
const LOAD: Duration = Duration::from_micros(50);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = value(&arguments, "--wait-for") {
        wait_for(at);
        return;
    }
    let starts = value(&arguments, "--starts").unwrap_or(STARTS as u64) as usize;
    let asked = |row: &str| {
        let rows = ["cores", "clocks", "many", "tls", "short"];
        let any = arguments.iter().any(|one| rows.contains(&one.as_str()));
        !any || arguments.iter().any(|one| one == row)
    };
    let cpus = std::thread::available_parallelism().unwrap().get();
    println!("{starts} starts each; microseconds");
    if asked("cores") {
        let ahead = vec![0; cpus];
        tell("cores", &mesh_starts(&ahead, 0, Wire::Tls, starts));
    }
    if asked("clocks") {
        let ahead: Vec<u64> = (0..cpus as u64).map(|agent| agent * 7 * HOUR + 3).collect();
        tell("clocks", &mesh_starts(&ahead, 100, Wire::Tls, starts));
    }
    if asked("many") {
        let agents = value(&arguments, "--agents").unwrap_or(MANY as u64) as usize;
        let ours = mesh_starts(&vec![0; agents], 0, Wire::Tls, starts);
        let mut bare: Vec<f64> = (0..starts).map(|_| bare_spread_us(agents)).collect();
        tell("many", &ours);
        let (median, p99, most) = figures(&mut bare);
        println!(
            "  {agents} plain processes: spread median {median:.0}, p99 {p99:.0}, most {most:.0}"
        );
        let ratio = figures(&mut spreads(&ours)).0 / median;
        println!("  ratio of the medians {ratio:.2}; the bar is 1.2");
    }
    if asked("tls") {
        with_and_without_tls(cpus, starts);
    }
    if asked("short") {
        short_steps(value(&arguments, "--starts").unwrap_or(SHORT_STEPS as u64) as usize);
    }
}

/// The transport of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Tls,
    Plain,
}

/// Alternates the two, so that other work on the machine affects both; then prints the ratio of the medians.
fn with_and_without_tls(agents: usize, starts: usize) {
    let (mut tls, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let each = starts.div_ceil(ROUNDS);
        tls.extend(mesh_starts(&vec![0; agents], 0, Wire::Tls, each));
        plain.extend(mesh_starts(&vec![0; agents], 0, Wire::Plain, each));
    }
    tell("with TLS", &tls);
    tell("without TLS (--insecure)", &plain);
    let median = |steps: &[Vec<TaskStart>]| figures(&mut spreads(steps)).0;
    println!(
        "  ratio of the medians, with TLS to without: {:.2}",
        median(&tls) / median(&plain)
    );
}

/// The time from the end of one step's load to the start of the next one's, and the number of steps that could not be
/// armed in time.
fn short_steps(steps: usize) {
    let mut mesh = Mesh::start();
    let names = ["a", "b", "c"];
    for name in names {
        mesh.launch(Agent::named(name));
    }
    mesh.until_attached(&names);
    let mut done = 0;
    while done < steps {
        // The number of repeats is bounded, so that a run stays within its limit.
        let repeat = (steps - done).min(100);
        mesh.run(&format!(
            "repeat = {repeat}\n[[phase]]\nworkload = \"null\"\nops = 1000\n"
        ));
        done += repeat;
    }
    let db = mesh.db();
    let mut between: Vec<f64> = db
        .rows(
            "SELECT next.start_us - max(t.ended_us) AS us FROM steps AS s JOIN tasks AS t ON t.step_id = s.id
             JOIN steps AS next ON next.run_id = s.run_id AND next.ordinal = s.ordinal + 1
             GROUP BY s.id",
        )
        .iter()
        .map(|row| row.integer("us") as f64 / 1000.0)
        .collect();
    let late = "SELECT count(*) AS late FROM events WHERE kind = 'step-late'";
    let late: i64 = db.rows(late)[0].integer("late");
    let (median, p99, most) = figures(&mut between);
    println!(
        "short: {} agents, {done} steps: from one load to the next median {median:.1} ms, p99 {p99:.1}, most {most:.1}; \
         the bar is {SHORT_BAR_MS}; {late} late starts",
        names.len(),
    );
}

/// One agent for each entry, with its clocks ahead by this many seconds; returns the tasks of each step.
fn mesh_starts(ahead: &[u64], fast_ppm: i32, wire: Wire, starts: usize) -> Vec<Vec<TaskStart>> {
    let fast = fast_ppm.to_string();
    let mut arguments = vec!["--clock-ppm", &fast];
    if wire == Wire::Plain {
        arguments.push("--insecure");
    }
    let mut mesh = Mesh::with_collector_arguments(&arguments);
    let mut logs = StartLogs::new(mesh.directory(), fast_ppm);
    for (agent, ahead) in ahead.iter().enumerate() {
        let agent = logs.agent(&format!("a{agent:02}"), Duration::from_secs(*ahead));
        mesh.launch(agent);
    }
    let names: Vec<String> = (0..ahead.len())
        .map(|agent| format!("a{agent:02}"))
        .collect();
    mesh.until_attached(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // The number of repeats is bounded, so that a run stays within its limit.
    let mut steps = Vec::new();
    while steps.len() < starts {
        let repeat = (starts - steps.len()).min(50);
        mesh.run(&format!(
            "repeat = {repeat}\n[[phase]]\nworkload = \"null\"\nops = 1000\n"
        ));
        steps = logs.read(&mesh.db()).into_values().collect();
    }
    let complete = steps.iter().filter(|tasks| tasks.len() == ahead.len());
    complete.cloned().collect()
}

fn spreads(steps: &[Vec<TaskStart>]) -> Vec<f64> {
    steps.iter().map(|tasks| spread_us(tasks)).collect()
}

fn tell(row: &str, steps: &[Vec<TaskStart>]) {
    let (median, p99, most) = figures(&mut spreads(steps));
    let tasks = || steps.iter().flatten();
    let (off, _, most_off) = figures(&mut tasks().map(TaskStart::off_us).collect::<Vec<_>>());
    let (error, ..) = figures(&mut tasks().map(|task| task.error_us as f64).collect::<Vec<_>>());
    // A reading is rounded down to a microsecond twice on its way.
    let within = tasks().filter(|task| task.off_us() <= task.error_us as f64 + 2.0);
    println!(
        "{row}: {} agents, {} starts: spread median {median:.0}, p99 {p99:.0}, most {most:.0}; reported off by {off:.0} \
         (most {most_off:.0}), stated error {error:.0}, within it {} of {}",
        steps.first().map_or(0, Vec::len),
        steps.len(),
        within.count(),
        tasks().count(),
    );
}

/// Median, 99th percentile, largest.
fn figures(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (values.len() as f64 * share).ceil() as usize;
        values[place.clamp(1, values.len()) - 1]
    };
    (at(0.5), at(0.99), at(1.0))
}

/// Starts this number of processes of this program, which wait for one instant; returns the time from the first start
/// to the last.
fn bare_spread_us(count: usize) -> f64 {
    let lead = Duration::from_millis(500 + 5 * count as u64);
    let at = MonoNanos::now().saturating_add(lead);
    let children: Vec<Child> = (0..count)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--wait-for", &at.0.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    assert!(
        MonoNanos::now() < at,
        "{count} processes were not there in time"
    );
    let starts: Vec<u64> = children
        .into_iter()
        .map(|mut child| {
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            child.wait().unwrap();
            line.trim().parse().unwrap()
        })
        .collect();
    (starts.iter().max().unwrap() - starts.iter().min().unwrap()) as f64 / 1000.0
}

/// A plain process: an absolute timer, the clock, and as much load as one of our workers has.
fn wait_for(at: u64) {
    sleep_until(MonoNanos(at));
    let started = MonoNanos::now();
    spin_until(started.saturating_add(LOAD));
    println!("{}", started.0);
}
