//! Parquet, as far as tables without nesting need it: one data page per column and row group, PLAIN values, GZIP, and a
//! footer in Thrift's compact protocol (parquet-format's `parquet.thrift`). A crate for it is larger than all of this crate.
//!
//! Every column is optional. A column of a view that is an expression has the type of its first value; while there is none,
//! its pages hold no value either, so the type is needed only by the footer.

use super::{Column, ColumnType, Sink};
use flate2::{Compression, write::GzEncoder};
use rusqlite::types::ValueRef;
use std::io::{self, Write};

const MAGIC: &[u8] = b"PAR1";
/// Rows of a row group, unless its values take more than `GROUP_BYTES` before.
const GROUP_ROWS: usize = 1 << 17;
const GROUP_BYTES: usize = 64 << 20;

/// Numbers of `parquet.thrift`.
mod format {
    pub const DATA_PAGE: i64 = 0;
    pub const PLAIN: i64 = 0;
    pub const RLE: i64 = 3;
    pub const GZIP: i64 = 2;
    pub const OPTIONAL: i64 = 1;
    pub const INT64: i64 = 2;
    pub const DOUBLE: i64 = 5;
    pub const BYTE_ARRAY: i64 = 6;
    pub const UTF8: i64 = 0;
}

pub(super) struct Parquet<'o> {
    out: &'o mut dyn Write,
    /// Bytes written so far.
    at: usize,
    columns: Vec<Buffer>,
    rows: usize,
    groups: Vec<Group>,
}

/// The values of one column in the row group.
struct Buffer {
    name: String,
    value_type: Option<ColumnType>,
    values: Vec<u8>,
    /// Whether there is a value, and in how many rows in sequence.
    present: Vec<(bool, usize)>,
}

struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

struct Chunk {
    at: usize,
    compressed: usize,
    uncompressed: usize,
}

impl<'o> Parquet<'o> {
    pub(super) fn new(out: &'o mut dyn Write, columns: Vec<Column>) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let columns = columns.into_iter().map(|column| Buffer {
            name: column.name,
            value_type: column.declared,
            values: Vec::new(),
            present: Vec::new(),
        });
        Ok(Self {
            out,
            at: MAGIC.len(),
            columns: columns.collect(),
            rows: 0,
            groups: Vec::new(),
        })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len();
        Ok(())
    }

    fn end_group(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let mut chunks = Vec::with_capacity(self.columns.len());
        for at in 0..self.columns.len() {
            let Some(column) = self.columns.get_mut(at) else {
                break;
            };
            let page = column.take_page();
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&page)?;
            let packed = packed.finish()?;
            let header = page_header(rows, page.len(), packed.len());
            chunks.push(Chunk {
                at: self.at,
                compressed: header.len() + packed.len(),
                uncompressed: header.len() + page.len(),
            });
            self.put(&header)?;
            self.put(&packed)?;
        }
        self.groups.push(Group { rows, chunks });
        Ok(())
    }
}

impl Sink for Parquet<'_> {
    fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value)?;
        }
        self.rows += 1;
        let bytes: usize = self.columns.iter().map(|column| column.values.len()).sum();
        match self.rows == GROUP_ROWS || bytes >= GROUP_BYTES {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.end_group()?;
        }
        let footer = footer(&self.columns, &self.groups);
        self.put(&footer)?;
        let length = u32::try_from(footer.len()).map_err(io::Error::other)?;
        self.put(&length.to_le_bytes())?;
        self.put(MAGIC)?;
        self.out.flush()
    }
}

impl Buffer {
    fn push(&mut self, value: &ValueRef<'_>) -> io::Result<()> {
        let found = match value {
            ValueRef::Null => None,
            ValueRef::Integer(_) => Some(ColumnType::Integer),
            ValueRef::Real(_) => Some(ColumnType::Real),
            ValueRef::Text(_) => Some(ColumnType::Text),
            ValueRef::Blob(_) => Some(ColumnType::Blob),
        };
        match self.present.last_mut() {
            Some((present, rows)) if *present == found.is_some() => *rows += 1,
            _ => self.present.push((found.is_some(), 1)),
        }
        let Some(found) = found else { return Ok(()) };
        let value_type = *self.value_type.get_or_insert(found);
        match (value_type, value) {
            (ColumnType::Integer, ValueRef::Integer(value)) => {
                self.values.extend(value.to_le_bytes())
            }
            (ColumnType::Real, ValueRef::Real(value)) => self.values.extend(value.to_le_bytes()),
            (ColumnType::Real, ValueRef::Integer(value)) => {
                self.values
                    .extend(crate::results::real(*value).to_le_bytes());
            }
            (ColumnType::Text, ValueRef::Text(bytes))
            | (ColumnType::Blob, ValueRef::Blob(bytes)) => {
                let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
                self.values.extend(length.to_le_bytes());
                self.values.extend(*bytes);
            }
            _ => {
                return Err(io::Error::other(format!(
                    "column {} holds {value_type:?} and {found:?}; Parquet knows one type for a column",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Definition levels in runs of one byte, then the values.
    fn take_page(&mut self) -> Vec<u8> {
        let mut levels = Vec::new();
        for (present, rows) in self.present.drain(..) {
            varint(&mut levels, (rows as u64) << 1);
            levels.push(u8::from(present));
        }
        // At most 11 bytes per row of a group.
        let length = u32::try_from(levels.len()).unwrap_or(u32::MAX);
        let mut page = length.to_le_bytes().to_vec();
        page.append(&mut levels);
        page.append(&mut self.values);
        page
    }

    fn physical(&self) -> i64 {
        match self.value_type {
            Some(ColumnType::Integer) => format::INT64,
            // No value was seen: most expressions are figures.
            Some(ColumnType::Real) | None => format::DOUBLE,
            Some(ColumnType::Text | ColumnType::Blob) => format::BYTE_ARRAY,
        }
    }
}

fn page_header(rows: usize, uncompressed: usize, compressed: usize) -> Vec<u8> {
    let mut page = Struct::default();
    page.i32(1, long(rows))
        .i32(2, format::PLAIN)
        .i32(3, format::RLE)
        .i32(4, format::RLE);
    let mut header = Struct::default();
    header
        .i32(1, format::DATA_PAGE)
        .i32(2, long(uncompressed))
        .i32(3, long(compressed))
        .nested(5, page);
    header.end()
}

fn footer(columns: &[Buffer], groups: &[Group]) -> Vec<u8> {
    let mut root = Struct::default();
    root.text(4, "schema").i32(5, long(columns.len()));
    let mut schema = vec![root];
    schema.extend(columns.iter().map(|column| {
        let mut element = Struct::default();
        element
            .i32(1, column.physical())
            .i32(3, format::OPTIONAL)
            .text(4, &column.name);
        if column.value_type == Some(ColumnType::Text) {
            element.i32(6, format::UTF8);
        }
        element
    }));
    let groups_of = groups.iter().map(|group| {
        let chunks = group.chunks.iter().zip(columns);
        let chunks = chunks.map(|(chunk, column)| {
            let mut data = Struct::default();
            data.i32(1, column.physical())
                .i32_list(2, &[format::PLAIN, format::RLE])
                .text_list(3, &column.name)
                .i32(4, format::GZIP)
                .i64(5, long(group.rows))
                .i64(6, long(chunk.uncompressed))
                .i64(7, long(chunk.compressed))
                .i64(9, long(chunk.at));
            let mut whole = Struct::default();
            whole.i64(2, long(chunk.at)).nested(3, data);
            whole
        });
        let bytes: usize = group.chunks.iter().map(|chunk| chunk.uncompressed).sum();
        let mut one = Struct::default();
        one.struct_list(1, chunks.collect())
            .i64(2, long(bytes))
            .i64(3, long(group.rows));
        one
    });
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    let mut footer = Struct::default();
    footer
        .i32(1, 1)
        .struct_list(2, schema)
        .i64(3, long(rows))
        .struct_list(4, groups_of.collect())
        .text(6, concat!("benchmesh ", env!("CARGO_PKG_VERSION")));
    footer.end()
}

/// A struct in Thrift's compact protocol. Fields are added by rising number.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    const I32: u8 = 5;
    const I64: u8 = 6;
    const BINARY: u8 = 8;
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;

    fn field(&mut self, number: u8, kind: u8) {
        self.bytes.push(((number - self.last) << 4) | kind);
        self.last = number;
    }

    fn i32(&mut self, number: u8, value: i64) -> &mut Self {
        self.field(number, Self::I32);
        zigzag(&mut self.bytes, value);
        self
    }

    fn i64(&mut self, number: u8, value: i64) -> &mut Self {
        self.field(number, Self::I64);
        zigzag(&mut self.bytes, value);
        self
    }

    fn text(&mut self, number: u8, text: &str) -> &mut Self {
        self.field(number, Self::BINARY);
        binary(&mut self.bytes, text);
        self
    }

    fn nested(&mut self, number: u8, other: Self) -> &mut Self {
        self.field(number, Self::STRUCT);
        self.bytes.extend(other.end());
        self
    }

    fn list(&mut self, number: u8, kind: u8, length: usize) {
        self.field(number, Self::LIST);
        match u8::try_from(length) {
            Ok(short) if short < 15 => self.bytes.push((short << 4) | kind),
            _ => {
                self.bytes.push(0xf0 | kind);
                varint(&mut self.bytes, length as u64);
            }
        }
    }

    fn i32_list(&mut self, number: u8, values: &[i64]) -> &mut Self {
        self.list(number, Self::I32, values.len());
        for value in values {
            zigzag(&mut self.bytes, *value);
        }
        self
    }

    fn text_list(&mut self, number: u8, text: &str) -> &mut Self {
        self.list(number, Self::BINARY, 1);
        binary(&mut self.bytes, text);
        self
    }

    fn struct_list(&mut self, number: u8, structs: Vec<Self>) -> &mut Self {
        self.list(number, Self::STRUCT, structs.len());
        for one in structs {
            self.bytes.extend(one.end());
        }
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn long(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn binary(bytes: &mut Vec<u8>, text: &str) {
    varint(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

fn zigzag(bytes: &mut Vec<u8>, value: i64) {
    varint(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}
