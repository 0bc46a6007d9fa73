//! The number of open files of a process.
//!
//! Since Linux 6.2, it is the size of `/proc/PID/fd`, which any user can read. On older kernels the whole directory
//! must be read, which costs in proportion. It is then read seldom enough to stay cheap, and the last count is reported
//! in between.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::clock::thread_cpu_ns;
use super::proc_file::Keeping;

/// The time between two counts is at least this many times the CPU time of one count: 5 us per second.
const SPARING: u64 = 200_000;

#[derive(Debug)]
pub(crate) enum OpenFiles {
    /// The directory, not opened for reading, which needs no right.
    Size(OwnedFd),
    SizeAnew(PathBuf),
    Count {
        directory: PathBuf,
        last: i64,
        next_ns: u64,
    },
    Forbidden,
}

/// Whether this kernel reports the number of open files as the size of their directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FdSizes {
    Supported,
    Unsupported,
}

impl FdSizes {
    /// The probing process has files open, so its own size must be positive. On other file systems the size is
    /// unrelated.
    pub(crate) fn probe(proc_root: &Path) -> FdSizes {
        let is_proc =
            rustix::fs::statfs(proc_root).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC);
        let has_size =
            rustix::fs::stat(proc_root.join("self/fd")).is_ok_and(|stat| stat.st_size > 0);
        if is_proc && has_size {
            FdSizes::Supported
        } else {
            FdSizes::Unsupported
        }
    }
}

impl OpenFiles {
    pub(crate) fn open(
        process: &Path,
        sizes: FdSizes,
        keeping: Keeping,
    ) -> Result<OpenFiles, Errno> {
        let directory = process.join("fd");
        if sizes == FdSizes::Unsupported {
            return Ok(OpenFiles::Count {
                directory,
                last: -1,
                next_ns: 0,
            });
        }
        if keeping == Keeping::Anew {
            return Ok(OpenFiles::SizeAnew(directory));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, &directory, flags, Mode::empty()) {
            Ok(directory) => Ok(OpenFiles::Size(directory)),
            Err(Errno::ACCESS | Errno::PERM) => Ok(OpenFiles::Forbidden),
            Err(errno) => Err(errno),
        }
    }

    /// -1 if it is unknown.
    pub(crate) fn count(&mut self, now_ns: u64) -> i64 {
        match self {
            OpenFiles::Size(directory) => {
                rustix::fs::fstat(directory).map_or(-1, |stat| stat.st_size)
            }
            OpenFiles::SizeAnew(directory) => {
                rustix::fs::stat(directory.as_path()).map_or(-1, |stat| stat.st_size)
            }
            OpenFiles::Count {
                directory,
                last,
                next_ns,
            } => {
                if now_ns >= *next_ns {
                    let before = thread_cpu_ns();
                    *last = std::fs::read_dir(&*directory).map_or(-1, |entries| {
                        i64::try_from(entries.count()).unwrap_or(i64::MAX)
                    });
                    let cost = thread_cpu_ns().saturating_sub(before);
                    *next_ns = now_ns.saturating_add(cost.saturating_mul(SPARING));
                }
                *last
            }
            OpenFiles::Forbidden => -1,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_ways_agree() {
        let own = Path::new("/proc/self");
        let held: Vec<_> = (0..40)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        let mut counted = OpenFiles::open(own, FdSizes::Unsupported, Keeping::Open).unwrap();
        let counted = counted.count(0);
        // Other tests in this process open files too.
        assert!(counted >= 43, "{counted}");
        if FdSizes::probe(Path::new("/proc")) == FdSizes::Supported {
            for keeping in [Keeping::Open, Keeping::Anew] {
                let sized = OpenFiles::open(own, FdSizes::Supported, keeping)
                    .unwrap()
                    .count(0);
                assert!(
                    sized >= 43 && sized.abs_diff(counted) < 40,
                    "{sized} against {counted}"
                );
            }
        }
        drop(held);
    }

    #[test]
    fn counting_is_spared() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("fd");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("0"), "").unwrap();
        let mut files = OpenFiles::open(root.path(), FdSizes::Unsupported, Keeping::Open).unwrap();
        assert_eq!(files.count(1_000_000_000), 1);
        std::fs::write(directory.join("1"), "").unwrap();
        assert_eq!(files.count(1_000_000_001), 1, "the last count stands");
        assert_eq!(files.count(u64::MAX), 2);
    }

    #[test]
    fn a_directory_elsewhere_does_not_tell() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("self/fd")).unwrap();
        assert_eq!(FdSizes::probe(root.path()), FdSizes::Unsupported);
    }
}
