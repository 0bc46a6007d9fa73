//! Hosts and links: CPU by state, disks and interfaces in each step, and what the network carried.

use super::steps::places;
use super::{ReportError, Statement, rows};
use crate::model::{RunId, StepId};
use crate::report::{HostReport, LinkReport, StepReport};
use sqlx::{Row, SqliteConnection};

pub(super) const HOSTS: Statement = Statement {
    what: "v_host_usage",
    sql: "SELECT u.*, u.sampled_s * u.cpus / 100.0 AS percent_s FROM v_host_usage AS u
          WHERE u.run_id = ?1 AND u.host_id IN (SELECT host_id FROM run_agents WHERE run_id = ?1)
          ORDER BY u.step_id, u.host",
};

pub(super) const LINKS: Statement = Statement {
    what: "v_links",
    sql:
        "SELECT from_agent, to_agent, max(mib_per_s) AS mib_per_s,
                 min(CASE WHEN wait = 'blocking' THEN rtt_p50_us END) AS rtt_p50_us,
                 min(CASE WHEN wait = 'busy' THEN rtt_p50_us END) AS rtt_busy_p50_us
          FROM v_links WHERE run_id = ? GROUP BY from_agent, to_agent ORDER BY from_agent, to_agent",
};

pub(super) async fn hosts(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &[StepReport],
) -> Result<Vec<HostReport>, ReportError> {
    let mut hosts = rows(connection, HOSTS, run, |row| {
        let sampled_s: f64 = row.try_get("sampled_s")?;
        let percent_s: f64 = row.try_get("percent_s")?;
        let over = |column: &str, by: f64| -> Result<Option<f64>, sqlx::Error> {
            let value: Option<f64> = row.try_get(column)?;
            Ok(value.filter(|_| by > 0.0).map(|value| value / by))
        };
        let user = over("user_s", percent_s)?;
        let nice = over("nice_s", percent_s)?;
        Ok(HostReport {
            step_id: StepId(row.try_get("step_id")?),
            host: row.try_get("host")?,
            is_client: row.try_get("is_client")?,
            cpus: row.try_get("cpus")?,
            user_percent: user.zip(nice).map(|(user, nice)| user + nice),
            system_percent: over("system_s", percent_s)?,
            irq_percent: over("irq_s", percent_s)?,
            iowait_percent: over("iowait_s", percent_s)?,
            steal_percent: over("steal_s", percent_s)?,
            busy_percent: row.try_get("busy_percent")?,
            disk_read_mib_per_s: over("disk_read_mib", sampled_s)?,
            disk_written_mib_per_s: over("disk_written_mib", sampled_s)?,
            busiest_disk_percent: row.try_get("busiest_disk_percent")?,
            received_mib_per_s: over("received_mib", sampled_s)?,
            sent_mib_per_s: over("sent_mib", sampled_s)?,
        })
    })
    .await?;
    // Of a step with several attempts only the last.
    let at = places(steps);
    hosts.retain(|host: &HostReport| at.contains_key(&host.step_id.0));
    Ok(hosts)
}

pub(super) async fn links(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<LinkReport>, ReportError> {
    rows(connection, LINKS, run, |row| {
        Ok(LinkReport {
            from_agent: row.try_get("from_agent")?,
            to_agent: row.try_get("to_agent")?,
            mib_per_s: row.try_get("mib_per_s")?,
            rtt_p50_us: row.try_get("rtt_p50_us")?,
            rtt_busy_p50_us: row.try_get("rtt_busy_p50_us")?,
        })
    })
    .await
}
