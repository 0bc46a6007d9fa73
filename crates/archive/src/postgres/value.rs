//! Rows in the binary format of COPY, from SQLite's values and back, without loss.
//!
//! PostgreSQL's texts are UTF-8 without NUL, SQLite's may be anything. A byte that does not fit becomes a character of
//! the last private plane, U+10FF00 and the byte; a character from there that a text really has becomes four of them.

use super::date::Month;
use crate::tables::{Column, ColumnType, Table};
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};
use std::borrow::Cow;

/// Signature, flags and the length of an extension.
pub const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
pub const TRAILER: &[u8] = &[0xff, 0xff];
/// The columns before those of SQLite's table.
pub const KEY_COLUMNS: [&str; 3] = ["site", "run_uid", "month"];
const JSONB_VERSION: u8 = 1;
const FIRST_ESCAPED: u32 = 0x0010_ff00;
const LAST_ESCAPED: u32 = 0x0010_ffff;

/// Writes rows of one run.
#[derive(Debug)]
pub struct RowEncoder {
    /// Site, uid and month, encoded.
    key: Vec<u8>,
}

impl RowEncoder {
    pub fn new(site: &str, run_uid: &str, month: Month) -> Self {
        let mut key = Vec::new();
        for text in [site, run_uid] {
            field(&mut key, &escaped(text.as_bytes()));
        }
        field(&mut key, &month.postgres_days().to_be_bytes());
        Self { key }
    }

    /// Appends a row. The error says which column has a value that its type does not allow.
    pub fn row(
        &self,
        out: &mut Vec<u8>,
        table: &Table,
        values: &[ValueRef<'_>],
    ) -> Result<(), String> {
        let columns = KEY_COLUMNS.len() + table.columns.len();
        out.extend_from_slice(&i16::try_from(columns).unwrap_or(i16::MAX).to_be_bytes());
        out.extend_from_slice(&self.key);
        for (column, value) in table.columns.iter().zip(values) {
            encode(out, column, *value).map_err(|found| {
                format!(
                    "column {} has {found}, which its type does not allow",
                    column.name
                )
            })?;
        }
        Ok(())
    }
}

fn encode(out: &mut Vec<u8>, column: &Column, value: ValueRef<'_>) -> Result<(), &'static str> {
    match (column.kind, value) {
        (_, ValueRef::Null) => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        (ColumnType::Integer, ValueRef::Integer(value)) => field(out, &value.to_be_bytes()),
        (ColumnType::Real, ValueRef::Real(value)) => field(out, &value.to_be_bytes()),
        (ColumnType::Text, ValueRef::Text(text)) => field(out, &escaped(text)),
        (ColumnType::Blob, ValueRef::Blob(bytes)) => field(out, bytes),
        (ColumnType::Any, value) => {
            let mut json = vec![JSONB_VERSION];
            json.extend_from_slice(json_of(value).as_bytes());
            field(out, &json);
        }
        (_, ValueRef::Integer(_)) => return Err("an integer"),
        (_, ValueRef::Real(_)) => return Err("a real number"),
        (_, ValueRef::Text(_)) => return Err("a text"),
        (_, ValueRef::Blob(_)) => return Err("a blob"),
    }
    Ok(())
}

fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    // SQLite's own limit is 1 GB.
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// A text as PostgreSQL takes it.
fn escaped(text: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |text: &str| !text.contains(|found: char| found == '\0' || is_escape(found));
    if std::str::from_utf8(text).is_ok_and(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let escape = |out: &mut String, byte: u8| {
        out.extend(char::from_u32(FIRST_ESCAPED + u32::from(byte)));
    };
    for chunk in text.utf8_chunks() {
        for found in chunk.valid().chars() {
            if found == '\0' || is_escape(found) {
                let mut buffer = [0; 4];
                for byte in found.encode_utf8(&mut buffer).bytes() {
                    escape(&mut out, byte);
                }
            } else {
                out.push(found);
            }
        }
        for byte in chunk.invalid() {
            escape(&mut out, *byte);
        }
    }
    Cow::Owned(out.into_bytes())
}

fn is_escape(found: char) -> bool {
    (FIRST_ESCAPED..=LAST_ESCAPED).contains(&u32::from(found))
}

/// The text that [`escaped`] was given.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let Ok(valid) = std::str::from_utf8(text) else {
        return Cow::Borrowed(text);
    };
    if !valid.contains(is_escape) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    for found in valid.chars() {
        match u8::try_from(u32::from(found).wrapping_sub(FIRST_ESCAPED)) {
            Ok(byte) if is_escape(found) => out.push(byte),
            _ => out.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

/// A number or a text as JSON. A real number always has a point, by which it is told from an integer. What JSON has no
/// word for is an object.
fn json_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::from("null"),
        ValueRef::Integer(value) => value.to_string(),
        ValueRef::Real(value)
            if !value.is_finite() || (value == 0.0 && value.is_sign_negative()) =>
        {
            format!("{{\"real\":\"{value}\"}}")
        }
        ValueRef::Real(value) => {
            let text = value.to_string();
            match text.contains('.') {
                true => text,
                false => format!("{text}.0"),
            }
        }
        ValueRef::Text(text) => {
            serde_json::Value::from(String::from_utf8_lossy(&escaped(text))).to_string()
        }
        ValueRef::Blob(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{{\"blob\":\"{hex}\"}}")
        }
    }
}

/// A value on its way into SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'a, [u8]>),
    Blob(Cow<'a, [u8]>),
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn decode(kind: ColumnType, bytes: Option<&[u8]>) -> Option<Cell<'_>> {
    let Some(bytes) = bytes else {
        return Some(Cell::Null);
    };
    Some(match kind {
        ColumnType::Integer => Cell::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
        ColumnType::Real => Cell::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
        ColumnType::Text => Cell::Text(unescaped(bytes)),
        ColumnType::Blob => Cell::Blob(Cow::Borrowed(bytes)),
        ColumnType::Any => of_json(std::str::from_utf8(bytes.get(1..)?).ok()?)?,
    })
}

fn of_json(json: &str) -> Option<Cell<'static>> {
    match json.bytes().next()? {
        b'"' => {
            let text: String = serde_json::from_str(json).ok()?;
            Some(Cell::Text(Cow::Owned(
                unescaped(text.as_bytes()).into_owned(),
            )))
        }
        b'{' => {
            let object: serde_json::Value = serde_json::from_str(json).ok()?;
            if let Some(real) = object.get("real") {
                return Some(Cell::Real(real.as_str()?.parse().ok()?));
            }
            let hex = object.get("blob")?.as_str()?.as_bytes();
            let bytes = hex
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            Some(Cell::Blob(Cow::Owned(bytes.collect::<Option<Vec<u8>>>()?)))
        }
        b'n' => Some(Cell::Null),
        _ if json.contains('.') => Some(Cell::Real(json.parse().ok()?)),
        _ => Some(Cell::Integer(json.parse().ok()?)),
    }
}

/// Reads rows of a table, without the key columns, from the pieces of a COPY.
#[derive(Debug)]
pub struct RowDecoder {
    kinds: Vec<ColumnType>,
    buffer: Vec<u8>,
    /// Where the next row begins.
    at: usize,
    is_begun: bool,
}

/// The server sent something that is no row of this table.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRow;

impl RowDecoder {
    pub fn new(table: &Table) -> Self {
        Self {
            kinds: table.columns.iter().map(|one| one.kind).collect(),
            buffer: Vec::new(),
            at: 0,
            is_begun: false,
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next row if all of it has come.
    pub fn next_row(&mut self) -> Result<Option<Vec<Cell<'_>>>, NoRow> {
        let mut rest = Bytes(self.buffer.get(self.at..).unwrap_or_default());
        let before = rest.0.len();
        if !self.is_begun {
            let Some(header) = rest.take(HEADER.len()) else {
                return Ok(None);
            };
            if header != HEADER {
                return Err(NoRow);
            }
            self.is_begun = true;
            self.at += HEADER.len();
        }
        let before = before.min(self.buffer.len() - self.at);
        let mut row = Bytes(rest.0);
        match row.i16() {
            // Incomplete, or the trailer.
            None | Some(-1) => return Ok(None),
            Some(columns) if usize::try_from(columns) != Ok(self.kinds.len()) => return Err(NoRow),
            Some(_) => {}
        }
        let mut cells = Vec::with_capacity(self.kinds.len());
        for kind in &self.kinds {
            let bytes = match row.i32() {
                None => return Ok(None),
                Some(-1) => None,
                Some(length) => match row.take(usize::try_from(length).map_err(|_| NoRow)?) {
                    None => return Ok(None),
                    bytes => bytes,
                },
            };
            cells.push(decode(*kind, bytes).ok_or(NoRow)?);
        }
        self.at += before - row.0.len();
        Ok(Some(cells))
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn table() -> Table {
        let column = |name: &str, kind| Column {
            name: name.to_owned(),
            kind,
            is_nullable: true,
        };
        Table {
            name: String::from("facts"),
            columns: vec![
                column("id", ColumnType::Integer),
                column("size", ColumnType::Real),
                column("text", ColumnType::Text),
                column("bytes", ColumnType::Blob),
                column("value", ColumnType::Any),
            ],
            key: vec![String::from("id")],
        }
    }

    #[test]
    fn every_text_comes_back_and_postgres_can_keep_it() {
        for text in [
            &b""[..],
            b"plain",
            "caf\u{e9} \u{1f600}".as_bytes(),
            b"nul \0 inside",
            b"\xff\xfe latin \xe9",
            "\u{10ff00} \u{10ffff} \u{10fffd}".as_bytes(),
            b"cut \xf0\x9f\x98",
        ] {
            let kept = escaped(text).into_owned();
            let kept_text = std::str::from_utf8(&kept).unwrap();
            assert!(!kept_text.contains('\0'), "{text:?}");
            assert_eq!(unescaped(&kept), text, "{text:?}");
        }
        assert!(matches!(escaped(b"plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn numbers_and_texts_of_one_column_keep_their_type() {
        for value in [
            ValueRef::Integer(i64::MIN),
            ValueRef::Integer(5),
            ValueRef::Real(5.0),
            ValueRef::Real(1e300),
            ValueRef::Real(5e-324),
            ValueRef::Real(-0.1),
            ValueRef::Real(-0.0),
            ValueRef::Real(f64::INFINITY),
            ValueRef::Text(b"HEALTH_OK \"quoted\" \0 \xff"),
            ValueRef::Text(b"5"),
            ValueRef::Blob(b"\x00\xff"),
        ] {
            let found = of_json(&json_of(value)).unwrap();
            let ToSqlOutput::Borrowed(back) = found.to_sql().unwrap() else {
                panic!("{found:?}");
            };
            assert_eq!(back, value);
            if let (ValueRef::Real(before), ValueRef::Real(after)) = (value, back) {
                assert_eq!(before.to_bits(), after.to_bits());
            }
        }
    }

    #[test]
    fn rows_are_read_from_pieces_of_any_length() {
        let table = table();
        let mut rows = HEADER.to_vec();
        for id in 0..5_i64 {
            // As COPY of the columns without the key gives them.
            rows.extend_from_slice(&5_i16.to_be_bytes());
            let values = [
                ValueRef::Integer(id),
                ValueRef::Null,
                ValueRef::Text(b"a\0b"),
                ValueRef::Blob(&[7; 40]),
                ValueRef::Real(2.0),
            ];
            for (column, value) in table.columns.iter().zip(values) {
                encode(&mut rows, column, value).unwrap();
            }
        }
        rows.extend_from_slice(TRAILER);
        for length in [1, 7, 19, 100, rows.len()] {
            let mut decoder = RowDecoder::new(&table);
            let mut ids = Vec::new();
            for piece in rows.chunks(length) {
                decoder.feed(piece);
                while let Some(row) = decoder.next_row().unwrap() {
                    assert_eq!(row[2], Cell::Text(Cow::Borrowed(b"a\0b")));
                    assert_eq!(row[4], Cell::Real(2.0));
                    let Cell::Integer(id) = row[0] else {
                        panic!("{row:?}");
                    };
                    ids.push(id);
                }
            }
            assert_eq!(ids, [0, 1, 2, 3, 4], "{length}");
        }
        let mut decoder = RowDecoder::new(&table);
        decoder.feed(b"something else that is longer than a header");
        assert_eq!(decoder.next_row(), Err(NoRow));
    }

    #[test]
    fn a_value_of_another_type_is_refused_with_its_column() {
        let encoder = RowEncoder::new("lab", "uid", Month::of(0));
        let values = [ValueRef::Text(b"x"); 5];
        let error = encoder.row(&mut Vec::new(), &table(), &values).unwrap_err();
        assert!(error.contains("column id has a text"), "{error}");
    }
}
