//! Reads compressed files as a stream: gzip, xz and zstd, recognized by their first bytes.
//!
//! It does not depend on archives. Memory is bounded, whatever window a file requests. Reading to the end verifies
//! every checksum.

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Limit on a decompressor's window: xz -9 needs 64 MiB, zstd --long 128 MiB.
const MAX_WINDOW_BYTES: u64 = 256 << 20;
const FILE_BUFFER_BYTES: usize = 256 << 10;

/// The decompressed content; an uncompressed file is returned as it is.
pub(super) fn decompressed(file: File) -> io::Result<Box<dyn Read + Send>> {
    let mut file = BufReader::with_capacity(FILE_BUFFER_BYTES, file);
    let head = file.fill_buf()?;
    Ok(match head {
        head if Gzip::begins(head) => Box::new(Members::of(Gzip::begin(file)?)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let most_kib = u32::try_from(MAX_WINDOW_BYTES >> 10).unwrap_or(u32::MAX);
            Box::new(XzReader::new_mem_limit(file, true, most_kib))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(Members::of(Zstd::begin(file)?)),
        _ => Box::new(file),
    })
}

/// One of the independent parts that a compressed file may consist of.
trait Member: Read + Sized {
    /// Whether these bytes start another member.
    fn begins(head: &[u8]) -> bool;

    fn begin(file: BufReader<File>) -> io::Result<Self>;

    /// Returns the rest of the file, after the member's last byte.
    fn end(self) -> io::Result<BufReader<File>>;
}

/// Consecutive members.
struct Members<M> {
    member: Option<M>,
}

impl<M: Member> Members<M> {
    fn of(first: M) -> Self {
        Self {
            member: Some(first),
        }
    }
}

impl<M: Member> Read for Members<M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else {
                return Ok(0);
            };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(mut file) = self.member.take().map(M::end).transpose()? else {
                return Ok(0);
            };
            if M::begins(file.fill_buf()?) {
                self.member = Some(M::begin(file)?);
            }
        }
    }
}

type Gzip = GzDecoder<BufReader<File>>;

/// Data after the last member, such as padding to a tape block, is ignored.
impl Member for Gzip {
    fn begins(head: &[u8]) -> bool {
        head.starts_with(&[0x1f, 0x8b])
    }

    fn begin(file: BufReader<File>) -> io::Result<Self> {
        Ok(Self::new(file))
    }

    fn end(self) -> io::Result<BufReader<File>> {
        Ok(self.into_inner())
    }
}

type Zstd = StreamingDecoder<BufReader<File>, FrameDecoder>;

/// Data after a frame must be another frame.
impl Member for Zstd {
    fn begins(head: &[u8]) -> bool {
        !head.is_empty()
    }

    fn begin(file: BufReader<File>) -> io::Result<Self> {
        Self::new_with_max_window_size(file, MAX_WINDOW_BYTES).map_err(io::Error::other)
    }

    fn end(self) -> io::Result<BufReader<File>> {
        let expected = self.decoder.get_checksum_from_data();
        if expected.is_some() && expected != self.decoder.get_calculated_checksum() {
            let why = "the checksum of a zstd frame is wrong";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(self.into_inner())
    }
}
