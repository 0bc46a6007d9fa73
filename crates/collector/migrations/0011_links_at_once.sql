-- v_links: which links were measured at once, how round trips were waited for, and requests. Tasks of one pair add up
-- within a step only; where a cell has several steps of one mode (a load curve), the best of them stands there.

DROP VIEW v_links;

CREATE VIEW v_links AS
SELECT l.run_id,
       l.repeat,
       l.phase,
       l.cell,
       a.name AS from_agent,
       p.name AS to_agent,
       max(l.links_at_once) AS links_at_once,
       max(l.mib_per_s) AS mib_per_s,
       max(l.wait) AS wait,
       min(l.rtt_min_us) AS rtt_min_us,
       min(l.rtt_p50_us) AS rtt_p50_us,
       min(l.rtt_p99_us) AS rtt_p99_us,
       max(l.requests_per_s) AS requests_per_s,
       min(l.request_p50_us) AS request_p50_us,
       min(l.request_p99_us) AS request_p99_us,
       sum(l.errors) AS errors,
       (SELECT json_group_array(DISTINCT j.value)
        FROM steps AS x JOIN tasks AS y ON y.step_id = x.id, json_each(x.flags) AS j
        WHERE x.run_id = l.run_id AND x.repeat = l.repeat AND x.phase = l.phase AND x.cell = l.cell
          AND y.agent_id = l.agent_id AND y.peer_agent_id = l.peer_agent_id
          AND x.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = x.run_id AND n.ordinal = x.ordinal)) AS flags
FROM (
    SELECT s.run_id,
           s.repeat,
           s.phase,
           s.cell,
           t.agent_id,
           t.peer_agent_id,
           (SELECT count(DISTINCT beside.agent_id || '>' || beside.peer_agent_id)
            FROM tasks AS beside WHERE beside.step_id = s.id) AS links_at_once,
           -- Tasks that did not run at the same time are never summed.
           sum(CASE WHEN o.op = 'send' AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap')
               THEN o.bytes_per_s END) / 1048576.0 AS mib_per_s,
           -- Steps from before the key existed waited blocking, all of them.
           max(CASE WHEN o.op IN ('ping', 'request')
               THEN coalesce(json_extract(coalesce(g.params, s.params), '$.wait'), 'blocking') END) AS wait,
           min(CASE WHEN o.op = 'ping' THEN o.min_ns END) / 1000.0 AS rtt_min_us,
           max(CASE WHEN o.op = 'ping' THEN o.p50_ns END) / 1000.0 AS rtt_p50_us,
           max(CASE WHEN o.op = 'ping' THEN o.p99_ns END) / 1000.0 AS rtt_p99_us,
           sum(CASE WHEN o.op = 'request'
                    AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap')
               THEN o.ops_per_s END) AS requests_per_s,
           max(CASE WHEN o.op = 'request' THEN o.p50_ns END) / 1000.0 AS request_p50_us,
           max(CASE WHEN o.op = 'request' THEN o.p99_ns END) / 1000.0 AS request_p99_us,
           sum(o.errors) AS errors
    FROM steps AS s
    JOIN tasks AS t ON t.step_id = s.id AND t.peer_agent_id IS NOT NULL
    JOIN task_results AS o ON o.task_id = t.id
    LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = t.group_name
    WHERE s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
    GROUP BY s.id, t.agent_id, t.peer_agent_id
) AS l
JOIN agents AS a ON a.id = l.agent_id
JOIN agents AS p ON p.id = l.peer_agent_id
GROUP BY l.run_id, l.repeat, l.phase, l.cell, l.agent_id, l.peer_agent_id;
