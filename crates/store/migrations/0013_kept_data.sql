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
