//! One function per command: from parsed arguments to an outcome.

mod agent;
mod annotate;
mod archive;
mod clean;
mod collector;
mod compare;
mod confirm;
mod data;
mod db;
mod doctor;
mod findings;
#[cfg(test)]
mod history;
mod import;
mod lists;
mod measure;
mod plan;
mod query;
mod quickstart;
mod report;
mod run;
mod source;

use crate::args::daemons::{AgentAction, AgentCommand};
use crate::args::definition::definition;
use crate::args::plan::PlanCommand;
use crate::args::{Arguments, Command};
use crate::client;
use crate::failure::Outcome;
use crate::output;
use anyhow::Context;
use benchmesh_collector::service::memory;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Time limit for blocking work that is left when a command has ended.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// Executes the command.
pub fn execute(arguments: Arguments) -> anyhow::Result<Outcome> {
    let insecure = arguments.insecure;
    // The processes of a local mesh use TLS whatever the command was told.
    let is_local = match &arguments.command {
        Command::Quickstart(_) => true,
        Command::Measure(measure) => measure.collector.is_none(),
        _ => false,
    };
    client::trust::set_insecure(insecure && !is_local);
    match arguments.command {
        Command::Quickstart(arguments) => on_runtime(quickstart::quickstart(arguments)),
        Command::Measure(arguments) => on_one_thread(measure::measure(arguments)),
        Command::Collector(mut arguments) => match arguments.action.take() {
            Some(action) => on_one_thread(collector::action(action)),
            None => on_runtime(collector::collector(arguments, insecure)),
        },
        Command::Agent(AgentCommand {
            action: Some(AgentAction::Clean(arguments)),
            ..
        }) => clean::clean(arguments),
        Command::Agent(AgentCommand { arguments, .. }) => {
            on_one_thread(agent::agent(arguments, insecure))
        }
        Command::Doctor(arguments) => on_one_thread(doctor::doctor(arguments, insecure)),
        Command::Join(arguments) => on_one_thread(collector::join(arguments)),
        Command::Run(arguments) => on_one_thread(run::run(arguments)),
        Command::Plan(PlanCommand::Check(arguments)) => plan::check(&arguments),
        Command::Plan(PlanCommand::FromFio(arguments)) => plan::convert(&arguments),
        Command::Plan(PlanCommand::Schema) => plan::schema(),
        Command::Plan(PlanCommand::Preset { name }) => plan::preset(name.as_deref()),
        Command::Plan(PlanCommand::Show(arguments)) => on_one_thread(plan::show(arguments)),
        Command::Agents(arguments) => on_one_thread(lists::agents(arguments)),
        Command::Data(arguments) => on_one_thread(data::data(arguments)),
        Command::Runs(arguments) => on_one_thread(lists::runs(arguments)),
        Command::Watch(arguments) => on_one_thread(run::watch(arguments)),
        Command::Stop(arguments) => on_one_thread(run::stop(arguments)),
        Command::Resume(arguments) => on_one_thread(run::resume(arguments)),
        Command::Report(arguments) => on_one_thread(report::report(arguments)),
        Command::Findings(arguments) => on_one_thread(findings::findings(arguments)),
        Command::Compare(arguments) => on_one_thread(compare::compare(arguments)),
        Command::Import(arguments) => on_one_thread(import::import(arguments)),
        Command::Db(command) => on_one_thread(db::db(command)),
        Command::Archive(command) => on_one_thread(archive::archive(command)),
        Command::Tag(arguments) => on_one_thread(annotate::tag(arguments)),
        Command::Note(arguments) => on_one_thread(annotate::note(arguments)),
        Command::Mark(arguments) => on_one_thread(annotate::mark(arguments)),
        Command::Query(arguments) => on_one_thread(query::query(arguments)),
        Command::Completions(arguments) => completions(arguments.shell),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "benchmesh", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}

/// For the collector, which serves many clients at once.
fn on_runtime(work: impl Future<Output = anyhow::Result<Outcome>>) -> anyhow::Result<Outcome> {
    finish(
        memory::runtime().context("start the runtime")?,
        Box::pin(work),
    )
}

/// For everything else: the lightest runtime, which does not compete with the load.
fn on_one_thread(work: impl Future<Output = anyhow::Result<Outcome>>) -> anyhow::Result<Outcome> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    finish(runtime, Box::pin(work))
}

/// A thread that hangs in a system call does not keep the process from ending. Boxed: the runtime is compiled once, and
/// not for each command.
fn finish(
    runtime: Runtime,
    work: Pin<Box<dyn Future<Output = anyhow::Result<Outcome>> + '_>>,
) -> anyhow::Result<Outcome> {
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_WITHIN);
    ended
}
