-- What the views and questions seek, beside the keys. Within a run of a few minutes the key's begin (site, run_uid) is
-- enough; a run of a week needs these.
CREATE INDEX IF NOT EXISTS runs_by_uid ON benchmesh.runs (run_uid);
CREATE INDEX IF NOT EXISTS runs_by_name ON benchmesh.runs (name, site);
CREATE INDEX IF NOT EXISTS steps_by_run ON benchmesh.steps (site, run_id);
CREATE INDEX IF NOT EXISTS steps_by_ordinal ON benchmesh.steps (site, run_uid, run_id, ordinal, attempt);
CREATE INDEX IF NOT EXISTS tasks_by_step ON benchmesh.tasks (site, run_uid, step_id);
CREATE INDEX IF NOT EXISTS op_intervals_by_task ON benchmesh.op_intervals (site, run_uid, task_id, at_us);
CREATE INDEX IF NOT EXISTS step_intervals_by_step ON benchmesh.step_intervals (site, run_uid, step_id, at_us);
CREATE INDEX IF NOT EXISTS step_results_by_step ON benchmesh.step_results (site, run_uid, step_id);
CREATE INDEX IF NOT EXISTS task_results_by_task ON benchmesh.task_results (site, run_uid, task_id);
CREATE INDEX IF NOT EXISTS step_daemons_by_daemon ON benchmesh.step_daemons (site, run_uid, daemon_id);
CREATE INDEX IF NOT EXISTS disks_by_host ON benchmesh.disks (site, run_uid, host_id);
CREATE INDEX IF NOT EXISTS interfaces_by_host ON benchmesh.interfaces (site, run_uid, host_id);
CREATE INDEX IF NOT EXISTS daemons_by_host ON benchmesh.daemons (site, run_uid, host_id);
CREATE INDEX IF NOT EXISTS events_by_time ON benchmesh.events (site, run_uid, at_us);
CREATE INDEX IF NOT EXISTS events_by_run ON benchmesh.events (site, run_uid, run_id, at_us);

-- A run is of one site. Unless PostgreSQL knows, it expects a share of a run's rows as small as the number of sites is
-- large.
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'benchmesh' AND c.relkind IN ('r', 'p')
            AND 2 = (SELECT count(*) FROM pg_attribute AS a
                     WHERE a.attrelid = c.oid AND a.attname IN ('run_uid', 'month'))
    LOOP
        EXECUTE format(
            'CREATE STATISTICS IF NOT EXISTS benchmesh.%I (dependencies) ON site, run_uid FROM benchmesh.%I',
            one.relname || '_of_run', one.relname);
    END LOOP;
END $$;
