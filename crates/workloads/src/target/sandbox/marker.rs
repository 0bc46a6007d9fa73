//! The file that names the owner of a directory.

use super::SandboxError;
use super::dir::Dir;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

pub(super) const NAME: &str = ".benchmesh";
/// Our markers are far smaller.
const MAX_BYTES: usize = 4096;

/// The owner of a directory. The nonce distinguishes directories of the same name on different file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    pub mesh: String,
    pub run: String,
    pub nonce: String,
}

impl Marker {
    /// Writes the marker durably into a directory that has none.
    pub(super) fn write(&self, dir: &Dir) -> Result<(), SandboxError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = dir.open(NAME, flags, Mode::RUSR | Mode::WUSR)?;
        let text = serde_json::to_string(self).expect("three texts are always JSON");
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)
                .map_err(|errno| dir.error("write the marker", NAME, errno))?;
            rest = rest.get(written..).unwrap_or_default();
        }
        rustix::fs::fsync(&file).map_err(|errno| dir.error("sync the marker", NAME, errno))
    }

    /// Reads the marker; `None` if there is none, an error if it is not ours.
    pub(super) fn read(dir: &Dir) -> Result<Option<Marker>, SandboxError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match dir.open(NAME, flags, Mode::empty()) {
            Ok(file) => file,
            Err(error) if error.errno() == Some(Errno::NOENT.raw_os_error()) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = vec![0; MAX_BYTES];
        let mut length = 0;
        loop {
            let rest = text.get_mut(length..).unwrap_or_default();
            match rustix::io::read(&file, rest) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(dir.error("read the marker", NAME, errno)),
            }
        }
        text.truncate(length);
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| SandboxError::NotOurs {
                path: dir.path().to_owned(),
                why: format!("its {NAME} is not a marker ({error})"),
            })
    }
}

/// 128 random bits, encoded as text.
pub(crate) fn nonce() -> Result<String, SandboxError> {
    let mut bits = [0_u8; 16];
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| SandboxError::io("draw random bits for", "the marker", errno))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bits)))
}
