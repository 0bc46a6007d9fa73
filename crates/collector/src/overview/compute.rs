//! Computes one snapshot after another, and caches the slowly changing parts.

use super::{TOPICS, Topic, read};
use benchmesh_model::mesh::{AgentId, MeshMicros, RunId, RunState, StepId, TaskId};
use benchmesh_scheduler::{
    Scheduler, WatcherPosition,
    live::TaskRate,
    sessions::{Fleet, MemberFacts},
    snapshot::{
        AgentNow, ArchiveNow, ClientRate, DaemonNow, EventNow, Health, HostNow, RunListed, RunNow,
        Snapshot,
    },
};
use benchmesh_store::{Store, annotate::RunSearch, clock::MeshClock};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tracing::debug;

/// Samples come once a second; for display, computing their rates less often is enough.
const SAMPLES_PERIOD: Duration = Duration::from_secs(2);
/// The history is read when the run under way changes, and at least this often.
const RUNS_PERIOD: Duration = Duration::from_secs(10);
const AGENTS_PERIOD: Duration = Duration::from_secs(5);
const SHOWN_EVENTS: u32 = 100;
const SHOWN_RUNS: u32 = 50;
const SHOWN_MESSAGES: usize = 20;
const SHOWN_FINISHED: usize = 30;
/// Time span of the page's charts.
const MARKS_US: i64 = 7_200_000_000;
const SHOWN_MARKS: u32 = 100;
/// Maximum number of clients shown: the slowest, and the fastest.
const SHOWN_CLIENTS: usize = 200;

pub struct Computer {
    scheduler: Scheduler,
    fleet: Fleet,
    store: Store,
    clock: Arc<MeshClock>,
    security_warning: Option<&'static str>,
    archive: Option<watch::Receiver<ArchiveNow>>,
    began: Instant,
    topics: BTreeMap<&'static str, Topic>,
    /// The agents of the tasks of the step under way.
    names: Option<(StepId, TaskNames)>,
    samples: Option<(Instant, Vec<DaemonNow>, Vec<HostNow>)>,
    agents: Option<(Instant, Vec<AgentNow>)>,
    events: Vec<EventNow>,
    runs: Option<(Instant, Option<RunKey>, Vec<RunListed>)>,
    queued: u32,
}

/// The agent of each task, with its name.
type TaskNames = HashMap<TaskId, (AgentId, String)>;

/// The facts about the run under way that the history shows.
type RunKey = (RunId, RunState, usize, usize);

impl Computer {
    pub fn new(
        scheduler: Scheduler,
        fleet: Fleet,
        store: Store,
        clock: Arc<MeshClock>,
        security_warning: Option<&'static str>,
        archive: Option<watch::Receiver<ArchiveNow>>,
    ) -> Self {
        Self {
            scheduler,
            fleet,
            store,
            clock,
            security_warning,
            archive,
            began: Instant::now(),
            topics: BTreeMap::new(),
            names: None,
            samples: None,
            agents: None,
            events: Vec::new(),
            runs: None,
            queued: 0,
        }
    }

    /// The current state, and its parts with their versions.
    pub async fn compute(&mut self, viewers: usize) -> (Snapshot, Arc<[Topic]>) {
        let now = self.clock.now();
        let run = self.run(now).await;
        self.read_samples(now).await;
        self.read_events().await;
        self.read_runs(run.as_ref()).await;
        self.list_agents();
        let (daemons, hosts) = match &self.samples {
            Some((_, daemons, hosts)) => (daemons.clone(), hosts.clone()),
            None => (Vec::new(), Vec::new()),
        };
        let snapshot = Snapshot {
            health: self.health(now, viewers),
            run,
            agents: self
                .agents
                .as_ref()
                .map_or_else(Vec::new, |(_, agents)| agents.clone()),
            daemons,
            hosts,
            events: self.events.clone(),
            runs: self
                .runs
                .as_ref()
                .map_or_else(Vec::new, |(_, _, runs)| runs.clone()),
        };
        let topics = self.publish(&snapshot);
        (snapshot, topics)
    }

    /// Lists the agents. Their clocks change all the time, so the list is only rebuilt when an agent comes or goes, or
    /// after a while.
    fn list_agents(&mut self) {
        let agents = agents(&self.fleet);
        let key = |agents: &[AgentNow]| -> Vec<(i64, bool)> {
            agents
                .iter()
                .map(|agent| (agent.agent_id, agent.attached))
                .collect()
        };
        let stale = self
            .agents
            .as_ref()
            .is_none_or(|(at, known)| at.elapsed() > AGENTS_PERIOD || key(known) != key(&agents));
        if stale {
            self.agents = Some((Instant::now(), agents));
        }
    }

    fn health(&self, now: MeshMicros, viewers: usize) -> Health {
        let agents: &[AgentNow] = self.agents.as_ref().map_or(&[], |(_, agents)| agents);
        let path = self.store.path();
        let (cpu_s, resident_bytes) = own_usage();
        let blocked = self.store.blocked().borrow().clone();
        Health {
            now_us: now.0,
            version: env!("CARGO_PKG_VERSION"),
            mesh_uid: self.store.mesh_uid().to_owned(),
            security_warning: self.security_warning,
            uptime_s: self.began.elapsed().as_secs(),
            database_bytes: size(path),
            wal_bytes: size(&beside(path, "-wal")),
            blocked: blocked.map(|blocked| format!("{}; {}", blocked.why, blocked.remedy)),
            queued_runs: self.queued,
            archive: self
                .archive
                .as_ref()
                .map(|archive| archive.borrow().clone()),
            agents_attached: agents.iter().filter(|agent| agent.attached).count(),
            agents_known: agents.len(),
            viewers,
            cpu_s,
            resident_bytes,
        }
    }

    async fn run(&mut self, now: MeshMicros) -> Option<RunNow> {
        let progress = self.scheduler.progress().current()?;
        let (WatcherPosition { messages, finished }, rates) = progress.with_view(|view| {
            let step = view.step.as_ref();
            let rates = step.map_or_else(Vec::new, |step| step.rates.clone());
            (view.seen(), rates)
        });
        let shown = WatcherPosition {
            messages: messages.saturating_sub(SHOWN_MESSAGES),
            finished: finished.saturating_sub(SHOWN_FINISHED),
        };
        let (mut run, _) = progress.now(now, shown);
        if let Some(step) = run.step.as_mut().filter(|_| !rates.is_empty()) {
            run.clients = self.clients(step.step_id, &rates).await;
            step.clients_absent = self.absent(step.step_id);
        }
        let since = now.0.saturating_sub(MARKS_US);
        match read::marks(self.store.reader(), run.run_id.0, since, SHOWN_MARKS).await {
            Ok(marks) => run.marks = marks,
            Err(error) => debug!(%error, "cannot read the marks of a run"),
        }
        Some(run)
    }

    /// The rates of agents, slowest first.
    async fn clients(&mut self, step: StepId, rates: &[TaskRate]) -> Vec<ClientRate> {
        if self.names.as_ref().is_none_or(|(known, _)| *known != step) {
            match self.store.tasks(step).await {
                Ok(tasks) => {
                    let names = tasks.into_iter().map(|task| {
                        let agent = self.fleet.member(task.agent);
                        let name = agent.map_or_else(
                            || format!("agent {}", task.agent.0),
                            |agent| agent.hello.name.clone(),
                        );
                        (task.id, (task.agent, name))
                    });
                    self.names = Some((step, names.collect()));
                }
                Err(error) => debug!(%error, "cannot read the tasks of a step"),
            }
        }
        let Some((_, names)) = &self.names else {
            return Vec::new();
        };
        let mut sums: BTreeMap<&str, ClientRate> = BTreeMap::new();
        for rate in rates {
            let Some((agent, name)) = names.get(&rate.task) else {
                continue;
            };
            let sum = sums.entry(name).or_insert_with(|| ClientRate {
                agent: name.clone(),
                ops_per_s: 0.0,
                bytes_per_s: 0.0,
                is_absent: self.is_absent(*agent),
            });
            sum.ops_per_s += rate.ops_per_s;
            sum.bytes_per_s += rate.bytes_per_s;
        }
        let mut clients: Vec<ClientRate> = sums.into_values().collect();
        clients.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
        if clients.len() > SHOWN_CLIENTS {
            let half = SHOWN_CLIENTS / 2;
            clients.drain(half..clients.len() - half);
        }
        clients
    }

    /// Number of detached agents of the step under way.
    fn absent(&self, step: StepId) -> usize {
        let names = self.names.as_ref().filter(|(known, _)| *known == step);
        let agents: BTreeSet<AgentId> = names
            .into_iter()
            .flat_map(|(_, names)| names.values().map(|(agent, _)| *agent))
            .collect();
        agents
            .into_iter()
            .filter(|agent| self.is_absent(*agent))
            .count()
    }

    fn is_absent(&self, agent: AgentId) -> bool {
        let member = self.fleet.member(agent);
        !member.is_some_and(|member| member.attached)
    }

    async fn read_samples(&mut self, now: MeshMicros) {
        let due = |(at, _, _): &(Instant, Vec<DaemonNow>, Vec<HostNow>)| {
            at.elapsed() + Duration::from_millis(100) >= SAMPLES_PERIOD
        };
        if !self.samples.as_ref().is_none_or(due) {
            return;
        }
        let pool = self.store.reader();
        let samples = self.store.live().samples();
        match (
            read::daemons(pool, samples, now.0).await,
            read::hosts(pool, samples, now.0).await,
        ) {
            (Ok(daemons), Ok(hosts)) => self.samples = Some((Instant::now(), daemons, hosts)),
            (Err(error), _) | (_, Err(error)) => debug!(%error, "cannot read the newest samples"),
        }
    }

    async fn read_events(&mut self) {
        let newest = self.events.first().map_or(0, |event| event.event_id);
        match read::events(self.store.reader(), newest, SHOWN_EVENTS).await {
            Ok(mut events) => {
                events.append(&mut self.events);
                events.truncate(SHOWN_EVENTS as usize);
                self.events = events;
            }
            Err(error) => debug!(%error, "cannot read the newest events"),
        }
    }

    async fn read_runs(&mut self, run: Option<&RunNow>) {
        let key = run.map(|run| (run.run_id, run.state, run.steps_done, run.steps_total));
        let stale = self
            .runs
            .as_ref()
            .is_none_or(|(at, known, _)| *known != key || at.elapsed() > RUNS_PERIOD);
        if !stale {
            return;
        }
        let newest = RunSearch {
            limit: SHOWN_RUNS,
            ..RunSearch::default()
        };
        match self.store.search_runs(&newest).await {
            Ok(runs) => self.runs = Some((Instant::now(), key, runs)),
            Err(error) => debug!(%error, "cannot read the newest runs"),
        }
        if let Ok(unfinished) = self.store.count_unfinished_runs().await {
            let running = run.is_some_and(|run| run.state == RunState::Running);
            self.queued = unfinished.saturating_sub(u32::from(running));
        }
    }

    /// Writes each part as JSON. An unchanged part keeps its version and its text.
    fn publish(&mut self, snapshot: &Snapshot) -> Arc<[Topic]> {
        for name in TOPICS {
            let json = match name {
                "health" => text(&snapshot.health),
                "run" => text(&snapshot.run),
                "agents" => text(&snapshot.agents),
                "daemons" => text(&snapshot.daemons),
                "hosts" => text(&snapshot.hosts),
                "events" => text(&snapshot.events),
                _ => text(&snapshot.runs),
            };
            let version = match self.topics.get(name) {
                Some(topic) if *topic.json == *json => continue,
                Some(topic) => topic.version + 1,
                None => 1,
            };
            self.topics.insert(name, Topic::new(name, version, json));
        }
        TOPICS
            .iter()
            .filter_map(|name| self.topics.get(name).cloned())
            .collect()
    }
}

fn text(part: &impl Serialize) -> String {
    // Plain structs of numbers and text can always be written as JSON.
    serde_json::to_string(part).unwrap_or_else(|_| String::from("null"))
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// CPU seconds and resident bytes of this process; zero if the kernel does not report them.
fn own_usage() -> (f64, u64) {
    let mut cpu_s = 0.0;
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    if let (Ok(seconds), Ok(nanos)) = (u64::try_from(clock.tv_sec), u64::try_from(clock.tv_nsec)) {
        cpu_s = (Duration::from_secs(seconds) + Duration::from_nanos(nanos)).as_secs_f64();
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    (cpu_s, pages.saturating_mul(page_bytes))
}

/// Every known agent: first those that are attached, by name.
pub fn agents(fleet: &Fleet) -> Vec<AgentNow> {
    let mut agents: Vec<AgentNow> = fleet.members().into_iter().map(agent).collect();
    agents.sort_by(|a, b| (!a.attached, &a.name).cmp(&(!b.attached, &b.name)));
    agents
}

fn agent(facts: MemberFacts) -> AgentNow {
    let hello = &facts.hello;
    let known = |us: i64| Some(us).filter(|us| *us > 0 && facts.attached);
    AgentNow {
        agent_id: facts.id.0,
        name: hello.name.clone(),
        attached: facts.attached,
        host: hello.host_name.clone(),
        labels: hello.labels.clone().into_iter().collect(),
        version: hello.version.clone(),
        kernel: hello.kernel.clone(),
        cpus: hello.cpus,
        memory_bytes: hello.memory_bytes,
        allowed_paths: hello
            .allowed
            .iter()
            .map(|path| path.display().to_string())
            .collect(),
        policy: hello.policy.clone(),
        // While the agent is attached, this changes with each message, and the list would be sent every second.
        last_seen_us: (!facts.attached).then_some(facts.last_seen.0),
        clock_error_us: known(facts.clock_error_us),
        round_trip_us: known(facts.round_trip_us),
        samples_host: facts.attached && facts.sampling.host_wide,
        address: facts.address.clone(),
    }
}
