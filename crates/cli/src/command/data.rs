//! `benchmesh data`: the data that plans keep on targets.

use super::confirm::agrees_to_remove;
use crate::args::ListFormat;
use crate::args::lists::{DataAction, DataArguments, RemoveDataArguments};
use crate::client::{CallError, Client, PartRemoval};
use crate::failure::Outcome;
use crate::interrupts::Interrupts;
use crate::{output, terminal};
use benchmesh_answers::query::Value;
use benchmesh_answers::report::{Table, figures};
use indicatif::ProgressBar;

/// In the order of [`KeptDataSet`].
const KEPT_DATA_SQL: &str =
    "SELECT name, target, path, system, workload, bytes, files, tasks, layout, is_whole, agents,
    made_run_id, made_us, used_us, shape FROM v_kept_data ORDER BY name, path";

/// A data set at a target.
#[derive(Debug, serde::Serialize)]
struct KeptDataSet {
    name: String,
    target: String,
    path: String,
    system: String,
    workload: String,
    bytes: i64,
    files: i64,
    tasks: i64,
    layout: String,
    is_whole: bool,
    agents: Vec<String>,
    /// 0 if the run is no longer in the database.
    made_run_id: i64,
    made_us: i64,
    used_us: i64,
    shape: serde_json::Value,
}

impl KeptDataSet {
    /// Returns `None` if the collector's answer has other columns.
    fn of(row: Vec<Value>) -> Option<Self> {
        let [
            name,
            target,
            path,
            system,
            workload,
            bytes,
            files,
            tasks,
            layout,
            is_whole,
            agents,
            made_run_id,
            made_us,
            used_us,
            shape,
        ] = <[Value; 15]>::try_from(row).ok()?;
        Some(Self {
            name: text(name),
            target: text(target),
            path: text(path),
            system: text(system),
            workload: text(workload),
            bytes: number(&bytes),
            files: number(&files),
            tasks: number(&tasks),
            layout: text(layout),
            is_whole: number(&is_whole) != 0,
            agents: text(agents).split_whitespace().map(str::to_owned).collect(),
            made_run_id: number(&made_run_id),
            made_us: number(&made_us),
            used_us: number(&used_us),
            shape: serde_json::from_str(&text(shape)).unwrap_or_default(),
        })
    }
}

fn text(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        _ => String::new(),
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        _ => 0,
    }
}

pub async fn data(arguments: DataArguments) -> anyhow::Result<Outcome> {
    let arguments = match arguments.action {
        Some(DataAction::Remove(arguments)) => return remove(arguments).await,
        None => arguments.list,
    };
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let kept = list(&mut client).await?;
    match arguments.format {
        ListFormat::Json => output::document(&serde_json::json!({ "data": kept }))?,
        ListFormat::Table if kept.is_empty() => output::print_notice(
            "no kept data: a phase with keep = \"NAME\" leaves its data on the target",
        ),
        ListFormat::Table => output::result(&terminal::shown(&table(&kept), "json"))?,
    }
    Ok(Outcome::Done)
}

async fn list(client: &mut Client) -> anyhow::Result<Vec<KeptDataSet>> {
    let mut rows = client
        .query(KEPT_DATA_SQL)
        .await
        .map_err(CallError::into_error)?;
    let mut kept = Vec::new();
    while let Some(part) = rows.next().await.map_err(CallError::into_error)? {
        kept.extend(part.into_iter().filter_map(KeptDataSet::of));
    }
    Ok(kept)
}

fn table(kept: &[KeptDataSet]) -> Table {
    let cells = |cell: fn(&KeptDataSet) -> String| kept.iter().map(cell).collect::<Vec<_>>();
    Table::default()
        .text("name", cells(|set| set.name.clone()))
        .text("target", cells(|set| set.target.clone()))
        .text("at", cells(|set| set.path.clone()))
        .text("workload", cells(|set| set.workload.clone()))
        .figures(
            "size",
            cells(|set| figures::bytes(u64::try_from(set.bytes).unwrap_or(0))),
        )
        .figures("files", cells(|set| count(set.files)))
        .figures("tasks", cells(|set| set.tasks.to_string()))
        .figures("layout", cells(|set| set.layout.clone()))
        .text(
            "state",
            cells(|set| if set.is_whole { "whole" } else { "not whole" }.to_owned()),
        )
        .text("made", cells(|set| figures::instant(set.made_us)))
        .figures("by run", cells(|set| count(set.made_run_id)))
        .text("last used", cells(|set| figures::instant(set.used_us)))
        .text("agents", cells(|set| set.agents.join(" ")))
}

fn count(count: i64) -> String {
    match count {
        0 => figures::NONE.to_owned(),
        count => count.to_string(),
    }
}

/// `benchmesh data remove`.
async fn remove(arguments: RemoveDataArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    if !arguments.yes {
        let kept = list(&mut client).await?;
        let is_meant = |it: &&KeptDataSet| {
            let target = arguments.target.as_ref();
            it.name == arguments.name && target.is_none_or(|path| *path == it.path)
        };
        let meant: Vec<String> = kept
            .iter()
            .filter(is_meant)
            .map(|it| {
                let size = figures::bytes(u64::try_from(it.bytes).unwrap_or(0));
                format!("{size} at {}", it.path)
            })
            .collect();
        let what = format!("the data `{}` ({})", arguments.name, meant.join(", "));
        // If nothing matches, the collector reports what exists.
        if !meant.is_empty() && !agrees_to_remove(&what)? {
            output::print_notice("nothing was removed");
            return Ok(Outcome::Done);
        }
    }
    let mut interrupts = Interrupts::listen()?;
    let path = arguments.target.as_deref();
    let mut removal = client
        .remove_data(&arguments.name, path, arguments.forget_away)
        .await
        .map_err(CallError::into_error)?;
    let bar = ProgressBar::new_spinner();
    let mut is_whole = true;
    loop {
        let part = tokio::select! {
            part = removal.next() => part.map_err(CallError::into_error)?,
            () = interrupts.first() => {
                bar.finish_and_clear();
                output::print_notice("stopped; run the same command again to continue");
                return Ok(Outcome::Partial);
            }
        };
        let Some(part) = part else { break };
        if part.is_over {
            bar.suspend(|| output::print_notice(&removal_line(&part)));
            is_whole &= part.problem.is_empty();
        } else {
            bar.set_message(format!("{}: {} files removed", part.agent, part.files));
            bar.tick();
        }
    }
    bar.finish_and_clear();
    Ok(match is_whole {
        true => Outcome::Done,
        false => Outcome::Partial,
    })
}

fn removal_line(part: &PartRemoval) -> String {
    match part.problem.as_str() {
        "" => format!("removed at {} by agent `{}`", part.path, part.agent),
        problem => format!(
            "not removed at {} by agent `{}`: {problem}",
            part.path, part.agent
        ),
    }
}
