-- Groups: different loads at the same time in one step, each counted apart. Steps without groups have no row in
-- step_groups, and an empty group_name everywhere.

CREATE TABLE step_groups (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    name            TEXT    NOT NULL,
    workload        TEXT    NOT NULL,
    mode            TEXT    NOT NULL,
    params          TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(params)),
    clients         INTEGER NOT NULL CHECK (clients >= 0),
    tasks           INTEGER NOT NULL CHECK (tasks >= 0),
    PRIMARY KEY (step_id, name)
) STRICT, WITHOUT ROWID;

ALTER TABLE tasks ADD COLUMN group_name TEXT NOT NULL DEFAULT '';

-- The group becomes a part of two keys, for which SQLite needs the tables made anew; no view may stand on them meanwhile.
DROP VIEW v_results;
DROP VIEW v_timeline;
DROP VIEW v_cost;

CREATE TABLE new_step_intervals (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    group_name      TEXT    NOT NULL DEFAULT '',
    at_us           INTEGER NOT NULL,
    span_us         INTEGER NOT NULL CHECK (span_us > 0),
    op              TEXT    NOT NULL,
    ramp            INTEGER NOT NULL CHECK (ramp IN (0, 1)),
    tasks           INTEGER NOT NULL,
    ops             INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    errors          INTEGER NOT NULL,
    mean_ns         REAL,
    p50_ns          INTEGER,
    p99_ns          INTEGER,
    max_ns          INTEGER,
    histogram       BLOB,
    UNIQUE (step_id, group_name, at_us, op, ramp)
) STRICT;
INSERT INTO new_step_intervals (id, step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, mean_ns, p50_ns, p99_ns, max_ns, histogram)
SELECT id, step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, mean_ns, p50_ns, p99_ns, max_ns, histogram
FROM step_intervals;
DROP TABLE step_intervals;
ALTER TABLE new_step_intervals RENAME TO step_intervals;

CREATE TABLE new_step_results (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    group_name      TEXT    NOT NULL DEFAULT '',
    op              TEXT    NOT NULL,
    tasks           INTEGER NOT NULL,
    ops             INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    errors          INTEGER NOT NULL,
    window_us       INTEGER,
    window_ops      REAL,
    window_ops_error REAL,
    window_bytes    REAL,
    window_bytes_error REAL,
    headline        TEXT    NOT NULL,
    ops_per_s       REAL,
    bytes_per_s     REAL,
    last_done_us    INTEGER,
    last_done_ops_per_s   REAL,
    last_done_bytes_per_s REAL,
    mean_ns         REAL,
    stddev_ns       REAL,
    min_ns          INTEGER,
    p50_ns          INTEGER,
    p90_ns          INTEGER,
    p95_ns          INTEGER,
    p99_ns          INTEGER,
    p999_ns         INTEGER,
    max_ns          INTEGER,
    saturated       INTEGER NOT NULL,
    histogram       BLOB,
    response_mean_ns   REAL,
    response_stddev_ns REAL,
    response_min_ns    INTEGER,
    response_p50_ns    INTEGER,
    response_p90_ns    INTEGER,
    response_p95_ns    INTEGER,
    response_p99_ns    INTEGER,
    response_p999_ns   INTEGER,
    response_max_ns    INTEGER,
    response_histogram BLOB,
    UNIQUE (step_id, group_name, op)
) STRICT;
INSERT INTO new_step_results (id, step_id, op, tasks, ops, bytes, errors, window_us, window_ops, window_ops_error, window_bytes,
    window_bytes_error, headline, ops_per_s, bytes_per_s, last_done_us, last_done_ops_per_s,
    last_done_bytes_per_s, mean_ns, stddev_ns, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns, max_ns,
    saturated, histogram, response_mean_ns, response_stddev_ns, response_min_ns, response_p50_ns,
    response_p90_ns, response_p95_ns, response_p99_ns, response_p999_ns, response_max_ns, response_histogram)
SELECT id, step_id, op, tasks, ops, bytes, errors, window_us, window_ops, window_ops_error, window_bytes,
    window_bytes_error, headline, ops_per_s, bytes_per_s, last_done_us, last_done_ops_per_s,
    last_done_bytes_per_s, mean_ns, stddev_ns, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns, max_ns,
    saturated, histogram, response_mean_ns, response_stddev_ns, response_min_ns, response_p50_ns,
    response_p90_ns, response_p95_ns, response_p99_ns, response_p999_ns, response_max_ns, response_histogram
FROM step_results;
DROP TABLE step_results;
ALTER TABLE new_step_results RENAME TO step_results;

CREATE VIEW v_results AS
SELECT s.run_id,
       r.name AS run,
       s.id AS step_id,
       s.ordinal,
       s.repeat,
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
       (SELECT max(abs(t.skew_us)) FROM tasks AS t WHERE t.step_id = s.id AND t.group_name = o.group_name) / 1000.0 AS max_skew_ms,
       (SELECT max(t.skew_error_us) FROM tasks AS t WHERE t.step_id = s.id AND t.group_name = o.group_name) / 1000.0 AS skew_error_ms,
       s.flags
FROM steps AS s
JOIN runs AS r ON r.id = s.run_id
JOIN step_results AS o ON o.step_id = s.id
LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = o.group_name
WHERE s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal);

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
JOIN steps AS s ON s.id = i.step_id
LEFT JOIN step_groups AS g ON g.step_id = i.step_id AND g.name = i.group_name;

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
