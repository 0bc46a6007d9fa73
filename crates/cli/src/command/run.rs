//! `benchmesh run`, `resume`, `watch` and `stop`: from a plan's file to its report.

use super::{plan, report};
use crate::args::{
    ListFormat, ReportFormat, ResumeArguments, RunArguments, StopArguments, WatchArguments,
};
use crate::client::{CallError, Client, RunRequest, StopWhen};
use crate::failure::{self, Outcome, wrong_usage};
use crate::follow::{self, Followed, OnInterrupt};
use crate::interrupts::Interrupts;
use crate::junit::{self, TestVerdict};
use crate::output;
use crate::progress::{Form, Names, ProgressOutput, format};
use anyhow::Context as _;
use benchmesh_answers::report::{Detail, Report, figures};
use benchmesh_scheduler::snapshot::RunStarted;
use serde::Serialize;
use std::{convert::Infallible, path::Path, time::Duration};

/// Attempts of StartRun after a lost answer; its uid makes it idempotent.
const START_ATTEMPTS: u32 = 5;
const START_PAUSE: Duration = Duration::from_millis(500);
/// Delay before the first notice about a wait.
const WAIT_FIRST: Duration = Duration::from_secs(2);
const WAIT_BEAT: Duration = Duration::from_secs(10);

/// `benchmesh run`.
pub async fn run(arguments: RunArguments) -> anyhow::Result<Outcome> {
    let file = plan::of_run(&arguments)?;
    if let Some(path) = &arguments.junit {
        output::directory_for(path).map_err(|error| wrong_usage(error.to_string()))?;
        remove_earlier(path)?;
    }
    let address = arguments.collector.collector.as_str();
    let mut wanted = plan::dry_run(&file);
    wanted.dry_run = arguments.dry_run;
    wanted.agents = arguments.agents.unwrap_or(0);
    wanted.agents_wait = arguments.agents_wait;
    wanted.new_agents = arguments.new_agents;
    wanted.due_us = arguments.at.unwrap_or(0);
    let mut interrupts = Interrupts::listen()?;
    let started = tokio::select! {
        started = start(address, &wanted) => started?,
        never = report_the_wait(address, &wanted) => match never {},
        () = interrupts.first() => return stop_unconfirmed(address, &wanted).await,
    };
    if arguments.dry_run {
        let format = match arguments.format {
            ReportFormat::Json => ListFormat::Json,
            ReportFormat::Table | ReportFormat::Markdown => ListFormat::Table,
            ReportFormat::Csv | ReportFormat::Html => {
                return Err(wrong_usage("--dry-run answers as table or json"));
            }
        };
        plan::show_steps(&file.plan.name, &started.steps, &started.warnings, format)?;
        return Ok(Outcome::Done);
    }
    for warning in &started.warnings {
        output::print_notice(&format!("warning: {}", crate::terminal::clean(warning)));
    }
    if arguments.detach {
        return detached(&started, started.run_id, arguments.format);
    }
    let mut progress = ProgressOutput::open(
        Names::of(&started.steps),
        form(arguments.lines),
        OnInterrupt::StopRun,
    );
    progress.say(&format!(
        "run {} {:?}: {}",
        started.run_id,
        file.plan.name,
        figures::plural(started.steps.len(), "step")
    ));
    let run = (started.run_id, wanted.run_uid.as_str());
    let judged = Judged {
        junit: arguments.junit.as_deref(),
        has_objectives: !arguments.objective.is_empty(),
    };
    to_its_report(address, run, progress, interrupts, arguments.format, judged).await
}

/// `benchmesh resume`.
pub async fn resume(arguments: ResumeArguments) -> anyhow::Result<Outcome> {
    let address = arguments.collector.collector.as_str();
    let interrupts = Interrupts::listen()?;
    let mut client = Client::connect(address)
        .await
        .map_err(CallError::into_error)?;
    let resumed = client
        .resume_run(&arguments.run, arguments.even_if_changed)
        .await
        .map_err(CallError::into_error)?;
    for change in &resumed.changes {
        output::print_notice(&format!("warning: {}", crate::terminal::clean(change)));
    }
    if arguments.detach {
        return detached(&resumed, resumed.run_id, arguments.format);
    }
    let mut progress = ProgressOutput::open(
        Names::unknown(),
        form(arguments.lines),
        OnInterrupt::StopRun,
    );
    progress.say(&format!(
        "run {} {:?} is resumed: {} of {} steps are done",
        resumed.run_id, resumed.run, resumed.steps_done, resumed.steps_total
    ));
    let run = (resumed.run_id, resumed.run_uid.as_str());
    let format = arguments.format;
    to_its_report(
        address,
        run,
        progress,
        interrupts,
        format,
        Judged::default(),
    )
    .await
}

/// How the command line wants the objectives of the run judged.
#[derive(Clone, Copy, Debug, Default)]
struct Judged<'a> {
    /// The file for the results.
    junit: Option<&'a Path>,
    /// There are objectives on the command line.
    has_objectives: bool,
}

impl Judged<'_> {
    fn is_wanted(self) -> bool {
        self.has_objectives || self.junit.is_some()
    }
}

/// Removes the results of an earlier run, so that a command that ends without a verdict does not leave them as its own.
fn remove_earlier(path: &Path) -> anyhow::Result<()> {
    // Nothing but a file of results: not a device.
    if !path.is_file() {
        return Ok(());
    }
    std::fs::remove_file(path)
        .with_context(|| format!("remove the results of an earlier run, {}", path.display()))
}

/// Writes the verdicts on the run's objectives, and turns a broken one into the outcome if the command line asked.
fn judge(report: &Report, judged: Judged<'_>, outcome: Outcome) -> anyhow::Result<Outcome> {
    if let Some(path) = judged.junit {
        output::result_to(Some(path), &junit::of_run(report).xml())?;
    }
    if !judged.is_wanted() {
        return Ok(outcome);
    }
    let mut outcome = outcome;
    for case in junit::objectives(report) {
        let (worse, why) = match case.verdict {
            TestVerdict::Passed(_) => continue,
            TestVerdict::Failed(why) => (Outcome::Regression, format!("broken: {why}")),
            TestVerdict::Skipped(why) => (Outcome::Partial, format!("not tested: {why}")),
        };
        let line = format!("objective {}: {why}", case.name);
        output::print_notice(&crate::terminal::clean(&line));
        outcome = match (outcome, worse) {
            (Outcome::Done, worse) | (Outcome::Partial, worse @ Outcome::Regression) => worse,
            (bad, _) => bad,
        };
    }
    Ok(outcome)
}

/// Follows a run, by its id and uid, to its end, and prints its report.
async fn to_its_report(
    address: &str,
    (run_id, run_uid): (i64, &str),
    mut progress: ProgressOutput,
    mut interrupts: Interrupts,
    format: ReportFormat,
    judged: Judged<'_>,
) -> anyhow::Result<Outcome> {
    let mut hurried = interrupts.clone();
    let followed = tokio::select! {
        followed = follow::follow(address, run_uid, &mut progress, &mut interrupts, OnInterrupt::StopRun) => followed,
        () = hurried.second() => Err(anyhow::anyhow!(
            "exited at once; the collector stops run {run_id}, `benchmesh watch {run_id}` shows its end"
        )),
    };
    progress.finish();
    let Followed::Ended(last) = followed? else {
        output::print_notice(&format!(
            "detached from run {run_id}, which continues\nfollow it with: benchmesh watch {run_id}\nstop it with: benchmesh \
             stop {run_id}"
        ));
        if !judged.is_wanted() {
            return Ok(Outcome::Done);
        }
        output::print_notice(&format!(
            "the objectives were not judged: the run has not ended; judge them later with: benchmesh report {run_id} \
             --junit FILE"
        ));
        return Ok(Outcome::Partial);
    };
    output::print_notice(&format::run_end(&last));
    let mut client = Client::connect(address)
        .await
        .map_err(CallError::into_error)?;
    let result = client.report(run_uid).await?;
    // Before anything is printed: the reader of the report may leave early.
    let outcome = judge(&result, judged, follow::outcome(&last));
    let text = match format {
        ReportFormat::Html => client.report_file(run_uid).await?,
        format => report::written(&result, format, Detail::Summary)?,
    };
    match output::result(&text) {
        Err(error) if !failure::reader_left(&error) => Err(error),
        Ok(()) | Err(_) => outcome,
    }
}

/// `benchmesh watch`.
pub async fn watch(arguments: WatchArguments) -> anyhow::Result<Outcome> {
    let run = arguments.run.unwrap_or_default();
    let mut interrupts = Interrupts::listen()?;
    let mut progress =
        ProgressOutput::open(Names::unknown(), form(arguments.lines), OnInterrupt::Leave);
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
        Followed::Ended(last) => {
            output::result(&format!("{}\n", format::run_end(&last)))?;
            Ok(follow::outcome(&last))
        }
        Followed::Left(id) => {
            // Without an update, the run is known by the name that was given.
            let name = id.map_or(run, |id| id.to_string());
            let again = format!("benchmesh watch {name}");
            output::print_notice(&format!(
                "stopped watching; the run continues\nwatch it again with: {}",
                again.trim_end()
            ));
            Ok(Outcome::Done)
        }
    }
}

/// The form of progress: lines if asked for, otherwise the richest that the terminal can show.
fn form(lines: bool) -> Form {
    match lines {
        true => Form::Lines,
        false => Form::Screen,
    }
}

/// `benchmesh stop`.
pub async fn stop(arguments: StopArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let when = match arguments.after_loop {
        true => StopWhen::AfterLoop,
        false => StopWhen::Now,
    };
    let stopped = client
        .stop_run(
            arguments.run.as_deref().unwrap_or_default(),
            &arguments.reason,
            when,
        )
        .await
        .map_err(CallError::into_error)?;
    match arguments.format {
        ListFormat::Json => output::document(&stopped)?,
        ListFormat::Table => output::result(&match stopped.state.as_str() {
            "running" | "queued" => format!(
                "run {} {}; `benchmesh watch {}` shows its end\n",
                stopped.run_id,
                match when {
                    StopWhen::Now => "is stopping",
                    StopWhen::AfterLoop => "ends after the loop in progress",
                },
                stopped.run_id
            ),
            state => format!("run {} is {state}\n", stopped.run_id),
        })?,
    }
    Ok(Outcome::Done)
}

/// Queues the plan. Retries after a lost answer.
async fn start(address: &str, wanted: &RunRequest) -> anyhow::Result<RunStarted> {
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

/// Reports what a start waits for, until dropped.
async fn report_the_wait(address: &str, wanted: &RunRequest) -> Infallible {
    let began = tokio::time::Instant::now();
    let mut pause = WAIT_FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = WAIT_BEAT;
        let agents = async { Client::connect(address).await?.agents().await };
        // If the collector does not answer this either, the start reports the error.
        let Ok(agents) = agents.await else { continue };
        let there: Vec<&str> = agents
            .iter()
            .filter(|agent| agent.attached)
            .map(|agent| agent.name.as_str())
            .collect();
        output::print_notice(&crate::terminal::clean(&waiting(
            wanted,
            &there,
            began.elapsed(),
        )));
    }
}

/// `waiting for 4 agents, 1 minute at most: 2 are attached (a1, a2)`.
fn waiting(wanted: &RunRequest, there: &[&str], waited: Duration) -> String {
    let agents = usize::try_from(wanted.agents).unwrap_or(usize::MAX);
    if agents <= there.len() {
        return format!(
            "waiting for the agents to survey the targets, for {} so far",
            figures::span(waited)
        );
    }
    let names = match there {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    format!(
        "waiting for {}, {} more at most: {} attached{names}",
        figures::plural(agents, "agent"),
        figures::span(wanted.agents_wait.saturating_sub(waited)),
        there.len()
    )
}

/// Interrupted before the answer: the run may have been queued nevertheless.
async fn stop_unconfirmed(address: &str, wanted: &RunRequest) -> anyhow::Result<Outcome> {
    if let Ok(mut client) = Client::connect(address).await {
        // Usually the collector does not know the run, which is the desired state.
        let _ = client
            .stop_run(&wanted.run_uid, "interrupted by its user", StopWhen::Now)
            .await;
    }
    anyhow::bail!("interrupted before the run began")
}

fn detached(answer: &impl Serialize, run: i64, format: ReportFormat) -> anyhow::Result<Outcome> {
    if format == ReportFormat::Json {
        output::document(answer)?;
    } else {
        output::result(&format!("{run}\n"))?;
        output::print_notice(&format!("follow it with: benchmesh watch {run}"));
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_file_of_results_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.xml");
        remove_earlier(&path).unwrap();
        std::fs::write(&path, "old").unwrap();
        remove_earlier(&path).unwrap();
        assert!(!path.exists());
        remove_earlier(directory.path()).unwrap();
        assert!(directory.path().exists());
    }

    #[test]
    fn a_start_says_what_it_waits_for() {
        let wanted = RunRequest {
            run_uid: String::new(),
            plan: String::new(),
            plan_name: String::new(),
            agents: 3,
            agents_wait: Duration::from_secs(60),
            dry_run: false,
            new_agents: false,
            due_us: 0,
        };
        let after = |seconds, there: &[&str]| waiting(&wanted, there, Duration::from_secs(seconds));
        assert_eq!(
            after(2, &["a1", "a2"]),
            "waiting for 3 agents, 58 s more at most: 2 attached (a1, a2)"
        );
        assert_eq!(
            after(12, &[]),
            "waiting for 3 agents, 48 s more at most: 0 attached"
        );
        assert_eq!(
            after(12, &["a", "b", "c"]),
            "waiting for the agents to survey the targets, for 12 s so far"
        );
    }
}
