-- Plans that repeat their phases: which loop a step is of.
ALTER TABLE steps ADD COLUMN loop INTEGER NOT NULL DEFAULT 1 CHECK (loop >= 1);
