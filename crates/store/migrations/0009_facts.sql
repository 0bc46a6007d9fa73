-- What storage clusters say of themselves, by the commands of an agent's own configuration. Per run, a fact is stored when
-- it is first known and when it has changed. Without a run: read while none went on.
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
