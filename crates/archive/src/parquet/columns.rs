//! The columns of a Parquet file of one table, and the values of one row group of it.
//!
//! The run's uid comes first, then the columns of the table under their names: INTEGER as INT64, REAL as DOUBLE, TEXT
//! as UTF8, BLOB as bytes. A column of any type (`facts.value`) is a text, and a further column `value_number` has its
//! number if it is one. What may be NULL is optional.

use crate::tables::{ColumnType, Table};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{Type, TypePtr};
use rusqlite::types::ValueRef;
use std::sync::Arc;

/// The first column of each file.
pub const RUN_UID: &str = "run_uid";

/// What a number or a NULL takes.
const NUMBER_BYTES: usize = size_of::<i64>() + size_of::<i16>();
/// What a text or a blob takes beside its bytes.
const HANDLE_BYTES: usize = size_of::<ByteArray>() + size_of::<i16>();

/// A value of another type than its column, which SQLite refuses in a sound file.
#[derive(Debug, PartialEq, Eq)]
pub struct WrongType {
    pub column: String,
    pub found: &'static str,
}

/// What a column of a file takes from a value of SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Real,
    Text,
    Blob,
    /// Any value as text.
    AnyText,
    /// The number of any value, or NULL.
    AnyNumber,
}

#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

/// One column: its name and the values of the current row group.
#[derive(Debug)]
struct Column {
    name: String,
    kind: Kind,
    is_nullable: bool,
    values: Values,
    /// 1 for each value and 0 for each NULL; unused in a column that is never NULL.
    levels: Vec<i16>,
}

impl Column {
    fn new(name: &str, kind: Kind, is_nullable: bool) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            is_nullable,
            values: match kind {
                Kind::Integer => Values::Integers(Vec::new()),
                Kind::Real | Kind::AnyNumber => Values::Reals(Vec::new()),
                Kind::Text | Kind::Blob | Kind::AnyText => Values::Bytes(Vec::new()),
            },
            levels: Vec::new(),
        }
    }

    fn schema(&self) -> Result<Type, ParquetError> {
        let (physical, logical) = match self.kind {
            Kind::Integer => (Physical::INT64, None),
            Kind::Real | Kind::AnyNumber => (Physical::DOUBLE, None),
            Kind::Text | Kind::AnyText => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Blob => (Physical::BYTE_ARRAY, None),
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .with_repetition(match self.is_nullable {
                true => Repetition::OPTIONAL,
                false => Repetition::REQUIRED,
            })
            .build()
    }

    /// Returns the bytes that the value takes in memory.
    fn push(&mut self, value: ValueRef<'_>) -> Result<usize, WrongType> {
        let wrong = |found| WrongType {
            column: self.name.clone(),
            found,
        };
        let value = match (self.kind, value) {
            (Kind::AnyNumber, ValueRef::Text(_) | ValueRef::Blob(_)) => ValueRef::Null,
            (_, value) => value,
        };
        let has_value = value != ValueRef::Null;
        if !has_value && !self.is_nullable {
            return Err(wrong("NULL"));
        }
        if self.is_nullable {
            self.levels.push(i16::from(has_value));
        }
        if !has_value {
            return Ok(NUMBER_BYTES);
        }
        match (&mut self.values, self.kind, value) {
            (Values::Integers(all), _, ValueRef::Integer(value)) => all.push(value),
            (Values::Reals(all), _, ValueRef::Real(value)) => all.push(value),
            #[expect(clippy::cast_precision_loss, reason = "the text has all digits")]
            (Values::Reals(all), _, ValueRef::Integer(value)) => all.push(value as f64),
            (Values::Bytes(all), Kind::Text | Kind::AnyText, ValueRef::Text(text)) => {
                return Ok(push_text(all, text));
            }
            (Values::Bytes(all), Kind::Blob, ValueRef::Blob(bytes)) => {
                all.push(ByteArray::from(bytes));
                return Ok(HANDLE_BYTES + bytes.len());
            }
            (Values::Bytes(all), Kind::AnyText, ValueRef::Integer(value)) => {
                return Ok(push_text(all, value.to_string().as_bytes()));
            }
            (Values::Bytes(all), Kind::AnyText, ValueRef::Real(value)) => {
                return Ok(push_text(all, value.to_string().as_bytes()));
            }
            (_, _, value) => return Err(wrong(type_name(value))),
        }
        Ok(NUMBER_BYTES)
    }

    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.is_nullable.then_some(self.levels.as_slice());
        match &mut self.values {
            Values::Integers(all) => {
                writer.typed::<Int64Type>().write_batch(all, levels, None)?;
                all.clear();
            }
            Values::Reals(all) => {
                writer
                    .typed::<DoubleType>()
                    .write_batch(all, levels, None)?;
                all.clear();
            }
            Values::Bytes(all) => {
                writer
                    .typed::<ByteArrayType>()
                    .write_batch(all, levels, None)?;
                all.clear();
            }
        }
        self.levels.clear();
        Ok(())
    }
}

/// Texts are UTF-8 whatever the database has: engines refuse a whole file for one that is not. Equal texts that follow
/// one another, as most do, share their bytes.
fn push_text(all: &mut Vec<ByteArray>, text: &[u8]) -> usize {
    match all.last() {
        Some(last) if last.data() == text => {
            let same = last.clone();
            all.push(same);
            HANDLE_BYTES
        }
        _ => {
            let text = String::from_utf8_lossy(text);
            all.push(ByteArray::from(text.as_bytes()));
            HANDLE_BYTES + text.len()
        }
    }
}

fn type_name(value: ValueRef<'_>) -> &'static str {
    match value {
        ValueRef::Null => "NULL",
        ValueRef::Integer(_) => "an integer",
        ValueRef::Real(_) => "a real number",
        ValueRef::Text(_) => "a text",
        ValueRef::Blob(_) => "a blob",
    }
}

/// The values of one row group.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<Column>,
    /// For each column of the file, the column of the table that it is made of; `None`: the run's uid.
    sources: Vec<Option<usize>>,
    run_uid: String,
    rows: usize,
    bytes: usize,
}

impl Columns {
    pub fn new(table: &Table, run_uid: &str) -> Self {
        let mut columns = vec![Column::new(RUN_UID, Kind::Text, false)];
        let mut sources = vec![None];
        for (at, column) in table.columns.iter().enumerate() {
            let mut add = |name: &str, kind, is_nullable| {
                columns.push(Column::new(name, kind, is_nullable));
                sources.push(Some(at));
            };
            match column.kind {
                ColumnType::Integer => add(&column.name, Kind::Integer, column.is_nullable),
                ColumnType::Real => add(&column.name, Kind::Real, column.is_nullable),
                ColumnType::Text => add(&column.name, Kind::Text, column.is_nullable),
                ColumnType::Blob => add(&column.name, Kind::Blob, column.is_nullable),
                ColumnType::Any => {
                    add(&column.name, Kind::AnyText, column.is_nullable);
                    add(&format!("{}_number", column.name), Kind::AnyNumber, true);
                }
            }
        }
        Self {
            columns,
            sources,
            run_uid: run_uid.to_owned(),
            rows: 0,
            bytes: 0,
        }
    }

    /// The schema of a file of this table.
    pub fn schema(&self, table: &str) -> Result<TypePtr, ParquetError> {
        let fields = self.columns.iter().map(|one| one.schema().map(Arc::new));
        Type::group_type_builder(table)
            .with_fields(fields.collect::<Result<_, _>>()?)
            .build()
            .map(Arc::new)
    }

    /// The columns that contain bytes which are compressed already.
    pub fn blobs(&self) -> impl Iterator<Item = &str> {
        self.named(Kind::Blob)
    }

    pub fn integers(&self) -> impl Iterator<Item = &str> {
        self.named(Kind::Integer)
    }

    fn named(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let found = self.columns.iter().filter(move |one| one.kind == kind);
        found.map(|one| one.name.as_str())
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|one| one.name == name)
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// About the memory that the values take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a row of the table.
    pub fn push(&mut self, row: &[ValueRef<'_>]) -> Result<(), WrongType> {
        for (column, source) in self.columns.iter_mut().zip(&self.sources) {
            let value = match source {
                None => ValueRef::Text(self.run_uid.as_bytes()),
                Some(at) => row.get(*at).copied().unwrap_or(ValueRef::Null),
            };
            self.bytes += column.push(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes the next column of the file and frees its values; `at` counts from 0.
    pub fn write(
        &mut self,
        at: usize,
        writer: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        match self.columns.get_mut(at) {
            Some(column) => column.write(writer),
            None => Err(ParquetError::General(format!("there is no column {at}"))),
        }
    }

    /// Begins the next row group.
    pub fn next_group(&mut self) {
        self.rows = 0;
        self.bytes = 0;
    }
}
