//! A memory budget for one query: what SQLite allocates on the query's own thread.
//!
//! SQLite's own heap limits are for the whole process: reached by a query, they would fail the collector's writer too.
//! Here a thin layer around SQLite's allocator counts the bytes that the current thread holds. Over its budget a thread
//! gets no memory and its statement fails with SQLITE_NOMEM; threads without a budget are never refused. Pages of the
//! page cache do not count: `cache_size` bounds them, and another connection may take them over.
//!
//! The layer goes in before SQLite initializes. Where something else initialized it earlier, queries have no budget;
//! their other limits hold.

use libsqlite3_sys as ffi;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

/// A page of the database with the headers that the page cache puts beside it.
const PAGE_ALLOCATION: std::ops::RangeInclusive<i64> = 4096..=4608;

thread_local! {
    /// Bytes that this thread may still allocate.
    static LEFT: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// The allocator beneath.
struct Base {
    malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    realloc: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    size: unsafe extern "C" fn(*mut c_void) -> c_int,
}

static BASE: OnceLock<Base> = OnceLock::new();
static INSTALL: Once = Once::new();

/// Puts the counting layer in. To be called before the process opens its first database; later calls do nothing.
pub(crate) fn install() {
    INSTALL.call_once(|| {
        if !try_install() {
            tracing::debug!("SQLite was initialized already: queries run without a memory budget");
        }
    });
}

fn try_install() -> bool {
    // SAFETY: an all-zero `sqlite3_mem_methods` is valid (null functions); SQLite fills it in or copies it, and keeps no
    // pointer to it. The functions below fulfil the contract of SQLite's allocator by handing each call to its default.
    unsafe {
        let mut methods: ffi::sqlite3_mem_methods = std::mem::zeroed();
        let code = ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods);
        let (Some(malloc), Some(free), Some(realloc), Some(size)) = (
            methods.xMalloc,
            methods.xFree,
            methods.xRealloc,
            methods.xSize,
        ) else {
            return false;
        };
        let base = Base {
            malloc,
            free,
            realloc,
            size,
        };
        if code != ffi::SQLITE_OK || BASE.set(base).is_err() {
            return false;
        }
        methods.xMalloc = Some(counting_malloc);
        methods.xFree = Some(counting_free);
        methods.xRealloc = Some(counting_realloc);
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw mut methods) == ffi::SQLITE_OK
    }
}

/// The current thread's budget; unlimited again when it is dropped.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Of this thread alone.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Budget {
    pub(crate) fn of(bytes: u64) -> Self {
        LEFT.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        Self {
            _not_send: std::marker::PhantomData,
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        LEFT.set(i64::MAX);
    }
}

/// What an allocation of so many bytes takes of a budget.
fn charged(bytes: c_int) -> i64 {
    let bytes = i64::from(bytes);
    if PAGE_ALLOCATION.contains(&bytes) {
        0
    } else {
        bytes
    }
}

fn charge(bytes: i64) -> bool {
    let left = LEFT.get();
    if left < bytes {
        return false;
    }
    LEFT.set(left - bytes);
    true
}

fn refund(bytes: i64) {
    LEFT.set(LEFT.get().saturating_add(bytes));
}

unsafe extern "C" fn counting_malloc(bytes: c_int) -> *mut c_void {
    let Some(base) = BASE.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: the default allocator's own functions, on its own memory.
    unsafe {
        let memory = (base.malloc)(bytes);
        if !memory.is_null() && !charge(charged((base.size)(memory))) {
            (base.free)(memory);
            return std::ptr::null_mut();
        }
        memory
    }
}

unsafe extern "C" fn counting_free(memory: *mut c_void) {
    let Some(base) = BASE.get() else { return };
    // SAFETY: as above; SQLite hands back what it got from here or, before the layer went in, from the default.
    unsafe {
        refund(charged((base.size)(memory)));
        (base.free)(memory);
    }
}

unsafe extern "C" fn counting_realloc(memory: *mut c_void, bytes: c_int) -> *mut c_void {
    let Some(base) = BASE.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as above.
    unsafe {
        let before = charged((base.size)(memory));
        let grown = (charged(bytes) - before).max(0);
        if !charge(grown) {
            return std::ptr::null_mut();
        }
        refund(grown);
        let moved = (base.realloc)(memory, bytes);
        if !moved.is_null() {
            refund(before - charged((base.size)(moved)));
        }
        moved
    }
}
