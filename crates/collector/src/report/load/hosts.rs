//! Hosts and links: CPU by state, disks and interfaces in each step, and what the network carried.

use super::steps::places;
use super::{ReportError, Statement, rows};
use crate::model::{RunId, StepId};
use crate::report::{BusyOther, HostReport, LinkReport, StepReport, TrafficReport};
use sqlx::{Row, SqliteConnection};

pub(super) const HOSTS: Statement = Statement {
    what: "v_host_usage",
    sql: "SELECT u.* FROM v_host_usage AS u
          WHERE u.run_id = ?1 AND u.host_id IN (SELECT host_id FROM run_agents WHERE run_id = ?1)
          ORDER BY u.step_id, u.host",
};

pub(super) const TRAFFIC: Statement = Statement {
    what: "v_traffic",
    sql: "SELECT * FROM v_traffic WHERE run_id = ? ORDER BY step_id, host, host_id",
};

/// Hosts that were sampled until the end of the last step and sent no sample of that end.
pub(super) const AWAITED: Statement = Statement {
    what: "host_samples",
    sql: crate::store::HOSTS_AWAITED,
};

/// A reading of them reaches over the ends of a step: it counts by the part of its time that lies within.
pub(super) const OTHERS: Statement = Statement {
    what: "host_samples",
    sql: "WITH meant AS (
              SELECT s.id AS step_id, coalesce(s.measured_from_us, s.start_us) AS from_us, s.last_done_us AS until_us,
                     e.host_id, min(e.host) AS host
              FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id
                   CROSS JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
              WHERE s.run_id = ?1 AND s.last_done_us > coalesce(s.measured_from_us, s.start_us)
                    AND EXISTS (SELECT 1 FROM json_each(s.flags) WHERE value IN ('tool-bound', 'cpu-short'))
              GROUP BY s.id, e.host_id)
          SELECT m.step_id, m.host, p.value ->> 'name' AS name,
                 100.0 / (m.until_us - m.from_us)
                     * sum((p.value ->> 'cpu_us') * max(0.0, min(x.busy_others ->> 'until_us', m.until_us)
                                                           - max(x.busy_others ->> 'from_us', m.from_us))
                           / max(1, (x.busy_others ->> 'until_us') - (x.busy_others ->> 'from_us'))) AS percent
          FROM meant AS m
               CROSS JOIN host_samples AS x ON x.host_id = m.host_id
                   AND x.at_us BETWEEN m.from_us AND m.until_us + 30000000
               CROSS JOIN json_each(x.busy_others, '$.processes') AS p
          WHERE x.busy_others IS NOT NULL
          GROUP BY m.step_id, m.host_id, 3 HAVING percent >= 1 ORDER BY percent DESC, name, m.step_id",
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
        Ok(HostReport {
            step_id: StepId(row.try_get("step_id")?),
            host: row.try_get("host")?,
            is_client: row.try_get("is_client")?,
            cpus: row.try_get("cpus")?,
            user_percent: row.try_get("user_percent")?,
            system_percent: row.try_get("system_percent")?,
            iowait_percent: row.try_get("iowait_percent")?,
            steal_percent: row.try_get("steal_percent")?,
            busy_percent: row.try_get("busy_percent")?,
            disk_read_mib_per_s: row.try_get("disk_read_mib_per_s")?,
            disk_written_mib_per_s: row.try_get("disk_written_mib_per_s")?,
            busiest_disk_percent: row.try_get("busiest_disk_percent")?,
            busiest_disk: row.try_get("busiest_disk")?,
            received_mib_per_s: row.try_get("received_mib_per_s")?,
            sent_mib_per_s: row.try_get("sent_mib_per_s")?,
        })
    })
    .await?;
    // Of a step with several attempts only the last.
    let at = places(steps);
    hosts.retain(|host: &HostReport| at.contains_key(&host.step_id.0));
    Ok(hosts)
}

/// Who else took CPU time in the steps that are flagged for it, the most first.
pub(super) async fn busy_others(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &[StepReport],
) -> Result<Vec<BusyOther>, ReportError> {
    let mut others = rows(connection, OTHERS, run, |row| {
        Ok(BusyOther {
            step_id: StepId(row.try_get("step_id")?),
            host: row.try_get("host")?,
            name: row.try_get("name")?,
            percent: row.try_get("percent")?,
        })
    })
    .await?;
    let at = places(steps);
    others.retain(|other: &BusyOther| at.contains_key(&other.step_id.0));
    Ok(others)
}

/// Adds what carried the data of each step.
pub(super) async fn add_traffic(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let all = rows(connection, TRAFFIC, run, |row| {
        let step: i64 = row.try_get("step_id")?;
        let traffic = TrafficReport {
            host: row.try_get("host")?,
            read_mib: row.try_get("read_mib")?,
            written_mib: row.try_get("written_mib")?,
            received_mib: row.try_get("received_mib")?,
            sent_mib: row.try_get("sent_mib")?,
            disk_read_mib: row.try_get("disk_read_mib")?,
            disk_written_mib: row.try_get("disk_written_mib")?,
            received_bytes_per_op: row.try_get("received_bytes_per_op")?,
            sent_bytes_per_op: row.try_get("sent_bytes_per_op")?,
            cached_percent: row.try_get("cached_percent")?,
            not_judged: row.try_get("not_judged")?,
        };
        Ok((step, traffic))
    })
    .await?;
    let at = places(steps);
    for (step, traffic) in all {
        if let Some(step) = at.get(&step).and_then(|at| steps.get_mut(*at)) {
            step.traffic.push(traffic);
        }
    }
    Ok(())
}

pub(super) async fn awaited(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<String>, ReportError> {
    rows(connection, AWAITED, run, |row| row.try_get(0)).await
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
