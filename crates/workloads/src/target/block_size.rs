//! How much one call moves, and the block size of file systems.

use crate::params::ParamError;
use crate::params::units::Bytes;

/// File systems allocate whole blocks; checks of free space have to allow for that with many small files.
pub(crate) const BLOCK_BYTES: u64 = 4096;

pub(crate) fn one_mib() -> Bytes {
    Bytes(1 << 20)
}

/// Checks a key that gives the bytes of one call, and converts it to a length in memory.
pub(crate) fn check_unit(key: &str, size: Bytes) -> Result<usize, ParamError> {
    usize::try_from(size.0).map_err(|_| ParamError::of(key, "is more than this host can address"))
}
