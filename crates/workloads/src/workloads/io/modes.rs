//! The modes of `io`.

use crate::engine::author::*;

const FILES: Data = Data::Laid("one file or image of `offset` and `size` bytes per worker");

const fn mode(
    name: &'static str,
    meaning: &'static str,
    needs: Data,
    ops: &'static [Op],
) -> ModeInfo {
    ModeInfo {
        name,
        meaning,
        needs,
        leaves: FILES,
        ops,
    }
}

const READ: &[Op] = &[Op::Read];
const WRITE: &[Op] = &[Op::Write];
const BOTH: &[Op] = &[Op::Read, Op::Write];

pub(super) const MODES: &[ModeInfo] = &[
    mode(
        "write",
        "a new file, block after block",
        Data::Nothing,
        WRITE,
    ),
    mode(
        "rewrite",
        "the existing file, block after block",
        FILES,
        WRITE,
    ),
    mode("read", "block after block", FILES, READ),
    mode(
        "reread",
        "block after block, of the data that `read` has just read",
        FILES,
        READ,
    ),
    mode(
        "randwrite",
        "the existing file, blocks in random order",
        FILES,
        WRITE,
    ),
    mode("randread", "blocks in random order", FILES, READ),
    mode(
        "rw",
        "reads and writes mixed by `rwmixread`; reads and writes each go block after block",
        FILES,
        BOTH,
    ),
    mode(
        "randrw",
        "reads and writes of blocks in random order, mixed by `rwmixread`",
        FILES,
        BOTH,
    ),
    mode(
        "backread",
        "block after block, from the last to the first",
        FILES,
        READ,
    ),
    mode(
        "strideread",
        "one block every `stride`; at the end of the file, continues from the first block that was not read yet",
        FILES,
        READ,
    ),
    mode(
        "recrewrite",
        "the first block of the existing file, as often as the file has blocks",
        FILES,
        WRITE,
    ),
    mode(
        "putc",
        "a new file, one byte at a time through stdio: a function call puts each byte into the buffer, and a full \
         buffer is written; an operation is one buffer",
        Data::Nothing,
        &[Op::Putc],
    ),
    mode(
        "getc",
        "the file, one byte at a time through stdio: one read fills the empty buffer, and a function call takes each \
         byte; an operation is one buffer",
        FILES,
        &[Op::Getc],
    ),
    mode(
        "fwrite",
        "a new file in records of `bs` through stdio's buffer; whole buffers of a larger record bypass it; an \
         operation is one record, or as many as fill the buffer",
        Data::Nothing,
        &[Op::Fwrite],
    ),
    mode(
        "frewrite",
        "the existing file in records of `bs` through stdio's buffer, as iozone's frewrite does; an operation is the \
         same as in `fwrite`",
        FILES,
        &[Op::Fwrite],
    ),
    mode(
        "fread",
        "the file in records of `bs` through stdio's buffer; whole buffers of a larger record bypass it; an operation \
         is one record, or as many as fill the buffer",
        FILES,
        &[Op::Fread],
    ),
    mode(
        "rmw",
        "the file, one buffer at a time, as bonnie++ rewrites it: read, changed (`change`), lseek, written back; an \
         operation is one buffer",
        FILES,
        &[Op::Rewrite],
    ),
    mode(
        "seek",
        "random offsets in the file, multiples of `bs`, as bonnie++ seeks: lseek, read; a share (`rewrite-share`) is \
         written back at once: lseek, write",
        FILES,
        &[Op::Seek],
    ),
];
