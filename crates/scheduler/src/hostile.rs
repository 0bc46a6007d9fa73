//! Rows that the scheduler makes of any agent answer can be stored. A row that the database refuses would be made again
//! from the same answer forever, and no run would end.

#![allow(clippy::unwrap_used)]

use super::{
    environment, links,
    machine::{TaskOutcome, directory_row},
};
use crate::sessions::{
    AttachError, Fleet, Hello, MemberFacts, NameProof,
    command::{AgentAnswer, Survey},
    wire::{Incoming, tests::message},
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{
    AgentId, MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState,
};
use benchmesh_plan::{self as plan, AgentFacts, Plan};
use benchmesh_store::{
    Store,
    clock::MeshClock,
    rows::{Anchor, NewCacheDrop, NewEvent, NewRun, NewStep, NewTask, Row, RunChange, StepChange},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};
use tempfile::TempDir;

const T0: MeshMicros = MeshMicros(1_750_000_000_000_000);
const TARGET: &str = "/mnt/a";
const PLAN: &str = "[targets.a]\nsystem = \"ceph\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";

/// A collector's store and fleet, with one agent in a step of a run.
struct Mesh {
    _directory: TempDir,
    store: Store,
    fleet: Fleet,
    agent: AgentId,
    run: RunId,
    step: StepId,
    task: TaskId,
    plan: Plan,
}

impl Mesh {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("mesh.db"))
            .await
            .unwrap();
        let clock = MeshClock::new(Anchor {
            boot_id: String::from("b"),
            boottime_ns: 0,
            mesh_us: T0,
        });
        let fleet = Fleet::new(&store, Arc::new(clock));
        let hello = Hello {
            wire_version: benchmesh_proto::WIRE_VERSION,
            uid: String::from("u"),
            name: String::from("a"),
            version: String::from("0.1.0"),
            boot_id: String::from("b"),
            spool_ids: vec![String::from("s")],
            ..Hello::default()
        };
        let attached = fleet.attach(hello, None, NameProof::None).await.unwrap();
        let agent = attached.welcome.agent;
        let run = NewRun {
            uid: String::from("run"),
            name: String::from("run"),
            plan_text: PLAN.to_owned(),
            agents_json: String::from("[]"),
            order_seed: None,
            created: T0,
            due: None,
            version: String::from("0"),
        };
        let (run, _) = store.create_run(run).await.unwrap();
        let step = NewStep {
            ordinal: 1,
            loop_number: 1,
            repeat: 1,
            attempt: 1,
            phase: String::from("p"),
            cell: String::from("c"),
            target: String::from("a"),
            system: String::from("ceph"),
            workload: String::from("io"),
            mode: String::from("write"),
            params_json: String::from("{}"),
            clients: 1,
            cache: String::from("asis"),
            groups: Vec::new(),
        };
        let steps = vec![step];
        let made = store.apply(vec![Row::Steps { run, steps }]).await.unwrap();
        let step = StepId(*made.first().unwrap().first().unwrap());
        let tasks = vec![new_task(agent, 0, None)];
        let made = store.apply(vec![Row::Tasks { step, tasks }]).await.unwrap();
        Self {
            _directory: directory,
            store,
            fleet,
            agent,
            run,
            step,
            task: TaskId(*made.first().unwrap().first().unwrap()),
            plan: plan::parse(PLAN, "p.toml").unwrap(),
        }
    }

    /// The rows that the scheduler may write when the agent gives this answer.
    fn rows_of(&self, answer: AgentAnswer, number: u32) -> Vec<Row> {
        let &Self {
            agent,
            run,
            step,
            task,
            ..
        } = self;
        match answer {
            AgentAnswer::RunDirectory(directory) if directory.found || directory.made => {
                vec![directory_row(run, agent, TARGET, &directory)]
            }
            AgentAnswer::End(end) => {
                let outcome = TaskOutcome::from_end(end);
                vec![Row::Task {
                    task,
                    state: outcome.state,
                    error: Some(outcome.error),
                    last_batch: outcome.last_batch,
                }]
            }
            AgentAnswer::Dropped(drops) => {
                let drops = drops.into_iter().map(|one| NewCacheDrop {
                    agent,
                    at: T0,
                    what: one.what,
                    dropped: one.dropped,
                    error: Some(one.error),
                });
                vec![Row::CacheDrops {
                    step,
                    drops: drops.collect(),
                }]
            }
            AgentAnswer::Survey(survey) => self.rows_of_survey(survey, number),
            _ => Vec::new(),
        }
    }

    fn rows_of_survey(&self, survey: Survey, number: u32) -> Vec<Row> {
        let found: BTreeMap<_, _> = survey
            .paths
            .into_iter()
            .map(|(_, facts)| (TARGET.to_owned(), facts))
            .collect();
        let member: MemberFacts = self.fleet.member(self.agent).unwrap();
        let agents = vec![environment::of_agent(
            &self.plan,
            &member,
            &found,
            &survey.inventory,
        )];
        let mut facts = AgentFacts {
            link_bytes_per_s: survey.link_bytes_per_s,
            surveyed: found,
            ..AgentFacts::default()
        };
        if let Some(target) = facts.surveyed.get_mut(TARGET) {
            target.file_system = String::from("ceph");
        }
        // The agent also reports the measurements of its link.
        let tasks = [None, Some(0), Some(1), Some(i64::MAX)]
            .into_iter()
            .zip(0..);
        let tasks = tasks.map(|(measured, at)| {
            let speed = links::speed_of_link(Some(&facts), TARGET, measured);
            new_task(self.agent, 1 + number * 4 + at, speed)
        });
        vec![
            Row::Environment {
                run: self.run,
                agents,
            },
            Row::Tasks {
                step: self.step,
                tasks: tasks.collect(),
            },
        ]
    }

    /// The rows that the scheduler may write when the agent refuses with this error.
    fn rows_of_error(&self, message: String) -> Vec<Row> {
        let &Self {
            agent,
            run,
            step,
            task,
            ..
        } = self;
        let reason = Some(message.clone());
        vec![
            Row::Task {
                task,
                state: TaskState::Failed,
                error: reason.clone(),
                last_batch: None,
            },
            Row::Step {
                step,
                change: StepChange {
                    state: StepState::Failed,
                    at: T0,
                    start: None,
                    ended: Some(T0),
                    reason: reason.clone(),
                },
            },
            Row::Abort {
                run,
                reason: message.clone(),
                at: T0,
            },
            Row::Run {
                run,
                change: RunChange {
                    state: RunState::Failed,
                    partial: true,
                    reason,
                    at: T0,
                },
            },
            Row::Event(NewEvent {
                run: Some(run),
                step: Some(step),
                agent: Some(agent),
                ..NewEvent::new(T0, EventKind::StepFailed, message)
            }),
        ]
    }
}

fn new_task(agent: AgentId, task_index: u32, link_bytes_per_s: Option<i64>) -> NewTask {
    NewTask {
        agent,
        peer: None,
        task_index,
        group: String::new(),
        workers: 1,
        link_bytes_per_s,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_an_agent_answers_is_stored(said in prop::collection::vec(message(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mesh = Mesh::new().await;
            for (message, number) in said.into_iter().zip(0..) {
                let rows = match Incoming::try_from(message) {
                    Ok(Incoming::Hello(hello)) => {
                        let attached = mesh.fleet.attach(*hello, None, NameProof::None).await;
                        assert!(!matches!(attached, Err(AttachError::Store { .. })), "{attached:?}");
                        Vec::new()
                    }
                    Ok(Incoming::Reply { reply: Ok(answer), .. }) => mesh.rows_of(answer, number),
                    Ok(Incoming::Reply { reply: Err((_, why)), .. }) => mesh.rows_of_error(why),
                    _ => Vec::new(),
                };
                // In one transaction, as in the scheduler.
                let shown = format!("{rows:?}");
                if let Err(error) = mesh.store.apply(rows).await {
                    panic!("{error:?}: {shown}");
                }
            }
            mesh.store.close().await;
        });
    }
}
