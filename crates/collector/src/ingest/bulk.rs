//! Many rows in few statements: multi-row inserts whose sizes are powers of two, so that few statements are cached.
//!
//! While SQLite's thread runs one statement the next one's arguments are built. Only bare `?` stand for arguments: sqlx
//! looks every named one up in a list. A row whose key is there already is left as it is.

use crate::store::error::StoreError;
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteArguments, SqliteQueryResult};
use std::future::{Future, poll_fn};
use std::sync::OnceLock;
use std::task::Poll;

/// At most 2^MOST rows in one statement: 512 rows of 14 columns stay far below SQLite's 32,766 arguments.
const MOST: u32 = 9;

/// How rows go into one table.
pub(crate) struct Table {
    /// Up to VALUES: `INSERT INTO t (a, b)`.
    pub head: &'static str,
    /// After VALUES: `ON CONFLICT (a) DO NOTHING`.
    pub tail: &'static str,
    pub columns: usize,
    pub doing: &'static str,
    /// By the power of two; built when first used and kept for good, ten at most.
    pub statements: [OnceLock<&'static str>; MOST as usize + 1],
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.head)
    }
}

impl Table {
    pub(crate) const fn new(
        head: &'static str,
        tail: &'static str,
        columns: usize,
        doing: &'static str,
    ) -> Self {
        Self {
            head,
            tail,
            columns,
            doing,
            statements: [const { OnceLock::new() }; MOST as usize + 1],
        }
    }

    /// The statement for the largest power of two that is not above `rows`, and that number.
    fn statement(&self, rows: usize) -> (&'static str, usize) {
        let power = rows.max(1).ilog2().min(MOST);
        let rows = 1_usize << power;
        let sql = usize::try_from(power)
            .ok()
            .and_then(|power| self.statements.get(power))
            .map_or("", |cell| {
                *cell.get_or_init(|| Box::leak(self.build(rows).into_boxed_str()))
            });
        (sql, rows)
    }

    fn build(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns].join(","));
        let values = vec![row; rows].join(",");
        format!("{} VALUES {values} {}", self.head, self.tail)
    }

    /// Inserts `rows`, each bound by `bind`; says how many were new.
    pub(crate) async fn insert<T>(
        &'static self,
        connection: &mut SqliteConnection,
        mut rows: &[T],
        bind: impl Fn(&T, &mut Arguments),
    ) -> Result<u64, StoreError> {
        let mut inserted = 0;
        let mut build = || {
            if rows.is_empty() {
                return None;
            }
            let (sql, chunk) = self.statement(rows.len());
            let (these, rest) = rows.split_at_checked(chunk)?;
            rows = rest;
            let mut arguments = Arguments::with_room(chunk * self.columns);
            for row in these {
                bind(row, &mut arguments);
            }
            Some((sql, arguments))
        };
        let mut next = build();
        while let Some((sql, arguments)) = next {
            let arguments = arguments.done(self.doing)?;
            let mut run = Box::pin(sqlx::query_with(sql, arguments).execute(&mut *connection));
            // One poll hands the statement to SQLite's thread; what it says at once is kept.
            let early = poll_fn(|cx| {
                Poll::Ready(match run.as_mut().poll(cx) {
                    Poll::Ready(result) => Some(result),
                    Poll::Pending => None,
                })
            })
            .await;
            next = build();
            let done: SqliteQueryResult = match early {
                Some(result) => result,
                None => run.await,
            }
            .map_err(StoreError::sql(self.doing))?;
            inserted += done.rows_affected();
        }
        Ok(inserted)
    }
}

/// The arguments of one statement. The first value that cannot be bound is remembered, and refused in `done`.
#[derive(Debug)]
pub(crate) struct Arguments {
    values: SqliteArguments,
    refused: Option<sqlx::Error>,
}

impl Arguments {
    fn with_room(values: usize) -> Self {
        let mut arguments = SqliteArguments::default();
        sqlx::Arguments::reserve(&mut arguments, values, 0);
        Self {
            values: arguments,
            refused: None,
        }
    }

    pub(crate) fn add<'t, T>(&mut self, value: T)
    where
        T: sqlx::Encode<'t, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        if let Err(error) = sqlx::Arguments::add(&mut self.values, value) {
            self.refused.get_or_insert(sqlx::Error::Encode(error));
        }
    }

    fn done(self, doing: &'static str) -> Result<SqliteArguments, StoreError> {
        match self.refused {
            None => Ok(self.values),
            Some(source) => Err(StoreError::Sql { doing, source }),
        }
    }
}
