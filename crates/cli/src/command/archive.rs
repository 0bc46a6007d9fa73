//! `benchmesh archive`: push, runs, fetch, prepare and queue.

mod progress;

use crate::args::archive::{
    ArchiveCommand, ArchiveLogin, ArchiveRunsArguments, ArchiveSource, FetchArguments,
    PrepareArguments, PushArguments,
};
use crate::args::lists::ListArguments;
use crate::args::{ListFormat, RowFormat};
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::interrupts::Interrupts;
use crate::{output, terminal};
use benchmesh_answers::report::{Table, csv_field, figures};
use benchmesh_archive::postgres::fetch::{FetchRequest, fetch_runs};
use benchmesh_archive::postgres::push::{PushRequest, push_runs};
use benchmesh_archive::postgres::runs::{ArchivedRun, RunQuery};
use benchmesh_archive::postgres::{Archive, ArchiveError, Patience, Server, Site, UrlOrigin};
use benchmesh_scheduler::snapshot::ArchiveNow;
use benchmesh_store::annotate::RunSearch;
use progress::Progress;
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

const URL_VARIABLE: &str = "BENCHMESH_ARCHIVE_URL";

pub async fn archive(command: ArchiveCommand) -> anyhow::Result<Outcome> {
    match command {
        ArchiveCommand::Push(arguments) => push(arguments).await,
        ArchiveCommand::Runs(arguments) => runs(arguments).await,
        ArchiveCommand::Fetch(arguments) => fetch(arguments).await,
        ArchiveCommand::Prepare(arguments) => prepare(arguments).await,
        ArchiveCommand::Queue(arguments) => queue(arguments).await,
    }
}

async fn push(arguments: PushArguments) -> anyhow::Result<Outcome> {
    let site = match arguments.site {
        Some(site) => Site::Named(site),
        None => Site::Default(host_name()),
    };
    let request = PushRequest {
        db: arguments.file.db,
        runs: arguments.runs,
        site,
        server: server(arguments.to.as_deref(), "--to", &arguments.login)?,
        patience: Patience::default(),
    };
    let mut progress = Progress::new();
    let cancel = until_interrupted()?;
    let pushed = push_runs(&request, &cancel, &mut |event| progress.pushed(event)).await;
    progress.end();
    let pushed = pushed.map_err(into_error)?;
    output::print_notice(&format!(
        "site {}: {} new, {} replaced, {} unchanged; {} rows sent to {}",
        terminal::clean(&pushed.site),
        pushed.new,
        pushed.replaced,
        pushed.unchanged,
        figures::count(i64::try_from(pushed.rows).unwrap_or(i64::MAX)),
        request.server
    ));
    Ok(Outcome::Done)
}

async fn fetch(arguments: FetchArguments) -> anyhow::Result<Outcome> {
    let db = arguments.db.clone();
    let fetched = fetch_into(arguments.runs, arguments.source, &db).await?;
    if fetched.runs > 0 {
        output::print_notice(&format!(
            "{} has them: benchmesh report{}",
            db.display(),
            terminal::database_option(&db)
        ));
    }
    Ok(Outcome::Done)
}

async fn fetch_into(
    runs: Vec<String>,
    source: ArchiveSource,
    db: &Path,
) -> anyhow::Result<benchmesh_archive::postgres::fetch::Fetched> {
    let request = FetchRequest {
        runs,
        db: db.to_owned(),
        server: server(source.from.as_deref(), "--from", &source.login)?,
        patience: Patience::default(),
    };
    let mut progress = Progress::new();
    let cancel = until_interrupted()?;
    let fetched = fetch_runs(&request, &cancel, &mut |event| progress.fetched(event)).await;
    progress.end();
    fetched.map_err(into_error)
}

/// Fetches runs into a file in a new temporary directory. Returns the directory, the file and the runs' uids.
pub async fn fetched_for_comparison(
    runs: &[String],
    url: Option<String>,
) -> anyhow::Result<(tempfile::TempDir, PathBuf, Vec<String>)> {
    let directory = tempfile::tempdir()?;
    let db = directory.path().join("fetched.db");
    let source = ArchiveSource {
        from: url,
        login: ArchiveLogin {
            password_file: None,
        },
    };
    let fetched = fetch_into(runs.to_vec(), source, &db).await?;
    Ok((directory, db, fetched.uids))
}

async fn prepare(arguments: PrepareArguments) -> anyhow::Result<Outcome> {
    let server = server(arguments.to.as_deref(), "--to", &arguments.login)?;
    let mut archive = connect(&server).await?;
    let notes = archive.prepare().await.map_err(into_error)?;
    archive.close().await;
    for note in &notes {
        output::print_notice(note);
    }
    output::print_notice(&format!("{server} has an archive that is up to date"));
    Ok(Outcome::Done)
}

async fn runs(arguments: ArchiveRunsArguments) -> anyhow::Result<Outcome> {
    let server = server(
        arguments.source.from.as_deref(),
        "--from",
        &arguments.source.login,
    )?;
    let query = RunQuery {
        limit: arguments.limit,
        text: arguments.text.unwrap_or_default(),
        name: arguments.name.unwrap_or_default(),
        tags: arguments
            .tag
            .iter()
            .map(|tag| RunSearch::tag(tag))
            .collect(),
        target: arguments.target.unwrap_or_default(),
        site: arguments.site.unwrap_or_default(),
        version: arguments.version.unwrap_or_default(),
        since_us: arguments.since,
        until_us: arguments.until,
    };
    let mut archive = connect(&server).await?;
    archive.require().await.map_err(into_error)?;
    let runs = archive.runs(&query).await.map_err(into_error)?;
    archive.close().await;
    match arguments.format {
        RowFormat::Json => output::document(&serde_json::json!({ "runs": runs }))?,
        RowFormat::Csv => output::result(&csv(&runs))?,
        RowFormat::Table if runs.is_empty() => {
            output::print_notice("the archive has no run that matches");
        }
        RowFormat::Table => output::result(&terminal::shown(&table(&runs), "json"))?,
    }
    Ok(Outcome::Done)
}

async fn queue(arguments: ListArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let archive = client
        .archive_queue()
        .await
        .map_err(CallError::into_error)?;
    match (arguments.format, archive) {
        (ListFormat::Json, archive) => {
            output::document(&serde_json::json!({ "archive": archive }))?;
        }
        (ListFormat::Table, None) => output::print_notice(
            "this collector copies no runs into an archive: benchmesh collector --archive URL",
        ),
        (ListFormat::Table, Some(archive)) => output::result(&queued(&archive))?,
    }
    Ok(Outcome::Done)
}

fn queued(archive: &ArchiveNow) -> String {
    let mut text = terminal::clean(&archive.server);
    if let Some(site) = &archive.site {
        text.push_str(&format!(", site {}", terminal::clean(site)));
    }
    text.push_str(&match archive.waiting_runs {
        0 => String::from(": no run waits"),
        1 => String::from(": 1 run waits"),
        runs => format!(": {runs} runs wait"),
    });
    if let Some(since) = archive
        .oldest_waiting_us
        .filter(|_| archive.waiting_runs > 0)
    {
        text.push_str(&format!(", since {}", figures::instant(since)));
    }
    text.push_str(&format!(
        "; {} copied since the collector began to serve",
        archive.pushed_runs
    ));
    if let Some(last) = archive.last_pushed_us {
        text.push_str(&format!(", the last at {}", figures::instant(last)));
    }
    text.push('\n');
    if let (Some(error), Some(since)) = (&archive.error, archive.failing_since_us) {
        text.push_str(&format!(
            "cannot copy since {}: {}\n",
            figures::instant(since),
            terminal::clean(error)
        ));
    }
    text
}

async fn connect(server: &Server) -> anyhow::Result<Archive> {
    Archive::connect(server, &Patience::default())
        .await
        .map_err(into_error)
}

fn table(runs: &[ArchivedRun]) -> Table {
    let cells = |cell: fn(&ArchivedRun) -> String| runs.iter().map(cell).collect::<Vec<_>>();
    Table::default()
        .text("site", cells(|run| run.site.clone()))
        .figures("run", cells(|run| run.run_id.to_string()))
        .text("name", cells(|run| run.run.clone()))
        .text(
            "state",
            cells(|run| match run.partial {
                true => format!("{}, partial", run.state),
                false => run.state.clone(),
            }),
        )
        .figures(
            "steps",
            cells(|run| format!("{}/{}", run.steps_done, run.steps)),
        )
        .text("created", cells(|run| figures::instant(run.created_us)))
        .text("targets", cells(|run| run.targets.join(" ")))
        .text_if_any("tags", cells(|run| super::lists::tags(&run.tags)))
        .text_if_any("notes", cells(|run| run.notes.join("; ")))
        .figures("rows", cells(|run| figures::count(run.rows)))
        .text("version", cells(|run| run.version.clone()))
        .text("uid", cells(|run| run.uid.clone()))
}

/// Values as they are stored, for programs.
fn csv(runs: &[ArchivedRun]) -> String {
    let mut out = String::from(
        "site,run_id,run,state,partial,created_us,started_us,ended_us,steps_done,steps,targets,tags,notes,\
         rows,version,uid\n",
    );
    let instant = |at: Option<i64>| at.map_or_else(String::new, |at| at.to_string());
    for run in runs {
        let fields = [
            run.site.clone(),
            run.run_id.to_string(),
            run.run.clone(),
            run.state.clone(),
            u8::from(run.partial).to_string(),
            run.created_us.to_string(),
            instant(run.started_us),
            instant(run.ended_us),
            run.steps_done.to_string(),
            run.steps.to_string(),
            run.targets.join(" "),
            super::lists::tags(&run.tags),
            run.notes.join("; "),
            run.rows.to_string(),
            run.version.clone(),
            run.uid.clone(),
        ];
        let fields: Vec<String> = fields.iter().map(|field| csv_field(field)).collect();
        out.push_str(&fields.join(","));
        out.push('\n');
    }
    out
}

/// The archive of the command line, else that of the environment.
fn server(url: Option<&str>, option: &str, login: &ArchiveLogin) -> anyhow::Result<Server> {
    let of_environment = std::env::var(URL_VARIABLE)
        .ok()
        .filter(|url| !url.is_empty());
    let (url, origin) = match (url, &of_environment) {
        (Some(url), _) => (url, UrlOrigin::CommandLine),
        (None, Some(url)) => (url.as_str(), UrlOrigin::Private),
        (None, None) => {
            return Err(wrong_usage(format!(
                "which archive? Give {option} postgres://USER@HOST/DATABASE, or set {URL_VARIABLE}"
            )));
        }
    };
    Server::parse(url, origin, login.password_file.as_deref()).map_err(into_error)
}

/// Cancelled at the first Ctrl-C: the run in progress is given up, the archive has the others.
fn until_interrupted() -> anyhow::Result<CancellationToken> {
    let cancel = CancellationToken::new();
    let mut interrupts = Interrupts::listen()?;
    tokio::spawn({
        let cancel = cancel.clone();
        async move {
            interrupts.first().await;
            cancel.cancel();
        }
    });
    Ok(cancel)
}

fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

fn into_error(error: ArchiveError) -> anyhow::Error {
    match error {
        ArchiveError::Cancelled => {
            anyhow::anyhow!("interrupted; the same command goes on with the run at which it was")
        }
        error if error.is_request() => wrong_usage(error.to_string()),
        error => anyhow::Error::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn runs() -> Vec<ArchivedRun> {
        let run = |site: &str, run_id: i64, partial: bool| ArchivedRun {
            site: site.to_owned(),
            uid: format!("uid-{site}-{run_id}"),
            run_id,
            run: String::from("nightly"),
            state: String::from("done"),
            partial,
            created_us: 1_750_000_000_000_000,
            started_us: Some(1_750_000_001_000_000),
            ended_us: None,
            version: String::from("0.1.0"),
            steps: 12,
            steps_done: 11,
            targets: vec![String::from("cephfs"), String::from("local")],
            tags: BTreeMap::from([(String::from("pool"), String::from("ssd"))]),
            notes: vec![String::from("after the update, \"quoted\"")],
            rows: 1_234_567,
            pushed_us: 1_750_000_100_000_000,
        };
        vec![run("lab1", 12, false), run("lab2", 12, true)]
    }

    #[test]
    fn runs_of_an_archive_are_a_table_and_csv() {
        insta::assert_snapshot!("table", terminal::plain(&table(&runs())));
        insta::assert_snapshot!("csv", csv(&runs()));
    }
}
