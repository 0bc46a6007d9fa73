//! CSV according to RFC 4180, and JSON lines. Blobs are written as hexadecimal digits, NULL as an empty field or
//! `null`.

use super::Format;
use crate::report::csv_field;
use rusqlite::types::ValueRef;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes the rows of one table, one line each.
pub(super) struct Lines<'o> {
    out: &'o mut dyn Write,
    format: Format,
    /// JSON lines: `"name":` for each column.
    keys: Vec<String>,
    line: Vec<u8>,
}

impl<'o> Lines<'o> {
    /// CSV begins with a line of column names.
    pub(super) fn new(
        out: &'o mut dyn Write,
        format: Format,
        columns: &[&str],
    ) -> io::Result<Self> {
        if format == Format::Csv {
            let names: Vec<String> = columns.iter().map(|name| csv_field(name)).collect();
            writeln!(out, "{}", names.join(","))?;
        }
        let keys = columns
            .iter()
            .map(|name| format!("{}:", serde_json::Value::from(*name)));
        Ok(Self {
            out,
            format,
            keys: keys.collect(),
            line: Vec::new(),
        })
    }

    pub(super) fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        self.line.clear();
        match self.format {
            Format::Csv => self.csv(values)?,
            Format::JsonLines => self.json(values)?,
        }
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.out.flush()
    }

    fn csv(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.line.push(b',');
            }
            match value {
                ValueRef::Null => {}
                ValueRef::Integer(value) => write!(self.line, "{value}")?,
                ValueRef::Real(value) => write!(self.line, "{value}")?,
                // An empty text is not NULL.
                ValueRef::Text([]) => self.line.extend(b"\"\""),
                ValueRef::Text(text) => {
                    let field = csv_field(&String::from_utf8_lossy(text));
                    self.line.extend(field.as_bytes());
                }
                ValueRef::Blob(bytes) => self.line.extend(hex(bytes).as_bytes()),
            }
        }
        Ok(())
    }

    fn json(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        for (at, (key, value)) in self.keys.iter().zip(values).enumerate() {
            self.line.push(if at == 0 { b'{' } else { b',' });
            self.line.extend(key.as_bytes());
            let written = match value {
                ValueRef::Null => serde_json::to_writer(&mut self.line, &()),
                ValueRef::Integer(value) => serde_json::to_writer(&mut self.line, value),
                // JSON has no infinity; serde_json writes null.
                ValueRef::Real(value) => serde_json::to_writer(&mut self.line, value),
                ValueRef::Text(text) => {
                    serde_json::to_writer(&mut self.line, &String::from_utf8_lossy(text))
                }
                ValueRef::Blob(bytes) => serde_json::to_writer(&mut self.line, &hex(bytes)),
            };
            written.map_err(io::Error::from)?;
        }
        self.line.push(b'}');
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
