//! `benchmesh measure`: directories measured in turns and compared, with one command.
//!
//! One run of one plan: the targets are the directories, the phases the loads, and loops repeat them until the
//! intervals are narrow or the time is over. Without `--collector` a collector and agents run on this machine for as
//! long. [`places`] examines the directories, [`probe`] tries them out, [`experiment`] makes the plan, [`precision`]
//! decides when it is enough, [`early_end`] ends it then, and [`home`] is the database that remembers earlier
//! measurements.

mod early_end;
mod experiment;
mod home;
mod places;
mod precision;
mod probe;

use crate::args::measure::{Load, MeasureArguments};
use crate::client::{CallError, Client, RunRequest, StopWhen};
use crate::failure::{self, Outcome};
use crate::follow::{self, Followed, OnInterrupt};
use crate::interrupts::Interrupts;
use crate::local_mesh::{self, Children, LocalAgent, LocalCollector, START_LIMIT, WorkDirectory};
use crate::progress::{Form, Names, ProgressOutput, format};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_answers::compare;
use benchmesh_answers::query::Value;
use benchmesh_answers::report::card::{self, Card};
use benchmesh_answers::report::{self as answers, figures};
use benchmesh_scheduler::snapshot::{RunStarted, RunUpdate};
use clap::ValueEnum;
use experiment::{Experiment, Limits, RUN_PREFIX, Sizes};
use home::Home;
use places::Place;
use precision::Precision;
use probe::Probe;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PLAN_NAME: &str = "measure.toml";

const EXITED: &str = "error: exited at once; the next measurement removes what is left";

/// Memory in which copies have their other end, if there is enough of it: another disk would limit them.
const MEMORY: &str = "/dev/shm";
/// The share of it that copies use at most, as a divisor.
const MEMORY_SHARE: u64 = 16;

/// `--quick` divides the time by this.
const QUICK: u32 = 4;

/// `benchmesh measure`.
pub async fn measure(arguments: MeasureArguments) -> anyhow::Result<Outcome> {
    let mut interrupts = Interrupts::listen()?;
    match arguments.collector.clone() {
        Some(address) => on_mesh(&arguments, &address, &mut interrupts).await,
        None => {
            let mut hurried = interrupts.clone();
            tokio::select! {
                ended = on_this_machine(&arguments, &mut interrupts) => ended,
                () = local_mesh::exit_on_second(&mut hurried, EXITED) => Err(anyhow::anyhow!("exited at once")),
            }
        }
    }
}

/// On the clients of a mesh: nothing is started, and nothing can be probed.
async fn on_mesh(
    arguments: &MeasureArguments,
    address: &str,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Outcome> {
    let places = places::remote(&arguments.directories)?;
    let sizes = arguments
        .size
        .map_or_else(Sizes::default_of_mesh, Sizes::of);
    let experiment = experiment(arguments, &places, true, true);
    if arguments.print_plan {
        output::result(&experiment.plan(&sizes))?;
        return Ok(Outcome::Done);
    }
    let mesh = Mesh {
        address,
        agents: 0,
        is_own: false,
        local: &[],
    };
    let ended = run(
        &mesh,
        &experiment,
        chosen(arguments, sizes, Limits::NONE),
        interrupts,
    )
    .await?;
    answer(&ended, &experiment, "")
}

async fn on_this_machine(
    arguments: &MeasureArguments,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Outcome> {
    let clients = arguments.clients.unwrap_or(1);
    let directories = arguments.directories.clone();
    // A dead network file system must not keep Ctrl-C from ending the command.
    let inspected = tokio::task::spawn_blocking(move || places::inspect(&directories, clients));
    let places = tokio::select! {
        places = inspected => places.context("examine the directories")??,
        () = interrupts.first() => anyhow::bail!("interrupted while the directories were examined"),
    };
    let directory = WorkDirectory::make("measure")?;
    // Before anything is written: a measurement in progress must not be disturbed.
    let home = match arguments.print_plan {
        true => None,
        false => Some(Home::find(arguments.keep_db.as_deref(), directory.path())?),
    };
    if let Some(home) = &home {
        home.refuse_other_runs().await?;
    }
    let scratch = Scratch::choose(directory.path())?;
    let limits = Limits::of(&places, clients, scratch.copy_bytes / u64::from(clients));
    for place in &places {
        output::print_notice(&place.in_words());
    }
    for sentence in places::shared_file_systems(&places) {
        output::print_notice(&sentence);
    }
    let probes = probes(&places, limits.bytes, interrupts).await?;
    let takes_direct = probes.iter().all(|probe| probe.takes_direct);
    let experiment = experiment(arguments, &places, takes_direct, can_drop_caches());
    let sizes = arguments
        .size
        .map_or_else(|| Sizes::suited(&probes, &experiment, limits), Sizes::of);
    let Some(home) = home else {
        output::result(&experiment.plan(&sizes))?;
        return Ok(Outcome::Done);
    };
    // Dropped before the directories: no process uses them when they are removed.
    let mut children = Children::new();
    let local = LocalMesh {
        home: &home,
        places: &places,
        directory: directory.path(),
        scratch: scratch.path(directory.path()),
        clients,
    };
    let measured = local
        .run(
            &mut children,
            &experiment,
            chosen(arguments, sizes, limits),
            interrupts,
        )
        .await;
    // Results take precedence over a failed cleanup, and an earlier error explains more than a later one.
    let mut troubles = vec![children.end().await];
    troubles.extend(scratch.memory.map(WorkDirectory::remove));
    troubles.push(directory.remove());
    for trouble in troubles {
        if let (Ok(_), Err(error)) = (&measured, trouble) {
            output::print_notice(&format!("warning: {}", failure::chain(&error)));
        }
    }
    let ended = measured?;
    let sealed = local_mesh::seal(&home.database).await;
    let option = terminal::database_option(&home.database);
    let outcome = answer(&ended, &experiment, &option)?;
    sealed?;
    home.prune().await;
    output::result(&format!(
        "Results: benchmesh report {}{option}\n",
        ended.last.run.run_id
    ))?;
    Ok(outcome)
}

/// The experiment that the user asks for.
fn experiment(
    arguments: &MeasureArguments,
    places: &[Place],
    takes_direct: bool,
    cold: bool,
) -> Experiment {
    let mut loads = arguments.loads.clone();
    if loads.is_empty() {
        loads = Load::value_variants().to_vec();
    }
    loads.sort_unstable();
    loads.dedup();
    let time = match arguments.quick {
        true => arguments.time / QUICK,
        false => arguments.time,
    };
    let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let target = |place: &Place| {
        let path = place.path.display().to_string();
        (place.name.clone(), place.file_system.clone(), path)
    };
    Experiment {
        targets: places.iter().map(target).collect(),
        step: Experiment::step_within(time, &loads),
        loads,
        clients: arguments.clients,
        direct: takes_direct,
        cold,
        time: time.saturating_mul(count),
    }
}

/// Whether this user may drop the kernel's caches.
fn can_drop_caches() -> bool {
    // Opening it changes nothing.
    OpenOptions::new()
        .write(true)
        .open("/proc/sys/vm/drop_caches")
        .is_ok()
}

async fn probes(
    places: &[Place],
    max_bytes: u64,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Vec<Probe>> {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let paths: Vec<PathBuf> = places.iter().map(|place| place.path.clone()).collect();
    let cancelled = Arc::clone(&is_cancelled);
    let mut probed = tokio::task::spawn_blocking(move || {
        let of = |path: &PathBuf| probe::probe(path, max_bytes, &cancelled);
        paths.iter().map(of).collect::<anyhow::Result<Vec<Probe>>>()
    });
    let probes = tokio::select! {
        probes = &mut probed => probes,
        () = interrupts.first() => {
            is_cancelled.store(true, Ordering::Relaxed);
            // It removes its files.
            let _ = probed.await;
            anyhow::bail!("interrupted before the run began");
        }
    };
    probes.context("try out the directories")?
}

/// Where copies have their other end.
struct Scratch {
    memory: Option<WorkDirectory>,
    /// How much may be copied, by all clients together.
    copy_bytes: u64,
}

impl Scratch {
    /// Memory if there is enough, otherwise the temporary directory.
    fn choose(temporary: &Path) -> anyhow::Result<Self> {
        let free = |path: &Path| {
            let space = rustix::fs::statvfs(path).ok()?;
            Some(space.f_bavail.saturating_mul(space.f_frsize) / MEMORY_SHARE)
        };
        let in_memory = free(Path::new(MEMORY)).filter(|share| *share >= places::MIN_BYTES);
        if let Some(copy_bytes) = in_memory
            && let Ok(memory) = WorkDirectory::make_in(Path::new(MEMORY), "measure")
        {
            return Ok(Self {
                memory: Some(memory),
                copy_bytes,
            });
        }
        let copy_bytes = free(temporary)
            .with_context(|| format!("read the free space of {}", temporary.display()))?;
        Ok(Self {
            memory: None,
            copy_bytes,
        })
    }

    fn path(&self, temporary: &Path) -> PathBuf {
        let directory = self.memory.as_ref().map_or(temporary, WorkDirectory::path);
        directory.join("scratch")
    }
}

/// The processes of a measurement on this machine.
struct LocalMesh<'a> {
    home: &'a Home,
    places: &'a [Place],
    directory: &'a Path,
    scratch: PathBuf,
    clients: u32,
}

impl LocalMesh<'_> {
    async fn run(
        &self,
        children: &mut Children,
        experiment: &Experiment,
        sizes: ChosenSizes,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Ended> {
        let collector = LocalCollector {
            database: &self.home.database,
            tls: &self.home.tls,
            reports: self.directory,
        };
        let address = collector.start(children).await?;
        let paths: Vec<PathBuf> = self.places.iter().map(|place| place.path.clone()).collect();
        for number in 1..=self.clients {
            let name = format!("client{number}");
            let agent = LocalAgent {
                name: &name,
                allow: &paths,
                state: self.home.agents.join(&name),
                scratch: self.scratch.join(&name),
            };
            agent.start(&address, children)?;
        }
        if let Some(url) = collector.page() {
            output::print_notice(&format!("live page: {url}"));
        }
        let mesh = Mesh {
            address: &address,
            agents: self.clients,
            is_own: true,
            local: &paths,
        };
        tokio::select! {
            ended = run(&mesh, experiment, sizes, interrupts) => ended,
            error = children.failure() => Err(error),
        }
    }
}

/// The mesh that measures.
struct Mesh<'a> {
    address: &'a str,
    /// How many agents to wait for; 0: those that are attached.
    agents: u32,
    /// Whether this command has started it, for its own run only.
    is_own: bool,
    /// The directories, if they are on this machine.
    local: &'a [PathBuf],
}

/// The sizes of the loads before it is known whether there is an earlier run to compare with.
#[derive(Clone, Copy, Debug)]
enum ChosenSizes {
    /// Chosen by the user.
    Asked(Sizes),
    /// Those of an earlier run are preferred, within these limits.
    Suited(Sizes, Limits),
}

impl ChosenSizes {
    fn any(self) -> Sizes {
        match self {
            Self::Asked(sizes) | Self::Suited(sizes, _) => sizes,
        }
    }

    /// The sizes with which a run of this plan can be repeated. `None` if it is no measurement.
    fn of_earlier(self, plan: &str) -> Option<Sizes> {
        match self {
            Self::Asked(sizes) => Some(sizes),
            Self::Suited(_, limits) => Sizes::of_plan(plan).filter(|sizes| limits.allow(sizes)),
        }
    }
}

fn chosen(arguments: &MeasureArguments, sizes: Sizes, limits: Limits) -> ChosenSizes {
    match arguments.size {
        Some(_) => ChosenSizes::Asked(sizes),
        None => ChosenSizes::Suited(sizes, limits),
    }
}

/// A measurement that has ended.
struct Ended {
    last: RunUpdate,
    report: answers::Report,
    /// What has changed since the last measurement of the same.
    changes: Option<compare::CompareAnswer>,
}

/// Runs the experiment to its end.
async fn run(
    mesh: &Mesh<'_>,
    experiment: &Experiment,
    sizes: ChosenSizes,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Ended> {
    let mut client = Client::connect(mesh.address)
        .await
        .map_err(CallError::into_error)?;
    if mesh.is_own {
        stop_abandoned(&mut client).await?;
    }
    let earlier = earlier(&mut client, experiment, sizes).await?;
    let sizes = earlier.map_or(sizes.any(), |(_, sizes)| sizes);
    let wanted = RunRequest {
        run_uid: uuid::Uuid::new_v4().to_string(),
        plan_name: PLAN_NAME.to_owned(),
        plan: experiment.plan(&sizes),
        agents: mesh.agents,
        agents_wait: START_LIMIT,
        dry_run: false,
        new_agents: mesh.is_own,
        due_us: 0,
    };
    let started = tokio::select! {
        started = client.start_run(&wanted) => started,
        () = interrupts.first() => anyhow::bail!("interrupted before the run began"),
    };
    let started = started
        .map_err(CallError::into_error)
        .context("start the run")?;
    let names = Names::of(&started.steps).of_precise_run();
    let mut progress = ProgressOutput::open(names, Form::Bars, OnInterrupt::StopRun);
    progress.say(&begin_in_words(experiment, &started));
    for warning in &started.warnings {
        progress.say(&format!("warning: {}", terminal::clean(warning)));
    }
    let targets = experiment.targets.iter().map(|(name, ..)| name.clone());
    let precision = Precision::new(targets.collect(), &started.steps);
    let followed = tokio::select! {
        followed = follow::follow(mesh.address, &wanted.run_uid, &mut progress, interrupts, OnInterrupt::StopRun) => followed,
        never = early_end::end_early(mesh, &wanted.run_uid, precision, experiment.time) => match never {},
    };
    progress.finish();
    let Followed::Ended(last) = followed? else {
        anyhow::bail!("stopped watching the run before its end");
    };
    let last = *last;
    output::print_notice(&format::run_end(&last));
    output::print_notice("");
    let report = client.report(&wanted.run_uid).await?;
    let changes = match earlier {
        Some((run, _)) => {
            let subject = compare::Subject::Runs {
                a: run.to_string(),
                b: wanted.run_uid,
            };
            // Nothing to say about a run without results.
            client.compare(&subject.into()).await.ok()
        }
        None => None,
    };
    Ok(Ended {
        last,
        report,
        changes,
    })
}

fn begin_in_words(experiment: &Experiment, started: &RunStarted) -> String {
    format!(
        "run {}: {} per loop, about {} and the rest of the loop that has begun; it ends earlier once its intervals are \
         narrow. {}",
        started.run_id,
        figures::plural(started.steps.len(), "step"),
        experiment.time_in_words(),
        experiment.method()
    )
}

/// Stops the measurements of commands that were killed. The collector would continue them before the new one.
async fn stop_abandoned(client: &mut Client) -> anyhow::Result<()> {
    let sql = format!(
        "SELECT uid FROM runs WHERE state IN ('queued', 'running') AND name GLOB '{RUN_PREFIX}*'"
    );
    let mut rows = client.query(&sql).await.map_err(CallError::into_error)?;
    let mut abandoned = Vec::new();
    while let Some(batch) = rows.next().await.map_err(CallError::into_error)? {
        abandoned.extend(batch);
    }
    for row in abandoned {
        if let [Value::Text(run)] = row.as_slice() {
            client
                .stop_run(run, "its command was killed", StopWhen::Now)
                .await
                .map_err(CallError::into_error)
                .context("stop the run of a measurement that was killed")?;
        }
    }
    Ok(())
}

/// The plans of ended runs with results, newest first.
const EARLIER: &str = "SELECT id, plan FROM runs WHERE state IN ('done', 'stopped') \
    AND EXISTS (SELECT 1 FROM steps AS s JOIN step_results AS o ON o.step_id = s.id WHERE s.run_id = runs.id) \
    ORDER BY id DESC LIMIT 200";

/// The newest run of the same experiment with acceptable sizes, and these sizes.
async fn earlier(
    client: &mut Client,
    experiment: &Experiment,
    wanted: ChosenSizes,
) -> anyhow::Result<Option<(i64, Sizes)>> {
    let mut rows = client.query(EARLIER).await.map_err(CallError::into_error)?;
    while let Some(batch) = rows.next().await.map_err(CallError::into_error)? {
        for row in batch {
            let [Value::Integer(run), Value::Text(plan)] = row.as_slice() else {
                continue;
            };
            let sizes = wanted.of_earlier(plan);
            if let Some(sizes) = sizes.filter(|sizes| experiment.is_of_plan(plan, sizes)) {
                return Ok(Some((*run, sizes)));
            }
        }
    }
    Ok(None)
}

/// Prints the answer; returns how the command ends. `option` names the database in commands.
fn answer(ended: &Ended, experiment: &Experiment, option: &str) -> anyhow::Result<Outcome> {
    output::result(&terminal::card(
        &card(ended).with_option(option),
        terminal::width(),
    ))?;
    output::result(&format!("\nMeasured so: {}.\n", experiment.method()))?;
    Ok(follow::outcome(&ended.last))
}

/// The answer at a glance, with what has changed since the last measurement of the same.
fn card(ended: &Ended) -> Card {
    let mut card = ended.report.card.clone();
    let since = ended.changes.iter().flat_map(|answer| &answer.comparisons);
    card.changes = since.last().map(card::changes).unwrap_or_default();
    // The last line names the report with its database.
    card.next.clear();
    card
}
