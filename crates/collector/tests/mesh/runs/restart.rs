//! Runs whose collector was started again in the middle.

use super::*;

#[tokio::test]
async fn a_step_that_went_on_without_its_collector_is_waited_for() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(2.0)).await;
    let started = stage.start(IO).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    let stage = stage.restarted().await;
    a.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select mode, attempt, state from steps order by id")
            .await,
        ["write|1|done", "read|1|done"]
    );
    assert_eq!(
        stage.rows("select kind from events").await,
        ["step-resumed"]
    );
    assert_eq!(
        a.journal().iter().filter(|entry| *entry == "arm").count(),
        2
    );
    assert!(a.journal().contains(&String::from("remove /mnt/a")));
}

#[tokio::test]
async fn a_step_that_some_hold_goes_on_without_the_others() {
    let stage = Stage::new().await;
    let [a, b] = [
        stage.agent("a", running_for(2.0)).await,
        stage.agent("b", running_for(2.0)).await,
    ];
    let started = stage.start(NULL).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    let stage = stage.restarted().await;
    b.forget_everything();
    a.attach(stage.address).await.unwrap();
    b.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", true), "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select s.attempt, a.name, t.state from tasks t join agents a on a.id = t.agent_id join steps s on s.id = t.step_id order by a.name")
            .await,
        ["1|a|done", "1|b|lost"]
    );
    assert!(
        messages(&updates).contains("has lost its task"),
        "{}",
        messages(&updates)
    );
}

#[tokio::test]
async fn a_step_that_nobody_holds_is_begun_anew_as_the_next_attempt() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(1.0)).await;
    let started = stage.start(IO).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    let stage = stage.restarted().await;
    a.forget_everything();
    a.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "done", "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select mode, attempt, state from steps order by id")
            .await,
        [
            "write|1|failed",
            "read|1|failed",
            "write|2|done",
            "read|2|done"
        ]
    );
    let journal = a.journal();
    assert!(
        journal.contains(&String::from("prepare r1-p1-c1-t1-a2 write 0/1 ")),
        "{journal:?}"
    );
    assert!(
        journal.contains(&String::from("clean r1-p1-c1-t1 0")),
        "{journal:?}"
    );
}
