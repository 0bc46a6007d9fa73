//! Flags raised by stored rows: events, losses, samples. Each has an SQL condition on the step `?1`.
//!
//! They are evaluated with the figures of a step, and again with samples that come late. Flags raised by the sums of
//! a step are in [`benchmesh_results::sum`].

use crate::database::{Doing, StoreError, WriteRows};
use benchmesh_model::mesh::StepId;
use benchmesh_results::Flag;
use sqlx::{AssertSqlSafe, Row, SqliteConnection, SqliteExecutor};

const CONDITIONS: &[(Flag, &str)] = &[
    (
        Flag::ClientFrozen,
        "SELECT 1 FROM events AS e WHERE e.step_id = ?1 AND e.kind = 'client-frozen'
             AND e.agent_id IN (SELECT agent_id FROM tasks WHERE step_id = ?1)",
    ),
    (
        Flag::ClockGap,
        "SELECT 1 FROM events AS e WHERE e.step_id = ?1 AND e.kind = 'clock-gap'
             AND e.agent_id IN (SELECT agent_id FROM tasks WHERE step_id = ?1)",
    ),
    (
        Flag::NotSteady,
        "SELECT 1 FROM events AS e WHERE e.step_id = ?1 AND e.kind = 'not-steady'",
    ),
    (
        Flag::BatchesLost,
        "SELECT 1 FROM steps AS s JOIN tasks AS t ON t.step_id = s.id AND t.state <> 'lost' JOIN losses AS l ON l.agent_id = t.agent_id
             AND l.from_us <= coalesce(t.ended_us, s.ended_us) AND l.until_us >= coalesce(t.start_us, s.start_us)
         WHERE s.id = ?1 AND (l.what = 'operations' AND l.rows > 0 OR l.what = 'batches' AND NOT EXISTS (
             SELECT 1 FROM losses AS o WHERE o.agent_id = l.agent_id AND o.what = 'operations'
                 AND o.from_us = l.from_us AND o.until_us = l.until_us))",
    ),
    (
        Flag::CpuStolen,
        "SELECT 1 FROM v_host_usage WHERE step_id = ?1 AND is_client AND steal_percent > 10",
    ),
];

/// The flags raised by the rows stored now.
pub(super) async fn found(
    executor: impl SqliteExecutor<'_>,
    step: StepId,
) -> Result<Vec<Flag>, StoreError> {
    let columns = CONDITIONS
        .iter()
        .map(|(_, condition)| format!("EXISTS ({condition})"));
    let columns: Vec<String> = columns.collect();
    const DOING: &str = "look for flags of a step";
    let row = sqlx::query(AssertSqlSafe(format!("SELECT {}", columns.join(", "))))
        .bind(step.0)
        .fetch_one(executor)
        .await
        .doing(DOING)?;
    let mut found = Vec::new();
    for (column, (flag, _)) in CONDITIONS.iter().enumerate() {
        if row.try_get(column).doing(DOING)? {
            found.push(*flag);
        }
    }
    Ok(found)
}

/// Evaluates the flags of the step again, in the transaction that stores late data.
pub(super) async fn judge(
    step: StepId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let found = found(&mut *connection, step).await?;
    for (flag, _) in CONDITIONS {
        set(step, *flag, found.contains(flag), connection).await?;
    }
    Ok(())
}

/// Raises or clears a flag of a step.
pub(super) async fn set(
    step: StepId,
    flag: Flag,
    raised: bool,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE steps SET flags = (SELECT json_group_array(value) FROM (
             SELECT value FROM json_each(flags) WHERE value <> ?2 UNION ALL SELECT ?2 WHERE ?3))
         WHERE id = ?1 AND ?3 <> EXISTS (SELECT 1 FROM json_each(flags) WHERE value = ?2)",
    )
    .bind(step.0)
    .bind(flag.as_str())
    .bind(raised)
    .write(connection, "flag a step")
    .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use crate::tests::{Mesh, S, T0, batch, interval, new_step, send, task_end};

    /// Stores rows by this SQL for a step of four seconds, and returns its flags.
    async fn flagged_by(sql: &str) -> String {
        let mesh = Mesh::new().await;
        let (publisher, agent, _) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let (step, tasks) = mesh
            .step(run, new_step(0, "files", "create"), &[agent])
            .await;
        let mut one = batch("s", 1);
        one.op_intervals = (0..4)
            .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
            .collect();
        one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
        send(&publisher, one).await.unwrap();
        rusqlite::Connection::open(mesh.path())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        mesh.finish(step, T0 + 4 * S).await;
        sqlx::query_scalar("SELECT flags FROM steps WHERE id = ?")
            .bind(step.0)
            .fetch_one(mesh.store.reader())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn rows_of_a_step_raise_their_flags() {
        let event = |kind: &str| {
            format!(
                "INSERT INTO events (at_us, run_id, step_id, agent_id, severity, kind, message)
                 SELECT {T0}, run_id, id, 1, 'warning', '{kind}', '' FROM steps"
            )
        };
        let loss = |what: &str, rows: i64, at: i64| {
            format!("INSERT INTO losses VALUES (NULL, 1, '{what}', {rows}, {at}, {at});")
        };
        let steal = |us: i64| {
            format!(
                "INSERT INTO host_samples (host_id, at_us, user_us, nice_us, system_us, idle_us, iowait_us, irq_us,
                     softirq_us, steal_us, memory_total_bytes, memory_available_bytes, memory_free_bytes, cached_bytes,
                     dirty_bytes, writeback_bytes, swap_used_bytes, load1)
                 SELECT 1, value, 0, 0, 0, 0, 0, 0, 0, iif(value = {T0}, 0, {us}), 0, 0, 0, 0, 0, 0, 0, 0
                 FROM json_each('[{T0}, {}]')",
                T0 + 4 * S
            )
        };
        let batches = loss("batches", 3, T0 + S);
        for (sql, expected) in [
            (String::new(), "[]"),
            (event("stall"), "[]"),
            (event("client-frozen"), r#"["client-frozen"]"#),
            (event("clock-gap"), r#"["clock-gap"]"#),
            (event("not-steady"), r#"["not-steady"]"#),
            (batches.clone(), r#"["batches-lost"]"#),
            (batches.clone() + &loss("operations", 0, T0 + S), "[]"),
            (
                batches + &loss("operations", 7, T0 + S),
                r#"["batches-lost"]"#,
            ),
            (loss("batches", 3, T0 - S), "[]"),
            (loss("host_samples", 3, T0 + S), "[]"),
            // Relative to four seconds of the host's CPUs.
            (steal(S / 2), "[]"),
            (steal(S), r#"["cpu-stolen"]"#),
        ] {
            assert_eq!(flagged_by(&sql).await, expected, "{sql}");
        }
    }
}
