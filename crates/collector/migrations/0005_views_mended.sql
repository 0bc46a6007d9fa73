-- Four views made anew: the newest attempt of a step alone counts as done; a step shorter than the beat of the samples has
-- its daemons' use; what cannot be known of a cost is not 0; the tasks of one pair add up.

DROP VIEW v_runs;
DROP VIEW v_daemon_marks;
DROP VIEW v_cost;
DROP VIEW v_links;

CREATE VIEW v_runs AS
SELECT r.id AS run_id,
       r.name AS run,
       r.uid,
       r.state,
       r.partial,
       r.reason,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.created_us / 1000000, 'unixepoch') AS created,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.started_us / 1000000, 'unixepoch') AS started,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.ended_us / 1000000, 'unixepoch') AS ended,
       (r.ended_us - r.started_us) / 1000000.0 AS duration_s,
       (SELECT count(DISTINCT s.ordinal) FROM steps AS s WHERE s.run_id = r.id) AS steps,
       (SELECT count(*) FROM steps AS s WHERE s.run_id = r.id AND s.state = 'done'
           AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal))
           AS steps_done,
       (SELECT count(*) FROM events AS e WHERE e.run_id = r.id AND e.severity <> 'info') AS warnings,
       r.version
FROM runs AS r;

-- Per step and daemon the two samples nearest to the step's start and end. Samples are taken at both; where one is
-- missing, none that is more than 5 s outside the step is taken instead.
CREATE VIEW v_daemon_marks AS
SELECT e.step_id,
       e.daemon_id,
       -- One sample cannot stand for both ends: the one beyond the end then, or else the one before the start.
       CASE
           WHEN e.near_start_us = e.near_end_us AND e.after_end_us IS NULL THEN e.before_start_us
           ELSE e.near_start_us
       END AS from_us,
       CASE
           WHEN e.near_start_us = e.near_end_us AND e.after_end_us IS NOT NULL THEN e.after_end_us
           ELSE e.near_end_us
       END AS until_us
FROM (
    SELECT m.step_id,
           m.daemon_id,
           m.before_start_us,
           m.after_end_us,
           CASE
               WHEN m.before_start_us IS NULL THEN m.after_start_us
               WHEN m.after_start_us IS NULL THEN m.before_start_us
               WHEN m.start_us - m.before_start_us <= m.after_start_us - m.start_us THEN m.before_start_us
               ELSE m.after_start_us
           END AS near_start_us,
           CASE
               WHEN m.after_end_us IS NULL THEN m.before_end_us
               WHEN m.before_end_us IS NULL THEN m.after_end_us
               WHEN m.after_end_us - m.end_us < m.end_us - m.before_end_us THEN m.after_end_us
               ELSE m.before_end_us
           END AS near_end_us
    FROM (
        SELECT s.id AS step_id,
               d.id AS daemon_id,
               coalesce(s.measured_from_us, s.start_us) AS start_us,
               coalesce(s.last_done_us, s.ended_us) AS end_us,
               (SELECT max(x.at_us) FROM daemon_samples AS x WHERE x.daemon_id = d.id
                   AND x.at_us <= coalesce(s.measured_from_us, s.start_us)
                   AND x.at_us >= coalesce(s.measured_from_us, s.start_us) - 5000000) AS before_start_us,
               (SELECT min(x.at_us) FROM daemon_samples AS x WHERE x.daemon_id = d.id
                   AND x.at_us > coalesce(s.measured_from_us, s.start_us)
                   AND x.at_us < coalesce(s.last_done_us, s.ended_us)) AS after_start_us,
               (SELECT max(x.at_us) FROM daemon_samples AS x WHERE x.daemon_id = d.id
                   AND x.at_us <= coalesce(s.last_done_us, s.ended_us)
                   AND x.at_us > coalesce(s.measured_from_us, s.start_us)) AS before_end_us,
               (SELECT min(x.at_us) FROM daemon_samples AS x WHERE x.daemon_id = d.id
                   AND x.at_us > coalesce(s.last_done_us, s.ended_us)
                   AND x.at_us <= coalesce(s.last_done_us, s.ended_us) + 5000000) AS after_end_us
        FROM steps AS s
        -- Steps outside, daemons inside: both are few; last_seen_us may lag by a minute.
        CROSS JOIN daemons AS d
        WHERE d.first_seen_us <= coalesce(s.last_done_us, s.ended_us)
          AND d.last_seen_us + 65000000 >= s.start_us
    ) AS m
) AS e
WHERE from_us < until_us;

CREATE VIEW v_cost AS
SELECT c.run_id,
       c.step_id,
       c.phase,
       c.target,
       c.system,
       c.mode,
       c.name,
       c.daemons,
       c.cpu_s,
       o.ops,
       o.bytes,
       CASE WHEN o.ops > 0 THEN c.cpu_s * 1e6 / o.ops END AS cpu_us_per_op,
       CASE WHEN o.bytes > 0 THEN c.cpu_s / (o.bytes / 1073741824.0) END AS cpu_s_per_gib
FROM (
    SELECT s.run_id,
           s.id AS step_id,
           s.phase,
           s.target,
           s.system,
           s.mode,
           d.name,
           count(*) AS daemons,
           -- A counter that went backwards tells nothing, and neither does a sum without it.
           CASE WHEN min(u.cpu_user_us + u.cpu_system_us >= f.cpu_user_us + f.cpu_system_us)
               THEN sum(u.cpu_user_us - f.cpu_user_us + u.cpu_system_us - f.cpu_system_us) / 1e6 END AS cpu_s
    FROM v_daemon_marks AS m
    CROSS JOIN steps AS s ON s.id = m.step_id
    CROSS JOIN daemons AS d ON d.id = m.daemon_id
    CROSS JOIN daemon_samples AS f ON f.daemon_id = m.daemon_id AND f.at_us = m.from_us
    CROSS JOIN daemon_samples AS u ON u.daemon_id = m.daemon_id AND u.at_us = m.until_us
    WHERE s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
    GROUP BY s.id, d.name
) AS c
JOIN (
    SELECT step_id, sum(ops) AS ops, sum(bytes) AS bytes FROM step_results GROUP BY step_id
) AS o ON o.step_id = c.step_id;

CREATE VIEW v_links AS
SELECT s.run_id,
       s.repeat,
       s.phase,
       s.cell,
       a.name AS from_agent,
       p.name AS to_agent,
       sum(CASE WHEN o.op = 'send' THEN o.bytes_per_s END) / 1048576.0 AS mib_per_s,
       min(CASE WHEN o.op = 'ping' THEN o.min_ns END) / 1000.0 AS rtt_min_us,
       max(CASE WHEN o.op = 'ping' THEN o.p50_ns END) / 1000.0 AS rtt_p50_us,
       max(CASE WHEN o.op = 'ping' THEN o.p99_ns END) / 1000.0 AS rtt_p99_us,
       sum(o.errors) AS errors
FROM steps AS s
JOIN tasks AS t ON t.step_id = s.id
JOIN agents AS a ON a.id = t.agent_id
JOIN agents AS p ON p.id = t.peer_agent_id
JOIN task_results AS o ON o.task_id = t.id
WHERE s.workload = 'network'
  AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
GROUP BY s.run_id, s.repeat, s.phase, s.cell, t.agent_id, t.peer_agent_id;
