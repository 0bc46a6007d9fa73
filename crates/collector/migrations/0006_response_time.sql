-- A paced load's response time, second by second. NULL when the load was not paced.

ALTER TABLE step_intervals ADD COLUMN response_p50_ns INTEGER;
ALTER TABLE step_intervals ADD COLUMN response_p99_ns INTEGER;
ALTER TABLE step_intervals ADD COLUMN response_max_ns INTEGER;

DROP VIEW v_timeline;

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
       i.response_p50_ns / 1e6 AS response_p50_ms,
       i.response_p99_ns / 1e6 AS response_p99_ms,
       i.response_max_ns / 1e6 AS response_max_ms,
       i.errors
FROM step_intervals AS i
JOIN steps AS s ON s.id = i.step_id
LEFT JOIN step_groups AS g ON g.step_id = i.step_id AND g.name = i.group_name;
