//! The hanging call of each mode, and the operation reported for it.

use super::bed::{Group, Scratch};
use crate::support::fuse_fs::Op;

pub struct Case {
    pub phase: &'static str,
    pub op: Op,
    /// A part of the path, and the number of calls on such a path that pass first.
    pub path: &'static str,
    pub after: u64,
    /// The operation in the report.
    pub told: &'static str,
    pub place: Place,
}

/// The location in the report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The call's path and its offset.
    Offset,
    /// The source path of a copy, on the target, and the offset; the call has the name of the copy.
    Source,
    /// Its path, and one of the four offsets that were in flight together: the report names the oldest without a known
    /// end, and the kernel decides which one reached the file system.
    InFlight,
    /// Its path, and the offset of the last of its own four blocks of 8 KiB.
    Fourth,
    /// Its path; the operation has no offset.
    Name,
    /// The call belongs to the preparation of an operation: the operation's path lies below the path of the call.
    Beneath,
}

macro_rules! cases {
    ($($phase:literal: $op:ident $path:literal after $after:literal, $told:literal $place:ident;)*) => {
        &[$(Case {
            phase: $phase,
            op: Op::$op,
            path: $path,
            after: $after,
            told: $told,
            place: Place::$place,
        }),*]
    };
}

const FILES: &str = "workload = \"files\"\nfiles = 30\nsize = \"20k\"\nbs = \"4k\"\ndirs = 7\n";
const NAMES: &str = "workload = \"files\"\nfiles = 30\nsize = 100\ndirs = 7\n";
/// More directories than a worker of an agent with a limit of 400 open files may keep open.
const DIRECTORIES: &str =
    "workload = \"files\"\nfiles = 240\nsize = 100\ndirs = 1\nnumjobs = 8\nmodes = [\"stat\"]\n";
const IO: &str = "workload = \"io\"\nsize = \"256k\"\nbs = \"8k\"\nnumjobs = 2\n";
const STDIO: &str = "workload = \"io\"\nsize = \"200k\"\nnumjobs = 2\n";
const TREE: &str =
    "workload = \"tree\"\nfiles = 60\ndirectories = 9\nsize = \"20k\"\nbs = \"4k\"\nnumjobs = 2\n";
const FILL: &str = "workload = \"fill\"\namount = \"5m\"\nfile-size = \"1m\"\nbs = \"128k\"\n";
const DIRECT_COPY: &str =
    "workload = \"copy\"\nfiles = 4\nsize = \"8m\"\nway = \"direct\"\nbs = \"1m\"\n";
const COPY: &str =
    "workload = \"copy\"\nfiles = 4\nsize = \"8m\"\nway = \"read-write\"\nbs = \"1m\"\n";
const KERNEL_COPY: &str =
    "workload = \"copy\"\nfiles = 2\nsize = \"24m\"\nway = \"copy-file-range\"\n";
const REPLAY: &str = "workload = \"replay\"\noperations = \"\"\"\n- mkdir logs\n- create logs/a\n- write logs/a 0 5000\n\
                      - write logs/a 9000 100\n- close logs/a\n- open old\n- read old 300 700\n- close old\n\
                      - delete logs/a\n- rmdir logs\n\"\"\"\n";
/// The file stays open to the end.
const LEFT_OPEN: &str =
    "workload = \"replay\"\noperations = \"\"\"\n- create a\n- write a 0 5000\n\"\"\"\n";

pub const GROUPS: &[Group<Case>] = &[
    Group {
        scratch: Scratch::Apart,
        common: FILES,
        cases: cases! {
            "modes = [\"create\"]": Write "/c0" after 33, "create" Offset;
            "modes = [\"read\"]": Read "/c0" after 42, "read" Offset;
            "modes = [\"read\"]\nverify = true\norder = \"random\"": Read "/c0" after 42, "read" Offset;
            "modes = [\"append\"]\nappend = \"12k\"": Write "/c0" after 152, "append" Offset;
            "modes = [\"delete\"]": Unlink "/c0" after 11, "delete" Name;
            "modes = [\"list\"]": Readdir "/d0" after 5, "list" Name;
            // Before the load: a directory, and the data.
            "modes = [\"create\"]": Mkdir "/d0" after 2, "prepare" Name;
            "modes = [\"read\"]": Write "/c0" after 17, "prepare" Name;
            // After it: the note of the result is written.
            "modes = [\"create\"]": Rename "state" after 3, "finish" Name;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: NAMES,
        cases: cases! {
            // Each of the thirty files is looked up when it is laid out.
            "modes = [\"stat\"]": Lookup "/c0" after 41, "stat" Name;
            "modes = [\"list-stat\"]": Readdir "/d0" after 5, "list-stat" Name;
            "modes = [\"create\"]\nfsync = true": Fsync "/c0" after 11, "create" Offset;
            "modes = [\"read\"]": Open "/c0" after 11, "read" Name;
            "modes = [\"rename\"]": Rename "/c0" after 11, "rename" Name;
            "modes = [\"chmod\"]": Setattr "/c0" after 11, "chmod" Name;
            "modes = [\"setxattr\"]": Setxattr "/c0" after 11, "setxattr" Name;
            "modes = [\"getxattr\"]": Getxattr "/c0" after 11, "getxattr" Name;
            "modes = [\"symlink\"]": Symlink "/s0" after 11, "symlink" Name;
            "modes = [\"mkdir\"]": Mkdir "/m0" after 11, "mkdir" Name;
            "modes = [\"rmdir\"]": Rmdir "/m0" after 11, "rmdir" Name;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: DIRECT_COPY,
        cases: cases! {
            "modes = [\"in\"]": Write "/c0" after 17, "copy" Offset;
            "modes = [\"out\"]": Read "/c0" after 12, "copy" Offset;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: DIRECTORIES,
        cases: cases! {
            "": Opendir "/w000000003/d000000005" after 1, "stat" Beneath;
            "order = \"random\"": Opendir "/w000000003/d000000005" after 1, "stat" Beneath;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: IO,
        cases: cases! {
            "modes = [\"write\"]": Write ".dat" after 17, "write" Offset;
            "modes = [\"randread\"]": Read ".dat" after 17, "read" Offset;
            "modes = [\"randread\"]\niodepth = 4": Read ".dat" after 17, "read" InFlight;
            "modes = [\"write\"]\niodepth = 4": Write ".dat" after 17, "write" InFlight;
            // During the write after which it falls due.
            "modes = [\"write\"]\nfsync = 4": Fsync ".dat" after 5, "write" Fourth;
            "modes = [\"write\"]\nfsync = 4\niodepth = 4": Fsync ".dat" after 5, "write" Fourth;
            // After the last operation: the sync of its data, and the close.
            "modes = [\"write\"]\nend_fsync = true": Fsync ".dat" after 1, "write" Name;
            "modes = [\"write\"]\nend_fsync = true\niodepth = 4": Fsync ".dat" after 1, "write" Name;
            "modes = [\"write\"]": Flush ".dat" after 1, "close" Name;
            "modes = [\"write\"]\niodepth = 4": Flush ".dat" after 1, "close" Name;
            // Before the load: the data, and the file that a worker opens.
            "modes = [\"read\"]": Write ".dat" after 0, "prepare" Offset;
            "modes = [\"read\"]": Open ".dat" after 0, "prepare" Name;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: STDIO,
        cases: cases! {
            "modes = [\"putc\"]": Write "/w" after 17, "putc" Offset;
            "modes = [\"getc\"]": Read "/w" after 17, "getc" Offset;
            "modes = [\"rmw\"]": Read "/w" after 17, "rewrite" Offset;
            "modes = [\"fwrite\"]\nbs = 5000": Write "/w" after 17, "fwrite" Offset;
            "modes = [\"fread\"]\nbs = 5000": Read "/w" after 17, "fread" Offset;
            "modes = [\"seek\"]\nbs = 5000\nseeks = 60": Read "/w" after 17, "seek" Offset;
            "modes = [\"putc\"]": Flush "/w" after 1, "close" Name;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: TREE,
        cases: cases! {
            "modes = [\"unpack\"]": Write "/f0" after 33, "create" Offset;
            "modes = [\"unpack\"]": Mkdir "/d0" after 3, "mkdir" Name;
            "modes = [\"read\"]": Read "/f0" after 42, "read" Offset;
            "modes = [\"read\"]\nverify = true": Read "/f0" after 42, "read" Offset;
            "modes = [\"walk\"]": Lookup "/f0" after 140, "stat" Name;
            "modes = [\"remove\"]": Unlink "/f0" after 33, "delete" Name;
            "modes = [\"remove\"]": Rmdir "/d0" after 3, "rmdir" Name;
            // On the way to the directory of the next file, and into one that was listed.
            "modes = [\"unpack\"]": Lookup "/w1/d000000000" after 1, "create" Beneath;
            "modes = [\"read\"]": Lookup "/w1/d000000000/d000000008" after 8, "read" Beneath;
            "modes = [\"walk\"]": Lookup "/w1/d000000000/d000000008" after 10, "list" Name;
            "modes = [\"remove\"]": Lookup "/w1/d000000000/d000000008" after 9, "list" Name;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: FILL,
        cases: cases! {
            "modes = [\"fill\"]": Write "/f0" after 17, "write" Offset;
            // Between two operations: the next file, the query of free space, the end of the last one.
            "modes = [\"fill\"]": Create "/f0" after 2, "write" Name;
            "modes = [\"fill\"]": Statfs "/w0" after 0, "write" Beneath;
            "modes = [\"fill\"]\nrate_iops = 20": Statfs "/w0" after 4, "write" Beneath;
            "modes = [\"fill\"]": Flush "/f0" after 4, "write" Name;
            // The layout queries free space too, more often on a busy machine.
            "modes = [\"hold\"]\nhold = \"4s\"": Statfs "/w0" after 24, "statfs" Name;
            "modes = [\"read\"]": Read "/f0" after 17, "read" Offset;
            "modes = [\"remove\"]": Unlink "/f0" after 2, "delete" Name;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: COPY,
        cases: cases! {
            "modes = [\"in\"]": Write "/c0" after 17, "copy" Offset;
            "modes = [\"out\"]": Read "/c0" after 12, "copy" Offset;
            "modes = [\"in\"]\nverify = true": Read "/c0" after 12, "read" Offset;
            "modes = [\"in\"]": Opendir "/d000000" after 0, "copy" Beneath;
            "modes = [\"out\"]": Opendir "/d000000" after 1, "copy" Beneath;
        },
    },
    Group {
        scratch: Scratch::Beside,
        common: KERNEL_COPY,
        cases: cases! {
            "modes = [\"in\"]": CopyFileRange "/c0" after 4, "copy" Offset;
            "modes = [\"out\"]": CopyFileRange "/c0" after 4, "copy" Source;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: REPLAY,
        cases: cases! {
            "": Write "logs/a" after 1, "write" Offset;
            "": Read "old" after 0, "read" Offset;
            "": Unlink "logs/a" after 0, "delete" Name;
            "": Lookup "/logs" after 1, "open" Beneath;
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: LEFT_OPEN,
        cases: cases! {
            "": Flush "/a" after 0, "close" Name;
        },
    },
];

/// Phases that a stall ends, each with the hanging call.
pub const ENDED: &[(&str, &str, Op, &str, u64)] = &[
    (COPY, "modes = [\"in\"]", Op::Write, "/c0", 3),
    (NAMES, "modes = [\"rename\"]", Op::Rename, "/c0", 11),
    (
        IO,
        "modes = [\"randread\"]\niodepth = 4",
        Op::Read,
        ".dat",
        0,
    ),
    (STDIO, "modes = [\"getc\"]", Op::Read, "/w", 0),
    (TREE, "modes = [\"unpack\"]", Op::Write, "/f0", 0),
    (FILL, "modes = [\"fill\"]", Op::Create, "/f0", 0),
    (FILL, "modes = [\"hold\"]", Op::Statfs, "/w0", 4),
    (REPLAY, "", Op::Read, "old", 0),
    (STDIO, "modes = [\"putc\"]", Op::Flush, "/w", 1),
    (IO, "modes = [\"read\"]", Op::Write, ".dat", 0),
    (FILES, "modes = [\"create\"]", Op::Rename, "state", 3),
];
