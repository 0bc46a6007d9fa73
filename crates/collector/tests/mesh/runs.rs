//! Runs from their start to their end: the commands that agents get, and what callers see. Losses, returns and restarts
//! are in the scheduler's simulation, and with real processes in the tests from outside.

mod new_agents;
mod queue;

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{Stage, messages, shown, state},
};
use benchmesh_model::mesh::StepState;
use benchmesh_proto::v1;
use benchmesh_scheduler::snapshot::{RunListed, RunUpdate};
use benchmesh_store::annotate::RunSearch;
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
    // Steps that were not measured are not done, for watchers, in the list and in the database.
    assert!(
        messages(&updates).contains("step 2 is not measured: an earlier mode of the cell failed"),
        "{}",
        messages(&updates)
    );
    let last = &updates.last().unwrap().run;
    assert_eq!((last.steps_done, last.steps_total), (0, 2));
    let search = RunSearch {
        limit: 1,
        ..RunSearch::default()
    };
    let request = v1::ListRunsRequest {
        search_json: serde_json::to_vec(&search).unwrap(),
    };
    let listed = stage.control().await.list_runs(request).await.unwrap();
    let listed: Vec<RunListed> = shown(&listed.get_ref().runs_json);
    assert_eq!((listed[0].steps_done, listed[0].steps), (0, 2));
    assert_eq!(
        stage.rows("SELECT steps_done, steps FROM v_runs").await,
        ["0|2"]
    );
    // A later watcher sees the duration of the run, not the time since it began, and the reason once.
    let took = stage
        .rows("SELECT ended_us - started_us FROM runs")
        .await
        .remove(0);
    let again = stage.watch(started.run_id).await;
    assert_eq!(again.last().unwrap().run.elapsed_us.to_string(), took);
    let why = "failed: no operation succeeded, 100 failed";
    let told = messages(&again);
    assert_eq!(told.matches(why).count(), 1, "{told}");
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
    let finished: Vec<_> = updates
        .iter()
        .flat_map(|update| &update.run.finished)
        .collect();
    let told: Vec<_> = finished
        .iter()
        .map(|step| (step.mode.as_str(), step.state.as_str()))
        .collect();
    assert_eq!(told, [("write", "done"), ("read", "done")]);
    assert_eq!(
        (finished[0].ops[0].ops, finished[0].max_skew_us),
        (200, Some(10))
    );
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

/// Removed files while a step was in state `cleaning`.
fn removed_while_cleaning(updates: &[RunUpdate]) -> Vec<u64> {
    let cleaning = updates.iter().filter(|update| {
        let step = update.run.step.as_ref();
        step.is_some_and(|step| step.state == StepState::Cleaning)
    });
    cleaning
        .filter_map(|update| update.run.removed_files)
        .collect()
}

#[tokio::test]
async fn the_removal_of_data_is_a_state_with_progress() {
    let stage = Stage::new().await;
    let script = Script {
        removes: 4,
        ..Script::default()
    };
    let agents = [
        stage.agent("a", script.clone()).await,
        stage.agent("b", script).await,
    ];
    let write = IO.replace(", \"read\"", "");
    let started = stage.start(&write).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    // The sum over both agents.
    let cleaning = removed_while_cleaning(&updates);
    assert!(cleaning.iter().max() > Some(&4), "{cleaning:?}");
    // Then the owner alone removes the run's directory, while no step is under way.
    let last: Vec<u64> = updates
        .iter()
        .filter(|update| update.run.step.is_none())
        .filter_map(|update| update.run.removed_files)
        .collect();
    assert!(last.iter().max() > Some(&1), "{last:?}");
    assert!(updates.last().unwrap().run.removed_files.is_none());
    // A stopped step is shown as cleaning while the directory is removed.
    for agent in &agents {
        agent.script(|script| script.runs_for = Duration::from_secs(600));
    }
    let started = stage.start(&write).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    stop(&stage, started.run_id).await;
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("stopped", true));
    let cleaning = removed_while_cleaning(&updates);
    assert!(cleaning.iter().max() > Some(&1), "{cleaning:?}");
}
