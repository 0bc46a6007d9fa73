//! `benchmesh run`, `watch` and `stop`: a plan's way from its file to its report.

use super::{plan, report};
use crate::args::{ListFormat, ReportFormat, RunArguments, StopArguments, WatchArguments};
use crate::client::{CallError, Client, RunStarted, ToStart};
use crate::failure::{Outcome, wrong_usage};
use crate::follow::{self, OnInterrupt};
use crate::interrupts::Interrupts;
use crate::output;
use crate::progress::{Names, Progress, words};
use benchmesh_collector::report::figures;
use std::time::Duration;

/// How often a lost answer to StartRun is asked for again: its uid makes it one run.
const START_ATTEMPTS: u32 = 5;
const START_PAUSE: Duration = Duration::from_millis(500);

/// `benchmesh run`.
pub async fn run(arguments: RunArguments) -> anyhow::Result<Outcome> {
    let file = plan::read(&arguments.plan, &arguments.set)?;
    let address = arguments.collector.collector.as_str();
    let mut wanted = plan::dry_run(&file);
    wanted.dry_run = arguments.dry_run;
    wanted.agents = arguments.agents.unwrap_or(0);
    wanted.agents_wait = arguments.agents_wait;
    let mut interrupts = Interrupts::listen()?;
    let started = tokio::select! {
        started = start(address, &wanted) => started?,
        () = interrupts.first() => return give_up(address, &wanted).await,
    };
    if arguments.dry_run {
        let format = match arguments.format {
            ReportFormat::Json => ListFormat::Json,
            ReportFormat::Table | ReportFormat::Markdown => ListFormat::Table,
            ReportFormat::Csv => return Err(wrong_usage("--dry-run answers as table or json")),
        };
        plan::show_steps(&file.plan.name, &started.steps, &started.warnings, format)?;
        return Ok(Outcome::Done);
    }
    for warning in &started.warnings {
        output::say(&format!("warning: {}", crate::terminal::clean(warning)));
    }
    if arguments.detach {
        return detached(&started, arguments.format);
    }
    let mut progress = Progress::for_stderr(Names::of(&started.steps));
    progress.say(&format!(
        "run {} {:?}: {}",
        started.run_id,
        file.plan.name,
        figures::plural(started.steps.len(), "step")
    ));
    let mut hurried = interrupts.clone();
    let followed = tokio::select! {
        followed = follow::follow(address, &wanted.run_uid, &mut progress, &mut interrupts, OnInterrupt::StopRun) => followed,
        () = hurried.second() => Err(anyhow::anyhow!(
            "left at once; the collector ends run {} by itself, `benchmesh watch {}` shows how", started.run_id, started.run_id
        )),
    };
    progress.finish();
    let Some(last) = followed? else {
        return Ok(Outcome::Partial);
    };
    output::say(&words::run_end(&last));
    let mut client = Client::connect(address)
        .await
        .map_err(CallError::into_error)?;
    let result = client.report(&wanted.run_uid).await?;
    output::result(&report::written(&result, arguments.format)?)?;
    Ok(follow::outcome(&last))
}

/// `benchmesh watch`.
pub async fn watch(arguments: WatchArguments) -> anyhow::Result<Outcome> {
    let run = arguments.run.unwrap_or_default();
    let mut interrupts = Interrupts::listen()?;
    let mut progress = Progress::for_stderr(Names::unknown());
    let address = arguments.collector.collector.as_str();
    let followed = follow::follow(
        address,
        &run,
        &mut progress,
        &mut interrupts,
        OnInterrupt::Leave,
    )
    .await;
    progress.finish();
    match followed? {
        Some(last) => {
            output::result(&format!("{}\n", words::run_end(&last)))?;
            Ok(follow::outcome(&last))
        }
        None => {
            output::say("left; the run goes on");
            Ok(Outcome::Done)
        }
    }
}

/// `benchmesh stop`.
pub async fn stop(arguments: StopArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let stopped = client
        .stop_run(&arguments.run, &arguments.reason)
        .await
        .map_err(CallError::into_error)?;
    match arguments.format {
        ListFormat::Json => output::document(&stopped)?,
        ListFormat::Table => output::result(&match stopped.state.as_str() {
            "running" | "queued" => format!(
                "run {} is stopping; `benchmesh watch {}` shows its end\n",
                stopped.run_id, stopped.run_id
            ),
            state => format!("run {} is {state}\n", stopped.run_id),
        })?,
    }
    Ok(Outcome::Done)
}

/// Queues the plan. An answer that is lost on the way is asked for again.
async fn start(address: &str, wanted: &ToStart) -> anyhow::Result<RunStarted> {
    let mut client = Client::connect(address)
        .await
        .map_err(CallError::into_error)?;
    let mut attempt = 1;
    loop {
        match client.start_run(wanted).await {
            Ok(started) => return Ok(started),
            Err(CallError::Away { .. }) if attempt < START_ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(START_PAUSE).await;
                if let Ok(again) = Client::connect(address).await {
                    client = again;
                }
            }
            Err(error) => return Err(error.into_error()),
        }
    }
}

/// Interrupted before the answer: the run may have been queued all the same.
async fn give_up(address: &str, wanted: &ToStart) -> anyhow::Result<Outcome> {
    if let Ok(mut client) = Client::connect(address).await {
        // Usually the collector does not know it, which is what was wanted.
        let _ = client
            .stop_run(&wanted.run_uid, "interrupted by its user")
            .await;
    }
    anyhow::bail!("interrupted before the run began")
}

fn detached(started: &RunStarted, format: ReportFormat) -> anyhow::Result<Outcome> {
    if format == ReportFormat::Json {
        output::document(started)?;
    } else {
        output::result(&format!("{}\n", started.run_id))?;
        output::say(&format!(
            "follow it with: benchmesh watch {}",
            started.run_id
        ));
    }
    Ok(Outcome::Done)
}
