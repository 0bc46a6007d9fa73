//! Agents that are late, lost or come back, and the policy's reaction.

use super::*;

#[tokio::test]
async fn a_late_agent_is_armed_again_with_the_others() {
    let stage = Stage::new().await;
    let late = Script {
        late_arms: 1,
        ..Script::default()
    };
    let [_a, b] = [
        stage.agent("a", Script::default()).await,
        stage.agent("b", late).await,
    ];
    let started = stage.start(NULL).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert!(
        messages(&updates).contains("is armed again"),
        "{}",
        messages(&updates)
    );
    assert_eq!(
        b.journal().iter().filter(|entry| *entry == "arm").count(),
        2
    );
    // Both tasks of the one step started at the final instant.
    assert_eq!(
        stage.rows("select count(*), count(distinct t.start_us), min(t.start_us = s.start_us) from tasks t join steps s on s.id = t.step_id").await,
        ["2|1|1"]
    );
}

#[tokio::test]
async fn a_lost_agent_has_an_event_and_the_others_go_on() {
    let stage = Stage::new().await;
    let [_a, b] = [
        stage.agent("a", running_for(3.0)).await,
        stage.agent("b", running_for(3.0)).await,
    ];
    let started = stage
        .start(&format!("loss-after = \"1s\"\n{NULL}"))
        .await
        .unwrap();
    stage.until_step(started.run_id, "running").await;
    b.cut();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", true), "{}", messages(&updates));
    assert_eq!(
        stage.rows("select a.name, t.state from tasks t join agents a on a.id = t.agent_id order by a.name").await,
        ["a|done", "b|lost"]
    );
    assert_eq!(
        stage.rows("select state, partial from steps").await,
        ["done|1"]
    );
    assert_eq!(
        stage
            .rows("select kind, severity from events where kind = 'agent-lost'")
            .await,
        ["agent-lost|warning"]
    );
}

/// Its connection stays open, so that only its silence shows the loss.
#[tokio::test]
async fn a_frozen_agent_is_lost_after_loss_after() {
    let stage = Stage::new().await;
    let [_a, b] = [
        stage.agent("a", running_for(8.0)).await,
        stage.agent("b", running_for(8.0)).await,
    ];
    let started = stage
        .start(&format!("loss-after = \"4s\"\n{NULL}"))
        .await
        .unwrap();
    stage.until_step(started.run_id, "running").await;
    b.freeze();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", true), "{}", messages(&updates));
    let lost = "select a.name, (e.at_us - s.start_us) / 1000000 between 3 and 7
        from events e join agents a on a.id = e.agent_id join steps s on s.id = e.step_id where e.kind = 'agent-lost'";
    assert_eq!(stage.rows(lost).await, ["b|1"]);
}

#[tokio::test]
async fn an_agent_that_comes_back_in_time_is_not_lost() {
    let stage = Stage::new().await;
    let [_a, b] = [
        stage.agent("a", running_for(1.5)).await,
        stage.agent("b", running_for(1.5)).await,
    ];
    let started = stage.start(NULL).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    b.cut();
    b.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert_eq!(
        stage.rows("select sum(ops) from op_intervals").await,
        ["200"]
    );
}

#[tokio::test]
async fn a_lost_end_of_a_link_costs_its_links_alone_and_may_come_back() {
    let stage = Stage::new().await;
    let [a, b] = [
        stage.agent("a", Script::default()).await,
        stage.agent("b", Script::default()).await,
    ];
    let plan = format!(
        "loss-after = \"1s\"\n{NULL}runtime = \"1s\"\n[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\n\
         runtime = \"1s\"\n\
         [[phase]]\nname = \"after\"\nworkload = \"null\"\nsettle = \"3s\"\n[[phase]]\nname = \"last\"\nworkload = \"null\"\n"
    );
    let started = stage.start(&plan).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    b.cut();
    // Both links have failed when the phase after them settles; the run is partial, by on-loss.
    stage.until_step(started.run_id, "settle").await;
    b.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", true), "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select phase, state, partial from steps order by ordinal")
            .await,
        [
            "null|done|1",
            "network|failed|1",
            "network|failed|1",
            "after|done|1",
            "last|done|0"
        ]
    );
    assert_eq!(
        stage
            .rows("select kind, count(*) from events where kind like 'agent-%' group by kind order by kind")
            .await,
        ["agent-back|1", "agent-lost|1", "agent-tidied|1"]
    );
    drop(a);
}

#[tokio::test]
async fn the_policy_ends_the_run() {
    for (policy, agents, ends) in [
        ("\"abort\"", 2, true),
        ("{ at-least = 2 }", 2, true),
        ("{ at-least = 2 }", 3, false),
    ] {
        let stage = Stage::new().await;
        let mut fleet = Vec::new();
        for name in ["a", "b", "c"].into_iter().take(agents) {
            fleet.push(stage.agent(name, running_for(3.0)).await);
        }
        let plan = format!("on-loss = {policy}\nloss-after = \"1s\"\n{NULL}");
        let started = stage.start(&plan).await.unwrap();
        stage.until_step(started.run_id, "running").await;
        fleet[0].cut();
        let updates = stage.watch(started.run_id).await;
        let expected = if ends {
            ("failed", true)
        } else {
            ("done", true)
        };
        assert_eq!(state(&updates), expected, "{policy} {}", messages(&updates));
        if ends {
            assert!(
                fleet[1]
                    .journal()
                    .iter()
                    .any(|entry| entry.starts_with("stop"))
            );
            assert!(
                messages(&updates).contains("on-loss"),
                "{}",
                messages(&updates)
            );
        }
    }
}
