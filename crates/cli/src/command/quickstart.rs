//! `benchmesh quickstart`: a whole mesh on this machine for 30 seconds, and its results.
//!
//! One collector and three agents, each a separate process, on loopback and in one temporary directory. The processes
//! and the directory are removed at the end in every case; only the database stays.

mod children;
mod database;
mod next_steps;
mod work_directory;

use super::report;
use crate::args::ReportFormat;
use crate::args::daemons::QuickstartArguments;
use crate::client::{CallError, Client, RunRequest, Update};
use crate::failure::{self, Outcome};
use crate::follow::{self, Followed, OnInterrupt};
use crate::interrupts::Interrupts;
use crate::output;
use crate::progress::{Form, Names, ProgressOutput, format};
use anyhow::Context;
use benchmesh_answers::report::{Detail, figures};
use benchmesh_plan as plan;
use children::Children;
use database::NewDatabase;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use work_directory::WorkDirectory;

const PLAN: &str = include_str!("../../../../plans/quickstart.toml");
const PLAN_NAME: &str = "quickstart.toml";

const AGENTS: [&str; 3] = ["node1", "node2", "node3"];

/// Time limit for the processes to start, far above what a slow machine needs.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a second Ctrl-C waits for the processes to end.
const HURRY_LIMIT: Duration = Duration::from_secs(2);

/// `benchmesh quickstart`.
pub async fn quickstart(arguments: QuickstartArguments) -> anyhow::Result<Outcome> {
    let mut interrupts = Interrupts::listen()?;
    let mut hurried = interrupts.clone();
    let database = NewDatabase::reserve(&arguments.db)?;
    if database.path() != arguments.db {
        output::print_notice(&format!(
            "{} already exists and is not changed; this run writes to {}",
            arguments.db.display(),
            database.path().display()
        ));
    }
    let measured = tokio::select! {
        measured = measure(&database, &mut interrupts) => measured,
        () = hurry(&mut hurried) => Err(anyhow::anyhow!("exited at once")),
    };
    if !database.is_kept() {
        measured?;
        anyhow::bail!("the run didn't begin");
    }
    // No process has it open now. Results are kept, even after a failure.
    let sealed = database.seal().await;
    let last = measured.with_context(|| {
        format!(
            "could not follow the run to its end; its data are in {}",
            database.path().display()
        )
    })?;
    sealed?;
    let result = report::from_file(database.path(), "last").await?;
    output::result(&report::written(
        &result,
        ReportFormat::Table,
        Detail::Summary,
    )?)?;
    output::result(&next_steps::next_steps(database.path(), &result)?)?;
    Ok(follow::outcome(&last))
}

/// Returns at the second signal. From then on the processes are killed, and everything is removed if that succeeds
/// quickly: a hanging disk must not block the exit.
async fn hurry(interrupts: &mut Interrupts) {
    interrupts.second().await;
    std::thread::spawn(leave);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the main thread may wait for a disk that hangs: neither it nor the runtime can be asked to leave"
)]
fn leave() {
    std::thread::sleep(HURRY_LIMIT);
    output::print_notice(
        "error: exited at once; the next quickstart removes what is left in the temporary directory",
    );
    std::process::exit(i32::from(failure::FAILED));
}

/// Starts the mesh, runs the plan on it, and ends the mesh. Returns the final state of the run.
async fn measure(database: &NewDatabase, interrupts: &mut Interrupts) -> anyhow::Result<Update> {
    let directory = WorkDirectory::make()?;
    // Dropped before the directory: no process uses it when it is removed.
    let mut children = Children::new();
    let measured = run(database, &directory, &mut children, interrupts).await;
    // Results take precedence over a failed cleanup, and an earlier error explains more than a later one.
    for trouble in [children.end().await, directory.remove()] {
        if let (Ok(_), Err(error)) = (&measured, trouble) {
            output::print_notice(&format!("warning: {}", failure::chain(&error)));
        }
    }
    measured
}

async fn run(
    database: &NewDatabase,
    directory: &WorkDirectory,
    children: &mut Children,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Update> {
    let target = directory.path().join("target");
    std::fs::create_dir(&target).context("make the target's directory")?;
    let target = target
        .canonicalize()
        .context("find the target's directory")?;
    let url_file = directory.path().join("url");
    let address = start_collector(database.path(), directory.path(), &url_file, children).await?;
    for name in AGENTS {
        start_agent(name, &address, directory.path(), &target, children)?;
    }
    let wanted = RunRequest {
        run_uid: uuid::Uuid::new_v4().to_string(),
        plan_name: PLAN_NAME.to_owned(),
        plan: plan_on(&target)?,
        agents: u32::try_from(AGENTS.len()).unwrap_or(u32::MAX),
        agents_wait: START_LIMIT,
        dry_run: false,
        new_agents: true,
        due_us: 0,
    };
    let started = tokio::select! {
        started = async { Client::connect(&address).await?.start_run(&wanted).await } => started,
        error = children.failure() => return Err(error),
        () = interrupts.first() => anyhow::bail!("interrupted before the run began"),
    };
    let started = started.map_err(CallError::into_error).with_context(|| {
        let place = directory.path().display();
        format!("start the run in {place}; set TMPDIR to use another directory")
    })?;
    database.keep();
    let mut progress =
        ProgressOutput::open(Names::of(&started.steps), Form::Bars, OnInterrupt::StopRun);
    progress.say(&format!(
        "a collector and {} agents on this machine, working in {}: {}",
        AGENTS.len(),
        directory.path().display(),
        figures::plural(started.steps.len(), "step")
    ));
    for warning in &started.warnings {
        progress.say(&format!("warning: {warning}"));
    }
    // Written before the collector's address, unless no page is served.
    if let Ok(url) = std::fs::read_to_string(&url_file) {
        progress.say(&format!("live page: {}", url.trim()));
    }
    let followed = tokio::select! {
        followed = follow::follow(&address, &wanted.run_uid, &mut progress, interrupts, OnInterrupt::StopRun) => followed,
        error = children.failure() => Err(error),
    };
    progress.finish();
    let Followed::Ended(last) = followed? else {
        anyhow::bail!("stopped watching the run before its end");
    };
    output::print_notice(&format::run_end(&last));
    output::print_notice("");
    Ok(*last)
}

/// The plan with its target in the temporary directory.
fn plan_on(target: &Path) -> anyhow::Result<String> {
    let mut overrides = vec![format!("targets.disk.path={}", target.display())];
    if !takes_direct_io(target)? {
        output::print_notice(&format!(
            "{} does not support direct I/O; records go through the page cache",
            target.display()
        ));
        overrides.push("phase.records.direct=false".to_owned());
    }
    plan::set(PLAN, PLAN_NAME, &overrides).map_err(|errors| anyhow::anyhow!("{errors}"))
}

/// Whether the file system supports O_DIRECT.
fn takes_direct_io(target: &Path) -> anyhow::Result<bool> {
    let path = target.join("direct");
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    // The file may exist even if the flag was refused.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(opened.is_ok()),
    }
}

async fn start_collector(
    database: &Path,
    directory: &Path,
    url_file: &Path,
    children: &mut Children,
) -> anyhow::Result<String> {
    let address_file = directory.join("address");
    children.start(
        "collector",
        [
            "collector".as_ref(),
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--db".as_ref(),
            database.as_os_str(),
            "--address-file".as_ref(),
            address_file.as_os_str(),
            "--http-url-file".as_ref(),
            url_file.as_os_str(),
            "--tls-dir".as_ref(),
            directory.join("tls").as_os_str(),
        ],
    )?;
    let deadline = Instant::now() + START_LIMIT;
    loop {
        if let Ok(address) = std::fs::read_to_string(&address_file) {
            return Ok(address.trim().to_owned());
        }
        children.check()?;
        if Instant::now() >= deadline {
            anyhow::bail!(
                "the collector did not start to serve within {} s",
                START_LIMIT.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn start_agent(
    name: &str,
    address: &str,
    directory: &Path,
    target: &Path,
    children: &mut Children,
) -> anyhow::Result<()> {
    let state = directory.join("state").join(name);
    let scratch = directory.join("scratch").join(name);
    std::fs::create_dir_all(&state).with_context(|| format!("make the directory of {name}"))?;
    std::fs::create_dir_all(&scratch).with_context(|| format!("make the directory of {name}"))?;
    children.start(
        &format!("agent {name}"),
        [
            "agent".as_ref(),
            "--collector".as_ref(),
            address.as_ref(),
            "--name".as_ref(),
            name.as_ref(),
            "--label".as_ref(),
            "role=client".as_ref(),
            "--allow-network".as_ref(),
            "--allow-drop-caches".as_ref(),
            "--allow".as_ref(),
            target.as_os_str(),
            "--state-dir".as_ref(),
            state.as_os_str(),
            "--scratch".as_ref(),
            scratch.as_os_str(),
        ],
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_plan_is_good_and_has_every_workload() {
        let directory = tempfile::tempdir().unwrap();
        let text = plan_on(directory.path()).unwrap();
        let plan = plan::parse(&text, PLAN_NAME).unwrap();
        let agents = plan::assumed_agents(&plan, 3);
        let steps = plan::expand(&plan, &agents).unwrap().steps;
        assert!(
            steps
                .iter()
                .all(|step| step.path.is_empty() || Path::new(&step.path) == directory.path())
        );
        for workload in ["null", "files", "io", "copy", "network"] {
            assert!(
                steps.iter().any(|step| step.workload == workload),
                "{workload}"
            );
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
