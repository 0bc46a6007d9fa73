//! How much one call moves, and what a file system takes space in.

use crate::params::ParamError;
use crate::params::units::Bytes;

/// File systems give a file whole blocks; no check of free space should be surprised by many small files.
pub(crate) const BLOCK_BYTES: u64 = 4096;

pub(crate) fn one_mib() -> Bytes {
    Bytes(1 << 20)
}

/// A key that says how much one call moves, as a length in memory.
pub(crate) fn check_unit(key: &str, size: Bytes) -> Result<usize, ParamError> {
    usize::try_from(size.0).map_err(|_| ParamError::of(key, "is more than this host can address"))
}
