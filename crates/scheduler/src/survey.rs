//! Surveys one agent: facts about paths, and the inventory of its host.

use crate::sessions::{
    Call, Fleet,
    command::{AgentAnswer, Command, Survey},
};
use benchmesh_model::mesh::AgentId;
use std::time::Duration;

/// Time limit of a survey. A file system that takes longer to answer `statfs` cannot be measured either.
pub(super) const SURVEY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit without paths: the agent reads only its inventory.
const INVENTORY_TIMEOUT: Duration = Duration::from_secs(3);

/// Surveys one agent. An agent without a session for `loss_after` counts as lost. Paths that were not requested are
/// dropped from the answer, because it is stored with the run. The error is a sentence.
pub(super) async fn ask(
    fleet: &Fleet,
    agent: AgentId,
    paths: Vec<String>,
    sources: Vec<String>,
    loss_after: Duration,
) -> Result<Survey, String> {
    let within = match paths.is_empty() {
        true => INVENTORY_TIMEOUT.max(loss_after.min(SURVEY_TIMEOUT)),
        false => SURVEY_TIMEOUT,
    };
    let asked = [paths.clone(), sources.clone()];
    let command = Command::Survey { paths, sources };
    let call = Call::to(agent, command, loss_after).within(within);
    match fleet.call(call).await {
        Ok(AgentAnswer::Survey(mut survey)) => {
            let [paths, sources] = asked;
            survey.paths.retain(|(path, _)| paths.contains(path));
            survey.sources.retain(|(path, _)| sources.contains(path));
            Ok(survey)
        }
        Ok(_) => Err(String::from("the agent's answer is not a survey")),
        Err(error) => Err(error.to_string()),
    }
}
