//! What a worker does and times.
//!
//! One list for all workloads, so that results compare: the text of each is its reference (its system calls, where its
//! clock starts and ends, what counts as bytes).

use std::fmt;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    Create,
    List,
    ListStat,
    Stat,
    Statfs,
    Read,
    Write,
    Append,
    Rename,
    Delete,
    Mkdir,
    Rmdir,
    Symlink,
    Link,
    Chmod,
    SetXattr,
    GetXattr,
    Copy,
    Putc,
    Rewrite,
    Getc,
    Fwrite,
    Fread,
    Seek,
    Open,
    Close,
    Fsync,
    Truncate,
    Ping,
    Request,
    Send,
    Receive,
    Lost,
    Reordered,
    Duplicate,
    Late,
    Jitter,
    Null,
}

impl Op {
    /// All kinds, in the order of their definition.
    pub const ALL: [Op; 38] = [
        Op::Create,
        Op::List,
        Op::ListStat,
        Op::Stat,
        Op::Statfs,
        Op::Read,
        Op::Write,
        Op::Append,
        Op::Rename,
        Op::Delete,
        Op::Mkdir,
        Op::Rmdir,
        Op::Symlink,
        Op::Link,
        Op::Chmod,
        Op::SetXattr,
        Op::GetXattr,
        Op::Copy,
        Op::Putc,
        Op::Rewrite,
        Op::Getc,
        Op::Fwrite,
        Op::Fread,
        Op::Seek,
        Op::Open,
        Op::Close,
        Op::Fsync,
        Op::Truncate,
        Op::Ping,
        Op::Request,
        Op::Send,
        Op::Receive,
        Op::Lost,
        Op::Reordered,
        Op::Duplicate,
        Op::Late,
        Op::Jitter,
        Op::Null,
    ];

    /// The word that the database, the wire and the commands use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::List => "list",
            Op::ListStat => "list-stat",
            Op::Stat => "stat",
            Op::Statfs => "statfs",
            Op::Read => "read",
            Op::Write => "write",
            Op::Append => "append",
            Op::Rename => "rename",
            Op::Delete => "delete",
            Op::Mkdir => "mkdir",
            Op::Rmdir => "rmdir",
            Op::Symlink => "symlink",
            Op::Link => "link",
            Op::Chmod => "chmod",
            Op::SetXattr => "setxattr",
            Op::GetXattr => "getxattr",
            Op::Copy => "copy",
            Op::Putc => "putc",
            Op::Rewrite => "rewrite",
            Op::Getc => "getc",
            Op::Fwrite => "fwrite",
            Op::Fread => "fread",
            Op::Seek => "seek",
            Op::Open => "open",
            Op::Close => "close",
            Op::Fsync => "fsync",
            Op::Truncate => "truncate",
            Op::Ping => "ping",
            Op::Request => "request",
            Op::Send => "send",
            Op::Receive => "receive",
            Op::Lost => "lost",
            Op::Reordered => "reordered",
            Op::Duplicate => "duplicate",
            Op::Late => "late",
            Op::Jitter => "jitter",
            Op::Null => "null",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.as_str() == name)
    }

    /// What is timed and what counts as bytes.
    pub const fn doc(self) -> &'static str {
        match self {
            Op::Create => {
                "One new file: open(O_CREAT|O_EXCL), write until all is written, fsync where asked, close. Bytes: the file's content."
            }
            Op::List => {
                "One directory to its end: open, getdents until it returns nothing, close. No bytes."
            }
            Op::ListStat => {
                "One directory to its end, as `list`, with one stat call on each name between. No bytes."
            }
            Op::Stat => "One name: one stat call. No bytes.",
            Op::Statfs => "The target is asked how full it is: one fstatvfs call. No bytes.",
            Op::Read => {
                "In `io`, `fill` and `replay`, one block: pread until the block is full. In `files` and `tree`, one file: open, read to its end, close. Bytes: what was read."
            }
            Op::Write => {
                "One block: pwrite until the block is written, and the fsync that falls due after it. Bytes: the block."
            }
            Op::Append => {
                "More at the end of one file: open(O_APPEND), fstat, write until all is written, fsync where asked, close. Bytes: what was added."
            }
            Op::Rename => "One name: one rename call. No bytes.",
            Op::Delete => "One name: one unlink call. No bytes.",
            Op::Mkdir => "One new directory: one mkdir call. No bytes.",
            Op::Rmdir => "One empty directory: one rmdir call. No bytes.",
            Op::Symlink => "One new symbolic link: one symlink call. No bytes.",
            Op::Link => "One more name for a file: one link call. No bytes.",
            Op::Chmod => {
                "One file: one fchmodat2 call that follows no symlink (before Linux 6.6: open, fchmod, close). No bytes."
            }
            Op::SetXattr => {
                "One extended attribute of one file: one setxattrat call that follows no symlink (before Linux 6.13: lsetxattr by the directory's /proc/self/fd). Bytes: the attribute's value."
            }
            Op::GetXattr => {
                "One extended attribute of one file: one getxattrat call that follows no symlink (before Linux 6.13: lgetxattr by the directory's /proc/self/fd). Bytes: the attribute's value."
            }
            Op::Copy => {
                "One whole file: open both, copy_file_range until the end (read and write where the kernel cannot), fsync where asked, close both. Bytes: the file's content, once."
            }
            Op::Putc => {
                "One buffer's worth of bytes, each put into the buffer by a function call, then the write of the buffer; the last one of a file with its fsync where asked. Bytes: those of the buffer."
            }
            Op::Rewrite => {
                "One buffer's worth of bytes: read, each byte taken and put back changed by a function call (or one byte changed in place), lseek, write. Bytes: those of the buffer, once."
            }
            Op::Getc => {
                "One buffer's worth of bytes: the read that fills the buffer, then each byte taken by a function call. Bytes: those of the buffer."
            }
            Op::Fwrite => {
                "One record through the buffer, or as many as fill it, with the writes of the buffer that fall due; the last one of a file with the rest of the buffer and its fsync where asked. Bytes: the records."
            }
            Op::Fread => {
                "One record through the buffer, or as many as fill it, with the reads that fill the buffer. Bytes: the records."
            }
            Op::Seek => {
                "One random place: lseek, read of a record; where it is rewritten, lseek back and write. Bytes: what was read, and what was written."
            }
            Op::Open => {
                "One file opened, or made: one open call, and an fstat where it was there. No bytes."
            }
            Op::Close => "One open file: one close call. No bytes.",
            Op::Fsync => "One open file: one fsync call. No bytes.",
            Op::Truncate => "One open file: one ftruncate call. No bytes.",
            Op::Ping => {
                "One round trip: a small message is sent and an answer of its size received. Bytes: the message, once."
            }
            Op::Request => "One request sent whole and its response received whole. Bytes: both.",
            Op::Send => {
                "One block handed to the socket whole; the last one ends when the receiving end has all. Bytes: what the peer's kernel has newly acknowledged. With UDP, one datagram handed to the kernel; datagrams of one system call each have the time of that call. Bytes: the datagram's payload."
            }
            Op::Receive => {
                "One UDP datagram that reached the receiving end, counted there, the first time that it came. It has no duration. Bytes: the datagram's payload."
            }
            Op::Lost => {
                "In `udp-stream`, one datagram that did not reach the receiving end, or not within 0.5 s after a later one. In `udp-request`, one request without a response within `timeout`. It has no duration. No bytes."
            }
            Op::Reordered => {
                "One UDP datagram that came after a later one, counted at the receiving end; it is also counted by `receive`. It has no duration. No bytes."
            }
            Op::Duplicate => {
                "One UDP datagram that had come before, counted at the receiving end and by `receive` only once. It has no duration. No bytes."
            }
            Op::Late => {
                "One UDP datagram that came after it had been counted by `lost`; `receive` does not count it. It has no duration. No bytes."
            }
            Op::Jitter => {
                "One reading of the interarrival jitter (RFC 3550, 6.4.1) of one stream at the receiving end, ten in a second; its duration is the jitter. No bytes."
            }
            Op::Null => "Nothing: the two clock readings and the recording itself. No bytes.",
        }
    }

    /// Whether it moves bytes that count.
    pub const fn has_bytes(self) -> bool {
        match self {
            Op::Create
            | Op::Read
            | Op::Write
            | Op::Append
            | Op::SetXattr
            | Op::GetXattr
            | Op::Copy
            | Op::Putc
            | Op::Rewrite
            | Op::Getc
            | Op::Fwrite
            | Op::Fread
            | Op::Seek
            | Op::Ping
            | Op::Request
            | Op::Send
            | Op::Receive => true,
            Op::List
            | Op::ListStat
            | Op::Stat
            | Op::Statfs
            | Op::Rename
            | Op::Delete
            | Op::Mkdir
            | Op::Rmdir
            | Op::Symlink
            | Op::Link
            | Op::Chmod
            | Op::Open
            | Op::Close
            | Op::Fsync
            | Op::Truncate
            | Op::Lost
            | Op::Reordered
            | Op::Duplicate
            | Op::Late
            | Op::Jitter
            | Op::Null => false,
        }
    }

    /// Whether the remote end counted this operation. It follows no schedule.
    pub const fn is_observed(self) -> bool {
        matches!(
            self,
            Op::Receive | Op::Lost | Op::Reordered | Op::Duplicate | Op::Late | Op::Jitter
        )
    }

    pub(crate) const fn ordinal(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_ordinals_follow_the_list() {
        for (position, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(Op::parse(op.as_str()), Some(op));
            assert_eq!(op.ordinal(), position);
            assert!(op.doc().ends_with('.'));
            assert_eq!(op.has_bytes(), !op.doc().contains("No bytes."), "{op}");
        }
        assert_eq!(Op::parse("Create"), None);
    }
}
