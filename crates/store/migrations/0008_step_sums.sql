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
    samples         BLOB
) STRICT;
CREATE INDEX step_sums_by_step ON step_sums (step_id, until_us);
CREATE INDEX step_sums_by_end ON step_sums (until_us);
