//! Lists the processes, and selects those to check.
//!
//! Reading the directory costs a fraction of opening a file of each process, so only a new process is checked at once.
//! A young one is checked again at the next scans, because it may change its name late or execute another program (a
//! shell that execs a daemon). All others are checked in turn, so that a late change of name is found within [`AGAIN`]
//! scans. The inode of `/proc/PID` changes with the process behind the pid, which makes a reused pid new. Keeps one
//! small entry per live process.

use std::ffi::CStr;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::proc_file::Buffer;

/// Number of scans that check a new process: its first 15 s at a scan every 5 s.
pub(crate) const YOUNG: u32 = 4;
/// Later, one scan in this many (30 s) checks it; the pid determines which one, so that the work spreads.
const AGAIN: u32 = 6;

#[derive(Debug)]
pub(crate) struct Scanner {
    directory: OwnedFd,
    space: Box<[MaybeUninit<u8>]>,
    /// Ascending by pid.
    present: Vec<Present>,
    before: Vec<Present>,
    /// Path of the file to read; kept to reuse its memory.
    path: String,
}

#[derive(Debug, Clone, Copy)]
struct Present {
    pid: i32,
    inode: u64,
    scans: u32,
}

/// A process to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) pid: i32,
    /// Number of scans that have seen it, including this one; 1 is a new process.
    pub(crate) scans: u32,
}

impl Scanner {
    pub(crate) fn open(proc_root: &Path) -> Result<Scanner, Errno> {
        let directory = rustix::fs::openat(
            CWD,
            proc_root,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let space = vec![MaybeUninit::uninit(); 64 << 10].into();
        Ok(Scanner {
            directory,
            space,
            present: Vec::new(),
            before: Vec::new(),
            path: String::new(),
        })
    }

    /// Puts the processes to check into `candidates`.
    pub(crate) fn scan(&mut self, candidates: &mut Vec<Candidate>) -> Result<(), Errno> {
        candidates.clear();
        std::mem::swap(&mut self.present, &mut self.before);
        self.present.clear();
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.directory, &mut self.space);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if let Some(pid) = pid(entry.file_name()) {
                self.present.push(Present {
                    pid,
                    inode: entry.ino(),
                    scans: 1,
                });
            }
        }
        // The kernel already lists pids in ascending order.
        self.present.sort_unstable_by_key(|process| process.pid);

        let mut before = self.before.iter().peekable();
        for process in &mut self.present {
            while before.next_if(|old| old.pid < process.pid).is_some() {}
            if let Some(old) =
                before.next_if(|old| old.pid == process.pid && old.inode == process.inode)
            {
                process.scans = old.scans.saturating_add(1);
            }
            if process.is_due() {
                candidates.push(Candidate {
                    pid: process.pid,
                    scans: process.scans,
                });
            }
        }
        Ok(())
    }

    /// Makes every process new again.
    pub(crate) fn forget(&mut self) {
        self.present.clear();
    }

    /// Opens and reads a file of a process.
    pub(crate) fn read<'buffer>(
        &mut self,
        pid: i32,
        name: &str,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], Errno> {
        self.path.clear();
        let _ = write!(self.path, "{pid}/{name}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::openat(&self.directory, self.path.as_str(), flags, Mode::empty())?;
        buffer.fill_once(&file)
    }

    /// The processes that the last scan saw, ascending by pid.
    pub(crate) fn listed(&self) -> impl Iterator<Item = i32> {
        self.present.iter().map(|process| process.pid)
    }

    /// Whether the last scan saw a process with this pid.
    pub(crate) fn saw(&self, pid: i32) -> bool {
        self.present
            .binary_search_by_key(&pid, |process| process.pid)
            .is_ok()
    }
}

impl Present {
    fn is_due(&self) -> bool {
        let round_robin = self.scans.wrapping_add(self.pid.unsigned_abs());
        self.scans <= YOUNG || round_robin.is_multiple_of(AGAIN)
    }
}

fn pid(name: &CStr) -> Option<i32> {
    let number = super::parse::number(name.to_bytes())?;
    i32::try_from(number).ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn scan(scanner: &mut Scanner) -> Vec<(i32, u32)> {
        let mut candidates = Vec::new();
        scanner.scan(&mut candidates).unwrap();
        candidates
            .iter()
            .map(|candidate| (candidate.pid, candidate.scans))
            .collect()
    }

    #[test]
    fn a_young_process_is_looked_at_at_once_and_an_old_one_in_its_turn() {
        let root = tempfile::tempdir().unwrap();
        for name in ["7", "12", "self", "0", "-3", "99999999999", "12x", "irq"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let mut scanner = Scanner::open(root.path()).unwrap();
        assert_eq!(scan(&mut scanner), [(7, 1), (12, 1)]);
        assert_eq!(scan(&mut scanner), [(7, 2), (12, 2)]);
        std::fs::create_dir(root.path().join("3")).unwrap();
        std::fs::remove_dir(root.path().join("12")).unwrap();
        assert_eq!(scan(&mut scanner), [(3, 1), (7, 3)]);
        assert_eq!(scan(&mut scanner), [(3, 2), (7, 4)]);
        assert!(scanner.saw(7) && !scanner.saw(12));

        let looks = (YOUNG + 1..1000)
            .filter(|_| scan(&mut scanner).iter().any(|(pid, _)| *pid == 7))
            .collect::<Vec<_>>();
        assert!(looks[0] <= YOUNG + AGAIN, "{looks:?}");
        assert!(
            looks.windows(2).all(|pair| pair[1] - pair[0] == AGAIN),
            "{looks:?}"
        );
    }

    #[test]
    fn the_turns_of_old_processes_are_spread() {
        let root = tempfile::tempdir().unwrap();
        for pid in 1..=60 {
            std::fs::create_dir(root.path().join(pid.to_string())).unwrap();
        }
        let mut scanner = Scanner::open(root.path()).unwrap();
        for _ in 0..YOUNG {
            assert_eq!(scan(&mut scanner).len(), 60);
        }
        let mut found = Vec::new();
        for _ in 0..AGAIN {
            let looks = scan(&mut scanner);
            assert_eq!(looks.len(), 10);
            found.extend(looks.iter().map(|(pid, _)| *pid));
        }
        found.sort_unstable();
        assert_eq!(found, (1..=60).collect::<Vec<_>>());
    }

    #[test]
    fn a_pid_used_again_is_new() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("7");
        std::fs::create_dir(&directory).unwrap();
        let mut scanner = Scanner::open(root.path()).unwrap();
        scan(&mut scanner);
        assert_eq!(scan(&mut scanner), [(7, 2)]);
        // Kept under another name, so that its inode is not reused for the next directory.
        std::fs::rename(&directory, root.path().join("old")).unwrap();
        std::fs::create_dir(&directory).unwrap();
        assert_eq!(scan(&mut scanner), [(7, 1)]);
    }

    #[test]
    fn sees_this_process() {
        let mut scanner = Scanner::open(Path::new("/proc")).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(scan(&mut scanner).contains(&(own, 1)));
        assert!(scanner.saw(own));
    }
}
