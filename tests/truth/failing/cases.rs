//! The failing calls of each mode, and the operations that they count as.

use crate::support::fuse_fs::Op;
use crate::truth::stall::bed::{Group, Scratch};

pub struct Case {
    pub phase: &'static str,
    pub op: Op,
    /// A part of the path.
    pub path: &'static str,
    /// Number of operations, of which every seventh fails. 0 for any number, of which five fail.
    pub calls: u64,
    /// The operation that fails with its call.
    pub kind: &'static str,
}

macro_rules! cases {
    ($($phase:literal: $op:ident $path:literal of $calls:literal, $kind:literal;)*) => {
        &[$(Case {
            phase: $phase,
            op: Op::$op,
            path: $path,
            calls: $calls,
            kind: $kind,
        }),*]
    };
}

/// The operations on each of fourteen names in a list.
const EACH: &str = "- create n@\n- write n@ 0 10\n- fsync n@\n- truncate n@ 5\n- close n@\n- rename n@ x@\n- delete x@\n\
                    - symlink s@ there\n- mkdir m@\n- list m@\n- rmdir m@\n- read old @0 10\n";

/// A list of operations, fourteen of each kind.
pub fn operations() -> String {
    let each = (0..14).map(|number| EACH.replace('@', &number.to_string()));
    format!("- open old\n{}- close old\n", each.collect::<String>())
}

/// The kernel retries a failed lookup, so names that are looked up are not included. If a layout makes the same calls,
/// it makes too few of them to be affected.
pub const GROUPS: &[Group<Case>] = &[
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"files\"\nfiles = 40\nsize = 100\n",
        cases: cases! {
            "modes = [\"create\"]": Create "/c0" of 40, "create";
            "modes = [\"create\"]": Write "/c0" of 40, "create";
            "modes = [\"create\"]": Flush "/c0" of 40, "create";
            "modes = [\"create\"]\nfsync = true": Fsync "/c0" of 40, "create";
            "modes = [\"read\"]": Open "/c0" of 40, "read";
            "modes = [\"read\"]": Read "/c0" of 40, "read";
            "modes = [\"read\"]\nverify = true": Read "/c0" of 0, "read";
            "modes = [\"append\"]": Open "/c0" of 40, "append";
            "modes = [\"rename\"]": Rename "/c0" of 40, "rename";
            "modes = [\"delete\"]": Unlink "/c0" of 40, "delete";
            "modes = [\"chmod\"]": Setattr "/c0" of 40, "chmod";
            "modes = [\"setxattr\"]": Setxattr "/c0" of 40, "setxattr";
            "modes = [\"getxattr\"]": Getxattr "/c0" of 40, "getxattr";
            "modes = [\"symlink\"]": Symlink "/s0" of 40, "symlink";
            "modes = [\"mkdir\"]": Mkdir "/m0" of 40, "mkdir";
            "modes = [\"rmdir\"]": Rmdir "/m0" of 40, "rmdir";
            "modes = [\"list\"]\ndirs = 1": Readdir "/d0" of 0, "list";
            "modes = [\"list-stat\"]\ndirs = 1": Readdir "/d0" of 0, "list-stat";
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\n",
        cases: cases! {
            "modes = [\"write\"]": Write ".dat" of 50, "write";
            "modes = [\"rewrite\"]": Write ".dat" of 50, "write";
            "modes = [\"recrewrite\"]": Write ".dat" of 50, "write";
            "modes = [\"randwrite\"]": Write ".dat" of 50, "write";
            "modes = [\"rewrite\"]\nfsync = 1": Fsync ".dat" of 0, "write";
            "modes = [\"read\"]": Read ".dat" of 50, "read";
            "modes = [\"randread\"]": Read ".dat" of 50, "read";
            "modes = [\"backread\"]": Read ".dat" of 50, "read";
            "modes = [\"strideread\"]": Read ".dat" of 50, "read";
            "modes = [\"rw\"]\nrwmixread = 85": Read ".dat" of 0, "read";
            "modes = [\"rw\"]\nrwmixread = 15": Write ".dat" of 0, "write";
            "modes = [\"randrw\"]\nrwmixread = 85": Read ".dat" of 0, "read";
            "modes = [\"randrw\"]\nrwmixread = 15": Write ".dat" of 0, "write";
            "iodepth = 8\nmodes = [\"write\"]": Write ".dat" of 50, "write";
            "iodepth = 8\nmodes = [\"randwrite\"]\nfsync = 1": Fsync ".dat" of 0, "write";
            "iodepth = 8\nmodes = [\"randread\"]": Read ".dat" of 50, "read";
            "iodepth = 8\nmodes = [\"randread\"]\nverify = true": Read ".dat" of 50, "read";
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"io\"\nsize = \"200k\"\n",
        cases: cases! {
            "modes = [\"putc\"]": Write "/w0" of 50, "putc";
            "modes = [\"getc\"]": Read "/w0" of 50, "getc";
            "modes = [\"rmw\"]": Read "/w0" of 50, "rewrite";
            "modes = [\"rmw\"]": Write "/w0" of 50, "rewrite";
            "modes = [\"fwrite\"]\nbs = \"4k\"": Write "/w0" of 50, "fwrite";
            "modes = [\"fread\"]\nbs = \"4k\"": Read "/w0" of 50, "fread";
            "modes = [\"seek\"]\nseeks = 50\nverify = true": Read "/w0" of 50, "seek";
            "modes = [\"seek\"]\nseeks = 50\nrewrite-share = 100": Write "/w0" of 50, "seek";
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"tree\"\nfiles = 50\nsize = 5000\n",
        cases: cases! {
            "directories = 4\nmodes = [\"unpack\"]": Create "/f0" of 50, "create";
            "directories = 4\nmodes = [\"unpack\"]": Write "/f0" of 50, "create";
            "directories = 4\nsymlinks = 40\nmodes = [\"unpack\"]": Symlink "/s0" of 40, "symlink";
            // Directories without subdirectories.
            "directories = 9\nnumjobs = 5\nmodes = [\"unpack\"]": Mkdir "/d000000000/d0" of 0, "mkdir";
            "directories = 4\nmodes = [\"read\"]": Open "/f0" of 50, "read";
            "directories = 4\nmodes = [\"read\"]": Read "/f0" of 50, "read";
            "directories = 60\nmodes = [\"walk\"]": Readdir "/d0" of 0, "list";
            "directories = 4\nmodes = [\"remove\"]": Unlink "/f0" of 50, "delete";
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"fill\"\namount = \"5000k\"\nbs = \"100k\"\n",
        cases: cases! {
            "modes = [\"fill\"]": Write "/f0" of 0, "write";
            "modes = [\"read\"]": Read "/f0" of 50, "read";
            "modes = [\"remove\"]\nfile-size = \"200k\"": Unlink "/f0" of 25, "delete";
            "modes = [\"hold\"]\nhold = \"1s\"\nrate_iops = 60": Statfs "/w0" of 0, "statfs";
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"copy\"\nfiles = 40\nsize = 4096\n",
        cases: cases! {
            "modes = [\"in\"]": Create "/c0" of 40, "copy";
            "modes = [\"in\"]\nway = \"read-write\"": Write "/c0" of 40, "copy";
            "modes = [\"in\"]\nway = \"read-write\"\nverify = true": Read "/c0" of 0, "read";
            "modes = [\"in\"]\nway = \"direct\"\nbs = \"4k\"": Write "/c0" of 40, "copy";
            "modes = [\"out\"]": Open "/c0" of 40, "copy";
            "modes = [\"out\"]\nway = \"read-write\"": Read "/c0" of 0, "copy";
            "modes = [\"out\"]\nway = \"direct\"\nbs = \"4k\"": Read "/c0" of 0, "copy";
        },
    },
    Group {
        scratch: Scratch::Beside,
        common: "workload = \"copy\"\nfiles = 40\nsize = 4096\n",
        cases: cases! {
            "modes = [\"in\"]": CopyFileRange "/c0" of 40, "copy";
            "modes = [\"out\"]": CopyFileRange "/c0" of 40, "copy";
            "modes = [\"in\"]\nway = \"copy-file-range\"": CopyFileRange "/c0" of 40, "copy";
            "modes = [\"out\"]\nway = \"copy-file-range\"": CopyFileRange "/c0" of 40, "copy";
        },
    },
    Group {
        scratch: Scratch::Apart,
        common: "workload = \"replay\"\noperations = \"\"\"\n@\"\"\"\n",
        cases: cases! {
            "": Create "/n" of 15, "open";
            "": Write "/n" of 14, "write";
            "": Fsync "/n" of 14, "fsync";
            "": Setattr "/n" of 14, "truncate";
            "": Read "/old" of 14, "read";
            "": Rename "/n" of 14, "rename";
            "": Unlink "/x" of 14, "delete";
            "": Symlink "/s" of 14, "symlink";
            "": Mkdir "/m" of 14, "mkdir";
            "": Readdir "/m" of 14, "list";
            "": Rmdir "/m" of 14, "rmdir";
        },
    },
];
