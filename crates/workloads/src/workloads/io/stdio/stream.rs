//! A file behind a buffer, like stdio: bytes go in and out by one call each, records in pieces.
//!
//! The file is read and written at its own position, as stdio does. The per-byte calls are never inlined, because the
//! modelled programs call a library for each byte. Invariant: between two operations the buffer is empty, holds bytes
//! not written yet, or holds bytes read ahead, never a mixture. A change between reading and writing needs a flush or a
//! seek.

use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

#[derive(Debug)]
pub(super) struct StdioStream {
    file: OwnedFd,
    buffer: Vec<u8>,
    /// Index of the next byte in the buffer.
    at: usize,
    /// Bytes in the buffer that were read.
    have: usize,
    /// Position of the file itself; the logical position is ahead of it when writing and behind it when reading.
    pub position: u64,
    /// Receives the position of each call before it is made.
    pub marker: Marker,
}

/// The number of a stream's only file.
const FILE: u64 = 0;

impl StdioStream {
    pub(super) fn new(file: OwnedFd, buffer_bytes: usize) -> Self {
        Self {
            file,
            buffer: vec![1; buffer_bytes],
            at: 0,
            have: 0,
            position: 0,
            marker: Marker::default(),
        }
    }

    /// Puts one byte; flushes a full buffer first.
    #[inline(never)]
    pub(super) fn put(&mut self, byte: u8) -> Result<(), CallError> {
        if self.at == self.buffer.len() {
            self.flush()?;
        }
        if let Some(slot) = self.buffer.get_mut(self.at) {
            *slot = byte;
            self.at += 1;
        }
        Ok(())
    }

    /// Takes one byte; fills an empty buffer first. The end of the file is an error (NODATA).
    #[inline(never)]
    pub(super) fn take(&mut self) -> Result<u8, CallError> {
        if self.at == self.have {
            self.fill()?;
        }
        let byte = self.buffer.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        Ok(byte)
    }

    /// Writes a record: partial buffers are buffered, whole buffers bypass the buffer.
    pub(super) fn write(&mut self, mut record: &[u8]) -> Result<(), CallError> {
        while !record.is_empty() {
            if self.at == 0 && record.len() >= self.buffer.len() {
                let whole = record.len() - record.len() % self.buffer.len();
                let (direct, rest) = record.split_at(whole);
                self.marker.at(FILE, self.position);
                calls::write_all(self.file.as_fd(), direct, &mut self.position)?;
                record = rest;
                continue;
            }
            let space = self.buffer.get_mut(self.at..).unwrap_or_default();
            let count = space.len().min(record.len());
            let (now, rest) = record.split_at(count);
            if let Some(space) = space.get_mut(..count) {
                space.copy_from_slice(now);
            }
            self.at += count;
            record = rest;
            if self.at == self.buffer.len() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Reads a record: buffered bytes come first, whole buffers bypass the buffer.
    pub(super) fn read(&mut self, record: &mut [u8]) -> Result<(), CallError> {
        let mut filled = 0;
        while let Some(rest) = record.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            if self.at == self.have && rest.len() >= self.buffer.len() {
                let whole = rest.len() - rest.len() % self.buffer.len();
                let direct = rest.get_mut(..whole).unwrap_or_default();
                self.marker.at(FILE, self.position);
                calls::read_full(self.file.as_fd(), direct, self.position)?;
                self.position += u64::try_from(whole).unwrap_or(0);
                filled += whole;
                continue;
            }
            if self.at == self.have {
                self.fill()?;
            }
            let ready = self.buffer.get(self.at..self.have).unwrap_or_default();
            let count = ready.len().min(rest.len());
            if let (Some(to), Some(from)) = (rest.get_mut(..count), ready.get(..count)) {
                to.copy_from_slice(from);
            }
            self.at += count;
            filled += count;
        }
        Ok(())
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> Result<(), CallError> {
        self.marker.at(FILE, self.position);
        let put = self.buffer.get(..self.at).unwrap_or_default();
        let result = calls::write_all(self.file.as_fd(), put, &mut self.position);
        // Bytes that could not be written are lost, as with stdio.
        (self.at, self.have) = (0, 0);
        result
    }

    fn fill(&mut self) -> Result<(), CallError> {
        (self.at, self.have) = (0, 0);
        self.marker.at(FILE, self.position);
        loop {
            match rustix::io::read(&self.file, &mut *self.buffer) {
                Ok(0) => return Err(CallError::at(Errno::NODATA, self.position)),
                Ok(count) => {
                    self.have = count;
                    self.position += u64::try_from(count).unwrap_or(0);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(CallError::at(errno, self.position)),
            }
        }
    }

    /// Flushes buffered writes, drops bytes read ahead, and seeks.
    pub(super) fn seek(&mut self, place: u64) -> Result<(), CallError> {
        if self.have == 0 && self.at > 0 {
            self.flush()?;
        }
        (self.at, self.have) = (0, 0);
        self.marker.at(FILE, place);
        rustix::fs::seek(&self.file, SeekFrom::Start(place))
            .map_err(|errno| CallError::at(errno, place))?;
        self.position = place;
        Ok(())
    }

    /// Reads without the buffer at `place`, which must be the file's position.
    pub(super) fn read_past(&mut self, record: &mut [u8], place: u64) -> Result<(), CallError> {
        calls::read_full(self.file.as_fd(), record, place)
    }

    /// Writes without the buffer.
    pub(super) fn write_past(&mut self, record: &[u8]) -> Result<(), CallError> {
        calls::write_all(self.file.as_fd(), record, &mut self.position)
    }

    pub(super) fn sync(&self) -> Result<(), CallError> {
        rustix::fs::fsync(&self.file).map_err(|errno| CallError::at(errno, self.position))
    }

    /// Reads up to one buffer, copies its bytes to `read`, replaces them by those of `new`, and writes them back in
    /// place. Both have the same length.
    pub(super) fn rewrite(&mut self, new: &[u8], read: &mut [u8]) -> Result<(), CallError> {
        let place = self.position;
        self.fill_with(read.len())?;
        for (at, (byte, new)) in read.iter_mut().zip(new).enumerate() {
            *byte = self.take()?;
            self.at = at;
            self.put(*new)?;
        }
        self.write_back(place)
    }

    /// Reads up to one buffer, changes one byte, at another index from place to place, and writes the buffer back in
    /// place.
    pub(super) fn rewrite_one(&mut self, bytes: usize) -> Result<(), CallError> {
        let place = self.position;
        self.fill_with(bytes)?;
        let length = u64::try_from(bytes.max(1)).unwrap_or(1);
        let changed = usize::try_from(place / length % length).unwrap_or(0);
        if let Some(byte) = self.buffer.get_mut(changed) {
            *byte ^= 0x55;
        }
        self.at = bytes;
        self.write_back(place)
    }

    /// Reads exactly `bytes` from the file's position.
    fn fill_with(&mut self, bytes: usize) -> Result<(), CallError> {
        let buffer = self.buffer.get_mut(..bytes).unwrap_or_default();
        self.marker.at(FILE, self.position);
        calls::read_full(self.file.as_fd(), buffer, self.position)?;
        (self.at, self.have) = (0, bytes);
        Ok(())
    }

    /// Writes the buffer back to the place that it was read from.
    fn write_back(&mut self, place: u64) -> Result<(), CallError> {
        rustix::fs::seek(&self.file, SeekFrom::Start(place))
            .map_err(|errno| CallError::at(errno, place))?;
        self.position = place;
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn what_goes_through_the_buffer_is_what_was_put() {
        const BYTES: usize = 90_001;
        let mut put = vec![0; BYTES];
        Random::new(1).fill(&mut put);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        // Records smaller and larger than the buffer, and some that do not divide the file.
        for (record, buffer) in [
            (1, 64),
            (1000, 4096),
            (4096, 4096),
            (10_000, 4096),
            (70_000, 512),
        ] {
            let opened = |file: File| StdioStream::new(file.into(), buffer);
            let mut stream = opened(File::create(&path).unwrap());
            for record in put.chunks(record) {
                stream.write(record).unwrap();
            }
            stream.flush().unwrap();
            assert_eq!(fs::read(&path).unwrap(), put, "{record} {buffer}");
            let mut stream = opened(File::create(&path).unwrap());
            for byte in &put {
                stream.put(*byte).unwrap();
            }
            // A seek flushes what was put.
            stream.seek(0).unwrap();
            assert_eq!(fs::read(&path).unwrap(), put, "{record} {buffer}");
            let mut stream = opened(File::open(&path).unwrap());
            let mut read = vec![0; BYTES];
            for record in read.chunks_mut(record) {
                stream.read(record).unwrap();
            }
            assert_eq!(read, put, "{record} {buffer}");
            stream.seek(0).unwrap();
            let taken: Vec<u8> = (0..BYTES).map(|_| stream.take().unwrap()).collect();
            assert_eq!(taken, put, "{record} {buffer}");
            assert_eq!(stream.take().unwrap_err().errno, Errno::NODATA);
        }
    }
}
