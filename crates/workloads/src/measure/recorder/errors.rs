//! Failed operations: counts them by errno, keeps the first of each in full, and decides when a worker must stop.

use crate::declare_words;
use crate::measure::clock::MonoNanos;
use crate::measure::mismatch::Mismatches;
use crate::measure::op::Op;
use std::io;
use std::time::Duration;

declare_words! {
    /// What happens after an operation that failed.
    #[derive(Default)]
    pub enum OnError {
        /// It is counted.
        #[default]
        Continue = "continue",
        /// It ends the task.
        Stop = "stop",
    }
}

/// Errno for data that differ from what was written, in the database and reports: that of a failed checksum.
pub const MISMATCH: i32 = libc::EBADMSG;
/// Number of errors of one kind that are kept in full.
const MAX_KEPT: u64 = Mismatches::MAX_KEPT;
/// Number of kinds of error per worker; all others are counted together under errno 0.
const KINDS: usize = 32;
/// Default of `errors-limit`, as long as `lease` and `loss-after`, because a storage system may fail over meanwhile.
pub const DEFAULT_ERRORS_LIMIT: Duration = Duration::from_secs(30);
/// One slow operation that fails twice must not end a task.
const MIN_ERRORS: u64 = 10;
/// Begins the error of every task ended by its errors-limit.
const ERRORS_LIMIT: &str = "errors-limit: ";
/// Number of identical errors in a row before backoff begins.
const UNDELAYED_ERRORS: u64 = 100;
const MIN_DELAY: Duration = Duration::from_millis(1);
/// A waiting worker checks for a stop ten times a second.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// Facts about a failed operation.
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

    /// The same with an offset.
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
    #[error("there is no free inode left: {first}; free some, or make fewer files and directories")]
    NoInodes { first: String },
    #[error(
        "{ERRORS_LIMIT}nothing has succeeded for {seconds} s ({errors} errors in a row), the last: {last}"
    )]
    ErrorsLimit {
        seconds: u64,
        errors: u64,
        last: String,
    },
    #[error("an operation failed, and `on-error` says to stop then: {first}")]
    Stopped { first: String },
    #[error("{what}")]
    Broken { what: String },
}

/// Whether a task with this error was ended by its `errors-limit`.
#[must_use]
pub fn is_errors_limit(error: &str) -> bool {
    error.contains(ERRORS_LIMIT)
}

/// What a worker does when operations fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPolicy {
    pub on_error: OnError,
    /// The task ends if all operations fail for this long.
    pub limit: Duration,
}

impl Default for ErrorPolicy {
    fn default() -> ErrorPolicy {
        ErrorPolicy {
            on_error: OnError::default(),
            limit: DEFAULT_ERRORS_LIMIT,
        }
    }
}

/// The errors of one worker.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    policy: ErrorPolicy,
    counts: Vec<ErrorCount>,
    streak_since: MonoNanos,
    /// The errno of the last error, and how often it occurred in a row.
    identical: (i32, u64),
}

impl ErrorLog {
    pub(super) fn new(policy: ErrorPolicy) -> ErrorLog {
        ErrorLog {
            policy,
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

    /// Counts each wrong sector found by one operation, the `streak`th failure in a row.
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

    /// Counts `count` errors of one kind of one operation; `describe` describes each.
    fn add_described(
        &mut self,
        op: Op,
        now: MonoNanos,
        streak: u64,
        (errno, count): (i32, u64),
        describe: &dyn Fn(usize) -> String,
    ) -> Result<(), OpError> {
        self.identical = match self.identical {
            (last, times) if last == errno && streak > 1 => (errno, times.saturating_add(1)),
            _ => (errno, 1),
        };
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
            let described = count.min(MAX_KEPT.saturating_sub(known.count));
            for number in 0..usize::try_from(described).unwrap_or(0) {
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
        if self.policy.on_error == OnError::Stop {
            let first = describe();
            return Err(OpError::Stopped { first });
        }
        if streak <= 1 {
            self.streak_since = now;
        }
        let lasted = now.since(self.streak_since);
        if streak >= MIN_ERRORS && lasted >= self.policy.limit {
            return Err(OpError::ErrorsLimit {
                seconds: lasted.as_secs(),
                errors: streak,
                last: describe(),
            });
        }
        Ok(())
    }

    /// How long to back off before the next operation, so that a target that refuses everything does not get a hundred
    /// thousand requests a second. Doubles with each further identical error in a row.
    pub(super) fn delay(&self) -> Option<Duration> {
        let (errno, times) = self.identical;
        let beyond = times.checked_sub(UNDELAYED_ERRORS + 1)?;
        if is_of_one_file(errno) {
            return None;
        }
        let factor = 1_u32 << beyond.min(16);
        Some(MIN_DELAY.saturating_mul(factor).min(MAX_DELAY))
    }

    pub(super) fn counts(&self) -> &[ErrorCount] {
        &self.counts
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

/// Whether an error concerns one file or the data read, and not the target.
fn is_of_one_file(errno: i32) -> bool {
    matches!(
        errno,
        0 | MISMATCH
            | libc::ENOENT
            | libc::EEXIST
            | libc::ENOTEMPTY
            | libc::ENOTDIR
            | libc::EISDIR
            | libc::ENODATA
            | libc::EINVAL
            | libc::EOPNOTSUPP
    )
}

/// Merges the errors of several workers: adds the counts, keeps the earliest `first`.
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
        let counts = merge([log.counts().to_vec()]);
        assert_eq!(counts.len(), 2);
        let io = counts.iter().find(|c| c.errno == libc::EIO).unwrap();
        assert_eq!(io.count, 3);
        assert!(
            io.first
                .starts_with("read w0.dat at offset 4096: Input/output error")
        );
    }

    #[test]
    fn kinds_of_error_are_bounded_and_none_is_lost() {
        let mut log = ErrorLog::default();
        for errno in 1000..1100 {
            log.add(Op::Stat, MonoNanos(0), 1, &facts(errno)).unwrap();
        }
        let counts = log.counts();
        assert!(counts.len() <= KINDS + 1);
        assert_eq!(counts.iter().map(|c| c.count).sum::<u64>(), 100);
    }

    #[test]
    fn a_full_target_ends_a_task_at_once() {
        let mut log = ErrorLog::default();
        let full = log.add(Op::Write, MonoNanos(0), 1, &facts(libc::ENOSPC));
        assert!(
            full.unwrap_err()
                .to_string()
                .contains("no space left: write w0.dat at offset 4096")
        );
    }

    #[test]
    fn nothing_but_errors_for_the_errors_limit_ends_a_task() {
        let check = |limit: u64, after_s: u64, streak: u64, ends: bool| {
            let mut log = ErrorLog::new(ErrorPolicy {
                limit: Duration::from_secs(limit),
                ..ErrorPolicy::default()
            });
            let mut add = |at_s: u64, streak| {
                let at = MonoNanos(at_s * 1_000_000_000);
                log.add(Op::Write, at, streak, &facts(libc::EIO))
            };
            add(0, 1).unwrap();
            let result = add(after_s, streak);
            assert_eq!(result.is_err(), ends, "{limit} {after_s} {streak}");
            if let Err(error) = result {
                let error = format!("worker 0: {error}");
                assert!(is_errors_limit(&error), "{error}");
                assert!(error.contains(&format!("nothing has succeeded for {after_s} s")));
            }
            // A success between two errors resets the limit.
            add(after_s, 1).unwrap();
            add(after_s, streak).unwrap();
        };
        check(30, 30, MIN_ERRORS, true);
        check(30, 30, MIN_ERRORS - 1, false);
        check(30, 29, 10_000, false);
        check(2, 2, MIN_ERRORS, true);
        check(3600, 3599, 1_000_000, false);
        assert!(!is_errors_limit("worker 0: invalid parameter"));
    }

    #[test]
    fn identical_errors_of_the_target_are_slowed_down_and_no_others() {
        let mut log = ErrorLog::default();
        let mut add = |streak: u64, errno: i32| {
            log.add(Op::Read, MonoNanos(0), streak, &facts(errno))
                .unwrap();
            log.delay()
        };
        let millis = |count: u64| Some(Duration::from_millis(count));
        let delays: Vec<_> = (1..=110)
            .map(|streak| add(streak, libc::ENOTCONN))
            .collect();
        assert!(delays.iter().take(100).all(Option::is_none));
        let expected = [1, 2, 4, 8, 16, 32, 64, 100, 100, 100].map(millis);
        assert_eq!(delays.get(100..), Some(&expected[..]));
        // Another error, or a success in between, resets the backoff.
        assert_eq!(add(111, libc::EIO), None);
        assert!((112..=210).all(|streak| add(streak, libc::EIO).is_none()));
        assert_eq!(add(211, libc::EIO), millis(1));
        assert_eq!(add(1, libc::EIO), None);
        assert!((1..500).all(|streak| add(streak, libc::ENOENT).is_none()));
    }

    #[test]
    fn on_error_stop_ends_the_load_at_the_first_error() {
        let mut log = ErrorLog::new(ErrorPolicy {
            on_error: OnError::Stop,
            ..ErrorPolicy::default()
        });
        let stopped = log.add(Op::Read, MonoNanos(0), 1, &facts(libc::EIO));
        assert!(
            stopped
                .unwrap_err()
                .to_string()
                .contains("says to stop then: read w0.dat at offset 4096")
        );
        assert_eq!(log.counts().len(), 1);
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
