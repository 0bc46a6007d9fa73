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
        "block after block, of what `read` has just read",
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
        "blocks are read or written as `rwmixread` says; reads and writes each go block after block",
        FILES,
        BOTH,
    ),
    mode(
        "randrw",
        "blocks in random order are read or written as `rwmixread` says",
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
        "a block every `stride`, and at the end of the file again from the first that has not come yet",
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
        "a new file a byte at a time, through stdio: each byte is put into the buffer by a call, and a full buffer is \
         written; an operation is one buffer",
        Data::Nothing,
        &[Op::Putc],
    ),
    mode(
        "getc",
        "the file a byte at a time, through stdio: an empty buffer is filled by one read, and each byte is taken by a call; \
         an operation is one buffer",
        FILES,
        &[Op::Getc],
    ),
    mode(
        "fwrite",
        "a new file in records of `bs` through stdio's buffer, whole buffers of a larger record past it; an operation is one \
         record, or as many as fill the buffer",
        Data::Nothing,
        &[Op::Fwrite],
    ),
    mode(
        "frewrite",
        "the existing file in records of `bs` through stdio's buffer, as iozone's frewrite does; an operation is that of \
         `fwrite`",
        FILES,
        &[Op::Fwrite],
    ),
    mode(
        "fread",
        "the file in records of `bs` through stdio's buffer, whole buffers of a larger record past it; an operation is one \
         record, or as many as fill the buffer",
        FILES,
        &[Op::Fread],
    ),
    mode(
        "rmw",
        "the file a buffer at a time, as bonnie++ rewrites it: read, changed (`change`), lseek, written back; an operation is \
         one buffer",
        FILES,
        &[Op::Rewrite],
    ),
    mode(
        "seek",
        "random places of the file, multiples of `bs`, as bonnie++ seeks: lseek, read; some (`rewrite-share`) are sought \
         again and written back at once",
        FILES,
        &[Op::Seek],
    ),
];
