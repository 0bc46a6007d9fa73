//! Runs from their start to their end, with faults in between.

mod loops;
mod lost;
mod new_agents;
mod queue;
mod restart;

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{Stage, measured_async, messages, state},
};
use benchmesh_proto::v1;
use benchmesh_testing::timing;
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

async fn stop(stage: &Stage, run: i64) {
    let request = v1::StopRunRequest {
        run: run.to_string(),
        reason: String::from("enough"),
        ..v1::StopRunRequest::default()
    };
    stage.control().await.stop_run(request).await.unwrap();
}

#[tokio::test]
async fn a_step_of_which_every_operation_failed_fails_its_run() {
    let stage = Stage::new().await;
    let failing = Script {
        only_errors: true,
        ..Script::default()
    };
    let _a = stage.agent("a", failing).await;
    let started = stage.start(IO).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "failed", "{}", messages(&updates));
    // The cell ends with the step: the data for the next mode were never written.
    assert_eq!(
        stage
            .rows(
                "SELECT mode || ' ' || state || ' ' || coalesce(reason, '') FROM steps \
            WHERE state <> 'planned'"
            )
            .await,
        [
            "write failed no operation succeeded, 100 failed",
            "read failed an earlier mode of the cell failed"
        ]
    );
    assert_eq!(
        stage
            .rows("SELECT count(*) FROM steps, json_each(flags) WHERE value = 'mostly-failed'")
            .await,
        ["1"]
    );
    // The question "what went wrong" reads events.
    let told = stage
        .rows("SELECT message FROM events WHERE kind = 'step-failed'")
        .await;
    let own = |message: &&String| message.ends_with("failed: no operation succeeded, 100 failed");
    assert_eq!(told.iter().filter(own).count(), 1, "{told:?}");
    let reason = stage.rows("SELECT state || ': ' || reason FROM runs").await;
    assert!(reason[0].contains("no operation succeeded"), "{reason:?}");
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
    // The first agent by name makes the directory, and the other looks for it. Each cleans its own part, and the owner
    // removes the rest.
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
    // One agent samples the host, and both are appointed by now.
    assert_eq!(
        [a.sampling().host_wide, b.sampling().host_wide],
        [false, true]
    );
    assert!(b.journal().contains(&String::from("mark")));
}

#[tokio::test]
async fn an_agent_with_its_own_file_system_makes_its_own_directory() {
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
async fn a_mode_that_the_target_cannot_do_leaves_the_other_modes_of_its_cell() {
    let stage = Stage::new().await;
    let cannot = Script {
        prepare_error: Some((String::from("unsupported"), String::from("no O_DIRECT"))),
        refused_mode: Some(String::from("read")),
        ..Script::default()
    };
    let a = stage.agent("a", cannot).await;
    let plan = IO.replace(
        "[\"write\", \"read\"]",
        "[\"write\", \"read\", \"randread\"]",
    );
    let started = stage.start(&plan).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "failed", "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select mode, state from steps order by ordinal")
            .await,
        ["write|done", "read|failed", "randread|done"]
    );
    assert_eq!(
        stage
            .rows(
                "select s.mode, e.severity, e.message from events e join steps s on s.id = e.step_id
                 where e.kind = 'mode-left-out'"
            )
            .await,
        ["read|warning|step 2 (io read on a) cannot run there and is skipped; the other modes of its cell continue"]
    );
    // The data are removed once, at the end of the cell.
    let cleaned = a
        .journal()
        .iter()
        .filter(|it| it.starts_with("clean"))
        .count();
    assert_eq!(cleaned, 1, "{:?}", a.journal());
}

#[tokio::test]
async fn a_mode_that_cannot_be_in_a_cell_is_an_event_of_the_run() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", Script::default()).await;
    let plan = IO
        .replace(
            "size = \"1m\"",
            "matrix = { bs = [\"4k\", \"64k\"] }\nsize = \"1m\"",
        )
        .replace("\"read\"]", "\"strideread\"]");
    let started = stage.start(&plan).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "done", "{}", messages(&updates));
    assert_eq!(
        stage
            .rows("select mode, params ->> 'bs' from steps order by ordinal")
            .await,
        ["write|4k", "strideread|4k", "write|64k"]
    );
    let told = stage
        .rows("select message from events where kind = 'mode-left-out' and severity = 'warning'")
        .await;
    assert!(
        matches!(&told[..], [only] if only.contains("leaves out mode `strideread` of the cell with bs = \"64k\"")),
        "{told:?}"
    );
    assert_eq!(started.warnings, told);
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
    // A step that was not measured is reported, and is not done.
    assert!(
        messages(&updates).contains("step 2 is not measured: an earlier mode of the cell failed"),
        "{}",
        messages(&updates)
    );
    let last = updates.last().unwrap();
    assert_eq!((last.steps_done, last.steps_total), (1, 3));
    let listed = stage
        .control()
        .await
        .list_runs(v1::ListRunsRequest {
            limit: 1,
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner()
        .runs
        .remove(0);
    assert_eq!((listed.steps_done, listed.steps_total), (1, 3));
    assert_eq!(
        stage.rows("select steps_done, steps from v_runs").await,
        ["1|3"]
    );
    // A later reader sees its duration, not the time since it began.
    let took = stage
        .rows("select ended_us - started_us from runs")
        .await
        .remove(0);
    let again = stage.watch(started.run_id).await;
    assert_eq!(again.last().unwrap().elapsed_us.to_string(), took);
    let why = "step 1 (io write on a) failed: agent `a`: the disk is full";
    let said = messages(&again);
    assert_eq!(said.matches(why).count(), 1, "{said}");
}

/// An agent that falls silent (its session stays open) and one whose connection ends, each while another program holds
/// the database's write lock. The other agent is stopped by the policy within a second after `loss-after`.
#[test]
fn a_locked_database_does_not_delay_the_loss_of_an_agent() {
    measured_async(|| async {
        for (falls_silent, loss_after) in [
            (true, Duration::from_secs(3)),
            (false, Duration::from_secs(1)),
        ] {
            let stage = Stage::new().await;
            let a = stage.agent("a", running_for(60.0)).await;
            let b = stage.agent("b", running_for(60.0)).await;
            let plan = format!(
                "on-loss = \"abort\"\nloss-after = \"{}s\"\n{NULL}",
                loss_after.as_secs()
            );
            let started = stage.start(&plan).await.unwrap();
            stage.until_step(started.run_id, "running").await;
            let other = rusqlite::Connection::open(stage.db()).unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            let gone = std::time::Instant::now();
            match falls_silent {
                true => b.freeze(),
                false => b.cut(),
            }
            a.until_asked("stop").await;
            let took = gone.elapsed();
            // The last contact may be a second older, the time between two probes.
            let least = loss_after.saturating_sub(Duration::from_secs(1));
            let most = loss_after + Duration::from_secs(1);
            timing!((least..=most).contains(&took), "{took:?} of {loss_after:?}");
            other.execute_batch("ROLLBACK").unwrap();
            let updates = stage.watch(started.run_id).await;
            assert_eq!(state(&updates), ("failed", true), "{}", messages(&updates));
            assert_eq!(
            stage
                .rows("select a.name from events e join agents a on a.id = e.agent_id where e.kind = 'agent-lost'")
                .await,
            ["b"]
        );
        }
        Ok(())
    });
}

/// Another program holds the database's write lock, which has the effect of a full disk without needing a disk.
#[tokio::test]
async fn a_blocked_database_has_an_event_and_does_not_delay_a_stop() {
    let stage = Stage::new().await;
    let a = stage.agent("a", running_for(30.0)).await;
    let started = stage.start(NULL).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    let other = rusqlite::Connection::open(stage.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let stop = v1::StopRunRequest {
        run: started.run_id.to_string(),
        reason: String::from("enough"),
        ..v1::StopRunRequest::default()
    };
    let refused = stage.control().await.stop_run(stop).await.unwrap_err();
    assert!(
        refused.message().contains("the load is stopped")
            && refused
                .message()
                .contains("end the program that holds its write lock"),
        "{}",
        refused.message()
    );
    a.until_asked("stop").await;
    let refused = stage.start(NULL).await.unwrap_err();
    assert!(
        refused
            .message()
            .contains("nothing is started: the database cannot be written (another program"),
        "{}",
        refused.message()
    );
    other.execute_batch("ROLLBACK").unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("stopped", true));
    let said = messages(&updates);
    assert!(
        said.contains(
            "the collector cannot write its database (another program holds its write lock): end the program"
        ),
        "{said}"
    );
    assert!(
        said.contains("the collector could not write its database for"),
        "{said}"
    );
    assert_eq!(
        stage
            .rows(
                "select run_id, severity, json_extract(detail, '$.until_us') > json_extract(detail, '$.from_us')
                 from events where kind = 'database-blocked'"
            )
            .await,
        ["1|warning|1"]
    );
    assert_eq!(stage.rows("select count(*) from runs").await, ["1"]);
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
async fn caches_are_dropped_host_by_host_and_failures_are_recorded() {
    let stage = Stage::new().await;
    let on = |host: &str, role: &str| Script {
        host: host.to_owned(),
        labels: vec![(String::from("role"), role.to_owned())],
        ..Script::default()
    };
    let client = stage.agent("c", on("h1", "client")).await;
    let storage = stage.agent("s", on("h2", "storage")).await;
    let other = stage.agent("x", on("h3", "monitor")).await;
    let plan = "[clients]\nselect = \"role=client\"\n[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n\
                [[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]\ncache = \"cold\"\n";
    let started = stage.start(plan).await.unwrap();
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
    assert!(messages(&updates).contains("not all caches of the step were dropped"));
}
