//! The keys that mean the same in every workload: its pace, and what is done about errors.
//!
//! A workload puts [`KEYS`] among its own; everything else happens outside of it: the values are checked with its own
//! parameters, and the task gives each worker's recorder what it needs.

use crate::op::Op;
use crate::pacing::{Pace, PaceParams, Schedule, Share, Unit};
use crate::params::{KeyInfo, ParamError, part};
use crate::units::Span;
use crate::workload::{ModeInfo, Params};
use serde::Deserialize;
use std::time::Duration;

/// The keys, for a workload's own list.
pub const KEYS: &[KeyInfo] = &[
    KeyInfo {
        name: "rate_iops",
        kind: "count",
        default: "as fast as possible",
        meaning: "operations per second; their instants are fixed in advance and kept when the target is late, and the \
                  response time runs from them",
    },
    KeyInfo {
        name: "rate",
        kind: "size",
        default: "as fast as possible",
        meaning: "bytes per second, instead of `rate_iops`",
    },
    KeyInfo {
        name: "rate-per",
        kind: "worker, task or step",
        default: "worker",
        meaning: "whose rate it is; a task's or a step's is shared evenly by its workers",
    },
    KeyInfo {
        name: "rate_process",
        kind: "linear or poisson",
        default: "linear",
        meaning: "operations are due at even distances, or as independent users' come",
    },
    KeyInfo {
        name: "on-error",
        kind: "continue or stop",
        default: "continue",
        meaning: "whether the step goes on after an operation that failed; a full target always ends it, and so do 30 s \
                  of nothing but errors; a link that broke cannot be mended, so `network` knows `stop` alone",
    },
    KeyInfo {
        name: "stall-after",
        kind: "duration",
        default: "30s",
        meaning: "an operation that has not ended for so long is an event `stall` that names its worker, path and \
                  offset (the oldest of several in flight), and another event, `stall-over`, when it has; what follows is \
                  the plan's `on-stall`. The same holds for a system call before or after the load, but that bringing laid \
                  out data to stable storage (fsync, syncfs) is always waited for",
    },
];

/// As long as a client without contact is waited for: a storage system may fail over meanwhile.
const DEFAULT_STALL: Duration = Duration::from_secs(30);
const LEAST_STALL: Duration = Duration::from_secs(1);

/// What follows from an operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// It is counted.
    #[default]
    Continue,
    /// It ends the task.
    Stop,
}

#[derive(Debug, Default, Deserialize)]
struct CommonParams {
    #[serde(rename = "on-error", default)]
    on_error: OnError,
    #[serde(rename = "stall-after")]
    stall_after: Option<Span>,
}

/// The values of the common keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    pub pace: Option<Pace>,
    pub on_error: OnError,
    /// An operation in flight for so long is a stall.
    pub stall_after: Duration,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            pace: None,
            on_error: OnError::default(),
            stall_after: DEFAULT_STALL,
        }
    }
}

impl Common {
    /// Reads the common keys among a workload's parameters.
    pub fn of(params: &Params) -> Result<Common, ParamError> {
        let CommonParams {
            on_error,
            stall_after,
        } = part(params)?;
        let stall_after = stall_after.map_or(DEFAULT_STALL, |span| span.0);
        if stall_after < LEAST_STALL {
            let message = format!(
                "must be at least {}: workers are looked at so often",
                Span(LEAST_STALL)
            );
            return Err(ParamError::of("stall-after", message));
        }
        Ok(Common {
            pace: Pace::of(&part::<PaceParams>(params)?)?,
            on_error,
            stall_after,
        })
    }

    /// Refuses what this mode cannot do.
    pub fn check(&self, mode: &ModeInfo) -> Result<(), ParamError> {
        match self.pace {
            Some(pace)
                if pace.unit == Unit::Bytes && !mode.ops.iter().any(|op| Op::has_bytes(*op)) =>
            {
                let message = format!("mode `{}` moves no bytes; use `rate_iops`", mode.name);
                Err(ParamError::of("rate", message))
            }
            _ => Ok(()),
        }
    }

    /// When one worker's operations are due; `None` when the load is not paced.
    pub fn schedule(&self, share: Share) -> Option<Schedule> {
        self.pace.map(|pace| Schedule::new(&pace, share))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pacing::{Per, Process};
    use crate::workload;
    use serde_json::{Value, json};

    fn common(params: &Value) -> Result<Common, ParamError> {
        Common::of(params.as_object().unwrap())
    }

    #[test]
    fn every_workload_has_the_common_keys_and_refuses_what_cannot_be() {
        for workload in workload::registry() {
            for key in KEYS {
                assert!(
                    workload.keys().contains(key),
                    "{} {}",
                    workload.name(),
                    key.name
                );
            }
            for mode in workload.modes() {
                let params = json!({"size": "1m", "operations": "- mkdir a", "timing": "none", "rate_iops": 0});
                let mut params = params.as_object().unwrap().clone();
                params.retain(|key, _| workload.keys().iter().any(|known| known.name == key));
                let error = workload::check(*workload, mode.name, &params).unwrap_err();
                assert_eq!(error.key.as_deref(), Some("rate_iops"), "{error}");
            }
        }
    }

    #[test]
    fn a_rate_is_read() {
        assert_eq!(common(&json!({"bs": "4k"})).unwrap(), Common::default());
        let read = common(
            &json!({"rate": "1m", "rate-per": "step", "rate_process": "poisson", "on-error": "stop", "stall-after": "90s"}),
        );
        let expected = Common {
            pace: Some(Pace {
                unit: Unit::Bytes,
                per_second: 1 << 20,
                per: Per::Step,
                process: Process::Poisson,
            }),
            on_error: OnError::Stop,
            stall_after: Duration::from_secs(90),
        };
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (bad, key, part) in [
            (json!({"rate": 0}), "rate", "leave it out"),
            (json!({"rate_iops": 0}), "rate_iops", "leave it out"),
            (json!({"rate_iops": -1}), "rate_iops", "expected u64"),
            (
                json!({"rate_iops": 2_000_000_000}),
                "rate_iops",
                "kept apart",
            ),
            (json!({"rate": "2000p"}), "rate", "kept apart"),
            (
                json!({"rate": "4k", "rate_iops": 5}),
                "rate_iops",
                "one rate",
            ),
            (
                json!({"rate-per": "task"}),
                "rate-per",
                "means nothing without",
            ),
            (
                json!({"rate_process": "linear"}),
                "rate_process",
                "means nothing without",
            ),
            (
                json!({"rate": 5, "rate-per": "host"}),
                "rate-per",
                "unknown variant",
            ),
            (
                json!({"rate": 5, "rate_process": "even"}),
                "rate_process",
                "unknown variant",
            ),
            (json!({"stall-after": "0s"}), "stall-after", "at least 1s"),
            (json!({"on-error": "ignore"}), "on-error", "unknown variant"),
        ] {
            let error = common(&bad).unwrap_err();
            assert_eq!(error.key.as_deref(), Some(key), "{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn bytes_per_second_need_bytes() {
        let params = json!({"rate": "1m"});
        let refused = workload::check(&crate::files::Files, "stat", params.as_object().unwrap());
        assert!(refused.unwrap_err().message.contains("use `rate_iops`"));
        workload::check(&crate::files::Files, "read", params.as_object().unwrap()).unwrap();
    }
}
