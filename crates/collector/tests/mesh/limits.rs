//! The resources that an agent or a client can use, and the behaviour at the limit.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{LIMIT, Stage, state},
};
use benchmesh_proto::{v1, v1::mesh_client::MeshClient};
use futures::{StreamExt, stream, stream::FuturesUnordered};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, transport::Channel};

async fn forget(stage: &Stage, name: &str) -> Result<(), Status> {
    let name = name.to_owned();
    stage
        .control()
        .await
        .forget_agent(v1::ForgetAgentRequest { name })
        .await
        .map(drop)
}

/// Waits until the agent counts as detached.
async fn until_away(stage: &Stage) {
    timeout(LIMIT, async {
        while stage.listed().await.iter().any(|agent| agent.attached) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it goes away");
}

#[tokio::test]
async fn an_agent_that_left_for_good_is_forgotten_and_listed_again_when_it_is_back() {
    let stage = Stage::new().await;
    let agent = stage.agent("a", Script::default()).await;
    let refused = forget(&stage, "a").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("is attached"), "{refused}");
    let refused = forget(&stage, "b").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    // A waiting run depends on it.
    let long = Script {
        runs_for: Duration::from_secs(3600),
        ..Script::default()
    };
    agent.script(|script| *script = long);
    let run = "loss-after = \"1h\"\n[[phase]]\nworkload = \"null\"\n";
    let started = stage.start(run).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    agent.cut();
    until_away(&stage).await;
    let refused = forget(&stage, "a").await.unwrap_err();
    assert!(refused.message().contains("unfinished run"), "{refused}");
    agent.attach(stage.address).await.unwrap();
    let stop = v1::StopRunRequest {
        run: started.run_id.to_string(),
        ..v1::StopRunRequest::default()
    };
    stage.control().await.stop_run(stop).await.unwrap();
    stage.watch(started.run_id).await;
    agent.cut();
    until_away(&stage).await;
    // The host of a detached agent is known, also after a restart of the collector.
    let stage = stage.restarted().await;
    let away = stage.listed().await;
    assert_eq!(
        (away.len(), away[0].cpus, away[0].host.as_str()),
        (1, 2, "boot")
    );
    let in_view = "select agent from v_agents";
    assert_eq!(stage.rows(in_view).await, ["a"]);
    forget(&stage, "a").await.unwrap();
    assert!(stage.listed().await.is_empty());
    assert_eq!(stage.rows(in_view).await, [] as [String; 0]);
    let stage = stage.restarted().await;
    assert!(stage.listed().await.is_empty());
    assert_eq!(stage.rows("select name from agents").await, ["a"]);
    agent.attach(stage.address).await.unwrap();
    assert_eq!(stage.listed().await.len(), 1);
    assert_eq!(stage.rows(in_view).await, ["a"]);
}

#[tokio::test]
async fn a_known_agent_is_taken_back_while_the_database_is_locked() {
    let stage = Stage::new().await;
    let agent = stage.agent("a", Script::default()).await;
    agent.cut();
    until_away(&stage).await;
    let writer = rusqlite::Connection::open(stage.db()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    agent.attach(stage.address).await.unwrap();
    assert!(stage.listed().await[0].attached);
    writer.execute_batch("ROLLBACK").unwrap();
}

#[tokio::test]
async fn tasks_of_others_are_not_held() {
    let stage = Stage::new().await;
    let a = stage.agent("a", Script::default()).await;
    let started = stage
        .start("[[phase]]\nworkload = \"null\"\n")
        .await
        .unwrap();
    stage.watch(started.run_id).await;
    let task = stage.rows("select id from tasks").await;
    let b = FakeAgent::new("b", Script::default());
    let mut hello = b.hello();
    hello.held_tasks = vec![task[0].parse().unwrap()];
    b.attach_with(stage.address, hello).await.unwrap();
    let claim = "select a.name, e.severity, e.detail ->> 'tasks' from events e join agents a on a.id = e.agent_id
         where e.kind = 'tasks-of-others'";
    timeout(LIMIT, async {
        while stage.rows(claim).await != ["b|warning|1"] {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("an event for the claim");
    // The next run sends it commands; about the other agent's task it received none.
    let started = stage
        .start("[[phase]]\nworkload = \"null\"\n")
        .await
        .unwrap();
    stage.watch(started.run_id).await;
    assert!(
        !b.journal().iter().any(|entry| entry.starts_with("stop")),
        "{:?}",
        b.journal()
    );
    drop(a);
}

/// Each open call may hold a message of 8 MiB.
#[tokio::test]
async fn an_agent_has_eight_open_calls() {
    let stage = Stage::new().await;
    let channel = Channel::from_shared(format!("http://{}", stage.address))
        .unwrap()
        .connect()
        .await
        .unwrap();
    // Without a hello, a call stays open for 10 s.
    let mut calls: FuturesUnordered<_> = (0..9)
        .map(|_| {
            let mut client = MeshClient::new(channel.clone());
            async move { client.attach(stream::pending()).await.map(drop) }
        })
        .collect();
    let first = timeout(LIMIT, calls.next()).await.unwrap().unwrap();
    let refused = first.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("8 open calls"), "{refused}");
    while let Some(ended) = timeout(LIMIT, calls.next()).await.unwrap() {
        assert_eq!(ended.unwrap_err().code(), Code::DeadlineExceeded);
    }
    let mut client = MeshClient::new(channel);
    let again = client.attach(stream::empty()).await.unwrap_err();
    assert_eq!(again.code(), Code::InvalidArgument, "{again}");
}

#[tokio::test]
async fn queries_over_the_limit_are_refused_until_others_have_ended() {
    let stage = Stage::new().await;
    let endless = || v1::QueryRequest {
        sql: String::from(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        ),
    };
    let mut control = stage.control().await;
    let mut answers = Vec::new();
    let refused = loop {
        match control.query(endless()).await {
            Ok(answer) => answers.push(answer),
            Err(status) => break status,
        }
        assert!(answers.len() < 100, "as many queries as anyone likes");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(
        refused.message().contains("at most 8 queries at once"),
        "{refused}"
    );
    // Queries of disconnected clients end long before the time limit.
    drop(answers);
    timeout(LIMIT, async {
        while control.query(endless()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the queries end");
}

/// An agent whose connection broke a moment ago does not make the plan wrong.
#[tokio::test]
async fn an_agent_that_is_briefly_away_is_waited_for() {
    let plan = "[clients]\nagents = [\"b\"]\n[[phase]]\nworkload = \"null\"\nops = 1\n";
    let stage = Stage::new().await;
    let b = stage.agent("b", Script::default()).await;
    b.cut();
    until_away(&stage).await;
    let refused = stage.start(plan).await.unwrap_err();
    // Not a usage error, which would end the command with code 2.
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("b is briefly"), "{refused:?}");
    // The refusal took its ten seconds; after fifteen an agent is no longer briefly away.
    b.attach(stage.address).await.unwrap();
    b.cut();
    until_away(&stage).await;
    let started = async {
        let started = stage.start(plan).await.unwrap();
        stage.watch(started.run_id).await
    };
    let (updates, attached) = tokio::join!(started, b.attach(stage.address));
    attached.unwrap();
    assert_eq!(state(&updates).0, "done");
}
