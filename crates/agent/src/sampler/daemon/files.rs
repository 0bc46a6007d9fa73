//! The files of one process: each read once, and what their errors imply about the process.

use std::fmt::Display;

use rustix::io::Errno;

use crate::sampler::parse::{self, Stat};
use crate::sampler::proc_file::{Buffer, ProcFile};

/// Why a process is not watched.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It has ended meanwhile.
    Gone,
    Short(Errno),
    Other(String),
}

/// Why a reading failed.
#[derive(Debug)]
pub(super) enum Failure {
    Gone,
    Forbidden { file: &'static str },
    Bad { file: &'static str, problem: String },
}

impl Failure {
    pub(super) fn into_open_error(self) -> OpenError {
        match self {
            Failure::Gone => OpenError::Gone,
            Failure::Forbidden { file } => OpenError::Other(format!("{file}: not permitted")),
            Failure::Bad { file, problem } => OpenError::Other(format!("{file}: {problem}")),
        }
    }
}

pub(super) fn read<T, E: Display>(
    file: &ProcFile,
    name: &'static str,
    buffer: &mut Buffer,
    parse: fn(&[u8]) -> Result<T, E>,
) -> Result<T, Failure> {
    match file.read_once(buffer) {
        Ok(text) => parse(text).map_err(|error| Failure::Bad {
            file: name,
            problem: error.to_string(),
        }),
        Err(Errno::SRCH | Errno::NOENT) => Err(Failure::Gone),
        Err(Errno::ACCESS | Errno::PERM) => Err(Failure::Forbidden { file: name }),
        Err(errno) => Err(Failure::Bad {
            file: name,
            problem: errno.to_string(),
        }),
    }
}

pub(super) fn read_stat(file: &ProcFile, buffer: &mut Buffer) -> Result<Stat, Failure> {
    read(file, "stat", buffer, parse::stat)
}

/// Whether the whole process has ended, and not only its first thread.
pub(super) fn is_over(stat: &Stat) -> bool {
    matches!(stat.state, b'Z' | b'X' | b'x') && stat.threads <= 1
}

/// Opens a file that may be missing on this host or forbidden to this user.
pub(super) fn optional(opened: Result<ProcFile, Errno>) -> Result<Option<ProcFile>, OpenError> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(None),
        Err(errno) => Err(open_error(errno)),
    }
}

pub(super) fn open_error(errno: Errno) -> OpenError {
    match errno {
        Errno::SRCH | Errno::NOENT => OpenError::Gone,
        Errno::MFILE | Errno::NFILE => OpenError::Short(errno),
        errno => OpenError::Other(errno.to_string()),
    }
}
