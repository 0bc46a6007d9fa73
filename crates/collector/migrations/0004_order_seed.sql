-- What the random order of a run's cells was drawn from; NULL: they came as the plan writes them.
ALTER TABLE runs ADD COLUMN order_seed INTEGER CHECK (order_seed >= 0);
