//! Agents that are lost and come back, and removal of data with progress.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{LIMIT, Stage, messages, state},
};
use benchmesh_proto::v1;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const IO: &str = "loss-after = \"1s\"\n[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";

fn running_for(seconds: u64) -> Script {
    Script {
        runs_for: Duration::from_secs(seconds),
        ..Script::default()
    }
}

/// Waits until the query returns these rows.
async fn until(stage: &Stage, sql: &str, wanted: &[&str]) {
    let answered = timeout(LIMIT, async {
        while stage.rows(sql).await != wanted {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    if answered.is_err() {
        panic!("{sql}\nis {:?}\nnot {wanted:?}", stage.rows(sql).await);
    }
}

fn asked(agent: &FakeAgent, what: &str) -> bool {
    agent.journal().iter().any(|entry| entry.starts_with(what))
}

#[tokio::test]
async fn a_lost_agent_that_returns_is_stopped_and_cleaned_and_its_rows_count() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", running_for(4)).await;
    let b = stage
        .agent(
            "b",
            Script {
                file_system: String::from("its own"),
                ..running_for(3600)
            },
        )
        .await;
    let started = stage.start(IO).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    b.cut();
    let updates = stage.watch(started.run_id).await;
    let told = messages(&updates);
    assert_eq!(state(&updates), ("done", true), "{told}");
    assert!(
        told.contains("without `b` (lost, nothing known to be done)"),
        "{told}"
    );
    assert!(
        told.contains("benchmesh removes it when the agent is back"),
        "{told}"
    );
    assert_eq!(
        stage.rows("select sum(ops) from step_results").await,
        ["100"]
    );
    // It attaches after the run has ended, still with its task.
    b.attach(stage.address).await.unwrap();
    b.until_asked("remove /mnt/a").await;
    for what in ["stop", "forget", "clean r1-p1-c1-t1 1"] {
        assert!(asked(&b, what), "{what}: {:?}", b.journal());
    }
    until(&stage, "select sum(ops) from step_results", &["200"]).await;
    let kinds = "select kind from events where kind in ('agent-tidied', 'directory-left', 'directory-removed') order \
        by id";
    until(
        &stage,
        kinds,
        &["directory-left", "agent-tidied", "directory-removed"],
    )
    .await;
    // It stays lost, and the step partial; the report shows its work until the loss.
    assert_eq!(
        stage.rows("select a.name, t.state, s.partial from tasks t join agents a on a.id = t.agent_id join steps s on s.id = t.step_id order by 1").await,
        ["a|done|1", "b|lost|1"]
    );
    let request = v1::ReportRequest {
        run: started.run_id.to_string(),
    };
    let mut pieces = stage
        .control()
        .await
        .report(request)
        .await
        .unwrap()
        .into_inner();
    let mut report = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        report.extend(piece.report_json);
    }
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(
        report["steps"][0]["missing"],
        serde_json::json!([{ "agent": "b", "state": "lost", "ran_us": 1_000_000, "away_us": null, "ops": 100, "bytes": 0 }])
    );
    // A further attachment adds nothing to report.
    let removals = |agent: &FakeAgent| {
        let journal = agent.journal();
        journal
            .iter()
            .filter(|entry| entry.starts_with("remove"))
            .count()
    };
    let before = removals(&b);
    b.cut();
    b.attach(stage.address).await.unwrap();
    until(
        &stage,
        "select count(*) from events where kind = 'directory-removed'",
        &["1"],
    )
    .await;
    assert_eq!(removals(&b), before);
}

#[tokio::test]
async fn a_short_absence_takes_no_task_from_its_agent() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(2)).await;
    let started = stage.start(&IO.replace("\"1s\"", "\"30s\"")).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    a.cut();
    a.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert!(!asked(&a, "stop"), "{:?}", a.journal());
}

#[tokio::test]
async fn the_removal_of_data_is_a_state_with_progress() {
    let stage = Stage::new().await;
    let script = Script {
        removes: 4,
        ..Script::default()
    };
    let _agents = [
        stage.agent("a", script.clone()).await,
        stage.agent("b", script).await,
    ];
    let started = stage.start(IO).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let cleaning: Vec<u64> = updates
        .iter()
        .filter(|update| {
            update
                .step
                .as_ref()
                .is_some_and(|step| step.state == "cleaning")
        })
        .filter_map(|update| update.removed_files)
        .collect();
    // The sum over both agents.
    assert!(cleaning.iter().max() > Some(&4), "{cleaning:?}");
    // Then the owner alone removes the run's directory, while no step is under way.
    let last: Vec<u64> = updates
        .iter()
        .filter(|update| update.step.is_none())
        .filter_map(|update| update.removed_files)
        .collect();
    assert!(last.iter().max() > Some(&1), "{last:?}");
    assert!(updates.last().unwrap().removed_files.is_none());
}
