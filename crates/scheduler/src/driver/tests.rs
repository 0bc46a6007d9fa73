//! A driver on a real database, without agents.
#![allow(clippy::unwrap_used)]

use crate::{
    Scheduler,
    agents::{RunAgent, RunAgents},
    sessions::Fleet,
};
use benchmesh_model::mesh::{AgentId, MeshMicros, RunId, RunState};
use benchmesh_plan as plan;
use benchmesh_store::{
    Doing, Store,
    clock::MeshClock,
    rows::{Anchor, NewRun, RunRow},
};
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const T0: MeshMicros = MeshMicros(1_750_000_000_000_000);
const PLAN: &str = "[[phase]]\nworkload = \"null\"\nruntime = \"1s\"\n";
/// Only a hang takes longer than this.
const LIMIT: Duration = Duration::from_secs(60);

async fn queued(store: &Store, uid: &str) -> RunId {
    let plan = plan::parse(PLAN, "p.toml").unwrap();
    let agents = (1..).map(AgentId).zip(plan::assumed_agents(&plan, 1));
    let agents = agents.map(|(id, facts)| RunAgent {
        id,
        uid: String::from("u"),
        facts,
    });
    let run = NewRun {
        uid: uid.to_owned(),
        name: String::from("p.toml"),
        plan_text: PLAN.to_owned(),
        agents_json: RunAgents::new(agents.collect()).to_json(),
        order_seed: None,
        created: T0,
        due: None,
        version: String::from("0"),
    };
    store.create_run(run).await.unwrap().0
}

async fn ended(store: &Store, run: RunId) -> RunRow {
    let end = async {
        loop {
            let row = store.run(run).await.unwrap();
            if row.state.is_end() {
                return row;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, end).await.expect("the run ends")
}

/// The database refuses the first row of one run on every attempt.
#[tokio::test]
async fn a_run_whose_rows_are_refused_fails_and_lets_the_next_one_in() {
    let directory = TempDir::new().unwrap();
    let store = Store::open(&directory.path().join("mesh.db"))
        .await
        .unwrap();
    let (first, second) = (
        queued(&store, "first").await,
        queued(&store, "second").await,
    );
    store
        .write((), |(), connection| {
            Box::pin(async move {
                sqlx::query(
                    "CREATE TRIGGER poison BEFORE UPDATE ON runs WHEN NEW.state = 'running' AND NEW.uid = 'first'
                     BEGIN SELECT RAISE(ABORT, 'poison'); END",
                )
                .execute(connection)
                .await
                .map(drop)
                .doing("make a trigger")
            })
        })
        .await
        .unwrap();
    let clock = Arc::new(MeshClock::new(Anchor {
        boot_id: String::from("b"),
        boottime_ns: 0,
        mesh_us: T0,
    }));
    let fleet = Fleet::new(&store, Arc::clone(&clock));
    let scheduler = Scheduler::new(&store, clock, fleet);
    let closing = CancellationToken::new();
    let driving = tokio::spawn({
        let (scheduler, closing) = (scheduler.clone(), closing.clone());
        async move { scheduler.run(closing).await }
    });
    let row = ended(&store, first).await;
    assert_eq!(row.state, RunState::Failed);
    let reason = row.reason.unwrap();
    assert!(
        reason.contains("could not store its rows, 3 times") && reason.contains("poison"),
        "{reason}"
    );
    let begun = async {
        while store.run(second).await.unwrap().state == RunState::Queued {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, begun).await.expect("the next run begins");
    closing.cancel();
    driving.await.unwrap();
    store.close().await;
}
