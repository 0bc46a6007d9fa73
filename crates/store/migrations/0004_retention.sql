-- Rows of seconds are merged as they grow old: 1 as recorded, 10, 60, or 0 where they are deleted. Results of such a step
-- are never computed again. merging = 1: not all of its rows are merged yet.
ALTER TABLE steps ADD COLUMN resolution_s INTEGER NOT NULL DEFAULT 1 CHECK (resolution_s IN (0, 1, 10, 60));
ALTER TABLE steps ADD COLUMN merging INTEGER NOT NULL DEFAULT 0 CHECK (merging IN (0, 1));
CREATE INDEX steps_by_resolution ON steps (resolution_s);
CREATE INDEX steps_merging ON steps (id) WHERE merging = 1;
-- What the collector was started with; NULL: no limit, or no collector of this version had the file.
ALTER TABLE meta ADD COLUMN keep_seconds_us INTEGER CHECK (keep_seconds_us > 0);
ALTER TABLE meta ADD COLUMN keep_10s_us INTEGER CHECK (keep_10s_us > 0);
ALTER TABLE meta ADD COLUMN max_size_bytes INTEGER CHECK (max_size_bytes > 0);
-- Samples before it are thinned to 10 s, to 60 s, and deleted.
ALTER TABLE meta ADD COLUMN samples_10s_until_us INTEGER;
ALTER TABLE meta ADD COLUMN samples_60s_until_us INTEGER;
ALTER TABLE meta ADD COLUMN samples_deleted_until_us INTEGER;
