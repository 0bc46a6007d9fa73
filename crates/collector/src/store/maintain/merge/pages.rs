//! Pages of a database file and the entries of its B-trees, as <https://sqlite.org/fileformat2.html> lays them out.
//!
//! Pages are read and written through SQLite's table `sqlite_dbpage`, so that its locks, its journal and its write-ahead
//! file hold for them as for any other change. Only what our own databases have is known: pages of 4 KiB without a reserved
//! end, and tables without row ids whose entries fit into a page. Everything else is [`PageError::Unknown`], upon which the
//! merge does its work by SQL. It knows nothing of what the tables mean.

use rusqlite::{Connection, Statement, params};

pub(super) const PAGE_BYTES: usize = 4096;
pub(super) type Page = [u8; PAGE_BYTES];

/// A longer entry would go on in pages of its own.
const LONGEST_RECORD: usize = (PAGE_BYTES - 12) * 64 / 255 - 23;
const INTERIOR: u8 = 2;
const LEAF: u8 = 10;
const INTERIOR_HEADER: usize = 12;
const LEAF_HEADER: usize = 8;
/// A page that no database uses: SQLite's locks are at its place.
const LOCK_PAGE: u32 = 0x4000_0000 / 4096 + 1;
/// Pages whose parents one page of the pointer map holds.
const MAPPED_PAGES: u32 = 4096 / 5;
/// The kind "page of a B-tree, not its root" in the pointer map.
const MAP_CHILD: u8 = 5;

#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("the file is laid out in a way that only SQLite knows")]
    Unknown,
    #[error(transparent)]
    Sql(rusqlite::Error),
}

/// Whether this SQLite lets pages be read and written.
pub(super) fn are_available(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_module_list WHERE name = 'sqlite_dbpage'";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Reads pages of a connection's main database. A transaction should be open, or each page costs a lock.
#[derive(Debug)]
pub(super) struct PageReader<'c> {
    statement: Statement<'c>,
}

impl<'c> PageReader<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self, PageError> {
        let statement = connection.prepare("SELECT data FROM sqlite_dbpage WHERE pgno = ?");
        Ok(Self {
            statement: statement.map_err(PageError::Sql)?,
        })
    }

    pub(super) fn read(&mut self, number: u32, into: &mut Page) -> Result<(), PageError> {
        let copied = self.statement.query_row([number], |row| {
            let data = row.get_ref(0)?.as_blob()?;
            let fits = data.len() == into.len();
            if fits {
                into.copy_from_slice(data);
            }
            Ok(fits)
        });
        match copied {
            Ok(true) => Ok(()),
            // Beyond the end of the file: a pointer is wrong.
            Ok(false) | Err(rusqlite::Error::QueryReturnedNoRows) => Err(PageError::Unknown),
            Err(error) => Err(PageError::Sql(error)),
        }
    }
}

/// Writes pages of a connection's main database. What the connection knows of them is stale from then on: the transaction
/// has to end with it, and the connection soon after.
#[derive(Debug)]
pub(super) struct PageWriter<'c> {
    statement: Statement<'c>,
}

impl<'c> PageWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let sql = "INSERT INTO sqlite_dbpage (pgno, data, schema) VALUES (?, ?, 'main')";
        Ok(Self {
            statement: connection.prepare(sql)?,
        })
    }

    pub(super) fn write(&mut self, number: u32, page: &[u8]) -> rusqlite::Result<()> {
        self.statement.execute(params![number, page]).map(drop)
    }
}

/// What the first page says of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileHeader {
    pub(super) pages: u32,
    /// Whether each page's parent is in a pointer map.
    pub(super) has_map: bool,
}

impl FileHeader {
    const PAGES_AT: usize = 28;

    pub(super) fn read(first: &Page) -> Result<Self, PageError> {
        let (page_bytes, reserved) = (number16(first, 16)?, byte(first, 20)?);
        let largest_root = number32(first, 52)?;
        let incremental_vacuum = number32(first, 64)?;
        // At a commit, a full vacuum would move the pages that it does not know of.
        if page_bytes != 4096 || reserved != 0 || (largest_root != 0 && incremental_vacuum == 0) {
            return Err(PageError::Unknown);
        }
        Ok(Self {
            pages: number32(first, Self::PAGES_AT)?,
            has_map: largest_root != 0,
        })
    }

    /// Puts the number of pages into the first one.
    pub(super) fn set_pages(first: &mut Page, pages: u32) -> Result<(), PageError> {
        put32(first, Self::PAGES_AT, pages)
    }

    /// The first page after `number` that a B-tree can have.
    pub(super) fn next(&self, number: u32) -> Result<u32, PageError> {
        let mut next = number.checked_add(1).ok_or(PageError::Unknown)?;
        while next == LOCK_PAGE || (self.has_map && map_page(next) == next) {
            next = next.checked_add(1).ok_or(PageError::Unknown)?;
        }
        Ok(next)
    }
}

/// The page of the pointer map that has the parent of `number`; itself, if it is one.
pub(super) fn map_page(number: u32) -> u32 {
    let page = number.saturating_sub(2) / (MAPPED_PAGES + 1) * (MAPPED_PAGES + 1) + 2;
    match page {
        LOCK_PAGE => page + 1,
        page => page,
    }
}

/// Notes in a page of the pointer map that `parent` is the parent of `child`.
pub(super) fn map_child(
    map: &mut Page,
    map_number: u32,
    child: u32,
    parent: u32,
) -> Result<(), PageError> {
    let place = child
        .checked_sub(map_number + 1)
        .filter(|place| *place < MAPPED_PAGES)
        .ok_or(PageError::Unknown)?;
    let at = usize::try_from(place * 5).map_err(|_| PageError::Unknown)?;
    *map.get_mut(at).ok_or(PageError::Unknown)? = MAP_CHILD;
    put32(map, at + 1, parent)
}

/// What the head of a B-tree's page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHeader {
    pub(super) is_leaf: bool,
    pub(super) cells: usize,
    /// The last child; 0 on a leaf.
    pub(super) right: u32,
}

/// One entry of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell<'p> {
    /// The child before it; 0 on a leaf.
    pub(super) child: u32,
    /// As it stands on a leaf: the record with its length.
    pub(super) entry: &'p [u8],
    pub(super) record: &'p [u8],
}

impl NodeHeader {
    pub(super) fn read(page: &Page) -> Result<Self, PageError> {
        let is_leaf = match byte(page, 0)? {
            LEAF => true,
            INTERIOR => false,
            _ => return Err(PageError::Unknown),
        };
        Ok(Self {
            is_leaf,
            cells: usize::from(number16(page, 3)?),
            right: if is_leaf { 0 } else { number32(page, 8)? },
        })
    }

    fn bytes(self) -> usize {
        if self.is_leaf {
            LEAF_HEADER
        } else {
            INTERIOR_HEADER
        }
    }

    pub(super) fn cell(self, page: &Page, index: usize) -> Result<Cell<'_>, PageError> {
        let at = usize::from(number16(page, self.bytes() + 2 * index)?);
        let (child, at) = if self.is_leaf {
            (0, at)
        } else {
            (number32(page, at)?, at + 4)
        };
        let first = byte(page, at)?;
        let (length, prefix) = if first < 0x80 {
            (usize::from(first), 1)
        } else {
            let second = byte(page, at + 1)?;
            if second >= 0x80 {
                return Err(PageError::Unknown);
            }
            (usize::from(first & 0x7f) << 7 | usize::from(second), 2)
        };
        if length > LONGEST_RECORD {
            return Err(PageError::Unknown);
        }
        let entry = page.get(at..at + prefix + length);
        let entry = entry.ok_or(PageError::Unknown)?;
        Ok(Cell {
            child,
            entry,
            record: entry.get(prefix..).unwrap_or_default(),
        })
    }

    pub(super) fn child(self, page: &Page, index: usize) -> Result<u32, PageError> {
        if index == self.cells {
            return Ok(self.right);
        }
        Ok(self.cell(page, index)?.child)
    }
}

/// A page of a B-tree that is being filled, from the first entry to the last.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    header: NodeHeader,
    page: Box<Page>,
    /// The last entry begins here; the first one is at the end of the page.
    top: usize,
}

impl Node {
    pub(super) fn interior(number: u32) -> Self {
        Self::empty(number, false)
    }

    fn empty(number: u32, is_leaf: bool) -> Self {
        Self {
            number,
            header: NodeHeader {
                is_leaf,
                cells: 0,
                right: 0,
            },
            page: Box::new([0; PAGE_BYTES]),
            top: PAGE_BYTES,
        }
    }

    /// Goes on with a page of the file.
    pub(super) fn load(number: u32, page: &Page) -> Result<Self, PageError> {
        let header = NodeHeader::read(page)?;
        let mut node = Self::empty(number, header.is_leaf);
        for index in 0..header.cells {
            let cell = header.cell(page, index)?;
            if !node.push(cell.child, cell.entry)? {
                return Err(PageError::Unknown);
            }
        }
        node.header.right = header.right;
        Ok(node)
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.header.is_leaf
    }

    pub(super) fn right(&self) -> u32 {
        self.header.right
    }

    pub(super) fn set_right(&mut self, child: u32) {
        self.header.right = child;
    }

    /// A page of the same kind that takes this one's place; returns this one.
    pub(super) fn replace(&mut self, number: u32) -> Self {
        std::mem::replace(self, Self::empty(number, self.header.is_leaf))
    }

    /// Adds an entry after all others, and on an interior page the child before it; `false`: it is full.
    pub(super) fn push(&mut self, child: u32, entry: &[u8]) -> Result<bool, PageError> {
        let prefix = if self.header.is_leaf { 0 } else { 4 };
        let pointer = self.header.bytes() + 2 * self.header.cells;
        let Some(top) = self
            .top
            .checked_sub(prefix + entry.len())
            .filter(|top| pointer + 2 <= *top)
        else {
            return Ok(false);
        };
        if prefix > 0 {
            put32(self.page.as_mut(), top, child)?;
        }
        let place = self.page.get_mut(top + prefix..self.top);
        place.ok_or(PageError::Unknown)?.copy_from_slice(entry);
        put16(self.page.as_mut(), pointer, top)?;
        self.top = top;
        self.header.cells += 1;
        Ok(true)
    }

    /// Takes the last entry out again: the child before it, and the entry.
    pub(super) fn pop(&mut self) -> Result<(u32, Vec<u8>), PageError> {
        let last = self.header.cells.checked_sub(1).ok_or(PageError::Unknown)?;
        let cell = self.header.cell(&self.page, last)?;
        let taken = (cell.child, cell.entry.to_vec());
        self.top = match last.checked_sub(1) {
            Some(before) => usize::from(number16(&self.page, self.header.bytes() + 2 * before)?),
            None => PAGE_BYTES,
        };
        self.header.cells = last;
        Ok(taken)
    }

    /// All children, the last one included.
    pub(super) fn children(&self) -> Result<Vec<u32>, PageError> {
        if self.header.is_leaf {
            return Ok(Vec::new());
        }
        (0..=self.header.cells)
            .map(|index| self.header.child(&self.page, index))
            .collect()
    }

    /// The page as it goes into the file.
    pub(super) fn finish(&mut self) -> Result<&Page, PageError> {
        let kind = if self.header.is_leaf { LEAF } else { INTERIOR };
        let page = self.page.as_mut();
        *page.first_mut().ok_or(PageError::Unknown)? = kind;
        put16(page, 3, self.header.cells)?;
        put16(page, 5, self.top)?;
        if !self.header.is_leaf {
            put32(page, 8, self.header.right)?;
        }
        Ok(page)
    }
}

fn byte(page: &Page, at: usize) -> Result<u8, PageError> {
    page.get(at).copied().ok_or(PageError::Unknown)
}

fn number16(page: &Page, at: usize) -> Result<u16, PageError> {
    let bytes = page.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u16::from_be_bytes).ok_or(PageError::Unknown)
}

fn number32(page: &Page, at: usize) -> Result<u32, PageError> {
    let bytes = page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_be_bytes).ok_or(PageError::Unknown)
}

fn put16(page: &mut Page, at: usize, number: usize) -> Result<(), PageError> {
    let number = u16::try_from(number).map_err(|_| PageError::Unknown)?;
    let place = page.get_mut(at..at + 2).ok_or(PageError::Unknown)?;
    place.copy_from_slice(&number.to_be_bytes());
    Ok(())
}

fn put32(page: &mut Page, at: usize, number: u32) -> Result<(), PageError> {
    let place = page.get_mut(at..at + 4).ok_or(PageError::Unknown)?;
    place.copy_from_slice(&number.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_build_reads_and_writes_pages() {
        let file = Connection::open_in_memory().unwrap();
        assert!(are_available(&file).unwrap());
    }

    #[test]
    fn pages_of_the_lock_and_of_the_map_are_left_out() {
        let header = |has_map| FileHeader { pages: 1, has_map };
        assert_eq!(header(true).next(1).unwrap(), 3);
        assert_eq!(header(false).next(1).unwrap(), 2);
        assert_eq!(header(true).next(820).unwrap(), 821);
        assert_eq!(header(true).next(821).unwrap(), 823);
        assert_eq!((map_page(821), map_page(822), map_page(823)), (2, 822, 822));
        assert_eq!(header(true).next(262_144).unwrap(), 262_146);
        assert!(header(true).next(u32::MAX).is_err());
    }

    #[test]
    fn full_pages_are_refused_and_entries_come_back() {
        let mut node = Node::interior(7);
        let mut pushed = 0_u32;
        while node.push(pushed, &[4, 1, 2, 3, 4]).unwrap() {
            pushed += 1;
        }
        node.set_right(999);
        let taken = node.pop().unwrap();
        assert_eq!(taken, (pushed - 1, vec![4, 1, 2, 3, 4]));
        let page = *node.finish().unwrap();
        let again = Node::load(7, &page).unwrap();
        let children: Vec<u32> = (0..pushed - 1).chain([999]).collect();
        assert_eq!(again.children().unwrap(), children);
        assert_eq!((again.right(), again.is_leaf()), (999, false));
    }
}
