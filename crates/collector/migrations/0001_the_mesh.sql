-- The first schema. docs/database.md is its reference; a test holds the two together.
-- Instants are mesh time in microseconds (_us); durations _ns or _us; sizes _bytes.

CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    mesh_uid        TEXT    NOT NULL,
    created_us      INTEGER NOT NULL,
    version         TEXT    NOT NULL,
    clock_boot_id   TEXT,
    clock_boottime_ns INTEGER,
    clock_mesh_us   INTEGER
) STRICT;

CREATE TABLE hosts (
    id              INTEGER PRIMARY KEY,
    boot_id         TEXT    NOT NULL,
    pid_namespace   TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    kernel          TEXT    NOT NULL,
    cpus            INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes    INTEGER NOT NULL CHECK (memory_bytes >= 0),
    UNIQUE (boot_id, pid_namespace)
) STRICT;

CREATE TABLE agents (
    id              INTEGER PRIMARY KEY,
    uid             TEXT    NOT NULL UNIQUE,
    name            TEXT    NOT NULL,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    labels          TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(labels)),
    version         TEXT    NOT NULL,
    first_seen_us   INTEGER NOT NULL,
    last_seen_us    INTEGER NOT NULL
) STRICT;
CREATE INDEX agents_by_host ON agents (host_id);

CREATE TABLE runs (
    id              INTEGER PRIMARY KEY,
    uid             TEXT    NOT NULL UNIQUE,
    name            TEXT    NOT NULL,
    plan            TEXT    NOT NULL,
    agents          TEXT    NOT NULL DEFAULT '[]' CHECK (json_valid(agents)),
    state           TEXT    NOT NULL,
    partial         INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)),
    reason          TEXT,
    created_us      INTEGER NOT NULL,
    started_us      INTEGER,
    ended_us        INTEGER,
    version         TEXT    NOT NULL
) STRICT;
CREATE INDEX runs_by_state ON runs (state);

CREATE TABLE steps (
    id                  INTEGER PRIMARY KEY,
    run_id              INTEGER NOT NULL REFERENCES runs (id),
    ordinal             INTEGER NOT NULL CHECK (ordinal >= 0),
    repeat              INTEGER NOT NULL CHECK (repeat >= 0),
    attempt             INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    phase               TEXT    NOT NULL,
    cell                TEXT    NOT NULL,
    target              TEXT    NOT NULL,
    system              TEXT    NOT NULL,
    workload            TEXT    NOT NULL,
    mode                TEXT    NOT NULL,
    params              TEXT    NOT NULL DEFAULT '{}' CHECK (json_valid(params)),
    clients             INTEGER NOT NULL CHECK (clients >= 0),
    cache               TEXT    NOT NULL,
    state               TEXT    NOT NULL,
    partial             INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)),
    flags               TEXT    NOT NULL DEFAULT '[]' CHECK (json_valid(flags)),
    reason              TEXT,
    start_us            INTEGER,
    measured_from_us    INTEGER,
    all_active_from_us  INTEGER,
    all_active_until_us INTEGER,
    last_done_us        INTEGER,
    ended_us            INTEGER,
    stale_batches       INTEGER NOT NULL DEFAULT 0 CHECK (stale_batches >= 0),
    UNIQUE (run_id, ordinal, attempt)
) STRICT;
CREATE INDEX steps_stale ON steps (id) WHERE stale_batches > 0;

CREATE TABLE tasks (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    task_index      INTEGER NOT NULL CHECK (task_index >= 0),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    peer_agent_id   INTEGER REFERENCES agents (id),
    state           TEXT    NOT NULL,
    workers         INTEGER NOT NULL DEFAULT 0 CHECK (workers >= 0),
    start_us        INTEGER,
    skew_us         INTEGER,
    skew_error_us   INTEGER,
    first_done_us   INTEGER,
    ended_us        INTEGER,
    cpu_user_us     INTEGER,
    cpu_system_us   INTEGER,
    wait_cpu_us     INTEGER,
    harness_ns_per_op INTEGER,
    error           TEXT,
    UNIQUE (step_id, task_index)
) STRICT;
CREATE INDEX tasks_by_agent ON tasks (agent_id);

CREATE TABLE task_errors (
    task_id         INTEGER NOT NULL REFERENCES tasks (id),
    op              TEXT    NOT NULL,
    errno           INTEGER NOT NULL,
    errors          INTEGER NOT NULL CHECK (errors >= 0),
    first           TEXT    NOT NULL,
    PRIMARY KEY (task_id, op, errno)
) STRICT, WITHOUT ROWID;

-- Rowid tables wherever there is a histogram: a long record in a WITHOUT ROWID table spills to overflow pages.
CREATE TABLE op_intervals (
    id              INTEGER PRIMARY KEY,
    task_id         INTEGER NOT NULL REFERENCES tasks (id),
    at_us           INTEGER NOT NULL,
    span_us         INTEGER NOT NULL CHECK (span_us > 0),
    op              TEXT    NOT NULL,
    ramp            INTEGER NOT NULL CHECK (ramp IN (0, 1)),
    ops             INTEGER NOT NULL CHECK (ops >= 0),
    bytes           INTEGER NOT NULL CHECK (bytes >= 0),
    errors          INTEGER NOT NULL CHECK (errors >= 0),
    in_flight       INTEGER NOT NULL CHECK (in_flight >= 0),
    service_count           INTEGER NOT NULL,
    service_sum_ns          REAL    NOT NULL,
    service_sum_squares_ns2 REAL    NOT NULL,
    service_min_ns          INTEGER,
    service_max_ns          INTEGER,
    service_saturated       INTEGER NOT NULL,
    service_histogram       BLOB,
    response_count           INTEGER,
    response_sum_ns          REAL,
    response_sum_squares_ns2 REAL,
    response_min_ns          INTEGER,
    response_max_ns          INTEGER,
    response_saturated       INTEGER,
    response_histogram       BLOB,
    UNIQUE (task_id, at_us, op, ramp)
) STRICT;

CREATE TABLE step_intervals (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
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
    UNIQUE (step_id, at_us, op, ramp)
) STRICT;

CREATE TABLE step_results (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
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
    UNIQUE (step_id, op)
) STRICT;

CREATE TABLE task_results (
    id              INTEGER PRIMARY KEY,
    task_id         INTEGER NOT NULL REFERENCES tasks (id),
    op              TEXT    NOT NULL,
    ops             INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    errors          INTEGER NOT NULL,
    busy_us         INTEGER,
    ops_per_s       REAL,
    bytes_per_s     REAL,
    mean_ns         REAL,
    min_ns          INTEGER,
    p50_ns          INTEGER,
    p99_ns          INTEGER,
    max_ns          INTEGER,
    UNIQUE (task_id, op)
) STRICT;

CREATE TABLE daemons (
    id              INTEGER PRIMARY KEY,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    name            TEXT    NOT NULL,
    instance        TEXT    NOT NULL,
    pid             INTEGER NOT NULL,
    start_ticks     INTEGER NOT NULL,
    cmdline         TEXT    NOT NULL,
    first_seen_us   INTEGER NOT NULL,
    last_seen_us    INTEGER NOT NULL,
    ended_us        INTEGER,
    UNIQUE (host_id, pid, start_ticks)
) STRICT;

CREATE TABLE daemon_samples (
    daemon_id       INTEGER NOT NULL REFERENCES daemons (id),
    at_us           INTEGER NOT NULL,
    cpu_user_us     INTEGER NOT NULL,
    cpu_system_us   INTEGER NOT NULL,
    rss_bytes       INTEGER NOT NULL,
    vsz_bytes       INTEGER NOT NULL,
    threads         INTEGER NOT NULL,
    fds             INTEGER,
    read_bytes      INTEGER,
    write_bytes     INTEGER,
    vol_ctx         INTEGER,
    invol_ctx       INTEGER,
    minor_faults    INTEGER NOT NULL,
    major_faults    INTEGER NOT NULL,
    PRIMARY KEY (daemon_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE host_samples (
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    at_us           INTEGER NOT NULL,
    user_us         INTEGER NOT NULL,
    nice_us         INTEGER NOT NULL,
    system_us       INTEGER NOT NULL,
    idle_us         INTEGER NOT NULL,
    iowait_us       INTEGER NOT NULL,
    irq_us          INTEGER NOT NULL,
    softirq_us      INTEGER NOT NULL,
    steal_us        INTEGER NOT NULL,
    memory_total_bytes     INTEGER NOT NULL,
    memory_available_bytes INTEGER NOT NULL,
    memory_free_bytes      INTEGER NOT NULL,
    cached_bytes    INTEGER NOT NULL,
    dirty_bytes     INTEGER NOT NULL,
    writeback_bytes INTEGER NOT NULL,
    swap_used_bytes INTEGER NOT NULL,
    load1           REAL    NOT NULL,
    cpu_some_us     INTEGER,
    io_some_us      INTEGER,
    io_full_us      INTEGER,
    memory_some_us  INTEGER,
    memory_full_us  INTEGER,
    PRIMARY KEY (host_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE disks (
    id              INTEGER PRIMARY KEY,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    name            TEXT    NOT NULL,
    UNIQUE (host_id, name)
) STRICT;

CREATE TABLE disk_samples (
    disk_id         INTEGER NOT NULL REFERENCES disks (id),
    at_us           INTEGER NOT NULL,
    reads           INTEGER NOT NULL,
    read_bytes      INTEGER NOT NULL,
    read_us         INTEGER NOT NULL,
    writes          INTEGER NOT NULL,
    write_bytes     INTEGER NOT NULL,
    write_us        INTEGER NOT NULL,
    in_flight       INTEGER NOT NULL,
    busy_us         INTEGER NOT NULL,
    queue_us        INTEGER NOT NULL,
    discards        INTEGER NOT NULL,
    flushes         INTEGER NOT NULL,
    PRIMARY KEY (disk_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE interfaces (
    id              INTEGER PRIMARY KEY,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    net_namespace   TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    UNIQUE (host_id, net_namespace, name)
) STRICT;

CREATE TABLE net_samples (
    interface_id    INTEGER NOT NULL REFERENCES interfaces (id),
    at_us           INTEGER NOT NULL,
    rx_bytes        INTEGER NOT NULL,
    rx_packets      INTEGER NOT NULL,
    rx_errors       INTEGER NOT NULL,
    rx_dropped      INTEGER NOT NULL,
    tx_bytes        INTEGER NOT NULL,
    tx_packets      INTEGER NOT NULL,
    tx_errors       INTEGER NOT NULL,
    tx_dropped      INTEGER NOT NULL,
    PRIMARY KEY (interface_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE clock_offsets (
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    at_us           INTEGER NOT NULL,
    offset_us       INTEGER NOT NULL,
    error_us        INTEGER NOT NULL CHECK (error_us >= 0),
    round_trip_us   INTEGER NOT NULL CHECK (round_trip_us >= 0),
    PRIMARY KEY (agent_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE cache_drops (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    at_us           INTEGER NOT NULL,
    what            TEXT    NOT NULL,
    dropped         INTEGER NOT NULL CHECK (dropped IN (0, 1)),
    error           TEXT
) STRICT;
CREATE INDEX cache_drops_by_step ON cache_drops (step_id);

CREATE TABLE events (
    id              INTEGER PRIMARY KEY,
    at_us           INTEGER NOT NULL,
    run_id          INTEGER REFERENCES runs (id),
    step_id         INTEGER REFERENCES steps (id),
    agent_id        INTEGER REFERENCES agents (id),
    severity        TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    message         TEXT    NOT NULL,
    detail          TEXT    CHECK (detail IS NULL OR json_valid(detail))
) STRICT;
CREATE INDEX events_by_run ON events (run_id, at_us);
CREATE INDEX events_by_time ON events (at_us);

CREATE TABLE losses (
    id              INTEGER PRIMARY KEY,
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    what            TEXT    NOT NULL,
    rows            INTEGER NOT NULL CHECK (rows >= 0),
    from_us         INTEGER NOT NULL,
    until_us        INTEGER NOT NULL
) STRICT;
CREATE INDEX losses_by_agent ON losses (agent_id, from_us);

CREATE TABLE spools (
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    spool_id        TEXT    NOT NULL,
    last_sequence   INTEGER NOT NULL CHECK (last_sequence >= 0),
    PRIMARY KEY (agent_id, spool_id)
) STRICT, WITHOUT ROWID;
