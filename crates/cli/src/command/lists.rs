//! `benchmesh agents` and `benchmesh runs`.

use super::query::into_error as of_query;
use super::source::Asked;
use crate::args::ListFormat;
use crate::args::lists::{AgentsAction, AgentsArguments, ForgetArguments, RunsArguments};
use crate::client::trust::insecure_warning;
use crate::client::{CallError, Client};
use crate::failure::Outcome;
use crate::{output, terminal};
use benchmesh_answers::report::{Table, figures};
use benchmesh_model::limits::{Fallback, Limit, Setting};
use benchmesh_model::mesh::{MeshMicros, NO_RUN_YET};
use benchmesh_model::text::{did_you_mean, nearest};
use benchmesh_scheduler::snapshot::{AgentNow, RunListed};
use benchmesh_store::annotate::RunSearch;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How many runs are looked through for a name that was probably meant.
const MAX_RUNS_SEARCHED: u32 = 1000;

/// The width of the list of agents where there is no terminal, such as in a pipe or a log.
const WIDTH_IN_A_PIPE: usize = 100;

/// `benchmesh agents`.
pub async fn agents(arguments: AgentsArguments) -> anyhow::Result<Outcome> {
    let arguments = match arguments.action {
        Some(AgentsAction::Forget(arguments)) => return forget(arguments).await,
        None => arguments.list,
    };
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    let agents = client.agents().await.map_err(CallError::into_error)?;
    if let Some(warning) = insecure_warning() {
        output::print_notice(&format!("warning: {warning}"));
    }
    match arguments.format {
        ListFormat::Json => output::document(&serde_json::json!({ "agents": agents }))?,
        ListFormat::Table if agents.is_empty() => {
            output::print_notice(
                "no agent has attached yet: benchmesh agent --collector HOST:PORT --allow PATH",
            );
        }
        ListFormat::Table => {
            let table = agents_table(&agents);
            output::result(&terminal::fitting(
                &table,
                terminal::width_or(WIDTH_IN_A_PIPE),
                "json",
            ))?;
        }
    }
    Ok(Outcome::Done)
}

/// `benchmesh agents forget`.
async fn forget(arguments: ForgetArguments) -> anyhow::Result<Outcome> {
    let mut client = Client::connect(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    client
        .forget_agent(&arguments.name)
        .await
        .map_err(CallError::into_error)?;
    output::print_notice(&format!(
        "agent {} is no longer listed; the database keeps its data",
        arguments.name
    ));
    Ok(Outcome::Done)
}

/// `benchmesh runs`.
pub async fn runs(arguments: RunsArguments) -> anyhow::Result<Outcome> {
    let mut source = RunSource::open(arguments.source.asked()?).await?;
    let search = RunSearch {
        limit: arguments.limit,
        text: arguments.text.unwrap_or_default(),
        tags: arguments
            .tag
            .iter()
            .map(|tag| RunSearch::tag(tag))
            .collect(),
        target: arguments.target.unwrap_or_default(),
        since: arguments.since.map(MeshMicros),
        until: arguments.until.map(MeshMicros),
    };
    let all = RunSearch {
        limit: MAX_RUNS_SEARCHED,
        ..RunSearch::default()
    };
    let is_search = search
        != RunSearch {
            limit: search.limit,
            ..all.clone()
        };
    let runs = source.runs(&search).await?;
    match arguments.format {
        ListFormat::Json => output::document(&serde_json::json!({ "runs": runs }))?,
        ListFormat::Table if runs.is_empty() && is_search => {
            let all = source.runs(&all).await?;
            let near = nearest(&search.text, all.iter().map(|run| run.run.as_str()));
            let meant = near.map_or_else(String::new, |near| format!("; {}", did_you_mean(near)));
            output::print_notice(&terminal::clean(&format!(
                "no run matches this search{meant}"
            )));
        }
        ListFormat::Table if runs.is_empty() => output::print_notice(NO_RUN_YET),
        ListFormat::Table => output::result(&terminal::shown(&runs_table(&runs), "json"))?,
    }
    Ok(Outcome::Done)
}

/// Where runs are listed.
enum RunSource {
    Database(PathBuf),
    Collector(Box<Client>),
}

impl RunSource {
    async fn open(asked: Asked) -> anyhow::Result<Self> {
        Ok(match asked {
            Asked::Database(path) => Self::Database(path),
            Asked::Collector(address) => {
                let client = Client::connect(&address).await;
                Self::Collector(Box::new(client.map_err(CallError::into_error)?))
            }
        })
    }

    async fn runs(&mut self, search: &RunSearch) -> anyhow::Result<Vec<RunListed>> {
        match self {
            Self::Collector(client) => client.runs(search).await.map_err(CallError::into_error),
            Self::Database(path) => benchmesh_answers::runs::of_file(path, search)
                .await
                .map_err(of_query),
        }
    }
}

/// The agents, and below them their labels and what they allow: agents with the same are named together.
fn agents_table(agents: &[AgentNow]) -> Table {
    let mut described: Vec<(String, Vec<&str>)> = Vec::new();
    for agent in agents {
        let about = description(agent);
        match described.iter_mut().find(|(known, _)| *known == about) {
            Some((_, names)) => names.push(&agent.name),
            None => described.push((about, vec![&agent.name])),
        }
    }
    let notes = described
        .into_iter()
        .filter(|(about, _)| !about.is_empty())
        .map(|(about, names)| format!("{}: {about}", names.join(", ")));
    Table {
        notes: notes.collect(),
        spare: vec!["version", "address", "CPUs", "memory"],
        ..agents_alone(agents)
    }
}

fn agents_alone(agents: &[AgentNow]) -> Table {
    let cells = |cell: fn(&AgentNow) -> String| agents.iter().map(cell).collect::<Vec<_>>();
    Table::default()
        .text("agent", cells(|agent| agent.name.clone()))
        .text(
            "state",
            cells(|agent| if agent.attached { "attached" } else { "away" }.to_owned()),
        )
        .text("host", cells(|agent| agent.host.clone()))
        .figures(
            "CPUs",
            cells(|agent| match agent.cpus {
                // Unknown: the agent disconnected before the collector began to record this.
                0 => none(),
                cpus => cpus.to_string(),
            }),
        )
        .figures(
            "memory",
            cells(|agent| figures::bytes(u64::try_from(agent.memory_bytes).unwrap_or(0))),
        )
        .figures("clock", cells(clock))
        .text(
            "last seen",
            cells(|agent| agent.last_seen_us.map_or_else(none, figures::instant)),
        )
        .text("version", cells(|agent| agent.version.clone()))
        .text("address", cells(|agent| agent.address.clone()))
}

fn description(agent: &AgentNow) -> String {
    let allowed = match agent.allowed_paths.as_slice() {
        [] => String::new(),
        paths => format!("allows {}", paths.join(" ")),
    };
    let parts = [labels(agent), allowed, policy(agent)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// The load limits in its policy, except those at their default for each target; unlimited keys are left out.
fn policy(agent: &AgentNow) -> String {
    let Some(policy) = &agent.policy else {
        return String::new();
    };
    let limits = policy.limits.iter();
    let is_chosen = |(limit, setting): &(Limit, Setting)| match limit.row().default {
        Fallback::Setting(text) => limit.notation(*setting) != text,
        Fallback::PerCpu { .. } | Fallback::Unlimited => true,
    };
    let mut parts: Vec<String> = limits
        .filter(is_chosen)
        .map(|(limit, setting)| {
            let value = match setting {
                Setting::Amount(_) => limit.about(setting).replace(' ', ""),
                Setting::Share { .. } => format!("\"{}\"", limit.about(setting)),
            };
            format!("{}={value}", limit.row().option)
        })
        .collect();
    if !policy.workloads.is_empty() {
        parts.push(format!("workloads={}", policy.workloads.join(", ")));
    }
    if !policy.networks.is_empty() {
        parts.push(format!("allow-network={}", policy.networks.join(", ")));
    }
    if policy.drop_caches {
        parts.push("allow-drop-caches".to_owned());
    }
    parts.join(" ")
}

fn runs_table(runs: &[RunListed]) -> Table {
    let cells = |cell: fn(&RunListed) -> String| runs.iter().map(cell).collect::<Vec<_>>();
    Table::default()
        .figures("run", cells(|run| run.run_id.to_string()))
        .text("name", cells(|run| run.run.clone()))
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
            cells(|run| match run.steps {
                // Queued runs get their steps when they start.
                0 => none(),
                total => format!("{}/{total}", run.steps_done),
            }),
        )
        .text("created", cells(|run| figures::instant(run.created_us)))
        .figures("took", cells(took))
        .text_if_any("tags", cells(|run| tags(&run.tags)))
        .text_if_any(
            "imported from",
            cells(|run| run.imported_from.clone().unwrap_or_default()),
        )
        .text_if_any("notes", cells(|run| run.notes.join("; ")))
        .text("uid", cells(|run| run.uid.clone()))
}

/// `pool=ssd ticket=4711`.
pub fn tags(tags: &BTreeMap<String, String>) -> String {
    let tags = tags.iter().map(|(key, value)| match value.as_str() {
        "" => key.clone(),
        value => format!("{key}={value}"),
    });
    tags.collect::<Vec<_>>().join(" ")
}

fn took(run: &RunListed) -> String {
    run.started_us
        .zip(run.ended_us)
        .and_then(|(from, until)| figures::between(from, until))
        .map_or_else(none, figures::span)
}

fn none() -> String {
    figures::NONE.to_owned()
}

fn labels(agent: &AgentNow) -> String {
    let shown: Vec<String> = agent
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    shown.join(" ")
}

/// The accuracy of the agent's clock.
fn clock(agent: &AgentNow) -> String {
    let error_us = agent.clock_error_us;
    error_us.map_or_else(none, |us| format!("+/- {us} us"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::history::{History, wait};
    use benchmesh_model::limits::Limits;
    use benchmesh_model::mesh::RunId;
    use benchmesh_plan::AgentPolicy;

    fn agent(name: &str) -> AgentNow {
        AgentNow {
            agent_id: 1,
            name: name.to_owned(),
            attached: true,
            labels: BTreeMap::from([("role".to_owned(), "storage".to_owned())]),
            host: format!("host-of-{name}"),
            kernel: "6.1".to_owned(),
            cpus: 64,
            memory_bytes: 256 << 30,
            allowed_paths: (0..12).map(|at| format!("/mnt/target-{at}")).collect(),
            version: "0.1.0".to_owned(),
            address: "10.0.0.1".to_owned(),
            last_seen_us: None,
            clock_error_us: Some(31),
            round_trip_us: Some(60),
            samples_host: true,
            policy: Some(AgentPolicy {
                workloads: (0..16).map(|at| format!("workload-{at}")).collect(),
                limits: Limits::default()
                    .with(Limit::Memory, Setting::Amount(1 << 30))
                    .with(Limit::Threads, Setting::Amount(64)),
                networks: vec!["10.0.0.0/8".to_owned(), "192.168.0.0/16".to_owned()],
                drop_caches: true,
                ..AgentPolicy::default()
            }),
        }
    }

    #[test]
    fn agents_fit_the_width_and_those_that_allow_the_same_are_described_once() {
        let other = AgentNow {
            labels: BTreeMap::new(),
            allowed_paths: Vec::new(),
            policy: None,
            ..agent("node3")
        };
        let agents = [agent("node1"), agent("node2"), other];
        for width in [80, 100, 200] {
            let shown = terminal::fitting(&agents_table(&agents), width, "json");
            let longest = shown.lines().map(|line| line.chars().count()).max();
            assert!(longest.is_some_and(|longest| longest <= width), "{shown}");
            assert_eq!(shown.matches("role=storage").count(), 1, "{shown}");
            assert!(shown.contains("  node1, node2: role=storage; allows /mnt/target-0"));
            let is_narrow = width < 100;
            assert_eq!(shown.contains("Columns left out"), is_narrow, "{shown}");
        }
    }

    #[test]
    fn the_runs_of_a_file_are_searched() {
        let history = History::of_targets(1);
        let found = |search: RunSearch| {
            let mut source = RunSource::Database(history.path());
            let runs = wait(source.runs(&search));
            let runs = runs.unwrap_or_else(|error| panic!("{error:#}"));
            let counts = |run: &RunListed| (run.run_id.0, run.steps_done, run.steps);
            runs.iter().map(counts).collect::<Vec<_>>()
        };
        let all = RunSearch {
            limit: 20,
            ..RunSearch::default()
        };
        let ids = |found: &[(i64, i64, i64)]| found.iter().map(|one| one.0).collect::<Vec<_>>();
        let both = found(all.clone());
        assert_eq!(ids(&both), [2, 1]);
        assert!(
            both.iter()
                .all(|(_, done, total)| done == total && *done > 0)
        );
        for (text, expected) in [("night", vec![2, 1]), ("nigthly", vec![])] {
            let search = RunSearch {
                text: text.to_owned(),
                ..all.clone()
            };
            assert_eq!(ids(&found(search)), expected, "{text}");
        }
    }

    #[test]
    fn runs_are_listed_in_a_table() {
        let run = |id: i64, partial: bool, ended_us: Option<i64>| RunListed {
            run_id: RunId(id),
            uid: format!("uid-{id}"),
            run: "nightly".into(),
            state: if ended_us.is_some() {
                "done"
            } else {
                "running"
            }
            .into(),
            partial,
            started_us: Some(1_000_000),
            ended_us,
            steps_done: 3,
            steps: 12,
            stopping: id == 11,
            ..RunListed::default()
        };
        let runs = [
            run(11, false, None),
            run(10, false, None),
            run(9, true, Some(62_000_000)),
        ];
        insta::assert_snapshot!(terminal::plain(&runs_table(&runs)));
    }
}
