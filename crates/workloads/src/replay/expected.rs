//! What each read of a list has to find, worked out from the list alone, before the start.
//!
//! A file is what was laid out, and over it what the list has written so far: each write is a generation of its own, so
//! that an older one is not taken for it. Files keep what they hold through other names. Where the list does what cannot
//! be followed (it renames a directory), nothing is expected of what lies there.

use super::list::{Action, List};
use crate::data::Written;
use crate::task::TaskError;
use std::collections::{BTreeMap, HashMap};

/// All parts of all reads that are kept: half a GiB of them.
const MOST_PIECES: usize = 1 << 23;

/// A part of a read, and the block that it is from; `None`: nothing was written there, so it is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub offset: u64,
    pub bytes: u64,
    pub from: Option<Written>,
}

/// What the reads of a list find.
#[derive(Debug)]
pub(super) struct Expected {
    /// By line; none where nothing is read, or nothing is known.
    reads: Vec<Box<[Piece]>>,
    /// By the number of an open file: which file that is.
    files: Vec<usize>,
}

/// Which of its writings a line is.
pub(super) fn generation(line: usize) -> u64 {
    // What was laid out is generation 0.
    u64::try_from(line).unwrap_or(u64::MAX).saturating_add(1)
}

impl Expected {
    /// Files are laid out in blocks of `unit` bytes.
    ///
    /// # Errors
    /// When the reads have too many parts.
    pub(super) fn of(list: &List, unit: u64) -> Result<Self, TaskError> {
        Self::within(list, unit, MOST_PIECES)
    }

    fn within(list: &List, unit: u64, most: usize) -> Result<Self, TaskError> {
        let mut world = World::before(list, unit);
        let mut reads = Vec::with_capacity(list.lines.len());
        let mut left = most;
        for (number, line) in list.lines.iter().enumerate() {
            let found = world.after(generation(number), &line.path, &line.action, left);
            let Some(pieces) = found else {
                let why = format!(
                    "what the list's reads have to find is in more than {most} parts, too many to be kept in memory: set \
                     `verify = false`, or use a shorter list"
                );
                return Err(TaskError::Unfit { why });
            };
            left = left.saturating_sub(pieces.len());
            reads.push(pieces);
        }
        Ok(Self {
            reads,
            files: world.open,
        })
    }

    pub(super) fn of_line(&self, line: usize) -> &[Piece] {
        self.reads.get(line).map_or(&[], |pieces| pieces)
    }

    /// Which file it is that is open under this number, the same for each time that it is opened.
    pub(super) fn file(&self, open: usize) -> usize {
        self.files.get(open).copied().unwrap_or(usize::MAX)
    }
}

/// The files while the list goes on.
struct World {
    names: HashMap<Vec<u8>, usize>,
    files: Vec<Held>,
    /// By the number of an open file.
    open: Vec<usize>,
}

/// How a file was laid out: it may be larger than what could be kept block by block.
#[derive(Clone, Copy, Debug, Default)]
struct Laid {
    file: u64,
    unit: u64,
    bytes: u64,
}

impl Laid {
    /// The block that `at` lies in.
    fn block(self, at: u64) -> Written {
        let unit = self.unit.max(1);
        let offset = at - at % unit;
        Written {
            file: self.file,
            offset,
            bytes: unit.min(self.bytes.saturating_sub(offset)),
            generation: 0,
        }
    }
}

/// The parts of a read.
struct Pieces {
    found: Vec<Piece>,
    most: usize,
}

impl Pieces {
    /// `None`: there are too many.
    fn add(&mut self, offset: u64, until: u64, from: Option<Written>) -> Option<()> {
        if offset < until {
            let bytes = until - offset;
            self.found.push(Piece {
                offset,
                bytes,
                from,
            });
        }
        (self.found.len() <= self.most).then_some(())
    }
}

/// What a file holds.
#[derive(Debug, Default)]
struct Held {
    laid: Laid,
    /// So much of what was laid out has never been cut off. What the list has written hides it.
    laid_out: u64,
    /// By where they begin, each with its end; they do not overlap.
    blocks: BTreeMap<u64, (u64, Written)>,
    is_unknown: bool,
}

impl World {
    fn before(list: &List, unit: u64) -> Self {
        let mut world = Self {
            names: HashMap::new(),
            files: Vec::new(),
            open: vec![usize::MAX; list.files],
        };
        for (number, (path, bytes)) in (0_u64..).zip(&list.expected) {
            let Some(bytes) = *bytes else { continue };
            let laid = Laid {
                file: number,
                unit,
                bytes,
            };
            world.add(path, Held::laid_out(laid));
        }
        world
    }

    fn add(&mut self, path: &[u8], held: Held) -> usize {
        let number = self.files.len();
        self.files.push(held);
        self.names.insert(path.to_vec(), number);
        number
    }

    /// What a read finds, `None` when it is in more than `most` parts; everything else changes the world.
    fn after(
        &mut self,
        generation: u64,
        path: &[u8],
        action: &Action,
        most: usize,
    ) -> Option<Box<[Piece]>> {
        match action {
            Action::Create { file } => {
                let made = self.add(path, Held::default());
                self.opens(*file, made);
            }
            Action::Open { file } => {
                let known = self.names.get(path).copied();
                let found = known.unwrap_or_else(|| {
                    let is_unknown = true;
                    self.add(
                        path,
                        Held {
                            is_unknown,
                            ..Held::default()
                        },
                    )
                });
                self.opens(*file, found);
            }
            Action::Write {
                file,
                offset,
                bytes,
            } => {
                let written = Written {
                    file: u64::try_from(*file).unwrap_or(u64::MAX),
                    offset: *offset,
                    bytes: *bytes,
                    generation,
                };
                if let Some(held) = self.held(*file) {
                    held.write(written);
                }
            }
            Action::Truncate { file, bytes } => {
                if let Some(held) = self.held(*file) {
                    held.truncate(*bytes);
                }
            }
            Action::Read {
                file,
                offset,
                bytes,
            } => {
                let held = self.held(*file).filter(|held| !held.is_unknown);
                return match held {
                    Some(held) => held.read(*offset, *bytes, most),
                    None => Some(Box::default()),
                };
            }
            Action::Rename { to } => self.rename(path, to),
            Action::Delete | Action::Symlink { .. } => drop(self.names.remove(path)),
            Action::Close { .. }
            | Action::Fsync { .. }
            | Action::Stat
            | Action::List
            | Action::Mkdir
            | Action::Rmdir => {}
        }
        Some(Box::default())
    }

    fn opens(&mut self, number: usize, file: usize) {
        if let Some(slot) = self.open.get_mut(number) {
            *slot = file;
        }
    }

    fn held(&mut self, number: usize) -> Option<&mut Held> {
        let file = self.open.get(number)?;
        self.files.get_mut(*file)
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) {
        if let Some(file) = self.names.remove(path) {
            self.names.insert(to.to_vec(), file);
            return;
        }
        let is_in = |name: &[u8], directory: &[u8]| {
            let rest = name.strip_prefix(directory);
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        };
        for (name, file) in &self.names {
            if (is_in(name, path) || is_in(name, to))
                && let Some(held) = self.files.get_mut(*file)
            {
                held.is_unknown = true;
            }
        }
    }
}

impl Held {
    fn laid_out(laid: Laid) -> Self {
        Self {
            laid,
            laid_out: laid.bytes,
            ..Self::default()
        }
    }

    fn truncate(&mut self, bytes: u64) {
        self.cut(bytes, u64::MAX);
        self.laid_out = self.laid_out.min(bytes);
    }

    fn write(&mut self, written: Written) {
        let until = written.offset.saturating_add(written.bytes);
        self.cut(written.offset, until);
        if written.bytes > 0 {
            self.blocks.insert(written.offset, (until, written));
        }
    }

    /// Forgets what was written from `from` until `until`.
    fn cut(&mut self, from: u64, until: u64) {
        let before = self.blocks.range(..from).next_back();
        if let Some((&begin, &(end, written))) = before
            && end > from
        {
            self.blocks.insert(begin, (from, written));
            if end > until {
                self.blocks.insert(until, (end, written));
            }
        }
        while let Some((&begin, &(end, written))) = self.blocks.range(from..until).next() {
            self.blocks.remove(&begin);
            if end > until {
                self.blocks.insert(until, (end, written));
            }
        }
    }

    fn read(&self, offset: u64, bytes: u64, most: usize) -> Option<Box<[Piece]>> {
        let until = offset.saturating_add(bytes);
        let mut pieces = Pieces {
            found: Vec::new(),
            most,
        };
        let mut at = offset;
        let first = self.blocks.range(..offset).next_back();
        let rest = self.blocks.range(offset..until);
        for (&begin, &(end, written)) in first.into_iter().chain(rest) {
            if end <= at {
                continue;
            }
            self.beneath(at, begin, &mut pieces)?;
            let end = end.min(until);
            pieces.add(at.max(begin), end, Some(written))?;
            at = end;
        }
        self.beneath(at, until, &mut pieces)?;
        Some(pieces.found.into())
    }

    /// What lies where the list has written nothing: what was laid out, and zeros behind it.
    fn beneath(&self, from: u64, until: u64, pieces: &mut Pieces) -> Option<()> {
        let laid_until = until.min(self.laid_out);
        let mut at = from;
        while at < laid_until {
            let written = self.laid.block(at);
            let end = written.offset.saturating_add(written.bytes).min(laid_until);
            pieces.add(at, end, Some(written))?;
            at = end;
        }
        pieces.add(at, until, None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Held against a file that remembers for each byte who wrote it.
        #[test]
        fn each_byte_is_from_who_wrote_it_last(
            turns in proptest::collection::vec((0_u64..60, 0_u64..30, 0_u8..4), 0..40),
        ) {
            let laid = Laid { file: 3, unit: 7, bytes: 40 };
            let mut held = Held::laid_out(laid);
            let mut model: Vec<Option<u64>> = vec![None; 200];
            model[..40].fill(Some(0));
            for (generation, (offset, bytes, kind)) in (1..).zip(turns) {
                let index = |at: u64| usize::try_from(at).unwrap();
                match kind {
                    0 => {
                        held.truncate(offset);
                        model[index(offset)..].fill(None);
                    }
                    1 => {
                        let mut at = offset;
                        for piece in held.read(offset, bytes, 100).unwrap() {
                            prop_assert_eq!(piece.offset, at);
                            prop_assert!(piece.bytes > 0);
                            at += piece.bytes;
                            let known = &model[index(piece.offset)..index(at)];
                            if let Some(written) = piece.from {
                                prop_assert!(written.offset <= piece.offset && at <= written.offset + written.bytes);
                                let is_laid = written.file == 3 && written.offset % 7 == 0 && written.bytes == 7.min(40 - written.offset);
                                prop_assert!(written.generation > 0 || is_laid, "{:?}", written);
                            }
                            let from = piece.from.map(|written| written.generation);
                            prop_assert!(known.iter().all(|byte| *byte == from), "{:?} {:?}", piece, known);
                        }
                        prop_assert_eq!(at, offset + bytes);
                    }
                    _ => {
                        held.write(Written { file: 0, offset, bytes, generation });
                        model[index(offset)..index(offset + bytes)].fill(Some(generation));
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_large_file_holds_costs_no_memory_and_too_many_parts_are_refused() {
        let list = List::parse(
            "- open old\n- read old 1000000000000000 4096\n- write old 1000000000000000 10\n\
             - read old 999999999999999 4096\n- truncate old 1000000000000020\n- read old 1000000000000000 4096\n",
        )
        .unwrap();
        let expected = Expected::of(&list, 1 << 20).unwrap();
        let from = |line: usize| {
            let pieces = expected.of_line(line).iter();
            pieces
                .map(|piece| (piece.bytes, piece.from.map(|written| written.generation)))
                .collect::<Vec<_>>()
        };
        assert_eq!(from(1), [(4096, Some(0))]);
        assert_eq!(from(3), [(1, Some(0)), (10, Some(3)), (4085, Some(0))]);
        assert_eq!(from(5), [(10, Some(3)), (10, Some(0)), (4076, None)]);
        let block = expected.of_line(1)[0].from.unwrap();
        assert_eq!(block.offset, (1_000_000_000_000_000 >> 20) << 20);
        let parts = expected.reads.iter().map(|pieces| pieces.len()).sum();
        assert!(Expected::within(&list, 1 << 20, parts).is_ok());
        let error = Expected::within(&list, 1 << 20, parts - 1).unwrap_err();
        assert!(matches!(error, TaskError::Unfit { .. }), "{error:?}");
    }

    #[test]
    fn files_keep_what_they_hold_under_another_name() {
        let list = List::parse(
            "- create a\n- write a 0 10\n- rename a b\n- read b 0 10\n- close b\n- open b\n- read b 0 10\n- close b\n\
             - delete b\n- create b\n- read b 0 5\n- close b\n- open d/x\n- read d/x 0 4\n- close d/x\n\
             - rename d e\n- open d/x\n- read d/x 0 4\n",
        )
        .unwrap();
        let expected = Expected::of(&list, 1 << 20).unwrap();
        let from = |line: usize| {
            let pieces = expected.of_line(line).iter();
            pieces
                .map(|piece| piece.from.map(|written| (written.file, written.generation)))
                .collect::<Vec<_>>()
        };
        assert_eq!(from(3), [Some((0, 2))]);
        assert_eq!(from(6), [Some((0, 2))]);
        assert_eq!(from(10), [None]);
        // Laid out: the second thing that the list expects, behind its directory.
        assert_eq!(from(13), [Some((1, 0))]);
        assert_eq!(from(17), [], "nobody knows what is there after that");
    }
}
