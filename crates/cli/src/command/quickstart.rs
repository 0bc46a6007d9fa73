//! `benchmesh quickstart`: a whole mesh on this machine for 30 seconds, and its results.
//!
//! One collector and three agents, each a separate process, on loopback and in one temporary directory. The processes
//! and the directory are removed at the end in every case; only the database stays.

mod next_steps;

use super::report;
use crate::args::daemons::QuickstartArguments;
use crate::client::{CallError, Client, RunRequest};
use crate::failure::{self, Outcome};
use crate::follow::{self, Followed, OnInterrupt};
use crate::interrupts::Interrupts;
use crate::local_mesh::{
    self, Children, LocalAgent, LocalCollector, NewDatabase, START_LIMIT, WorkDirectory,
};
use crate::progress::{Form, Names, ProgressOutput, format};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_answers::report::card::Card;
use benchmesh_answers::report::figures;
use benchmesh_plan as plan;
use benchmesh_scheduler::snapshot::RunUpdate;
use std::path::{Path, PathBuf};

const PLAN: &str = include_str!("../../../../plans/quickstart.toml");
const PLAN_NAME: &str = "quickstart.toml";

const AGENTS: [&str; 3] = ["node1", "node2", "node3"];

const EXITED: &str =
    "error: exited at once; the next quickstart removes what is left in the temporary directory";

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
        () = local_mesh::exit_on_second(&mut hurried, EXITED) => Err(anyhow::anyhow!("exited at once")),
    };
    if !database.is_kept() {
        measured?;
        anyhow::bail!("the run didn't begin");
    }
    // No process has it open now. Results are kept, even after a failure.
    let sealed = local_mesh::seal(database.path()).await;
    let last = measured.with_context(|| {
        format!(
            "could not follow the run to its end; its data are in {}",
            database.path().display()
        )
    })?;
    sealed?;
    let result = report::from_file(database.path(), "last").await?;
    // The last lines name the report with its database.
    let card = Card {
        next: String::new(),
        ..result.card.clone()
    };
    let card = card.with_option(&terminal::database_option(database.path()));
    output::result(&terminal::card(&card, terminal::width()))?;
    output::result(&next_steps::next_steps(database.path(), &result)?)?;
    Ok(follow::outcome(&last))
}

/// Starts the mesh, runs the plan on it, and ends the mesh. Returns the final state of the run.
async fn measure(database: &NewDatabase, interrupts: &mut Interrupts) -> anyhow::Result<RunUpdate> {
    let directory = WorkDirectory::make("quickstart")?;
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
) -> anyhow::Result<RunUpdate> {
    let target = directory.path().join("target");
    std::fs::create_dir(&target).context("make the target's directory")?;
    let target = target
        .canonicalize()
        .context("find the target's directory")?;
    let tls = directory.path().join("tls");
    let collector = LocalCollector {
        database: database.path(),
        tls: &tls,
        reports: directory.path(),
    };
    let address = collector.start(children).await?;
    let allow: [PathBuf; 1] = [target.clone()];
    for name in AGENTS {
        let agent = LocalAgent {
            name,
            allow: &allow,
            state: directory.path().join("state").join(name),
            scratch: directory.path().join("scratch").join(name),
        };
        agent.start(&address, children)?;
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
    if let Some(url) = collector.page() {
        progress.say(&format!("live page: {url}"));
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
    if !local_mesh::takes_direct_io(target)? {
        output::print_notice(&format!(
            "{} does not support direct I/O; records go through the page cache",
            target.display()
        ));
        overrides.push("phase.records.direct=false".to_owned());
    }
    plan::set(PLAN, PLAN_NAME, &overrides).map_err(|errors| anyhow::anyhow!("{errors}"))
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
