//! The plans of the schedules, expanded once: one for each shape of step that the machine treats differently.

use crate::{
    model::AgentId,
    plan::{self, AgentFacts, PathFacts, PlannedStep},
    scheduler::agents::{RunAgent, RunAgents},
};
use benchmesh_workloads::registry;
use std::{path::PathBuf, sync::Arc};

const TARGETS: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[targets.b]\nsystem = \"sb\"\npath = \"/mnt/b\"\n";
const IO: &str =
    "[[phase]]\nname = \"NAME\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]\n";

/// One plan on a number of agents.
#[derive(Clone)]
pub(super) struct Planned {
    pub agents: RunAgents,
    pub steps: Arc<[PlannedStep]>,
}

/// By the number of agents less one, then by shape.
pub(super) struct Plans(Vec<Vec<Planned>>);

impl Plans {
    pub fn new() -> Self {
        Self((1..=8).map(on_agents).collect())
    }

    pub fn of(&self, agents: usize) -> &[Planned] {
        &self.0[agents - 1]
    }
}

pub(super) fn name(agent: usize) -> String {
    char::from(b'a' + u8::try_from(agent).unwrap()).to_string()
}

fn on_agents(count: usize) -> Vec<Planned> {
    let null = "[[phase]]\nname = \"NAME\"\nworkload = \"null\"\n";
    let timed = "[[phase]]\nname = \"NAME\"\nworkload = \"null\"\nruntime = \"20s\"\n";
    let rated = "[[phase]]\nname = \"NAME\"\nworkload = \"null\"\nruntime = \"60s\"\nrate_iops = 100\nrate-per = \"step\"\n";
    let cold = format!("{IO}cache = \"cold\"\nsettle = \"2s\"\n");
    let idle = format!("{IO}settle = \"idle\"\n");
    let links = "[[phase]]\nname = \"NAME\"\nworkload = \"network\"\nmodes = [\"ping\"]\nruntime = \"5s\"\n";
    let mut texts = vec![
        vec![null.to_owned()],
        vec![IO.to_owned()],
        vec![timed.to_owned(), IO.to_owned(), null.to_owned()],
        vec![cold.clone(), IO.to_owned()],
        vec![idle, timed.to_owned()],
        vec![rated.to_owned(), null.to_owned()],
    ];
    if (2..=4).contains(&count) {
        texts.push(vec![links.to_owned()]);
        texts.push(vec![IO.to_owned(), links.to_owned(), null.to_owned()]);
    }
    let mut plans: Vec<Planned> = Vec::new();
    for (number, phases) in texts.into_iter().enumerate() {
        let repeat = 1 + number % 2;
        let phases: String = phases
            .into_iter()
            .enumerate()
            .map(|(at, phase)| phase.replace("NAME", &format!("p{at}")))
            .collect();
        let targets = if phases.contains("\"io\"") {
            TARGETS
        } else {
            ""
        };
        plans.push(planned(
            &format!("repeat = {repeat}\n{targets}{phases}"),
            count,
        ));
    }
    plans
}

pub(super) fn planned(text: &str, count: usize) -> Planned {
    let facts: Vec<AgentFacts> = (0..count).map(facts).collect();
    let plan = plan::parse(text, "p.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let expansion = plan::expand(&plan, &facts).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let agents = facts.into_iter().zip(1..).map(|(facts, id)| RunAgent {
        id: AgentId(id),
        uid: facts.name.clone(),
        facts,
    });
    Planned {
        agents: RunAgents::new(agents.collect()),
        steps: expansion.steps.into(),
    }
}

fn facts(agent: usize) -> AgentFacts {
    let path = PathFacts {
        allowed: true,
        free_bytes: 1 << 40,
        file_system: String::from("nfs4"),
        ..PathFacts::default()
    };
    AgentFacts {
        name: name(agent),
        allowed: vec![PathBuf::from("/mnt")],
        workloads: registry::all()
            .iter()
            .map(|workload| (workload.name().to_owned(), workload.revision()))
            .collect(),
        host: format!("host-{agent}"),
        surveyed: ["/mnt/a", "/mnt/b"]
            .map(|at| (at.to_owned(), path.clone()))
            .into(),
        ..AgentFacts::default()
    }
}
