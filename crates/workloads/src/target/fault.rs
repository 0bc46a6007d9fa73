//! A failed operation and how it is recorded, the same for every workload.
//!
//! Invariant: a failed operation counts once, whatever was wrong with it. Each wrong sector that it read counts as
//! well, even if a call failed after that or the end of the load cut the operation off.

use super::calls::CallError;
use crate::measure::op::Op;
use crate::measure::recorder::{Began, ErrorFacts, OpError, Recorder};
use crate::target::data::Mismatches;
use rustix::io::Errno;
use std::path::Path;

/// A failed call, wrong data that were read, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub failed: Option<CallError>,
    pub mismatches: Mismatches,
}

impl From<CallError> for Fault {
    fn from(failed: CallError) -> Self {
        Self {
            failed: Some(failed),
            ..Self::default()
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        CallError::from(errno).into()
    }
}

/// Whether the file system of a path has no free inode. The kernel reports that as a lack of space.
pub(crate) fn has_no_inodes(path: &Path) -> bool {
    // The file itself was not made.
    let facts = rustix::fs::statvfs(path).or_else(|errno| match path.parent() {
        Some(parent) => rustix::fs::statvfs(parent),
        None => Err(errno),
    });
    facts.is_ok_and(|facts| facts.f_files > 0 && facts.f_favail == 0)
}

impl Fault {
    /// From the result of the calls and the wrong data that they read; the default if there are neither.
    pub(crate) fn of(calls: Result<(), CallError>, mismatches: Mismatches) -> Self {
        Self {
            failed: calls.err(),
            mismatches,
        }
    }

    /// From data read by calls that all succeeded.
    pub(crate) fn found(mismatches: Mismatches) -> Result<(), Self> {
        match mismatches.is_empty() {
            true => Ok(()),
            false => Err(Self {
                failed: None,
                mismatches,
            }),
        }
    }

    /// Records that the operation ended with this fault.
    #[cold]
    #[inline(never)]
    pub(crate) fn record(
        &self,
        recorder: &mut Recorder,
        op: Op,
        began: Began,
        path: &Path,
    ) -> Result<(), OpError> {
        let path = path.to_string_lossy();
        let Some(failed) = self.failed else {
            return recorder.mismatch(op, began, &path, &self.mismatches);
        };
        let facts = ErrorFacts {
            errno: failed.errno.raw_os_error(),
            path: &path,
            offset: failed.offset,
        };
        let recorded = recorder.error(op, began, &facts);
        let recorded = recorded.map_err(|error| match error {
            OpError::NoSpace { first } if has_no_inodes(Path::new(&*path)) => {
                OpError::NoInodes { first }
            }
            other => other,
        });
        if self.mismatches.is_empty() {
            return recorded;
        }
        let counted = recorder.add_mismatches(op, &path, &self.mismatches);
        recorded.and(counted)
    }

    /// Records that the end of the load cut the operation off: it has neither succeeded nor failed, but the wrong
    /// sectors that it had read by then count.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_cut_off(
        &self,
        recorder: &mut Recorder,
        op: Op,
        path: &Path,
    ) -> Result<(), OpError> {
        recorder.idle();
        match self.mismatches.is_empty() {
            true => Ok(()),
            false => recorder.add_mismatches(op, &path.to_string_lossy(), &self.mismatches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::recorder::{MISMATCH, Settings, pair};
    use crate::target::data::{FoundData, Mismatch};

    #[test]
    fn wrong_data_count_even_if_the_operation_is_cut_off() {
        let (mut recorder, consumer) = pair(Settings::of(&[Op::Read]));
        recorder.begin_as(Op::Read);
        let mut mismatches = Mismatches::default();
        mismatches.add(Mismatch {
            offset: 7,
            found: FoundData::More,
        });
        let fault = Fault {
            mismatches,
            ..Fault::from(Errno::CANCELED)
        };
        let recorded = fault.record_cut_off(&mut recorder, Op::Read, Path::new("f"));
        assert!(recorded.is_ok());
        assert_eq!(consumer.in_flight(), None);
        let errors = recorder.finish();
        let counts: Vec<_> = errors.iter().map(|it| (it.errno, it.count)).collect();
        assert_eq!(counts, [(MISMATCH, 1)]);
    }
}
