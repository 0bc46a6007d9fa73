//! CSV as RFC 4180 has it, and JSON lines. A blob is written in hexadecimal digits, NULL as nothing or `null`.

use super::{Column, Sink};
use crate::report::csv_field;
use rusqlite::types::ValueRef;
use std::fmt::Write as _;
use std::io::{self, Write};

pub(super) struct Csv<'o> {
    out: &'o mut dyn Write,
    line: String,
}

impl<'o> Csv<'o> {
    pub(super) fn new(out: &'o mut dyn Write, columns: &[Column]) -> io::Result<Self> {
        let names: Vec<String> = columns.iter().map(|one| csv_field(&one.name)).collect();
        writeln!(out, "{}", names.join(","))?;
        Ok(Self {
            out,
            line: String::new(),
        })
    }
}

impl Sink for Csv<'_> {
    fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        self.line.clear();
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.line.push(',');
            }
            // Writing to a text does not fail.
            let _ = match value {
                ValueRef::Null => Ok(()),
                ValueRef::Integer(value) => write!(self.line, "{value}"),
                ValueRef::Real(value) => write!(self.line, "{value}"),
                ValueRef::Text(text) => {
                    // An empty text is not NULL.
                    let text = String::from_utf8_lossy(text);
                    let field = if text.is_empty() {
                        "\"\"".to_owned()
                    } else {
                        csv_field(&text)
                    };
                    self.line.write_str(&field)
                }
                ValueRef::Blob(bytes) => self.line.write_str(&hex(bytes)),
            };
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(super) struct JsonLines<'o> {
    out: &'o mut dyn Write,
    /// `"name":` of each column.
    keys: Vec<String>,
    line: Vec<u8>,
}

impl<'o> JsonLines<'o> {
    pub(super) fn new(out: &'o mut dyn Write, columns: &[Column]) -> Self {
        let keys = columns
            .iter()
            .map(|one| format!("{}:", serde_json::Value::from(one.name.as_str())));
        Self {
            out,
            keys: keys.collect(),
            line: Vec::new(),
        }
    }
}

impl Sink for JsonLines<'_> {
    fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        self.line.clear();
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
        self.line.extend(b"}\n");
        self.out.write_all(&self.line)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
