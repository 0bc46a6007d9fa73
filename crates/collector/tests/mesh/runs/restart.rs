//! Runs whose collector is restarted in the middle.

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
        stage
            .rows("select kind from events where kind not in ('insecure', 'start-requested')")
            .await,
        ["step-resumed"]
    );
    assert_eq!(
        a.journal().iter().filter(|entry| *entry == "arm").count(),
        2
    );
    assert!(a.journal().contains(&String::from("remove /mnt/a")));
}

#[tokio::test]
async fn a_step_that_some_agents_hold_goes_on_without_the_others() {
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
        messages(&updates).contains("restarted and lost its task"),
        "{}",
        messages(&updates)
    );
}

#[tokio::test]
async fn a_step_that_no_agent_holds_is_repeated_as_the_next_attempt() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(3.0)).await;
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

#[tokio::test]
async fn a_stop_right_after_a_start_ends_the_step_that_was_open() {
    let stage = Stage::new().await;
    let [a, b] = [
        stage.agent("a", running_for(600.0)).await,
        stage.agent("b", running_for(600.0)).await,
    ];
    let started = stage
        .start(&format!("loss-after = \"5s\"\n{IO}"))
        .await
        .unwrap();
    stage.until_step(started.run_id, "running").await;
    stage.until_started().await;
    a.cut();
    b.cut();
    let stage = stage.restarted().await;
    a.attach(stage.address).await.unwrap();
    // The run still waits for agent b.
    stop(&stage, started.run_id).await;
    a.until_asked("stop").await;
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("stopped", true), "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select state, reason, ended_us is not null from steps order by ordinal")
            .await,
        ["stopped|enough|1", "planned|NULL|0"]
    );
    assert_eq!(
        stage
            .rows("select a.name, t.state from tasks t join agents a on a.id = t.agent_id order by a.name")
            .await,
        ["a|stopped", "b|stopped"]
    );
    assert_eq!(
        stage.rows("select sum(ops) > 0 from step_results").await,
        ["1"]
    );
    assert_eq!(
        stage
            .rows("select detail ->> 'tasks_untold' from events where kind = 'load-stopped'")
            .await,
        ["1"]
    );
    assert!(
        a.journal().contains(&String::from("remove /mnt/a")),
        "{:?} {}",
        a.journal(),
        messages(&updates)
    );
}

#[tokio::test]
async fn an_abort_after_a_restart_records_when_the_load_ended() {
    let stage = Stage::new().await;
    let deaf = Script {
        deaf_to_stops: true,
        ..running_for(4.0)
    };
    let [a, b] = [
        stage.agent("a", deaf).await,
        stage.agent("b", running_for(600.0)).await,
    ];
    let started = stage
        .start(&format!("on-loss = \"abort\"\nloss-after = \"1s\"\n{NULL}"))
        .await
        .unwrap();
    stage.until_step(started.run_id, "running").await;
    b.forget_everything();
    a.until_asked("stop").await;
    a.cut();
    b.cut();
    let stage = stage.restarted().await;
    a.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("failed", true), "{}", messages(&updates));
    let told = "select e.detail ->> 'stopped_us' = r.halted_us from events e join runs r on r.id = e.run_id \
        where e.kind = 'load-stopped'";
    assert_eq!(stage.rows(told).await, ["1"]);
}
