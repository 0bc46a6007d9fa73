-- What an archive knows of itself: its layout, its sites, and which run is there in which revision.

CREATE TABLE benchmesh.archive (
    id              integer PRIMARY KEY CHECK (id = 1),
    -- The number of the last migration that was applied.
    layout          integer NOT NULL CHECK (layout > 0),
    -- Of the functions and views, which are made anew when their text has changed; and the version that made them.
    definitions     text    NOT NULL,
    version         text    NOT NULL,
    migrated_at     timestamptz NOT NULL DEFAULT now()
);

-- A site is one collector's database (meta.mesh_uid) and its copies.
CREATE TABLE benchmesh.sites (
    site            text    COLLATE "C" PRIMARY KEY CHECK (site <> ''),
    mesh_uid        text    NOT NULL CHECK (mesh_uid <> ''),
    first_push_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX sites_by_mesh ON benchmesh.sites (mesh_uid);

-- A row for each run that is whole in the archive.
CREATE TABLE benchmesh.pushes (
    site            text    COLLATE "C" NOT NULL REFERENCES benchmesh.sites (site),
    run_uid         text    COLLATE "C" NOT NULL,
    month           date    NOT NULL,
    -- A digest of the run's rows in the collector's database when it was pushed last.
    revision        text    NOT NULL,
    -- How many rows of seconds the archive has, by table. The collector's database merges its own as they grow old.
    seconds         jsonb   NOT NULL,
    rows            bigint  NOT NULL,
    version         text    NOT NULL,
    pushed_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (site, run_uid)
);

-- Makes the partitions of a month. Whoever pushes need not own the tables. A table that is not partitioned (any longer)
-- is left alone. Attaching blocks neither readers nor writers of other months.
CREATE FUNCTION benchmesh.make_partitions(of_month date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parent record;
    partition text;
    begins date := date_trunc('month', of_month)::date;
    ends date := (date_trunc('month', of_month) + interval '1 month')::date;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('benchmesh partitions', 0));
    FOR parent IN
        SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'benchmesh' AND c.relkind = 'p' ORDER BY c.relname
    LOOP
        partition := parent.relname || to_char(begins, '_YYYY_MM');
        IF to_regclass(format('benchmesh.%I', partition)) IS NULL THEN
            EXECUTE format('CREATE TABLE benchmesh.%I (LIKE benchmesh.%I INCLUDING ALL)', partition, parent.relname);
            EXECUTE format('ALTER TABLE benchmesh.%I ATTACH PARTITION benchmesh.%I FOR VALUES FROM (%L) TO (%L)',
                parent.relname, partition, begins, ends);
        END IF;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION benchmesh.make_partitions(date) FROM PUBLIC;
