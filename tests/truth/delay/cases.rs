//! The calls that each mode of each workload waits for, and the calls that make up one of its operations.

use crate::support::fuse_fs::Op;

/// A mode, its measured operation, and the calls of each operation.
pub type Slow = (&'static str, &'static str, Made);

#[derive(Clone, Copy)]
pub enum Made {
    /// These calls on one name, in sequence.
    Of(&'static [Op]),
    /// These calls on several names.
    OfNames(&'static [Op]),
    /// One call, with this number in flight: the next one starts as soon as one has ended. The kernel may forward them
    /// at once or one after the other.
    InFlight(Op, usize),
}

/// All calls that the operations below wait for.
pub const DELAYED: &[Op] = &[
    Op::Lookup,
    Op::Create,
    Op::Open,
    Op::Read,
    Op::Write,
    Op::Unlink,
    Op::CopyFileRange,
    Op::Rename,
    Op::Setattr,
    Op::Setxattr,
    Op::Getxattr,
    Op::Symlink,
    Op::Mkdir,
    Op::Rmdir,
    Op::Opendir,
    Op::Readdir,
    Op::Fsync,
];

const CREATE: Made = Made::Of(&[Op::Lookup, Op::Create, Op::Write]);
const READ: Made = Made::Of(&[Op::Lookup, Op::Open, Op::Read]);
const DELETE: Made = Made::Of(&[Op::Lookup, Op::Unlink]);
const LOOKUP: Made = Made::Of(&[Op::Lookup]);
const ONE_READ: Made = Made::Of(&[Op::Read]);
const ONE_WRITE: Made = Made::Of(&[Op::Write]);

/// Phases, grouped by their common keys.
pub const SLOW: &[(&str, &[Slow])] = &[
    (
        "workload = \"files\"\nfiles = 100\nsize = \"4k\"\n",
        &[
            ("modes = [\"create\"]", "create", CREATE),
            ("modes = [\"stat\"]", "stat", LOOKUP),
            ("modes = [\"read\"]", "read", READ),
            // One more read detects the end of the file; it is not part of the operation.
            ("verify = true\nmodes = [\"read\"]", "read", READ),
            (
                "append = \"4k\"\nmodes = [\"append\"]",
                "append",
                Made::Of(&[Op::Lookup, Op::Open, Op::Write]),
            ),
            ("modes = [\"delete\"]", "delete", DELETE),
        ],
    ),
    (
        "workload = \"files\"\nfiles = 40\nsize = \"4k\"\n",
        &[
            // The old name and the new one.
            (
                "modes = [\"rename\"]",
                "rename",
                Made::OfNames(&[Op::Lookup, Op::Lookup, Op::Rename]),
            ),
            (
                "modes = [\"chmod\"]",
                "chmod",
                Made::Of(&[Op::Lookup, Op::Setattr]),
            ),
            (
                "modes = [\"setxattr\"]",
                "setxattr",
                Made::Of(&[Op::Lookup, Op::Setxattr]),
            ),
            (
                "modes = [\"getxattr\"]",
                "getxattr",
                Made::Of(&[Op::Lookup, Op::Getxattr]),
            ),
            (
                "modes = [\"symlink\"]",
                "symlink",
                Made::Of(&[Op::Lookup, Op::Symlink]),
            ),
            (
                "modes = [\"mkdir\"]",
                "mkdir",
                Made::Of(&[Op::Lookup, Op::Mkdir]),
            ),
            (
                "modes = [\"rmdir\"]",
                "rmdir",
                Made::Of(&[Op::Lookup, Op::Rmdir]),
            ),
            // One file in each directory.
            (
                "dirs = 1\nmodes = [\"list\"]",
                "list",
                Made::Of(&[Op::Lookup, Op::Opendir, Op::Readdir, Op::Readdir]),
            ),
            (
                "dirs = 1\nmodes = [\"list-stat\"]",
                "list-stat",
                Made::OfNames(&[
                    Op::Lookup,
                    Op::Opendir,
                    Op::Readdir,
                    Op::Lookup,
                    Op::Readdir,
                ]),
            ),
        ],
    ),
    (
        "workload = \"io\"\nsize = \"400k\"\nbs = \"4k\"\n",
        &[
            ("modes = [\"write\"]", "write", ONE_WRITE),
            ("modes = [\"randread\"]", "read", ONE_READ),
            (
                "iodepth = 3\nmodes = [\"write\"]",
                "write",
                Made::InFlight(Op::Write, 3),
            ),
            (
                "fsync = 1\nmodes = [\"write\"]",
                "write",
                Made::Of(&[Op::Write, Op::Fsync]),
            ),
            // The kernel executes each one at submission.
            ("iodepth = 3\nmodes = [\"randread\"]", "read", ONE_READ),
        ],
    ),
    (
        "workload = \"io\"\nsize = \"100k\"\n",
        &[
            ("buffer = \"1k\"\nmodes = [\"putc\"]", "putc", ONE_WRITE),
            ("buffer = \"1k\"\nmodes = [\"getc\"]", "getc", ONE_READ),
            (
                "buffer = \"1k\"\nmodes = [\"rmw\"]",
                "rewrite",
                Made::Of(&[Op::Read, Op::Write]),
            ),
            (
                "buffer = \"1k\"\nbs = \"1k\"\nmodes = [\"fwrite\"]",
                "fwrite",
                ONE_WRITE,
            ),
            (
                "buffer = \"1k\"\nbs = \"1k\"\nmodes = [\"fread\"]",
                "fread",
                ONE_READ,
            ),
            (
                "bs = \"1k\"\nrewrite-share = 0\nseeks = 100\nmodes = [\"seek\"]",
                "seek",
                ONE_READ,
            ),
        ],
    ),
    (
        "workload = \"copy\"\nfiles = 100\nsize = \"4k\"\nbs = \"4k\"\n",
        &[
            ("modes = [\"in\"]", "copy", CREATE),
            ("way = \"read-write\"\nmodes = [\"in\"]", "copy", CREATE),
            ("way = \"direct\"\nmodes = [\"in\"]", "copy", CREATE),
            (
                "way = \"read-write\"\nmodes = [\"out\"]",
                "copy",
                Made::Of(&[Op::Lookup, Op::Open, Op::Read, Op::Read]),
            ),
        ],
    ),
    (
        "workload = \"tree\"\nfiles = 100\ndirectories = 3\nsize = \"4k\"\n",
        &[
            ("modes = [\"unpack\"]", "create", CREATE),
            ("modes = [\"read\"]", "read", READ),
            ("modes = [\"walk\"]", "stat", LOOKUP),
            ("modes = [\"remove\"]", "delete", DELETE),
        ],
    ),
    (
        "workload = \"fill\"\namount = \"10m\"\nbs = \"100k\"\n",
        &[
            ("modes = [\"fill\"]", "write", ONE_WRITE),
            (
                "file-size = \"100k\"\nverify = true\nmodes = [\"fill\", \"read\"]",
                "read",
                ONE_READ,
            ),
            (
                "file-size = \"100k\"\nmodes = [\"remove\"]",
                "delete",
                DELETE,
            ),
        ],
    ),
    (
        "workload = \"replay\"\n",
        &[("operations = \"\"\"@\"\"\"", "read", ONE_READ)],
    ),
];
