-- The archived tables of store/schema.sql, each row with the run whose copy it is. Texts compare as in SQLite, by
-- bytes.
-- Generated: BENCHMESH_BLESS=1 cargo test -p benchmesh-archive --lib migrations

CREATE TABLE benchmesh.hosts (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    boot_id text COLLATE "C" NOT NULL,
    pid_namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    kernel text COLLATE "C" NOT NULL,
    cpus bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.agents (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    host_id bigint NOT NULL,
    labels text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    first_seen_us bigint NOT NULL,
    last_seen_us bigint NOT NULL,
    forgotten_us bigint,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.samplers (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    host_id bigint NOT NULL,
    net_namespace text COLLATE "C",
    agent_id bigint NOT NULL,
    from_us bigint NOT NULL,
    until_us bigint,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.runs (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    plan text COLLATE "C" NOT NULL,
    agents text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    partial bigint NOT NULL,
    reason text COLLATE "C",
    created_us bigint NOT NULL,
    started_us bigint,
    ended_us bigint,
    version text COLLATE "C" NOT NULL,
    order_seed bigint,
    stop_reason text COLLATE "C",
    halted_us bigint,
    imported_from text COLLATE "C",
    due_us bigint,
    paused_us bigint NOT NULL,
    paused_from_us bigint,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.run_tags (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    run_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (site, run_uid, run_id, key)
);

CREATE TABLE benchmesh.run_notes (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    at_us bigint NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.marks (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    at_us bigint NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.steps (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    ordinal bigint NOT NULL,
    repeat bigint NOT NULL,
    attempt bigint NOT NULL,
    phase text COLLATE "C" NOT NULL,
    cell text COLLATE "C" NOT NULL,
    target text COLLATE "C",
    system text COLLATE "C",
    workload text COLLATE "C" NOT NULL,
    mode text COLLATE "C" NOT NULL,
    params text COLLATE "C" NOT NULL,
    clients bigint NOT NULL,
    cache text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    partial bigint NOT NULL,
    flags text COLLATE "C" NOT NULL,
    reason text COLLATE "C",
    start_us bigint,
    measured_from_us bigint,
    all_active_from_us bigint,
    all_active_until_us bigint,
    last_done_us bigint,
    ended_us bigint,
    stale_batches bigint NOT NULL,
    stale_samples bigint NOT NULL,
    resolution_s bigint NOT NULL,
    merging bigint NOT NULL,
    loop bigint NOT NULL,
    late_batches bigint NOT NULL,
    merged_10s_until_us bigint,
    merged_60s_until_us bigint,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.step_groups (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    step_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    workload text COLLATE "C" NOT NULL,
    mode text COLLATE "C" NOT NULL,
    params text COLLATE "C" NOT NULL,
    clients bigint NOT NULL,
    tasks bigint NOT NULL,
    PRIMARY KEY (site, run_uid, step_id, name)
);

CREATE TABLE benchmesh.tasks (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    step_id bigint NOT NULL,
    task_index bigint NOT NULL,
    agent_id bigint NOT NULL,
    peer_agent_id bigint,
    state text COLLATE "C" NOT NULL,
    workers bigint NOT NULL,
    start_us bigint,
    skew_us bigint,
    skew_error_us bigint,
    first_done_us bigint,
    ended_us bigint,
    cpu_user_us bigint,
    cpu_system_us bigint,
    wait_cpu_us bigint,
    harness_ns_per_op bigint,
    error text COLLATE "C",
    group_name text COLLATE "C",
    link_bytes_per_s bigint,
    last_begun_us bigint,
    last_spool_id text COLLATE "C",
    last_sequence bigint,
    part bigint NOT NULL,
    client_index bigint,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.task_errors (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    task_id bigint NOT NULL,
    op text COLLATE "C" NOT NULL,
    errno bigint NOT NULL,
    errors bigint NOT NULL,
    first text COLLATE "C" NOT NULL,
    PRIMARY KEY (site, run_uid, task_id, op, errno)
);

CREATE TABLE benchmesh.op_intervals (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    task_id bigint NOT NULL,
    at_us bigint NOT NULL,
    span_us bigint NOT NULL,
    op text COLLATE "C" NOT NULL,
    ramp bigint NOT NULL,
    ops bigint NOT NULL,
    bytes bigint NOT NULL,
    undated_bytes bigint NOT NULL,
    errors bigint NOT NULL,
    in_flight bigint NOT NULL,
    service_count bigint NOT NULL,
    service_sum_ns double precision NOT NULL,
    service_sum_squares_ns2 double precision NOT NULL,
    service_min_ns bigint,
    service_p50_ns bigint,
    service_p99_ns bigint,
    service_max_ns bigint,
    service_saturated bigint NOT NULL,
    service_histogram bytea,
    response_count bigint,
    response_sum_ns double precision,
    response_sum_squares_ns2 double precision,
    response_min_ns bigint,
    response_p99_ns bigint,
    response_max_ns bigint,
    response_saturated bigint,
    response_histogram bytea,
    PRIMARY KEY (site, run_uid, id, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.step_intervals (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    step_id bigint NOT NULL,
    group_name text COLLATE "C",
    at_us bigint NOT NULL,
    span_us bigint NOT NULL,
    op text COLLATE "C" NOT NULL,
    ramp bigint NOT NULL,
    tasks bigint NOT NULL,
    ops bigint,
    bytes bigint,
    errors bigint NOT NULL,
    mean_ns double precision,
    p50_ns bigint,
    p99_ns bigint,
    max_ns bigint,
    histogram bytea,
    response_p50_ns bigint,
    response_p99_ns bigint,
    response_max_ns bigint,
    PRIMARY KEY (site, run_uid, id, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.step_results (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    step_id bigint NOT NULL,
    group_name text COLLATE "C",
    op text COLLATE "C" NOT NULL,
    tasks bigint NOT NULL,
    ops bigint,
    bytes bigint,
    errors bigint,
    window_us bigint,
    window_ops double precision,
    window_ops_error double precision,
    window_bytes double precision,
    window_bytes_error double precision,
    headline text COLLATE "C" NOT NULL,
    ops_per_s double precision,
    bytes_per_s double precision,
    last_done_us bigint,
    last_done_ops_per_s double precision,
    last_done_bytes_per_s double precision,
    seconds bigint,
    zero_seconds bigint,
    ops_per_s_stddev double precision,
    ops_per_s_min double precision,
    ops_per_s_max double precision,
    bytes_per_s_stddev double precision,
    bytes_per_s_min double precision,
    bytes_per_s_max double precision,
    mean_ns double precision,
    stddev_ns double precision,
    min_ns bigint,
    p50_ns bigint,
    p90_ns bigint,
    p95_ns bigint,
    p99_ns bigint,
    p999_ns bigint,
    max_ns bigint,
    saturated bigint NOT NULL,
    histogram bytea,
    response_mean_ns double precision,
    response_stddev_ns double precision,
    response_min_ns bigint,
    response_p50_ns bigint,
    response_p90_ns bigint,
    response_p95_ns bigint,
    response_p99_ns bigint,
    response_p999_ns bigint,
    response_max_ns bigint,
    response_histogram bytea,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.task_results (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    task_id bigint NOT NULL,
    op text COLLATE "C" NOT NULL,
    ops bigint NOT NULL,
    bytes bigint NOT NULL,
    errors bigint NOT NULL,
    busy_us bigint,
    ops_per_s double precision,
    bytes_per_s double precision,
    mean_ns double precision,
    min_ns bigint,
    p50_ns bigint,
    p99_ns bigint,
    max_ns bigint,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.daemons (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    host_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    instance text COLLATE "C",
    pid bigint NOT NULL,
    start_ticks bigint NOT NULL,
    cmdline text COLLATE "C",
    first_seen_us bigint NOT NULL,
    last_seen_us bigint NOT NULL,
    ended_us bigint,
    born_us bigint,
    is_parent bigint NOT NULL,
    version text COLLATE "C",
    is_replaced bigint NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.daemon_samples (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    daemon_id bigint NOT NULL,
    at_us bigint NOT NULL,
    cpu_user_us bigint NOT NULL,
    cpu_system_us bigint NOT NULL,
    rss_bytes bigint NOT NULL,
    vsz_bytes bigint NOT NULL,
    threads bigint,
    fds bigint,
    read_bytes bigint,
    write_bytes bigint,
    vol_ctx bigint,
    invol_ctx bigint,
    minor_faults bigint,
    major_faults bigint,
    rss_peak_bytes bigint,
    swap_bytes bigint,
    PRIMARY KEY (site, run_uid, daemon_id, at_us, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.host_samples (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    host_id bigint NOT NULL,
    at_us bigint NOT NULL,
    user_us bigint NOT NULL,
    nice_us bigint NOT NULL,
    system_us bigint NOT NULL,
    idle_us bigint NOT NULL,
    iowait_us bigint NOT NULL,
    irq_us bigint NOT NULL,
    softirq_us bigint NOT NULL,
    steal_us bigint NOT NULL,
    memory_total_bytes bigint NOT NULL,
    memory_available_bytes bigint NOT NULL,
    memory_free_bytes bigint NOT NULL,
    cached_bytes bigint NOT NULL,
    dirty_bytes bigint NOT NULL,
    writeback_bytes bigint NOT NULL,
    swap_used_bytes bigint NOT NULL,
    load1 double precision NOT NULL,
    cpu_some_us bigint,
    io_some_us bigint,
    io_full_us bigint,
    memory_some_us bigint,
    memory_full_us bigint,
    skipped_ticks bigint NOT NULL,
    sampler_cpu_us bigint NOT NULL,
    busy_others text COLLATE "C",
    PRIMARY KEY (site, run_uid, host_id, at_us, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.disks (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    host_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    stacked bigint NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.disk_samples (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    disk_id bigint NOT NULL,
    at_us bigint NOT NULL,
    reads bigint NOT NULL,
    read_bytes bigint NOT NULL,
    read_us bigint NOT NULL,
    writes bigint NOT NULL,
    write_bytes bigint NOT NULL,
    write_us bigint NOT NULL,
    in_flight bigint NOT NULL,
    busy_us bigint NOT NULL,
    queue_us bigint NOT NULL,
    discards bigint NOT NULL,
    flushes bigint NOT NULL,
    PRIMARY KEY (site, run_uid, disk_id, at_us, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.interfaces (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    host_id bigint NOT NULL,
    net_namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.net_samples (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    interface_id bigint NOT NULL,
    at_us bigint NOT NULL,
    rx_bytes bigint NOT NULL,
    rx_packets bigint NOT NULL,
    rx_errors bigint NOT NULL,
    rx_dropped bigint NOT NULL,
    tx_bytes bigint NOT NULL,
    tx_packets bigint NOT NULL,
    tx_errors bigint NOT NULL,
    tx_dropped bigint NOT NULL,
    PRIMARY KEY (site, run_uid, interface_id, at_us, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.step_daemons (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    step_id bigint NOT NULL,
    daemon_id bigint NOT NULL,
    serves_target bigint,
    from_us bigint NOT NULL,
    until_us bigint NOT NULL,
    cpu_user_us bigint,
    cpu_system_us bigint,
    cpu_error_us bigint,
    idle_cpu_us bigint,
    rss_first_bytes bigint,
    rss_min_bytes bigint,
    rss_max_bytes bigint,
    rss_last_bytes bigint,
    rss_peak_bytes bigint,
    vsz_bytes bigint,
    read_bytes bigint,
    write_bytes bigint,
    vol_ctx bigint,
    invol_ctx bigint,
    minor_faults bigint,
    major_faults bigint,
    threads bigint,
    fds bigint,
    samples bigint NOT NULL,
    after_us bigint,
    after_cpu_us bigint,
    after_write_bytes bigint,
    after_idle bigint,
    swap_bytes bigint,
    PRIMARY KEY (site, run_uid, step_id, daemon_id)
);

CREATE TABLE benchmesh.step_traffic (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    step_id bigint NOT NULL,
    host_id bigint NOT NULL,
    read_bytes bigint NOT NULL,
    written_bytes bigint NOT NULL,
    received_bytes bigint,
    sent_bytes bigint,
    disk_read_bytes bigint,
    disk_written_bytes bigint,
    cached_bytes bigint,
    not_judged text COLLATE "C",
    PRIMARY KEY (site, run_uid, step_id, host_id)
);

CREATE TABLE benchmesh.step_states (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    step_id bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    at_us bigint NOT NULL,
    PRIMARY KEY (site, run_uid, step_id, state)
);

CREATE TABLE benchmesh.run_agents (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    run_id bigint NOT NULL,
    agent_id bigint NOT NULL,
    host_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    labels text COLLATE "C" NOT NULL,
    kernel text COLLATE "C" NOT NULL,
    distribution text COLLATE "C",
    cpu_model text COLLATE "C",
    cpus bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    interfaces text COLLATE "C",
    disks text COLLATE "C",
    packages text COLLATE "C",
    policy text COLLATE "C",
    PRIMARY KEY (site, run_uid, run_id, agent_id)
);

CREATE TABLE benchmesh.run_targets (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    run_id bigint NOT NULL,
    agent_id bigint NOT NULL,
    target text COLLATE "C" NOT NULL,
    system text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    mount_source text COLLATE "C",
    mount_type text COLLATE "C",
    mount_options text COLLATE "C",
    beneath text COLLATE "C",
    size_bytes bigint,
    free_bytes bigint,
    packages text COLLATE "C",
    PRIMARY KEY (site, run_uid, run_id, agent_id, target)
);

CREATE TABLE benchmesh.clock_offsets (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    agent_id bigint NOT NULL,
    at_us bigint NOT NULL,
    offset_us bigint NOT NULL,
    error_us bigint NOT NULL,
    round_trip_us bigint NOT NULL,
    PRIMARY KEY (site, run_uid, agent_id, at_us)
);

CREATE TABLE benchmesh.cache_drops (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    step_id bigint NOT NULL,
    agent_id bigint NOT NULL,
    at_us bigint NOT NULL,
    what text COLLATE "C" NOT NULL,
    dropped bigint NOT NULL,
    error text COLLATE "C",
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.events (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    at_us bigint NOT NULL,
    run_id bigint,
    step_id bigint,
    agent_id bigint,
    source text COLLATE "C" NOT NULL,
    severity text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    detail text COLLATE "C",
    PRIMARY KEY (site, run_uid, id, month)
) PARTITION BY RANGE (month);

CREATE TABLE benchmesh.losses (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    agent_id bigint NOT NULL,
    what text COLLATE "C" NOT NULL,
    rows bigint NOT NULL,
    from_us bigint NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.facts (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    run_id bigint,
    step_id bigint,
    agent_id bigint NOT NULL,
    system text COLLATE "C" NOT NULL,
    at_us bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    value jsonb NOT NULL,
    unit text COLLATE "C",
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.findings (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    verdict text COLLATE "C" NOT NULL,
    severity text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    figure text COLLATE "C",
    step_id bigint,
    group_name text COLLATE "C",
    op text COLLATE "C",
    agent_id bigint,
    host_id bigint,
    daemon_id bigint,
    from_us bigint,
    until_us bigint,
    size double precision,
    unit text COLLATE "C",
    low double precision,
    high double precision,
    p double precision,
    sentence text COLLATE "C" NOT NULL,
    sql text COLLATE "C",
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.step_objectives (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    step_id bigint NOT NULL,
    holds text COLLATE "C" NOT NULL,
    share double precision NOT NULL,
    seconds bigint NOT NULL,
    bad_seconds bigint NOT NULL,
    PRIMARY KEY (site, run_uid, step_id, holds)
);

CREATE TABLE benchmesh.targets (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    agent_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    nonce text COLLATE "C" NOT NULL,
    device text COLLATE "C",
    PRIMARY KEY (site, run_uid, id)
);

CREATE TABLE benchmesh.target_samples (
    site text COLLATE "C" NOT NULL,
    run_uid text COLLATE "C" NOT NULL,
    month date NOT NULL,
    target_id bigint NOT NULL,
    at_us bigint NOT NULL,
    size_bytes bigint NOT NULL,
    free_bytes bigint NOT NULL,
    files bigint,
    free_files bigint,
    PRIMARY KEY (site, run_uid, target_id, at_us, month)
) PARTITION BY RANGE (month);
