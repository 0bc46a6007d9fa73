-- How the seconds of a step were against the objectives of its run's plan. share: of the seconds that have to be good.
CREATE TABLE step_objectives (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    holds           TEXT    NOT NULL CHECK (holds <> ''),
    share           REAL    NOT NULL CHECK (share > 0 AND share <= 1),
    seconds         INTEGER NOT NULL CHECK (seconds >= 0),
    bad_seconds     INTEGER NOT NULL CHECK (bad_seconds BETWEEN 0 AND seconds),
    PRIMARY KEY (step_id, holds)
) STRICT, WITHOUT ROWID;
-- Batches that came after the rows of their step were merged or deleted, and are not merged yet.
ALTER TABLE steps ADD COLUMN late_batches INTEGER NOT NULL DEFAULT 0 CHECK (late_batches >= 0);
CREATE INDEX steps_late ON steps (id) WHERE late_batches > 0;
-- What the collector was started with: a list of texts KEY=VALUE.
ALTER TABLE meta ADD COLUMN keep_tags TEXT CHECK (keep_tags IS NULL OR json_valid(keep_tags));
-- When rows were merged or deleted last, and how many went.
ALTER TABLE meta ADD COLUMN pruned_us INTEGER;
ALTER TABLE meta ADD COLUMN pruned_rows INTEGER;
