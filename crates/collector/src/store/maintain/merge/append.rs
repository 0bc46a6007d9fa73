//! Whole series of samples, appended to the B-tree of their table page by page.
//!
//! SQLite takes three quarters of a microsecond to insert a sample, whatever one does, which is a minute and more for a week
//! of twelve hosts. Series that are new here have the greatest ids and come after everything else: their records are packed
//! into new pages at the end of the file, and of the old pages only those on the tree's right edge change. One thread reads
//! the other database and packs, this one writes the pages, in the merge's transaction and journal.

use super::pages::{
    self, FileHeader, Node, PAGE_BYTES, Page, PageError, PageReader, PageWriter, map_page,
};
use super::records::{Cursor, Key, Shape, root};
use super::series;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Pages that one thread hands to the other at once.
const BATCH_PAGES: usize = 64;
/// 4 MiB: enough that neither waits while the other is held up for a moment.
const BATCHES: usize = 16;
/// What is written once needs no place in memory.
const CACHE: &str = "PRAGMA main.cache_size = -16384";

/// Series of one table to append.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) table: &'static str,
    /// Ids in the other database and here, in the order of those here, all greater than any in this table.
    pub(super) series: Vec<(i64, i64)>,
}

/// Appends series of the other database to this one. It has to be the last change before the commit. Returns the rows.
///
/// After an error the transaction is good for nothing but its end.
pub(super) fn append(
    connection: &Connection,
    other: &Path,
    appends: &[Append],
) -> Result<usize, PageError> {
    if appends.iter().all(|append| append.series.is_empty()) {
        return Ok(0);
    }
    connection.execute_batch(CACHE).map_err(PageError::Sql)?;
    let mut reader = PageReader::new(connection)?;
    let mut first = [0; PAGE_BYTES];
    reader.read(1, &mut first)?;
    let header = FileHeader::read(&first)?;
    let mut growths = Vec::with_capacity(appends.len());
    for append in appends {
        let edge = right_edge(&mut reader, root(connection, append.table)?)?;
        growths.push(Growth {
            append,
            shape: Shape::of(connection, append.table)?,
            edge,
        });
    }
    let mut writer = PageWriter::new(connection).map_err(PageError::Sql)?;
    let (sender, receiver) = sync_channel(BATCHES);
    let packed = thread::scope(|scope| {
        let packer = scope.spawn(|| pack(other, header, growths, sender));
        let written = write(&mut writer, receiver);
        match packer.join() {
            // Packing ends early where writing failed.
            Ok(packed) => written.and(packed),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    if header.has_map {
        write_map(&mut reader, &mut writer, header.pages, &packed.parents)?;
    }
    FileHeader::set_pages(&mut first, packed.pages)?;
    writer.write(1, &first).map_err(PageError::Sql)?;
    Ok(packed.rows)
}

/// The last page of each level of a tree, leaf first.
fn right_edge(reader: &mut PageReader<'_>, root: u32) -> Result<Vec<Node>, PageError> {
    let mut edge = Vec::new();
    let mut number = root;
    loop {
        let mut page = [0; PAGE_BYTES];
        reader.read(number, &mut page)?;
        let node = Node::load(number, &page)?;
        number = node.right();
        let is_leaf = node.is_leaf();
        edge.insert(0, node);
        match is_leaf {
            true => return Ok(edge),
            false if edge.len() == super::records::DEEPEST => return Err(PageError::Unknown),
            false => {}
        }
    }
}

/// Finished pages, one after the other, with their numbers.
#[derive(Debug, Default)]
struct Batch {
    numbers: Vec<u32>,
    bytes: Vec<u8>,
}

fn write(writer: &mut PageWriter<'_>, batches: Receiver<Batch>) -> Result<(), PageError> {
    for batch in batches {
        for (number, page) in batch.numbers.iter().zip(batch.bytes.chunks(PAGE_BYTES)) {
            writer.write(*number, page).map_err(PageError::Sql)?;
        }
    }
    Ok(())
}

/// Notes the parents of pages in the pointer map, without which the file could not shrink again.
fn write_map(
    reader: &mut PageReader<'_>,
    writer: &mut PageWriter<'_>,
    pages_before: u32,
    parents: &[(u32, u32)],
) -> Result<(), PageError> {
    let mut maps: BTreeMap<u32, Box<Page>> = BTreeMap::new();
    for (child, parent) in parents {
        let number = map_page(*child);
        let map = match maps.entry(number) {
            std::collections::btree_map::Entry::Occupied(map) => map.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let mut map = Box::new([0; PAGE_BYTES]);
                if number <= pages_before {
                    reader.read(number, &mut map)?;
                }
                place.insert(map)
            }
        };
        pages::map_child(map, number, *child, *parent)?;
    }
    for (number, map) in maps {
        writer
            .write(number, map.as_slice())
            .map_err(PageError::Sql)?;
    }
    Ok(())
}

/// One table's tree, and what to append to it.
struct Growth<'a> {
    append: &'a Append,
    shape: Shape,
    edge: Vec<Node>,
}

/// What came of packing.
#[derive(Debug)]
struct Packed {
    rows: usize,
    /// Of the file.
    pages: u32,
    /// Pages whose parent is known now: child and parent.
    parents: Vec<(u32, u32)>,
}

fn pack(
    other: &Path,
    header: FileHeader,
    growths: Vec<Growth<'_>>,
    sender: SyncSender<Batch>,
) -> Result<Packed, PageError> {
    let connection = series::reader(other)?;
    let mut packer = Packer {
        header,
        packed: Packed {
            rows: 0,
            pages: header.pages,
            parents: Vec::new(),
        },
        batch: Batch::default(),
        sender,
    };
    for growth in growths {
        packer.grow(&connection, growth)?;
    }
    packer.send()?;
    Ok(packer.packed)
}

struct Packer {
    header: FileHeader,
    packed: Packed,
    batch: Batch,
    sender: SyncSender<Batch>,
}

impl Packer {
    fn grow(&mut self, connection: &Connection, growth: Growth<'_>) -> Result<(), PageError> {
        let Growth {
            append,
            shape,
            mut edge,
        } = growth;
        let mut cursor = Cursor::new(connection, append.table)?;
        let mut entry = Vec::new();
        for &(other_id, id) in &append.series {
            cursor.seek(other_id)?;
            let mut before: Option<Key> = None;
            while let Some((key, record)) = cursor.next()? {
                if key.id != other_id {
                    break;
                }
                // Of a damaged file: SQL will say what is wrong with it.
                if before.is_some_and(|before| before >= key) {
                    return Err(PageError::Unknown);
                }
                before = Some(key);
                shape.renumber(record, id, &mut entry)?;
                self.push(&mut edge, &entry)?;
                self.packed.rows += 1;
            }
        }
        let mut child = 0;
        for mut node in edge {
            if !node.is_leaf() {
                node.set_right(child);
            }
            child = node.number;
            self.finish(node)?;
        }
        Ok(())
    }

    fn push(&mut self, edge: &mut Vec<Node>, entry: &[u8]) -> Result<(), PageError> {
        let leaf = edge.first_mut().ok_or(PageError::Unknown)?;
        if leaf.push(0, entry)? {
            return Ok(());
        }
        // The last entry goes up, and not this one, so that no page is ever without an entry.
        let (_, separator) = leaf.pop()?;
        self.split(edge, 0, &separator)?;
        let leaf = edge.first_mut().ok_or(PageError::Unknown)?;
        pushed(leaf.push(0, entry)?)
    }

    /// Ends the page of a level; a new one takes its place, and `separator` goes between the two, a level higher.
    fn split(
        &mut self,
        edge: &mut Vec<Node>,
        level: usize,
        separator: &[u8],
    ) -> Result<(), PageError> {
        let number = self.allocate()?;
        let is_root = level + 1 == edge.len();
        let node = edge.get_mut(level).ok_or(PageError::Unknown)?;
        let mut full = node.replace(number);
        if is_root {
            // The root keeps its place in the file and becomes the parent of both.
            edge.push(Node::interior(full.number));
            full.number = self.allocate()?;
        }
        let child = full.number;
        self.finish(full)?;
        let above = edge.get_mut(level + 1).ok_or(PageError::Unknown)?;
        if above.push(child, separator)? {
            return Ok(());
        }
        let (right, between) = above.pop()?;
        above.set_right(right);
        self.split(edge, level + 1, &between)?;
        let above = edge.get_mut(level + 1).ok_or(PageError::Unknown)?;
        pushed(above.push(child, separator)?)
    }

    fn allocate(&mut self) -> Result<u32, PageError> {
        self.packed.pages = self.header.next(self.packed.pages)?;
        Ok(self.packed.pages)
    }

    fn finish(&mut self, mut node: Node) -> Result<(), PageError> {
        if self.header.has_map {
            let children = node.children()?;
            let parents = children.into_iter().map(|child| (child, node.number));
            self.packed.parents.extend(parents);
        }
        self.batch.numbers.push(node.number);
        self.batch.bytes.extend_from_slice(node.finish()?);
        match self.batch.numbers.len() {
            BATCH_PAGES => self.send(),
            _ => Ok(()),
        }
    }

    fn send(&mut self) -> Result<(), PageError> {
        let batch = std::mem::take(&mut self.batch);
        // Nobody takes it: writing has failed and says why.
        self.sender.send(batch).map_err(|_| PageError::Unknown)
    }
}

/// An empty page has room for any entry.
fn pushed(has_room: bool) -> Result<(), PageError> {
    match has_room {
        true => Ok(()),
        false => Err(PageError::Unknown),
    }
}
