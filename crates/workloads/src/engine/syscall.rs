//! The current system call of a thread of this process, read from `/proc`: its name, path and offset.
//!
//! For work outside of any recorder. Paths come from the descriptors' links and from the caller's memory, read through
//! `/proc/self/mem`, where an invalid address is an error. No file system is accessed. Without kernel support
//! (`CONFIG_HAVE_ARCH_TRACEHOOK`) nothing is known.

use std::fs::{File, read_link, read_to_string};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A call that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Syscall {
    pub name: &'static str,
    pub path: Option<PathBuf>,
    pub offset: Option<u64>,
}

/// Which arguments of a call identify its file.
#[derive(Clone, Copy)]
enum Args {
    /// A descriptor.
    Fd(usize),
    /// A descriptor and an offset.
    FdOffset(usize, usize),
    /// A directory's descriptor and a name in it.
    DirName(usize, usize),
    /// A path.
    Path(usize),
}

/// The calls that may block on a file system.
const CALLS: &[(libc::c_long, &str, Args)] = &[
    (libc::SYS_openat, "openat", Args::DirName(0, 1)),
    (libc::SYS_openat2, "openat2", Args::DirName(0, 1)),
    (libc::SYS_mkdirat, "mkdirat", Args::DirName(0, 1)),
    (libc::SYS_unlinkat, "unlinkat", Args::DirName(0, 1)),
    (libc::SYS_renameat2, "renameat2", Args::DirName(0, 1)),
    (libc::SYS_symlinkat, "symlinkat", Args::DirName(1, 2)),
    (libc::SYS_linkat, "linkat", Args::DirName(2, 3)),
    #[cfg(not(target_arch = "riscv64"))]
    (libc::SYS_renameat, "renameat", Args::DirName(0, 1)),
    (SETXATTRAT, "setxattrat", Args::DirName(0, 1)),
    (libc::SYS_lsetxattr, "lsetxattr", Args::Path(0)),
    (libc::SYS_readlinkat, "readlinkat", Args::DirName(0, 1)),
    (libc::SYS_statx, "statx", Args::DirName(0, 1)),
    (libc::SYS_newfstatat, "newfstatat", Args::DirName(0, 1)),
    (libc::SYS_fchmodat, "fchmodat", Args::DirName(0, 1)),
    (libc::SYS_utimensat, "utimensat", Args::DirName(0, 1)),
    (libc::SYS_read, "read", Args::Fd(0)),
    (libc::SYS_write, "write", Args::Fd(0)),
    (libc::SYS_readv, "readv", Args::Fd(0)),
    (libc::SYS_writev, "writev", Args::Fd(0)),
    (libc::SYS_pread64, "pread64", Args::FdOffset(0, 3)),
    (libc::SYS_pwrite64, "pwrite64", Args::FdOffset(0, 3)),
    (libc::SYS_fallocate, "fallocate", Args::FdOffset(0, 2)),
    (libc::SYS_copy_file_range, "copy_file_range", Args::Fd(2)),
    (libc::SYS_ftruncate, "ftruncate", Args::Fd(0)),
    (libc::SYS_getdents64, "getdents64", Args::Fd(0)),
    (libc::SYS_fstat, "fstat", Args::Fd(0)),
    (libc::SYS_fstatfs, "fstatfs", Args::Fd(0)),
    (libc::SYS_fadvise64, "fadvise64", Args::FdOffset(0, 1)),
    (libc::SYS_flock, "flock", Args::Fd(0)),
    (libc::SYS_close, "close", Args::Fd(0)),
    (libc::SYS_fsync, "fsync", Args::Fd(0)),
    (libc::SYS_fdatasync, "fdatasync", Args::Fd(0)),
    (libc::SYS_syncfs, "syncfs", Args::Fd(0)),
];

/// Since Linux 6.13, with the same number on all architectures.
const SETXATTRAT: libc::c_long = 463;

/// The kernel accepts no longer names.
const LONGEST_PATH: usize = 4096;

/// For names that are not relative to a descriptor.
const CURRENT_DIRECTORY: i32 = libc::AT_FDCWD;

impl Syscall {
    /// The call in which thread `tid` of this process blocks; `None` if it runs, waits for something other than a file
    /// system, or the kernel gives no information.
    pub(super) fn of(tid: i32) -> Option<Syscall> {
        let file = format!("/proc/self/task/{tid}/syscall");
        let text = read_to_string(&file).ok()?;
        let (number, arguments) = parsed(&text)?;
        let (_, name, works) = CALLS.iter().find(|(known, ..)| *known == number)?;
        let argument = |at: usize| arguments.get(at).copied();
        let call = Syscall {
            name,
            path: match *works {
                Args::Fd(fd) | Args::FdOffset(fd, _) => opened(argument(fd)?),
                Args::DirName(fd, name) => named(argument(fd)?, argument(name)?),
                Args::Path(name) => string_at(argument(name)?).map(PathBuf::from),
            },
            offset: match *works {
                Args::FdOffset(_, offset) => argument(offset),
                Args::Fd(_) | Args::DirName(..) | Args::Path(_) => None,
            },
        };
        // If it had returned meanwhile, the arguments could mean something else.
        (read_to_string(&file).ok()? == text).then_some(call)
    }

    /// Whether it syncs data, which takes as long as there are dirty data.
    pub(super) fn syncs(&self) -> bool {
        matches!(self.name, "fsync" | "fdatasync" | "syncfs")
    }
}

/// Parses number and arguments from a line of `/proc/PID/task/TID/syscall`: `0 0x3 0x7f88db79d000 ...`.
fn parsed(line: &str) -> Option<(libc::c_long, Vec<u64>)> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let arguments = words.map_while(hexadecimal).take(6).collect();
    Some((number, arguments))
}

/// A descriptor passed as an argument: the lower half of a register.
fn descriptor(argument: u64) -> i32 {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The path of an open descriptor; `None` for one without a path (a socket, a pipe).
fn opened(argument: u64) -> Option<PathBuf> {
    let path = read_link(format!("/proc/self/fd/{}", descriptor(argument))).ok()?;
    path.is_absolute().then_some(path)
}

fn named(directory: u64, address: u64) -> Option<PathBuf> {
    let name = string_at(address)?;
    let name = Path::new(&name);
    if name.is_absolute() || descriptor(directory) == CURRENT_DIRECTORY {
        return name.is_absolute().then(|| name.to_owned());
    }
    Some(opened(directory)?.join(name))
}

/// A C string in the memory of this process.
fn string_at(address: u64) -> Option<String> {
    let memory = File::open("/proc/self/mem").ok()?;
    let mut bytes = Vec::new();
    let mut piece = [0; 256];
    while bytes.len() < LONGEST_PATH {
        let at = address.checked_add(u64::try_from(bytes.len()).ok()?)?;
        // A read that reaches an unmapped page is short.
        let count = memory
            .read_at(&mut piece, at)
            .ok()
            .filter(|count| *count > 0)?;
        let read = piece.get(..count)?;
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            bytes.extend(read.get(..end)?);
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.extend(read);
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fd::AsRawFd;
    use std::io::{Read, Write};
    use std::sync::mpsc::sync_channel;
    use std::time::{Duration, Instant};

    /// The call of a thread, as soon as it waits for a file system.
    fn call_of(tid: i32) -> Syscall {
        let began = Instant::now();
        loop {
            if let Some(call) = Syscall::of(tid) {
                return call;
            }
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_path_of_a_blocked_open_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("a pipe whose other end nobody opens");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let (sender, receiver) = sync_channel(1);
        let opened = pipe.clone();
        let reader = std::thread::spawn(move || {
            sender
                .send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            let mut read = String::new();
            File::open(opened)
                .unwrap()
                .read_to_string(&mut read)
                .unwrap();
            read
        });
        let tid = receiver.recv().unwrap();
        let call = call_of(tid);
        assert_eq!((call.name, call.path.as_deref()), ("openat", Some(&*pipe)));
        assert!(!call.syncs());
        let mut writer = File::options().write(true).open(&pipe).unwrap();
        // It reads now, from a descriptor with the same path.
        let began = Instant::now();
        while Syscall::of(tid).is_none_or(|call| call.name != "read") {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(call_of(tid).path.as_deref(), Some(&*pipe));
        writer.write_all(b"x").unwrap();
        drop(writer);
        assert_eq!(reader.join().unwrap(), "x");
        assert_eq!(Syscall::of(tid), None);
    }

    #[test]
    fn names_are_found_in_their_directories() {
        let directory = tempfile::tempdir().unwrap();
        let open = File::open(directory.path()).unwrap();
        let fd = u64::try_from(open.as_raw_fd()).unwrap();
        let name = c"w000000001";
        let address = u64::try_from(name.as_ptr().addr()).unwrap();
        let whole = directory.path().join("w000000001");
        assert_eq!(named(fd, address), Some(whole));
        // The upper half of a register is ignored.
        assert_eq!(
            opened(fd | 0xffff_ffff_0000_0000).as_deref(),
            Some(directory.path())
        );
        let here = 0xffff_ff9c;
        assert_eq!(named(here, address), None);
        let absolute = c"/somewhere";
        let address = u64::try_from(absolute.as_ptr().addr()).unwrap();
        assert_eq!(named(here, address), Some(PathBuf::from("/somewhere")));
        assert_eq!(named(fd, 8), None);
    }

    #[test]
    fn proc_syscall_lines_parse() {
        let line =
            "257 0xffffff9c 0x7f88db79d000 0x80000 0x0 0x0 0x0 0x7ffc4e92a088 0x7f88db9192ad\n";
        let (number, arguments) = parsed(line).unwrap();
        assert_eq!((number, arguments.len()), (257, 6));
        assert_eq!(
            descriptor(arguments.first().copied().unwrap()),
            CURRENT_DIRECTORY
        );
        assert_eq!(parsed("running\n"), None);
        assert_eq!(parsed(""), None);
        assert_eq!(
            parsed("-1 0x7ffc4e92a088 0x7f88db9192ad"),
            Some((-1, vec![0x7ffc_4e92_a088, 0x7f88_db91_92ad]))
        );
    }
}
