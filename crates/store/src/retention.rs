//! How long the rows of a database are kept, and the task that enforces it.
//!
//! Rows of seconds (`op_intervals`, `step_intervals`, samples) of ended runs are merged into rows of 10 s and of 60 s
//! as they grow old. If the database is too large, the oldest runs' rows are merged, and finally deleted. Results,
//! `step_daemons`, events, marks, notes and findings stay. Ages are in mesh time, which never goes back. In a run that
//! has not ended, two kinds of rows grow old: steps of earlier loops, and the rows of the running step that are summed
//! up and older than all rows still expected. `store::prune` does the work.

mod by_hand;
mod retainer;
mod size_limit;

pub use retainer::Retainer;

use crate::prune::{Resolution, Settings};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_workloads::figures;
use std::time::Duration;

/// Old rows may wait for rows that agents send, to share their transactions and to leave the writer to them, for at
/// most an eighth of the time for which they were kept.
const MAX_WAIT_SHARE: u32 = 8;

/// How long rows stay unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFor {
    Span(Duration),
    Forever,
}

impl KeepFor {
    fn us(self) -> Option<i64> {
        match self {
            Self::Span(span) => Some(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
            Self::Forever => None,
        }
    }
}

/// The maximum size of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxSize {
    Bytes(u64),
    Unlimited,
}

impl MaxSize {
    fn bytes(self) -> Option<i64> {
        match self {
            Self::Bytes(bytes) => Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
            Self::Unlimited => None,
        }
    }
}

/// The retention settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// For rows of seconds, from the end of their run.
    pub keep_seconds: KeepFor,
    /// For rows of 10 s, likewise.
    pub keep_10s: KeepFor,
    pub max_size: MaxSize,
    /// Runs with one of these tags keep all rows.
    pub keep_tags: Vec<(String, String)>,
    /// Steps that would have fewer rows than this are merged only if the database is too large, or on request: they use
    /// little space, and verdicts need their seconds.
    pub min_rows: i64,
}

/// A step of 10 minutes in rows of 10 s.
pub const MIN_ROWS: i64 = 60;

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Self {
            keep_seconds: KeepFor::Span(7 * DAY),
            keep_10s: KeepFor::Span(30 * DAY),
            max_size: MaxSize::Bytes(20_000_000_000),
            keep_tags: Vec::new(),
            min_rows: MIN_ROWS,
        }
    }
}

/// Why the settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    #[error(
        "--keep-10s ({}) is shorter than --keep-seconds ({}): both count from the end of a run; rows are merged into 10 s \
         after --keep-seconds and into 60 s after --keep-10s",
        figures::span(*keep_10s), figures::span(*keep_seconds)
    )]
    Order {
        keep_seconds: Duration,
        keep_10s: Duration,
    },
    #[error(
        "--keep-seconds forever with --keep-10s {}: rows of seconds would be merged into 60 s and never into 10 s; write \
         --keep-10s forever too, or a span for --keep-seconds",
        figures::span(*keep_10s)
    )]
    SecondsForever { keep_10s: Duration },
}

impl Retention {
    /// Checks that the settings are consistent.
    pub fn check(&self) -> Result<(), RetentionError> {
        match (self.keep_seconds, self.keep_10s) {
            (KeepFor::Span(keep_seconds), KeepFor::Span(keep_10s)) if keep_10s < keep_seconds => {
                Err(RetentionError::Order {
                    keep_seconds,
                    keep_10s,
                })
            }
            (KeepFor::Forever, KeepFor::Span(keep_10s)) => {
                Err(RetentionError::SecondsForever { keep_10s })
            }
            _ => Ok(()),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            keep_seconds_us: self.keep_seconds.us(),
            keep_10s_us: self.keep_10s.us(),
            max_size_bytes: self.max_size.bytes(),
            keep_tags: self.keep_tags.clone(),
        }
    }

    /// For each resolution, the instant before which ended data must have it.
    fn due(&self, now: MeshMicros) -> impl Iterator<Item = Due> + use<> {
        let due = |to, keep: KeepFor| match keep {
            KeepFor::Span(age) => Some(Due {
                to,
                before: MeshMicros(now.0.saturating_sub(keep.us().unwrap_or(i64::MAX))),
                max_wait: age / MAX_WAIT_SHARE,
            }),
            KeepFor::Forever => None,
        };
        [
            // First, so that rows are not merged twice.
            due(Resolution::Minute, self.keep_10s),
            due(Resolution::TenSeconds, self.keep_seconds),
        ]
        .into_iter()
        .flatten()
    }
}

/// The rows to merge.
#[derive(Clone, Copy, Debug)]
struct Due {
    to: Resolution,
    before: MeshMicros,
    /// Maximum time for it.
    max_wait: Duration,
}

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Runs that ended longer ago than this.
    pub older: Duration,
    pub to: Resolution,
    /// In addition to the configured tags.
    pub keep_tags: Vec<(String, String)>,
    pub dry_run: bool,
}

/// The progress of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneProgress {
    pub steps: u64,
    pub steps_total: u64,
    pub runs_total: u64,
    /// Number of removed rows.
    pub rows: u64,
    pub longest: Duration,
    pub used_bytes: i64,
    pub file_bytes: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_in_the_wrong_order_are_refused() {
        let hours = |hours: u64| KeepFor::Span(Duration::from_secs(hours * 3600));
        let cases = [
            (hours(1), hours(2), true),
            (hours(2), hours(2), true),
            (hours(3), hours(2), false),
            (hours(3), KeepFor::Forever, true),
            (KeepFor::Forever, hours(2), false),
            (KeepFor::Forever, KeepFor::Forever, true),
        ];
        for (keep_seconds, keep_10s, is_good) in cases {
            let retention = Retention {
                keep_seconds,
                keep_10s,
                ..Retention::default()
            };
            let checked = retention.check();
            assert_eq!(checked.is_ok(), is_good, "{retention:?}: {checked:?}");
        }
    }
}
