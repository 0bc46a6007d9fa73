//! Runs from their start to their end, and what goes wrong between.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::Stage,
};
use benchmesh_proto::v1;
use std::time::Duration;
use tonic::Code;

const NULL: &str = "[[phase]]\nworkload = \"null\"\n";
const IO: &str = "[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"write\", \"read\"]\n";

fn running_for(seconds: f64) -> Script {
    Script {
        runs_for: Duration::from_secs_f64(seconds),
        ..Script::default()
    }
}

fn state(updates: &[v1::RunUpdate]) -> (&str, bool) {
    let last = updates.last().unwrap();
    (last.state.as_str(), last.partial)
}

fn messages(updates: &[v1::RunUpdate]) -> String {
    updates
        .iter()
        .flat_map(|update| update.messages.clone())
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test]
async fn a_run_takes_all_its_steps_and_leaves_nothing_behind() {
    let stage = Stage::new().await;
    let [b, a] = [
        stage.agent("b", Script::default()).await,
        stage.agent("a", Script::default()).await,
    ];
    let started = stage.start(&format!("name = \"n\"\n{IO}")).await.unwrap();
    assert_eq!(started.steps.len(), 2);
    assert_eq!(started.steps[0].agents, ["a", "b"]);
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let finished: Vec<_> = updates.iter().flat_map(|update| &update.finished).collect();
    let told: Vec<_> = finished
        .iter()
        .map(|step| (step.mode.as_str(), step.state.as_str()))
        .collect();
    assert_eq!(told, [("write", "done"), ("read", "done")]);
    assert_eq!((finished[0].ops[0].ops, finished[0].max_skew_us), (200, 10));
    // The first by name makes the directory, the other looks; each cleans its own part, the owner removes the rest.
    let asked = |agent: &FakeAgent| -> Vec<String> {
        let kept = ["open", "prepare", "arm", "clean", "remove"];
        agent
            .journal()
            .into_iter()
            .filter(|entry| kept.iter().any(|kept| entry.starts_with(kept)))
            .collect()
    };
    assert_eq!(
        asked(&a),
        [
            "open /mnt/a make=true",
            "prepare r1-p1-c1-t1 write 0/2 ",
            "arm",
            "prepare r1-p1-c1-t1 read 0/2 ",
            "arm",
            "clean r1-p1-c1-t1 0",
            "remove /mnt/a"
        ]
    );
    assert_eq!(
        asked(&b),
        [
            "open /mnt/a make=false",
            "prepare r1-p1-c1-t1 write 1/2 ",
            "arm",
            "prepare r1-p1-c1-t1 read 1/2 ",
            "arm",
            "clean r1-p1-c1-t1 1"
        ]
    );
    assert_eq!(
        stage.rows("select name, state, partial from runs").await,
        ["n|done|0"]
    );
    assert_eq!(
        stage
            .rows("select ordinal, mode, state, partial, clients from steps order by ordinal")
            .await,
        ["1|write|done|0|2", "2|read|done|0|2"]
    );
    assert_eq!(
        stage.rows("select count(*), min(t.state), sum(o.ops) from tasks t join op_intervals o on o.task_id = t.id").await,
        ["4|done|400"]
    );
    // One samples the host, and both were appointed by now.
    assert_eq!(
        [a.sampling().host_wide, b.sampling().host_wide],
        [false, true]
    );
    assert!(b.journal().contains(&String::from("mark")));
}

#[tokio::test]
async fn who_shares_no_file_system_makes_its_own_directory() {
    let stage = Stage::new().await;
    let own = |file_system: &str| Script {
        file_system: file_system.to_owned(),
        ..Script::default()
    };
    let [a, b] = [
        stage.agent("a", own("x")).await,
        stage.agent("b", own("y")).await,
    ];
    let started = stage.start(IO).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert!(a.journal().contains(&String::from("remove /mnt/a")));
    let journal = b.journal();
    for entry in [
        "open /mnt/a make=false",
        "open /mnt/a make=true",
        "remove /mnt/a",
    ] {
        assert!(journal.contains(&String::from(entry)), "{journal:?}");
    }
}

#[tokio::test]
async fn links_are_measured_pair_by_pair() {
    let stage = Stage::new().await;
    let [a, b] = [
        stage.agent("a", Script::default()).await,
        stage.agent("b", Script::default()).await,
    ];
    let plan = "[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nruntime = \"1s\"\n";
    let started = stage.start(plan).await.unwrap();
    let pairs: Vec<_> = started
        .steps
        .iter()
        .map(|step| (step.agents[0].as_str(), step.peer.as_str()))
        .collect();
    assert_eq!(pairs, [("a", "b"), ("b", "a")]);
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    assert!(
        a.journal()
            .contains(&String::from("prepare r1-p1-c1-t1 ping 0/1 127.0.0.1:4242")),
        "{:?}",
        a.journal()
    );
    assert!(b.journal().contains(&String::from("listen from 127.0.0.1")));
    assert_eq!(
        stage.rows("select f.name, p.name from tasks t join agents f on f.id = t.agent_id join agents p on p.id = t.peer_agent_id order by t.id").await,
        ["a|b", "b|a"]
    );
}

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
        messages(&updates).contains("is armed once more"),
        "{}",
        messages(&updates)
    );
    assert_eq!(
        b.journal().iter().filter(|entry| *entry == "arm").count(),
        2
    );
    // Both tasks of the one step started at the instant that counts.
    assert_eq!(
        stage.rows("select count(*), count(distinct t.start_us), min(t.start_us = s.start_us) from tasks t join steps s on s.id = t.step_id").await,
        ["2|1|1"]
    );
}

#[tokio::test]
async fn a_lost_agent_is_a_fact_and_the_others_go_on() {
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
        "loss-after = \"1s\"\n{NULL}runtime = \"1s\"\n[[phase]]\nworkload = \"network\"\nmodes = [\"ping\"]\nruntime = \"1s\"\n\
         [[phase]]\nname = \"after\"\nworkload = \"null\"\nsettle = \"1s\"\n[[phase]]\nname = \"last\"\nworkload = \"null\"\n"
    );
    let started = stage.start(&plan).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    b.cut();
    // Both links have failed when the phase after them settles.
    stage.until_step(started.run_id, "settle").await;
    b.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("failed", true), "{}", messages(&updates));
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
        ["agent-back|1", "agent-lost|1"]
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

#[tokio::test]
async fn a_run_stops_in_mid_step_and_keeps_its_data() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(600.0)).await;
    let started = stage.start(IO).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    let request = v1::StopRunRequest {
        run: started.run_id.to_string(),
        reason: String::from("enough"),
    };
    stage.control().await.stop_run(request).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("stopped", true));
    assert!(messages(&updates).contains("enough"));
    assert!(a.journal().contains(&String::from("remove /mnt/a")));
    assert_eq!(
        stage.rows("select state from steps order by ordinal").await,
        ["stopped", "planned"]
    );
    assert_eq!(stage.rows("select state from tasks").await, ["stopped"]);
    assert_eq!(
        stage.rows("select sum(ops) from op_intervals").await,
        ["100"]
    );
    assert_eq!(
        stage.rows("select state, reason from runs").await,
        ["stopped|enough"]
    );
}

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
    };
    let stopped = stage
        .control()
        .await
        .stop_run(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(stopped.state, "stopped");
    let said = |updates: Vec<v1::RunUpdate>| messages(&updates);
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
async fn what_cannot_run_is_refused_before_anything_runs() {
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
    refused(IO, Code::InvalidArgument, "1MiB are free at /mnt/a").await;
    refused(
        &IO.replace("/mnt/a", "/srv"),
        Code::InvalidArgument,
        "no attached agent allows /srv",
    )
    .await;
    let mut request = v1::StartRunRequest {
        wire_version: benchmesh_proto::WIRE_VERSION,
        plan_toml: NULL.to_owned(),
        agents: 3,
        agents_wait_us: 10_000,
        ..v1::StartRunRequest::default()
    };
    let mut control = stage.control().await;
    let status = control.start_run(request.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("1 attached (a)"), "{status:?}");
    request.wire_version = 99;
    let status = control.start_run(request.clone()).await.unwrap_err();
    assert!(status.message().contains("version 99"), "{status:?}");
    request.wire_version = benchmesh_proto::WIRE_VERSION;
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
        wire_version: benchmesh_proto::WIRE_VERSION,
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
    let reply = waiting.await.unwrap().unwrap().into_inner();
    assert_eq!((reply.run_id, reply.steps.len()), (0, 1));
    assert_eq!(stage.rows("select count(*) from runs").await, ["0"]);
}

#[tokio::test]
async fn a_failed_step_ends_its_cell_and_not_the_run() {
    let stage = Stage::new().await;
    let a = stage.agent("a", Script::default()).await;
    a.script(|script| {
        script.prepare_error = Some((String::from("no-space"), String::from("the disk is full")))
    });
    let plan = format!("{IO}{NULL}");
    let started = stage.start(&plan).await.unwrap();
    a.until_asked("clean").await;
    a.script(|script| script.prepare_error = None);
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "failed");
    assert!(
        messages(&updates).contains("the disk is full"),
        "{}",
        messages(&updates)
    );
    assert_eq!(
        stage
            .rows("select mode, state from steps order by ordinal")
            .await,
        ["write|failed", "read|failed", "run|done"]
    );
    assert!(a.journal().contains(&String::from("remove /mnt/a")));
}

#[tokio::test]
async fn a_task_that_fails_says_why() {
    let stage = Stage::new().await;
    let failing = Script {
        task_error: String::from("read /mnt/a/x at 4096: Input/output error"),
        ..Script::default()
    };
    let _agents = [
        stage.agent("a", Script::default()).await,
        stage.agent("b", failing).await,
    ];
    let started = stage.start(NULL).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("failed", true));
    assert!(
        messages(&updates).contains("agent `b`: read /mnt/a/x at 4096"),
        "{}",
        messages(&updates)
    );
}

#[tokio::test]
async fn caches_are_dropped_host_by_host_and_what_was_not_is_told() {
    let stage = Stage::new().await;
    let on = |host: &str, role: &str| Script {
        host: host.to_owned(),
        labels: vec![(String::from("role"), role.to_owned())],
        ..Script::default()
    };
    let client = stage.agent("c", on("h1", "client")).await;
    let storage = stage.agent("s", on("h2", "storage")).await;
    let other = stage.agent("x", on("h3", "monitor")).await;
    let plan = format!("[clients]\nselect = \"role=client\"\n{NULL}cache = \"cold\"\n");
    let started = stage.start(&plan).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let dropped = |agent: &FakeAgent| agent.journal().contains(&String::from("drop"));
    assert_eq!(
        [dropped(&client), dropped(&storage), dropped(&other)],
        [true, true, false]
    );
    assert_eq!(
        stage.rows("select a.name, d.what, d.dropped, d.error from cache_drops d join agents a on a.id = d.agent_id order by 1, 2").await,
        [
            "c|dentries-inodes|0|not permitted",
            "c|page-cache|1|NULL",
            "s|dentries-inodes|0|not permitted",
            "s|page-cache|1|NULL"
        ]
    );
    assert!(messages(&updates).contains("not quite cold"));
}

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
