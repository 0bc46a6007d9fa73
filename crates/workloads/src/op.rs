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
    Stat,
    Read,
    Write,
    Rename,
    Delete,
    Copy,
    Ping,
    Send,
    Null,
}

impl Op {
    /// All kinds, in the order of their definition.
    pub const ALL: [Op; 11] = [
        Op::Create,
        Op::List,
        Op::Stat,
        Op::Read,
        Op::Write,
        Op::Rename,
        Op::Delete,
        Op::Copy,
        Op::Ping,
        Op::Send,
        Op::Null,
    ];

    /// The word that the database, the wire and the commands use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::List => "list",
            Op::Stat => "stat",
            Op::Read => "read",
            Op::Write => "write",
            Op::Rename => "rename",
            Op::Delete => "delete",
            Op::Copy => "copy",
            Op::Ping => "ping",
            Op::Send => "send",
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
            Op::Stat => "One name: one stat call. No bytes.",
            Op::Read => {
                "In `io`, one block: pread until the block is full. In `files`, one file: open, read to its end, close. Bytes: what was read."
            }
            Op::Write => {
                "One block: pwrite until the block is written, and the fsync that falls due after it. Bytes: the block."
            }
            Op::Rename => "One name: one rename call. No bytes.",
            Op::Delete => "One name: one unlink call. No bytes.",
            Op::Copy => {
                "One whole file: open both, copy_file_range until the end (read and write where the kernel cannot), fsync where asked, close both. Bytes: the file's content, once."
            }
            Op::Ping => {
                "One round trip: a small message is sent and its echo received. Bytes: the message, once."
            }
            Op::Send => {
                "One block handed to the socket whole; the last one ends when the receiving end has all. Bytes: what the peer's kernel has newly acknowledged."
            }
            Op::Null => "Nothing: the two clock readings and the recording itself. No bytes.",
        }
    }

    /// Whether it moves bytes that count.
    pub const fn has_bytes(self) -> bool {
        match self {
            Op::Create | Op::Read | Op::Write | Op::Copy | Op::Ping | Op::Send => true,
            Op::List | Op::Stat | Op::Rename | Op::Delete | Op::Null => false,
        }
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
