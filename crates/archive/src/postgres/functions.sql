-- Functions that the views and the documented questions need beside PostgreSQL's own, in SQL and PL/pgSQL only: whoever
-- owns the schema can make them, and a managed server refuses no extension.
--
-- Histograms are the uncompressed form of what SQLite has: HdrHistogram's V2 without DEFLATE, for 2 significant digits
-- from 1 ns to 1 h (histogram.rs converts both ways). A cookie, the length of the counts, five fields that describe the
-- scale, and from byte 40 on the counts as zig-zag LEB128, where a negative number skips that many empty slots. Slots
-- count from 1 here, as arrays do.

-- A view of many partitions looks so expensive that PostgreSQL compiles it for minutes, and then takes milliseconds. Who
-- does not own the database is told by docs/archive.md.
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET jit = off', current_database());
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$;

-- Adds the counts of a histogram to those of others. 4562 is the slot of an hour, the last one.
CREATE OR REPLACE FUNCTION benchmesh.hist_add(counts bigint[], histogram bytea) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog AS $$
DECLARE
    -- Taken out of TOAST once, not at each byte.
    plain CONSTANT bytea := histogram || ''::bytea;
    bytes CONSTANT integer := coalesce(length(plain), 0);
    place integer := 40;
    slot bigint := 1;
    byte integer;
    bits bigint;
    shift integer;
BEGIN
    IF histogram IS NULL THEN
        RETURN counts;
    END IF;
    IF bytes < 40 OR substring(plain FOR 4) <> '\x1c849313'::bytea
        OR substring(plain FROM 9 FOR 32)
            <> '\x000000000000000200000000000000010000034630b8a0003ff0000000000000'::bytea THEN
        RAISE EXCEPTION 'this is no histogram of an archive: % bytes, beginning with %', bytes,
            encode(substring(plain FOR 4), 'hex')
            USING HINT = 'take a column such as service_histogram of benchmesh.op_intervals';
    END IF;
    IF counts IS NULL THEN
        counts := array_fill(0::bigint, ARRAY[4562]);
    END IF;
    WHILE place < bytes LOOP
        byte := get_byte(plain, place);
        place := place + 1;
        bits := byte & 127;
        shift := 7;
        WHILE byte > 127 LOOP
            byte := get_byte(plain, place);
            place := place + 1;
            -- The ninth byte carries 8 bits.
            IF shift = 56 THEN
                bits := bits | (byte::bigint << 56);
                EXIT;
            END IF;
            bits := bits | ((byte & 127)::bigint << shift);
            shift := shift + 7;
        END LOOP;
        IF bits & 1 = 1 THEN
            slot := slot + least((bits >> 1) & 9223372036854775807, 4562) + 1;
        ELSE
            bits := (bits >> 1) & 9223372036854775807;
            IF bits > 0 THEN
                IF slot > 4562 THEN
                    RAISE EXCEPTION 'the histogram is larger than its scale allows: slot %', slot;
                END IF;
                counts[slot] := counts[slot] + bits;
            END IF;
            slot := slot + 1;
        END IF;
        IF slot > 4563 THEN
            RAISE EXCEPTION 'the histogram is larger than its scale allows: slot %', slot;
        END IF;
    END LOOP;
    RETURN counts;
END $$;

-- A histogram of these counts.
CREATE OR REPLACE FUNCTION benchmesh.hist_of(counts bigint[]) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path = pg_catalog AS $$
DECLARE
    one bigint;
    encoded bytea := '';
    empty bigint := 0;
    bits bigint;
    numbers bigint[];
BEGIN
    FOREACH one IN ARRAY counts LOOP
        IF one = 0 THEN
            empty := empty + 1;
            CONTINUE;
        END IF;
        numbers := CASE WHEN empty > 0 THEN ARRAY[empty * 2 - 1, one << 1] ELSE ARRAY[one << 1] END;
        empty := 0;
        FOREACH bits IN ARRAY numbers LOOP
            FOR byte IN 1..9 LOOP
                IF byte = 9 OR (bits >= 0 AND bits < 128) THEN
                    encoded := encoded || set_byte('\x00', 0, (bits & 255)::integer);
                    EXIT;
                END IF;
                encoded := encoded || set_byte('\x00', 0, ((bits & 127) | 128)::integer);
                bits := (bits >> 7) & 144115188075855871;
            END LOOP;
        END LOOP;
    END LOOP;
    RETURN '\x1c849313'::bytea || int4send(length(encoded))
        || '\x000000000000000200000000000000010000034630b8a0003ff0000000000000'::bytea || encoded;
END $$;

-- All histograms added up, as a histogram.
CREATE OR REPLACE AGGREGATE benchmesh.hist_merge(bytea) (
    SFUNC = benchmesh.hist_add, STYPE = bigint[], FINALFUNC = benchmesh.hist_of, PARALLEL = SAFE
);

-- How many values it has.
CREATE OR REPLACE FUNCTION benchmesh.hist_count(histogram bytea) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path = pg_catalog AS $$
DECLARE
    one bigint;
    count bigint := 0;
BEGIN
    FOREACH one IN ARRAY benchmesh.hist_add(NULL, histogram) LOOP
        count := count + one;
    END LOOP;
    RETURN count;
END $$;

-- The duration in ns that a share of 0 to 1 does not exceed: the upper end of its slot, at most 0.8 % too large.
CREATE OR REPLACE FUNCTION benchmesh.hist_quantile(histogram bytea, share double precision) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path = pg_catalog AS $$
DECLARE
    counts CONSTANT bigint[] := benchmesh.hist_add(NULL, histogram);
    one bigint;
    slot integer := -1;
    last integer;
    count bigint := 0;
    rank double precision;
    seen bigint := 0;
    bucket integer;
BEGIN
    IF NOT share BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'hist_quantile() takes a share from 0 to 1, such as 0.99, and got %', share;
    END IF;
    FOREACH one IN ARRAY counts LOOP
        slot := slot + 1;
        IF one > 0 THEN
            count := count + one;
            last := slot;
        END IF;
    END LOOP;
    IF count = 0 THEN
        RETURN NULL;
    END IF;
    rank := greatest(ceil(share * count::double precision), 1);
    IF rank >= count::double precision THEN
        slot := last;
    ELSE
        slot := -1;
        FOREACH one IN ARRAY counts LOOP
            slot := slot + 1;
            seen := seen + one;
            EXIT WHEN seen >= rank;
        END LOOP;
    END IF;
    bucket := greatest((slot >> 7) - 1, 0);
    RETURN ((slot - (bucket << 7) + 1)::bigint << bucket) - 1;
END $$;

-- What SQLite has under these names, for the SQL that both run. Views name them when they are made; in a session they
-- are
-- found after SET search_path = benchmesh, pg_catalog.

-- PostgreSQL's own gives numeric, which divides otherwise.
CREATE OR REPLACE AGGREGATE benchmesh.sum(bigint) (
    SFUNC = pg_catalog.int8pl, STYPE = bigint, COMBINEFUNC = pg_catalog.int8pl, PARALLEL = SAFE
);

-- SQLite has 0 and 1.
CREATE OR REPLACE AGGREGATE benchmesh.max(boolean) (
    SFUNC = pg_catalog.boolor_statefunc, STYPE = boolean, COMBINEFUNC = pg_catalog.boolor_statefunc, PARALLEL = SAFE
);

-- Of the exact value of a double, as SQLite rounds: 2.675 is a little less. The cast to numeric keeps 15 digits. The
-- fraction has at most 53 bits, and the last number is 2 to the power of -53.
CREATE OR REPLACE FUNCTION benchmesh.round(x double precision, digits integer) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN CASE WHEN abs(x) < 1e15::double precision THEN
    pg_catalog.round(floor(x)::bigint::numeric
        + floor((x - floor(x)) * 9007199254740992::double precision)::bigint::numeric
            * 0.00000000000000011102230246251565404236316680908203125, digits)::double precision
    ELSE x END;

-- Away from zero, where PostgreSQL's own takes the even one.
CREATE OR REPLACE FUNCTION benchmesh.round(x double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN pg_catalog.round(x::numeric)::double precision;

-- NULL of zero and of negative values, where PostgreSQL's own fails.
CREATE OR REPLACE FUNCTION benchmesh.ln(x double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x > 0 THEN pg_catalog.ln(x) END;

-- Of several values, where one NULL makes the result NULL; greatest() and least() leave it out.
CREATE OR REPLACE FUNCTION benchmesh.scalar_max(a anycompatible, b anycompatible) RETURNS anycompatible
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN greatest(a, b) END $$;

CREATE OR REPLACE FUNCTION benchmesh.scalar_min(a anycompatible, b anycompatible) RETURNS anycompatible
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN least(a, b) END $$;

CREATE OR REPLACE FUNCTION benchmesh.instr(x text, part text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN pg_catalog.strpos(x, part);

-- Of %.Nf only.
CREATE OR REPLACE FUNCTION benchmesh.printf(format text, x double precision) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN pg_catalog.round(x::numeric, pg_catalog.substring(format, '^%\.([0-9])f$')::integer)::text;

-- The time of seconds since 1970, in UTC; in milliseconds, rounded as SQLite rounds them: on its scale of Julian days.
CREATE OR REPLACE FUNCTION benchmesh.strftime(format text, seconds double precision, unit text) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE STRICT
RETURN pg_catalog.to_char(
    pg_catalog.to_timestamp((floor(seconds * 1000::double precision + 210866760000000::double precision
        + 0.5::double precision) - 210866760000000::double precision) / 1000::double precision) AT TIME ZONE 'UTC',
    replace(replace(replace(replace(replace(replace(replace(replace(replace(format, 'T', '"T"'), 'Z', '"Z"'),
        '%Y', 'YYYY'), '%m', 'MM'), '%d', 'DD'), '%H', 'HH24'), '%M', 'MI'), '%S', 'SS'), '%f', 'SS.MS'));

-- JSON is text in these tables, as in SQLite; a value of it is one, too.
CREATE OR REPLACE FUNCTION benchmesh.json_value(x text, key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN x::json OPERATOR(pg_catalog.->>) key;

DO $$ BEGIN
    IF to_regoperator('benchmesh.->>(text,text)') IS NULL THEN
        CREATE OPERATOR benchmesh.->> (FUNCTION = benchmesh.json_value, LEFTARG = text, RIGHTARG = text);
    END IF;
END $$;

-- STRICT, so that it is not inlined and its ROWS are believed: with the 100 of json_array_elements() a view of four
-- such
-- calls looks so expensive that it is compiled for seconds.
CREATE OR REPLACE FUNCTION benchmesh.json_each(x text) RETURNS TABLE (key text, value text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT ROWS 2
BEGIN ATOMIC
    SELECT (one.ordinality - 1)::text, one.value
    FROM json_array_elements_text(CASE WHEN json_typeof(x::json) = 'array' THEN x::json END)
        WITH ORDINALITY AS one (value, ordinality)
    UNION ALL
    SELECT one.key, one.value
    FROM json_each_text(CASE WHEN json_typeof(x::json) = 'object' THEN x::json END) AS one;
END;

CREATE OR REPLACE FUNCTION benchmesh.json(x text) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN x::json;

-- Of one value.
CREATE OR REPLACE FUNCTION benchmesh.json_array(x anyelement) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT pg_catalog.array_to_json(ARRAY[x])::text $$;

CREATE OR REPLACE FUNCTION benchmesh.array_text(x anycompatiblearray) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT coalesce(pg_catalog.array_to_json(x)::text, '[]') $$;

CREATE OR REPLACE AGGREGATE benchmesh.json_group_array(anycompatible) (
    SFUNC = pg_catalog.array_append, STYPE = anycompatiblearray, FINALFUNC = benchmesh.array_text, PARALLEL = SAFE
);

CREATE OR REPLACE FUNCTION benchmesh.text_append(sum text, x text, separator text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x IS NULL THEN sum WHEN sum IS NULL THEN x ELSE sum || separator || x END;

CREATE OR REPLACE FUNCTION benchmesh.text_append(sum text, x text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN x IS NULL THEN sum WHEN sum IS NULL THEN x ELSE sum || ',' || x END;

CREATE OR REPLACE AGGREGATE benchmesh.group_concat(text, text) (
    SFUNC = benchmesh.text_append, STYPE = text, PARALLEL = SAFE
);

CREATE OR REPLACE AGGREGATE benchmesh.group_concat(text) (
    SFUNC = benchmesh.text_append, STYPE = text, PARALLEL = SAFE
);
