//! Agents that break their confirmation: each case ends with an event and a state, never with a hang.

use super::{
    fake_agent::{Script, Starts},
    stage::{Stage, messages, state},
};
use benchmesh_proto::v1;

const IO: &str = "loss-after = \"1s\"\n[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";

/// A run of two agents, with this start behaviour for `b`.
async fn run(starts: Starts, plan: &str) -> (Stage, Vec<v1::RunUpdate>) {
    let stage = Stage::new().await;
    let script = Script {
        starts,
        ..Script::default()
    };
    let _agents = [
        stage.agent("a", Script::default()).await,
        stage.agent("b", script).await,
    ];
    let started = stage.start(plan).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    (stage, updates)
}

async fn tasks(stage: &Stage) -> Vec<String> {
    stage
        .rows("select a.name, t.state from tasks t join agents a on a.id = t.agent_id order by t.step_id, 1")
        .await
}

#[tokio::test]
async fn an_agent_that_confirms_and_does_not_start_is_lost_to_the_step() {
    let (stage, updates) = run(Starts::Never, IO).await;
    let told = messages(&updates);
    assert_eq!(state(&updates), ("done", true), "{told}");
    assert!(
        told.contains("agent `b` confirmed its start but has not begun"),
        "{told}"
    );
    assert!(
        told.contains("without `b` (lost, nothing known to be done)"),
        "{told}"
    );
    assert_eq!(tasks(&stage).await, ["a|done", "b|lost"]);
    assert_eq!(
        stage.rows("select state, partial from steps").await,
        ["done|1"]
    );
    let lost =
        "select a.name from events e join agents a on a.id = e.agent_id where kind = 'agent-lost'";
    assert_eq!(stage.rows(lost).await, ["b"]);
}

#[tokio::test]
async fn an_agent_that_does_not_start_fails_a_run_with_on_loss_abort() {
    let (stage, updates) = run(Starts::Never, &format!("on-loss = \"abort\"\n{IO}")).await;
    assert_eq!(state(&updates), ("failed", true), "{}", messages(&updates));
    assert_eq!(
        stage.rows("select state, partial from steps").await,
        ["failed|1"]
    );
}

#[tokio::test]
async fn an_agent_that_starts_early_fails_the_step() {
    let (stage, updates) = run(Starts::Early(300_000), IO).await;
    let told = messages(&updates);
    assert_eq!(state(&updates), ("failed", true), "{told}");
    let why = "agent `b`: it started 300000 us before the instant that it had confirmed";
    assert!(told.contains(why), "{told}");
    assert_eq!(tasks(&stage).await, ["a|done", "b|failed"]);
    assert_eq!(stage.rows("select reason from steps").await, [why]);
}

#[tokio::test]
async fn an_agent_that_starts_for_an_old_instant_fails_the_step() {
    let (stage, updates) = run(Starts::Old(2_000_000), IO).await;
    let told = messages(&updates);
    assert_eq!(state(&updates), ("failed", true), "{told}");
    assert!(
        told.contains(
            "agent `b`: it started -2000000 us away from the instant that it had confirmed"
        ),
        "{told}"
    );
    assert_eq!(tasks(&stage).await, ["a|done", "b|failed"]);
}

#[tokio::test]
async fn an_answer_to_another_command_confirms_nothing() {
    let (stage, updates) = run(Starts::Astray, IO).await;
    let told = messages(&updates);
    assert_eq!(state(&updates), ("done", true), "{told}");
    let why = "agent `b` has not confirmed its start 5 times, and others have";
    assert!(told.contains(why), "{told}");
    let late = "select count(*) from events where kind = 'step-late'";
    let late: u32 = stage.rows(late).await[0].parse().unwrap();
    assert!(late >= 5, "{late}");
    let lost =
        "select a.name from events e join agents a on a.id = e.agent_id where kind = 'agent-lost'";
    assert_eq!(stage.rows(lost).await, ["b"]);
}
