//! A worker's position in its tree, for others to read if it stays there too long.
//!
//! The worker writes a directory and a name for each operation, in a few stores. A reader gets nothing while they are
//! written: the text is consistent only if the version is even, and the same before and after the read (a seqlock).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Bytes of one atomic word.
const WORD: usize = 8;
/// Room for a path and one name, each beginning at a word; longer ones are cut off.
const WORDS: usize = (4096 + 256) / WORD + 2;

/// Aligned so that a neighbour's stores do not slow a worker down (false sharing).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CurrentPath {
    version: AtomicU64,
    /// Length of the directory, which begins at the first word, and of the name, which begins at the word after it.
    directory: AtomicUsize,
    name: AtomicUsize,
    words: Box<[AtomicU64]>,
}

impl CurrentPath {
    pub(crate) fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            directory: AtomicUsize::new(0),
            name: AtomicUsize::new(0),
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Only the owning worker may call this.
    #[inline]
    pub(crate) fn go(&self, directory: &[u8], name: &[u8]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let directory = self.write(0, directory);
        let name = self.write(directory.div_ceil(WORD), name);
        self.directory.store(directory, Ordering::Relaxed);
        self.name.store(name, Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns how many bytes fitted.
    #[inline]
    fn write(&self, from: usize, bytes: &[u8]) -> usize {
        let words = self.words.get(from..).unwrap_or_default();
        let (whole, rest) = bytes.as_chunks::<WORD>();
        let mut last = [0; WORD];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        for (word, chunk) in words.iter().zip(whole.iter().chain([&last])) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        bytes.len().min(words.len() * WORD)
    }

    /// The path from the root; `None` while it changes. Any thread may call this.
    pub(crate) fn path(&self) -> Option<Vec<u8>> {
        let version = self.version.load(Ordering::Acquire);
        let directory = self.directory.load(Ordering::Relaxed);
        let name = self.name.load(Ordering::Relaxed);
        let mut path = self.read(0, directory);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(self.read(directory.div_ceil(WORD), name));
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(path)
    }

    fn read(&self, from: usize, bytes: usize) -> Vec<u8> {
        let words = self.words.get(from..).unwrap_or_default();
        let words = words.iter().take(bytes.div_ceil(WORD));
        let mut read: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        read.truncate(bytes);
        read
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_was_said_last_is_read() {
        let current_path = CurrentPath::new();
        for (directory, name, path) in [
            ("", "", ""),
            ("", "top", "top"),
            ("d1/d2", "", "d1/d2/"),
            ("d1/d2345", "f", "d1/d2345/f"),
            ("a/b/c/d/e/f", "12345678", "a/b/c/d/e/f/12345678"),
        ] {
            current_path.go(directory.as_bytes(), name.as_bytes());
            assert_eq!(current_path.path().unwrap(), path.as_bytes());
        }
        current_path.go(&[b'x'; 10_000], b"name");
        let mut cut = vec![b'x'; WORDS * WORD];
        cut.push(b'/');
        assert_eq!(current_path.path().unwrap(), cut);
    }

    #[test]
    fn nobody_reads_half_of_one_and_half_of_another() {
        let current_path = CurrentPath::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut step = 0_u8;
                while !stop.load(Ordering::Relaxed) {
                    step = step % 26 + 1;
                    let letter = b'a' - 1 + step;
                    let text = [letter; 40];
                    let length = usize::from(step);
                    current_path.go(text.get(..length).unwrap(), text.get(..length + 9).unwrap());
                }
            });
            let mut whole = 0;
            while whole < 2000 {
                let Some(path) = current_path.path().filter(|path| !path.is_empty()) else {
                    continue;
                };
                whole += 1;
                let first = *path.first().unwrap();
                let step = usize::from(first - b'a') + 1;
                assert_eq!(path.len(), 2 * step + 10, "{path:?}");
                assert!(path.iter().all(|byte| *byte == first || *byte == b'/'));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
