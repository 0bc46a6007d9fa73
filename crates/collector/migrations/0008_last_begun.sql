-- When a task's last operation began: what a stop is held against. NULL: none began, or its agent has not said.
ALTER TABLE tasks ADD COLUMN last_begun_us INTEGER;
