//! Samples as SQLite stores them: records whose first two columns are what was sampled and when, read in that order.

use super::pages::{NodeHeader, PAGE_BYTES, Page, PageError, PageReader};
use rusqlite::{Connection, params};

/// Bytes of a value by its serial type; larger types are texts and blobs, which samples do not have.
const SIZES: [usize; 10] = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0];
const NULL: u16 = 1;
const REAL: u16 = 1 << 7;
const INTEGER: u16 = 0b11_0111_1110;
/// No tree of ours is nearly as deep; one that is damaged may be endless.
pub(super) const DEEPEST: usize = 12;

/// Which sample it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Of the daemon, disk, interface or host.
    pub(super) id: i64,
    pub(super) at_us: i64,
}

impl Key {
    fn of(record: &[u8]) -> Result<Self, PageError> {
        let [header, id_type, at_type, ..] = *record else {
            return Err(PageError::Unknown);
        };
        let id_at = usize::from(header);
        let at_at = id_at + size(id_type)?;
        Ok(Self {
            id: integer(record, id_type, id_at)?,
            at_us: integer(record, at_type, at_at)?,
        })
    }
}

fn size(serial_type: u8) -> Result<usize, PageError> {
    let size = SIZES.get(usize::from(serial_type)).copied();
    size.ok_or(PageError::Unknown)
}

fn integer(record: &[u8], serial_type: u8, at: usize) -> Result<i64, PageError> {
    match serial_type {
        1..=6 => {
            let bytes = record.get(at..at + size(serial_type)?);
            let (first, rest) = bytes
                .and_then(<[u8]>::split_first)
                .ok_or(PageError::Unknown)?;
            let first = i64::from(first.cast_signed());
            Ok(rest
                .iter()
                .fold(first, |number, byte| number << 8 | i64::from(*byte)))
        }
        8 => Ok(0),
        9 => Ok(1),
        _ => Err(PageError::Unknown),
    }
}

/// What records of a table have to look like: what its columns demand, in the order of the record.
#[derive(Debug)]
pub(super) struct Shape {
    /// Serial types that each column may have, as bits.
    columns: Vec<u16>,
}

impl Shape {
    pub(super) fn of(connection: &Connection, table: &str) -> Result<Self, PageError> {
        let columns = || {
            let mut columns = connection.prepare(
                "SELECT type, \"notnull\", pk FROM pragma_table_info(?, 'main') ORDER BY pk = 0, pk, cid",
            )?;
            let columns = columns.query_map(params![table], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, bool>(1)?,
                    row.get::<_, i64>(2)?,
                ))
            })?;
            columns.collect::<rusqlite::Result<Vec<_>>>()
        };
        let columns = columns().map_err(PageError::Sql)?;
        let keys = columns.iter().filter(|(.., pk)| *pk > 0).count();
        if keys != 2 || columns.len() > 100 {
            return Err(PageError::Unknown);
        }
        let columns = columns.iter().map(|(declared, not_null, pk)| {
            let types = match declared.as_str() {
                "INTEGER" => INTEGER,
                // SQLite stores a real number without a fraction as an integer.
                "REAL" => REAL | INTEGER,
                _ => return Err(PageError::Unknown),
            };
            Ok(match *not_null || *pk > 0 {
                true => types,
                false => types | NULL,
            })
        });
        Ok(Self {
            columns: columns.collect::<Result<_, _>>()?,
        })
    }

    /// Whether SQLite would have taken this record into the table.
    fn accepts(&self, record: &[u8]) -> bool {
        let Some((header, rest)) = record.split_first() else {
            return false;
        };
        let header = usize::from(*header);
        if header != self.columns.len() + 1 {
            return false;
        }
        let mut bytes = header;
        for (allowed, serial_type) in self.columns.iter().zip(rest) {
            let Some(size) = SIZES.get(usize::from(*serial_type)) else {
                return false;
            };
            if allowed >> serial_type & 1 == 0 {
                return false;
            }
            bytes += size;
        }
        bytes == record.len()
    }

    /// Writes a record with another id, as an entry with its length, into `entry`.
    pub(super) fn renumber(
        &self,
        record: &[u8],
        id: i64,
        entry: &mut Vec<u8>,
    ) -> Result<(), PageError> {
        if !self.accepts(record) {
            return Err(PageError::Unknown);
        }
        let [header, old_type, ..] = *record else {
            return Err(PageError::Unknown);
        };
        let (types, values) = record
            .split_at_checked(usize::from(header))
            .ok_or(PageError::Unknown)?;
        let values = values.get(size(old_type)?..).ok_or(PageError::Unknown)?;
        let types = types.get(2..).ok_or(PageError::Unknown)?;
        let (new_type, from) = serial_type(id);
        let id = id.to_be_bytes();
        let id = id.get(from..).unwrap_or_default();
        let length = 2 + types.len() + id.len() + values.len();
        entry.clear();
        if length >= 0x80 {
            entry.push(0x80 | u8::try_from(length >> 7).map_err(|_| PageError::Unknown)?);
        }
        entry.push(u8::try_from(length & 0x7f).map_err(|_| PageError::Unknown)?);
        entry.extend_from_slice(&[header, new_type]);
        entry.extend_from_slice(types);
        entry.extend_from_slice(id);
        entry.extend_from_slice(values);
        Ok(())
    }
}

/// The serial type that SQLite gives an integer, and the first of its eight bytes that is stored.
fn serial_type(number: i64) -> (u8, usize) {
    // Bits without the sign.
    let bits = 64 - (number ^ number >> 63).leading_zeros();
    match (number, bits) {
        (0, _) => (8, 8),
        (1, _) => (9, 8),
        (_, ..=7) => (1, 7),
        (_, ..=15) => (2, 6),
        (_, ..=23) => (3, 5),
        (_, ..=31) => (4, 4),
        (_, ..=47) => (5, 2),
        _ => (6, 0),
    }
}

/// A page on the way to the next sample. Its steps are its children and its entries in turn, on a leaf its entries.
#[derive(Debug)]
struct Level {
    page: Box<Page>,
    header: NodeHeader,
    step: usize,
}

/// The samples of one table, in order.
#[derive(Debug)]
pub(super) struct Cursor<'c> {
    pages: PageReader<'c>,
    root: u32,
    levels: Vec<Level>,
    /// Pages to use again.
    spare: Vec<Box<Page>>,
}

impl<'c> Cursor<'c> {
    /// At no sample yet: see [`Self::seek`].
    pub(super) fn new(connection: &'c Connection, table: &str) -> Result<Self, PageError> {
        Ok(Self {
            pages: PageReader::new(connection)?,
            root: root(connection, table)?,
            levels: Vec::new(),
            spare: Vec::new(),
        })
    }

    fn descend(&mut self, number: u32) -> Result<(), PageError> {
        if self.levels.len() == DEEPEST {
            return Err(PageError::Unknown);
        }
        let spare = self.spare.pop();
        let mut page = spare.unwrap_or_else(|| Box::new([0; PAGE_BYTES]));
        self.pages.read(number, &mut page)?;
        let header = NodeHeader::read(&page)?;
        self.levels.push(Level {
            page,
            header,
            step: 0,
        });
        Ok(())
    }

    /// Goes before the first sample of `id`.
    pub(super) fn seek(&mut self, id: i64) -> Result<(), PageError> {
        while let Some(level) = self.levels.pop() {
            self.spare.push(level.page);
        }
        let mut next = Some(self.root);
        while let Some(number) = next {
            self.descend(number)?;
            let Some(Level { page, header, step }) = self.levels.last_mut() else {
                return Err(PageError::Unknown);
            };
            let mut index = 0;
            while index < header.cells && Key::of(header.cell(page, index)?.record)?.id < id {
                index += 1;
            }
            (next, *step) = match header.is_leaf {
                true => (None, index),
                false => (Some(header.child(page, index)?), 2 * index + 1),
            };
        }
        Ok(())
    }

    /// The next sample and its record; `None` after the last one of the table.
    pub(super) fn next(&mut self) -> Result<Option<(Key, &[u8])>, PageError> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let step = level.step;
            level.step += 1;
            let index = match level.header.is_leaf {
                true => step,
                false => step / 2,
            };
            let is_entry = level.header.is_leaf || step % 2 == 1;
            if is_entry && index < level.header.cells {
                break;
            }
            if is_entry {
                if let Some(level) = self.levels.pop() {
                    self.spare.push(level.page);
                }
                continue;
            }
            let child = level.header.child(&level.page, index)?;
            self.descend(child)?;
        }
        let Some(level) = self.levels.last() else {
            return Ok(None);
        };
        let index = match level.header.is_leaf {
            true => level.step - 1,
            false => (level.step - 1) / 2,
        };
        let record = level.header.cell(&level.page, index)?.record;
        Ok(Some((Key::of(record)?, record)))
    }
}

/// The page at which a table's B-tree begins.
pub(super) fn root(connection: &Connection, table: &str) -> Result<u32, PageError> {
    let sql = "SELECT rootpage FROM main.sqlite_schema WHERE type = 'table' AND name = ?";
    connection
        .query_row(sql, params![table], |row| row.get(0))
        .map_err(PageError::Sql)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn integers_are_stored_as_sqlite_does() {
        let edges = [0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 62].map(|bits| 1_i64 << bits);
        let numbers = edges
            .iter()
            .flat_map(|edge| [*edge - 1, *edge, -*edge, -*edge - 1])
            .chain([i64::MIN, i64::MAX]);
        let file = Connection::open_in_memory().unwrap();
        file.execute_batch(
            "CREATE TABLE t (id INTEGER, at_us INTEGER, PRIMARY KEY (id, at_us)) STRICT, WITHOUT ROWID",
        )
        .unwrap();
        for number in numbers {
            file.execute("DELETE FROM t", []).unwrap();
            file.execute("INSERT INTO t VALUES (?1, ?1)", [number])
                .unwrap();
            let mut cursor = Cursor::new(&file, "t").unwrap();
            cursor.seek(number).unwrap();
            let (key, record) = cursor.next().unwrap().unwrap();
            let both = Key {
                id: number,
                at_us: number,
            };
            assert_eq!(key, both);
            let shape = Shape::of(&file, "t").unwrap();
            let mut entry = Vec::new();
            shape.renumber(record, number, &mut entry).unwrap();
            assert_eq!(entry.get(1..), Some(record), "{number}");
            assert!(cursor.next().unwrap().is_none());
        }
    }
}
