//! Reads the rows of a statement about one run.
//!
//! Each kind of row is declared once, as a struct that serde deserializes: its fields name the columns of the statement
//! and the keys of the JSON document. An integer becomes a boolean for a boolean field; a text is parsed as JSON for a
//! list or an object; NULL becomes 0 for a required number, and empty for a
//! text.

use crate::compare::CompareError;
use crate::findings::FindingsError;
use crate::query::QueryError;
use benchmesh_model::mesh::RunId;
use serde::de::value::{Error, MapDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use sqlx::sqlite::{Sqlite, SqliteRow, SqliteValueRef};
use sqlx::{Column as _, Decode, Row as _, SqliteConnection, TypeInfo as _, ValueRef as _};

/// The reason why a report failed.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(
        "there is no run {wanted:?} in this database; `benchmesh query \"SELECT run_id, run, state FROM v_runs\"` lists them"
    )]
    NoRun { wanted: String },
    #[error("there is no run in this database yet")]
    NoRuns,
    #[error(transparent)]
    Open(QueryError),
    #[error("cannot compare the targets of the run")]
    Compare(#[source] CompareError),
    #[error("cannot compute the findings of the run")]
    Findings(#[source] FindingsError),
    #[error("this file is no benchmesh database of this version: {what} cannot be read")]
    Read {
        what: &'static str,
        #[source]
        source: sqlx::Error,
    },
}

/// A statement about one run, bound as its first parameter.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The table or view that is named when it cannot be read.
    pub what: &'static str,
    pub sql: &'static str,
}

pub(super) fn reading(what: &'static str) -> impl Fn(sqlx::Error) -> ReportError {
    move |source| ReportError::Read { what, source }
}

/// Runs a statement about one run; a value of each row.
pub(super) async fn rows<T: for<'r> Deserialize<'r>>(
    connection: &mut SqliteConnection,
    statement: Statement,
    run: RunId,
) -> Result<Vec<T>, ReportError> {
    rows_with(connection, statement, run, |row| value(row)).await
}

/// As [`rows`], with a function that makes a value of a row.
pub(super) async fn rows_with<T>(
    connection: &mut SqliteConnection,
    statement: Statement,
    run: RunId,
    make: fn(&SqliteRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, ReportError> {
    let rows = sqlx::query(statement.sql)
        .bind(run.0)
        .fetch_all(connection)
        .await
        .map_err(reading(statement.what))?;
    rows.iter()
        .map(|row| make(row).map_err(reading(statement.what)))
        .collect()
}

/// The value that a row is.
pub(super) fn value<'r, T: Deserialize<'r>>(row: &'r SqliteRow) -> Result<T, sqlx::Error> {
    let mut fields = Vec::with_capacity(row.len());
    for (at, column) in row.columns().iter().enumerate() {
        fields.push((column.name(), Stored::of(row.try_get_raw(at)?)?));
    }
    T::deserialize(MapDeserializer::new(fields.into_iter()))
        .map_err(|error: Error| sqlx::Error::Decode(Box::new(error)))
}

/// A value as SQLite stores it.
#[derive(Clone, Copy, Debug)]
enum Stored<'r> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'r str),
    Blob(&'r [u8]),
}

impl<'r> Stored<'r> {
    fn of(value: SqliteValueRef<'r>) -> Result<Self, sqlx::Error> {
        if value.is_null() {
            return Ok(Self::Null);
        }
        let stored = match value.type_info().name() {
            "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(Self::Integer),
            "REAL" => <f64 as Decode<Sqlite>>::decode(value).map(Self::Real),
            "TEXT" => <&str as Decode<Sqlite>>::decode(value).map(Self::Text),
            _ => <&[u8] as Decode<Sqlite>>::decode(value).map(Self::Blob),
        };
        stored.map_err(sqlx::Error::Decode)
    }

    /// The text as JSON; `None` if it is not a text.
    fn json(self) -> Option<serde_json::Deserializer<serde_json::de::StrRead<'r>>> {
        match self {
            Self::Text(text) => Some(serde_json::Deserializer::from_str(text)),
            _ => None,
        }
    }
}

impl<'r> IntoDeserializer<'r> for Stored<'r> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Stored<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Integer(value) => visitor.visit_i64(value),
            Self::Real(value) => visitor.visit_f64(value),
            Self::Text(text) => visitor.visit_borrowed_str(text),
            Self::Blob(bytes) => visitor.visit_borrowed_bytes(bytes),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_none(),
            there => visitor.visit_some(there),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Integer(value) => visitor.visit_bool(value != 0),
            other => other.deserialize_any(visitor),
        }
    }

    /// NULL is 0, as SQLite converts it.
    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_i64(0),
            there => there.deserialize_any(visitor),
        }
    }

    /// NULL is 0, as SQLite converts it.
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_f64(0.0),
            there => there.deserialize_any(visitor),
        }
    }

    /// NULL is empty.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_borrowed_str(""),
            there => there.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.json() {
            Some(mut json) => json.deserialize_seq(visitor).map_err(Error::custom),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.json() {
            Some(mut json) => json.deserialize_map(visitor).map_err(Error::custom),
            None => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct struct enum identifier ignored_any
    }
}
