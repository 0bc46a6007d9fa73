//! Many operations in flight from one thread, through the library's asynchronous calls.
//!
//! The library copies written data during the call, and reads into the slot's own buffer. Invariants: a slot has one
//! operation in flight at most. Buffers and board outlive every operation, since dropping the issuer waits for all in
//! flight, which the session's timeout bounds.

use super::board::{Board, ended};
use super::library::{Completion, Text};
use super::{RadosError, Session};
use crate::measure::clock::MonoNanos;
use crate::target::memory::Pages;
use libc::{c_char, c_int};
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// An operation on one object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ObjectCall<'a> {
    /// Writes part of the object; creates it if needed.
    Write {
        data: &'a [u8],
        offset: u64,
    },
    /// Replaces the whole object.
    WriteFull {
        data: &'a [u8],
    },
    /// Reads into the slot's buffer.
    Read {
        bytes: usize,
        offset: u64,
    },
    Stat,
    /// Sets the issuer's keys to parts of `data`.
    Omap {
        data: &'a [u8],
    },
    Remove,
}

/// A completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedOp {
    pub slot: u16,
    pub at: MonoNanos,
    /// The library's result: an error below 0, or the bytes of a read.
    pub result: i32,
}

/// The keys of an object map that one operation sets.
#[derive(Debug)]
struct OmapKeys {
    _names: Vec<CString>,
    names: Vec<Text>,
    values: Vec<Text>,
    lengths: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Issuer {
    session: Arc<Session>,
    board: Arc<Board>,
    /// By slot; null: nothing is in flight.
    completions: Box<[Completion]>,
    in_flight: usize,
    /// Notes taken from the board.
    taken: u32,
    reads: Pages,
    read_bytes: usize,
    omap: OmapKeys,
}

// SAFETY: completions and texts are the issuer's own, and the library lets any thread use them.
unsafe impl Send for Issuer {}

impl Issuer {
    /// For the calling thread, which is woken by completions. Buffers have `read_bytes` each.
    pub(crate) fn open(
        session: &Arc<Session>,
        depth: u16,
        read_bytes: usize,
        omap: OmapShape,
    ) -> std::io::Result<Issuer> {
        let board = Board::new(depth);
        session.keep(&board);
        Ok(Issuer {
            session: Arc::clone(session),
            board,
            completions: vec![ptr::null_mut(); depth.into()].into(),
            in_flight: 0,
            taken: 0,
            reads: Pages::new(read_bytes.saturating_mul(depth.into()))?,
            read_bytes,
            omap: OmapKeys::new(omap),
        })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Submits an operation, which may complete at any time from now on.
    ///
    /// # Errors
    /// The errno of a call that the library has refused: nothing is in flight then.
    #[inline]
    pub(crate) fn issue(
        &mut self,
        slot: u16,
        name: &CStr,
        call: ObjectCall<'_>,
    ) -> Result<(), i32> {
        let Some(place) = self.completions.get_mut(usize::from(slot)) else {
            return Err(libc::EINVAL);
        };
        let library = self.session.library;
        let mut completion = ptr::null_mut();
        // SAFETY: the argument's board lives as long as the session, which the library outlives.
        let made = unsafe {
            let argument = self.board.argument(slot);
            (library.rados_aio_create_completion2)(argument, ended, &mut completion)
        };
        if made != 0 {
            return Err(-made);
        }
        let (io, name) = (self.session.io, name.as_ptr());
        // SAFETY: the name ends with a zero byte and is copied, as are written data. A read's buffer is the slot's own,
        // of this length, and lives until nothing is in flight.
        let code = unsafe {
            match call {
                ObjectCall::Write { data, offset } => {
                    let at = data.as_ptr().cast::<c_char>();
                    (library.rados_aio_write)(io, name, completion, at, data.len(), offset)
                }
                ObjectCall::WriteFull { data } => {
                    let at = data.as_ptr().cast::<c_char>();
                    (library.rados_aio_write_full)(io, name, completion, at, data.len())
                }
                ObjectCall::Read { bytes, offset } => {
                    let at = self.reads.start().add(usize::from(slot) * self.read_bytes);
                    let bytes = bytes.min(self.read_bytes);
                    (library.rados_aio_read)(io, name, completion, at.cast(), bytes, offset)
                }
                ObjectCall::Stat => {
                    (library.rados_aio_stat)(io, name, completion, ptr::null_mut(), ptr::null_mut())
                }
                ObjectCall::Remove => (library.rados_aio_remove)(io, name, completion),
                ObjectCall::Omap { data } => {
                    self.omap.point_at(data);
                    let op = (library.rados_create_write_op)();
                    let (names, values) = (self.omap.names.as_ptr(), self.omap.values.as_ptr());
                    let lengths = self.omap.lengths.as_ptr();
                    let count = self.omap.names.len();
                    (library.rados_write_op_omap_set)(op, names, values, lengths, count);
                    let now = ptr::null_mut();
                    let code =
                        (library.rados_aio_write_op_operate)(op, io, completion, name, now, 0);
                    (library.rados_release_write_op)(op);
                    code
                }
            }
        };
        if code < 0 {
            // SAFETY: the library has refused it.
            unsafe { (library.rados_aio_release)(completion) };
            return Err(-code);
        }
        *place = completion;
        self.in_flight += 1;
        Ok(())
    }

    /// The next completion.
    #[inline]
    pub(crate) fn reap(&mut self) -> Option<EndedOp> {
        let (slot, at) = self.board.take(self.taken)?;
        self.taken = self.taken.wrapping_add(1);
        let place = self.completions.get_mut(usize::from(slot))?;
        let completion = std::mem::replace(place, ptr::null_mut());
        self.in_flight -= 1;
        let library = self.session.library;
        // SAFETY: the completion is ours; the library keeps a reference of its own while its callback runs.
        let result: c_int = unsafe {
            let result = (library.rados_aio_get_return_value)(completion);
            (library.rados_aio_release)(completion);
            result
        };
        Some(EndedOp { slot, at, result })
    }

    /// Sleeps until there is a completion or `max_wait` is over. May wake earlier.
    pub(crate) fn wait(&self, max_wait: Duration) {
        std::thread::park_timeout(max_wait);
    }

    /// The data read into a slot's buffer.
    pub(crate) fn buffer(&self, slot: u16, bytes: usize) -> &[u8] {
        let from = usize::from(slot) * self.read_bytes;
        let buffer = self.reads.get(from..from + bytes.min(self.read_bytes));
        buffer.unwrap_or_default()
    }

    /// Cancels all operations in flight: each ends with ECANCELED, or with its own result.
    pub(crate) fn cancel(&mut self) {
        for completion in self
            .completions
            .iter()
            .filter(|completion| !completion.is_null())
        {
            // SAFETY: it is in flight, and ours.
            unsafe { (self.session.library.rados_aio_cancel)(self.session.io, *completion) };
        }
    }

    /// Describes the library's error.
    pub(crate) fn failed(&self, doing: &str, errno: i32) -> RadosError {
        self.session.failed(doing, -errno)
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        for completion in self
            .completions
            .iter()
            .filter(|completion| !completion.is_null())
        {
            // SAFETY: it is in flight, and ours; nothing uses it afterwards.
            unsafe {
                (self.session.library.rados_aio_wait_for_complete_and_cb)(*completion);
                (self.session.library.rados_aio_release)(*completion);
            }
        }
    }
}

/// How many keys an operation sets, and the bytes of each value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OmapShape {
    pub keys: u32,
    pub value_bytes: usize,
}

impl OmapKeys {
    fn new(shape: OmapShape) -> OmapKeys {
        let name = |number| CString::new(format!("key{number:08}")).unwrap_or_default();
        let owned: Vec<CString> = (0..shape.keys).map(name).collect();
        OmapKeys {
            names: owned.iter().map(|name| name.as_ptr()).collect(),
            values: owned.iter().map(|_| ptr::null()).collect(),
            lengths: owned.iter().map(|_| shape.value_bytes).collect(),
            _names: owned,
        }
    }

    /// Points the values to consecutive parts of `data`; values beyond its end are empty.
    fn point_at(&mut self, data: &[u8]) {
        let mut rest = data;
        for (value, length) in self.values.iter_mut().zip(&mut self.lengths) {
            let (part, after) = rest.split_at_checked(*length).unwrap_or((&[], rest));
            (*value, *length) = (part.as_ptr().cast(), part.len());
            rest = after;
        }
    }
}
