-- Views for people: people's units, names that need no quoting. docs/database.md is their reference.
-- Nothing is stored for them; each is answered through the tables' keys. CROSS JOIN fixes the order of the loops: without
-- statistics SQLite would rather scan the samples.

CREATE VIEW v_agents AS
SELECT a.id AS agent_id,
       a.name AS agent,
       a.uid,
       h.name AS host,
       h.id AS host_id,
       h.kernel,
       h.cpus,
       round(h.memory_bytes / 1073741824.0, 2) AS memory_gib,
       a.labels,
       a.version,
       strftime('%Y-%m-%dT%H:%M:%SZ', a.first_seen_us / 1000000, 'unixepoch') AS first_seen,
       strftime('%Y-%m-%dT%H:%M:%SZ', a.last_seen_us / 1000000, 'unixepoch') AS last_seen,
       (SELECT o.offset_us FROM clock_offsets AS o WHERE o.agent_id = a.id ORDER BY o.at_us DESC LIMIT 1) / 1000.0
           AS clock_offset_ms,
       (SELECT o.error_us FROM clock_offsets AS o WHERE o.agent_id = a.id ORDER BY o.at_us DESC LIMIT 1) / 1000.0
           AS clock_error_ms
FROM agents AS a
JOIN hosts AS h ON h.id = a.host_id;

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
       (SELECT count(DISTINCT s.ordinal) FROM steps AS s WHERE s.run_id = r.id AND s.state = 'done') AS steps_done,
       (SELECT count(*) FROM events AS e WHERE e.run_id = r.id AND e.severity <> 'info') AS warnings,
       r.version
FROM runs AS r;

CREATE VIEW v_results AS
SELECT s.run_id,
       r.name AS run,
       s.id AS step_id,
       s.ordinal,
       s.repeat,
       s.phase,
       s.target,
       s.system,
       s.workload,
       s.mode,
       s.params,
       s.clients,
       s.cache,
       s.state,
       o.op,
       o.ops_per_s,
       o.bytes_per_s / 1048576.0 AS mib_per_s,
       o.mean_ns / 1e6 AS mean_ms,
       o.p50_ns / 1e6 AS p50_ms,
       o.p90_ns / 1e6 AS p90_ms,
       o.p99_ns / 1e6 AS p99_ms,
       o.p999_ns / 1e6 AS p999_ms,
       o.max_ns / 1e6 AS max_ms,
       o.response_p99_ns / 1e6 AS response_p99_ms,
       o.ops,
       o.bytes,
       o.errors,
       o.headline,
       o.window_us / 1e6 AS window_s,
       o.last_done_us / 1e6 AS last_done_s,
       (SELECT max(abs(t.skew_us)) FROM tasks AS t WHERE t.step_id = s.id) / 1000.0 AS max_skew_ms,
       (SELECT max(t.skew_error_us) FROM tasks AS t WHERE t.step_id = s.id) / 1000.0 AS skew_error_ms,
       s.flags
FROM steps AS s
JOIN runs AS r ON r.id = s.run_id
JOIN step_results AS o ON o.step_id = s.id
WHERE s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal);

CREATE VIEW v_timeline AS
SELECT s.run_id,
       i.step_id,
       s.attempt,
       s.phase,
       s.target,
       s.mode,
       i.op,
       (i.at_us - s.start_us) / 1e6 AS second,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.at_us / 1e6, 'unixepoch') AS at,
       i.at_us,
       i.ramp,
       i.tasks,
       i.ops,
       i.ops * 1e6 / i.span_us AS ops_per_s,
       i.bytes * 1e6 / i.span_us / 1048576.0 AS mib_per_s,
       i.mean_ns / 1e6 AS mean_ms,
       i.p50_ns / 1e6 AS p50_ms,
       i.p99_ns / 1e6 AS p99_ms,
       i.max_ns / 1e6 AS max_ms,
       i.errors
FROM step_intervals AS i
JOIN steps AS s ON s.id = i.step_id;

-- Per step and daemon the two samples nearest to the step's start and end. Samples are taken at both; where one is
-- missing, none that is more than 5 s outside the step is taken instead.
CREATE VIEW v_daemon_marks AS
SELECT m.step_id,
       m.daemon_id,
       CASE
           WHEN m.before_start_us IS NULL THEN m.after_start_us
           WHEN m.after_start_us IS NULL THEN m.before_start_us
           WHEN m.start_us - m.before_start_us <= m.after_start_us - m.start_us THEN m.before_start_us
           ELSE m.after_start_us
       END AS from_us,
       CASE
           WHEN m.after_end_us IS NULL THEN m.before_end_us
           WHEN m.before_end_us IS NULL THEN m.after_end_us
           WHEN m.after_end_us - m.end_us < m.end_us - m.before_end_us THEN m.after_end_us
           ELSE m.before_end_us
       END AS until_us
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
WHERE from_us < until_us;

CREATE VIEW v_daemon_usage AS
SELECT s.run_id,
       s.id AS step_id,
       s.attempt,
       s.phase,
       s.target,
       s.mode,
       h.name AS host,
       d.name,
       d.instance,
       d.pid,
       d.id AS daemon_id,
       (u.at_us - f.at_us) / 1e6 AS sampled_s,
       CASE WHEN u.cpu_user_us + u.cpu_system_us >= f.cpu_user_us + f.cpu_system_us
           THEN (u.cpu_user_us - f.cpu_user_us + u.cpu_system_us - f.cpu_system_us) / 1e6 END AS cpu_s,
       CASE WHEN u.cpu_user_us + u.cpu_system_us >= f.cpu_user_us + f.cpu_system_us
           THEN (u.cpu_user_us - f.cpu_user_us + u.cpu_system_us - f.cpu_system_us) * 100.0 / (u.at_us - f.at_us) END
           AS cpu_percent,
       f.rss_bytes / 1048576.0 AS rss_first_mib,
       (SELECT min(x.rss_bytes) FROM daemon_samples AS x
           WHERE x.daemon_id = m.daemon_id AND x.at_us BETWEEN m.from_us AND m.until_us) / 1048576.0 AS rss_min_mib,
       (SELECT max(x.rss_bytes) FROM daemon_samples AS x
           WHERE x.daemon_id = m.daemon_id AND x.at_us BETWEEN m.from_us AND m.until_us) / 1048576.0 AS rss_max_mib,
       u.rss_bytes / 1048576.0 AS rss_last_mib,
       CASE WHEN u.read_bytes >= f.read_bytes THEN (u.read_bytes - f.read_bytes) / 1048576.0 END AS read_mib,
       CASE WHEN u.write_bytes >= f.write_bytes THEN (u.write_bytes - f.write_bytes) / 1048576.0 END AS written_mib,
       u.threads,
       u.fds
FROM v_daemon_marks AS m
CROSS JOIN steps AS s ON s.id = m.step_id
CROSS JOIN daemons AS d ON d.id = m.daemon_id
CROSS JOIN hosts AS h ON h.id = d.host_id
CROSS JOIN daemon_samples AS f ON f.daemon_id = m.daemon_id AND f.at_us = m.from_us
CROSS JOIN daemon_samples AS u ON u.daemon_id = m.daemon_id AND u.at_us = m.until_us;

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
           sum(max(u.cpu_user_us - f.cpu_user_us + u.cpu_system_us - f.cpu_system_us, 0) / 1e6) AS cpu_s
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
       max(CASE WHEN o.op = 'send' THEN o.bytes_per_s END) / 1048576.0 AS mib_per_s,
       max(CASE WHEN o.op = 'ping' THEN o.min_ns END) / 1000.0 AS rtt_min_us,
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
