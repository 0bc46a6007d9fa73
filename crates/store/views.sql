-- The views of a benchmesh database, for people: people's units, names that need no quoting. docs/database.md is their
-- reference; schema.rs makes them after the tables of schema.sql.
-- CROSS JOIN fixes the order of the loops: without statistics SQLite would rather scan the samples. In an archive
-- (archive/postgres/dialect.rs) the comment OFFSET 0 does, behind a query whose rows come first.
-- Hosts and agents of a run are shown as run_agents has them, and only those that came later as they are today.

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
JOIN hosts AS h ON h.id = a.host_id
WHERE a.forgotten_us IS NULL;

CREATE VIEW v_runs AS
SELECT r.id AS run_id,
       r.name AS run,
       r.uid,
       r.state,
       r.partial,
       r.reason,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.created_us / 1000000, 'unixepoch') AS created,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.due_us / 1000000, 'unixepoch') AS due,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.started_us / 1000000, 'unixepoch') AS started,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.ended_us / 1000000, 'unixepoch') AS ended,
       (coalesce(r.paused_from_us, r.ended_us) - r.started_us - r.paused_us) / 1000000.0 AS duration_s,
       (SELECT count(DISTINCT s.ordinal) FROM steps AS s WHERE s.run_id = r.id) AS steps,
       (SELECT count(*) FROM steps AS s WHERE s.run_id = r.id AND s.state = 'done'
           AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal))
           AS steps_done,
       (SELECT count(*) FROM events AS e WHERE e.run_id = r.id AND e.severity <> 'info') AS warnings,
       r.version
FROM runs AS r;

CREATE VIEW v_kept_data AS
SELECT k.name,
       k.target,
       k.system,
       k.path,
       k.workload,
       k.bytes,
       k.files,
       k.tasks,
       k.shape ->> 'layout' AS layout,
       k.is_whole,
       (SELECT group_concat(n.name, ' ') FROM (SELECT a.name FROM kept_data_agents AS p JOIN agents AS a ON a.id = p.agent_id
            WHERE p.kept_data_id = k.id ORDER BY a.name) AS n) AS agents,
       (SELECT r.id FROM runs AS r WHERE r.uid = k.made_run_uid) AS made_run_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', k.made_us / 1e6, 'unixepoch') AS made_at,
       k.made_us,
       (SELECT r.id FROM runs AS r WHERE r.uid = k.used_run_uid) AS used_run_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', k.used_us / 1e6, 'unixepoch') AS used_at,
       k.used_us,
       k.shape
FROM kept_data AS k;

CREATE VIEW v_marks AS
SELECT w.run_id,
       w.at_us,
       strftime('%Y-%m-%dT%H:%M:%fZ', w.at_us / 1e6, 'unixepoch') AS at,
       w.source,
       w.text,
       (SELECT max(s.id) FROM steps AS s WHERE s.run_id = w.run_id AND w.at_us >= s.start_us
           AND w.at_us < coalesce(s.last_done_us, s.ended_us)) AS step_id
FROM (
    SELECT m.run_id, m.at_us, 'mark' AS source, m.text FROM marks AS m
    UNION ALL
    -- A daemon's event has no run of its own: it belongs to the run that was under way. What happened on a host names
    -- the agent that saw it.
    SELECT r.id, e.at_us, e.kind, coalesce(CASE WHEN e.kind NOT LIKE 'cluster-%' THEN coalesce(
               (SELECT x.name FROM run_agents AS x WHERE x.run_id = r.id AND x.agent_id = e.agent_id),
               (SELECT x.name FROM agents AS x WHERE x.id = e.agent_id)) || ': ' END, '') || e.message
    FROM runs AS r
    CROSS JOIN events AS e ON e.at_us BETWEEN r.started_us AND coalesce(r.ended_us, 9223372036854775807)
        AND e.kind IN ('daemon-started', 'daemon-restarted', 'daemon-ended', 'daemon-stopped', 'daemon-continued',
                       'carrier-lost', 'carrier-back', 'link-errors', 'link-silent', 'link-silent-over', 'cluster-degraded',
                       'cluster-degraded-over')
        AND (e.run_id IS NULL OR e.run_id = r.id)
        AND /* IS_OF_RUN */
    -- The instants of an import are another clock's, or its file's.
    WHERE r.imported_from IS NULL
) AS w;

CREATE VIEW v_timeline AS
SELECT s.run_id,
       i.step_id,
       s.attempt,
       s.phase,
       s.target,
       i.group_name,
       coalesce(g.mode, s.mode) AS mode,
       i.op,
       (i.at_us - s.start_us) / 1e6 AS second,
       strftime('%Y-%m-%dT%H:%M:%fZ', i.at_us / 1e6, 'unixepoch') AS at,
       i.at_us,
       i.span_us / 1e6 AS span_s,
       i.ramp,
       i.tasks,
       i.ops,
       -- A fragment has no rate.
       CASE WHEN i.span_us >= MIN_SECOND_US THEN i.ops * 1e6 / i.span_us END AS ops_per_s,
       CASE WHEN i.span_us >= MIN_SECOND_US THEN i.bytes * 1e6 / i.span_us / 1048576.0 END AS mib_per_s,
       i.mean_ns / 1e6 AS mean_ms,
       i.p50_ns / 1e6 AS p50_ms,
       i.p99_ns / 1e6 AS p99_ms,
       i.max_ns / 1e6 AS max_ms,
       i.response_p50_ns / 1e6 AS response_p50_ms,
       i.response_p99_ns / 1e6 AS response_p99_ms,
       i.response_max_ns / 1e6 AS response_max_ms,
       i.errors
FROM step_intervals AS i
JOIN steps AS s ON s.id = i.step_id
LEFT JOIN step_groups AS g ON g.step_id = i.step_id AND g.name = i.group_name;

-- Each second of each client: the rows of op_intervals. SQL that DuckDB understands too, so that it reads the view with
-- the types of its columns.
CREATE VIEW v_client_timeline AS
SELECT w.run_id,
       w.run,
       w.step_id,
       w.attempt,
       w.phase,
       w.target,
       w.group_name,
       w.mode,
       w.client,
       w.task_id,
       w.op,
       -- An instant just beside a line of the step's seconds is on it.
       CASE WHEN (w.after_us + GRID_SLACK_US) % GRID_PERIOD_US BETWEEN 0 AND 2 * GRID_SLACK_US - 1
           THEN (w.after_us + GRID_SLACK_US - (w.after_us + GRID_SLACK_US) % GRID_PERIOD_US) / 1e6
           ELSE w.after_us / 1e6 END AS second,
       w.at_us,
       w.span_us / 1e6 AS span_s,
       w.ramp,
       w.ops,
       -- A fragment has no rate.
       CASE WHEN w.span_us >= MIN_SECOND_US THEN w.ops * 1e6 / w.span_us END AS ops_per_s,
       CASE WHEN w.span_us >= MIN_SECOND_US THEN w.bytes * 1e6 / w.span_us / 1048576.0 END AS mib_per_s,
       w.mean_ns / 1e6 AS mean_ms,
       w.p50_ns / 1e6 AS p50_ms,
       w.p99_ns / 1e6 AS p99_ms,
       w.max_ns / 1e6 AS max_ms,
       w.response_p99_ns / 1e6 AS response_p99_ms,
       w.response_max_ns / 1e6 AS response_max_ms,
       w.errors,
       w.in_flight
FROM (
    SELECT s.run_id,
           r.name AS run,
           s.id AS step_id,
           s.attempt,
           s.phase,
           s.target,
           t.group_name,
           coalesce(g.mode, s.mode) AS mode,
           coalesce(e.name, a.name) AS client,
           t.id AS task_id,
           i.op,
           i.at_us - s.start_us AS after_us,
           i.at_us,
           -- The last row of a task ends with it.
           CASE WHEN t.ended_us > i.at_us AND t.ended_us < i.at_us + i.span_us THEN t.ended_us - i.at_us
               ELSE i.span_us END AS span_us,
           i.ramp,
           i.ops,
           i.bytes,
           CASE WHEN i.service_count > 0 THEN i.service_sum_ns / i.service_count END AS mean_ns,
           i.service_p50_ns AS p50_ns,
           i.service_p99_ns AS p99_ns,
           i.service_max_ns AS max_ns,
           i.response_p99_ns,
           i.response_max_ns,
           i.errors,
           i.in_flight
    FROM runs AS r
    CROSS JOIN steps AS s
    CROSS JOIN tasks AS t
    CROSS JOIN op_intervals AS i
    LEFT JOIN agents AS a ON a.id = t.agent_id
    LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
    LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = t.group_name
    WHERE s.run_id = r.id AND t.step_id = s.id AND i.task_id = t.id
) AS w;

CREATE VIEW v_results AS
SELECT s.run_id,
       r.name AS run,
       s.id AS step_id,
       s.ordinal,
       s.loop,
       s.repeat,
       s.attempt,
       s.phase,
       s.target,
       s.system,
       o.group_name,
       coalesce(g.workload, s.workload) AS workload,
       coalesce(g.mode, s.mode) AS mode,
       coalesce(g.params, s.params) AS params,
       coalesce(g.clients, s.clients) AS clients,
       s.cache,
       s.state,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.start_us / 1e6, 'unixepoch') AS start,
       o.op,
       o.ops_per_s,
       o.bytes_per_s / 1048576.0 AS mib_per_s,
       o.mean_ns / 1e6 AS mean_ms,
       o.stddev_ns / 1e6 AS stddev_ms,
       o.p50_ns / 1e6 AS p50_ms,
       o.p90_ns / 1e6 AS p90_ms,
       o.p95_ns / 1e6 AS p95_ms,
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
       o.seconds,
       o.zero_seconds,
       o.ops_per_s_stddev,
       o.ops_per_s_min,
       o.ops_per_s_max,
       o.bytes_per_s_stddev / 1048576.0 AS mib_per_s_stddev,
       o.bytes_per_s_min / 1048576.0 AS mib_per_s_min,
       o.bytes_per_s_max / 1048576.0 AS mib_per_s_max,
       (SELECT sum(t.cpu_user_us + t.cpu_system_us) FROM tasks AS t
           WHERE t.step_id = s.id AND t.group_name IS o.group_name) / 1e6 AS client_cpu_s,
       (SELECT max(abs(t.skew_us)) FROM tasks AS t
           WHERE t.step_id = s.id AND t.group_name IS o.group_name) / 1000.0 AS max_skew_ms,
       (SELECT max(t.skew_error_us) FROM tasks AS t
           WHERE t.step_id = s.id AND t.group_name IS o.group_name) / 1000.0 AS skew_error_ms,
       s.flags/* a column for each flag */
FROM steps AS s
JOIN runs AS r ON r.id = s.run_id
JOIN step_results AS o ON o.step_id = s.id
LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = o.group_name
WHERE s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal);

CREATE VIEW v_daemon_usage AS
SELECT s.run_id,
       s.id AS step_id,
       s.attempt,
       s.phase,
       s.target,
       s.mode,
       coalesce((SELECT e.host FROM run_agents AS e WHERE e.run_id = s.run_id AND e.host_id = h.id LIMIT 1), h.name) AS host,
       d.name,
       d.instance,
       d.pid,
       d.id AS daemon_id,
       u.serves_target,
       (u.until_us - u.from_us) / 1e6 AS sampled_s,
       (u.cpu_user_us + u.cpu_system_us) / 1e6 AS cpu_s,
       u.cpu_error_us / 1e6 AS cpu_error_s,
       (u.cpu_user_us + u.cpu_system_us) * 100.0 / (u.until_us - u.from_us) AS cpu_percent,
       u.idle_cpu_us * 100.0 / (u.until_us - u.from_us) AS idle_cpu_percent,
       u.cpu_user_us / 1e6 AS cpu_user_s,
       u.cpu_system_us / 1e6 AS cpu_system_s,
       u.rss_first_bytes / 1048576.0 AS rss_first_mib,
       u.rss_min_bytes / 1048576.0 AS rss_min_mib,
       u.rss_max_bytes / 1048576.0 AS rss_max_mib,
       u.rss_last_bytes / 1048576.0 AS rss_last_mib,
       u.rss_peak_bytes / 1048576.0 AS rss_peak_mib,
       u.after_us / 1e6 AS after_s,
       u.after_cpu_us / 1e6 AS after_cpu_s,
       u.after_write_bytes / 1048576.0 AS after_written_mib,
       u.after_idle,
       d.born_us >= s.start_us AS born_in_step,
       d.ended_us <= s.last_done_us AS ended_in_step/* a column for each figure of a step's daemon */
FROM steps AS s
CROSS JOIN step_daemons AS u ON u.step_id = s.id
CROSS JOIN daemons AS d ON d.id = u.daemon_id
CROSS JOIN hosts AS h ON h.id = d.host_id;

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
       c.cpu_error_s,
       c.idle_cpu_s,
       c.after_cpu_s,
       c.after_s,
       c.after_idle,
       c.ops,
       c.bytes,
       CASE WHEN c.ops > 0 AND c.is_one_load THEN c.cpu_s * 1e6 / c.ops END AS cpu_us_per_op,
       CASE WHEN c.bytes > 0 AND c.is_one_load THEN c.cpu_s / (c.bytes / 1073741824.0) END AS cpu_s_per_gib,
       CASE WHEN c.ops > 0 AND c.is_one_load THEN (c.cpu_s + c.after_cpu_s) * 1e6 / c.ops END
           AS cpu_us_per_op_until_idle,
       c.load_groups,
       c.flags
FROM (
    SELECT s.run_id,
           s.step_id,
           s.phase,
           s.target,
           s.system,
           s.mode,
           s.flags,
           s.load_groups,
           s.load_groups < 2 AND NOT s.no_overlap AS is_one_load,
           s.ops,
           s.bytes,
           d.name,
           count(*) AS daemons,
           -- A counter that went backwards tells nothing, and neither does a sum without it.
           CASE WHEN count(u.cpu_user_us) = count(*) THEN sum(u.cpu_user_us + u.cpu_system_us) / 1e6 END AS cpu_s,
           sum(u.cpu_error_us) / 1e6 AS cpu_error_s,
           CASE WHEN count(u.idle_cpu_us) = count(*) THEN sum(u.idle_cpu_us) / 1e6 END AS idle_cpu_s,
           CASE WHEN count(u.after_cpu_us) = count(*) THEN sum(u.after_cpu_us) / 1e6 END AS after_cpu_s,
           max(u.after_us) / 1e6 AS after_s,
           min(u.after_idle) AS after_idle
    FROM (/* STEP_LOADS */) AS s
    CROSS JOIN step_daemons AS u ON u.step_id = s.step_id AND u.serves_target = 1
    CROSS JOIN daemons AS d ON d.id = u.daemon_id
    GROUP BY s.run_id, s.step_id, d.name, s.phase, s.target, s.system, s.mode, s.flags, s.load_groups, s.no_overlap, s.ops,
             s.bytes
) AS c;

CREATE VIEW v_cost_by_daemon AS
SELECT c.run_id,
       c.step_id,
       c.phase,
       c.target,
       c.system,
       c.mode,
       c.host,
       c.name,
       c.instance,
       c.pid,
       c.daemon_id,
       c.cpu_s,
       c.cpu_error_s,
       c.idle_cpu_s,
       c.after_cpu_s,
       c.after_s,
       c.after_idle,
       c.ops,
       c.bytes,
       CASE WHEN c.ops > 0 AND c.is_one_load THEN c.cpu_s * 1e6 / c.ops END AS cpu_us_per_op,
       CASE WHEN c.bytes > 0 AND c.is_one_load THEN c.cpu_s / (c.bytes / 1073741824.0) END AS cpu_s_per_gib,
       CASE WHEN c.ops > 0 AND c.is_one_load THEN (c.cpu_s + c.after_cpu_s) * 1e6 / c.ops END
           AS cpu_us_per_op_until_idle,
       c.load_groups,
       c.flags
FROM (
    SELECT s.*,
           s.load_groups < 2 AND NOT s.no_overlap AS is_one_load,
           coalesce((SELECT e.host FROM run_agents AS e WHERE e.run_id = s.run_id AND e.host_id = h.id LIMIT 1), h.name)
               AS host,
           d.name,
           d.instance,
           d.pid,
           d.id AS daemon_id,
           (u.cpu_user_us + u.cpu_system_us) / 1e6 AS cpu_s,
           u.cpu_error_us / 1e6 AS cpu_error_s,
           u.idle_cpu_us / 1e6 AS idle_cpu_s,
           u.after_cpu_us / 1e6 AS after_cpu_s,
           u.after_us / 1e6 AS after_s,
           u.after_idle
    FROM (/* STEP_LOADS */) AS s
    CROSS JOIN step_daemons AS u ON u.step_id = s.step_id AND u.serves_target = 1
    CROSS JOIN daemons AS d ON d.id = u.daemon_id
    CROSS JOIN hosts AS h ON h.id = d.host_id
) AS c;

-- Sums over the host's disks that stand on no other, and over its interfaces but the loopback. Counters are cumulative,
-- so two seeks in an index give what happened between two samples, however many lie between them. The rule of all these
-- figures: the samples nearest to the step's begin and end (one is taken at each, and pruning keeps them), divided by
-- the time between those two. Samples of devices are those of the host's pass, within 10 ms. Shares, whose counters go
-- in steps of 10 ms, need samples that are 100 ms apart. What has them not is NULL.
CREATE VIEW v_host_usage AS
SELECT e.run_id,
       e.step_id,
       e.attempt,
       e.phase,
       e.target,
       e.mode,
       e.host,
       e.host_id,
       e.is_client,
       e.sampled_us / 1e6 AS sampled_s,
       e.cpus,
       CASE WHEN e.is_long THEN e.user_us / 1e6 END AS user_s,
       CASE WHEN e.is_long THEN e.nice_us / 1e6 END AS nice_s,
       CASE WHEN e.is_long THEN e.system_us / 1e6 END AS system_s,
       CASE WHEN e.is_long THEN e.irq_us / 1e6 END AS irq_s,
       CASE WHEN e.is_long THEN e.iowait_us / 1e6 END AS iowait_s,
       CASE WHEN e.is_long THEN e.idle_us / 1e6 END AS idle_s,
       CASE WHEN e.is_long THEN e.steal_us / 1e6 END AS steal_s,
       CASE WHEN e.is_long THEN (e.user_us + e.nice_us) * 100.0 / nullif(e.all_us, 0) END AS user_percent,
       CASE WHEN e.is_long THEN (e.system_us + e.irq_us) * 100.0 / nullif(e.all_us, 0) END AS system_percent,
       CASE WHEN e.is_long THEN e.iowait_us * 100.0 / nullif(e.all_us, 0) END AS iowait_percent,
       CASE WHEN e.is_long THEN e.steal_us * 100.0 / nullif(e.all_us, 0) END AS steal_percent,
       CASE WHEN e.is_long
           THEN (e.user_us + e.nice_us + e.system_us + e.irq_us + e.steal_us) * 100.0 / nullif(e.all_us, 0)
           END AS busy_percent,
       (SELECT sum((SELECT (late.read_bytes - early.read_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.read_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.from_us + e.apart_us ORDER BY x.at_us DESC LIMIT 1) AS early,
                         (SELECT x.at_us, x.read_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.until_us - e.apart_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.read_bytes >= early.read_bytes))
        FROM disks AS k WHERE k.host_id = e.host_id AND k.stacked = 0) / 1048576.0 AS disk_read_mib_per_s,
       (SELECT sum((SELECT (late.write_bytes - early.write_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.write_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.from_us + e.apart_us ORDER BY x.at_us DESC LIMIT 1) AS early,
                         (SELECT x.at_us, x.write_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.until_us - e.apart_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.write_bytes >= early.write_bytes))
        FROM disks AS k WHERE k.host_id = e.host_id AND k.stacked = 0) / 1048576.0 AS disk_written_mib_per_s,
       (SELECT max((SELECT min(100.0, (late.busy_us - early.busy_us) * 100.0 / (late.at_us - early.at_us))
                    FROM (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.from_us + e.apart_us ORDER BY x.at_us DESC LIMIT 1) AS early,
                         (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.until_us - e.apart_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS late
                    WHERE late.at_us >= early.at_us + MIN_SPAN_US))
        FROM disks AS k WHERE k.host_id = e.host_id AND k.stacked = 0) AS busiest_disk_percent,
       (SELECT busiest.name FROM (
            SELECT k.name, (SELECT min(100.0, (late.busy_us - early.busy_us) * 100.0 / (late.at_us - early.at_us))
                    FROM (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.from_us + e.apart_us ORDER BY x.at_us DESC LIMIT 1) AS early,
                         (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.until_us - e.apart_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS late
                    WHERE late.at_us >= early.at_us + MIN_SPAN_US) AS percent
            FROM disks AS k WHERE k.host_id = e.host_id AND k.stacked = 0) AS busiest
        WHERE busiest.percent IS NOT NULL ORDER BY busiest.percent DESC, busiest.name LIMIT 1) AS busiest_disk,
       (SELECT sum((SELECT (late.rx_bytes - early.rx_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.rx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.from_us + e.apart_us ORDER BY x.at_us DESC LIMIT 1) AS early,
                         (SELECT x.at_us, x.rx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.until_us - e.apart_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.rx_bytes >= early.rx_bytes))
        FROM interfaces AS k WHERE k.host_id = e.host_id AND k.name <> 'lo') / 1048576.0 AS received_mib_per_s,
       (SELECT sum((SELECT (late.tx_bytes - early.tx_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.tx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.from_us + e.apart_us ORDER BY x.at_us DESC LIMIT 1) AS early,
                         (SELECT x.at_us, x.tx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.until_us - e.apart_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.tx_bytes >= early.tx_bytes))
        FROM interfaces AS k WHERE k.host_id = e.host_id AND k.name <> 'lo') / 1048576.0 AS sent_mib_per_s
FROM (
    SELECT w.*,
           u.at_us - f.at_us AS sampled_us,
           min(10000, (u.at_us - f.at_us) / 2) AS apart_us,
           u.at_us - f.at_us >= MIN_SPAN_US AS is_long,
           max(0, u.user_us - f.user_us) AS user_us,
           max(0, u.nice_us - f.nice_us) AS nice_us,
           max(0, u.system_us - f.system_us) AS system_us,
           max(0, u.irq_us - f.irq_us + u.softirq_us - f.softirq_us) AS irq_us,
           max(0, u.iowait_us - f.iowait_us) AS iowait_us,
           max(0, u.idle_us - f.idle_us) AS idle_us,
           max(0, u.steal_us - f.steal_us) AS steal_us,
           -- All of the CPUs' time; the states' sum where the kernel's ticks make that a little more.
           max((u.at_us - f.at_us) * w.cpus, max(0, u.user_us - f.user_us)
               + max(0, u.nice_us - f.nice_us)
               + max(0, u.system_us - f.system_us)
               + max(0, u.irq_us - f.irq_us + u.softirq_us - f.softirq_us)
               + max(0, u.iowait_us - f.iowait_us)
               + max(0, u.idle_us - f.idle_us)
               + max(0, u.steal_us - f.steal_us)) AS all_us
    FROM (
        SELECT n.*,
               CASE WHEN n.after_begin_us IS NULL OR n.begin_us - n.before_begin_us <= n.after_begin_us - n.begin_us
                   THEN n.before_begin_us ELSE n.after_begin_us END AS from_us,
               CASE WHEN n.before_end_us IS NULL OR n.after_end_us - n.end_us < n.end_us - n.before_end_us
                   THEN n.after_end_us ELSE n.before_end_us END AS until_us
        FROM (SELECT v.*,
               (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = v.host_id
                   AND x.at_us BETWEEN v.low_us AND v.begin_us) AS before_begin_us,
               (SELECT min(x.at_us) FROM host_samples AS x WHERE x.host_id = v.host_id
                   AND x.at_us BETWEEN v.begin_us AND v.high_us) AS after_begin_us,
               (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = v.host_id
                   AND x.at_us BETWEEN v.low_us AND v.end_us) AS before_end_us,
               (SELECT min(x.at_us) FROM host_samples AS x WHERE x.host_id = v.host_id
                   AND x.at_us BETWEEN v.end_us AND v.high_us) AS after_end_us
        FROM (
            SELECT s.run_id,
                   s.id AS step_id,
                   s.attempt,
                   s.phase,
                   s.target,
                   s.mode,
                   coalesce(f.host, h.name) AS host,
                   h.id AS host_id,
                   coalesce(f.cpus, h.cpus) AS cpus,
                   EXISTS (SELECT 1 FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id
                           LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = a.id
                           WHERE t.step_id = s.id AND h.id = coalesce(e.host_id, a.host_id)) AS is_client,
                   coalesce(s.measured_from_us, s.start_us) AS begin_us,
                   s.last_done_us AS end_us,
                   -- The samples of a start and an end are taken a little off them: at most 50 ms, and a quarter of a
                   -- short step.
                   coalesce(s.measured_from_us, s.start_us)
                       - min(50000, (s.last_done_us - coalesce(s.measured_from_us, s.start_us)) / 4) AS low_us,
                   s.last_done_us
                       + min(50000, (s.last_done_us - coalesce(s.measured_from_us, s.start_us)) / 4) AS high_us
            FROM steps AS s
            -- What was imported happened elsewhere.
            CROSS JOIN runs AS r ON r.id = s.run_id AND r.imported_from IS NULL
            CROSS JOIN hosts AS h
            LEFT JOIN run_agents AS f ON f.run_id = s.run_id
        AND f.agent_id = (SELECT min(x.agent_id) FROM run_agents AS x WHERE x.run_id = s.run_id AND x.host_id = h.id)
            WHERE s.last_done_us IS NOT NULL
        ) AS v /* OFFSET 0 */) AS n /* OFFSET 0 */
    ) AS w
    CROSS JOIN host_samples AS f ON f.host_id = w.host_id AND f.at_us = w.from_us
    CROSS JOIN host_samples AS u ON u.host_id = w.host_id AND u.at_us = w.until_us
    WHERE w.from_us < w.until_us
) AS e;

-- Who moved what: a load's bytes on each client's host, and those of its interfaces and disks in the same time.
CREATE VIEW v_traffic AS
SELECT s.run_id,
       s.id AS step_id,
       s.attempt,
       s.phase,
       s.target,
       s.mode,
       s.cache,
       coalesce((SELECT e.host FROM run_agents AS e WHERE e.run_id = s.run_id AND e.host_id = h.id LIMIT 1), h.name) AS host,
       h.id AS host_id,
       t.read_bytes / 1048576.0 AS read_mib,
       t.written_bytes / 1048576.0 AS written_mib,
       t.received_bytes / 1048576.0 AS received_mib,
       t.sent_bytes / 1048576.0 AS sent_mib,
       t.disk_read_bytes / 1048576.0 AS disk_read_mib,
       t.disk_written_bytes / 1048576.0 AS disk_written_mib,
       t.received_bytes * 1.0 / nullif((SELECT sum(r.ops) FROM tasks AS k
           CROSS JOIN task_results AS r ON r.task_id = k.id
            CROSS JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = k.agent_id AND e.host_id = t.host_id
        WHERE k.step_id = s.id), 0) AS received_bytes_per_op,
       t.sent_bytes * 1.0 / nullif((SELECT sum(r.ops) FROM tasks AS k CROSS JOIN task_results AS r ON r.task_id = k.id
            CROSS JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = k.agent_id AND e.host_id = t.host_id
        WHERE k.step_id = s.id), 0) AS sent_bytes_per_op,
       t.received_bytes * 1.0 / nullif(t.read_bytes, 0) AS received_per_read,
       t.sent_bytes * 1.0 / nullif(t.written_bytes, 0) AS sent_per_written,
       t.cached_bytes * 100.0 / nullif(t.read_bytes, 0) AS cached_percent,
       t.not_judged
FROM steps AS s
CROSS JOIN step_traffic AS t ON t.step_id = s.id
CROSS JOIN hosts AS h ON h.id = t.host_id;

-- A step of up to eight minutes has a row for each sample. The longer ones of a run share 480 parts by their lengths,
-- and the last sample of a part is found by a seek, so that days cost no more than eight minutes: counters are
-- cumulative. Each step has 24 parts at least, fewer in a run of more than 40 such steps. The parts are the innermost
-- loop, so that a host's facts are found once per step.
CREATE VIEW v_host_timeline AS
WITH RECURSIVE
part (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM part WHERE n < 480),
step AS NOT MATERIALIZED (
    SELECT s.run_id, s.id AS step_id, s.start_us, s.phase, s.target, s.mode, s.last_done_us,
           s.last_done_us - s.start_us AS length_us, CAST(share.value AS INTEGER) AS parts, list.value AS part_list
    FROM steps AS s
    CROSS JOIN runs AS r ON r.id = s.run_id AND r.imported_from IS NULL
    -- As a row, so that it is computed once per step.
    CROSS JOIN json_each(json_array(iif(s.last_done_us - s.start_us > 480000000,
        (SELECT max(1, min(24, 960 / count(*)),
                    480 * (s.last_done_us - s.start_us) / sum(o.last_done_us - o.start_us)) FROM steps AS o
         WHERE o.run_id = s.run_id AND o.last_done_us - o.start_us > 480000000), 0))) AS share
    CROSS JOIN json_each(json_array((SELECT json_group_array(n) FROM part WHERE n <= CAST(share.value AS INTEGER)))) AS list
)
SELECT w.run_id,
       w.step_id,
       w.phase,
       w.target,
       w.mode,
       w.host,
       w.kind,
       w.device,
       (w.at_us - w.start_us) / 1e6 AS second,
       strftime('%Y-%m-%dT%H:%M:%fZ', w.at_us / 1e6, 'unixepoch') AS at,
       w.at_us,
       (w.at_us - w.before_us) / 1e6 AS span_s,
       -- A fragment has no share and no rate.
       CASE WHEN w.at_us - w.before_us >= MIN_SPAN_US THEN max(0, w.user_us) * 100.0 / w.all_us END AS user_percent,
       CASE WHEN w.at_us - w.before_us >= MIN_SPAN_US THEN max(0, w.system_us) * 100.0 / w.all_us END AS system_percent,
       CASE WHEN w.at_us - w.before_us >= MIN_SPAN_US THEN max(0, w.iowait_us) * 100.0 / w.all_us END AS iowait_percent,
       CASE WHEN w.at_us - w.before_us >= MIN_SPAN_US THEN min(100.0, max(0, w.busy_us) * 100.0 / w.all_us) END
           AS busy_percent,
       CASE WHEN w.at_us - w.before_us >= MIN_SPAN_US
           THEN w.in_bytes * 1e6 / (w.at_us - w.before_us) / 1048576.0 END AS in_mib_per_s,
       CASE WHEN w.at_us - w.before_us >= MIN_SPAN_US
           THEN w.out_bytes * 1e6 / (w.at_us - w.before_us) / 1048576.0 END AS out_mib_per_s
FROM (
    SELECT * FROM (SELECT step.run_id, step.step_id, step.start_us, step.phase, step.target, step.mode, coalesce(f.host, h.name) AS host, 'cpu' AS kind,
           NULL AS device, x.at_us,
           lag(x.at_us) OVER sample AS before_us,
           (x.user_us + x.nice_us - lag(x.user_us + x.nice_us) OVER sample) / coalesce(f.cpus, h.cpus) AS user_us,
           (x.system_us + x.irq_us + x.softirq_us - lag(x.system_us + x.irq_us + x.softirq_us) OVER sample) / coalesce(f.cpus, h.cpus) AS system_us,
           (x.iowait_us - lag(x.iowait_us) OVER sample) / coalesce(f.cpus, h.cpus) AS iowait_us,
           (x.user_us + x.nice_us + x.system_us + x.irq_us + x.softirq_us + x.steal_us
            - lag(x.user_us + x.nice_us + x.system_us + x.irq_us + x.softirq_us + x.steal_us) OVER sample) / coalesce(f.cpus, h.cpus) AS busy_us,
           -- All of the time of a CPU; the states' sum where the kernel's ticks make that a little more.
           max(x.at_us - lag(x.at_us) OVER sample,
               (x.user_us + x.nice_us + x.system_us + x.irq_us + x.softirq_us + x.steal_us + x.idle_us + x.iowait_us
                - lag(x.user_us + x.nice_us + x.system_us + x.irq_us + x.softirq_us + x.steal_us + x.idle_us
                      + x.iowait_us)
                  OVER sample) * 1.0 / coalesce(f.cpus, h.cpus)) AS all_us,
           CAST(NULL AS INTEGER) AS in_bytes, CAST(NULL AS INTEGER) AS out_bytes
    FROM step CROSS JOIN hosts AS h
    LEFT JOIN run_agents AS f ON f.run_id = step.run_id
        AND f.agent_id = (SELECT min(x.agent_id) FROM run_agents AS x WHERE x.run_id = step.run_id AND x.host_id = h.id)
    CROSS JOIN json_each(step.part_list) AS part
    CROSS JOIN host_samples AS x ON x.host_id = h.id AND x.at_us BETWEEN
        iif(step.parts > 0, (SELECT max(y.at_us) FROM host_samples AS y WHERE y.host_id = h.id AND y.at_us BETWEEN
                            step.start_us + (CAST(part.value AS INTEGER) - 1) * step.length_us / step.parts + 500001
                            AND step.start_us + CAST(part.value AS INTEGER) * step.length_us / step.parts + 500000),
             step.start_us - 1500000)
        AND iif(step.parts > 0, step.start_us + CAST(part.value AS INTEGER) * step.length_us / step.parts + 500000,
                step.last_done_us + 500000)
    WHERE coalesce(f.cpus, h.cpus) > 0
    WINDOW sample AS (PARTITION BY step.run_id, step.step_id, h.id ORDER BY x.at_us))
    UNION ALL
    SELECT * FROM (SELECT step.run_id, step.step_id, step.start_us, step.phase, step.target, step.mode, coalesce(f.host, h.name), 'disk', k.name, x.at_us,
           lag(x.at_us) OVER sample, CAST(NULL AS INTEGER), CAST(NULL AS INTEGER), CAST(NULL AS INTEGER), x.busy_us - lag(x.busy_us) OVER sample,
           x.at_us - lag(x.at_us) OVER sample,
           x.read_bytes - lag(x.read_bytes) OVER sample, x.write_bytes - lag(x.write_bytes) OVER sample
    FROM step CROSS JOIN hosts AS h
    LEFT JOIN run_agents AS f ON f.run_id = step.run_id
        AND f.agent_id = (SELECT min(x.agent_id) FROM run_agents AS x WHERE x.run_id = step.run_id AND x.host_id = h.id)
    CROSS JOIN disks AS k ON k.host_id = h.id
    CROSS JOIN json_each(step.part_list) AS part
    CROSS JOIN disk_samples AS x ON x.disk_id = k.id AND x.at_us BETWEEN
        iif(step.parts > 0, (SELECT max(y.at_us) FROM disk_samples AS y WHERE y.disk_id = k.id AND y.at_us BETWEEN
                            step.start_us + (CAST(part.value AS INTEGER) - 1) * step.length_us / step.parts + 500001
                            AND step.start_us + CAST(part.value AS INTEGER) * step.length_us / step.parts + 500000),
             step.start_us - 1500000)
        AND iif(step.parts > 0, step.start_us + CAST(part.value AS INTEGER) * step.length_us / step.parts + 500000,
                step.last_done_us + 500000)
    WINDOW sample AS (PARTITION BY step.run_id, step.step_id, k.id ORDER BY x.at_us))
    UNION ALL
    SELECT * FROM (SELECT step.run_id, step.step_id, step.start_us, step.phase, step.target, step.mode, coalesce(f.host, h.name), 'interface', n.name, x.at_us,
           lag(x.at_us) OVER sample, CAST(NULL AS INTEGER), CAST(NULL AS INTEGER), CAST(NULL AS INTEGER),
           CAST(NULL AS INTEGER), CAST(NULL AS INTEGER),
           x.rx_bytes - lag(x.rx_bytes) OVER sample, x.tx_bytes - lag(x.tx_bytes) OVER sample
    FROM step CROSS JOIN hosts AS h
    LEFT JOIN run_agents AS f ON f.run_id = step.run_id
        AND f.agent_id = (SELECT min(x.agent_id) FROM run_agents AS x WHERE x.run_id = step.run_id AND x.host_id = h.id)
    CROSS JOIN interfaces AS n ON n.host_id = h.id
    CROSS JOIN json_each(step.part_list) AS part
    CROSS JOIN net_samples AS x ON x.interface_id = n.id AND x.at_us BETWEEN
        iif(step.parts > 0, (SELECT max(y.at_us) FROM net_samples AS y WHERE y.interface_id = n.id AND y.at_us BETWEEN
                            step.start_us + (CAST(part.value AS INTEGER) - 1) * step.length_us / step.parts + 500001
                            AND step.start_us + CAST(part.value AS INTEGER) * step.length_us / step.parts + 500000),
             step.start_us - 1500000)
        AND iif(step.parts > 0, step.start_us + CAST(part.value AS INTEGER) * step.length_us / step.parts + 500000,
                step.last_done_us + 500000)
    WINDOW sample AS (PARTITION BY step.run_id, step.step_id, n.id ORDER BY x.at_us))
) AS w
WHERE w.before_us IS NOT NULL AND w.at_us > w.before_us;

CREATE VIEW v_links AS
SELECT l.run_id,
       l.loop,
       l.repeat,
       l.phase,
       l.cell,
       coalesce((SELECT e.name FROM run_agents AS e WHERE e.run_id = l.run_id AND e.agent_id = l.agent_id), a.name)
           AS from_agent,
       coalesce((SELECT e.name FROM run_agents AS e WHERE e.run_id = l.run_id AND e.agent_id = l.peer_agent_id), p.name)
           AS to_agent,
       l.links_at_once,
       l.mib_per_s,
       l.lost_percent,
       l.jitter_us,
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
           loop,
           repeat,
           phase,
           cell,
           agent_id,
           peer_agent_id,
           max(links_at_once) OVER link AS links_at_once,
           max(mib_per_s) OVER link AS mib_per_s,
           max(lost_percent) OVER link AS lost_percent,
           max(jitter_us) OVER link AS jitter_us,
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
                   s.loop,
                   s.repeat,
                   s.phase,
                   s.cell,
                   s.flags,
                   t.agent_id,
                   t.peer_agent_id,
                   -- Tasks that did not run at the same time are never summed.
                   -- Of a UDP stream, what has arrived.
                   sum(CASE WHEN o.op = iif(coalesce(g.mode, s.mode) = 'udp-stream', 'receive', 'send')
                            AND instr(s.flags, '"no-overlap"') = 0
                       THEN o.bytes_per_s END) / 1048576.0 AS mib_per_s,
                   CASE WHEN max(coalesce(g.mode, s.mode) IN ('udp-stream', 'udp-request')) THEN
                        100.0 * sum(CASE WHEN o.op = 'lost' THEN o.ops ELSE 0 END)
                        / sum(CASE WHEN o.op IN ('lost', 'receive', 'request') THEN o.ops END) END AS lost_percent,
                   max(CASE WHEN o.op = 'jitter' THEN o.mean_ns END) / 1000.0 AS jitter_us,
                   -- Steps from before the key existed waited blocking, all of them.
                   max(CASE WHEN o.op IN ('ping', 'request')
                       THEN coalesce(coalesce(g.params, s.params) ->> 'wait', 'blocking') END) AS wait,
                   min(CASE WHEN o.op = 'ping' THEN o.min_ns END) / 1000.0 AS rtt_min_us,
                   max(CASE WHEN o.op = 'ping' THEN o.p50_ns END) / 1000.0 AS rtt_p50_us,
                   max(CASE WHEN o.op = 'ping' THEN o.p99_ns END) / 1000.0 AS rtt_p99_us,
                   sum(CASE WHEN o.op = 'request'
                            AND instr(s.flags, '"no-overlap"') = 0
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
            GROUP BY s.run_id, s.id, t.agent_id, t.peer_agent_id, s.loop, s.repeat, s.phase, s.cell, s.flags))
    WHERE results > 0
    WINDOW link AS (PARTITION BY run_id, loop, repeat, phase, cell, agent_id, peer_agent_id),
           most_first AS (PARTITION BY run_id, loop, repeat, phase, cell, agent_id, peer_agent_id
                          ORDER BY requests_per_s DESC NULLS LAST, request_p50_us NULLS LAST, step_id)
) AS l
JOIN agents AS a ON a.id = l.agent_id
JOIN agents AS p ON p.id = l.peer_agent_id
WHERE l.place = 1 /* OFFSET 0 */;
