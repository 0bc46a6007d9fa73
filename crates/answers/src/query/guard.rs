//! Restricts a query to reading, by SQLite's own means.
//!
//! A read-only connection alone isn't enough: `ATTACH` would read other files, `VACUUM INTO` writes a new one even from
//! a read-only database, and some pragmas change the whole process. So every statement is prepared under an authorizer
//! that allows reading and a list of harmless pragmas. This module does not depend on the schema.

use super::limits::SQLITE_LIMITS;
use super::{Limits, QueryError};
use libsqlite3_sys as ffi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// Read-only pragmas without an argument.
const PLAIN_PRAGMAS: &[&str] = &[
    "application_id",
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "encoding",
    "freelist_count",
    "function_list",
    "journal_mode",
    "module_list",
    "page_count",
    "page_size",
    "pragma_list",
    "schema_version",
    "table_list",
    "user_version",
];

/// Read-only pragmas with a name or a number of rows as argument.
const NAMED_PRAGMAS: &[&str] = &[
    "foreign_key_check",
    "foreign_key_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Functions that reach beyond the database.
const DENIED_FUNCTIONS: &[&str] = &[
    "load_extension",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
];

/// Restricts the connection to reading from now on.
pub(super) fn install(connection: &mut sqlx::sqlite::LockedSqliteHandle<'_>, limits: &Limits) {
    let database = connection.as_raw_handle().as_ptr();
    // SAFETY: the handle is open and locked by the caller for as long as these calls last; the authorizer keeps no
    // pointer beyond its call and its context is null.
    unsafe {
        ffi::sqlite3_set_authorizer(database, Some(authorize), ptr::null_mut());
        for (limit, value) in SQLITE_LIMITS {
            ffi::sqlite3_limit(database, *limit, *value);
        }
        ffi::sqlite3_hard_heap_limit64(limits.heap_bytes());
    }
}

/// Compiles the SQL under the authorizer and discards the result: it must be exactly one statement that reads.
pub(super) fn inspect(
    connection: &mut sqlx::sqlite::LockedSqliteHandle<'_>,
    sql: &str,
    limits: &Limits,
) -> Result<(), QueryError> {
    let database = connection.as_raw_handle().as_ptr();
    let mut rest = sql;
    let mut statements = 0_u32;
    while !rest.is_empty() {
        let prepared = prepare(database, rest);
        let at = sql.len() - rest.len();
        let Prepared { used, outcome } = prepared;
        match outcome {
            PrepareOutcome::Nothing => {}
            PrepareOutcome::Reads => statements += 1,
            PrepareOutcome::Writes => return Err(QueryError::NotReading),
            PrepareOutcome::Failed {
                code,
                message,
                offset,
            } => {
                // SQLite reports a denied function as a generic error that only its text identifies.
                if code & 0xff == ffi::SQLITE_AUTH || message.starts_with("not authorized") {
                    return Err(QueryError::NotReading);
                }
                if code & 0xff == ffi::SQLITE_NOMEM {
                    return Err(QueryError::MemoryLimit {
                        limit_bytes: limits.memory_bytes,
                    });
                }
                return Err(QueryError::Sql {
                    message,
                    position: offset.map(|offset| position(sql, at + offset)),
                    help: None,
                });
            }
        }
        if statements > 1 {
            return Err(QueryError::SeveralStatements);
        }
        rest = match rest.get(used..) {
            Some(rest) if used > 0 => rest,
            _ => break,
        };
    }
    if statements == 0 {
        return Err(QueryError::NoStatement);
    }
    Ok(())
}

struct Prepared {
    used: usize,
    outcome: PrepareOutcome,
}

enum PrepareOutcome {
    Nothing,
    Reads,
    Writes,
    Failed {
        code: c_int,
        message: String,
        offset: Option<usize>,
    },
}

fn prepare(database: *mut ffi::sqlite3, sql: &str) -> Prepared {
    let Ok(length) = c_int::try_from(sql.len()) else {
        return Prepared {
            used: sql.len(),
            outcome: PrepareOutcome::Failed {
                code: ffi::SQLITE_TOOBIG,
                message: "the statement is too long".to_owned(),
                offset: None,
            },
        };
    };
    let mut statement = ptr::null_mut();
    let mut tail: *const c_char = ptr::null();
    // SAFETY: the handle is open and locked by the caller; `sql` outlives the calls and its length is given; the
    // statement is finalized before the handle is unlocked; `sqlite3_errmsg` is copied before the next call.
    unsafe {
        let code = ffi::sqlite3_prepare_v2(
            database,
            sql.as_ptr().cast(),
            length,
            &raw mut statement,
            &raw mut tail,
        );
        if code != ffi::SQLITE_OK {
            let message = CStr::from_ptr(ffi::sqlite3_errmsg(database))
                .to_string_lossy()
                .into_owned();
            let offset = usize::try_from(ffi::sqlite3_error_offset(database)).ok();
            return Prepared {
                used: sql.len(),
                outcome: PrepareOutcome::Failed {
                    code,
                    message,
                    offset,
                },
            };
        }
        let used = (tail as usize).saturating_sub(sql.as_ptr() as usize);
        if statement.is_null() {
            return Prepared {
                used,
                outcome: PrepareOutcome::Nothing,
            };
        }
        let reads = ffi::sqlite3_stmt_readonly(statement) != 0;
        ffi::sqlite3_finalize(statement);
        Prepared {
            used,
            outcome: if reads {
                PrepareOutcome::Reads
            } else {
                PrepareOutcome::Writes
            },
        }
    }
}

/// The faulty line with a caret beneath the position.
fn position(sql: &str, offset: usize) -> String {
    let before = sql.get(..offset).unwrap_or(sql);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = sql
        .get(line_start..)
        .unwrap_or("")
        .lines()
        .next()
        .unwrap_or("");
    let column = before.get(line_start..).unwrap_or("").chars().count();
    format!("{line}\n{:column$}^", "")
}

unsafe extern "C" fn authorize(
    _context: *mut c_void,
    action: c_int,
    first: *const c_char,
    second: *const c_char,
    _database: *const c_char,
    _trigger: *const c_char,
) -> c_int {
    // SAFETY: SQLite passes null or a terminated text that lives as long as the call.
    let (first, second) = unsafe { (text(first), text(second)) };
    if permits(action, first, second) {
        ffi::SQLITE_OK
    } else {
        ffi::SQLITE_DENY
    }
}

fn permits(action: c_int, first: Option<&str>, second: Option<&str>) -> bool {
    let listed = |names: &[&str], name: Option<&str>| {
        name.is_some_and(|name| names.iter().any(|one| one.eq_ignore_ascii_case(name)))
    };
    match action {
        ffi::SQLITE_SELECT | ffi::SQLITE_RECURSIVE | ffi::SQLITE_READ => true,
        ffi::SQLITE_FUNCTION => !listed(DENIED_FUNCTIONS, second),
        ffi::SQLITE_PRAGMA => match second {
            None => listed(PLAIN_PRAGMAS, first) || listed(NAMED_PRAGMAS, first),
            Some(_) => listed(NAMED_PRAGMAS, first),
        },
        _ => false,
    }
}

/// # Safety
/// `text` is null, or points to a terminated text that lives longer than the result.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?"))
}
