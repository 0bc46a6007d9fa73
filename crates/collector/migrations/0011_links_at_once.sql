-- v_links: which links were measured at once, how round trips were waited for, and requests. Tasks of one pair add up
-- within a step only; where a cell has several steps of one mode (a load curve), the best of them stands there.
-- Windows instead of a second GROUP BY: a run's rows are then found by its id (SQLite hands a condition down through
-- partitions and one GROUP BY, not through two), and links are counted once per step instead of once per link.

DROP VIEW v_links;

CREATE VIEW v_links AS
SELECT l.run_id,
       l.repeat,
       l.phase,
       l.cell,
       a.name AS from_agent,
       p.name AS to_agent,
       l.links_at_once,
       l.mib_per_s,
       l.wait,
       l.rtt_min_us,
       l.rtt_p50_us,
       l.rtt_p99_us,
       l.requests_per_s,
       l.request_p50_us,
       l.request_p99_us,
       l.errors,
       (SELECT json_group_array(DISTINCT flag.value)
        FROM json_each(l.flags_of_steps) AS of_step, json_each(of_step.value) AS flag) AS flags
FROM (
    SELECT run_id,
           repeat,
           phase,
           cell,
           agent_id,
           peer_agent_id,
           max(links_at_once) OVER link AS links_at_once,
           max(mib_per_s) OVER link AS mib_per_s,
           max(wait) OVER link AS wait,
           min(rtt_min_us) OVER link AS rtt_min_us,
           min(rtt_p50_us) OVER link AS rtt_p50_us,
           min(rtt_p99_us) OVER link AS rtt_p99_us,
           -- Of one step, the one that most were answered in: its rate and its times belong together.
           first_value(requests_per_s) OVER most_first AS requests_per_s,
           first_value(request_p50_us) OVER most_first AS request_p50_us,
           first_value(request_p99_us) OVER most_first AS request_p99_us,
           sum(errors) OVER link AS errors,
           json_group_array(json(flags)) OVER link AS flags_of_steps,
           row_number() OVER most_first AS place
    FROM (
        SELECT *, count(*) OVER (PARTITION BY run_id, step_id) AS links_at_once
        FROM (
            SELECT s.run_id,
                   s.id AS step_id,
                   s.repeat,
                   s.phase,
                   s.cell,
                   s.flags,
                   t.agent_id,
                   t.peer_agent_id,
                   -- Tasks that did not run at the same time are never summed.
                   sum(CASE WHEN o.op = 'send'
                            AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap')
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
                   sum(o.errors) AS errors,
                   count(o.task_id) AS results
            FROM steps AS s
            JOIN tasks AS t ON t.step_id = s.id AND t.peer_agent_id IS NOT NULL
            LEFT JOIN task_results AS o ON o.task_id = t.id
            LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = t.group_name
            WHERE s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
            GROUP BY s.run_id, s.id, t.agent_id, t.peer_agent_id))
    WHERE results > 0
    WINDOW link AS (PARTITION BY run_id, repeat, phase, cell, agent_id, peer_agent_id),
           most_first AS (PARTITION BY run_id, repeat, phase, cell, agent_id, peer_agent_id
                          ORDER BY requests_per_s DESC NULLS LAST, request_p50_us NULLS LAST, step_id)
) AS l
JOIN agents AS a ON a.id = l.agent_id
JOIN agents AS p ON p.id = l.peer_agent_id
WHERE l.place = 1;
