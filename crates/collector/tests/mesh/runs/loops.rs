//! Plans whose phases are repeated.

use super::*;

#[tokio::test]
async fn the_steps_of_a_loop_are_made_when_it_begins() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(0.5)).await;
    let started = stage.start(&format!("loops = 3\n{IO}")).await.unwrap();
    assert_eq!(started.steps.len(), 2);
    stage.until_step(started.run_id, "running").await;
    assert_eq!(stage.rows("select max(loop) from steps").await, ["1"]);
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let last = updates.last().unwrap();
    assert_eq!((last.steps_done, last.steps_total), (6, 6));
    assert_eq!(last.r#loop, "loop 3 of 3");
    assert_eq!(
        stage
            .rows("select ordinal, loop, cell, mode, state from steps order by id")
            .await,
        [
            "1|1|r1-p1-c1-t1|write|done",
            "2|1|r1-p1-c1-t1|read|done",
            "3|2|l2-r1-p1-c1-t1|write|done",
            "4|2|l2-r1-p1-c1-t1|read|done",
            "5|3|l3-r1-p1-c1-t1|write|done",
            "6|3|l3-r1-p1-c1-t1|read|done",
        ]
    );
    assert_eq!(
        stage
            .rows("select loop, count(*) from v_results group by loop")
            .await,
        ["1|2", "2|2", "3|2"]
    );
    let journal = a.journal();
    let removals = journal.iter().filter(|entry| *entry == "remove /mnt/a");
    assert_eq!(removals.count(), 1, "{journal:?}");
}

#[tokio::test]
async fn no_loop_begins_after_the_time_of_the_loops() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", running_for(0.3)).await;
    let started = stage
        .start(&format!("loop-for = \"2s\"\n{NULL}"))
        .await
        .unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let over = "select max(s.loop) > 1, r.ended_us - r.started_us >= 2000000,
        max(iif(s.loop < (select max(loop) from steps), s.ended_us, 0)) - r.started_us < 2000000,
        sum(s.state <> 'done') from steps s join runs r on r.id = s.run_id";
    assert_eq!(stage.rows(over).await, ["1|1|1|0"]);
}

#[tokio::test]
async fn a_collector_that_starts_again_goes_on_with_the_loop_under_way() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(1.0)).await;
    let started = stage.start(&format!("loops = 3\n{NULL}")).await.unwrap();
    while stage.rows("select max(loop) from steps").await != ["2"] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stage = stage.restarted().await;
    a.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "done", "{}", messages(&updates));
    let last = updates.last().unwrap();
    assert_eq!((last.steps_done, last.steps_total), (3, 3));
    assert_eq!(
        stage
            .rows("select loop, max(attempt), sum(state = 'done') from steps group by loop")
            .await
            .iter()
            .filter(|row| row.ends_with("|1"))
            .count(),
        3
    );
}

/// The request survives the collector, and the run ends as if its plan had no further loop.
#[tokio::test]
async fn no_loop_begins_after_a_request() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(1.0)).await;
    let plan = format!("loops = 1000\n{NULL}");
    let started = stage.start(&plan).await.unwrap();
    let queued = stage.start(&plan).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    for run in [started.run_id, queued.run_id] {
        let request = v1::StopRunRequest {
            run: run.to_string(),
            reason: String::from("enough"),
            after_loop: true,
        };
        let reply = stage.control().await.stop_run(request).await.unwrap();
        assert_ne!(reply.into_inner().state, "stopped");
    }
    let stage = stage.restarted().await;
    a.attach(stage.address).await.unwrap();
    for run in [started.run_id, queued.run_id] {
        let updates = stage.watch(run).await;
        assert_eq!(state(&updates).0, "done", "{}", messages(&updates));
    }
    assert_eq!(
        stage
            .rows("select run_id, max(loop) from steps group by run_id")
            .await,
        ["1|1", "2|1"]
    );
    let asked = "select count(*) from events where kind = 'last-loop-requested'";
    assert_eq!(stage.rows(asked).await, ["2"]);
}

/// A request ends the pause after a loop that measured nothing.
#[tokio::test]
async fn a_request_ends_the_pause_between_loops() {
    let stage = Stage::new().await;
    let failing = Script {
        only_errors: true,
        ..Script::default()
    };
    let _a = stage.agent("a", failing).await;
    let started = stage.start(&format!("loops = 100\n{IO}")).await.unwrap();
    while stage
        .rows("select count(*) from steps where state = 'failed'")
        .await
        != ["2"]
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let request = v1::StopRunRequest {
        run: started.run_id.to_string(),
        after_loop: true,
        ..v1::StopRunRequest::default()
    };
    stage.control().await.stop_run(request).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_ne!(state(&updates).0, "stopped", "{}", messages(&updates));
    assert_eq!(stage.rows("select max(loop) from steps").await, ["1"]);
}

/// A plan that cannot work does not fill the database: the pause ends with a stop.
#[tokio::test]
async fn a_loop_that_measured_nothing_is_followed_by_a_pause() {
    let stage = Stage::new().await;
    let failing = Script {
        only_errors: true,
        ..Script::default()
    };
    let _a = stage.agent("a", failing).await;
    let started = stage.start(&format!("loops = 100\n{IO}")).await.unwrap();
    while stage
        .rows("select count(*) from steps where state = 'failed'")
        .await
        != ["2"]
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop(&stage, started.run_id).await;
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("stopped", true), "{}", messages(&updates));
    assert_eq!(stage.rows("select max(loop) from steps").await, ["1"]);
}
