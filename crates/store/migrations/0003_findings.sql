-- What stands out in a run: written when it has ended, and again when late data come. Kinds are open: another version
-- may know further ones.
CREATE TABLE findings (
    id              INTEGER PRIMARY KEY,
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
