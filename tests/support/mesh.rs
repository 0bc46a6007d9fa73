//! A mesh of real processes: one collector, any number of agents, and the commands that a user types.
//!
//! Everything is in one temporary directory: the database, each agent's state, the logs. The test binary decides
//! whether meshes run in parallel, see [`permit`](super::permit).

use super::command::{CommandOutput, benchmesh};
use super::database::Database;
use super::permit::permit;
use super::process::Process;
use super::wait::{until, until_true};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Interval of checks that start a command to query the collector.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Time limit for a process of the mesh to start, on a machine that compiles at the same time.
const START: Duration = Duration::from_secs(60);
/// Time limit for a run of these tests.
const RUN: Duration = Duration::from_secs(180);

/// The mesh. Fields are dropped in this order: agents, collector, directory.
#[derive(Debug)]
pub struct Mesh {
    agents: BTreeMap<String, (Agent, Process)>,
    collector: Option<Process>,
    address: SocketAddr,
    db: PathBuf,
    insecure: bool,
    /// Additional arguments of `benchmesh collector`.
    arguments: Vec<String>,
    /// The collector's limit of open files.
    most_files: Option<u32>,
    directory: TempDir,
    /// `None` for a mesh beside another.
    _permit: Option<MutexGuard<'static, ()>>,
}

/// How an agent is started.
#[derive(Debug, Clone, Default)]
pub struct Agent {
    name: String,
    labels: Vec<String>,
    allow: Vec<PathBuf>,
    allow_read: Vec<PathBuf>,
    arguments: Vec<String>,
    namespace: Option<String>,
    clock_ahead: Option<Duration>,
    bind_mount: Option<(PathBuf, PathBuf)>,
    state_dir: Option<PathBuf>,
    credentials: Option<PathBuf>,
    most_files: Option<u32>,
    most_pinned: Option<u64>,
    is_io_uring_forbidden: bool,
    only_samples: bool,
}

impl Agent {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Omits `--allow-network` and `--allow-drop-caches`, which all others have.
    pub fn only_samples(mut self) -> Self {
        self.only_samples = true;
        self
    }

    pub fn label(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self
    }

    pub fn allow(mut self, path: &Path) -> Self {
        self.allow.push(path.to_owned());
        self
    }

    pub fn allow_read(mut self, path: &Path) -> Self {
        self.allow_read.push(path.to_owned());
        self
    }

    /// Adds a directory for the other side of copies.
    pub fn scratch(self, path: &Path) -> Self {
        self.argument("--scratch").argument(path.to_str().unwrap())
    }

    /// Adds an argument of `benchmesh agent`.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Runs it inside a network namespace.
    pub fn inside(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Runs it inside a mount namespace, in which `source` is mounted at `target`.
    pub fn mounting(mut self, source: &Path, target: &Path) -> Self {
        self.bind_mount = Some((source.to_owned(), target.to_owned()));
        self
    }

    /// Runs it in a time namespace with monotonic clocks that are ahead by this time. Whole seconds.
    pub fn clock_ahead(mut self, ahead: Duration) -> Self {
        self.clock_ahead = Some(ahead);
        self
    }

    /// Limits its open files.
    pub fn most_files(mut self, count: u32) -> Self {
        self.most_files = Some(count);
        self
    }

    /// Limits the memory that it may pin for the kernel, even if it runs as root.
    pub fn pinning_at_most(mut self, bytes: u64) -> Self {
        self.most_pinned = Some(bytes);
        self
    }

    /// Makes the kernel refuse io_uring, as a container's profile does.
    pub fn without_io_uring(mut self) -> Self {
        self.is_io_uring_forbidden = true;
        self
    }

    /// Runs as another user with the credentials in this directory.
    pub fn credentials(mut self, directory: &Path) -> Self {
        self.credentials = Some(directory.to_owned());
        self
    }

    pub fn state_dir(mut self, path: &Path) -> Self {
        self.state_dir = Some(path.to_owned());
        self
    }
}

impl Mesh {
    /// Starts a collector on loopback, on a free port.
    pub fn start() -> Self {
        Self::with_database_in(None)
    }

    /// The same, with its database in the given directory.
    pub fn with_database_in(directory: Option<&Path>) -> Self {
        let mut mesh = Self::prepared(directory, permit());
        mesh.start_collector("127.0.0.1:0");
        mesh
    }

    /// A second mesh, independent of the other; it must be dropped first.
    pub fn beside(other: &Self) -> Self {
        Self::beside_with_database_in(other, None)
    }

    /// The same, with its database in the given directory.
    pub fn beside_with_database_in(_other: &Self, directory: Option<&Path>) -> Self {
        let mut mesh = Self::prepared(directory, None);
        mesh.start_collector("127.0.0.1:0");
        mesh
    }

    /// The same with agents that may work below `path`.
    pub fn of(agents: &[&str], path: &Path) -> Self {
        let mut mesh = Self::start();
        for name in agents {
            mesh.launch(Agent::named(name).allow(path));
        }
        mesh.until_attached(agents);
        mesh
    }

    /// A collector on loopback with additional arguments.
    pub fn with_collector_arguments(arguments: &[&str]) -> Self {
        let mut mesh = Self::prepared(None, permit());
        mesh.insecure = arguments.contains(&"--insecure");
        let others = arguments.iter().filter(|one| **one != "--insecure");
        mesh.arguments = others.map(|&one| one.to_owned()).collect();
        mesh.start_collector("127.0.0.1:0");
        mesh
    }

    /// A collector that continues with the `benchmesh.db` of a directory, with additional arguments.
    pub fn on_database_in(directory: &Path, arguments: &[&str]) -> Self {
        let mut mesh = Self::prepared(Some(directory), permit());
        mesh.arguments = arguments.iter().map(|&one| one.to_owned()).collect();
        mesh.start_collector("127.0.0.1:0");
        mesh
    }

    /// A collector on an address that is reachable from other network namespaces.
    pub fn listening_on(address: &str) -> Self {
        let mut mesh = Self::prepared(None, permit());
        mesh.start_collector(address);
        mesh
    }

    /// The same, with its database in the given directory.
    pub fn listening_with_database_in(address: &str, directory: &Path) -> Self {
        let mut mesh = Self::prepared(Some(directory), permit());
        mesh.start_collector(address);
        mesh
    }

    /// A collector with a limit of open files.
    pub fn with_few_files(most: u32) -> Self {
        let mut mesh = Self::prepared(None, permit());
        mesh.most_files = Some(most);
        mesh.start_collector("127.0.0.1:0");
        mesh
    }

    /// A mesh without TLS.
    pub fn insecure() -> Self {
        Self::with_collector_arguments(&["--insecure"])
    }

    fn prepared(database_in: Option<&Path>, permit: Option<MutexGuard<'static, ()>>) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("bm-mesh-")
            .tempdir()
            .unwrap();
        let db = database_in.unwrap_or(directory.path()).join("benchmesh.db");
        Self {
            agents: BTreeMap::new(),
            collector: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            db,
            insecure: false,
            arguments: Vec::new(),
            most_files: None,
            directory,
            _permit: permit,
        }
    }

    fn start_collector(&mut self, listen: &str) {
        let address_file = self.directory.path().join("address");
        let _ = std::fs::remove_file(&address_file);
        let mut command = benchmesh();
        command
            .args(["collector", "--listen", listen, "--db"])
            .arg(&self.db)
            .arg("--address-file")
            .arg(&address_file);
        // Generated databases are old; the tests of retention are in the collector's crate.
        command.args(["--keep-seconds", "forever", "--keep-10s", "forever"]);
        command.args(&self.arguments);
        if self.insecure {
            command.arg("--insecure");
        }
        let command = match self.most_files {
            Some(count) => super::command::with_most_files(count, &command),
            None => command,
        };
        let log = self.directory.path().join("collector.log");
        let mut process = Process::start("collector", command, &log);
        self.address = until("the collector writes its address", START, || {
            assert!(
                process.is_running(),
                "the collector ended:\n{}",
                process.log()
            );
            std::fs::read_to_string(&address_file)
                .ok()?
                .trim()
                .parse()
                .ok()
        });
        self.collector = Some(process);
    }

    /// kill -9 of the collector.
    pub fn kill_collector(&mut self) {
        self.collector_mut().kill();
    }

    /// Restarts the collector with the same address and database.
    pub fn restart_collector(&mut self) {
        self.collector = None;
        self.start_collector(&self.address.to_string());
    }

    pub fn collector(&self) -> &Process {
        self.collector.as_ref().unwrap()
    }

    pub fn collector_mut(&mut self) -> &mut Process {
        self.collector.as_mut().unwrap()
    }

    /// Starts an agent and waits until it has attached.
    pub fn add(&mut self, agent: Agent) {
        let name = agent.name.clone();
        self.launch(agent);
        self.until_attached(&[&name]);
    }

    /// Starts an agent and does not wait.
    pub fn launch(&mut self, agent: Agent) {
        let name = agent.name.clone();
        let process = self.agent_process(&agent);
        self.agents.insert(name, (agent, process));
    }

    /// An agent's process that the mesh does not own (for a second one of the same name).
    pub fn agent_process(&self, agent: &Agent) -> Process {
        let mut command = benchmesh();
        let state = agent
            .state_dir
            .clone()
            .unwrap_or_else(|| self.directory.path().join(format!("state-{}", agent.name)));
        command
            .args(["agent", "--collector", &self.address.to_string()])
            .args(["--name", &agent.name])
            .arg("--state-dir")
            .arg(state);
        for label in &agent.labels {
            command.args(["--label", label]);
        }
        if !agent.only_samples {
            command.args(["--allow-network", "--allow-drop-caches"]);
        }
        for path in &agent.allow {
            command.arg("--allow").arg(path);
        }
        for path in &agent.allow_read {
            command.arg("--allow-read").arg(path);
        }
        command.args(&agent.arguments);
        if self.insecure {
            command.arg("--insecure");
        }
        if let Some(directory) = &agent.credentials {
            command.env("BENCHMESH_CREDENTIALS", directory);
        }
        let command = match &agent.bind_mount {
            Some((source, target)) => super::command::with_bind_mount(source, target, &command),
            None => command,
        };
        let command = match agent.most_files {
            Some(count) => super::command::with_most_files(count, &command),
            None => command,
        };
        let command = match agent.most_pinned {
            Some(bytes) => super::command::with_most_pinned(bytes, &command),
            None => command,
        };
        let command = match agent.clock_ahead {
            Some(ahead) => super::command::with_clock_ahead(ahead, &command),
            None => command,
        };
        let mut command = match &agent.namespace {
            Some(namespace) => super::net::enter(namespace, &command),
            None => command,
        };
        if agent.is_io_uring_forbidden {
            super::command::forbid_io_uring(&mut command);
        }
        let log = self.directory.path().join(format!("{}.log", agent.name));
        Process::start(&agent.name, command, &log)
    }

    pub fn agent(&self, name: &str) -> &Process {
        &self.agents[name].1
    }

    /// kill -9 of an agent.
    pub fn kill_agent(&mut self, name: &str) {
        self.agents.get_mut(name).unwrap().1.kill();
    }

    /// Restarts a killed agent with its state.
    pub fn restart_agent(&mut self, name: &str) {
        self.restart_agent_as(name, |agent| agent);
    }

    /// The same with changed options.
    pub fn restart_agent_as(&mut self, name: &str, change: impl FnOnce(Agent) -> Agent) {
        let (agent, process) = self.agents.remove(name).unwrap();
        drop(process);
        self.launch(change(agent));
    }

    /// Ends an agent with SIGINT, so that it delivers its data.
    pub fn end_agent(&mut self, name: &str, limit: Duration) {
        self.agents.get_mut(name).unwrap().1.interrupt(limit);
    }

    /// Ends the collector with SIGINT.
    pub fn end_collector(&mut self, limit: Duration) {
        self.collector_mut().interrupt(limit);
    }

    /// Waits until the collector reports each of them as attached.
    pub fn until_attached(&self, names: &[&str]) {
        until_true(&format!("{names:?} attach"), START, || {
            let output = self.command(&["agents", "--format", "json"]);
            let Ok(listed) = serde_json::from_str::<serde_json::Value>(&output.out) else {
                return false;
            };
            names.iter().all(|name| is_attached(&listed, name))
        });
    }

    /// A command of benchmesh that connects to this collector.
    pub fn benchmesh(&self) -> Command {
        let mut command = benchmesh();
        command.env("BENCHMESH_COLLECTOR", self.address.to_string());
        if self.insecure {
            command.arg("--insecure");
        }
        command
    }

    /// Runs a command to its end.
    pub fn command(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.benchmesh();
        command.args(arguments);
        CommandOutput::of(&command.output().unwrap())
    }

    /// Writes a plan into the mesh's directory.
    pub fn plan(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("plan.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Starts `benchmesh run` and leaves it running.
    pub fn begin(&self, plan: &str) -> Process {
        let plan = self.plan(plan);
        let mut command = self.benchmesh();
        // Agents attach and leave between the runs of a test.
        command.arg("run").arg("--new-agents").arg(plan);
        Process::start("run", command, &self.directory.path().join("run.log"))
    }

    /// Runs a plan, requires success, and returns the run's id.
    pub fn run(&self, plan: &str) -> i64 {
        let mut run = self.begin(plan);
        let ended = run
            .exit_within(RUN)
            .unwrap_or_else(|| panic!("the run did not end within {} s", RUN.as_secs()));
        assert!(ended.success(), "run: {ended}\n{}", run.log());
        self.db().one("SELECT max(id) FROM runs")
    }

    /// Waits until the newest run is in one of the states, and returns it.
    pub fn until_run_is(&self, states: &[&str], limit: Duration) -> String {
        until(&format!("the run is {states:?}"), limit, || {
            let sql = "SELECT state FROM runs ORDER BY id DESC LIMIT 1";
            let state = self.db().column::<String>(sql).pop()?;
            states.contains(&state.as_str()).then_some(state)
        })
    }

    /// Waits until a step of this mode is in a state.
    pub fn until_step_is(&self, mode: &str, state: &str, limit: Duration) {
        let sql = format!("SELECT count(*) FROM steps WHERE mode = '{mode}' AND state = '{state}'");
        until_true(&format!("{mode} is {state}"), limit, || {
            self.db().one::<i64>(&sql) > 0
        });
    }

    /// Waits until the statement returns a positive count. The collector stores its buffered rows before each check.
    pub fn until_stored(&self, what: &str, sql: &str) {
        let mut asked: Option<Instant> = None;
        until_true(what, Duration::from_secs(60), || {
            if asked.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
                return false;
            }
            self.command(&["query", "SELECT 1"]);
            asked = Some(Instant::now());
            self.db().one::<i64>(sql) > 0
        });
    }

    pub fn db(&self) -> Database {
        Database::open(&self.db)
    }

    pub fn db_path(&self) -> &Path {
        &self.db
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Fails if a process of the mesh logged at WARN or above.
    pub fn assert_no_complaints(&self) {
        let agents = self.agents.values().map(|(_, process)| process);
        for process in agents.chain(self.collector.as_ref()) {
            let complaints = process.complaints();
            assert!(
                complaints.is_empty(),
                "{} complained:\n{}",
                process.name(),
                complaints.join("\n")
            );
        }
    }
}

fn is_attached(listed: &serde_json::Value, name: &str) -> bool {
    let agents = listed.as_array().or_else(|| listed["agents"].as_array());
    agents.is_some_and(|agents| {
        agents
            .iter()
            .any(|agent| agent["name"] == name && agent["attached"] == true)
    })
}

/// The databases of the spools in an agent's state directory, and their write-ahead logs.
pub fn spool_files(state: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(state).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("spool-") && (name.ends_with(".db") || name.ends_with(".db-wal"))
        })
        .collect();
    files.sort();
    files
}
