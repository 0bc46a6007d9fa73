//! The headers of a tar archive: ustar, with GNU's long names and the extended headers of pax.
//!
//! It parses bytes and does not access files. An archive is never trusted: names are checked, numbers are bounded, and
//! every entry except a file, a directory or a link within the tree is refused with its name. The crate `tar` reads
//! extended headers of any length into memory, and the archive decides their length; here it is bounded before they are
//! read.

use super::source::{EntryKind, MAX_NAME_BYTES, MAX_PATH_BYTES, SourceError, TreeEntry};
use crate::engine::author::*;

pub(super) const BLOCK_BYTES: usize = 512;
pub(super) type Block = [u8; BLOCK_BYTES];

/// Kind of a header that is not an entry itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    LongName,
    LongTarget,
    Pax,
    /// Applies to all later entries; no field in it is used.
    Global,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// The end of the archive.
    End,
    /// The given bytes of content follow; they describe the next entry.
    Extra(Extra, u64),
    /// The given bytes of content follow.
    Entry(u64),
    /// The root of the tree, which already exists.
    Top,
}

/// Fields from extended headers for the next entry.
#[derive(Debug, Default)]
pub(super) struct ExtendedHeader {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    bytes: Option<u64>,
}

impl ExtendedHeader {
    /// Parses the content of an extended header.
    pub(super) fn apply(&mut self, extra: Extra, content: &[u8]) -> Result<(), SourceError> {
        let until_nul = || {
            let end = content.iter().position(|byte| *byte == 0);
            content
                .get(..end.unwrap_or(content.len()))
                .unwrap_or_default()
                .to_vec()
        };
        match extra {
            Extra::Global => {}
            Extra::LongName => self.path = Some(until_nul()),
            Extra::LongTarget => self.target = Some(until_nul()),
            Extra::Pax => self.apply_pax(content)?,
        }
        Ok(())
    }

    /// Records of `LENGTH KEY=VALUE\n`; the length is that of the whole record.
    fn apply_pax(&mut self, mut rest: &[u8]) -> Result<(), SourceError> {
        let broken = || SourceError::Refused("the archive has an invalid extended header".into());
        while !rest.is_empty() {
            let space = rest
                .iter()
                .position(|byte| *byte == b' ')
                .ok_or_else(broken)?;
            let length = decimal(rest.get(..space).unwrap_or_default()).ok_or_else(broken)?;
            let length = usize::try_from(length).map_err(|_| broken())?;
            let record = rest.get(space + 1..length).ok_or_else(broken)?;
            let record = record.strip_suffix(b"\n").ok_or_else(broken)?;
            let equals = record
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or_else(broken)?;
            let (key, value) = record.split_at(equals);
            let value = value.get(1..).unwrap_or_default();
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.target = Some(value.to_vec()),
                b"size" => self.bytes = Some(decimal(value).ok_or_else(broken)?),
                _ if key.starts_with(b"GNU.sparse.") => {
                    let why = "the archive has a sparse file; make it without --sparse";
                    return Err(SourceError::Refused(why.into()));
                }
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Parses a header. For an entry, fills in `entry` with the header and the extended headers before it.
pub(super) fn read(
    block: &Block,
    extended: &mut ExtendedHeader,
    entry: &mut TreeEntry,
) -> Result<Header, SourceError> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Header::End);
    }
    if !has_right_sum(block) {
        return Err(SourceError::Refused(
            "this is no tar archive, or a broken one: a header's checksum is wrong".into(),
        ));
    }
    let size = number(field(block, 124, 12)).filter(|bytes| *bytes <= LARGEST_BYTES);
    let size = size.ok_or_else(|| SourceError::Refused("a header's size is no number".into()))?;
    let [kind] = *block
        .get(156..157)
        .and_then(|rest| rest.first_chunk())
        .unwrap_or(&[0]);
    let extra = match kind {
        b'L' => Some(Extra::LongName),
        b'K' => Some(Extra::LongTarget),
        b'x' => Some(Extra::Pax),
        b'g' => Some(Extra::Global),
        _ => None,
    };
    if let Some(extra) = extra {
        return Ok(Header::Extra(extra, size));
    }
    let extended = std::mem::take(extended);
    let raw = extended.path.unwrap_or_else(|| whole_name(block));
    let named = || format!("`{}`", String::from_utf8_lossy(&raw));
    let is_top = clean(&raw, &mut entry.path).map_err(|why| {
        SourceError::Refused(format!("the archive has an entry {}, {why}", named()))
    })?;
    let raw_target = extended
        .target
        .unwrap_or_else(|| text(field(block, 157, 100)).to_vec());
    let refused = |what: &str| {
        Err(SourceError::Refused(format!(
            "the archive has {what} {}",
            named()
        )))
    };
    entry.kind = match kind {
        b'0' | 0 | b'7' if raw.ends_with(b"/") => EntryKind::Directory,
        b'0' | 0 | b'7' => EntryKind::File,
        b'1' => EntryKind::Link,
        b'2' => EntryKind::Symlink,
        b'5' => EntryKind::Directory,
        b'3' | b'4' => return refused("a device"),
        b'6' => return refused("a pipe"),
        b'S' => return refused("a sparse file; make it without --sparse:"),
        _ => return refused("an entry of a kind that is not known:"),
    };
    entry.target.clear();
    match entry.kind {
        EntryKind::Link => {
            let clean = clean(&raw_target, &mut entry.target);
            if clean.is_err() || entry.target.is_empty() {
                return refused("a link to something outside of the tree:");
            }
        }
        EntryKind::Symlink => {
            if !stays_within(&entry.path, &raw_target) {
                return refused(
                    "a symlink that leads out of the tree, or has a `..` after a name:",
                );
            }
            entry.target = raw_target;
        }
        EntryKind::File | EntryKind::Directory => {}
    }
    let bytes = extended.bytes.unwrap_or(size);
    if bytes > LARGEST_BYTES {
        return refused("a file larger than any can be:");
    }
    entry.bytes = if entry.kind == EntryKind::File {
        bytes
    } else {
        0
    };
    entry.executable = number(field(block, 100, 8)).unwrap_or(0) & 0o100 != 0;
    match is_top {
        true if entry.kind == EntryKind::Directory => Ok(Header::Top),
        true => refused("a file that has no name:"),
        false => Ok(Header::Entry(entry.bytes)),
    }
}

/// Removes `.` and doubled slashes from the path; returns whether it is empty then.
fn clean(raw: &[u8], path: &mut Vec<u8>) -> Result<bool, &'static str> {
    path.clear();
    if raw.starts_with(b"/") {
        return Err("an absolute path");
    }
    if raw.contains(&0) {
        return Err("with a NUL in its name");
    }
    if raw.len() > MAX_PATH_BYTES {
        return Err("longer than a path can be");
    }
    for part in raw.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err("which leads out of the tree"),
            _ if part.len() > MAX_NAME_BYTES => return Err("longer than a name can be"),
            _ => {}
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    Ok(path.is_empty())
}

/// Whether a symlink at `path` leads to something within the tree, whatever other symlinks the tree has: it goes up
/// from its own directory first, at most to the root, and only down after that. A `..` after a name might go up from
/// where a symlink of that name leads.
fn stays_within(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
        return false;
    }
    if target.len() >= MAX_PATH_BYTES {
        return false;
    }
    let depth = path.iter().filter(|byte| **byte == b'/').count();
    let mut parts = target
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(|part| part == b"..")
        .peekable();
    let mut up = 0;
    while parts.next_if_eq(&true).is_some() {
        up += 1;
    }
    up <= depth && !parts.any(|goes_up| goes_up)
}

fn field(block: &Block, at: usize, length: usize) -> &[u8] {
    block.get(at..at + length).unwrap_or_default()
}

fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    field.get(..end.unwrap_or(field.len())).unwrap_or_default()
}

/// The name with ustar's prefix, if there is one. GNU's own format has other fields at that place.
fn whole_name(block: &Block) -> Vec<u8> {
    let name = text(field(block, 0, 100));
    let prefix = match field(block, 257, 6) {
        b"ustar\0" => text(field(block, 345, 155)),
        _ => &[],
    };
    match prefix.is_empty() {
        true => name.to_vec(),
        false => [prefix, b"/", name].concat(),
    }
}

/// Octal text, or GNU's binary format if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let mut value = u64::from(first & 0x7f);
        for byte in rest {
            value = value.checked_mul(256)?.checked_add(u64::from(*byte))?;
        }
        return Some(value);
    }
    let digits = text(field).trim_ascii();
    let mut value = 0_u64;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value = value.checked_mul(8)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The checksum is the sum of all bytes, with its own bytes counted as spaces; some programs sum signed bytes.
fn has_right_sum(block: &Block) -> bool {
    let Some(expected) = number(field(block, 148, 8)) else {
        return false;
    };
    let (mut plain, mut signed) = (0_i64, 0_i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) {
            b' '
        } else {
            *byte
        };
        plain += i64::from(byte);
        signed += i64::from(i8::from_ne_bytes([byte]));
    }
    i64::try_from(expected).is_ok_and(|expected| expected == plain || expected == signed)
}
