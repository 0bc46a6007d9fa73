//! One collector and hundreds of simulated agents: how soon a step starts, how long a command takes to reach all
//! agents, and its cost.
//!
//! `cargo bench -p benchmesh-collector --bench fleet [-- --agents N] [--steps N] [--seconds S] [--runs N] [--plain]` (500,
//! 20 and one run; tasks of 0.2 s with one row, or of S seconds with an interval and samples of the host, a daemon and a
//! disk per second; with certificates and TLS unless `--plain`). Several runs are equal, on one collector: the cost of a
//! run must not depend on those before it, so each prints its ratio to the first. The collector is in this process, the
//! agents in another on the same CPUs. They answer every command at once, so the collector is measured. "Started": from
//! the end of the step before (or the run's beginning) to the step's start instant. "To all": from the first agent that
//! received a command to the last one. "Ended": from the last operation of a step to its stored end. At last the
//! collector is restarted, and all agents attach at once. Progress goes to standard error, and what does not come within
//! a minute ends the bench.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::indexing_slicing
)]

#[path = "../tests/mesh/fake_agent.rs"]
#[allow(dead_code, reason = "the tests use the rest of it")]
mod fake_agent;
#[path = "../tests/mesh/stage.rs"]
#[allow(dead_code, reason = "the tests use the rest of it")]
mod stage;

use benchmesh_proto::v1;
use benchmesh_scheduler::snapshot::RunUpdate;
use benchmesh_trust::credentials::{Credentials, Role};
use benchmesh_trust::dial::{Security, TcpConnection};
use benchmesh_trust::enrol::{Evidence, NewKey, enrol};
use fake_agent::{FakeAgent, Script};
use rustix::time::{ClockId, clock_gettime};
use stage::{LIMIT, Stage};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The commands of each step, by their words in the agents' journals.
const COMMANDS: [&str; 3] = ["prepare", "arm", "forget"];
/// Number of agents that join at once, when the fleet is made.
const AT_ONCE: usize = 32;
/// An agent whose connection fails tries again after this time.
const RETRY: Duration = Duration::from_millis(200);
/// How long the collector is watched while nothing runs.
const REST: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Some(address) = option("--attach") {
        agents(address);
        return ExitCode::SUCCESS;
    }
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let size = Size {
        agents: option("--agents").unwrap_or(500),
        steps: option("--steps").unwrap_or(20),
    };
    let measured = catch_unwind(AssertUnwindSafe(|| runtime.block_on(measure(size))));
    // After a panic, nothing waits for threads of the collector.
    runtime.shutdown_background();
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn option<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::args().skip_while(|word| word != name).nth(1)?;
    let parsed = value.parse();
    Some(parsed.unwrap_or_else(|_| panic!("{name}: {value} is not understood")))
}

#[derive(Clone, Copy)]
struct Size {
    agents: usize,
    steps: usize,
}

async fn measure(size: Size) {
    let directory = tempfile::tempdir().unwrap();
    let mut stage = if flag("--plain") {
        Stage::on(directory).await
    } else {
        Stage::secured(directory, ([127, 0, 0, 1], 0).into()).await
    };
    let mut fleet = Fleet::start(&stage).await;
    rest().await;
    let mut first = None;
    let runs: usize = option("--runs").unwrap_or(1);
    for number in 1..=runs {
        let cpu_s = run(&stage, &mut fleet, size).await;
        let ratio = cpu_s / *first.get_or_insert(cpu_s);
        println!("run {number} of {runs}: {ratio:.2} of the CPU of the first");
    }
    if !flag("--plain") {
        let address = stage.address;
        stage = Stage::secured(stage.ended().await, address).await;
        let (before, began) = (cpu_s(), Instant::now());
        println!("after a restart: {}", fleet.ask("attach").await);
        let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - before);
        let listed = stage.listed().await;
        let attached = listed.iter().filter(|agent| agent.attached).count();
        assert_eq!(attached, size.agents);
        println!(
            "{:.1} ms of CPU per agent that attaches, {:.0} % of a CPU",
            cpu * 1e3 / size.agents as f64,
            cpu / wall * 100.0
        );
    }
    fleet.end().await;
}

fn flag(name: &str) -> bool {
    std::env::args().any(|word| word == name)
}

/// The cost of attached agents while nothing runs.
async fn rest() {
    let before = cpu_s();
    tokio::time::sleep(REST).await;
    println!(
        "at rest: {:.1} % of a CPU, {:.0} MiB",
        (cpu_s() - before) / REST.as_secs_f64() * 100.0,
        resident_mib()
    );
}

/// The other process, with all the agents.
struct Fleet {
    process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    async fn start(stage: &Stage) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--attach", &stage.address.to_string()])
            .arg("--credentials")
            .arg(stage.directory.path())
            .args(std::env::args().skip(1))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut fleet = Self {
            process,
            commands,
            answers,
        };
        println!("{}", fleet.answer().await);
        fleet
    }

    async fn answer(&mut self) -> String {
        let line = timeout(LIMIT, self.answers.next_line()).await;
        line.expect("the agents answer within a minute")
            .unwrap()
            .expect("the agents' process has ended")
    }

    /// The line with which the agents answer a line.
    async fn ask(&mut self, what: &str) -> String {
        let line = format!("{what}\n");
        self.commands.write_all(line.as_bytes()).await.unwrap();
        self.answer().await
    }

    /// For each command of this kind that was sent to every agent: milliseconds from the first to the last.
    async fn spreads(&mut self, command: &str, agents: usize) -> Vec<f64> {
        let line = self.ask(command).await;
        let mut heard: Vec<i64> = line
            .split_whitespace()
            .map(|at| at.parse().unwrap())
            .collect();
        heard.sort_unstable();
        // A command goes to all agents before the next of its kind goes to any.
        heard
            .chunks_exact(agents)
            .map(|once| (once[agents - 1] - once[0]) as f64 / 1e3)
            .collect()
    }

    async fn end(mut self) {
        drop(self.commands);
        let ended = timeout(LIMIT, self.process.wait()).await;
        ended.expect("the agents end within a minute").unwrap();
    }
}

/// One run and its figures; returns the collector's CPU seconds.
async fn run(stage: &Stage, fleet: &mut Fleet, Size { agents, steps }: Size) -> f64 {
    let (before, began) = (cpu_s(), Instant::now());
    let plan = format!("repeat = {steps}\n[[phase]]\nworkload = \"null\"\n");
    let started = stage.start(&plan).await.unwrap();
    let memory_mib = watch(stage, started.run_id, steps).await;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - before);

    let sql = format!(
        "SELECT (s.start_us - coalesce((SELECT max(b.ended_us) FROM steps b WHERE b.run_id = s.run_id AND b.ordinal < \
         s.ordinal), r.started_us)) / 1e6 FROM steps s JOIN runs r ON r.id = s.run_id WHERE s.run_id = {}",
        started.run_id
    );
    let starts = stage.rows(&sql).await;
    assert_eq!(starts.len(), steps);
    let (median, most) = figures(starts.iter().map(|row| row.parse().unwrap()).collect());
    println!(
        "a step is prepared, armed and started within {median:.2} s (most {most:.2}); the bar is 2"
    );
    for command in COMMANDS {
        // Includes all runs so far.
        let spreads = fleet.spreads(command, agents).await;
        let times = spreads.len();
        let (median, most) = figures(spreads);
        println!(
            "`{command}` reaches all within {median:.0} ms (most {most:.0}, {times} times), {:.0} per second; the bar is \
             500 ms",
            agents as f64 / median.max(1.0) * 1e3
        );
    }
    let sql = format!(
        "SELECT (ended_us - last_done_us) / 1e6 FROM steps WHERE run_id = {}",
        started.run_id
    );
    let ends = stage.rows(&sql).await;
    let (median, most) = figures(ends.iter().map(|row| row.parse().unwrap()).collect());
    println!("a step has ended within {median:.2} s (most {most:.2})");
    println!(
        "{steps} steps in {wall:.1} s: collector {:.0} % of a CPU, {memory_mib:.0} MiB at most; the bar is 300",
        cpu / wall * 100.0
    );
    println!(
        "{cpu:.2} s of CPU, {:.2} ms per agent and step; the bar for steps of 10 s is 10",
        cpu * 1e3 / (agents * steps) as f64
    );
    cpu
}

/// Follows a run to its end, with a line per step. Returns the largest resident memory of this process.
async fn watch(stage: &Stage, run: i64, steps: usize) -> f64 {
    let request = v1::WatchRunRequest {
        run: run.to_string(),
        detail: false,
    };
    let began = Instant::now();
    let watched = stage.control().await.watch_run(request).await;
    let mut updates = watched.unwrap().into_inner();
    let (mut memory, mut last, mut state) = (0.0_f64, 0, String::new());
    loop {
        let update = timeout(LIMIT, updates.message()).await;
        let update = update.unwrap_or_else(|_| {
            panic!("no news of the run for a minute after step {last}, {state}")
        });
        let Some(update) = update.unwrap() else {
            break;
        };
        memory = memory.max(resident_mib());
        let run = stage::shown::<RunUpdate>(&update.update_json).run;
        state = run.state.to_string();
        if let Some(step) = run.step.filter(|step| step.ordinal != last) {
            last = step.ordinal;
            eprintln!(
                "{:.1} s: step {last} of {steps}",
                began.elapsed().as_secs_f64()
            );
        }
    }
    assert_eq!(state, "done");
    memory
}

/// Median and maximum.
fn figures(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / 1_048_576.0
}

/// The other process. For each command named on its standard input it prints on one line when each agent received it,
/// in microseconds; `attach` connects all agents anew.
fn agents(address: SocketAddr) {
    let seconds: u64 = option("--seconds").unwrap_or(0);
    let count: usize = option("--agents").unwrap_or(500);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let mut agents: Vec<FakeAgent> = Vec::new();
        while agents.len() < count {
            let numbers = agents.len()..count.min(agents.len() + AT_ONCE);
            let joining = numbers.map(|number| joined(address, number, seconds));
            agents.extend(futures::future::join_all(joining).await);
            eprintln!("{} of {count} agents have joined", agents.len());
        }
        let joined_s = began.elapsed().as_secs_f64();
        let agents: Arc<[FakeAgent]> = agents.into();
        let attached = attach(&agents, address).await;
        println!("{count} agents joined in {joined_s:.2} s; {attached}");
        if seconds > 0 {
            tokio::spawn(sample(Arc::clone(&agents)));
        }
        // Reads block, so they run on a thread of their own.
        let next = || tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
        while let Some(command) = next().await.unwrap() {
            let command = command.unwrap();
            if command == "attach" {
                println!("{}", attach(&agents, address).await);
                continue;
            }
            let heard = agents.iter().flat_map(|agent| agent.heard(&command));
            let heard: Vec<String> = heard.map(|at| at.to_string()).collect();
            println!("{}", heard.join(" "));
        }
    });
}

/// Connects all agents at once; says how long it took, and how often one had to try again.
async fn attach(agents: &[FakeAgent], address: SocketAddr) -> String {
    let began = Instant::now();
    let attaching = agents.iter().map(|agent| async move {
        let mut retries = 0;
        while let Err(error) = agent.attach(address).await {
            retries += 1;
            eprintln!("an agent tries again: {error}");
            tokio::time::sleep(RETRY).await;
        }
        retries
    });
    let retries: u32 = timeout(LIMIT, futures::future::join_all(attaching))
        .await
        .expect("agents attach within a minute")
        .into_iter()
        .sum();
    let count = agents.len();
    let took = began.elapsed().as_secs_f64();
    format!("{count} agents attached at once in {took:.2} s, after {retries} retries")
}

/// An agent, with a certificate unless `--plain`.
async fn joined(address: SocketAddr, number: usize, seconds: u64) -> FakeAgent {
    let script = Script {
        runs_for: match seconds {
            0 => Duration::from_millis(200),
            seconds => Duration::from_secs(seconds),
        },
        row_per_second: seconds > 0,
        host: format!("host-{number}"),
        ..Script::default()
    };
    let name = format!("agent-{number:04}");
    let agent = FakeAgent::new(&name, script);
    if flag("--plain") {
        return agent;
    }
    // As an agent of the collector's own user joins.
    let directory: std::path::PathBuf = option("--credentials").unwrap();
    let owner = benchmesh_trust::credentials::file_for(&directory, &address.to_string());
    let owner = Credentials::load(&owner).unwrap().unwrap();
    let connection = TcpConnection::at(&address.to_string()).await.unwrap();
    let channel = connection
        .dial(Security::of(&owner).unwrap())
        .await
        .unwrap();
    let key = NewKey::make().unwrap();
    let ca = owner.ca_fingerprint().unwrap();
    let own = enrol(channel, &key, Role::Agent, &name, ca, Evidence::default());
    agent.secured(Security::of(&own.await.unwrap()).unwrap())
}

/// Samples of each agent's host, of a daemon and a disk there, each second in which the collector wants them.
async fn sample(agents: Arc<[FakeAgent]>) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for second in 0.. {
        seconds.tick().await;
        for agent in agents.iter().filter(|agent| agent.sampling().run_id != 0) {
            agent.sample(second * 300_000, second * 200_000);
        }
    }
}
