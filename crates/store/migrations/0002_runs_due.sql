-- When a run begins at the earliest, as `benchmesh run --at` asks for it.
ALTER TABLE runs ADD COLUMN due_us INTEGER;
