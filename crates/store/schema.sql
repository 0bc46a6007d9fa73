-- The tables of a benchmesh database; views.sql has the views, schema.rs makes a file of both. docs/database.md is the
-- reference; tests keep them identical. A sampled figure has a column of its name (model/figures.rs).
-- Instants are mesh time in microseconds (_us), durations _ns or _us, sizes _bytes. What does not apply is NULL, never ''; what
-- an agent did not tell of its host may be ''.
-- AUTOINCREMENT: what people and agents name by its id is deleted with its run, and an id is never used twice.
-- Every column of words has its CHECK; `workload`, `mode` and `op` are open, because a workload changes no schema, and
-- `events.kind` is, because agents of another version record kinds that this one does not know.

CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    mesh_uid        TEXT    NOT NULL CHECK (mesh_uid <> ''),
    created_us      INTEGER NOT NULL,
    version         TEXT    NOT NULL CHECK (version <> ''),
    -- The number of its schema (schema.rs).
    schema          INTEGER NOT NULL CHECK (schema > 0),
    clock_boot_id   TEXT CHECK (clock_boot_id <> ''),
    clock_boottime_ns INTEGER,
    clock_mesh_us   INTEGER,
    -- What the collector was started with; NULL: no limit. keep_tags: a list of texts KEY=VALUE.
    keep_seconds_us INTEGER CHECK (keep_seconds_us > 0),
    keep_10s_us     INTEGER CHECK (keep_10s_us > 0),
    max_size_bytes  INTEGER CHECK (max_size_bytes > 0),
    -- Samples before it are thinned to 10 s, to 60 s, and deleted.
    samples_10s_until_us INTEGER,
    samples_60s_until_us INTEGER,
    samples_deleted_until_us INTEGER,
    keep_tags       TEXT CHECK (keep_tags IS NULL OR json_valid(keep_tags)),
    -- When rows were merged or deleted last, and how many went.
    pruned_us       INTEGER,
    pruned_rows     INTEGER
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
    imported_from   TEXT CHECK (imported_from <> ''),
    -- When it begins at the earliest, as `benchmesh run --at` asks for it.
    due_us          INTEGER,
    -- How long it was paused in all, and since when a run is that was resumed and has not begun again.
    paused_us       INTEGER NOT NULL DEFAULT 0 CHECK (paused_us >= 0),
    paused_from_us  INTEGER
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

-- The ended runs that the collector has copied into its archive (`--archive`), each as it was then.
CREATE TABLE archived_runs (
    run_id          INTEGER NOT NULL PRIMARY KEY REFERENCES runs (id),
    signature       TEXT    NOT NULL CHECK (signature <> ''),
    pushed_us       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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
    -- Rows of seconds are merged as they grow old: 1 as recorded, 10, 60, or 0 where they are deleted. Results of such a
    -- step are never computed again. merging = 1: not all of its rows are merged yet.
    resolution_s        INTEGER NOT NULL DEFAULT 1 CHECK (resolution_s IN (0, 1, 10, 60)),
    merging             INTEGER NOT NULL DEFAULT 0 CHECK (merging IN (0, 1)),
    -- Of a plan that repeats its phases.
    loop                INTEGER NOT NULL DEFAULT 1 CHECK (loop >= 1),
    -- Batches that came after its rows were merged or deleted, and are not merged yet.
    late_batches        INTEGER NOT NULL DEFAULT 0 CHECK (late_batches >= 0),
    -- Before these instants rows were merged while the step went on; NULL: none were.
    merged_10s_until_us INTEGER,
    merged_60s_until_us INTEGER,
    UNIQUE (run_id, ordinal, attempt)
) STRICT;
CREATE INDEX steps_stale ON steps (id) WHERE stale_batches > 0;
CREATE INDEX steps_stale_samples ON steps (id) WHERE stale_samples > 0;
CREATE INDEX steps_by_end ON steps (ended_us);
CREATE INDEX steps_by_resolution ON steps (resolution_s);
CREATE INDEX steps_merging ON steps (id) WHERE merging = 1;
CREATE INDEX steps_late ON steps (id) WHERE late_batches > 0;

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
    -- A client that comes back into its running step goes on as a further task: the next part of the same client.
    -- client_index: the task_index of its first part; NULL in the first part itself.
    part            INTEGER NOT NULL DEFAULT 1 CHECK (part > 0),
    client_index    INTEGER CHECK (client_index >= 0),
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
    service_p50_ns          INTEGER,
    service_p99_ns          INTEGER,
    service_max_ns          INTEGER,
    service_saturated       INTEGER NOT NULL,
    service_histogram       BLOB,
    response_count           INTEGER,
    response_sum_ns          REAL,
    response_sum_squares_ns2 REAL,
    response_min_ns          INTEGER,
    response_p99_ns          INTEGER,
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
    -- NULL: the log that was imported does not say.
    ops             INTEGER,
    bytes           INTEGER,
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
    -- NULL: the log that was imported does not say.
    ops             INTEGER,
    bytes           INTEGER,
    errors          INTEGER,
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
    -- That of the installed package that its program belongs to; NULL if unknown.
    version         TEXT CHECK (version <> ''),
    -- 1: the file that it runs was removed or replaced since it began.
    is_replaced     INTEGER NOT NULL DEFAULT 0 CHECK (is_replaced IN (0, 1)),
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
    swap_bytes      INTEGER,
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
    swap_bytes      INTEGER,
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

-- What storage clusters say of themselves, by the commands of an agent's own configuration. Per run, a fact is stored when
-- it is first known and when it has changed; the first one of a reading at each reading. Without a run: read while none
-- went on.
CREATE TABLE facts (
    id              INTEGER PRIMARY KEY,
    run_id          INTEGER REFERENCES runs (id),
    step_id         INTEGER REFERENCES steps (id),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    system          TEXT    NOT NULL CHECK (system <> ''),
    at_us           INTEGER NOT NULL,
    name            TEXT    NOT NULL CHECK (name <> ''),
    value           ANY     NOT NULL CHECK (value <> ''),
    unit            TEXT CHECK (unit <> '')
) STRICT;
CREATE INDEX facts_by_run ON facts (run_id, system, name, at_us);
CREATE INDEX facts_by_step ON facts (step_id) WHERE step_id IS NOT NULL;
CREATE INDEX facts_by_agent ON facts (agent_id, at_us);

-- What stands out in a run: written when it has ended, and again when late data come. Kinds are open: another version
-- may know further ones.
-- AUTOINCREMENT: a run that is judged anew gets other ids, which tells that its archived copy is old.
CREATE TABLE findings (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    kind            TEXT    NOT NULL CHECK (kind <> ''),
    verdict         TEXT    NOT NULL CHECK (verdict IN ('found', 'steady', 'unsure', 'not-judged')),
    severity        TEXT    NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
    subject         TEXT    NOT NULL CHECK (subject <> ''),
    figure          TEXT CHECK (figure <> ''),
    step_id         INTEGER REFERENCES steps (id),
    group_name      TEXT CHECK (group_name <> ''),
    op              TEXT CHECK (op <> ''),
    agent_id        INTEGER REFERENCES agents (id),
    host_id         INTEGER REFERENCES hosts (id),
    daemon_id       INTEGER REFERENCES daemons (id),
    from_us         INTEGER,
    until_us        INTEGER,
    size            REAL,
    unit            TEXT CHECK (unit <> ''),
    low             REAL,
    high            REAL,
    p               REAL,
    sentence        TEXT    NOT NULL CHECK (sentence <> ''),
    sql             TEXT CHECK (sql <> '')
) STRICT;
CREATE INDEX findings_by_run ON findings (run_id);
CREATE INDEX findings_by_step ON findings (step_id) WHERE step_id IS NOT NULL;
CREATE INDEX findings_by_agent ON findings (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX findings_by_host ON findings (host_id) WHERE host_id IS NOT NULL;
CREATE INDEX findings_by_daemon ON findings (daemon_id) WHERE daemon_id IS NOT NULL;

-- How the seconds of a step were against the objectives of its run's plan. share: of the seconds that have to be good.
CREATE TABLE step_objectives (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    holds           TEXT    NOT NULL CHECK (holds <> ''),
    share           REAL    NOT NULL CHECK (share > 0 AND share <= 1),
    seconds         INTEGER NOT NULL CHECK (seconds >= 0),
    bad_seconds     INTEGER NOT NULL CHECK (bad_seconds BETWEEN 0 AND seconds),
    PRIMARY KEY (step_id, holds)
) STRICT, WITHOUT ROWID;

-- Sums of slices of a step's time, kept while it runs, so that its end completes them. From them and the rows of the other
-- times its figures are the same as from all rows. Lines of the grid less a millisecond, as intervals are counted to them.
CREATE TABLE step_sums (
    id              INTEGER PRIMARY KEY,
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    from_us         INTEGER NOT NULL,
    until_us        INTEGER NOT NULL CHECK (until_us > from_us),
    -- Tasks that are not in its seconds, because they had left the step early.
    without         TEXT    NOT NULL CHECK (json_type(without) = 'array'),
    -- Rows of its time came since the sums were begun.
    stale           INTEGER NOT NULL DEFAULT 0 CHECK (stale IN (0, 1)),
    stale_samples   INTEGER NOT NULL DEFAULT 0 CHECK (stale_samples IN (0, 1)),
    -- NULL while they are made.
    sums            BLOB,
    samples         BLOB,
    -- Of each second the counts are kept, so that the sums can be made again for other tasks.
    counts          BLOB,
    -- How its rows are kept, and how often some came that are not kept so yet; 0: all are.
    resolution_s    INTEGER NOT NULL DEFAULT 1 CHECK (resolution_s IN (1, 10, 60)),
    merging         INTEGER NOT NULL DEFAULT 0 CHECK (merging >= 0),
    -- How its seconds were against the objectives of the plan, before they were merged.
    tallies         TEXT CHECK (json_type(tallies) = 'object')
) STRICT;
CREATE INDEX step_sums_by_step ON step_sums (step_id, until_us);
CREATE INDEX step_sums_by_end ON step_sums (until_us);
CREATE INDEX step_sums_merging ON step_sums (id) WHERE merging > 0;

-- A target of a run as one agent of it has it. Rows with one nonce, that of the run's directory there, share what it holds.
CREATE TABLE targets (
    id              INTEGER PRIMARY KEY,
    run_id          INTEGER NOT NULL REFERENCES runs (id),
    agent_id        INTEGER NOT NULL REFERENCES agents (id),
    path            TEXT    NOT NULL CHECK (path <> ''),
    nonce           TEXT    NOT NULL CHECK (nonce <> ''),
    device          TEXT CHECK (device <> ''),
    UNIQUE (agent_id, nonce, path)
) STRICT;
CREATE INDEX targets_by_run ON targets (run_id);

CREATE TABLE target_samples (
    target_id       INTEGER NOT NULL REFERENCES targets (id),
    at_us           INTEGER NOT NULL,
    size_bytes      INTEGER NOT NULL CHECK (size_bytes >= 0),
    free_bytes      INTEGER NOT NULL CHECK (free_bytes >= 0),
    files           INTEGER CHECK (files >= 0),
    free_files      INTEGER CHECK (free_files >= 0),
    PRIMARY KEY (target_id, at_us)
) STRICT, WITHOUT ROWID;

-- Data sets that stay on targets after their runs.
CREATE TABLE kept_data (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL CHECK (name <> ''),
    -- The target's, as its plan says it.
    path TEXT NOT NULL CHECK (path <> ''),
    target TEXT NOT NULL CHECK (target <> ''),
    system TEXT NOT NULL CHECK (system <> ''),
    workload TEXT NOT NULL CHECK (workload <> ''),
    -- What decides which data they are: keys of the workload with their values, `workload`, and `layout`, its version.
    shape TEXT NOT NULL CHECK (json_type(shape) = 'object'),
    tasks INTEGER NOT NULL CHECK (tasks > 0),
    bytes INTEGER NOT NULL,
    files INTEGER NOT NULL,
    -- 0: the step that makes them has not ended well.
    is_whole INTEGER NOT NULL CHECK (is_whole IN (0, 1)),
    -- Of the run that has made them, and of the one that has worked on them last.
    made_run_uid TEXT NOT NULL CHECK (made_run_uid <> ''),
    made_us INTEGER NOT NULL,
    used_run_uid TEXT NOT NULL CHECK (used_run_uid <> ''),
    used_us INTEGER NOT NULL,
    UNIQUE (name, path)
) STRICT;
-- The agents that have worked on them; on a file system of its own each has its part.
CREATE TABLE kept_data_agents (
    kept_data_id INTEGER NOT NULL REFERENCES kept_data (id) ON DELETE CASCADE,
    agent_id INTEGER NOT NULL REFERENCES agents (id),
    PRIMARY KEY (kept_data_id, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_data_agents_agent ON kept_data_agents (agent_id);
