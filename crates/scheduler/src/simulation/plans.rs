//! The plans of the schedules, expanded once: one for each shape of step that the machine treats differently, and as
//! many that are drawn from all that a plan can say of its steps.

use crate::agents::{RunAgent, RunAgents};
use benchmesh_model::mesh::AgentId;
use benchmesh_plan::{self as plan, AgentFacts, Loops, PathFacts, Plan, PlannedStep};
use benchmesh_workloads::{random::Random, registry};
use std::{path::PathBuf, sync::Arc};

const TARGETS: &str = "[targets.a]\nsystem = \"sa\"\npath = \"/mnt/a\"\n[targets.b]\nsystem = \"sb\"\npath = \"/mnt/b\"\n";
const IO: &str =
    "[[phase]]\nname = \"NAME\"\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]\n";

const SEARCH: &str = "runtime = \"5s\"\nsearch = { rate = \"max\", while = \"p99 < 10ms\" }\n";
const STEADY: &str = "until = \"steady\"\nss = \"iops:5%\"\nss_dur = \"3s\"\n";

/// Plans that are drawn, for each number of agents.
const DRAWN: usize = 16;
/// Limit for a random plan: a schedule takes time for each task.
const MAX_TASKS: usize = 48;

/// One plan on a number of agents.
#[derive(Clone)]
pub(super) struct Planned {
    pub text: Arc<str>,
    pub agents: RunAgents,
    plan: Arc<Plan>,
    /// In one loop.
    pub steps: Arc<[PlannedStep]>,
}

impl Planned {
    pub fn loops(&self) -> Loops {
        self.plan.loops
    }

    /// How many ordinals a loop takes.
    pub fn ordinals(&self) -> u32 {
        self.steps.iter().map(PlannedStep::ordinals).sum()
    }

    /// The steps of a loop.
    pub fn steps_of(&self, number: u32) -> Arc<[PlannedStep]> {
        match number {
            1 => Arc::clone(&self.steps),
            _ => plan::expand_loop(&self.plan, &self.agents.facts(), number)
                .unwrap()
                .steps
                .into(),
        }
    }
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
        vec![format!("{timed}{STEADY}"), null.to_owned()],
        vec![format!("{null}{SEARCH}"), null.to_owned()],
        // Probes on the same data, in two modes.
        vec![
            null.to_owned(),
            format!("{}{SEARCH}", IO.replace("write", "randread")),
        ],
        // Each probe with data of its own.
        vec![
            format!("{}{SEARCH}", IO.replace(", \"read\"", "")),
            timed.to_owned(),
        ],
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
    let mut random = Random::of(&[count as u64, 0x97a7]);
    let all_drawn = std::iter::repeat_with(|| planned(&drawn(&mut random, count), count));
    let small = |plan: &Planned| {
        plan.steps
            .iter()
            .map(|step| step.tasks.len())
            .sum::<usize>()
            <= MAX_TASKS
    };
    plans.extend(all_drawn.filter(small).take(DRAWN));
    plans
}

/// A plan of one to three phases, each key with its own chance.
fn drawn(random: &mut Random, count: usize) -> String {
    let mut text = String::new();
    let mut keys = Keys {
        text: &mut text,
        random,
    };
    keys.one_of(&["repeat = 1", "repeat = 2", "repeat = 3"]);
    keys.maybe(&["loops = 2", "loops = 3", "loop-for = \"1m\""]);
    keys.maybe(&["order = \"random\"\nseed = 7"]);
    text.push_str(TARGETS);
    for phase in 0..=random.below(3) {
        text.push_str(&format!("[[phase]]\nname = \"p{phase}\"\n"));
        let links = (2..=4).contains(&count) && random.below(4) == 0;
        let groups = !links && count > 1 && random.below(4) == 0;
        let mut keys = Keys {
            text: &mut text,
            random,
        };
        keys.maybe(&["settle = \"2s\"", "settle = \"idle\""]);
        keys.maybe(&["stagger = \"1s\"", "stagger = \"7s\""]);
        if links {
            keys.one_of(&[
                "workload = \"network\"\nmodes = [\"ping\"]",
                "workload = \"network\"\nmodes = [\"throughput\"]",
            ]);
            keys.one_of(&["runtime = \"2s\"", "runtime = \"20s\""]);
            keys.maybe(&[
                "pairs = \"many-to-one\"",
                "pairs = \"all\"",
                "pairs = \"both-ways\"",
            ]);
        } else if groups {
            keys.maybe(&["cache = \"cold\""]);
            for group in ["x", "y"] {
                keys.text.push_str(&format!(
                    "[[phase.group]]\nname = \"{group}\"\nclients = {}\n",
                    1.max(count / 2)
                ));
                keys.load();
            }
        } else {
            keys.maybe(&["cache = \"cold\"", "cache = \"warm\""]);
            keys.maybe(&[
                "tasks-per-agent = 2",
                "clients = 1",
                "matrix = { tasks-per-agent = [1, 3] }",
            ]);
            match keys.random.below(5) {
                0 if keys.random.below(2) == 0 => {
                    let mode = ["write", "read"][usize::try_from(keys.random.below(2)).unwrap()];
                    keys.text.push_str(&format!(
                        "workload = \"io\"\nsize = \"1m\"\nmodes = [\"{mode}\"]\n{SEARCH}"
                    ));
                }
                0 => keys.text.push_str("workload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\nruntime = \"3s\"\nrate_iops = 100\nload-curve = { steps = 3 }\n"),
                _ => keys.load(),
            }
        }
    }
    text
}

/// The keys of a plan that is drawn.
struct Keys<'a> {
    text: &'a mut String,
    random: &'a mut Random,
}

impl Keys<'_> {
    fn one_of(&mut self, lines: &[&str]) {
        let line = usize::try_from(self.random.below(lines.len() as u64)).unwrap();
        self.text.push_str(lines[line]);
        self.text.push('\n');
    }

    /// One time in three.
    fn maybe(&mut self, lines: &[&str]) {
        if self.random.below(3) == 0 {
            self.one_of(lines);
        }
    }

    /// A load on a target: to its end, for a time, or at a rate.
    fn load(&mut self) {
        self.one_of(&[
            "workload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]",
            "workload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]",
            "workload = \"files\"\nfiles = 10\nmodes = [\"create\"]",
        ]);
        self.maybe(&[
            "runtime = \"3s\"",
            "runtime = \"40s\"",
            "runtime = \"20s\"\nrate_iops = 50\nrate-per = \"step\"",
            "runtime = \"5s\"\nrate_iops = 50",
        ]);
    }
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
        text: text.into(),
        agents: RunAgents::new(agents.collect()),
        plan: Arc::new(plan),
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
