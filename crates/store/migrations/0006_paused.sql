-- Runs that were resumed: how long they were paused in all, and since when one is that was resumed and has not begun again.
ALTER TABLE runs ADD COLUMN paused_us INTEGER NOT NULL DEFAULT 0 CHECK (paused_us >= 0);
ALTER TABLE runs ADD COLUMN paused_from_us INTEGER;
