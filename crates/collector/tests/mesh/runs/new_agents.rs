//! Agents that have joined a mesh but have not been in any of its runs.

use super::*;
use benchmesh_proto::CONTROL_VERSION;
use benchmesh_scheduler::snapshot::RunStarted;

async fn started(stage: &Stage, dry_run: bool, new_agents: bool) -> RunStarted {
    let request = v1::StartRunRequest {
        wire_version: CONTROL_VERSION,
        plan_name: String::from("p.toml"),
        plan_toml: String::from(NULL),
        dry_run,
        new_agents,
        ..v1::StartRunRequest::default()
    };
    let mut control = stage.control().await;
    shown(
        &control
            .start_run(request)
            .await
            .unwrap()
            .get_ref()
            .started_json,
    )
}

#[tokio::test]
async fn an_agent_that_was_in_no_run_is_left_out_and_named() {
    let stage = Stage::new().await;
    let _a = stage.agent("a", Script::default()).await;
    let _b = stage.agent("b", Script::default()).await;
    // In a mesh without runs no agent is new.
    let first = started(&stage, false, false).await;
    assert_eq!((first.steps[0].agents.len(), first.warnings.len()), (2, 0));
    stage.watch(first.run_id).await;
    let _x = stage.agent("x", Script::default()).await;
    for dry_run in [true, false] {
        let reply = started(&stage, dry_run, false).await;
        assert_eq!(reply.steps[0].agents, ["a", "b"]);
        assert_eq!(
            reply.warnings,
            [
                "left out: `x`, which has been in no run yet; --new-agents takes it along, or name it in [clients]"
            ]
        );
        if !dry_run {
            stage.watch(reply.run_id).await;
        }
    }
    let taken = started(&stage, false, true).await;
    assert_eq!(taken.steps[0].agents, ["a", "b", "x"]);
    stage.watch(taken.run_id).await;
    // From then on it is known.
    let reply = started(&stage, true, false).await;
    assert_eq!((reply.steps[0].agents.len(), reply.warnings.len()), (3, 0));
}
