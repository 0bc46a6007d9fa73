-- Two hosts, a client and a server; two runs of `nightly`, of which the second has what the questions ask for.
INSERT INTO hosts VALUES (1, 'b1', 'p', 'c1', 'Linux 6.1', 4, 8589934592), (2, 'b2', 'p', 's1', 'Linux 6.1', 8, 17179869184);
INSERT INTO agents (id, uid, name, host_id, labels, version, first_seen_us, last_seen_us)
    VALUES (1, 'a1', 'c1', 1, '{"role":"client"}', '0.1.0', 1, 2), (2, 'a2', 's1', 2, '{"role":"storage"}', '0.1.0', 1, 2);
INSERT INTO runs (id, uid, name, plan, state, created_us, started_us, ended_us, version)
    VALUES (1, 'u1', 'nightly', '', 'done', 0, 1000000, 90000000, '0.1.0'),
           (2, 'u2', 'nightly', '', 'done', 100000000, 100000000, 400000000, '0.1.0');
INSERT INTO run_agents (run_id, agent_id, host_id, name, host, version, labels, kernel, distribution, cpu_model, cpus,
                        memory_bytes, interfaces, packages)
    SELECT r.id, a.id, h.id, a.name, h.name, '0.1.0', a.labels, h.kernel, 'Debian 12', 'Xeon', h.cpus, h.memory_bytes,
           '[{"name":"eth0","mbits":10000},{"name":"eth1","mbits":1000}]', '{"ceph-common":"18.2.4"}'
    FROM runs AS r, agents AS a JOIN hosts AS h ON h.id = a.host_id;
-- Steps of ten seconds; the last measures a link.
INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, target, system, workload, mode, params, clients, cache, flags,
                   state, start_us, measured_from_us, all_active_from_us, all_active_until_us, last_done_us, ended_us) VALUES
    (11, 1, 1, 1, 'records', 'c', 'cephfs', 'cephfs', 'io', 'write', '{"bs":"4k"}', 1, 'asis', '[]',
     'done', 10000000, 10000000, 10000000, 20000000, 20000000, 20100000),
    (21, 2, 1, 1, 'records', 'c', 'cephfs', 'cephfs', 'io', 'write', '{"bs":"4k"}', 1, 'asis', '[]',
     'done', 110000000, 110000000, 110000000, 120000000, 120000000, 120100000),
    (22, 2, 2, 2, 'records', 'c', 'cephfs', 'cephfs', 'io', 'write', '{"bs":"4k"}', 1, 'asis', '["tool-bound"]',
     'done', 130000000, 130000000, 130000000, 140000000, 140000000, 140100000),
    (23, 2, 3, 1, 'records', 'c', 'sr33', 'glusterfs', 'io', 'write', '{"bs":"4k"}', 1, 'asis', '[]',
     'done', 150000000, 150000000, 150000000, 160000000, 160000000, 160100000),
    (24, 2, 4, 1, 'records', 'c', 'cephfs', 'cephfs', 'io', 'write', '{"bs":"4k"}', 2, 'asis', '[]',
     'done', 170000000, 170000000, 170000000, 180000000, 180000000, 180100000),
    (25, 2, 5, 1, 'paced', 'c', 'cephfs', 'cephfs', 'io', 'read', '{"bs":"4k","rate_iops":50}', 1, 'cold', '["behind-schedule"]',
     'done', 190000000, 190000000, 190000000, 200000000, 200000000, 200100000),
    (26, 2, 6, 1, 'net', 'c', NULL, NULL, 'network', 'throughput', '{}', 1, 'asis', '[]',
     'done', 210000000, 210000000, 210000000, 220000000, 220000000, 220100000);
-- One task per step, two in the step of two clients; the server sends in the link.
INSERT INTO tasks (id, step_id, task_index, agent_id, peer_agent_id, state, skew_us, skew_error_us, cpu_user_us, cpu_system_us)
    VALUES (11, 11, 0, 1, NULL, 'done', 10, 5, 100000, 100000), (21, 21, 0, 1, NULL, 'done', 20, 5, 500000, 1500000),
           (22, 22, 0, 1, NULL, 'done', -30, 5, 500000, 1500000), (23, 23, 0, 1, NULL, 'done', 40, 6, 250000, 750000),
           (24, 24, 0, 1, NULL, 'done', 50, 7, 500000, 500000), (25, 24, 1, 2, NULL, 'done', -60, 8, 500000, 500000),
           (26, 25, 0, 1, NULL, 'done', 5, 5, 100000, 100000), (27, 26, 0, 1, 2, 'done', 5, 5, 0, 0);
INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, ops_per_s, bytes_per_s, seconds, zero_seconds,
                          ops_per_s_stddev, ops_per_s_min, ops_per_s_max, p50_ns, p99_ns, max_ns, response_p99_ns, saturated)
    VALUES (11, 'write', 1, 800, 3276800, 0, 'window', 80, 327680, 10, 0, 1, 79, 81, 1000000, 2000000, 9000000, NULL, 0),
           (21, 'write', 1, 1000, 4096000, 0, 'window', 100, 409600, 10, 1, 40, 0, 120, 1000000, 2000000, 9000000, NULL, 0),
           (22, 'write', 1, 1200, 4915200, 3, 'window', 120, 491520, 10, 0, 6, 110, 130, 1000000, 4000000, 8000000, NULL, 0),
           (23, 'write', 1, 500, 2048000, 0, 'window', 50, 204800, 10, 0, 5, 40, 60, 2000000, 6000000, 7000000, NULL, 0),
           (24, 'write', 2, 1650, 6758400, 0, 'window', 165, 675840, 10, 0, 3.3, 160, 170, 1000000, 3000000, 6000000, NULL, 0),
           (25, 'read', 1, 400, 1638400, 0, 'window', 40, 163840, 10, 0, 2, 38, 42, 1000000, 2000000, 5000000, 80000000, 0),
           (26, 'send', 1, 100, 104857600, 0, 'window', 10, 10485760, 10, 0, 0, 10, 10, 1000000, 2000000, 3000000, NULL, 0);
INSERT INTO task_results (task_id, op, ops, bytes, errors, ops_per_s, bytes_per_s, p99_ns)
    VALUES (21, 'write', 1000, 4096000, 0, 100, 409600, 2000000), (22, 'write', 1200, 4915200, 3, 120, 491520, 4000000),
           (23, 'write', 500, 2048000, 0, 50, 204800, 6000000), (24, 'write', 660, 2703360, 0, 66, 270336, 3000000),
           (25, 'write', 990, 4055040, 0, 99, 405504, 2000000), (26, 'read', 400, 1638400, 0, 40, 163840, 2000000),
           (27, 'send', 100, 104857600, 0, 10, 10485760, NULL);
INSERT INTO step_intervals (step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, mean_ns, p50_ns, p99_ns, max_ns)
    VALUES (21, 109000000, 1000000, 'write', 1, 1, 1, 4096, 0, 1, 1, 1, 99000000),
           (21, 110000000, 1000000, 'write', 0, 1, 256, 1048576, 0, 1500000, 1000000, 2000000, 9000000),
           (21, 111000000, 1000000, 'write', 0, 1, 0, 0, 0, NULL, NULL, NULL, NULL),
           (21, 112000000, 1000000, 'write', 0, 1, 128, 524288, 0, 1000000, 1000000, 2000000, 4000000);
-- Two seconds of the two clients of a step, and a ramp; the server's second one is slow, and its last is a fragment.
INSERT INTO op_intervals (task_id, at_us, span_us, op, ramp, ops, bytes, errors, in_flight, service_count, service_sum_ns,
                          service_sum_squares_ns2, service_min_ns, service_p50_ns, service_p99_ns, service_max_ns,
                          service_saturated)
    VALUES (24, 169000000, 1000000, 'write', 1, 9, 36864, 0, 1, 9, 9e9, 9e18, 1000, 1000, 99000000, 99000000, 0),
           (24, 170000012, 1000000, 'write', 0, 66, 270336, 0, 1, 66, 66e6, 66e12, 1000, 1000000, 2000000, 3000000, 0),
           (25, 169999988, 1000000, 'write', 0, 99, 405504, 0, 1, 99, 99e6, 99e12, 1000, 1000000, 1500000, 2500000, 0),
           (25, 170999988, 500000, 'write', 0, 9, 36864, 0, 1, 9, 9e8, 9e16, 1000, 1000000, 8000000, 9000000, 0);
INSERT INTO task_errors VALUES (22, 'write', 28, 3, 'write /mnt/f: No space left on device');
-- ceph-osd uses 2 s of CPU in each step of cephfs and writes twice the load; glusterfsd 1 s; the OSD grows.
INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, first_seen_us, last_seen_us, born_us, ended_us)
    VALUES (1, 2, 'ceph-osd', 'osd.0', 17, 1, 1, 400000000, 1, NULL), (2, 2, 'glusterfsd', '/b', 18, 1, 1, 400000000, 1, NULL),
           (3, 2, 'ceph-osd', 'osd.1', 19, 9, 1, 400000000, 125000000, 128000000);
INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, cpu_user_us, cpu_system_us, cpu_error_us,
                          rss_first_bytes, rss_min_bytes, rss_max_bytes, rss_last_bytes, vsz_bytes, read_bytes, write_bytes,
                          samples)
    SELECT s.id, d.id, iif(s.system = 'cephfs', d.id = 1, d.id = 2), s.start_us, s.last_done_us, 1500000 / d.id, 500000 / d.id,
           0, (s.id + 79) * 1048576, (s.id + 79) * 1048576, (s.id + 80) * 1048576, (s.id + 80) * 1048576, 1073741824, 0,
           iif(d.id = 1, 2 * (SELECT max(r.bytes) FROM step_results AS r WHERE r.step_id = s.id), 0), 11
    FROM steps AS s, daemons AS d WHERE d.id < 3 AND s.run_id = 2 AND s.system IS NOT NULL;
-- The hosts at the start and at the end of step 21: the client is a quarter busy, the server waits for its disk.
INSERT INTO host_samples (host_id, at_us, user_us, nice_us, system_us, idle_us, iowait_us, irq_us, softirq_us, steal_us,
                          memory_total_bytes, memory_available_bytes, memory_free_bytes, cached_bytes, dirty_bytes,
                          writeback_bytes, swap_used_bytes, load1)
    VALUES (1, 110000000, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
           (1, 120000000, 4000000, 0, 6000000, 30000000, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
           (2, 110000000, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
           (2, 120000000, 4000000, 0, 4000000, 56000000, 16000000, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
INSERT INTO disks (id, host_id, name) VALUES (1, 2, 'sda');
INSERT INTO disk_samples VALUES (1, 110000000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
                                (1, 115000000, 0, 0, 0, 0, 50000000, 0, 0, 1, 0, 0, 0),
                                (1, 120000000, 9, 10485760, 0, 9, 104857600, 0, 0, 9500000, 0, 0, 0);
INSERT INTO interfaces VALUES (1, 2, 'n', 'eth0'), (2, 2, 'n', 'lo');
INSERT INTO net_samples VALUES (1, 110000000, 0, 0, 0, 0, 0, 0, 0, 0), (1, 120000000, 41943040, 9, 0, 0, 20971520, 9, 0, 0),
                               (2, 110000000, 0, 0, 0, 0, 0, 0, 0, 0), (2, 120000000, 99999999, 9, 0, 0, 99999999, 9, 0, 0);
INSERT INTO cache_drops (step_id, agent_id, at_us, what, dropped, error)
    VALUES (25, 1, 1, 'page-cache', 1, NULL), (25, 2, 1, 'page-cache', 1, NULL), (25, 1, 1, 'fuse-client', 0, NULL);
INSERT INTO events (at_us, run_id, step_id, agent_id, severity, kind, message, detail)
    VALUES (111000000, 2, 21, 1, 'warning', 'stall', 'it hangs', '{"host":"c1","op":"write","path":"/mnt/f","since_us":1}'),
           (113000000, 2, 21, 1, 'info', 'stall-over', 'it went on',
            '{"host":"c1","op":"write","path":"/mnt/f","since_us":1,"lasted_us":2000000}'),
           (128000000, 2, NULL, 2, 'error', 'daemon-ended', 'osd.1 ended', NULL);
INSERT INTO step_traffic (step_id, host_id, read_bytes, written_bytes, received_bytes, sent_bytes, cached_bytes)
VALUES (21, 1, 0, 104857600, 1048576, 110100480, NULL);
