//! One function per command: from parsed arguments to an outcome.

mod agent;
mod collector;
mod lists;
mod plan;
mod query;
pub mod report;
mod run;
mod source;

use crate::args::{Command, PlanCommand};
use crate::failure::Outcome;
use crate::interrupts::Interrupts;
use crate::{output, quickstart};
use anyhow::Context;
use clap::CommandFactory;
use std::future::Future;

/// Does what the command says.
pub fn execute(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Quickstart(arguments) => on_runtime(quickstart::quickstart(arguments)),
        Command::Collector(arguments) => on_runtime(collector::collector(arguments)),
        Command::Agent(arguments) => on_one_thread(agent::agent(arguments)),
        Command::Run(arguments) => on_one_thread(run::run(arguments)),
        Command::Plan(PlanCommand::Check(arguments)) => plan::check(&arguments),
        Command::Plan(PlanCommand::Show(arguments)) => on_one_thread(plan::show(arguments)),
        Command::Agents(arguments) => on_one_thread(lists::agents(arguments)),
        Command::Runs(arguments) => on_one_thread(lists::runs(arguments)),
        Command::Watch(arguments) => on_one_thread(run::watch(arguments)),
        Command::Stop(arguments) => on_one_thread(run::stop(arguments)),
        Command::Report(arguments) => on_one_thread(report::report(arguments)),
        Command::Query(arguments) => on_one_thread(query::query(arguments)),
        Command::Completions(arguments) => completions(arguments.shell),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut crate::args::Arguments::command(),
        "benchmesh",
        &mut script,
    );
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}

/// For the collector: it serves many at once.
fn on_runtime(work: impl Future<Output = anyhow::Result<Outcome>>) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(work)
}

/// For everything else: the lightest, and nothing of it competes with the load.
fn on_one_thread(work: impl Future<Output = anyhow::Result<Outcome>>) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(work)
}

/// Runs a daemon until a signal asks it to end; a second signal leaves at once.
///
/// `daemon` gets the token that is cancelled by the first signal.
async fn until_told<F>(
    daemon: impl FnOnce(tokio_util::sync::CancellationToken) -> F,
) -> anyhow::Result<Outcome>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut interrupts = Interrupts::listen()?;
    let mut hurried = interrupts.clone();
    let cancel = tokio_util::sync::CancellationToken::new();
    let work = daemon(cancel.clone());
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result.map(|()| Outcome::Done),
            () = interrupts.first(), if !cancel.is_cancelled() => {
                tracing::info!("ending; a second signal leaves at once");
                cancel.cancel();
            }
            () = hurried.second() => anyhow::bail!("left at once, by a second signal"),
        }
    }
}

/// Ends this process when the one that started it ends, however it ends.
fn end_with_parent() -> anyhow::Result<()> {
    let what = "tie this process to the one that started it";
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .context(what)?;
    // The parent may have ended before the line above; then whoever inherited this process is its parent now.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    let meant = std::env::var(quickstart::PARENT_VARIABLE)
        .ok()
        .and_then(|pid| pid.parse().ok());
    if meant.is_some() && parent != meant {
        anyhow::bail!("{what}: it has ended already");
    }
    Ok(())
}
