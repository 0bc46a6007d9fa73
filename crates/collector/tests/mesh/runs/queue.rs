//! Runs that are refused, queued, and stopped in the queue.

use super::*;
use crate::fake_agent::now_us;
use benchmesh_scheduler::snapshot::RunStarted;

#[tokio::test]
async fn runs_wait_for_each_other_and_a_queued_one_stops_at_once() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", running_for(1.0)).await;
    let first = stage.start(NULL).await.unwrap();
    let second = stage.start(NULL).await.unwrap();
    let third = stage.start(NULL).await.unwrap();
    stage.until_step(first.run_id, "running").await;
    assert_eq!(
        stage.rows("select state from runs order by id").await,
        ["running", "queued", "queued"]
    );
    let request = v1::StopRunRequest {
        run: second.run_id.to_string(),
        reason: String::new(),
        ..v1::StopRunRequest::default()
    };
    let stopped = stage
        .control()
        .await
        .stop_run(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(stopped.state, "stopped");
    let said = |updates: Vec<RunUpdate>| messages(&updates);
    let waits = said(stage.watch(third.run_id).await);
    assert!(waits.contains("run 3 waits for run 2"), "{waits}");
    let first = said(stage.watch(first.run_id).await);
    assert!(!first.contains("waits"), "nothing was before it: {first}");
    assert_eq!(
        stage.rows("select state from runs order by id").await,
        ["done", "stopped", "done"]
    );
}

#[tokio::test]
async fn a_run_waits_for_its_time_also_across_a_restart_and_lets_others_pass() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(0.2)).await;
    let due = now_us() + 4_000_000;
    let waiting = stage.start_at(due, "", IO).await.unwrap();
    let taken_back = stage.start_at(due, "", NULL).await.unwrap();
    let at_once = stage.start(NULL).await.unwrap();
    let updates = stage.watch(at_once.run_id).await;
    assert_eq!(state(&updates), ("done", false));
    assert!(
        !messages(&updates).contains("waits"),
        "nothing is due before it"
    );
    stop(&stage, taken_back.run_id).await;
    a.cut();
    let stage = stage.restarted().await;
    a.attach(stage.address).await.unwrap();
    assert_eq!(
        stage.rows("select state from runs order by id").await,
        ["queued", "stopped", "done"]
    );
    let updates = stage.watch(waiting.run_id).await;
    let first = &updates[0].run;
    assert_eq!((first.state.as_str(), first.steps_total), ("queued", 2));
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert!(messages(&updates).contains("run 1 waits until 20"));
    assert_eq!(
        stage
            .rows("select started_us >= due_us, started_us < due_us + 3000000, due_us from runs where id = 1")
            .await,
        [format!("1|1|{due}")]
    );
}

#[tokio::test]
async fn a_queued_run_stores_its_environment_when_it_begins() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", running_for(1.0)).await;
    let b = stage.agent("b", Script::default()).await;
    let first = stage.start(NULL).await.unwrap();
    let second = stage.start(IO).await.unwrap();
    stage.until_step(first.run_id, "running").await;
    // While the second run waits, `b` is restarted, on another kernel and with another mount.
    b.cut();
    b.forget_everything();
    b.script(|script| {
        script.host = String::from("boot-2");
        script.kernel = String::from("6.2");
        script.labels = vec![(String::from("rack"), String::from("7"))];
        script.file_system_type = String::from("xfs");
    });
    b.attach(stage.address).await.unwrap();
    // An agent that attached after the second run was accepted belongs to its environment.
    let _c = stage.agent("c", Script::default()).await;
    let environment = async |run: i64| {
        let agents = "select name, host, kernel, labels from run_agents where run_id =";
        stage.rows(&format!("{agents} {run} order by name")).await
    };
    assert_eq!(environment(second.run_id).await, [""; 0]);
    let updates = stage.watch(second.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert_eq!(
        environment(first.run_id).await,
        ["a|boot|6.1|{}", "b|boot|6.1|{}"]
    );
    assert_eq!(
        environment(second.run_id).await,
        [
            "a|boot|6.1|{}",
            "b|boot-2|6.2|{\"rack\":\"7\"}",
            "c|boot|6.1|{}"
        ]
    );
    let mounts =
        "select a.name, t.mount_type from run_targets t join run_agents a using (run_id, agent_id)
        order by a.name";
    assert_eq!(stage.rows(mounts).await, ["a|ext4", "b|xfs", "c|ext4"]);
}

#[tokio::test]
async fn a_collector_that_is_started_again_reads_the_environment_again() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(1.0)).await;
    let first = stage.start(NULL).await.unwrap();
    let second = stage.start(IO).await.unwrap();
    stage.until_step(first.run_id, "running").await;
    a.script(|script| script.deaf_to_surveys = true);
    a.until_asked("survey without an answer").await;
    a.cut();
    let stage = stage.restarted().await;
    a.script(|script| {
        script.deaf_to_surveys = false;
        script.file_system_type = String::from("xfs");
    });
    a.attach(stage.address).await.unwrap();
    let updates = stage.watch(second.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let mounts = "select run_id, mount_type from run_targets";
    assert_eq!(stage.rows(mounts).await, [format!("{}|xfs", second.run_id)]);
}

#[tokio::test]
async fn a_run_that_is_started_twice_is_one_run() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", Script::default()).await;
    let first = stage.start_as("mine", NULL).await.unwrap();
    let again = stage.start_as("mine", NULL).await.unwrap();
    assert_eq!((first.known, again.known), (false, true));
    assert_eq!((first.run_id, first.run_uid), (again.run_id, again.run_uid));
    assert_eq!(again.steps.len(), 1);
    let (one, other) = tokio::join!(stage.start_as("twin", NULL), stage.start_as("twin", NULL));
    assert_eq!(one.unwrap().run_id, other.unwrap().run_id);
    stage.watch(first.run_id).await;
    assert_eq!(stage.rows("select count(*) from runs").await, ["2"]);
}

#[tokio::test]
async fn a_plan_that_cannot_run_is_refused_before_anything_runs() {
    let stage = Stage::new().await;
    let refused = async |plan: &str, code: Code, part: &str| {
        let status = stage.start(plan).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(part), "{status:?}");
    };
    refused(NULL, Code::InvalidArgument, "no agent is attached").await;
    let a = stage
        .agent(
            "a",
            Script {
                free_bytes: 1 << 20,
                ..Script::default()
            },
        )
        .await;
    refused("nme = 1\n", Code::InvalidArgument, "p.toml:1:1: nme").await;
    refused(IO, Code::InvalidArgument, "1.00 MiB are free at /mnt/a").await;
    refused(
        &IO.replace("/mnt/a", "/srv"),
        Code::InvalidArgument,
        "no attached agent allows /srv",
    )
    .await;
    let mut request = v1::StartRunRequest {
        wire_version: benchmesh_proto::CONTROL_VERSION,
        plan_toml: NULL.to_owned(),
        agents: 3,
        agents_wait_us: 10_000,
        ..v1::StartRunRequest::default()
    };
    let mut control = stage.control().await;
    let status = control.start_run(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(
        status
            .message()
            .contains("after 0 s only 1 is attached (a)"),
        "{status:?}"
    );
    request.wire_version = 99;
    let status = control.start_run(request.clone()).await.unwrap_err();
    assert!(status.message().contains("version 99"), "{status:?}");
    request.wire_version = benchmesh_proto::CONTROL_VERSION;
    request.run_uid = String::from("../etc");
    let status = control.start_run(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(stage.rows("select count(*) from runs").await, ["0"]);
    assert!(!a.journal().iter().any(|entry| entry.starts_with("open")));
}

#[tokio::test]
async fn agents_are_waited_for() {
    let stage = Stage::new().await;
    let request = v1::StartRunRequest {
        wire_version: benchmesh_proto::CONTROL_VERSION,
        plan_toml: NULL.to_owned(),
        agents: 2,
        agents_wait_us: 60_000_000,
        dry_run: true,
        ..v1::StartRunRequest::default()
    };
    let mut control = stage.control().await;
    let waiting = tokio::spawn(async move { control.start_run(request).await });
    let _agents = [
        stage.agent("a", Script::default()).await,
        stage.agent("b", Script::default()).await,
    ];
    let reply = waiting.await.unwrap().unwrap();
    let reply: RunStarted = shown(&reply.get_ref().started_json);
    assert_eq!((reply.run_id, reply.steps.len()), (0, 1));
    assert_eq!(stage.rows("select count(*) from runs").await, ["0"]);
}

/// No further loop begins after a request, which survives the collector.
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
