//! The operations that a worker does and times.
//!
//! One table for all workloads, so that results are comparable. Each operation's text is its reference: its system
//! calls, where its clock starts and ends, which bytes count.

use std::fmt;

/// Direction of an operation's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// It moves no bytes.
    Nothing,
    FromTarget,
    ToTarget,
    /// Depends on the mode, or neither end is the target.
    Either,
}

/// Which end counts an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountedBy {
    Worker,
    /// The remote end; it follows no schedule.
    OtherEnd,
}

#[derive(Debug, Clone, Copy)]
struct Facts {
    name: &'static str,
    moves: Moves,
    counted_by: CountedBy,
    doc: &'static str,
}

/// Declares the kinds: variant, name, direction of the bytes, who counts it, and which time and bytes count.
macro_rules! operations {
    ($($op:ident $name:literal $moves:ident $counted_by:ident $doc:literal;)*) => {
        /// A kind of operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Op {
            $(#[doc = $doc] $op,)*
        }

        impl Op {
            /// All kinds, in the order of their definition.
            pub const ALL: [Op; [$($name),*].len()] = [$(Op::$op),*];

            const fn facts(self) -> Facts {
                match self {
                    $(Op::$op => Facts {
                        name: $name,
                        moves: Moves::$moves,
                        counted_by: CountedBy::$counted_by,
                        doc: $doc,
                    },)*
                }
            }
        }
    };
}

operations! {
    Create "create" ToTarget Worker
        "One new file: open(O_CREAT|O_EXCL), write until all is written, fsync if set, close. Bytes: the file's \
         content.";
    List "list" Nothing Worker
        "One directory to its end: open, getdents until it returns nothing, close. No bytes.";
    ListStat "list-stat" Nothing Worker
        "One directory to its end, as `list`, with one stat call for each name. No bytes.";
    Stat "stat" Nothing Worker
        "One name: one stat call; in `objects`, one rados_aio_stat. No bytes.";
    Statfs "statfs" Nothing Worker
        "One query of the target's free space: one fstatvfs call. No bytes.";
    Read "read" FromTarget Worker
        "In `io`, `fill` and `replay`, one block: pread until the block is full; of an RBD image, rbd_aio_read until \
         its callback. In `files` and `tree`, one file: open, read to its end, close. In `objects`, one object or \
         block of it: rados_aio_read until its callback. Bytes: those read.";
    Write "write" ToTarget Worker
        "One block: pwrite until the block is written, and the fsync that is due after it; of an RBD image, \
         rbd_aio_write until its callback, and the rbd_aio_flush. In `objects`, one object or block of it: \
         rados_aio_write_full or rados_aio_write until its callback. Bytes: the block.";
    Append "append" ToTarget Worker
        "One append to a file: open(O_APPEND), pwrite until all is written, fsync if set, close. Bytes: those \
         appended.";
    Rename "rename" Nothing Worker
        "One name: one rename call. No bytes.";
    Delete "delete" Nothing Worker
        "One name: one unlink call; in `objects`, one rados_aio_remove. No bytes.";
    Mkdir "mkdir" Nothing Worker
        "One new directory: one mkdir call. No bytes.";
    Rmdir "rmdir" Nothing Worker
        "One empty directory: one rmdir call. No bytes.";
    Symlink "symlink" Nothing Worker
        "One new symbolic link: one symlink call. No bytes.";
    Link "link" Nothing Worker
        "One hard link to a file: one link call. No bytes.";
    Chmod "chmod" Nothing Worker
        "One file: one fchmodat2 call that follows no symlink (before Linux 6.6: open, fchmod, close). No bytes.";
    SetXattr "setxattr" Either Worker
        "One extended attribute of one file: one setxattrat call that follows no symlink (before Linux 6.13: \
         lsetxattr by the directory's /proc/self/fd). Bytes: the attribute's value.";
    GetXattr "getxattr" Either Worker
        "One extended attribute of one file: one getxattrat call that follows no symlink (before Linux 6.13: \
         lgetxattr by the directory's /proc/self/fd). Bytes: the attribute's value.";
    Omap "omap" ToTarget Worker
        "Keys of one object's map: one rados_aio_write_op_operate that sets them. Bytes: the values.";
    Copy "copy" Either Worker
        "One whole file: open both, copy_file_range until the end (read and write if the kernel cannot), fsync if set, \
         close both. Bytes: the file's content, once.";
    Putc "putc" ToTarget Worker
        "One buffer's worth of bytes, each put into the buffer by a function call, then the write of the buffer. \
         Bytes: those of the buffer.";
    Rewrite "rewrite" ToTarget Worker
        "One buffer's worth of bytes: read, each byte taken and put back changed by a function call (or one byte \
         changed in place), lseek, write. Bytes: those of the buffer, once.";
    Getc "getc" FromTarget Worker
        "One buffer's worth of bytes: the read that fills the buffer, then each byte taken by a function call. \
         Bytes: those of the buffer.";
    Fwrite "fwrite" ToTarget Worker
        "One record through the buffer, or as many as fill it, with the writes of the buffer that become due. Bytes: \
         the records.";
    Fread "fread" FromTarget Worker
        "One record through the buffer, or as many as fill it, with the reads that fill the buffer. Bytes: the \
         records.";
    Seek "seek" FromTarget Worker
        "One random offset: lseek, read of a record; if it is rewritten, lseek back and write. Bytes: those read and \
         written.";
    Open "open" Nothing Worker
        "One file opened or created: one open call, and an fstat if it existed. No bytes.";
    Close "close" Nothing Worker
        "One open file: one close call. No bytes.";
    Fsync "fsync" Nothing Worker
        "One open file: one fsync call. No bytes.";
    Truncate "truncate" Nothing Worker
        "One open file: one ftruncate call. No bytes.";
    Ping "ping" Either Worker
        "One round trip: a small message is sent and an answer of its size received. Bytes: the message, once.";
    Request "request" Either Worker
        "One complete request sent and its complete response received. Bytes: both.";
    Send "send" Either Worker
        "One complete block passed to the socket; the last one ends when the receiver has all. Bytes: those newly \
         acknowledged by the peer's kernel. With UDP, one datagram passed to the kernel; each datagram of one system \
         call has the time of that call. Bytes: the datagram's payload.";
    Receive "receive" Either OtherEnd
        "One UDP datagram that arrived at the receiver for the first time, counted there. It has no duration. Bytes: \
         the datagram's payload.";
    Lost "lost" Nothing OtherEnd
        "In `udp-stream`, one datagram that did not arrive at the receiver, or not within 0.5 s after a later one. In \
         `udp-request`, one request without a response within `timeout`. It has no duration. No bytes.";
    Reordered "reordered" Nothing OtherEnd
        "One UDP datagram that arrived after a later one, counted at the receiver; `receive` also counts it. It has no \
         duration. No bytes.";
    Duplicate "duplicate" Nothing OtherEnd
        "One UDP datagram that had arrived before, counted at the receiver; `receive` counts it only once. It has no \
         duration. No bytes.";
    Late "late" Nothing OtherEnd
        "One UDP datagram that arrived after `lost` had counted it; `receive` does not count it. It has no duration. \
         No bytes.";
    Jitter "jitter" Nothing OtherEnd
        "One reading of the interarrival jitter (RFC 3550, 6.4.1) of one stream at the receiver, ten per second; its \
         duration is the jitter. No bytes.";
    Null "null" Nothing Worker
        "Nothing: the two clock readings and the recording itself. No bytes.";
}

impl Op {
    /// The name in the database, on the wire and in commands.
    pub const fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// The kind with that name.
    pub fn parse(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.as_str() == name)
    }

    /// Which time and which bytes count.
    pub const fn doc(self) -> &'static str {
        self.facts().doc
    }

    /// Direction of its bytes.
    pub const fn moves(self) -> Moves {
        self.facts().moves
    }

    /// Whether it moves bytes that count.
    pub const fn has_bytes(self) -> bool {
        !matches!(self.moves(), Moves::Nothing)
    }

    /// Whether the kind with that name is work of a load. What the remote end observed is not, whatever it counts;
    /// a name of another version is.
    pub fn is_work(name: &str) -> bool {
        Op::parse(name).is_none_or(|op| !op.is_observed())
    }

    /// The kinds that are no work of a load.
    pub fn observed() -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(|op| op.is_observed())
    }

    /// Whether the remote end counted this operation. It follows no schedule.
    pub const fn is_observed(self) -> bool {
        matches!(self.facts().counted_by, CountedBy::OtherEnd)
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
