//! The order of cells: requested, drawn and stored.

use super::{
    fake_agent::Script,
    stage::{Stage, messages, state},
};
use std::time::Duration;

const CELLS: &str =
    "[[phase]]\nworkload = \"null\"\nmatrix = { numjobs = [1, 2, 3, 4, 5, 6, 7, 8] }\n";

#[tokio::test]
async fn a_random_order_is_kept_with_its_seed_and_outlives_the_collector() {
    let stage = Stage::new().await;
    let script = Script {
        runs_for: Duration::from_millis(50),
        ..Script::default()
    };
    let agent = stage.agent("a", script).await;
    let started = stage
        .start(&format!("order = \"random\"\n{CELLS}"))
        .await
        .unwrap();
    // The collector is replaced in the middle; the new one expands the same plan.
    stage.until_step(started.run_id, "running").await;
    let stage = stage.restarted().await;
    agent.attach(stage.address).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    let seeds = stage.rows("select order_seed from runs").await;
    let seed: u32 = seeds[0].parse().unwrap();
    let told = messages(&updates);
    assert!(told.contains(&format!("seed {seed}")), "{told}");
    let drawn = stage
        .rows("select json_extract(params, '$.numjobs') from steps order by ordinal")
        .await;
    let planned: Vec<String> = started
        .steps
        .iter()
        .map(|step| step.params["numjobs"].to_string())
        .collect();
    assert_eq!(drawn, planned);
}
