//! Clients that a step went on without, and what they had done, from the tasks and their results.

use super::steps::places;
use super::{ReportError, Statement, rows};
use crate::model::RunId;
use crate::report::StepReport;
use crate::results::Missing;
use sqlx::{Row, SqliteConnection};

/// Of a step that was stopped as a whole, the tasks that were stopped with it are not missing.
pub(super) const MISSING: Statement = Statement {
    what: "tasks",
    sql: "SELECT t.step_id, coalesce(e.name, a.name) AS agent, t.state, coalesce(sum(o.ops), 0) AS ops, coalesce(sum(o.bytes), 0) AS bytes,
                 coalesce(t.ended_us, (SELECT i.at_us + i.span_us FROM op_intervals AS i WHERE i.task_id = t.id
                                       ORDER BY i.at_us DESC LIMIT 1))
                     - coalesce(t.start_us, s.start_us) AS ran_us
          FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id JOIN agents AS a ON a.id = t.agent_id
               LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
               LEFT JOIN task_results AS o ON o.task_id = t.id
          WHERE s.run_id = ? AND s.state IN ('done', 'failed', 'stopped')
            AND (t.state IN ('lost', 'failed') OR (t.state = 'stopped' AND s.state = 'done'))
          GROUP BY t.id ORDER BY t.step_id, t.task_index",
};

/// Adds to each step the tasks that did not end as they should.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let missing = rows(connection, MISSING, run, |row| {
        Ok((
            row.try_get::<i64, _>("step_id")?,
            Missing {
                agent: row.try_get("agent")?,
                state: row.try_get("state")?,
                ran_us: row.try_get("ran_us")?,
                ops: row.try_get("ops")?,
                bytes: row.try_get("bytes")?,
            },
        ))
    })
    .await?;
    let at = places(steps);
    for (step, one) in missing {
        if let Some(step) = at.get(&step).and_then(|at| steps.get_mut(*at)) {
            step.missing.push(one);
        }
    }
    Ok(())
}
