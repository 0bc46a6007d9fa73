-- What a generated database lacks, so that every view and every question has rows: links, traffic, marks, events,
-- errors,
-- flags, groups, paced loads, and daemons that restarted.

UPDATE daemons SET version = '18.2.' || id || '-1', born_us = 1750000100000000, ended_us = 1750000200000000
WHERE id % 3 = 1;
UPDATE daemons SET version = '17.2.6-1' WHERE version IS NULL AND name LIKE 'ceph%';

UPDATE steps SET flags = '["no-overlap","late-start"]' WHERE id = 2;
UPDATE steps SET flags = '["behind-schedule"]', params = '{"bs":"4k","rate_iops":500}' WHERE id IN (3, 4);
UPDATE step_results SET response_p99_ns = p99_ns * 3, response_mean_ns = mean_ns * 2 WHERE step_id IN (3, 4);

INSERT INTO step_groups (step_id, name, workload, mode, params, clients, tasks) VALUES
    (5, 'first', 'io', 'write', '{"bs":"4k"}', 1, 1), (5, 'second', 'io', 'read', '{"bs":"64k"}', 1, 1);
UPDATE tasks SET group_name = iif(task_index % 2 = 0, 'first', 'second') WHERE step_id = 5;
UPDATE step_results SET group_name = 'first' WHERE step_id = 5;
UPDATE step_intervals SET group_name = 'first' WHERE step_id = 5;

INSERT INTO step_traffic (step_id, host_id, read_bytes, written_bytes, received_bytes, sent_bytes, disk_read_bytes,
    disk_written_bytes, cached_bytes, not_judged)
SELECT s.id, h.id, s.id * 1048576, iif(s.id % 2, 0, 5000000),
       s.id * 900000, 7000000, NULL, 12345678, iif(h.id = 1, 1000, NULL),
       iif(h.id = 1, NULL, 'no interface of its own')
FROM steps AS s, hosts AS h WHERE s.id < 6 AND h.id < 3;

INSERT INTO marks (run_id, at_us, text) VALUES (1, 1750000005123456, 'a rebalance begins'),
    (2, 1750000400000000, 'and ends');
INSERT INTO events (at_us, run_id, step_id, agent_id, source, severity, kind, message, detail) VALUES
    (1750000006000000, 1, 1, 1, 'agent', 'warning', 'daemon-restarted', 'ceph-osd restarted',
     '{"pid":1000,"start_ticks":1}'),
    (1750000007000000, 1, 2, 2, 'agent', 'warning', 'daemon-ended', 'someone ended', '{"pid":1,"start_ticks":77}'),
    (1750000008000000, 1, NULL, NULL, 'collector', 'error', 'cluster-degraded', 'one of three is away', NULL),
    (1750000009500000, 2, NULL, 3, 'agent', 'warning', 'carrier-lost', 'eth0', '{"interface":"eth0"}'),
    (1750000009000000, 1, 3, 1, 'agent', 'warning', 'stall', 'a write hung',
     '{"host":"node1","op":"write","path":"a/b","lasted_us":1500000}');
INSERT INTO task_errors (task_id, op, errno, errors, first) VALUES (1, 'write', 28, 3, 'No space left'),
    (2, 'write', 5, 1, '');

-- Two clients that measure the links between them, both ways, in two steps.
INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, workload, mode, params, clients, cache, state, flags, start_us,
    measured_from_us, all_active_from_us, all_active_until_us, last_done_us, ended_us)
SELECT 1000 + n, 1, 1000 + n, 1, 'links', 'links', 'network',
    CASE n WHEN 1 THEN 'stream' WHEN 2 THEN 'ping' ELSE 'udp-stream' END,
    CASE n WHEN 2 THEN '{"wait":"spin"}' ELSE '{}' END, 2, 'asis', 'done',
    CASE n WHEN 1 THEN '["late-start"]' ELSE '[]' END,
    1750000300000000, 1750000300000000, 1750000300000000,
    1750000310000000, 1750000310000000, 1750000310000000
FROM (SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3);
INSERT INTO tasks (id, step_id, task_index, agent_id, peer_agent_id, state)
SELECT s.id * 10 + a.id, s.id, a.id, a.id, 3 - a.id, 'done'
FROM steps AS s, agents AS a WHERE s.id > 1000 AND a.id < 3;
INSERT INTO task_results (task_id, op, ops, bytes, errors, ops_per_s, bytes_per_s, mean_ns, min_ns,
    p50_ns, p99_ns, max_ns)
SELECT t.id, o.op, 100 + t.id, 1000000 * t.agent_id, 0, 10.5 * t.agent_id,
       123456.75 * t.agent_id, 5000.5, 4000, 5000 + t.id, 9000, 9999
FROM tasks AS t JOIN (SELECT 1001 AS step, 'send' AS op UNION ALL SELECT 1001, 'request'
    UNION ALL SELECT 1002, 'ping'
    UNION ALL SELECT 1003, 'receive' UNION ALL SELECT 1003, 'lost' UNION ALL SELECT 1003, 'jitter') AS o ON o.step = t.step_id;
