//! The schema `benchmesh` of an archive: made, brought up to date, and refused where it is not ours.
//!
//! `migrations/` has one file per layout; a file that a release has shipped is never changed. Functions and views have
//! no rows, so they are not migrated but made anew when their text has changed.

use super::connect::within;
use super::definitions;
use super::fnv::Fnv;
use super::{Archive, ArchiveError};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

/// The n-th one leads to layout n.
const MIGRATIONS: [&str; 2] = [
    include_str!("migrations/0001_archive.sql"),
    include_str!("migrations/0002_tables.sql"),
];

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The roles, and what an administrator runs where the archive's owner may not make them.
const ROLES: [&str; 2] = ["benchmesh_writer", "benchmesh_reader"];
const MAKE_ROLES: &str = "DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['benchmesh_writer', 'benchmesh_reader'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        END IF;
    END LOOP;
EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
END $$";
const GRANTS: &str = "
GRANT USAGE ON SCHEMA benchmesh TO benchmesh_writer, benchmesh_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA benchmesh TO benchmesh_writer, benchmesh_reader;
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA benchmesh TO benchmesh_writer;
REVOKE INSERT, UPDATE, DELETE ON benchmesh.archive FROM benchmesh_writer;
REVOKE UPDATE, DELETE ON benchmesh.sites FROM benchmesh_writer;
GRANT EXECUTE ON FUNCTION benchmesh.make_partitions(date) TO benchmesh_writer;
ALTER DEFAULT PRIVILEGES IN SCHEMA benchmesh GRANT SELECT ON TABLES TO benchmesh_writer, benchmesh_reader;";

/// What the database has under the name of the schema. Catalogs are readable by every role.
const STATE: &str = "
SELECT n.oid IS NOT NULL AS is_there,
       coalesce(pg_has_role(n.nspowner, 'USAGE'), false) AS is_owner,
       coalesce(pg_get_userbyid(n.nspowner)::text, '') AS owner,
       EXISTS (SELECT 1 FROM pg_class AS c WHERE c.relnamespace = n.oid
               UNION ALL SELECT 1 FROM pg_proc AS p WHERE p.pronamespace = n.oid) AS has_objects,
       (SELECT count(*) FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = n.oid AND c.relname = 'archive'
            AND a.attname IN ('layout', 'definitions', 'version')) AS marks
FROM (SELECT 1) AS one LEFT JOIN pg_namespace AS n ON n.nspname = 'benchmesh'";

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No such schema, or one without any object.
    Absent,
    SomeoneElses,
    Ours {
        layout: i32,
        definitions: String,
        version: String,
        is_owner: bool,
        owner: String,
    },
}

fn layout() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
}

impl Archive {
    /// Refuses a server on which there is no archive that this version can read.
    pub async fn require(&mut self) -> Result<(), ArchiveError> {
        match self.state().await? {
            State::Absent => {
                Err(self.wrong("there is no archive; `benchmesh archive push` makes one"))
            }
            State::SomeoneElses => Err(self.someone_elses()),
            State::Ours {
                layout: found,
                owner,
                ..
            } => {
                self.refuse_newer(found)?;
                if found < layout() {
                    return Err(self.outdated(found, &owner));
                }
                Ok(())
            }
        }
    }

    pub(super) async fn is_absent(&mut self) -> Result<bool, ArchiveError> {
        Ok(self.state().await? == State::Absent)
    }

    /// Makes the archive, or brings it up to date, if this connection's role may and it is not so already. Returns what
    /// an administrator has to do still, in words.
    pub async fn prepare(&mut self) -> Result<Vec<String>, ArchiveError> {
        if !self.is_to_be_prepared().await? {
            return Ok(Vec::new());
        }
        let server = self.server.clone();
        let answer = self.answer;
        let begun = self.connection.begin();
        let mut transaction = within(&server, answer, "begin a transaction", begun).await?;
        let lock =
            sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('benchmesh schema', 0))");
        within(
            &server,
            answer,
            "lock the schema",
            lock.execute(&mut *transaction),
        )
        .await?;
        // Another client may have made it meanwhile.
        let state = within(
            &server,
            answer,
            "look at the schema",
            state(&mut transaction),
        )
        .await?;
        let (from, definitions_made) = match &state {
            State::SomeoneElses => return Err(someone_elses(&server.to_string())),
            State::Absent => (0, String::new()),
            State::Ours {
                layout,
                definitions,
                ..
            } => (*layout, definitions.clone()),
        };
        let making = make(&mut transaction, from, &definitions_made);
        within(&server, answer, "make the schema benchmesh", making).await?;
        let has_roles = within(&server, answer, "make roles", roles(&mut transaction)).await?;
        within(&server, answer, "commit the schema", transaction.commit()).await?;
        Ok(match has_roles {
            true => Vec::new(),
            false => vec![format!(
                "this role may not create the roles {}; for collectors and readers with less rights an administrator \
                 runs:\nCREATE ROLE benchmesh_writer NOLOGIN;\nCREATE ROLE benchmesh_reader NOLOGIN;{GRANTS}",
                ROLES.join(" and ")
            )],
        })
    }

    async fn is_to_be_prepared(&mut self) -> Result<bool, ArchiveError> {
        match self.state().await? {
            State::SomeoneElses => Err(self.someone_elses()),
            State::Absent => Ok(true),
            State::Ours {
                layout: found,
                definitions: made,
                version,
                is_owner,
                owner,
            } => {
                self.refuse_newer(found)?;
                match found < layout() {
                    true if is_owner => Ok(true),
                    true => Err(self.outdated(found, &owner)),
                    // Older views serve; an older version does not replace newer ones.
                    false => Ok(is_owner
                        && made != definitions()
                        && numbers(VERSION) >= numbers(&version)),
                }
            }
        }
    }

    async fn state(&mut self) -> Result<State, ArchiveError> {
        let read = state(&mut self.connection);
        within(
            &self.server,
            self.answer,
            "look at the schema benchmesh",
            read,
        )
        .await
    }

    fn wrong(&self, why: &str) -> ArchiveError {
        ArchiveError::Wrong(format!("{}: {why}", self.server))
    }

    fn refuse_newer(&self, found: i32) -> Result<(), ArchiveError> {
        match found > layout() {
            true => Err(self.wrong(&format!(
                "a newer benchmesh made this archive (layout {found}); benchmesh {VERSION} knows layout {} and cannot \
                 use it: install the newer version here",
                layout()
            ))),
            false => Ok(()),
        }
    }

    fn outdated(&self, found: i32, owner: &str) -> ArchiveError {
        self.wrong(&format!(
            "this archive has layout {found}, benchmesh {VERSION} needs layout {}; bring it up to date with `benchmesh \
             archive prepare`, connected as its owner {owner}",
            layout()
        ))
    }

    fn someone_elses(&self) -> ArchiveError {
        someone_elses(&self.server.to_string())
    }
}

fn someone_elses(server: &str) -> ArchiveError {
    ArchiveError::Wrong(format!(
        "{server}: its schema \"benchmesh\" is not an archive of benchmesh; use another database"
    ))
}

async fn state(connection: &mut PgConnection) -> Result<State, sqlx::Error> {
    let row = sqlx::query(STATE).fetch_one(&mut *connection).await?;
    let (is_there, has_objects): (bool, bool) =
        (row.try_get("is_there")?, row.try_get("has_objects")?);
    if !is_there || !has_objects {
        return Ok(State::Absent);
    }
    if row.try_get::<i64, _>("marks")? != 3 {
        return Ok(State::SomeoneElses);
    }
    let made = sqlx::query("SELECT layout, definitions, version FROM benchmesh.archive")
        .fetch_optional(&mut *connection)
        .await?;
    let Some(made) = made else {
        return Ok(State::SomeoneElses);
    };
    Ok(State::Ours {
        layout: made.try_get("layout")?,
        definitions: made.try_get("definitions")?,
        version: made.try_get("version")?,
        is_owner: row.try_get("is_owner")?,
        owner: row.try_get("owner")?,
    })
}

async fn make(
    connection: &mut PgConnection,
    from: i32,
    definitions_made: &str,
) -> Result<(), sqlx::Error> {
    if from == 0 {
        sqlx::raw_sql("CREATE SCHEMA IF NOT EXISTS benchmesh")
            .execute(&mut *connection)
            .await?;
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        sqlx::raw_sql(*migration).execute(&mut *connection).await?;
    }
    if definitions_made != definitions() {
        // All at once, since they use each other. Views that others made of them are not dropped with them: the server
        // refuses, and names those.
        let drop: Option<String> = sqlx::query_scalar(
            "SELECT 'DROP VIEW ' || string_agg(format('benchmesh.%I', viewname), ', ') FROM pg_views
             WHERE schemaname = 'benchmesh' AND viewname = ANY($1)",
        )
        .bind(definitions::names())
        .fetch_one(&mut *connection)
        .await?;
        if let Some(drop) = drop {
            sqlx::raw_sql(AssertSqlSafe(drop))
                .execute(&mut *connection)
                .await?;
        }
        sqlx::raw_sql(definitions::sql())
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query(
        "INSERT INTO benchmesh.archive (id, layout, definitions, version) VALUES (1, $1, $2, $3)
         ON CONFLICT (id) DO UPDATE SET layout = excluded.layout, definitions = excluded.definitions,
             version = excluded.version, migrated_at = now()",
    )
    .bind(layout())
    .bind(definitions())
    .bind(VERSION)
    .execute(connection)
    .await?;
    Ok(())
}

/// Makes the roles if this one may, and grants to them. False: they are missing.
async fn roles(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql(MAKE_ROLES).execute(&mut *connection).await?;
    let found: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_roles WHERE rolname IN ('benchmesh_writer', 'benchmesh_reader')",
    )
    .fetch_one(&mut *connection)
    .await?;
    let has_roles = usize::try_from(found) == Ok(ROLES.len());
    if has_roles {
        sqlx::raw_sql(GRANTS).execute(connection).await?;
    }
    Ok(has_roles)
}

/// Tells texts of definitions apart.
fn definitions() -> String {
    let mut hash = Fnv::default();
    hash.bytes(definitions::sql().as_bytes());
    hash.to_string()
}

fn numbers(version: &str) -> Vec<u64> {
    version
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tables::{self, ColumnType, Table};
    use std::fmt::Write;

    const GENERATED: &str = "\
-- The archived tables of store/schema.sql, each row with the run whose copy it is. Texts compare as in SQLite, by
-- bytes.
-- Generated: BENCHMESH_BLESS=1 cargo test -p benchmesh-archive --lib migrations

";

    fn sql_of(table: &Table) -> String {
        let is_partitioned = table.is_partitioned();
        let mut sql = format!("CREATE TABLE benchmesh.{} (\n", table.name);
        sql.push_str(
            "    site text COLLATE \"C\" NOT NULL,\n    run_uid text COLLATE \"C\" NOT NULL,\n",
        );
        sql.push_str("    month date NOT NULL,\n");
        for column in &table.columns {
            let kind = match column.kind {
                ColumnType::Integer => "bigint",
                ColumnType::Real => "double precision",
                ColumnType::Text => "text COLLATE \"C\"",
                ColumnType::Blob => "bytea",
                ColumnType::Any => "jsonb",
            };
            let not_null = if column.is_nullable { "" } else { " NOT NULL" };
            let _ = writeln!(sql, "    {} {kind}{not_null},", column.name);
        }
        let month = if is_partitioned { ", month" } else { "" };
        let by = if is_partitioned {
            " PARTITION BY RANGE (month)"
        } else {
            ""
        };
        let _ = write!(
            sql,
            "    PRIMARY KEY (site, run_uid, {}{month})\n){by};\n",
            table.key.join(", ")
        );
        sql
    }

    /// While no version is released the tables of the archive follow those of SQLite; later a difference is a
    /// migration.
    #[test]
    fn migrations_make_the_tables_of_the_schema() {
        let tables: Vec<String> = tables::known().unwrap().iter().map(sql_of).collect();
        let expected = format!("{GENERATED}{}", tables.join("\n"));
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/postgres/migrations/0002_tables.sql"
        );
        if std::env::var_os("BENCHMESH_BLESS").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap();
        assert!(found == expected, "rewrite {path} with BENCHMESH_BLESS=1");
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.3"));
        assert!(numbers("1.0.0-rc1") >= numbers("1.0.0"));
    }
}
