//! Operations that failed: counted by errno, the first of each kept in full, and the decision when a worker must stop.

use crate::clock::MonoNanos;
use crate::common::OnError;
use crate::data::Mismatches;
use crate::op::Op;
use std::io;
use std::time::Duration;

/// What the database and reports call a block that is not what was written: the errno of a failed checksum.
pub const MISMATCH: i32 = libc::EBADMSG;
/// Errors of one kind that are kept in full.
const FEW: u64 = Mismatches::KEPT;
/// Kinds of error that one worker tells apart; the rest is counted together under errno 0.
const KINDS: usize = 32;
/// A storage system may fail over; one from which nothing has come for this long is gone, as `lease` and `loss-after`.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);
/// And it must not be one slow operation that failed twice.
const GIVE_UP_ERRORS: u64 = 100;

/// What is known of an operation that failed.
#[derive(Debug, Clone, Copy)]
pub struct ErrorFacts<'a> {
    pub errno: i32,
    /// The file, directory or peer.
    pub path: &'a str,
    pub offset: Option<u64>,
}

impl<'a> ErrorFacts<'a> {
    /// The facts of a failed system call.
    pub fn of(error: &io::Error, path: &'a str) -> ErrorFacts<'a> {
        ErrorFacts {
            errno: error.raw_os_error().unwrap_or(0),
            path,
            offset: None,
        }
    }

    /// The same at an offset.
    pub fn at(self, offset: u64) -> ErrorFacts<'a> {
        ErrorFacts {
            offset: Some(offset),
            ..self
        }
    }

    fn describe(&self, op: Op) -> String {
        let cause = match self.errno {
            0 => "unknown cause".to_owned(),
            libc::ENODATA => "the file ended before the block was full".to_owned(),
            errno => io::Error::from_raw_os_error(errno).to_string(),
        };
        match self.offset {
            Some(offset) => format!("{op} {} at offset {offset}: {cause}", self.path),
            None => format!("{op} {}: {cause}", self.path),
        }
    }
}

/// Errors of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorCount {
    pub op: Op,
    pub errno: i32,
    pub count: u64,
    /// The first few in full: operation, path, offset, cause.
    pub first: String,
    pub first_at: MonoNanos,
}

/// Why a worker could not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    #[error("there is no space left: {first}; free some, or make the load smaller")]
    NoSpace { first: String },
    #[error("nothing has succeeded for {seconds} s ({errors} errors in a row), the last: {last}")]
    Hopeless {
        seconds: u64,
        errors: u64,
        last: String,
    },
    #[error("an operation failed, and `on-error` says to stop then: {first}")]
    Stopped { first: String },
    #[error("{what}")]
    Broken { what: String },
}

/// The errors of one worker.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    on_error: OnError,
    counts: Vec<ErrorCount>,
    streak_since: MonoNanos,
}

impl ErrorLog {
    pub(super) fn new(on_error: OnError) -> ErrorLog {
        ErrorLog {
            on_error,
            ..ErrorLog::default()
        }
    }

    /// Counts one error, the `streak`th in a row.
    pub(super) fn add(
        &mut self,
        op: Op,
        now: MonoNanos,
        streak: u64,
        facts: &ErrorFacts<'_>,
    ) -> Result<(), OpError> {
        let describe = |_| facts.describe(op);
        self.add_described(op, now, streak, (facts.errno, 1), &describe)
    }

    /// Counts each sector that one operation has found to be wrong, the `streak`th in a row that failed.
    pub(super) fn add_mismatches(
        &mut self,
        op: Op,
        now: MonoNanos,
        streak: u64,
        path: &str,
        wrong: &Mismatches,
    ) -> Result<(), OpError> {
        let describe = |number: usize| match wrong.first().get(number) {
            Some(mismatch) => format!("{op} {path} at offset {}: {mismatch}", mismatch.offset),
            None => format!("{op} {path}: {} sectors are wrong", wrong.count()),
        };
        self.add_described(op, now, streak, (MISMATCH, wrong.count()), &describe)
    }

    /// Counts `count` errors of one kind that one operation had, which `describe` tells apart.
    fn add_described(
        &mut self,
        op: Op,
        now: MonoNanos,
        streak: u64,
        (errno, count): (i32, u64),
        describe: &dyn Fn(usize) -> String,
    ) -> Result<(), OpError> {
        let kind = match self.counts.len() < KINDS || self.knows(op, errno) {
            true => errno,
            false => 0,
        };
        if self.find(op, kind).is_none() {
            self.counts.push(ErrorCount {
                op,
                errno: kind,
                count: 0,
                first: String::new(),
                first_at: now,
            });
        }
        if let Some(known) = self.find(op, kind) {
            let told = count.min(FEW.saturating_sub(known.count));
            for number in 0..usize::try_from(told).unwrap_or(0) {
                if !known.first.is_empty() {
                    known.first.push_str("; ");
                }
                known.first.push_str(&describe(number));
            }
            known.count = known.count.saturating_add(count);
        }
        let describe = || describe(0);
        if [libc::ENOSPC, libc::EDQUOT].contains(&errno) {
            let first = describe();
            return Err(OpError::NoSpace { first });
        }
        if self.on_error == OnError::Stop {
            let first = describe();
            return Err(OpError::Stopped { first });
        }
        if streak <= 1 {
            self.streak_since = now;
        }
        let lasted = now.since(self.streak_since);
        if streak >= GIVE_UP_ERRORS && lasted >= GIVE_UP_AFTER {
            return Err(OpError::Hopeless {
                seconds: lasted.as_secs(),
                errors: streak,
                last: describe(),
            });
        }
        Ok(())
    }

    pub(super) fn into_counts(self) -> Vec<ErrorCount> {
        self.counts
    }

    fn knows(&self, op: Op, errno: i32) -> bool {
        self.counts
            .iter()
            .any(|known| (known.op, known.errno) == (op, errno))
    }

    fn find(&mut self, op: Op, errno: i32) -> Option<&mut ErrorCount> {
        self.counts
            .iter_mut()
            .find(|known| (known.op, known.errno) == (op, errno))
    }
}

/// The errors of several workers as one list: counts added, the earliest first kept.
pub(crate) fn merge(lists: impl IntoIterator<Item = Vec<ErrorCount>>) -> Vec<ErrorCount> {
    let mut merged: Vec<ErrorCount> = Vec::new();
    for error in lists.into_iter().flatten() {
        let known = merged
            .iter_mut()
            .find(|known| (known.op, known.errno) == (error.op, error.errno));
        match known {
            Some(known) => {
                known.count += error.count;
                if error.first_at < known.first_at {
                    known.first = error.first;
                    known.first_at = error.first_at;
                }
            }
            None => merged.push(error),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn facts(errno: i32) -> ErrorFacts<'static> {
        ErrorFacts {
            errno,
            path: "w0.dat",
            offset: Some(4096),
        }
    }

    #[test]
    fn errors_are_counted_by_errno_and_the_first_is_kept() {
        let mut log = ErrorLog::default();
        for at in 0..3 {
            log.add(Op::Read, MonoNanos(at), 1, &facts(libc::EIO))
                .unwrap();
        }
        log.add(Op::Read, MonoNanos(9), 1, &facts(libc::ESTALE))
            .unwrap();
        let counts = merge([log.into_counts()]);
        assert_eq!(counts.len(), 2);
        let io = counts.iter().find(|c| c.errno == libc::EIO).unwrap();
        assert_eq!(io.count, 3);
        assert!(
            io.first
                .starts_with("read w0.dat at offset 4096: Input/output error")
        );
    }

    #[test]
    fn kinds_are_bounded_and_no_error_is_lost() {
        let mut log = ErrorLog::default();
        for errno in 1000..1100 {
            log.add(Op::Stat, MonoNanos(0), 1, &facts(errno)).unwrap();
        }
        let counts = log.into_counts();
        assert!(counts.len() <= KINDS + 1);
        assert_eq!(counts.iter().map(|c| c.count).sum::<u64>(), 100);
    }

    #[test]
    fn a_full_target_stops_at_once_and_a_dead_one_after_a_while() {
        let mut log = ErrorLog::default();
        let full = log.add(Op::Write, MonoNanos(0), 1, &facts(libc::ENOSPC));
        assert!(
            full.unwrap_err()
                .to_string()
                .contains("no space left: write w0.dat at offset 4096")
        );

        let late = MonoNanos(0).saturating_add(GIVE_UP_AFTER);
        log.add(Op::Write, MonoNanos(0), 1, &facts(libc::EIO))
            .unwrap();
        log.add(Op::Write, late, GIVE_UP_ERRORS - 1, &facts(libc::EIO))
            .unwrap();
        let dead = log.add(Op::Write, late, GIVE_UP_ERRORS, &facts(libc::EIO));
        assert!(
            dead.unwrap_err()
                .to_string()
                .contains("nothing has succeeded for 30 s")
        );
        log.add(Op::Write, late, 1, &facts(libc::EIO)).unwrap();
        log.add(Op::Write, late, GIVE_UP_ERRORS, &facts(libc::EIO))
            .unwrap();
    }

    #[test]
    fn the_first_error_ends_a_load_that_is_to_stop() {
        let mut log = ErrorLog::new(OnError::Stop);
        let stopped = log.add(Op::Read, MonoNanos(0), 1, &facts(libc::EIO));
        assert!(
            stopped
                .unwrap_err()
                .to_string()
                .contains("says to stop then: read w0.dat at offset 4096")
        );
        assert_eq!(log.into_counts().len(), 1);
    }

    #[test]
    fn merging_keeps_the_earliest() {
        let count = |at: u64, first: &str| ErrorCount {
            op: Op::Read,
            errno: 5,
            count: 2,
            first: first.to_owned(),
            first_at: MonoNanos(at),
        };
        let merged = merge([vec![count(9, "late")], vec![count(3, "early")]]);
        assert_eq!(
            merged,
            [ErrorCount {
                count: 4,
                ..count(3, "early")
            }]
        );
    }
}
