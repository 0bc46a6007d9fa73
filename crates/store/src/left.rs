//! Directories that were left behind at the end of their runs, from `directory-left` events. They are removed when
//! the agent attaches again.

use super::{Doing, Store, StoreError};
use benchmesh_model::mesh::{AgentId, RunId};

/// A run's directory that an agent could not remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryLeft {
    pub run: RunId,
    pub run_uid: String,
    pub path: String,
}

impl Store {
    /// The directories left on an agent that have not been removed since. Those of a resumed run are excluded,
    /// because it uses them again.
    pub async fn directories_left(&self, agent: AgentId) -> Result<Vec<DirectoryLeft>, StoreError> {
        sqlx::query_as(
            "SELECT e.run_id, e.detail ->> 'run_uid', e.detail ->> 'path' FROM events AS e
             JOIN runs AS r ON r.id = e.run_id AND r.state NOT IN ('queued', 'running')
             WHERE e.agent_id = ?1 AND e.kind = 'directory-left'
               AND e.detail ->> 'run_uid' IS NOT NULL AND e.detail ->> 'path' IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM events AS g WHERE g.run_id = e.run_id AND g.agent_id = ?1 AND g.id > e.id
                   AND g.kind = 'directory-removed' AND g.detail ->> 'path' = e.detail ->> 'path')
             GROUP BY e.run_id, e.detail ->> 'path'",
        )
        .bind(agent.0)
        .fetch_all(self.reader())
        .await
        .map(|rows: Vec<(i64, String, String)>| {
            rows.into_iter()
                .map(|(run, run_uid, path)| DirectoryLeft {
                    run: RunId(run),
                    run_uid,
                    path,
                })
                .collect()
        })
        .doing("look for directories left behind")
    }
}
