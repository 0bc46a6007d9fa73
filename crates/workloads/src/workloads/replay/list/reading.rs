//! Parses a list line by line, and checks each line against the files made and opened by earlier ones.

use super::{List, ListLine, ReplayAction};
use crate::engine::author::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// Bytes of one read or write.
const MAX_BYTES: u64 = 1 << 30;
const MAX_FILE_BYTES: u64 = 1 << 60;

/// A list during parsing.
#[derive(Debug, Default)]
pub(super) struct ListParser {
    pub lines: Vec<ListLine>,
    last_due: Duration,
    /// Numbers of open files by name.
    open: HashMap<Vec<u8>, usize>,
    /// By number: whether the file existed before, and how many bytes reads need in it.
    files: Vec<OpenedFile>,
    /// Names that the list itself has made so far.
    made: HashSet<Vec<u8>>,
    expected: BTreeMap<Vec<u8>, Option<u64>>,
    largest: u64,
    moved: u64,
}

#[derive(Debug)]
struct OpenedFile {
    /// Name of the file before the start, if it existed.
    found_as: Option<Vec<u8>>,
    bytes: u64,
    written: bool,
}

impl ListParser {
    pub(super) fn line(&mut self, text: &str) -> Result<(), String> {
        let mut words = text.split_whitespace();
        let mut word = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let due = due(word("the time")?)?;
        if let Some(due) = due {
            if due < self.last_due {
                return Err("the time is before that of an operation above".to_owned());
            }
            self.last_due = due;
        }
        let name = word("the operation")?;
        let path = path(word("the path")?)?;
        let action = match name {
            "create" => self.create(&path)?,
            "open" => self.open(&path)?,
            "close" => ReplayAction::Close {
                file: self.closed(&path)?,
            },
            "read" | "write" => {
                let offset = number("the offset", word("the offset")?, MAX_FILE_BYTES)?;
                let bytes = number("the length", word("the length")?, MAX_BYTES)?;
                self.moves(name, &path, offset, bytes)?
            }
            "fsync" => ReplayAction::Fsync {
                file: self.opened(&path)?,
            },
            "truncate" => ReplayAction::Truncate {
                bytes: number("the size", word("the size")?, MAX_FILE_BYTES)?,
                file: self.opened(&path)?,
            },
            "stat" => {
                self.expect(&path, Some(0));
                ReplayAction::Stat
            }
            "list" => {
                self.expect(&path, None);
                ReplayAction::List
            }
            "rename" => {
                let to = self::path(word("the new path")?)?;
                self.rename(&path, &to);
                ReplayAction::Rename { to }
            }
            "symlink" => {
                let target = word("what the symlink says")?.as_bytes().to_vec();
                self.make(&path);
                ReplayAction::Symlink { target }
            }
            "delete" => {
                self.expect(&path, Some(0));
                self.made.insert(path.clone());
                ReplayAction::Delete
            }
            "mkdir" => {
                self.make(&path);
                ReplayAction::Mkdir
            }
            "rmdir" => {
                self.expect(&path, None);
                self.made.insert(path.clone());
                ReplayAction::Rmdir
            }
            other => {
                return Err(format!(
                    "there is no operation `{other}`; there are create, open, close, read, write, fsync, truncate, \
                     stat, list, rename, symlink, delete, mkdir and rmdir"
                ));
            }
        };
        if let Some(more) = words.next() {
            return Err(format!("`{more}` is too much"));
        }
        self.moved = self.moved.saturating_add(action.bytes());
        self.largest = self.largest.max(action.bytes());
        self.lines.push(ListLine { due, path, action });
        Ok(())
    }

    /// Records a path that must exist before the start, unless the list has made it.
    fn expect(&mut self, path: &[u8], bytes: Option<u64>) {
        self.expect_parent(path);
        if !self.made.contains(path) {
            self.expected.entry(path.to_vec()).or_insert(bytes);
        }
    }

    fn expect_parent(&mut self, path: &[u8]) {
        let (parent, _) = cursor::split(path);
        if !parent.is_empty() {
            self.expect(parent, None);
        }
    }

    /// Records a path that the list makes. From now on nothing is expected of it.
    fn make(&mut self, path: &[u8]) {
        self.expect_parent(path);
        self.made.insert(path.to_vec());
    }

    fn number_of_new(&mut self, path: &[u8], found_as: Option<Vec<u8>>) -> Result<usize, String> {
        let file = self.files.len();
        if self.open.insert(path.to_vec(), file).is_some() {
            return Err(format!("{} is open already", shown(path)));
        }
        self.files.push(OpenedFile {
            found_as,
            bytes: 0,
            written: false,
        });
        Ok(file)
    }

    fn create(&mut self, path: &[u8]) -> Result<ReplayAction, String> {
        self.make(path);
        let file = self.number_of_new(path, None)?;
        Ok(ReplayAction::Create { file })
    }

    fn open(&mut self, path: &[u8]) -> Result<ReplayAction, String> {
        self.expect(path, Some(0));
        let found_as = (!self.made.contains(path)).then(|| path.to_vec());
        let file = self.number_of_new(path, found_as)?;
        Ok(ReplayAction::Open { file })
    }

    fn opened(&self, path: &[u8]) -> Result<usize, String> {
        let file = self.open.get(path).copied();
        file.ok_or_else(|| format!("{} is not open: open or create it before", shown(path)))
    }

    fn closed(&mut self, path: &[u8]) -> Result<usize, String> {
        let file = self.opened(path)?;
        self.open.remove(path);
        Ok(file)
    }

    fn moves(
        &mut self,
        name: &str,
        path: &[u8],
        offset: u64,
        bytes: u64,
    ) -> Result<ReplayAction, String> {
        let file = self.opened(path)?;
        let until = offset.saturating_add(bytes);
        let Some(opened) = self.files.get_mut(file) else {
            return Err(format!("{} is not open", shown(path)));
        };
        opened.bytes = opened.bytes.max(until);
        if name == "write" {
            opened.written = true;
            return Ok(ReplayAction::Write {
                file,
                offset,
                bytes,
            });
        }
        // Data read before any write must exist before the start.
        if let Some(found_as) = opened.found_as.as_ref().filter(|_| !opened.written)
            && let Some(Some(size)) = self.expected.get_mut(found_as)
        {
            *size = (*size).max(until);
        }
        Ok(ReplayAction::Read {
            file,
            offset,
            bytes,
        })
    }

    fn rename(&mut self, path: &[u8], to: &[u8]) {
        self.expect(path, Some(0));
        self.make(to);
        self.made.insert(path.to_vec());
        if let Some(file) = self.open.remove(path) {
            self.open.insert(to.to_vec(), file);
        }
    }

    pub(super) fn end(self) -> List {
        let before = self.expected.values().flatten().copied();
        let sizes = self.files.iter().map(|opened| opened.bytes).chain(before);
        List {
            sizes: sizes.collect(),
            files: self.files.len(),
            largest: usize::try_from(self.largest).unwrap_or(usize::MAX),
            moved: self.moved,
            names: u64::try_from(self.made.len() + self.expected.len()).unwrap_or(u64::MAX),
            lines: self.lines,
            expected: self.expected,
        }
    }
}

fn due(word: &str) -> Result<Option<Duration>, String> {
    if word == "-" {
        return Ok(None);
    }
    let wrong = || format!("`{word}` is no time: write seconds, as in 12.000250, or - for at once");
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return Err(wrong());
    }
    let seconds: u64 = whole.parse().map_err(|_| wrong())?;
    let nanos: u32 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    // A year is longer than any replay, and far below the limit of a clock.
    match seconds < 365 * 86_400 {
        true => Ok(Some(Duration::new(seconds, nanos))),
        false => Err(wrong()),
    }
}

fn path(word: &str) -> Result<Vec<u8>, String> {
    let wrong = |why: &str| Err(format!("the path `{word}` {why}"));
    if word.starts_with('/') {
        return wrong("is absolute: paths begin in the worker's own directory");
    }
    if word.len() > 4000 {
        return wrong("is too long");
    }
    for part in word.split('/') {
        match part {
            "" | "." => return wrong("has an empty part"),
            ".." => return wrong("leads out of the directory"),
            _ if part.len() > 255 => return wrong("has a part longer than a name can be"),
            _ if part.contains('\0') => return wrong("has a NUL in it"),
            _ => {}
        }
    }
    Ok(word.as_bytes().to_vec())
}

fn number(what: &str, word: &str, most: u64) -> Result<u64, String> {
    match word.parse() {
        Ok(number) if number <= most => Ok(number),
        Ok(_) => Err(format!("{what} is at most {most}")),
        Err(_) => Err(format!("{what} is a number of bytes, and `{word}` is none")),
    }
}

fn shown(path: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(path))
}
