-- What daemons cost and links carry is withheld where it cannot be told: a step with several groups is several loads that
-- the daemons serve at once, and tasks that did not run at the same time have no common rate. Flags stand beside both.

DROP VIEW v_cost;
DROP VIEW v_links;

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
       CASE WHEN o.ops > 0 AND c.is_one_load THEN c.cpu_s * 1e6 / o.ops END AS cpu_us_per_op,
       CASE WHEN o.bytes > 0 AND c.is_one_load THEN c.cpu_s / (o.bytes / 1073741824.0) END AS cpu_s_per_gib,
       c.load_groups,
       c.flags
FROM (
    SELECT s.run_id,
           s.id AS step_id,
           s.phase,
           s.target,
           s.system,
           s.mode,
           s.flags,
           d.name,
           (SELECT count(*) FROM step_groups AS g WHERE g.step_id = s.id) AS load_groups,
           (SELECT count(*) FROM step_groups AS g WHERE g.step_id = s.id) < 2
               AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap') AS is_one_load,
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
       -- Tasks that did not run at the same time are never summed.
       sum(CASE WHEN o.op = 'send' AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap')
           THEN o.bytes_per_s END) / 1048576.0 AS mib_per_s,
       min(CASE WHEN o.op = 'ping' THEN o.min_ns END) / 1000.0 AS rtt_min_us,
       max(CASE WHEN o.op = 'ping' THEN o.p50_ns END) / 1000.0 AS rtt_p50_us,
       max(CASE WHEN o.op = 'ping' THEN o.p99_ns END) / 1000.0 AS rtt_p99_us,
       sum(o.errors) AS errors,
       (SELECT json_group_array(DISTINCT j.value)
        FROM steps AS x JOIN tasks AS y ON y.step_id = x.id, json_each(x.flags) AS j
        WHERE x.run_id = s.run_id AND x.repeat = s.repeat AND x.phase = s.phase AND x.cell = s.cell
          AND y.agent_id = t.agent_id AND y.peer_agent_id = t.peer_agent_id
          AND x.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = x.run_id AND n.ordinal = x.ordinal)) AS flags
FROM steps AS s
JOIN tasks AS t ON t.step_id = s.id
JOIN agents AS a ON a.id = t.agent_id
JOIN agents AS p ON p.id = t.peer_agent_id
JOIN task_results AS o ON o.task_id = t.id
WHERE s.workload = 'network'
  AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
GROUP BY s.run_id, s.repeat, s.phase, s.cell, t.agent_id, t.peer_agent_id;
