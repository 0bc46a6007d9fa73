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
