-- Rows of a step that goes on are merged too, slice by slice: its end takes what was summed up of them before. Of each second of
-- a slice the counts are kept, so that its sums can be made again for other tasks; slices of earlier versions have none of them.
DELETE FROM step_sums;
ALTER TABLE step_sums ADD COLUMN counts BLOB;
-- How its rows are kept, and how often some came that are not kept so yet; 0: all are.
ALTER TABLE step_sums ADD COLUMN resolution_s INTEGER NOT NULL DEFAULT 1 CHECK (resolution_s IN (1, 10, 60));
ALTER TABLE step_sums ADD COLUMN merging INTEGER NOT NULL DEFAULT 0 CHECK (merging >= 0);
-- How its seconds were against the objectives of the plan, before they were merged.
ALTER TABLE step_sums ADD COLUMN tallies TEXT CHECK (json_type(tallies) = 'object');
CREATE INDEX step_sums_merging ON step_sums (id) WHERE merging > 0;
-- Before these instants rows were merged while the step went on; NULL: none were.
ALTER TABLE steps ADD COLUMN merged_10s_until_us INTEGER;
ALTER TABLE steps ADD COLUMN merged_60s_until_us INTEGER;
