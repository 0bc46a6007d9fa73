//! Files that a user names: read whole, up to a limit.
//!
//! A path may name anything. A pipe without a writer would hold its reader for ever, and a device may have no end, so
//! programs that run on read regular files only. Commands that a person waits for also read pipes.

use benchmesh_answers::report::figures;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    RegularFile,
    /// Pipes too, until their end.
    AnyFile,
}

/// Reads a UTF-8 text of at most `limit` bytes; `-` is standard input where any file is accepted.
///
/// # Errors
/// If it cannot be read, is of another kind, is larger, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64, accept: Accept) -> io::Result<String> {
    match accept {
        Accept::AnyFile if path == Path::new("-") => text_of(io::stdin(), limit),
        // Opening a pipe waits for its writer.
        Accept::AnyFile => text_of(File::open(path)?, limit),
        Accept::RegularFile => text_of(open_regular(path)?, limit),
    }
}

fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(invalid("it is not a regular file")),
    }
}

fn text_of(input: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    input
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        let limit = figures::bytes(limit);
        return Err(invalid(&format!("it is larger than {limit}, the maximum")));
    }
    String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8 text"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::{CWD, FileType};

    fn refusal(path: &Path, accept: Accept) -> String {
        read_text(path, 10, accept).unwrap_err().to_string()
    }

    #[test]
    fn a_pipe_a_device_and_a_large_file_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), directory.path()] {
            let refused = refusal(path, Accept::RegularFile);
            assert_eq!(refused, "it is not a regular file", "{}", path.display());
        }
        let large = "it is larger than 10 B, the maximum";
        assert_eq!(refusal(Path::new("/dev/zero"), Accept::AnyFile), large);
        let file = directory.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        let text = read_text(&file, 10, Accept::RegularFile).unwrap();
        assert_eq!(text, "0123456789");
        std::fs::write(&file, "0123456789a").unwrap();
        assert_eq!(refusal(&file, Accept::RegularFile), large);
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(refusal(&file, Accept::RegularFile), "it is not UTF-8 text");
    }
}
