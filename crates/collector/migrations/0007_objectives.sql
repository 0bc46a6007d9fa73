-- How the seconds of a step were against the objectives of its run's plan. share: of the seconds that have to be good.
CREATE TABLE step_objectives (
    step_id         INTEGER NOT NULL REFERENCES steps (id),
    holds           TEXT    NOT NULL CHECK (holds <> ''),
    share           REAL    NOT NULL CHECK (share > 0 AND share <= 1),
    seconds         INTEGER NOT NULL CHECK (seconds >= 0),
    bad_seconds     INTEGER NOT NULL CHECK (bad_seconds BETWEEN 0 AND seconds),
    PRIMARY KEY (step_id, holds)
) STRICT, WITHOUT ROWID;
