-- A client that comes back into its running step goes on as a further task: the next part of the same client.
-- client_index: the task_index of its first part; NULL in the first part itself.
ALTER TABLE tasks ADD COLUMN part INTEGER NOT NULL DEFAULT 1 CHECK (part > 0);
ALTER TABLE tasks ADD COLUMN client_index INTEGER CHECK (client_index >= 0);
