//! System calls on a file's metadata: its permissions and one extended attribute.
//!
//! The usual calls follow a symlink that has replaced a file, or take a path from the root. This module uses the newer
//! calls on a directory's descriptor where the kernel has them, and otherwise the closest calls that follow no symlink
//! either. The kernel is probed once, never in a measured loop.

use crate::engine::author::*;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, c_long};
use std::sync::OnceLock;

/// The attribute that is set and read.
pub(super) const NAME: &CStr = c"user.benchmesh";

// Each has the same number on all architectures; libc does not define all of them yet.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const GETXATTRAT: c_long = 464;

/// Calls that the kernel supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calls {
    chmod_at: bool,
    xattr_at: bool,
}

impl Calls {
    /// Probes the kernel on the first call.
    pub(super) fn known() -> Self {
        static KNOWN: OnceLock<Calls> = OnceLock::new();
        *KNOWN.get_or_init(|| Self {
            // Kernels that have these calls refuse the arguments.
            // SAFETY: the name ends in NUL and is only read.
            chmod_at: is_known(unsafe { libc::syscall(FCHMODAT2, -1, c"".as_ptr(), 0, -1) }),
            // SAFETY: as above; the kernel refuses a structure of size 0 before it reads the null address.
            xattr_at: is_known(unsafe {
                libc::syscall(
                    SETXATTRAT,
                    -1,
                    c"".as_ptr(),
                    0,
                    NAME.as_ptr(),
                    std::ptr::null::<u8>(),
                    0,
                )
            }),
        })
    }

    #[inline]
    pub(super) fn chmod(
        self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        permissions: Mode,
    ) -> Result<(), CallError> {
        if !self.chmod_at {
            let fd = calls::open_to_read(dir, name)?;
            rustix::fs::fchmod(&fd, permissions)?;
            return Ok(calls::close(fd)?);
        }
        // SAFETY: `name` ends in NUL and is only read.
        let result = unsafe {
            libc::syscall(
                FCHMODAT2,
                dir.as_raw_fd(),
                name.as_ptr(),
                permissions.as_raw_mode(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        };
        outcome(result).map(drop)
    }

    #[inline]
    pub(super) fn set(
        self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        value: &[u8],
    ) -> Result<u64, CallError> {
        let bytes = u64::try_from(value.len()).unwrap_or(u64::MAX);
        if !self.xattr_at {
            let path = ByDescriptor::new(dir, name);
            rustix::fs::lsetxattr(path.as_c_str(), NAME, value, XattrFlags::empty())?;
            return Ok(bytes);
        }
        // SAFETY: the kernel only reads `value`.
        let result = unsafe { attribute_at(SETXATTRAT, dir, name, value.as_ptr(), value.len()) };
        outcome(result).map(|_| bytes)
    }

    /// Reads the attribute into `value`; an attribute of another length is an error (NODATA).
    #[inline]
    pub(super) fn get(
        self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        value: &mut [u8],
    ) -> Result<u64, CallError> {
        let read = if self.xattr_at {
            // SAFETY: the kernel writes at most the length of `value`.
            let result =
                unsafe { attribute_at(GETXATTRAT, dir, name, value.as_mut_ptr(), value.len()) };
            outcome(result)?
        } else {
            let path = ByDescriptor::new(dir, name);
            let read = rustix::fs::lgetxattr(path.as_c_str(), NAME, &mut *value)?;
            u64::try_from(read).unwrap_or(u64::MAX)
        };
        match u64::try_from(value.len()) == Ok(read) {
            true => Ok(read),
            false => Err(Errno::NODATA.into()),
        }
    }
}

/// `setxattrat` or `getxattrat` of our attribute on a name that is not followed.
///
/// # Safety
/// The kernel must be allowed to read and write the `bytes` at `value` during the call.
unsafe fn attribute_at(
    call: libc::c_long,
    dir: BorrowedFd<'_>,
    name: &CStr,
    value: *const u8,
    bytes: usize,
) -> libc::c_long {
    let arguments = Arguments {
        value: u64::try_from(value.expose_provenance()).unwrap_or(0),
        size: u32::try_from(bytes).unwrap_or(u32::MAX),
        flags: 0,
    };
    // SAFETY: the names end in NUL and are only read; `arguments` holds its own size and the caller's address and
    // length.
    unsafe {
        libc::syscall(
            call,
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            NAME.as_ptr(),
            &raw const arguments,
            size_of::<Arguments>(),
        )
    }
}

/// `struct xattr_args` of the kernel.
#[repr(C, align(8))]
struct Arguments {
    value: u64,
    size: u32,
    flags: u32,
}

fn is_known(result: c_long) -> bool {
    // Seccomp filters of containers answer unknown calls with EPERM.
    !matches!(outcome(result), Err(failed) if matches!(failed.errno, Errno::NOSYS | Errno::PERM))
}

#[inline]
fn outcome(result: c_long) -> Result<u64, CallError> {
    match u64::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => {
            let errno = std::io::Error::last_os_error().raw_os_error();
            Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO)).into())
        }
    }
}

/// `/proc/self/fd/N/NAME`, on the stack. Only its last component could be a symlink, and that is not followed.
struct ByDescriptor {
    bytes: [u8; Self::LEN],
}

impl ByDescriptor {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    const LEN: usize = Self::PREFIX.len() + 10 + 1 + 16 + 1;

    /// `name` has at most 16 bytes, as all of ours have; a longer one is truncated and so not found.
    fn new(dir: BorrowedFd<'_>, name: &CStr) -> Self {
        let mut bytes = [0; Self::LEN];
        let mut digits = [0; 10];
        let mut rest = dir.as_raw_fd().unsigned_abs();
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        let digits = digits.iter().skip(10 - count);
        let whole = Self::PREFIX.iter().chain(digits).chain(b"/");
        let whole = whole.chain(name.to_bytes().iter().take(16));
        for (to, from) in bytes.iter_mut().zip(whole) {
            *to = *from;
        }
        Self { bytes }
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).expect("the last byte is never written")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::{self, File};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const OLD: Calls = Calls {
        chmod_at: false,
        xattr_at: false,
    };

    #[test]
    fn each_way_does_the_same_and_follows_no_symlink() {
        // tmpfs has user attributes only since Linux 6.6; /var/tmp is on a disk.
        let top = tempfile::tempdir_in("/var/tmp").unwrap();
        let dir = File::open(top.path()).unwrap();
        fs::write(top.path().join("outside"), b"x").unwrap();
        for (calls, name) in [(Calls::known(), c"c000000001"), (OLD, c"c000000002")] {
            let path = top.path().join(name.to_str().unwrap());
            fs::write(&path, b"x").unwrap();
            let at = dir.as_fd();
            calls.chmod(at, name, Mode::RUSR | Mode::WUSR).unwrap();
            let permissions = fs::metadata(&path).unwrap().permissions();
            assert_eq!(permissions.mode() & 0o777, 0o600);
            assert_eq!(calls.set(at, name, b"0123456789"), Ok(10));
            let mut value = [0; 10];
            assert_eq!(calls.get(at, name, &mut value), Ok(10));
            assert_eq!(&value, b"0123456789");
            let longer = calls.get(at, name, &mut [0; 11]);
            assert_eq!(longer, Err(Errno::NODATA.into()));

            fs::remove_file(&path).unwrap();
            symlink("outside", &path).unwrap();
            assert!(calls.chmod(at, name, Mode::RWXU).is_err());
            assert!(calls.set(at, name, b"y").is_err());
            assert!(calls.get(at, name, &mut [0; 1]).is_err());
            let outside = fs::metadata(top.path().join("outside")).unwrap();
            assert_ne!(outside.permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_path_by_descriptor_is_whole() {
        let dir = File::open("/").unwrap();
        let path = ByDescriptor::new(dir.as_fd(), c"c000000001");
        let expected = format!("/proc/self/fd/{}/c000000001", dir.as_raw_fd());
        assert_eq!(path.as_c_str().to_str().unwrap(), expected);
    }
}
