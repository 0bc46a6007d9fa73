//! Valid and invalid plans, written as users write them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod agents;
mod caches;
mod expand;
mod groups;
mod hostile;
mod images;
mod kept;
mod links;
mod memory;
mod mistakes;
mod presets;
mod set;
mod shapes;
mod unused;
mod zip;

use super::*;
use benchmesh_workloads::registry;
use std::path::PathBuf;

fn agent(name: &str, labels: &[(&str, &str)], allowed: &[&str]) -> AgentFacts {
    AgentFacts {
        name: name.to_owned(),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        allowed: allowed.iter().map(PathBuf::from).collect(),
        workloads: registry::all()
            .iter()
            .map(|workload| (workload.name().to_owned(), workload.revision()))
            .collect(),
        host: format!("host-{name}"),
        ..AgentFacts::default()
    }
}

fn refused(text: &str) -> String {
    parse(text, "p.toml").unwrap_err().to_string()
}

const TARGETS: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[targets.b]\nsystem = \"sb\"\npath = \"/mnt/b\"\n";

#[test]
fn a_whole_plan_is_read() {
    let text = format!(
        "name = \"n\"\nrepeat = 2\non-loss = {{ at-least = 2 }}\nloss-after = \"10s\"\nlease = \"1h\"\n{TARGETS}\
         [clients]\nselect = \"role=client\"\n\
         [[phase]]\nname = \"records\"\nworkload = \"io\"\nmodes = [\"write\", \"read\"]\ncache = \"warm\"\nsettle = \"2s\"\n\
         matrix = {{ size = [\"1m\", \"2m\"], bs = [\"4k\", \"64k\"] }}\ntargets = [\"b\", \"a\"]\n"
    );
    let plan = parse(&text, "p.toml").unwrap();
    assert_eq!((plan.name.as_str(), plan.repeat), ("n", 2));
    assert_eq!(plan.on_loss, OnLoss::AtLeast(2));
    assert_eq!(
        (plan.loss_after, plan.lease),
        (Duration::from_secs(10), Duration::from_secs(3600))
    );
    let phase = &plan.phases[0];
    assert_eq!(
        (phase.cache, phase.settle),
        (Cache::Warm, Settle::For(Duration::from_secs(2)))
    );
    assert_eq!(phase.targets, [1, 0]);
    let cells: Vec<String> = phase.groups[0]
        .cells
        .iter()
        .map(|cell| format!("{}/{}", cell.params["size"], cell.params["bs"]))
        .collect();
    assert_eq!(
        cells,
        [
            "\"1m\"/\"4k\"",
            "\"1m\"/\"64k\"",
            "\"2m\"/\"4k\"",
            "\"2m\"/\"64k\""
        ]
    );
}

#[test]
fn a_rest_is_a_time_or_idleness() {
    let settle = |text: &str| {
        let plan = format!("[[phase]]\nworkload = \"null\"\n{text}\n");
        parse(&plan, "p.toml").unwrap().phases[0].settle
    };
    let idle = |percent, seconds| Settle::Idle {
        percent,
        limit: Duration::from_secs(seconds),
    };
    assert_eq!(settle(""), Settle::NONE);
    assert_eq!(
        settle("settle = \"5s\""),
        Settle::For(Duration::from_secs(5))
    );
    assert_eq!(settle("settle = \"idle\""), idle(5.0, 120));
    assert_eq!(
        settle("settle = { idle = \"2.5 %\", limit = \"10m\" }"),
        idle(2.5, 600)
    );
    assert_eq!(settle("settle = { limit = \"1s\" }"), idle(5.0, 1));
}
