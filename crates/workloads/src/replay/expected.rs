//! What each read of a list has to find, worked out from the list alone, before the start.
//!
//! A file is what was laid out, and over it what the list has written so far: each write is a generation of its own, so
//! that an older one is not taken for it. Files keep what they hold through other names. Where the list does what cannot
//! be followed (it renames a directory), nothing is expected of what lies there.

use super::list::{Action, List};
use crate::data::Written;
use std::collections::{BTreeMap, HashMap};

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
    pub(super) fn of(list: &List, unit: u64) -> Self {
        let mut world = World::before(list, unit);
        let reads = list
            .lines
            .iter()
            .enumerate()
            .map(|(number, line)| world.after(generation(number), &line.path, &line.action))
            .collect();
        Self {
            reads,
            files: world.open,
        }
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

/// What a file holds.
#[derive(Debug, Default)]
struct Held {
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
            let mut held = Held::default();
            let mut offset = 0;
            while offset < bytes {
                let written = Written {
                    file: number,
                    offset,
                    bytes: unit.max(1).min(bytes - offset),
                    generation: 0,
                };
                held.write(written);
                offset += written.bytes;
            }
            world.add(path, held);
        }
        world
    }

    fn add(&mut self, path: &[u8], held: Held) -> usize {
        let number = self.files.len();
        self.files.push(held);
        self.names.insert(path.to_vec(), number);
        number
    }

    /// What a read finds; everything else changes the world.
    fn after(&mut self, generation: u64, path: &[u8], action: &Action) -> Box<[Piece]> {
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
                    held.cut(*bytes, u64::MAX);
                }
            }
            Action::Read {
                file,
                offset,
                bytes,
            } => {
                let held = self.held(*file).filter(|held| !held.is_unknown);
                return held.map_or_else(Box::default, |held| held.read(*offset, *bytes));
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
        Box::default()
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
    fn write(&mut self, written: Written) {
        let until = written.offset.saturating_add(written.bytes);
        self.cut(written.offset, until);
        if written.bytes > 0 {
            self.blocks.insert(written.offset, (until, written));
        }
    }

    /// Forgets what stands from `from` until `until`.
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

    fn read(&self, offset: u64, bytes: u64) -> Box<[Piece]> {
        let until = offset.saturating_add(bytes);
        let mut pieces = Vec::new();
        let mut at = offset;
        let first = self.blocks.range(..offset).next_back();
        let rest = self.blocks.range(offset..until);
        let mut piece = |from: u64, until: u64, written| {
            if from < until {
                pieces.push(Piece {
                    offset: from,
                    bytes: until - from,
                    from: written,
                });
            }
        };
        for (&begin, &(end, written)) in first.into_iter().chain(rest) {
            if end <= at {
                continue;
            }
            piece(at, begin, None);
            let end = end.min(until);
            piece(at.max(begin), end, Some(written));
            at = end;
        }
        piece(at, until, None);
        pieces.into()
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
            let mut held = Held::default();
            let mut model: Vec<Option<u64>> = vec![None; 200];
            for (generation, (offset, bytes, kind)) in (1..).zip(turns) {
                let index = |at: u64| usize::try_from(at).unwrap();
                match kind {
                    0 => {
                        held.cut(offset, u64::MAX);
                        model[index(offset)..].fill(None);
                    }
                    1 => {
                        let mut at = offset;
                        for piece in held.read(offset, bytes) {
                            prop_assert_eq!(piece.offset, at);
                            prop_assert!(piece.bytes > 0);
                            at += piece.bytes;
                            let known = &model[index(piece.offset)..index(at)];
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
    fn files_keep_what_they_hold_under_another_name() {
        let list = List::parse(
            "- create a\n- write a 0 10\n- rename a b\n- read b 0 10\n- close b\n- open b\n- read b 0 10\n- close b\n\
             - delete b\n- create b\n- read b 0 5\n- close b\n- open d/x\n- read d/x 0 4\n- close d/x\n\
             - rename d e\n- open d/x\n- read d/x 0 4\n",
        )
        .unwrap();
        let expected = Expected::of(&list, 1 << 20);
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
