-- What a task's reads are held against: no more can come over its agent's network. NULL: the target is not behind it, or
-- nobody says how fast it is.
ALTER TABLE tasks ADD COLUMN link_bytes_per_s INTEGER CHECK (link_bytes_per_s > 0);
