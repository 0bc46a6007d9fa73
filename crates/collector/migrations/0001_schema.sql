-- The schema of a benchmesh database. docs/database.md is its reference; tests keep the two identical.
-- Instants are mesh time in microseconds (_us), durations _ns or _us, sizes _bytes. What does not apply is NULL, never ''; what
-- an agent did not tell of its host may be ''.
-- AUTOINCREMENT: what people and agents name by its id is deleted with its run, and an id is never used twice.
-- Every column of words has its CHECK; `workload`, `mode` and `op` are open, because a workload adds no migration, and
-- `events.kind` is, because agents of another version record kinds that this one does not know.

CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    mesh_uid        TEXT    NOT NULL CHECK (mesh_uid <> ''),
    created_us      INTEGER NOT NULL,
    version         TEXT    NOT NULL CHECK (version <> ''),
    clock_boot_id   TEXT CHECK (clock_boot_id <> ''),
    clock_boottime_ns INTEGER,
    clock_mesh_us   INTEGER
) STRICT;

CREATE TABLE hosts (
    id              INTEGER PRIMARY KEY,
    boot_id         TEXT    NOT NULL CHECK (boot_id <> ''),
    pid_namespace   TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    kernel          TEXT    NOT NULL,
    cpus            INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes    INTEGER NOT NULL CHECK (memory_bytes >= 0),
    UNIQUE (boot_id, pid_namespace)
) STRICT;

CREATE TABLE agents (
    id              INTEGER PRIMARY KEY,
    uid             TEXT    NOT NULL UNIQUE CHECK (uid <> ''),
    name            TEXT    NOT NULL CHECK (name <> ''),
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    labels          TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(labels) = 'object'),
    version         TEXT    NOT NULL CHECK (version <> ''),
    first_seen_us   INTEGER NOT NULL,
    last_seen_us    INTEGER NOT NULL,
    forgotten_us    INTEGER
) STRICT;
CREATE INDEX agents_by_host ON agents (host_id);

-- Who samples a host; with a net_namespace: its interfaces. The first of a place is its own agent, whose samples count
-- from from_us on; those of others count until until_us.
CREATE TABLE samplers (
    id              INTEGER PRIMARY KEY,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    net_namespace   TEXT CHECK (net_namespace <> ''),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    from_us         INTEGER NOT NULL,
    until_us        INTEGER
) STRICT;
CREATE INDEX samplers_by_host ON samplers (host_id);
CREATE INDEX samplers_by_agent ON samplers (agent_id);

-- What `hosts` and `agents` said up to `until_us`, before an attach or a rename changed it, and at the end of a run of a merged
-- file. At an instant the first row after it holds, and without one the row of today, so that views of old runs do not
-- change when a host or an agent does.
CREATE TABLE former_hosts (
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    until_us        INTEGER NOT NULL,
    name            TEXT    NOT NULL,
    kernel          TEXT    NOT NULL,
    cpus            INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes    INTEGER NOT NULL CHECK (memory_bytes >= 0),
    PRIMARY KEY (host_id, until_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE former_agents (
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    until_us        INTEGER NOT NULL,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    name            TEXT    NOT NULL CHECK (name <> ''),
    labels          TEXT    NOT NULL CHECK (json_type(labels) = 'object'),
    version         TEXT    NOT NULL CHECK (version <> ''),
    PRIMARY KEY (agent_id, until_us)
) STRICT, WITHOUT ROWID;
CREATE INDEX former_agents_by_host ON former_agents (host_id);

CREATE TABLE runs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    uid             TEXT    NOT NULL UNIQUE CHECK (uid <> ''),
    name            TEXT    NOT NULL CHECK (name <> ''),
    plan            TEXT    NOT NULL,
    agents          TEXT    NOT NULL DEFAULT '[]' CHECK (json_type(agents) = 'array'),
    state           TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'stopped')),
    partial         INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)),
    reason          TEXT CHECK (reason <> ''),
    created_us      INTEGER NOT NULL,
    started_us      INTEGER,
    ended_us        INTEGER,
    version         TEXT    NOT NULL CHECK (version <> ''),
    order_seed      INTEGER CHECK (order_seed >= 0),
    stop_reason     TEXT CHECK (stop_reason <> ''),
    halted_us       INTEGER,
    imported_from   TEXT CHECK (imported_from <> '')
) STRICT;
CREATE INDEX runs_by_state ON runs (state);
CREATE INDEX runs_by_name ON runs (name);

CREATE TABLE run_tags (
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    key             TEXT    NOT NULL CHECK (key <> ''),
    value           TEXT    NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_tags_by_key ON run_tags (key, value);

CREATE TABLE run_notes (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    at_us           INTEGER NOT NULL,
    text            TEXT    NOT NULL CHECK (text <> '')
) STRICT;
CREATE INDEX run_notes_by_run ON run_notes (run_id);

-- Dated by hand or by a script; what the mesh saw by itself is an event. v_marks has both.
CREATE TABLE marks (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    at_us           INTEGER NOT NULL,
    text            TEXT    NOT NULL CHECK (text <> '')
) STRICT;
CREATE INDEX marks_by_run ON marks (run_id, at_us);

CREATE TABLE baselines (
    name            TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    saved_us        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX baselines_by_run ON baselines (run_id);

-- The directories of runs under way: a row is there from before an agent is asked to make one until it is removed.
CREATE TABLE run_directories (
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    path            TEXT    NOT NULL CHECK (path <> ''),
    nonce           TEXT CHECK (nonce <> ''),
    made            INTEGER NOT NULL CHECK (made IN (0, 1)),
    free_bytes      INTEGER NOT NULL CHECK (free_bytes >= 0),
    UNIQUE (run_id, agent_id, path)
) STRICT;
CREATE INDEX run_directories_by_agent ON run_directories (agent_id);

CREATE TABLE steps (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id              INTEGER NOT NULL REFERENCES runs (id),
    ordinal             INTEGER NOT NULL CHECK (ordinal >= 0),
    repeat              INTEGER NOT NULL CHECK (repeat >= 0),
    attempt             INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    phase               TEXT    NOT NULL CHECK (phase <> ''),
    cell                TEXT    NOT NULL CHECK (cell <> ''),
    target              TEXT CHECK (target <> ''),
    system              TEXT CHECK (system <> ''),
    workload            TEXT    NOT NULL CHECK (workload <> ''),
    mode                TEXT    NOT NULL CHECK (mode <> ''),
    params              TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(params) = 'object'),
    clients             INTEGER NOT NULL CHECK (clients >= 0),
    cache               TEXT    NOT NULL CHECK (cache IN ('asis', 'warm', 'cold', 'bypass', 'other-client')),
    state               TEXT    NOT NULL CHECK (state IN ('planned', 'prepare', 'settle', 'ready',
        'armed', 'running', 'cleaning', 'done', 'failed', 'stopped')),
    partial             INTEGER NOT NULL DEFAULT 0 CHECK (partial IN (0, 1)),
    flags               TEXT    NOT NULL DEFAULT '[]' CHECK (json_type(flags) = 'array'),
    reason              TEXT CHECK (reason <> ''),
    start_us            INTEGER,
    measured_from_us    INTEGER,
    all_active_from_us  INTEGER,
    all_active_until_us INTEGER,
    last_done_us        INTEGER,
    ended_us            INTEGER,
    stale_batches       INTEGER NOT NULL DEFAULT 0 CHECK (stale_batches >= 0),
    stale_samples       INTEGER NOT NULL DEFAULT 0 CHECK (stale_samples >= 0),
    UNIQUE (run_id, ordinal, attempt)
) STRICT;
CREATE INDEX steps_stale ON steps (id) WHERE stale_batches > 0;
CREATE INDEX steps_stale_samples ON steps (id) WHERE stale_samples > 0;
CREATE INDEX steps_by_end ON steps (ended_us);

CREATE TABLE step_groups (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    name            TEXT    NOT NULL CHECK (name <> ''),
    workload        TEXT    NOT NULL CHECK (workload <> ''),
    mode            TEXT    NOT NULL CHECK (mode <> ''),
    params          TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(params) = 'object'),
    clients         INTEGER NOT NULL CHECK (clients >= 0),
    tasks           INTEGER NOT NULL CHECK (tasks >= 0),
    PRIMARY KEY (step_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    task_index      INTEGER NOT NULL CHECK (task_index >= 0),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    peer_agent_id   INTEGER REFERENCES agents (id),
    state           TEXT    NOT NULL CHECK (state IN ('planned', 'prepare', 'ready', 'armed', 'running', 'done',
        'failed', 'stopped', 'lost')),
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
    error           TEXT CHECK (error <> ''),
    group_name      TEXT CHECK (group_name <> ''),
    link_bytes_per_s INTEGER CHECK (link_bytes_per_s > 0),
    last_begun_us   INTEGER,
    last_spool_id   TEXT CHECK (last_spool_id <> ''),
    last_sequence   INTEGER CHECK (last_sequence >= 0),
    CHECK ((last_spool_id IS NULL) = (last_sequence IS NULL)),
    UNIQUE (step_id, task_index)
) STRICT;
CREATE INDEX tasks_by_agent ON tasks (agent_id);
CREATE INDEX tasks_by_peer ON tasks (peer_agent_id) WHERE peer_agent_id IS NOT NULL;
CREATE INDEX tasks_by_link ON tasks (agent_id, step_id) WHERE peer_agent_id IS NOT NULL;

CREATE TABLE task_errors (
    task_id         INTEGER NOT NULL REFERENCES tasks (id),
    op              TEXT    NOT NULL CHECK (op <> ''),
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
    op              TEXT    NOT NULL CHECK (op <> ''),
    ramp            INTEGER NOT NULL CHECK (ramp IN (0, 1)),
    ops             INTEGER NOT NULL CHECK (ops >= 0),
    bytes           INTEGER NOT NULL CHECK (bytes >= 0),
    undated_bytes   INTEGER NOT NULL DEFAULT 0 CHECK (undated_bytes >= 0),
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
    group_name      TEXT CHECK (group_name <> ''),
    at_us           INTEGER NOT NULL,
    span_us         INTEGER NOT NULL CHECK (span_us > 0),
    op              TEXT    NOT NULL CHECK (op <> ''),
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
    response_p50_ns INTEGER,
    response_p99_ns INTEGER,
    response_max_ns INTEGER
) STRICT;
-- NULLs are distinct in a plain UNIQUE.
CREATE UNIQUE INDEX step_intervals_key ON step_intervals (step_id, at_us, op, ramp, coalesce(group_name, ''));

CREATE TABLE step_results (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    group_name      TEXT CHECK (group_name <> ''),
    op              TEXT    NOT NULL CHECK (op <> ''),
    tasks           INTEGER NOT NULL,
    ops             INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    errors          INTEGER NOT NULL,
    window_us       INTEGER,
    window_ops      REAL,
    window_ops_error REAL,
    window_bytes    REAL,
    window_bytes_error REAL,
    headline        TEXT    NOT NULL CHECK (headline IN ('window', 'last-done', 'none')),
    ops_per_s       REAL,
    bytes_per_s     REAL,
    last_done_us    INTEGER,
    last_done_ops_per_s   REAL,
    last_done_bytes_per_s REAL,
    seconds         INTEGER,
    zero_seconds    INTEGER,
    ops_per_s_stddev   REAL,
    ops_per_s_min      REAL,
    ops_per_s_max      REAL,
    bytes_per_s_stddev REAL,
    bytes_per_s_min    REAL,
    bytes_per_s_max    REAL,
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
    response_histogram BLOB
) STRICT;
CREATE UNIQUE INDEX step_results_key ON step_results (step_id, op, coalesce(group_name, ''));

CREATE TABLE task_results (
    id              INTEGER PRIMARY KEY,
    task_id         INTEGER NOT NULL REFERENCES tasks (id),
    op              TEXT    NOT NULL CHECK (op <> ''),
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
    name            TEXT    NOT NULL CHECK (name <> ''),
    instance        TEXT CHECK (instance <> ''),
    pid             INTEGER NOT NULL,
    start_ticks     INTEGER NOT NULL,
    cmdline         TEXT CHECK (cmdline <> ''),
    first_seen_us   INTEGER NOT NULL,
    last_seen_us    INTEGER NOT NULL,
    ended_us        INTEGER,
    born_us         INTEGER,
    -- 1: all it did was to start a daemon of its name and instance, which went into the background; it is counted nowhere.
    is_parent       INTEGER NOT NULL DEFAULT 0 CHECK (is_parent IN (0, 1)),
    UNIQUE (host_id, pid, start_ticks)
) STRICT;

-- With many busy daemons an agent reads CPU time and memory at every sample and all else every few: NULL in between.
CREATE TABLE daemon_samples (
    daemon_id       INTEGER NOT NULL REFERENCES daemons (id),
    at_us           INTEGER NOT NULL,
    cpu_user_us     INTEGER NOT NULL,
    cpu_system_us   INTEGER NOT NULL,
    rss_bytes       INTEGER NOT NULL,
    vsz_bytes       INTEGER NOT NULL,
    threads         INTEGER,
    fds             INTEGER,
    read_bytes      INTEGER,
    write_bytes     INTEGER,
    vol_ctx         INTEGER,
    invol_ctx       INTEGER,
    minor_faults    INTEGER,
    major_faults    INTEGER,
    rss_peak_bytes  INTEGER,
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
    skipped_ticks   INTEGER NOT NULL DEFAULT 0,
    sampler_cpu_us  INTEGER NOT NULL DEFAULT 0,
    busy_others     TEXT CHECK (json_type(busy_others) = 'object'),
    PRIMARY KEY (host_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE disks (
    id              INTEGER PRIMARY KEY,
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    name            TEXT    NOT NULL CHECK (name <> ''),
    -- 1: it stands on other disks of the host (loop, dm, md), which count what it moves once more.
    stacked         INTEGER NOT NULL DEFAULT 0 CHECK (stacked IN (0, 1)),
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
    name            TEXT    NOT NULL CHECK (name <> ''),
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

-- What each daemon used in the measured part of a step; written when the step ends, and again when late samples come.
CREATE TABLE step_daemons (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    daemon_id       INTEGER NOT NULL REFERENCES daemons (id),
    serves_target   INTEGER CHECK (serves_target IN (0, 1)),
    from_us         INTEGER NOT NULL,
    until_us        INTEGER NOT NULL CHECK (until_us > from_us),
    cpu_user_us     INTEGER CHECK (cpu_user_us >= 0),
    cpu_system_us   INTEGER CHECK (cpu_system_us >= 0),
    cpu_error_us    INTEGER CHECK (cpu_error_us >= 0),
    idle_cpu_us     INTEGER CHECK (idle_cpu_us >= 0),
    rss_first_bytes INTEGER,
    rss_min_bytes   INTEGER,
    rss_max_bytes   INTEGER,
    rss_last_bytes  INTEGER,
    rss_peak_bytes  INTEGER,
    vsz_bytes       INTEGER,
    read_bytes      INTEGER,
    write_bytes     INTEGER,
    vol_ctx         INTEGER,
    invol_ctx       INTEGER,
    minor_faults    INTEGER,
    major_faults    INTEGER,
    threads         INTEGER,
    fds             INTEGER,
    samples         INTEGER NOT NULL CHECK (samples >= 0),
    -- What it still did afterwards, until it was idle or (after_idle = 0) nobody looked any longer.
    after_us        INTEGER CHECK (after_us >= 0),
    after_cpu_us    INTEGER CHECK (after_cpu_us >= 0),
    after_write_bytes INTEGER CHECK (after_write_bytes >= 0),
    after_idle      INTEGER CHECK (after_idle IN (0, 1)),
    PRIMARY KEY (step_id, daemon_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX step_daemons_by_daemon ON step_daemons (daemon_id);

-- What the load on a client's host read and wrote in the measured part of a step, beside what its interfaces and disks
-- carried meanwhile: what was read and never came is from a cache. Written with step_daemons.
CREATE TABLE step_traffic (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    read_bytes      INTEGER NOT NULL CHECK (read_bytes >= 0),
    written_bytes   INTEGER NOT NULL CHECK (written_bytes >= 0),
    received_bytes  INTEGER CHECK (received_bytes >= 0),
    sent_bytes      INTEGER CHECK (sent_bytes >= 0),
    disk_read_bytes INTEGER CHECK (disk_read_bytes >= 0),
    disk_written_bytes INTEGER CHECK (disk_written_bytes >= 0),
    -- Of what was read; NULL: not judged, and why.
    cached_bytes    INTEGER CHECK (cached_bytes >= 0),
    not_judged      TEXT CHECK (not_judged <> ''),
    CHECK (cached_bytes IS NULL OR not_judged IS NULL),
    PRIMARY KEY (step_id, host_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX step_traffic_by_host ON step_traffic (host_id);

-- When a step entered each of its states.
CREATE TABLE step_states (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    state           TEXT    NOT NULL CHECK (state IN ('prepare', 'settle', 'ready', 'armed', 'running', 'cleaning')),
    at_us           INTEGER NOT NULL,
    PRIMARY KEY (step_id, state)
) STRICT, WITHOUT ROWID;
CREATE INDEX step_states_by_time ON step_states (at_us);

-- The environment as it was when a run began; never changed afterwards.
CREATE TABLE run_agents (
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    host_id         INTEGER NOT NULL REFERENCES hosts (id),
    name            TEXT    NOT NULL CHECK (name <> ''),
    host            TEXT    NOT NULL,
    version         TEXT    NOT NULL CHECK (version <> ''),
    labels          TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(labels) = 'object'),
    kernel          TEXT    NOT NULL,
    distribution    TEXT CHECK (distribution <> ''),
    cpu_model       TEXT CHECK (cpu_model <> ''),
    cpus            INTEGER NOT NULL CHECK (cpus >= 0),
    memory_bytes    INTEGER NOT NULL CHECK (memory_bytes >= 0),
    interfaces      TEXT CHECK (json_type(interfaces) = 'array'),
    disks           TEXT CHECK (json_type(disks) = 'array'),
    packages        TEXT CHECK (json_type(packages) = 'object'),
    policy          TEXT CHECK (json_type(policy) = 'object'),
    PRIMARY KEY (run_id, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_agents_by_agent ON run_agents (agent_id);
CREATE INDEX run_agents_by_host ON run_agents (host_id);

CREATE TABLE run_targets (
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    target          TEXT    NOT NULL CHECK (target <> ''),
    system          TEXT    NOT NULL CHECK (system <> ''),
    path            TEXT    NOT NULL CHECK (path <> ''),
    mount_source    TEXT CHECK (mount_source <> ''),
    mount_type      TEXT CHECK (mount_type <> ''),
    mount_options   TEXT CHECK (mount_options <> ''),
    beneath         TEXT CHECK (json_type(beneath) = 'array'),
    size_bytes      INTEGER CHECK (size_bytes >= 0),
    free_bytes      INTEGER CHECK (free_bytes >= 0),
    packages        TEXT CHECK (json_type(packages) = 'object'),
    PRIMARY KEY (run_id, agent_id, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_targets_by_agent ON run_targets (agent_id);

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
    what            TEXT    NOT NULL CHECK (what IN ('page-cache', 'dentries-inodes', 'fuse-client',
        'daemon-caches')),
    dropped         INTEGER NOT NULL CHECK (dropped IN (0, 1)),
    error           TEXT CHECK (error <> '')
) STRICT;
CREATE INDEX cache_drops_by_step ON cache_drops (step_id);
CREATE INDEX cache_drops_by_agent ON cache_drops (agent_id);

CREATE TABLE events (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us           INTEGER NOT NULL,
    run_id          INTEGER REFERENCES runs (id),
    step_id         INTEGER REFERENCES steps (id),
    agent_id        INTEGER REFERENCES agents (id),
    source          TEXT    NOT NULL DEFAULT 'collector' CHECK (source IN ('agent', 'collector')),
    severity        TEXT    NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
    kind            TEXT    NOT NULL CHECK (kind <> ''),
    message         TEXT    NOT NULL,
    detail          TEXT    CHECK (detail IS NULL OR json_valid(detail))
) STRICT;
CREATE INDEX events_by_run ON events (run_id, at_us);
CREATE INDEX events_by_step ON events (step_id) WHERE step_id IS NOT NULL;
CREATE INDEX events_by_agent ON events (agent_id, kind) WHERE agent_id IS NOT NULL;
CREATE INDEX events_by_time ON events (at_us);

CREATE TABLE losses (
    id              INTEGER PRIMARY KEY,
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    what            TEXT    NOT NULL CHECK (what IN ('daemon_samples', 'host_samples', 'disk_samples',
        'net_samples', 'clock_offsets', 'batches', 'operations')),
    rows            INTEGER NOT NULL CHECK (rows >= 0),
    from_us         INTEGER NOT NULL,
    until_us        INTEGER NOT NULL
) STRICT;
CREATE INDEX losses_by_agent ON losses (agent_id, from_us);

CREATE TABLE spools (
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    spool_id        TEXT    NOT NULL CHECK (spool_id <> ''),
    last_sequence   INTEGER NOT NULL CHECK (last_sequence >= 0),
    PRIMARY KEY (agent_id, spool_id)
) STRICT, WITHOUT ROWID;

-- Views for people: people's units, names that need no quoting. CROSS JOIN fixes the order of the loops: without
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
       strftime('%Y-%m-%dT%H:%M:%SZ', r.started_us / 1000000, 'unixepoch') AS started,
       strftime('%Y-%m-%dT%H:%M:%SZ', r.ended_us / 1000000, 'unixepoch') AS ended,
       (r.ended_us - r.started_us) / 1000000.0 AS duration_s,
       (SELECT count(DISTINCT s.ordinal) FROM steps AS s WHERE s.run_id = r.id) AS steps,
       (SELECT count(*) FROM steps AS s WHERE s.run_id = r.id AND s.state = 'done'
           AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal))
           AS steps_done,
       (SELECT count(*) FROM events AS e WHERE e.run_id = r.id AND e.severity <> 'info') AS warnings,
       r.version
FROM runs AS r;

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
    -- A daemon's event has no run of its own: it belongs to the run that was under way.
    SELECT r.id, e.at_us, e.kind, e.message
    FROM runs AS r
    CROSS JOIN events AS e ON e.at_us BETWEEN r.started_us AND coalesce(r.ended_us, 9223372036854775807)
        AND e.kind IN ('daemon-started', 'daemon-restarted', 'daemon-ended', 'daemon-stopped', 'daemon-continued',
                       'carrier-lost', 'carrier-back', 'link-errors', 'link-silent', 'link-silent-over')
        AND (e.run_id IS NULL OR e.run_id = r.id)
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

CREATE VIEW v_results AS
SELECT s.run_id,
       r.name AS run,
       s.id AS step_id,
       s.ordinal,
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
       -- A column for each flag follows: store/flag_columns.rs.
       s.flags
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
       coalesce(f.name, h.name) AS host,
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
       u.vsz_bytes / 1048576.0 AS vsz_mib,
       u.read_bytes / 1048576.0 AS read_mib,
       u.write_bytes / 1048576.0 AS written_mib,
       u.threads,
       u.fds,
       u.after_us / 1e6 AS after_s,
       u.after_cpu_us / 1e6 AS after_cpu_s,
       u.after_write_bytes / 1048576.0 AS after_written_mib,
       u.after_idle,
       d.born_us >= s.start_us AS born_in_step,
       d.ended_us <= s.last_done_us AS ended_in_step
FROM steps AS s
CROSS JOIN step_daemons AS u ON u.step_id = s.id
CROSS JOIN daemons AS d ON d.id = u.daemon_id
CROSS JOIN hosts AS h ON h.id = d.host_id
LEFT JOIN former_hosts AS f ON f.host_id = h.id
    AND f.until_us = (SELECT min(x.until_us) FROM former_hosts AS x WHERE x.host_id = h.id AND x.until_us > s.start_us);

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
    FROM (
        SELECT n.run_id,
               n.id AS step_id,
               n.phase,
               n.target,
               n.system,
               n.mode,
               n.flags,
               (SELECT count(*) FROM step_groups AS g WHERE g.step_id = n.id) AS load_groups,
               instr(n.flags, '"no-overlap"') > 0 AS no_overlap,
               (SELECT sum(o.ops) FROM step_results AS o WHERE o.step_id = n.id) AS ops,
               (SELECT sum(o.bytes) FROM step_results AS o WHERE o.step_id = n.id) AS bytes
        FROM steps AS n
        WHERE n.attempt = (SELECT max(m.attempt) FROM steps AS m WHERE m.run_id = n.run_id AND m.ordinal = n.ordinal)
          AND EXISTS (SELECT 1 FROM step_results AS o WHERE o.step_id = n.id)
    ) AS s
    CROSS JOIN step_daemons AS u ON u.step_id = s.step_id AND u.serves_target = 1
    CROSS JOIN daemons AS d ON d.id = u.daemon_id
    GROUP BY s.run_id, s.step_id, d.name
) AS c;

-- Sums over the host's disks that stand on no other, and over its interfaces but the loopback. Counters are cumulative,
-- so two seeks in an index give what happened between two samples, however many lie between them. The rule of all these
-- figures: two samples within the step (one is taken at its start and one at its end), divided by the time between
-- those two; shares, whose counters go in steps of 10 ms, need samples that are 100 ms apart. What has them not is
-- NULL.
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
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS early,
                         (SELECT x.at_us, x.read_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us DESC LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.read_bytes >= early.read_bytes))
        FROM disks AS k WHERE k.host_id = e.host_id AND NOT k.stacked) / 1048576.0 AS disk_read_mib_per_s,
       (SELECT sum((SELECT (late.write_bytes - early.write_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.write_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS early,
                         (SELECT x.at_us, x.write_bytes FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us DESC LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.write_bytes >= early.write_bytes))
        FROM disks AS k WHERE k.host_id = e.host_id AND NOT k.stacked) / 1048576.0 AS disk_written_mib_per_s,
       (SELECT max((SELECT min(100.0, (late.busy_us - early.busy_us) * 100.0 / (late.at_us - early.at_us))
                    FROM (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS early,
                         (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us DESC LIMIT 1) AS late
                    WHERE late.at_us >= early.at_us + 100000))
        FROM disks AS k WHERE k.host_id = e.host_id AND NOT k.stacked) AS busiest_disk_percent,
       (SELECT busiest.name FROM (
            SELECT k.name, (SELECT min(100.0, (late.busy_us - early.busy_us) * 100.0 / (late.at_us - early.at_us))
                    FROM (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS early,
                         (SELECT x.at_us, x.busy_us FROM disk_samples AS x WHERE x.disk_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us DESC LIMIT 1) AS late
                    WHERE late.at_us >= early.at_us + 100000) AS percent
            FROM disks AS k WHERE k.host_id = e.host_id AND NOT k.stacked) AS busiest
        WHERE busiest.percent IS NOT NULL ORDER BY busiest.percent DESC, busiest.name LIMIT 1) AS busiest_disk,
       (SELECT sum((SELECT (late.rx_bytes - early.rx_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.rx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS early,
                         (SELECT x.at_us, x.rx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us DESC LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.rx_bytes >= early.rx_bytes))
        FROM interfaces AS k WHERE k.host_id = e.host_id AND k.name <> 'lo') / 1048576.0 AS received_mib_per_s,
       (SELECT sum((SELECT (late.tx_bytes - early.tx_bytes) * 1e6 / (late.at_us - early.at_us)
                    FROM (SELECT x.at_us, x.tx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us LIMIT 1) AS early,
                         (SELECT x.at_us, x.tx_bytes FROM net_samples AS x WHERE x.interface_id = k.id
                              AND x.at_us BETWEEN e.low_us AND e.high_us ORDER BY x.at_us DESC LIMIT 1) AS late
                    WHERE late.at_us > early.at_us AND late.tx_bytes >= early.tx_bytes))
        FROM interfaces AS k WHERE k.host_id = e.host_id AND k.name <> 'lo') / 1048576.0 AS sent_mib_per_s
FROM (
    SELECT w.*,
           u.at_us - f.at_us AS sampled_us,
           u.at_us - f.at_us >= 100000 AS is_long,
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
        SELECT v.*,
               (SELECT min(x.at_us) FROM host_samples AS x WHERE x.host_id = v.host_id
                   AND x.at_us BETWEEN v.low_us AND v.high_us) AS from_us,
               (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = v.host_id
                   AND x.at_us BETWEEN v.low_us AND v.high_us) AS until_us
        FROM (
            SELECT s.run_id,
                   s.id AS step_id,
                   s.attempt,
                   s.phase,
                   s.target,
                   s.mode,
                   coalesce(f.name, h.name) AS host,
                   h.id AS host_id,
                   coalesce(f.cpus, h.cpus) AS cpus,
                   EXISTS (SELECT 1 FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id
                           WHERE t.step_id = s.id
                             AND h.id = coalesce((SELECT x.host_id FROM former_agents AS x
                                                  WHERE x.agent_id = a.id AND x.until_us > s.start_us
                                                  ORDER BY x.until_us LIMIT 1), a.host_id)) AS is_client,
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
            LEFT JOIN former_hosts AS f ON f.host_id = h.id
                AND f.until_us = (SELECT min(x.until_us) FROM former_hosts AS x
                                  WHERE x.host_id = h.id AND x.until_us > s.start_us)
            WHERE s.last_done_us IS NOT NULL
        ) AS v
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
       coalesce(f.name, h.name) AS host,
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
CROSS JOIN hosts AS h ON h.id = t.host_id
LEFT JOIN former_hosts AS f ON f.host_id = h.id
    AND f.until_us = (SELECT min(x.until_us) FROM former_hosts AS x WHERE x.host_id = h.id AND x.until_us > s.start_us);

-- A step of up to eight minutes has a row for each sample. A longer one is divided into 480 spans, and the last sample of each
-- is found by a seek, so that a day costs no more than eight minutes: counters are cumulative.
CREATE VIEW v_host_timeline AS
WITH RECURSIVE
parts (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM parts WHERE n < 480),
spans AS NOT MATERIALIZED (
    SELECT s.run_id, s.id AS step_id, s.start_us, s.phase, s.target, s.mode,
           s.last_done_us - s.start_us > 480000000 AS is_long,
           iif(s.last_done_us - s.start_us > 480000000,
               s.start_us + (parts.n - 1) * (s.last_done_us - s.start_us) / 480 + 500001, s.start_us - 1500000) AS from_us,
           iif(s.last_done_us - s.start_us > 480000000,
               s.start_us + parts.n * (s.last_done_us - s.start_us) / 480 + 500000, s.last_done_us + 500000) AS until_us
    FROM steps AS s
    CROSS JOIN runs AS r ON r.id = s.run_id AND r.imported_from IS NULL
    CROSS JOIN parts ON parts.n <= iif(s.last_done_us - s.start_us > 480000000, 480, 0)
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
       (w.at_us - w.before_us) / 1e6 AS span_s,
       CASE WHEN w.at_us - w.before_us >= 100000 THEN max(0, w.user_us) * 100.0 / w.all_us END AS user_percent,
       CASE WHEN w.at_us - w.before_us >= 100000 THEN max(0, w.system_us) * 100.0 / w.all_us END AS system_percent,
       CASE WHEN w.at_us - w.before_us >= 100000 THEN max(0, w.iowait_us) * 100.0 / w.all_us END AS iowait_percent,
       CASE WHEN w.at_us - w.before_us >= 100000 THEN min(100.0, max(0, w.busy_us) * 100.0 / w.all_us) END
           AS busy_percent,
       w.in_bytes * 1e6 / (w.at_us - w.before_us) / 1048576.0 AS in_mib_per_s,
       w.out_bytes * 1e6 / (w.at_us - w.before_us) / 1048576.0 AS out_mib_per_s
FROM (
    SELECT * FROM (SELECT s.run_id, s.step_id, s.start_us, s.phase, s.target, s.mode, coalesce(f.name, h.name) AS host, 'cpu' AS kind,
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
           NULL AS in_bytes, NULL AS out_bytes
    FROM spans AS s CROSS JOIN hosts AS h
    LEFT JOIN former_hosts AS f ON f.host_id = h.id
        AND f.until_us = (SELECT min(x.until_us) FROM former_hosts AS x WHERE x.host_id = h.id AND x.until_us > s.start_us)
    CROSS JOIN host_samples AS x ON x.host_id = h.id AND x.at_us BETWEEN
        iif(s.is_long, (SELECT max(y.at_us) FROM host_samples AS y
                        WHERE y.host_id = h.id AND y.at_us BETWEEN s.from_us AND s.until_us), s.from_us)
        AND s.until_us
    WHERE coalesce(f.cpus, h.cpus) > 0
    WINDOW sample AS (PARTITION BY s.run_id, s.step_id, h.id ORDER BY x.at_us))
    UNION ALL
    SELECT * FROM (SELECT s.run_id, s.step_id, s.start_us, s.phase, s.target, s.mode, coalesce(f.name, h.name), 'disk', k.name, x.at_us,
           lag(x.at_us) OVER sample, NULL, NULL, NULL, x.busy_us - lag(x.busy_us) OVER sample,
           x.at_us - lag(x.at_us) OVER sample,
           x.read_bytes - lag(x.read_bytes) OVER sample, x.write_bytes - lag(x.write_bytes) OVER sample
    FROM spans AS s CROSS JOIN disks AS k CROSS JOIN hosts AS h ON h.id = k.host_id
    LEFT JOIN former_hosts AS f ON f.host_id = h.id
        AND f.until_us = (SELECT min(x.until_us) FROM former_hosts AS x WHERE x.host_id = h.id AND x.until_us > s.start_us)
    CROSS JOIN disk_samples AS x ON x.disk_id = k.id AND x.at_us BETWEEN
        iif(s.is_long, (SELECT max(y.at_us) FROM disk_samples AS y
                        WHERE y.disk_id = k.id AND y.at_us BETWEEN s.from_us AND s.until_us), s.from_us)
        AND s.until_us
    WINDOW sample AS (PARTITION BY s.run_id, s.step_id, k.id ORDER BY x.at_us))
    UNION ALL
    SELECT * FROM (SELECT s.run_id, s.step_id, s.start_us, s.phase, s.target, s.mode, coalesce(f.name, h.name), 'interface', n.name, x.at_us,
           lag(x.at_us) OVER sample, NULL, NULL, NULL, NULL, NULL,
           x.rx_bytes - lag(x.rx_bytes) OVER sample, x.tx_bytes - lag(x.tx_bytes) OVER sample
    FROM spans AS s CROSS JOIN interfaces AS n CROSS JOIN hosts AS h ON h.id = n.host_id
    LEFT JOIN former_hosts AS f ON f.host_id = h.id
        AND f.until_us = (SELECT min(x.until_us) FROM former_hosts AS x WHERE x.host_id = h.id AND x.until_us > s.start_us)
    CROSS JOIN net_samples AS x ON x.interface_id = n.id AND x.at_us BETWEEN
        iif(s.is_long, (SELECT max(y.at_us) FROM net_samples AS y
                        WHERE y.interface_id = n.id AND y.at_us BETWEEN s.from_us AND s.until_us), s.from_us)
        AND s.until_us
    WINDOW sample AS (PARTITION BY s.run_id, s.step_id, n.id ORDER BY x.at_us))
) AS w
WHERE w.before_us IS NOT NULL AND w.at_us > w.before_us;

CREATE VIEW v_links AS
SELECT l.run_id,
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
                   s.repeat,
                   s.phase,
                   s.cell,
                   s.flags,
                   t.agent_id,
                   t.peer_agent_id,
                   -- Tasks that did not run at the same time are never summed.
                   -- Of a UDP stream, what has arrived.
                   sum(CASE WHEN o.op = iif(coalesce(g.mode, s.mode) = 'udp-stream', 'receive', 'send')
                            AND NOT EXISTS (SELECT 1 FROM json_each(s.flags) AS j WHERE j.value = 'no-overlap')
                       THEN o.bytes_per_s END) / 1048576.0 AS mib_per_s,
                   CASE WHEN max(coalesce(g.mode, s.mode) IN ('udp-stream', 'udp-request')) THEN
                        100.0 * sum(CASE WHEN o.op = 'lost' THEN o.ops ELSE 0 END)
                        / sum(CASE WHEN o.op IN ('lost', 'receive', 'request') THEN o.ops END) END AS lost_percent,
                   max(CASE WHEN o.op = 'jitter' THEN o.mean_ns END) / 1000.0 AS jitter_us,
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
