-- Why someone wished a run to stop, kept before the wish is answered; and when that was, or when the policy decided that the
-- run ends. NULL: neither.
ALTER TABLE runs ADD COLUMN stop_reason TEXT;
ALTER TABLE runs ADD COLUMN halted_us INTEGER;
