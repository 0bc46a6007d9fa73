//! Waits until the storage is idle by its samples.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{Stage, messages, state},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, interval},
};

fn plan(settle: &str) -> String {
    format!(
        "[clients]\nselect = \"role=client\"\n[[phase]]\nworkload = \"null\"\nsettle = {settle}\n"
    )
}

async fn mesh() -> (Stage, FakeAgent, Arc<FakeAgent>) {
    let stage = Stage::new().await;
    let on = |role: &str| Script {
        host: format!("host-{role}"),
        labels: vec![(String::from("role"), role.to_owned())],
        ..Script::default()
    };
    let client = stage.agent("c", on("client")).await;
    let storage = Arc::new(stage.agent("s", on("storage")).await);
    (stage, client, storage)
}

/// Samples like an agent, four times as often. Its daemon uses `share` of a CPU for `busy_for`, then nothing.
fn sampling(agent: &Arc<FakeAgent>, busy_for: Duration) -> JoinHandle<()> {
    let agent = Arc::clone(agent);
    tokio::spawn(async move {
        let began = Instant::now();
        let mut beat = interval(Duration::from_millis(250));
        loop {
            beat.tick().await;
            let busy = began.elapsed().min(busy_for).as_micros();
            agent.sample(
                i64::try_from(busy / 2).unwrap(),
                i64::try_from(busy / 4).unwrap(),
            );
        }
    })
}

/// The time of the step between its preparation and its start.
async fn run(stage: &Stage, settle: &str) -> (Duration, String) {
    let began = Instant::now();
    let started = stage.start(&plan(settle)).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    let rested = began.elapsed();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    (rested, messages(&updates))
}

#[tokio::test]
async fn a_step_waits_until_daemons_and_disks_are_idle() {
    let (stage, _client, storage) = mesh().await;
    let busy_for = Duration::from_secs(4);
    let samples = sampling(&storage, busy_for);
    let (rested, told) = run(&stage, "\"idle\"").await;
    samples.abort();
    assert!(rested > busy_for, "{rested:?}");
    assert!(!told.contains("not idle"), "{told}");
}

#[tokio::test]
async fn the_limit_ends_the_wait_and_says_what_was_busy() {
    let (stage, _client, storage) = mesh().await;
    let samples = sampling(&storage, Duration::from_secs(600));
    let (rested, told) = run(&stage, "{ idle = \"10%\", limit = \"4s\" }").await;
    samples.abort();
    assert!(rested > Duration::from_secs(4), "{rested:?}");
    for part in [
        "below 10 %",
        "within 4s",
        "most of all ceph-osd osd.3",
        "disk sda busy for",
        "host-storage",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let events = "select severity from events where kind = 'settle-limit' and step_id is not null";
    assert_eq!(stage.rows(events).await, ["warning"]);
}
