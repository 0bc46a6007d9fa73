-- With many daemons awake at once an agent reads CPU time and memory of each at every sample, and all else every few
-- samples: NULL in between.
-- A constraint that is taken away changes no row, so the table's definition alone is edited, in the way that SQLite's
-- page on ALTER TABLE gives for it: a database of weeks of samples is neither copied nor needs its size again on the disk.

PRAGMA writable_schema = ON;

UPDATE sqlite_schema
SET sql = replace(replace(replace(sql,
        'threads         INTEGER NOT NULL', 'threads         INTEGER'),
        'minor_faults    INTEGER NOT NULL', 'minor_faults    INTEGER'),
        'major_faults    INTEGER NOT NULL', 'major_faults    INTEGER')
WHERE type = 'table' AND name = 'daemon_samples';

PRAGMA writable_schema = RESET;

-- Moves the schema's version on, so that whoever else has the database open reads it anew.
CREATE TABLE samples_may_be_brief (id INTEGER PRIMARY KEY) STRICT;
DROP TABLE samples_may_be_brief;
