//! One worker's io_uring with a registered file and registered buffers, and a probe for kernel support.
//!
//! A write uses its slot's own buffer, or a place in a pool that all slots share if no operation in flight uses that
//! place. Invariants: a ring stays in the thread that made it; each slot has at most one entry in flight, so the queues
//! never overflow; [`Ring`] owns the buffers, and frees them only when nothing is in flight.

use crate::engine::author::*;
use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";
const PAGE: usize = 4096;
/// The only registered file.
const FILE: Fixed = Fixed(0);

/// Checks whether the kernel allows this thread a ring.
///
/// # Errors
/// Why it is refused and what to do, as a sentence.
pub fn probe() -> Result<(), String> {
    let ring = build(2).map_err(|error| refusal(&error))?;
    // Added in 5.11, later than every other feature used here.
    match ring.params().is_feature_ext_arg() {
        true => Ok(()),
        false => Err(refusal(&io::ErrorKind::Unsupported.into())),
    }
}

fn refusal(error: &io::Error) -> String {
    let switch = std::fs::read_to_string(SWITCH).unwrap_or_default();
    let cause = match (error.raw_os_error(), switch.trim()) {
        (Some(libc::EPERM), "2") => "kernel.io_uring_disabled is 2: set it to 0".to_owned(),
        (Some(libc::EPERM), "1") => {
            "kernel.io_uring_disabled is 1: set it to 0, or run the agent with CAP_SYS_ADMIN".to_owned()
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            "a container's seccomp profile or a security module forbids io_uring_setup: allow it for the agent".to_owned()
        }
        (Some(libc::ENOSYS), _) => "this kernel has no io_uring, or a seccomp profile hides it".to_owned(),
        (Some(libc::ENOMEM), _) => "too little memory may be locked: raise the agent's `ulimit -l`".to_owned(),
        (None, _) => "it knows no waits with a limit, which came with Linux 5.11".to_owned(),
        _ => "see io_uring_setup(2)".to_owned(),
    };
    format!(
        "the kernel refuses io_uring ({error}): {cause}; or use ioengine = \"psync\" with more numjobs, or allow \
         ioengine-fallback = \"psync\""
    )
}

/// Completions are posted as they come, without interrupting the worker. A worker that wakes finds all that the device
/// has completed at once; with deferred completions (IORING_SETUP_DEFER_TASKRUN) it would wake for the first few.
/// Kernels before 6.0 lack these flags.
fn build(entries: u32) -> io::Result<IoUring> {
    let modern = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .build(entries);
    match modern {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        built => built,
    }
}

/// Whether the kernel has pinned the buffers ahead of the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffers {
    Registered,
    /// RLIMIT_MEMLOCK is too small: each operation pins its own buffer.
    Plain,
}

/// What one entry does with its slot's buffer, starting at offset `done`.
#[derive(Debug, Clone, Copy)]
pub(super) enum RingEntry {
    Read { at: u64, done: u32, bytes: u32 },
    Write { at: u64, done: u32, bytes: u32 },
    Fsync,
}

pub(super) struct Ring {
    ring: IoUring,
    /// Freed only when nothing is in flight.
    memory: ManuallyDrop<Pages>,
    slot_bytes: usize,
    depth: u16,
    /// The pool lies behind the slots' buffers.
    pool_bytes: usize,
    /// Each slot's block in the pool; `None` if it uses its own buffer.
    claims: Box<[Option<Claim>]>,
    /// Pages of the pool in use; empty if the pool cannot be written from in place.
    in_use: Box<[bool]>,
    buffers: Buffers,
    in_flight: usize,
    /// The registered file, synced at the end.
    file: OwnedFd,
}

/// A place in the pool.
#[derive(Debug, Clone, Copy)]
struct Claim {
    from: usize,
    bytes: usize,
}

impl Claim {
    fn pages(self) -> std::ops::RangeInclusive<usize> {
        self.from / PAGE..=(self.from + self.bytes.max(1) - 1) / PAGE
    }
}

impl Ring {
    /// Creates a ring in the calling thread, for `depth` blocks of up to `bytes` and with a pool.
    pub(super) fn open(
        file: OwnedFd,
        depth: u16,
        bytes: usize,
        pool_bytes: usize,
    ) -> Result<Ring, TaskError> {
        let slot_bytes = bytes.next_multiple_of(PAGE);
        let slots = slot_bytes.saturating_mul(depth.into());
        let all = slots.saturating_add(pool_bytes);
        let doing = || format!("get buffers of {all} bytes");
        let memory = Pages::new(all).map_err(|error| TaskError::io(doing(), error))?;
        let ring = build(depth.into()).map_err(|error| TaskError::Unsupported {
            why: refusal(&error),
        })?;
        let registered = ring.submitter().register_files(&[file.as_raw_fd()]);
        registered.map_err(|error| TaskError::io("register the file with io_uring", error))?;
        let piece = |from: usize, bytes| libc::iovec {
            iov_base: memory.start().wrapping_add(from).cast(),
            iov_len: bytes,
        };
        let mut pieces: Vec<libc::iovec> = (0..usize::from(depth))
            .map(|slot| piece(slot * slot_bytes, slot_bytes))
            .collect();
        let pool = (pool_bytes > 0).then(|| piece(slots, pool_bytes));
        pieces.extend(pool);
        // SAFETY: the pieces lie within `memory`, which outlives every operation in flight.
        let register =
            |pieces: &[libc::iovec]| unsafe { ring.submitter().register_buffers(pieces) }.is_ok();
        // If not all of the memory can be locked, the pool stays unregistered and its blocks are copied.
        let (buffers, pool_in_place) = if register(&pieces) {
            (Buffers::Registered, true)
        } else if pool.is_some() && register(pieces.get(..depth.into()).unwrap_or_default()) {
            (Buffers::Registered, false)
        } else {
            (Buffers::Plain, true)
        };
        let pages = if pool_in_place {
            pool_bytes.div_ceil(PAGE)
        } else {
            0
        };
        Ok(Ring {
            ring,
            memory: ManuallyDrop::new(memory),
            slot_bytes,
            depth,
            pool_bytes,
            claims: vec![None; depth.into()].into(),
            in_use: vec![false; pages].into(),
            buffers,
            in_flight: 0,
            file,
        })
    }

    pub(super) fn buffers(&self) -> Buffers {
        self.buffers
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The buffers of all slots, and the pool. Only valid before the first operation.
    pub(super) fn memory(&mut self) -> (&mut [u8], &mut [u8]) {
        assert_eq!(self.in_flight, 0, "the kernel may write to the buffers");
        let slots = self.memory.len() - self.pool_bytes;
        self.memory.split_at_mut(slots)
    }

    /// Assigns the block at `from` of the pool to an idle slot. Fails if an operation in flight uses a part of it.
    #[inline]
    pub(super) fn claim(&mut self, slot: u16, from: usize, bytes: usize) -> bool {
        let claim = Claim { from, bytes };
        let pages = self.in_use.get_mut(claim.pages());
        let (Some(pages), Some(slot)) = (pages, self.claims.get_mut(usize::from(slot))) else {
            return false;
        };
        if from + bytes > self.pool_bytes || slot.is_some() || pages.iter().any(|used| *used) {
            return false;
        }
        pages.fill(true);
        *slot = Some(claim);
        true
    }

    /// Copies the block at `from` of the pool into the slot's own buffer.
    #[inline]
    pub(super) fn copy_from_pool(&mut self, slot: u16, from: usize, bytes: usize) {
        if from + bytes > self.pool_bytes || bytes > self.slot_bytes || slot >= self.depth {
            return;
        }
        let pool = usize::from(self.depth) * self.slot_bytes;
        let source = self.memory.start().wrapping_add(pool + from);
        // SAFETY: both lie within the memory by the check above, and do not overlap. The slot is idle, and the kernel
        // only reads the pool.
        unsafe { std::ptr::copy_nonoverlapping(source, self.own_start(slot), bytes) };
    }

    /// Returns an idle slot's place to the pool.
    #[inline]
    pub(super) fn release(&mut self, slot: u16) {
        let claim = self.claims.get_mut(usize::from(slot));
        let Some(claim) = claim.and_then(Option::take) else {
            return;
        };
        if let Some(pages) = self.in_use.get_mut(claim.pages()) {
            pages.fill(false);
        }
    }

    /// The first `bytes` of an idle slot's block.
    #[inline]
    pub(super) fn block(&mut self, slot: u16, bytes: usize) -> &mut [u8] {
        let claimed = self.claimed(slot).map(|claim| claim.bytes);
        if bytes > claimed.unwrap_or(self.slot_bytes) || slot >= self.depth {
            return &mut [];
        }
        // SAFETY: the block lies within the memory, by the check above or by that of `claim`, and `&mut self` makes
        // this the only reference to it. The kernel has no entry for this slot, and no other slot has claimed a page of
        // it. No reference exists to memory that the kernel may be reading or writing.
        unsafe { std::slice::from_raw_parts_mut(self.start(slot), bytes) }
    }

    #[inline]
    fn claimed(&self, slot: u16) -> Option<Claim> {
        self.claims.get(usize::from(slot)).copied().flatten()
    }

    /// Start of a slot's block.
    #[inline]
    fn start(&self, slot: u16) -> *mut u8 {
        match self.claimed(slot) {
            Some(claim) => {
                let pool = usize::from(self.depth) * self.slot_bytes;
                self.memory.start().wrapping_add(pool + claim.from)
            }
            None => self.own_start(slot),
        }
    }

    #[inline]
    fn own_start(&self, slot: u16) -> *mut u8 {
        let offset = usize::from(slot) * self.slot_bytes;
        self.memory.start().wrapping_add(offset)
    }

    /// Queues an entry for an idle slot.
    #[inline]
    pub(super) fn push(&mut self, slot: u16, entry: RingEntry) {
        let start = self.start(slot);
        let to = |done: u32| start.wrapping_add(usize::try_from(done).unwrap_or(0));
        let entry: squeue::Entry = match (entry, self.buffers) {
            (RingEntry::Read { at, done, bytes }, Buffers::Registered) => {
                let read = opcode::ReadFixed::new(FILE, to(done), bytes - done, slot);
                read.offset(at + u64::from(done)).build()
            }
            (RingEntry::Read { at, done, bytes }, Buffers::Plain) => {
                let read = opcode::Read::new(FILE, to(done), bytes - done);
                read.offset(at + u64::from(done)).build()
            }
            (RingEntry::Write { at, done, bytes }, Buffers::Registered) => {
                // The pool is the registered buffer after the slots' own.
                let buffer = self.claimed(slot).map_or(slot, |_| self.depth);
                let write = opcode::WriteFixed::new(FILE, to(done), bytes - done, buffer);
                write.offset(at + u64::from(done)).build()
            }
            (RingEntry::Write { at, done, bytes }, Buffers::Plain) => {
                let write = opcode::Write::new(FILE, to(done), bytes - done);
                write.offset(at + u64::from(done)).build()
            }
            (RingEntry::Fsync, _) => opcode::Fsync::new(FILE).build(),
        };
        let entry = entry.user_data(slot.into());
        // SAFETY: the entry points into the slot's block, which stays allocated until nothing is in flight.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there is an entry for each slot");
        self.in_flight += 1;
    }

    /// Submits the queued entries. Entries that the kernel cannot take now go with the next call.
    #[inline]
    pub(super) fn submit(&mut self) -> io::Result<()> {
        let submitted = self.ring.submitter().submit();
        unless_passing(submitted)
    }

    /// Submits the queued entries, and waits up to `max_wait` until one has completed.
    #[inline]
    pub(super) fn submit_and_wait(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        let submitter = self.ring.submitter();
        let submitted = match max_wait {
            None => submitter.submit_and_wait(1),
            Some(max_wait) => {
                let limit = Timespec::from(max_wait);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        unless_passing(submitted)
    }

    /// Completions that can be reaped.
    #[inline]
    pub(super) fn ended(&mut self) -> usize {
        self.ring.completion().len()
    }

    /// Whether a completion can be reaped.
    #[inline]
    pub(super) fn has_ended(&mut self) -> bool {
        self.ended() > 0
    }

    /// Slot of one completion, and the result in the form of a system call's.
    #[inline]
    pub(super) fn reap(&mut self) -> Option<(u16, i32)> {
        let ended = self.ring.completion().next()?;
        self.in_flight -= 1;
        let slot = u16::try_from(ended.user_data()).expect("user data are slots");
        Some((slot, ended.result()))
    }
}

/// Ignores errors after which the ring still works: a signal, a timeout, a full queue.
#[inline]
fn unless_passing(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted.map_err(|error| (error.raw_os_error(), error)) {
        Ok(_) | Err((Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY), _)) => Ok(()),
        Err((_, error)) => Err(error),
    }
}

impl Drop for Ring {
    /// The kernel may still write into the buffers of a worker that has panicked. If the ring is broken, the state of
    /// its operations is unknown, so its buffers are leaked.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.submit_and_wait(None).is_err() {
                return;
            }
            while self.reap().is_some() {}
        }
        // SAFETY: nothing is in flight, and `memory` is not used after this.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}
