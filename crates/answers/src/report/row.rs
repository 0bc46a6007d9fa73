//! Reads the rows of a statement about one run.
//!
//! Each kind of row is declared once, as a struct that serde deserializes: its fields name the columns of the
//! statement and the keys of the JSON document. An integer becomes a boolean for a boolean field; a text is parsed as
//! JSON for a list or an object; NULL becomes 0 for a required number, and empty for a text.

use crate::compare::CompareError;
use crate::findings::FindingsError;
use crate::query::QueryError;
use crate::rows::BoxError;
use benchmesh_model::mesh::{NO_RUN_YET, RunId, no_such_run};
use rusqlite::Connection;
use rusqlite::types::{Type, ValueRef};
use serde::de::value::{Error, MapDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

pub(super) use crate::rows::Row;

/// Why a report could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{}", no_such_run(wanted, near.as_deref()))]
    NoRun {
        wanted: String,
        near: Option<String>,
    },
    #[error("{NO_RUN_YET}")]
    NoRuns,
    #[error(transparent)]
    Open(QueryError),
    #[error("cannot compare the targets of the run")]
    Compare(#[source] CompareError),
    #[error("cannot compute the findings of the run")]
    Findings(#[source] FindingsError),
    #[error("cannot read {what}: this file is not a benchmesh database")]
    Read {
        what: &'static str,
        #[source]
        source: BoxError,
    },
}

/// A statement about one run, whose id is its first parameter.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The table or view to be named in an error.
    pub what: &'static str,
    pub sql: &'static str,
}

pub(super) fn reading<E: Into<BoxError>>(what: &'static str) -> impl Fn(E) -> ReportError {
    move |source| ReportError::Read {
        what,
        source: source.into(),
    }
}

/// Runs a statement about one run, and deserializes each row.
pub(super) fn rows<T: for<'r> Deserialize<'r>>(
    connection: &Connection,
    statement: Statement,
    run: RunId,
) -> Result<Vec<T>, ReportError> {
    rows_with(connection, statement, run, |row| value(row))
}

/// Like [`rows`], with a function that converts a row.
pub(super) fn rows_with<T>(
    connection: &Connection,
    statement: Statement,
    run: RunId,
    make: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, ReportError> {
    crate::rows::rows_with(connection, statement.sql, &[run.0.into()], make)
        .map_err(reading(statement.what))
}

/// Deserializes a row.
pub(super) fn value<'r, T: Deserialize<'r>>(row: &'r Row<'_>) -> rusqlite::Result<T> {
    let fields = fields(row)?.into_iter();
    T::deserialize(MapDeserializer::new(fields)).map_err(|error: Error| invalid(error))
}

fn fields<'r>(row: &'r Row<'_>) -> rusqlite::Result<Vec<(&'r str, Stored<'r>)>> {
    let columns = row.as_ref();
    (0..columns.column_count())
        .map(|at| Ok((columns.column_name(at)?, Stored::of(row.get_ref(at)?)?)))
        .collect()
}

/// A row that is not what it should be.
pub(super) fn invalid(error: impl Into<BoxError>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, error.into())
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
    fn of(value: ValueRef<'r>) -> rusqlite::Result<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Integer(value),
            ValueRef::Real(value) => Self::Real(value),
            ValueRef::Text(text) => Self::Text(std::str::from_utf8(text)?),
            ValueRef::Blob(bytes) => Self::Blob(bytes),
        })
    }

    /// A deserializer of the text as JSON; `None` if the value is not a text.
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
