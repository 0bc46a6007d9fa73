//! `benchmesh agents` and `benchmesh runs`.

use crate::args::{ListArguments, ListFormat, RunsArguments};
use crate::client::{AgentRow, CallError, Client, RunRow};
use crate::failure::Outcome;
use crate::{output, terminal};
use benchmesh_collector::report::{Sheet, figures};

/// `benchmesh agents`.
pub async fn agents(arguments: ListArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let agents = client.agents().await.map_err(CallError::into_error)?;
    match arguments.format {
        ListFormat::Json => output::document(&serde_json::json!({ "agents": agents }))?,
        ListFormat::Table if agents.is_empty() => {
            output::say(
                "no agent has attached yet: benchmesh agent --collector HOST:PORT --allow PATH",
            );
        }
        ListFormat::Table => output::result(&terminal::table(&agents_sheet(&agents)))?,
    }
    Ok(Outcome::Done)
}

/// `benchmesh runs`.
pub async fn runs(arguments: RunsArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.list.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let runs = client
        .runs(arguments.limit)
        .await
        .map_err(CallError::into_error)?;
    match arguments.list.format {
        ListFormat::Json => output::document(&serde_json::json!({ "runs": runs }))?,
        ListFormat::Table if runs.is_empty() => {
            output::say("there is no run yet: benchmesh run PLAN")
        }
        ListFormat::Table => output::result(&terminal::table(&runs_sheet(&runs)))?,
    }
    Ok(Outcome::Done)
}

fn agents_sheet(agents: &[AgentRow]) -> Sheet {
    let cells = |cell: fn(&AgentRow) -> String| agents.iter().map(cell).collect::<Vec<_>>();
    Sheet::default()
        .text("agent", cells(|agent| agent.name.clone()))
        .text(
            "state",
            cells(|agent| if agent.attached { "attached" } else { "away" }.to_owned()),
        )
        .text("host", cells(|agent| agent.host.clone()))
        .figures("CPUs", cells(|agent| agent.cpus.to_string()))
        .figures(
            "memory",
            cells(|agent| figures::bytes(u64::try_from(agent.memory_bytes).unwrap_or(0))),
        )
        .text_if_any("labels", cells(labels))
        .text_if_any("allows", cells(|agent| agent.allowed_paths.join(" ")))
        .figures("clock", cells(clock))
        .text(
            "last seen",
            cells(|agent| figures::instant(agent.last_seen_us)),
        )
        .text("version", cells(|agent| agent.version.clone()))
        .text("address", cells(|agent| agent.address.clone()))
}

fn runs_sheet(runs: &[RunRow]) -> Sheet {
    let cells = |cell: fn(&RunRow) -> String| runs.iter().map(cell).collect::<Vec<_>>();
    Sheet::default()
        .figures("run", cells(|run| run.id.to_string()))
        .text("name", cells(|run| run.name.clone()))
        .text(
            "state",
            cells(|run| {
                if run.stopping {
                    format!("{}, stopping", run.state)
                } else if run.partial {
                    format!("{}, partial", run.state)
                } else {
                    run.state.clone()
                }
            }),
        )
        .figures(
            "steps",
            cells(|run| match run.steps_total {
                // Queued: they are made when its turn comes.
                0 => figures::NONE.to_owned(),
                total => format!("{}/{total}", run.steps_done),
            }),
        )
        .text("created", cells(|run| figures::instant(run.created_us)))
        .figures("took", cells(took))
        .text("uid", cells(|run| run.uid.clone()))
}

fn took(run: &RunRow) -> String {
    run.started_us
        .zip(run.ended_us)
        .and_then(|(from, until)| figures::between(from, until))
        .map_or_else(|| figures::NONE.to_owned(), figures::span)
}

fn labels(agent: &AgentRow) -> String {
    let shown: Vec<String> = agent
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    shown.join(" ")
}

/// How well the agent's clock is known.
fn clock(agent: &AgentRow) -> String {
    if agent.attached && agent.clock_error_us > 0 {
        format!("+/- {} us", agent.clock_error_us)
    } else {
        figures::NONE.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_listed_in_a_table() {
        let run = |id: i64, partial: bool, ended_us: Option<i64>| RunRow {
            id,
            uid: format!("uid-{id}"),
            name: "nightly".into(),
            state: if ended_us.is_some() {
                "done"
            } else {
                "running"
            }
            .into(),
            partial,
            created_us: 0,
            started_us: Some(1_000_000),
            ended_us,
            steps_done: 3,
            steps_total: 12,
            stopping: id == 11,
        };
        assert_eq!(
            terminal::table(&runs_sheet(&[
                run(11, false, None),
                run(10, false, None),
                run(9, true, Some(62_000_000))
            ])),
            "  run  name     state              steps  created                 took  uid\n\
             \x20 ---- -------- ------------------ ------ --------------------- ------- -------\n\
             \x20  11  nightly  running, stopping   3/12  1970-01-01T00:00:00Z       -  uid-11\n\
             \x20  10  nightly  running             3/12  1970-01-01T00:00:00Z       -  uid-10\n\
             \x20   9  nightly  done, partial       3/12  1970-01-01T00:00:00Z  1m 01s  uid-9\n"
        );
    }
}
