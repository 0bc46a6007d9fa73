-- What a daemon's program says of itself.
ALTER TABLE daemons ADD COLUMN version TEXT CHECK (version <> '');
-- 1: the file that it runs was removed or replaced since it began.
ALTER TABLE daemons ADD COLUMN is_replaced INTEGER NOT NULL DEFAULT 0 CHECK (is_replaced IN (0, 1));
